"""The text of files, which is UTF-8, and the JSON in it."""

import json
import re
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any

from dph.config.files import read_bytes
from dph.errors import RunError, UserError, refused

_TOO_LONG = "set_int_max_str_digits"
"""What Python says of a whole number of more digits than it reads."""
_DEEPEST = 100
"""Levels of lists and objects in each other; programs that walk a value call themselves as often."""

_UTF16, _UTF32 = "is UTF-16 text; save it as UTF-8", "is UTF-32 text; save it as UTF-8"
_OTHER = {
    b"\xff\xfe\0\0": _UTF32,  # before the mark of UTF-16, with which it begins
    b"\0\0\xfe\xff": _UTF32,
    b"\xff\xfe": _UTF16,
    b"\xfe\xff": _UTF16,
    b"\x1f\x8b": "is compressed with gzip; unpack it (only rows may stay compressed, in a file named .jsonl.gz)",
    b"BZh": "is compressed with bzip2; unpack it",
    b"\xfd7zXZ": "is compressed with xz; unpack it",
    b"\x28\xb5\x2f\xfd": "is compressed with zstd; unpack it",
    b"PK\x03\x04": "is a zip archive, as a spreadsheet is; unpack it, or export the sheet",
    b"\xd0\xcf\x11\xe0": "is an old Office document; export the sheet",
    b"PAR1": "is a Parquet file; name it .parquet",
    b"ARROW1": "is an Arrow file; save it as Parquet",
    b"SQLite format 3": "is a SQLite database; export its table",
    b"%PDF": "is a PDF; save its text",
    b"version https://git-lfs": "is a pointer of Git LFS; fetch the file itself with `git lfs pull`",
    b"<!DOCTYPE": "is a web page; download the file itself",
    b"<html": "is a web page; download the file itself",
    b"\x80\x04": "is a Python pickle, which is not read; save it as JSON or Parquet",
}
"""By the first bytes of a file, its kind and the remedy."""


def delimiter_of(first: str) -> str:
    """What separates the cells of a table of text: comma, semicolon, tab or bar, of which its first line has most."""
    return max(",;\t|", key=first.count)


def refuse_other_kinds(content: bytes, allowed: bytes = b"") -> None:
    """Raises ValueError, with what to do, for bytes that begin a file of another kind, except those `allowed`."""
    for start, reason in _OTHER.items():
        if start != allowed and content[: len(start)].lower() == start.lower():
            raise ValueError(f"its content {reason}")
    if content[:3] == b"\0\0\0" or (content[1:4] == b"\0\0\0" and content[:1] != b"\0"):  # texts without the mark
        raise ValueError(f"its content {_UTF32}")
    if b"\0" in content[:2]:
        raise ValueError(f"its content {_UTF16}")


def decoded(content: bytes) -> str:
    """The text of a file, with "\\n" as the end of a line and without a byte order mark. Raises ValueError, with the
    reason and what to do, for what is not UTF-8."""
    refuse_other_kinds(content)
    try:
        # The codec "utf-8-sig" would be imported now, which a machine without free files refuses.
        return content.removeprefix(BOM_UTF8).decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line} is not UTF-8 text; save the file as UTF-8") from error


def parse_json(text: str, *, deep: bool = False) -> Any:
    """The value of a JSON text. Raises ValueError, with the reason, for what is not JSON, for a key that an object has
    twice and, unless `deep`, for what is nested more than 100 levels deep."""
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        if _TOO_LONG in str(error):
            raise ValueError("a number has too many digits; write it as text, in double quotes") from None
        raise
    if not deep and text.count("[") + text.count("{") > _DEEPEST and _is_deep(value):
        raise ValueError("it is nested too deeply")
    return value


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the key {twice!r:.100} twice")
    return table


_DECODER = json.JSONDecoder(object_pairs_hook=_without_twins)


def _is_deep(value: Any) -> bool:
    """Whether a value has more than _DEEPEST levels of lists and objects."""
    level: list[Any] = [[value]]
    for _ in range(_DEEPEST + 1):  # types, not isinstance: every row of a file comes here
        level = [
            item
            for container in level
            for item in (container.values() if type(container) is dict else container)
            if type(item) is dict or type(item) is list
        ]
        if not level:
            return False
    return True


def is_json(text: str | bytes) -> bool:
    """Whether a text, or the text of bytes in UTF-8, can be read by `parse_json`."""
    try:
        parse_json(text if isinstance(text, str) else text.decode())
    except ValueError:
        return False
    return True


def read_json(path: Path, remedy: str = "", kind: type[UserError] = RunError) -> Any:
    """The value in a JSON file of a run or a model. Raises an error of this kind, with file, reason and remedy, if it
    cannot be read, or holds a number that no program of ours writes."""
    try:
        return own_json(decoded(read_bytes(path)))
    except OSError as error:
        raise kind(refused(f"{path} cannot be read", error, remedy)) from error
    except ValueError as error:
        raise kind(f"{path} is damaged ({error}){remedy and '; '}{remedy}") from error


def own_json(text: str) -> Any:
    """As `parse_json`, for the files of runs and models. Raises ValueError for whole numbers of more than 64 bits and
    for halves of surrogate pairs too, which neither numpy, Arrow nor a file in UTF-8 can hold."""
    value = parse_json(text)
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("a text contains half of a surrogate pair, which is not a character") from None
    if longest := max(_LONG.findall(text), key=len, default=""):
        items = [value]
        for item in items:
            if isinstance(item, list | dict):
                items += item.values() if isinstance(item, dict) else item
            elif isinstance(item, int) and not -(2**63) <= item < 2**63:
                raise ValueError(f"a number has {len(longest)} digits")
    return value


_LONG = re.compile(r"\d{19,}")
