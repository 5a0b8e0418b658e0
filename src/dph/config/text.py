"""The text of files, which is UTF-8, and the JSON in it."""

import json
from pathlib import Path
from typing import Any

from dph.errors import RunError, UserError, refused

_UTF16 = "is UTF-16 text; save it as UTF-8"
_OTHER = {
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
    """What separates the cells of a table of text: comma, semicolon or tab, whichever its first line has most of."""
    return max(",;\t", key=first.count)


def refuse_other_kinds(content: bytes, allowed: bytes = b"") -> None:
    """Raises ValueError, with what to do, for bytes that begin a file of another kind, except those `allowed`."""
    for start, reason in _OTHER.items():
        if start != allowed and content[: len(start)].lower() == start.lower():
            raise ValueError(f"its content {reason}")
    if b"\0" in content[:2]:  # a text without the mark
        raise ValueError(f"its content {_UTF16}")


def decoded(content: bytes) -> str:
    """The text of a file, with "\\n" as the end of a line and without a byte order mark. Raises ValueError, with the
    reason and what to do, for what is not UTF-8."""
    refuse_other_kinds(content)
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line} is not UTF-8 text; save the file as UTF-8") from error


def parse_json(text: str) -> Any:
    """The value of a JSON text. Raises ValueError, with the reason, for what is not JSON or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def is_json(text: str | bytes) -> bool:
    """Whether a text, or the text of bytes in UTF-8, can be read by `parse_json`."""
    try:
        parse_json(text if isinstance(text, str) else text.decode())
    except ValueError:
        return False
    return True


def read_json(path: Path, remedy: str = "", kind: type[UserError] = RunError) -> Any:
    """The value in a JSON file. Raises an error of this kind, with file, reason and remedy, if it cannot be read."""
    try:
        return parse_json(decoded(path.read_bytes()))
    except OSError as error:
        raise kind(refused(f"{path} cannot be read", error, remedy)) from error
    except ValueError as error:
        raise kind(f"{path} is damaged ({error}){remedy and '; '}{remedy}") from error
