"""Filling settings: presets, then files (TOML, or YAML by their names), then command-line flags; and writing them down
again, as TOML that is read back. Unknown keys are errors.
"""

import ast
import dataclasses
import inspect
import re
import textwrap
import tomllib
import typing
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import tomli_w

from dph.config.checks import check_bounds
from dph.config.components import Bounds, Code, Usual, read_fields
from dph.config.files import expanded, read_bytes, text_fault
from dph.config.stages import STAGES, EvalConfig, PartitionRule, PresampleConfig, TrainConfig
from dph.config.text import decoded
from dph.errors import SettingsError, near, one_line, refused, unknown

T = TypeVar("T")

_PRESETS = Path(__file__).parents[1] / "presets"
_METHODS = _PRESETS / "methods.toml"
_YAML = (".yaml", ".yml")
_LONGEST_FILE = 1 << 18  # bytes
_DEEPEST_KEY = 100
_STRING, _APART = re.compile(r""""[^"\n]*"|'[^'\n]*'"""), re.compile(r"[=,\[\]{}\n]")
_YAML_1_1 = re.compile(r"(?i:yes|no|on|off)|[-+]?0[0-9_]+|[-+]?[0-9]+(:[0-9]+)+")
"""Plain words that YAML 1.1 reads as something else: truths, octal numbers (010 is 8), sixtieths (1:30 is 90)."""


def _is_config(value: object) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


class Setting(NamedTuple):
    """One setting of a stage: its name with dots (loss.eta), type, bounds, value, and the class that declares it."""

    name: str
    kind: Any
    bounds: tuple[Bounds | Usual | Code, ...]
    value: Any
    owner: type[Any]


def every_setting(config: Any, prefix: str = "", unread: tuple[str, ...] = ()) -> Iterator[Setting]:
    """The settings of a config and of the configs in it, in the order of their declaration."""
    kinds, hints = typing.get_type_hints(type(config)), typing.get_type_hints(type(config), include_extras=True)
    for item, below in read_fields(config, unread):
        name, value = f"{prefix}{item.name}", getattr(config, item.name)
        if _is_config(value):
            yield from every_setting(value, f"{name}.", below)
        else:
            marks = getattr(hints[item.name], "__metadata__", ())
            bounds = tuple(mark for mark in marks if isinstance(mark, Bounds | Usual | Code))
            yield Setting(name, kinds[item.name], bounds, value, type(config))


def unusual(config: Any) -> list[str]:
    """A sentence for each number of a config outside its usual values."""
    marked = [(s, mark) for s in every_setting(config) for mark in s.bounds if isinstance(mark, Usual)]
    return [f"{s.name} is {s.value:g}, {m.words}" for s, m in marked if s.value and not m.low <= abs(s.value) <= m.high]


@cache
def field_docs(cls: type[Any]) -> Mapping[str, str]:
    """The string below each field of a class and of its base classes, as in the source."""
    docs: dict[str, str] = {}
    for one in reversed(cls.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(one))).body[0].body  # type: ignore[attr-defined]
        for item, below in pairwise(body):
            if isinstance(item, ast.AnnAssign) and isinstance(below, ast.Expr):
                docs[item.target.id] = inspect.cleandoc(below.value.value)  # type: ignore[attr-defined]
    return docs


def to_dict(config: Any, unread: tuple[str, ...] = ()) -> dict[str, Any]:
    """A config as nested plain dictionaries, without what its stage does not read."""
    return {item.name: _plain(getattr(config, item.name), below) for item, below in read_fields(config, unread)}


def _plain(value: Any, unread: tuple[str, ...] = ()) -> Any:
    if _is_config(value):
        return to_dict(value, unread)
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dictionaries as one with dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """A dictionary with dotted keys as nested ones."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *path, key = name.split(".")
        table = tree
        for group in path:
            table = table.setdefault(group, {})
        table[key] = value
    return tree


def absolute(text: str) -> str:
    """The path of an existing file or folder in one spelling, absolute and without links; any other text as it is."""
    try:
        path = expanded(text)
        return str(path.resolve()) if text and path.exists() else text
    except (OSError, RuntimeError, ValueError):  # not a possible path
        return text


def comparable(value: Any) -> Any:
    """Settings, as plain dictionaries, with every path in one spelling, also the path in FILE.py:NAME."""
    if isinstance(value, str):
        file, colon, name = value.rpartition(":")
        return absolute(file) + colon + name if file.endswith(".py") else absolute(value)
    if isinstance(value, Mapping):
        return {key: comparable(item) for key, item in value.items()}
    return [comparable(item) for item in value] if isinstance(value, list | tuple) else value


def to_toml(config: Any) -> str:
    """A config as TOML text that `--config` reads back."""
    return tomli_w.dumps(to_dict(config))


def narrowed(cls: type[T], config: Any) -> T:
    """A config as a smaller class, with the fields that both declare: one stage passes it on to another."""
    return cls(**{item.name: getattr(config, item.name) for item in dataclasses.fields(cls)})  # type: ignore[arg-type]


def _merge(base: dict[str, Any], extra: Mapping[str, Any]) -> None:
    if "options" in base and extra.get("name", base.get("name")) != base.get("name"):
        base["options"] = {}  # they are another task's
    for key, value in extra.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), dict):
            _merge(base[key], value)
        else:
            base[key] = dict(value) if isinstance(value, Mapping) else value


def preset_names() -> list[str]:
    """Names of the presets that come with the package: models and worlds, a file each, and methods, a table each."""
    files = {path.stem for path in _PRESETS.glob("*.toml")} - {_METHODS.stem}
    return sorted({*files, *_methods()})


@cache
def _methods() -> dict[str, Any]:
    return read_settings(_METHODS)


def preset_label(name: str) -> str:
    """The name of a method preset in tables; "" for a preset of something else, such as a model or a world."""
    return str(_table(_preset_file(name), "meta", f"the preset {name!r}").get("label", ""))


def is_settings_file(name: str) -> bool:
    """Whether a preset is named by the path of its file."""
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
    presample = to_dict(from_dict(PresampleConfig, merge_settings("presample", presets, files)))
    if stage == "check":
        merged["stored"] = presample["stored"]
    else:
        rule = {item.name: presample[item.name] for item in dataclasses.fields(PartitionRule)}
        merged["partition"] = {"n": presample["rollout"]["n"]} | rule
        merged["validation"] = to_dict(from_dict(EvalConfig, merge_settings("eval", presets, files)))["rollout"]
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
            from_dict(STAGES[stage], settings, f"the settings in {where}")  # so that a mistake is named with its file
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
    """The settings of a stage, named by its command, as its command line fills them: presets, then files, then
    overrides, nested dictionaries in place of flags: {"out": "runs/a", "optim": {"lr": 1e-4}}. Raises SettingsError for
    an unknown preset or key, for a value of the wrong type or out of bounds, and for code that presets or files name
    and the overrides do not."""
    from dph.config.permitted import Permitted, code_of

    merged = merge_settings(stage, presets, files)
    _merge(merged, overrides or {})
    settings = from_dict(STAGES[stage], merged)
    check_bounds(settings)
    Permitted(overrides or {}).check(
        code_of(settings), " or ".join(map(str, [*filter(is_settings_file, presets), *files]))
    )
    return settings


def from_dict(
    cls: type[T],
    settings: Mapping[str, Any],
    where: str = "the settings",
    default: T | None = None,
    unread: tuple[str, ...] = (),
) -> T:
    """Build a config from nested dictionaries over a default. Raises SettingsError for a key that does not exist or is
    `unread` by the stage, and for a value of the wrong type."""
    if not isinstance(settings, Mapping):
        raise SettingsError(f"{where} must be a table, not {settings!r}")
    default = cls() if default is None else default
    hints = typing.get_type_hints(cls)
    keys = {item.name: below for item, below in read_fields(default, unread)}
    values: dict[str, Any] = {}
    for key, value in settings.items():
        if key not in keys:
            fault = f"{where} have an unknown key {key!r}{near(key, keys)}"
            if key in unread:
                fault = f"{where}: this stage does not read {key!r}"
            raise SettingsError(f"{fault}; known here are: {', '.join(sorted(keys))}")
        current = getattr(default, key)
        if _is_config(current):
            values[key] = from_dict(type(current), value, f"{where} under {key!r}", current, keys[key])
        else:
            values[key] = _checked(hints[key], value, f"{where}: {key!r}")
    return replace(default, **values)  # type: ignore[type-var]


def _checked(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if value not in arguments:
            raise SettingsError(f"{where} must be one of {', '.join(map(repr, arguments))}, not {value!r}")
        return value
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise SettingsError(f"{where} must be a list, not {value!r}")
        return tuple(_checked(arguments[0], item, where) for item in value)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise SettingsError(f"{where} must be a table, not {value!r}")
        if (table := arguments[1]) is not str:
            return {key: from_dict(table, item, f"{where} under {key!r}") for key, item in value.items()}
        return {str(key): _checked(str, str(item), f"{where} under {key!r}") for key, item in value.items()}
    if isinstance(value, int) and abs(value) >= 2**63:
        raise SettingsError(f"{where} is {str(value)[:40]}; it must be a whole number of 64 bits")
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and (fault := text_fault(value)):
        raise SettingsError(f"{where} {fault}: {value!r:.200}; correct it")
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise SettingsError(f"{where} must be of type {hint.__name__}, not {value!r}")
    return value


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Dotted keys whose values differ, as "key: old → new" lines."""
    before, after = flatten(old), flatten(new)
    keys = [key for key in sorted(before.keys() | after.keys()) if before.get(key) != after.get(key)]
    return [f"{key}: {before.get(key)!r} → {after.get(key)!r}" for key in keys]
