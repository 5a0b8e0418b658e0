"""Filling settings: presets, then files, then command-line flags; and writing them down again.

Unknown keys are errors. The resolved settings are written into each run directory as TOML that `--config` reads back.
"""

import dataclasses
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import tomli_w

from dph.config.bounds import check_bounds
from dph.config.files import is_settings_file, read_settings
from dph.config.stages import (
    DemoConfig,
    DoctorConfig,
    EvalConfig,
    InterpolateConfig,
    PartitionRule,
    PresampleConfig,
    PushConfig,
    ReportConfig,
    SftConfig,
    TrainConfig,
    VerifyConfig,
)
from dph.config.verl import VerlConfig
from dph.errors import UserError

T = TypeVar("T")

_PRESETS = Path(__file__).parents[1] / "presets"


def _is_config(value: object) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def to_dict(config: Any) -> dict[str, Any]:
    """A config as nested plain dictionaries."""
    return dataclasses.asdict(config)


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dictionaries as one with dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def absolute(text: str) -> str:
    """The path of an existing file or folder in one spelling, absolute and without links; any other text as it is."""
    try:
        path = Path(text).expanduser()
        return str(path.resolve()) if text and path.exists() else text
    except (OSError, RuntimeError, ValueError):  # not a possible path
        return text


def comparable(value: Any) -> Any:
    """Settings, as plain dictionaries, with every path in one spelling; also that of a function, FILE.py:NAME."""
    if isinstance(value, str):
        file, colon, name = value.rpartition(":")
        return absolute(file) + colon + name if file.endswith(".py") else absolute(value)
    if isinstance(value, Mapping):
        return {key: comparable(item) for key, item in value.items()}
    return [comparable(item) for item in value] if isinstance(value, list | tuple) else value


def to_toml(config: Any) -> str:
    """A config as TOML text that `--config` reads back."""
    return tomli_w.dumps(to_dict(config))


def narrowed(cls: type[T], config: Any, **changes: Any) -> T:
    """The part of a config that a smaller class declares too, with changes: what one stage passes on to another."""
    return cls(**{item.name: getattr(config, item.name) for item in dataclasses.fields(cls)} | changes)  # type: ignore[arg-type]


def _merge(base: dict[str, Any], extra: Mapping[str, Any]) -> None:
    for key, value in extra.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), dict):
            _merge(base[key], value)
        else:
            base[key] = dict(value) if isinstance(value, Mapping) else value


def preset_names() -> list[str]:
    """Names of the presets that come with the package."""
    return sorted(entry.name[:-5] for entry in _PRESETS.iterdir() if entry.name.endswith(".toml"))


def preset_label(name: str) -> str:
    """The name of a method preset in tables; "" for a preset of something else, such as a model or a world."""
    return str(_table(_preset_file(name), "meta", f"the preset {name!r}").get("label", ""))


def _read_preset(name: str) -> dict[str, Any]:
    return _without_meta(_preset_file(name))


def _read_file(path: Path) -> dict[str, Any]:
    return _without_meta(read_settings(path))


def _without_meta(tree: dict[str, Any]) -> dict[str, Any]:
    """The settings of a preset or file: all but its table `meta`, which is about them."""
    return {key: value for key, value in tree.items() if key != "meta"}


def _preset_file(name: str) -> dict[str, Any]:
    """A preset of the package by name, or one of the user's by the path of its file."""
    if is_settings_file(name):
        return read_settings(Path(name))
    if name not in preset_names():
        raise UserError(
            f"no preset is named {name!r}; known are: {', '.join(preset_names())}; to use a file of your own as a "
            "preset, give its path, which ends in .toml or .yaml"
        )
    return tomllib.loads((_PRESETS / f"{name}.toml").read_text(encoding="utf-8"))


STAGES: dict[str, type[Any]] = {
    "sft": SftConfig,
    "presample": PresampleConfig,
    "train": TrainConfig,
    "verl": VerlConfig,
    "eval": EvalConfig,
    "verify": VerifyConfig,
    "interpolate": InterpolateConfig,
    "push": PushConfig,
    "report": ReportConfig,
    "demo": DemoConfig,
    "doctor": DoctorConfig,
}
"""Settings class of each stage."""


def merge_settings(stage: str, presets: Sequence[str], files: Sequence[Path]) -> dict[str, Any]:
    """Settings of one stage from presets in the order given, then files.

    One preset or file may serve several stages. Its top level (model, task, rollout …) holds for every stage, as far as
    the stage has these settings; a table named like a stage holds for that stage and overrides the top level. Inside, a
    table `for.<method>` applies if that method was chosen, so that a world or model may set, say, η per method. Presets
    are joined first; all that files say overrides all that presets say.

    Raises UserError for a key that no stage has, and for a file or preset that cannot be read.
    """
    if stage == "verl":
        return _merge_verl(presets, files)
    from_presets = [(f"the preset {name!r}", _read_preset(name)) for name in presets]
    from_files = [(str(path), _read_file(path)) for path in files]
    parts = [_merge_layers(stage, layers) for layers in (from_presets, from_files)]
    methods = [plain["method"] for plain, _ in parts if isinstance(plain.get("method"), str)]
    merged: dict[str, Any] = {}
    for plain, by_method in parts:
        _merge(merged, plain)
        _merge(merged, by_method.get(methods[-1], {}) if methods else {})
    return merged


def _merge_verl(presets: Sequence[str], files: Sequence[Path]) -> dict[str, Any]:
    """`dph verl` trains: what holds for `dph train` holds for it too. What holds for `dph presample` and `dph eval`
    fills its tables `partition` and `validation`. A table `verl` overrides all of this."""
    merged = merge_settings("train", presets, files)
    presample = from_dict(PresampleConfig, merge_settings("presample", presets, files))
    merged["partition"] = {"n": presample.rollout.n} | to_dict(narrowed(PartitionRule, presample))
    merged["validation"] = to_dict(from_dict(EvalConfig, merge_settings("eval", presets, files)).rollout)
    own = {item.name for item in dataclasses.fields(VerlConfig)}.difference(TrainConfig.__dataclass_fields__)
    for layer in [*map(_read_preset, presets), *map(_read_file, files)]:
        _merge(merged, {key: value for key, value in layer.items() if key in own})
        _merge(merged, _table(layer, "verl", "the settings"))
    return merged


def _merge_layers(stage: str, layers: Sequence[tuple[str, dict[str, Any]]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Joined settings of one stage from presets alone or files alone, and its tables `for.<method>`."""
    shared: dict[str, Any] = {}
    own: dict[str, Any] = {}
    everywhere: dict[str, Any] = {}
    for cls in STAGES.values():
        _merge(everywhere, _keys(cls))
    for where, layer in layers:
        for name in STAGES:
            _table(layer, name, where)
        table = _table(layer, stage, where)
        for part in (layer, table):
            for name in _table(part, "for", where):
                _table(part["for"], name, where, "for.")
        top = {key: value for key, value in layer.items() if key not in STAGES and key != "for"}
        part = _part_of(top, _keys(STAGES[stage]), everywhere, where)
        for settings in (part, {key: value for key, value in table.items() if key != "for"}):
            from_dict(STAGES[stage], settings, f"the settings in {where}")  # so that a mistake is named with its file
        _merge(shared, part)
        _merge(shared, {"for": layer.get("for", {})})
        _merge(own, table)
    _merge(shared, own)
    return shared, shared.pop("for", {})


def _keys(cls: type[Any]) -> dict[str, Any]:
    """The settings of a class by name, those of the configs in it nested; empty for a setting that is no config."""
    return {
        name: _keys(type(value)) if _is_config(value) else {}
        for name, value in ((item.name, getattr(cls(), item.name)) for item in dataclasses.fields(cls))
    }


def _part_of(
    tree: Mapping[str, Any], own: Mapping[str, Any], everywhere: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """The settings of a tree that a stage has. Raises UserError for one that no stage has."""
    part: dict[str, Any] = {}
    for key, value in tree.items():
        if key not in everywhere:
            raise UserError(f"{where} has an unknown key {key!r}; known here are: {', '.join(sorted(everywhere))}")
        if key in own:
            nested = own[key] and isinstance(value, Mapping)
            part[key] = _part_of(value, own[key], everywhere[key], f"{where} under {key!r}") if nested else value
    return part


def _table(tree: Mapping[str, Any], key: str, where: str, prefix: str = "") -> Mapping[str, Any]:
    value = tree.get(key, {})
    if not isinstance(value, Mapping):
        raise UserError(f"{where}: {prefix + key!r} must be a table, not {value!r}")
    return value


def load_settings(
    stage: str, presets: Sequence[str] = (), files: Sequence[Path] = (), overrides: Mapping[str, Any] | None = None
) -> Any:
    """The settings of a stage as its command line fills them: presets, then files, then overrides.

    Args:
        stage: its command: train, presample, eval, …
        overrides: nested dictionaries, in place of flags: {"out": "runs/a", "optim": {"lr": 1e-4}}.
    Raises:
        UserError: an unknown preset or key, a value of the wrong type or out of bounds.
    """
    merged = merge_settings(stage, presets, files)
    _merge(merged, overrides or {})
    settings = from_dict(STAGES[stage], merged)
    check_bounds(settings)
    return settings


def from_dict(cls: type[T], settings: Mapping[str, Any], where: str = "the settings", default: T | None = None) -> T:
    """Build a config from nested dictionaries over a default. UserError for unknown keys and wrong types."""
    default = cls() if default is None else default
    hints = typing.get_type_hints(cls)
    known = {item.name for item in dataclasses.fields(cls)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in settings.items():
        if key not in known:
            raise UserError(f"{where} have an unknown key {key!r}; known here are: {', '.join(sorted(known))}")
        current = getattr(default, key)
        if _is_config(current):
            if not isinstance(value, Mapping):
                raise UserError(f"{where}: {key!r} must be a table, not {value!r}")
            values[key] = from_dict(type(current), value, f"{where} under {key!r}", current)
        else:
            values[key] = _checked(hints[key], value, f"{where}: {key!r}")
    return dataclasses.replace(default, **values)  # type: ignore[type-var]


def _checked(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if value not in arguments:
            raise UserError(f"{where} must be one of {', '.join(map(repr, arguments))}, not {value!r}")
        return value
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise UserError(f"{where} must be a list, not {value!r}")
        return tuple(_checked(arguments[0], item, where) for item in value)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise UserError(f"{where} must be a table, not {value!r}")
        return {str(key): str(item) for key, item in value.items()}
    if origin in (typing.Union, types.UnionType):
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise UserError(f"{where} must be of type {hint.__name__}, not {value!r}")
    return value


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Dotted keys whose values differ, as "key: old → new" lines."""
    before, after = flatten(old), flatten(new)
    keys = [key for key in sorted(before.keys() | after.keys()) if before.get(key) != after.get(key)]
    return [f"{key}: {before.get(key)!r} → {after.get(key)!r}" for key in keys]
