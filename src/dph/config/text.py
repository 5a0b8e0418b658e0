"""The text of files, which is UTF-8, and the JSON in it."""

import json
from pathlib import Path
from typing import Any

from dph.errors import RunError, UserError

_UTF16 = "is UTF-16 text; save it as UTF-8"
_OTHER = {
    b"\xff\xfe": _UTF16,
    b"\xfe\xff": _UTF16,
    b"\x1f\x8b": "is compressed with gzip; unpack it (only rows may stay compressed, in a file named .jsonl.gz)",
    b"PK\x03\x04": "is a zip archive; unpack it",
    b"PAR1": "is a Parquet file; name it .parquet",
}
"""What files are that begin with these bytes."""


def decoded(content: bytes) -> str:
    """The text of a file, with "\\n" as the end of a line and without a byte order mark.

    Raises ValueError, with the reason and what to do, for what is not UTF-8.
    """
    for start, reason in _OTHER.items():
        if content.startswith(start):
            raise ValueError(f"its content {reason}")
    if b"\0" in content[:2]:  # a text without the mark
        raise ValueError(f"its content {_UTF16}")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{error} (line {line}); save it as UTF-8") from error


def parse_json(text: str) -> Any:
    """The value of a JSON text. Raises ValueError, with the reason, for what is not JSON or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: Path, remedy: str = "", kind: type[UserError] = RunError) -> Any:
    """The value in a JSON file. Raises an error of this kind, with the file's name, the reason and the remedy, if it
    cannot be read or is not JSON."""
    try:
        return parse_json(decoded(path.read_bytes()))
    except OSError as error:
        reason, cause = f"cannot be read ({error.strerror or error})", error
    except ValueError as error:
        reason, cause = f"is damaged ({error})", error
    raise kind(f"{path} {reason}{remedy and '; '}{remedy}") from cause
