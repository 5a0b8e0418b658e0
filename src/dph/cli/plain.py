"""Reads the plainest command lines, `--name value …`, without the library that reads all others.

Loading that library and building its parser takes longer than everything else that a small command does. Help, errors,
lists and anything unusual are left to it.
"""

import dataclasses
import re
import typing
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

from dph.config import from_dict

T = TypeVar("T")

_NUMBERS = {int: re.compile(r"[0-9]{1,18}"), float: re.compile(r"[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?")}


def read_plain(default: T, words: Sequence[str]) -> T | None:
    """The settings with the flags of a command line; None unless every flag is known, occurs once, and has one plain
    value of its type: a text, a number that is not negative, one of several words, or none for a switch."""
    settings: dict[str, Any] = {}
    seen: set[str] = set()
    queue = list(words)
    while queue:
        word, equals, value = queue.pop(0).partition("=")
        if not word.startswith("--"):
            return None
        *path, name = word[2:].replace("-", "_").split(".")
        group, table = default, settings
        for part in path:
            group = getattr(group, part, None) if _is_field(group, part) else None
            table = table.setdefault(part, {})
        if not _is_field(group, name) or word in seen:
            return None
        seen.add(word)
        hint = typing.get_type_hints(type(group))[name]
        if hint is bool and not equals and (not queue or queue[0].startswith("--")):
            table[name] = True
            continue
        if not equals:
            if not queue or queue[0].startswith("-"):
                return None
            value = queue.pop(0)
        known = typing.get_args(hint) if typing.get_origin(hint) is Literal else ()
        number = _NUMBERS.get(hint)
        if not (hint is str or value in known or (number and number.fullmatch(value))):
            return None
        table[name] = hint(value) if number else value
    return from_dict(type(default), settings, default=default)


def _is_field(group: object, name: str) -> bool:
    return dataclasses.is_dataclass(group) and name in {item.name for item in dataclasses.fields(group)}
