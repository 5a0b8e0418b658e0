"""Settings files, TOML or YAML, as plain dictionaries; YAML is the one whose name ends in .yaml or .yml."""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from dph.config.text import decoded
from dph.errors import UserError, one_line

ENDINGS = (".toml", ".yaml", ".yml")
_DEEPEST = 100
"""Levels of tables and lists in a settings file; TOML's dotted keys nest without limit."""
_SCALARS = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(0|[1-9][0-9_]*)", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
)
"""Type, pattern and first characters of plain values, as YAML 1.2 has them. The library reads YAML 1.1, where 1e-6 is a
text, no and off are truths, 010 is 8 and 1:30 is 90."""


def is_settings_file(name: str) -> bool:
    """Whether a preset is named by the path of its file."""
    return name.endswith(ENDINGS)


def read_settings(path: Path) -> dict[str, Any]:
    """A settings file as dictionaries. Raises UserError when it is missing or not what its name says."""
    return read_toml(path) if path.suffix not in ENDINGS[1:] else _read_yaml(path)


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as dictionaries; UserError when it is missing or not TOML."""
    try:
        return _shallow(tomllib.loads(_text(path)))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not a valid TOML file: {error}") from error


def _read_yaml(path: Path) -> dict[str, Any]:
    import yaml  # slow to load

    try:
        found = _shallow(yaml.load(_text(path), _loader()))
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"{path} is not a valid YAML file: {one_line(str(error))}") from error
    if found is None:  # empty, or comments only
        return {}
    if not isinstance(found, dict):
        raise UserError(f"{path} must hold settings by name, not {found!r:.100}")
    return found


def _shallow(tree: Any) -> Any:
    """The same tree. Raises ValueError for one that functions which call themselves could not walk."""
    level = [tree]
    for _ in range(_DEEPEST):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
    if level:
        raise ValueError("it is nested too deeply")
    return tree


def _text(path: Path) -> str:
    try:
        return decoded(path.read_bytes())
    except OSError as error:
        raise UserError(f"cannot read the settings file {path}: {error.strerror or error}") from error


@cache
def _loader() -> Any:
    """A loader of plain data that reads YAML as TOML reads it: a key occurs once, and no references, which may be
    endless."""
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                mark = self.peek_event().start_mark
                raise yaml.MarkedYAMLError(problem="references (*name) are not read", problem_mark=mark)
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [key.value for key, _ in node.value]
            twice = next((key for number, key in enumerate(keys) if key in keys[:number]), None)
            if twice is not None:
                raise yaml.MarkedYAMLError(problem=f"the key {twice!r} occurs twice", problem_mark=node.start_mark)
            return super().construct_mapping(node, deep)

    tags = {f"tag:yaml.org,2002:{kind}" for kind, _, _ in _SCALARS}
    Loader.yaml_implicit_resolvers = {
        first: [pair for pair in pairs if pair[0] not in tags]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for kind, pattern, firsts in _SCALARS:
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(rf"^(?:{pattern})$"), list(firsts))
    return Loader
