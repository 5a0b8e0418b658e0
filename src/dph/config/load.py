"""Filling settings: presets, then files (TOML, or YAML by their names), then command-line flags. Unknown keys are
errors.
"""

import dataclasses
import re
import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from dph.config.files import read_bytes
from dph.config.permitted import Permitted, code_of
from dph.config.stages import STAGES, EvalConfig, PartitionRule, PresampleConfig
from dph.config.text import decoded
from dph.config.train import TrainConfig
from dph.config.trees import filled, from_dict, read_tree, to_dict
from dph.errors import SettingsError, near, one_line, refused, unknown

_PRESETS = Path(__file__).parents[1] / "presets"
_METHODS = _PRESETS / "methods.toml"
_YAML = (".yaml", ".yml")
_LONGEST_FILE = 1 << 18  # bytes
_DEEPEST_KEY = 100
_STRING, _APART = re.compile(r""""[^"\n]*"|'[^'\n]*'"""), re.compile(r"[=,\[\]{}\n]")
_YAML_1_1 = re.compile(r"(?i:yes|no|on|off)|[-+]?0[0-9_]+|[-+]?[0-9]+(:[0-9]+)+")
"""Plain words that YAML 1.1 reads as something else: truths, octal numbers (010 is 8), sixtieths (1:30 is 90)."""


def _merge(base: dict[str, Any], extra: Mapping[str, Any]) -> None:
    if "options" in base and extra.get("name", base.get("name")) != base.get("name"):
        base["options"] = {}  # they are another task's
    for key, value in extra.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), dict):
            _merge(base[key], value)
        else:
            base[key] = dict(value) if isinstance(value, Mapping) else value


def preset_names() -> list[str]:
    """The names of the presets that come with the package: models and worlds, a file each, and methods, a table each.

    >>> {"grpo", "dph_js"} <= set(preset_names())
    True
    """
    files = {path.stem for path in _PRESETS.glob("*.toml")} - {_METHODS.stem}
    return sorted({*files, *_methods()})


@cache
def _methods() -> dict[str, Any]:
    return read_settings(_METHODS)


def preset_label(name: str) -> str:
    """The name of a method preset in tables; "" for a preset of something else, such as a model or a world.

    >>> preset_label("dph_js")
    'DPH-JS'
    """
    return str(_table(_preset_file(name), "meta", f"the preset {name!r}").get("label", ""))


def is_settings_file(name: str) -> bool:
    """Whether a preset is named by the path of its file.

    >>> is_settings_file("mine.toml"), is_settings_file("grpo")
    (True, False)
    """
    return name.endswith((".toml", *_YAML))


def read_settings(path: Path) -> dict[str, Any]:
    """A settings file as dictionaries. Raises SettingsError if it is missing or not what its name says."""
    language = "YAML" if path.suffix in _YAML else "TOML"
    try:
        text = decoded(read_bytes(path, _LONGEST_FILE))
        tree = _parse_yaml(text) if language == "YAML" else _parse_toml(text)
        deepcopy(tree)  # so that functions that call themselves can walk it: TOML's dotted keys nest without limit
    except OSError as error:
        raise SettingsError(refused(f"cannot read the settings file {path}", error)) from error
    except RecursionError as error:
        raise SettingsError(f"{path} is not a valid {language} file: it is nested too deeply; correct it") from error
    except ValueError as error:
        raise SettingsError(f"{path} is not a valid {language} file: {one_line(str(error))}; correct it") from error
    if not isinstance(tree, dict):
        raise SettingsError(f"{path} must hold settings by name, not {tree!r:.100}")
    return tree


def _parse_toml(text: str) -> dict[str, Any]:
    """The value of a TOML text. Raises ValueError for what is not TOML, and for keys of very many parts (a.b.c …): the
    time and the memory that they take grow with the square of the number."""
    if any(piece.count(".") > _DEEPEST_KEY for piece in _APART.split(_STRING.sub("", text))):
        raise ValueError(f"a key has more than {_DEEPEST_KEY} parts")
    return tomllib.loads(text)


def _parse_yaml(text: str) -> Any:
    """The value of a YAML text. Raises ValueError for what is not YAML, and for what YAML 1.1 reads as nobody means."""
    import yaml  # slow to load

    class Loader(yaml.SafeLoader):
        """Reads 1e-4 as a number, for which YAML 1.1 wants a dot."""

    exponent = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", exponent, list("-+0123456789"))
    try:
        for token in yaml.scan(text, yaml.SafeLoader):
            if isinstance(token, yaml.AliasToken):
                raise ValueError("references (*name) are not read")
            if isinstance(token, yaml.ScalarToken) and token.plain and _YAML_1_1.fullmatch(token.value):
                line = token.start_mark.line + 1
                raise ValueError(f"line {line}: put {token.value} into quotes, or write true or false")
        tree = yaml.load(text, Loader)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    return {} if tree is None else tree  # empty, or comments only


def _preset_file(name: str) -> dict[str, Any]:
    """A preset of the package by name, or one of the user's by the path of its file."""
    if is_settings_file(name):
        return read_settings(Path(name))
    if name not in preset_names():
        hint = "a preset file of your own is named by its path, which ends in .toml or .yaml"
        raise SettingsError(f"{unknown('preset', name, preset_names())}; {hint}")
    return deepcopy(_methods()[name]) if name in _methods() else read_settings(_PRESETS / f"{name}.toml")


def merge_settings(stage: str, presets: Sequence[str], files: Sequence[Path]) -> dict[str, Any]:
    """Settings of one stage from presets in the order given, then files, which override all presets.

    The top level of each (model, task, rollout …) holds for every stage that has these settings; a table named like a
    stage holds for that stage and overrides it. Inside, a table `for.<method>` applies if that method was chosen, so
    that a world or model may set, say, η per method. Raises SettingsError for a key that no stage has, and for a file
    or preset that cannot be read.
    """
    if stage in ("check", "verl"):
        return _merge_training(stage, presets, files)
    from_presets = [(f"the preset {name!r}", _preset_file(name)) for name in presets]
    from_files = [(str(path), read_settings(path)) for path in files]
    sources = [_merge_layers(stage, layers) for layers in (from_presets, from_files)]
    methods = [plain["method"] for plain, _ in sources if isinstance(plain.get("method"), str)]
    merged: dict[str, Any] = {}
    for plain, by_method in sources:
        _merge(merged, plain)
        _merge(merged, by_method.get(methods[-1], {}) if methods else {})
    return merged


def _merge_training(stage: str, presets: Sequence[str], files: Sequence[Path]) -> dict[str, Any]:
    """Settings of `dph check` and `dph verl`, which train: the settings of `dph train` hold for them too, and their own
    tables override these. They take `stored`, or `partition` and `validation`, from `dph presample` and `dph eval`."""
    merged = merge_settings("train", presets, files)
    presample = filled(PresampleConfig, merge_settings("presample", presets, files))
    if stage == "check":
        merged["stored"] = presample["stored"]
    else:
        rule = {item.name: presample[item.name] for item in dataclasses.fields(PartitionRule)}
        merged["partition"] = {"n": presample["rollout"]["n"]} | rule
        merged["validation"] = filled(EvalConfig, merge_settings("eval", presets, files))["rollout"]
    further = STAGES[stage].__dataclass_fields__.keys() - TrainConfig.__dataclass_fields__.keys()
    for layer in [*map(_preset_file, presets), *map(read_settings, files)]:
        _merge(merged, {key: value for key, value in layer.items() if key in further})
        _merge(merged, _table(layer, stage, "the settings"))
    return merged


def _merge_layers(stage: str, layers: Sequence[tuple[str, dict[str, Any]]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Joined settings of one stage from presets alone or files alone, and its tables `for.<method>`."""
    shared: dict[str, Any] = {}
    of_stage: dict[str, Any] = {}
    everywhere: dict[str, Any] = {}
    for cls in STAGES.values():
        _merge(everywhere, _keys(to_dict(cls())))
    named = STAGES.keys() - everywhere.keys()  # "certify" is a table of settings
    for where, layer in layers:
        for name in named:
            _table(layer, name, where)
        table = _table(layer, stage, where) if stage in named else {}
        for tree in (layer, table):
            for name in _table(tree, "for", where):
                _table(tree["for"], name, where, "for.")
        top = {key: value for key, value in layer.items() if key not in (*named, "for", "meta")}
        tree = _part_of(top, _keys(to_dict(STAGES[stage]())), everywhere, where)
        for settings in (tree, {key: value for key, value in table.items() if key != "for"}):
            read_tree(STAGES[stage], settings, f"the settings in {where}")  # so that a mistake is named with its file
        _merge(shared, tree)
        _merge(shared, {"for": layer.get("for", {})})
        _merge(of_stage, table)
    _merge(shared, of_stage)
    return shared, shared.pop("for", {})


def _keys(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The names of nested settings; below a setting that is not a table there are none."""
    return {name: _keys(value) if isinstance(value, Mapping) else {} for name, value in settings.items()}


def _part_of(
    tree: Mapping[str, Any], keys: Mapping[str, Any], everywhere: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """The settings of a tree that a stage has. Raises SettingsError for one that no stage has."""
    chosen: dict[str, Any] = {}
    for key, value in tree.items():
        if key not in everywhere:
            meant = near(key, keys) or near(key, everywhere)  # above all a setting of this stage
            names = ", ".join(sorted(everywhere))
            raise SettingsError(f"{where} has an unknown key {key!r}{meant}; known here are: {names}")
        if key in keys:
            nested = keys[key] and isinstance(value, Mapping)
            chosen[key] = _part_of(value, keys[key], everywhere[key], f"{where} under {key!r}") if nested else value
    return chosen


def _table(tree: Mapping[str, Any], key: str, where: str, prefix: str = "") -> Mapping[str, Any]:
    value = tree.get(key, {})
    if not isinstance(value, Mapping):
        raise SettingsError(f"{where}: {prefix + key!r} must be a table, not {value!r}")
    return value


def load_settings(
    stage: str, presets: Sequence[str] = (), files: Sequence[Path] = (), overrides: Mapping[str, Any] | None = None
) -> Any:
    """The settings of a stage, filled as its command line fills them: presets, then files, then overrides.

    Args:
        stage: the command of the stage, such as "train".
        presets: names of presets, or paths of preset files; a later preset overrides an earlier one.
        files: settings files, which override all presets.
        overrides: nested dictionaries in the place of flags.

    Raises:
        SettingsError: a preset or a key is unknown, a value has the wrong type or is out of bounds, or a preset or a
            file names code to run that the overrides do not name.

    >>> settings = load_settings("train", ["grpo"], overrides={"out": "runs/a", "optim": {"lr": 1e-4}})
    >>> settings.method, settings.optim.lr
    ('grpo', 0.0001)
    """
    merged = merge_settings(stage, presets, files)
    _merge(merged, overrides or {})
    settings = from_dict(STAGES[stage], merged)
    Permitted(overrides or {}).check(
        code_of(settings), " or ".join(map(str, [*filter(is_settings_file, presets), *files]))
    )
    return settings
