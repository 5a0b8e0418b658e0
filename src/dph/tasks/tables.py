"""Reads rows from users' files, JSONL or Parquet, with one clear message per fault."""

import gzip
import json
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dph.config.text import decoded, parse_json
from dph.errors import UserError


def read_rows(path: Path, required: Sequence[str] = (), texts: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Rows of a .jsonl, .jsonl.gz, .json (a list) or .parquet file as dictionaries.

    Raises UserError if the file is missing, of another kind, damaged (naming the line) or empty, lacks a required
    column (naming its columns), has a value other than text in a column of `texts`, or contains text that cannot be
    encoded.
    """
    if not path.is_file():
        raise UserError(f"{path} is a folder, not a file" if path.is_dir() else f"there is no file {path}")
    try:
        rows = _read(path)
    except (OSError, ValueError, OverflowError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    if not rows:
        raise UserError(f"{path} holds no rows")
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise UserError(f"{path}, row {number}: expected an object with named fields, found {type(row).__name__}")
        missing = [name for name in (*required, *texts) if row.get(name) is None]
        if missing:
            raise UserError(f"{path}, row {number}: no {missing[0]!r}; it has: {', '.join(map(str, row))}")
        for name in texts:
            if not isinstance(row[name], str):
                raise UserError(f"{path}, row {number}: {name!r} must be text, not {type(row[name]).__name__}")
    return rows


def read_text(path: Path) -> str:
    """The text of a file, without a byte order mark.

    Raises UserError for a file that is missing or not text.
    """
    try:
        return decoded(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error


def parse_file(path: Path, text: str) -> Any:
    """Parse the JSON text of a file. Raises UserError if it is not valid JSON or contains text that cannot be
    encoded."""
    try:
        return _parse(text)
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON: {error}") from error


def _read(path: Path) -> list[Any]:
    name = path.name.lower()
    if name.endswith(".parquet"):
        return _read_parquet(path)
    if name.endswith(".json"):
        rows = parse_file(path, read_text(path))
        if not isinstance(rows, list):
            raise UserError(f"{path} holds no list of rows")
        return rows
    if name.endswith(".jsonl.gz"):
        with gzip.open(path) as file:
            return _parse_lines(path, decoded(file.read()))
    if name.endswith(".jsonl"):
        return _parse_lines(path, read_text(path))
    raise UserError(f"{path} is of an unknown kind; use .jsonl, .jsonl.gz, .json or .parquet")


def _read_parquet(path: Path) -> list[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq  # slow to load, and most files are text

    try:
        table = pq.read_table(path)
        return [with_short_floats(row, table.schema) for row in table.to_pylist()]
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error


def with_short_floats(row: dict[str, Any], schema: Any) -> dict[str, Any]:
    """A row in which numbers of 16 and 32 bits are the decimals that the file's author wrote: 0.1, not
    0.10000000149011612. schema: of Arrow."""
    narrow = [field for field in schema if "float" in str(field.type)]  # a type of 64 bits is called double
    return row | {field.name: _short(row[field.name], field.type) for field in narrow}


def _short(value: Any, kind: Any) -> Any:
    if isinstance(value, list):
        return [_short(item, kind.value_type) for item in value]
    if isinstance(value, dict):
        return {field.name: _short(value[field.name], field.type) for field in kind}
    return float(str(kind.to_pandas_dtype()(value))) if isinstance(value, float) else value


def _parse_lines(path: Path, text: str) -> list[Any]:
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                rows.append(_parse(line))
            except ValueError as error:
                raise UserError(f"{path}, line {number} is not valid JSON: {error}") from error
    return rows


def _parse(text: str) -> Any:
    """Parse JSON. Raises ValueError if it is invalid or has half of a surrogate pair: JSON's escapes can encode one,
    but neither a tokenizer nor a file accepts it."""
    value = parse_json(text)
    if "\\ud" in text.lower() and _HALF.search(json.dumps(value, ensure_ascii=False)):
        raise ValueError("a text contains half of a surrogate pair, which is not a character")
    return value


_HALF = re.compile("[\ud800-\udfff]")
