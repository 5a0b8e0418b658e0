"""Settings objects from nested dictionaries, and the other way round: names, values, differences, TOML."""

import ast
import dataclasses
import inspect
import textwrap
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeVar

import tomli_w

from dph.config.files import expanded, text_fault
from dph.config.settings import Bounds, Code, FieldError, Settings, Usual, hints_of, is_unread
from dph.errors import SettingsError, near

T = TypeVar("T")


def _is_config(value: object) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


class Setting(NamedTuple):
    """One setting of a stage: its name with dots (loss.eta), type, bounds, value, and the class that declares it."""

    name: str
    kind: Any
    bounds: tuple[Bounds | Usual | Code, ...]
    value: Any
    owner: type[Any]


def every_setting(config: Any, prefix: str = "") -> Iterator[Setting]:
    """The settings of a config and of the configs in it, in the order of their declaration."""
    for key, kind, marks in hints_of(type(config)):
        name, value = f"{prefix}{key}", getattr(config, key)
        if _is_config(value):
            yield from every_setting(value, f"{name}.")
        else:
            bounds = tuple(mark for mark in marks if isinstance(mark, Bounds | Usual | Code))
            yield Setting(name, kind, bounds, value, type(config))


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


def to_dict(config: Any) -> dict[str, Any]:
    """A config as nested plain dictionaries."""
    return {item.name: _plain(getattr(config, item.name)) for item in dataclasses.fields(config)}


def _plain(value: Any) -> Any:
    if _is_config(value):
        return to_dict(value)
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


def to_toml(config: Any, cls: type[Any] | None = None) -> str:
    """A config as TOML text that `--config` reads back; cls: with the settings of this smaller class only."""
    values = to_dict(config)
    return tomli_w.dumps(values if cls is None else {item.name: values[item.name] for item in dataclasses.fields(cls)})


def narrowed(cls: type[T], config: Any) -> T:
    """A config as a smaller class, with the fields that both declare: one stage passes it on to another."""
    return cls(**{item.name: getattr(config, item.name) for item in dataclasses.fields(cls)})  # type: ignore[arg-type]


_SOMEWHERE = "the settings"


def from_dict(cls: type[T], settings: Mapping[str, Any], where: str = _SOMEWHERE, default: T | None = None) -> T:
    """Build a config from nested dictionaries over a default. Raises SettingsError for a key that does not exist or
    that the stage does not read, for a value of the wrong type, and for settings that are out of bounds or contradict
    each other: a file or a preset alone may, if what is laid over it mends that, so they are joined before.

    where: what holds the settings, for messages.
    """
    values = read_tree(cls, settings, where)
    try:
        return _built(cls() if default is None else default, values)
    except SettingsError as error:
        if where == _SOMEWHERE:
            raise
        raise SettingsError(f"{where}: {error}") from error


def _built(default: T, values: Mapping[str, Any], prefix: str = "") -> T:
    """A config with other values, which `read_tree` has read; prefix: of the names of its settings."""
    changes: dict[str, Any] = {}
    for key, value in values.items():
        current, name = getattr(default, key), f"{prefix}{key}."
        if _is_config(current):
            changes[key] = _built(current, value, name)
        elif (table := _table_of(default, key)) is not None:
            changes[key] = {of: _built(table(), part, f"{name}{of}.") for of, part in value.items()}
        else:
            changes[key] = value
    try:
        return replace(default, **changes)  # type: ignore[type-var]
    except FieldError as error:
        raise error.below(prefix) from error


def _table_of(config: Any, key: str) -> type[Any] | None:
    """The class of the tables in a field, such as those of monitor.sets; None for any other field."""
    kind = next(kind for name, kind, _ in hints_of(type(config)) if name == key)
    tables = typing.get_args(kind)[1:] if typing.get_origin(kind) is dict else ()
    return next((table for table in tables if issubclass(table, Settings)), None)


def read_tree(cls: type[Any], settings: Mapping[str, Any], where: str = _SOMEWHERE) -> dict[str, Any]:
    """Nested dictionaries with the values of a config's fields, read as their types. Raises SettingsError for a key
    that does not exist or that the stage does not read, and for a value of the wrong type."""
    return _read(cls, settings, where, lambda key: False)


def _read(cls: type[Any], settings: Any, where: str, unread: Callable[[str], bool]) -> dict[str, Any]:
    if not isinstance(settings, Mapping):
        raise SettingsError(f"{where} must be a table, not {settings!r}")
    kinds = {name: kind for name, kind, _ in hints_of(cls)}
    values: dict[str, Any] = {}
    for key, value in settings.items():
        if key not in kinds:
            fault = f"{where} have an unknown key {key!r}{near(key, kinds)}"
            if unread(key):
                fault = f"{where}: this stage does not read {key!r}"
            raise SettingsError(f"{fault}; known here are: {', '.join(sorted(kinds))}")
        if isinstance(part := kinds[key], type) and issubclass(part, Settings):
            values[key] = _read(part, value, f"{where} under {key!r}", partial(is_unread, part))
        else:
            values[key] = _checked(kinds[key], value, f"{where}: {key!r}")
    return values


def laid_over(cls: type[Any], base: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a class as nested dictionaries, with others in their place: parts are joined, the rest replaced."""
    kinds = {name: kind for name, kind, _ in hints_of(cls)}
    joined = dict(base)
    for key, value in settings.items():
        part = kinds.get(key)
        if isinstance(part, type) and issubclass(part, Settings) and isinstance(value, Mapping) and key in base:
            value = laid_over(part, base[key], value)
        joined[key] = value
    return joined


def filled(cls: type[Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a class as nested dictionaries: these, read as `read_tree` does, over the defaults."""
    return laid_over(cls, to_dict(cls()), read_tree(cls, settings))


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
            return {key: read_tree(table, item, f"{where} under {key!r}") for key, item in value.items()}
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
