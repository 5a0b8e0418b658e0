"""Reading rows from users' files: JSONL or Parquet, with one clear sentence for whatever is wrong with them."""

import gzip
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dph.errors import UserError


def read_rows(path: Path, required: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Rows of a .jsonl, .jsonl.gz, .json (a list) or .parquet file as dictionaries.

    Raises UserError when the file is missing, of another kind, damaged (with the line), empty, or lacks a required
    column (naming those it has).
    """
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    try:
        rows = _read(path)
    except (OSError, UnicodeDecodeError, EOFError, zlib.error, pa.ArrowException) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    if not rows:
        raise UserError(f"{path} holds no rows")
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise UserError(f"{path}, row {number}: expected an object with named fields, found {type(row).__name__}")
        missing = [name for name in required if row.get(name) is None]
        if missing:
            raise UserError(f"{path}, row {number}: no {missing[0]!r}; it has: {', '.join(map(str, row))}")
    return rows


def _read(path: Path) -> list[Any]:
    name = path.name.lower()
    if name.endswith(".parquet"):
        return pq.read_table(path).to_pylist()
    if name.endswith(".json"):
        return _parse_list(path, path.read_text(encoding="utf-8"))
    if name.endswith(".jsonl.gz"):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            return _parse_lines(path, file.read())
    if name.endswith(".jsonl"):
        return _parse_lines(path, path.read_text(encoding="utf-8"))
    raise UserError(f"{path} is of an unknown kind; use .jsonl, .jsonl.gz, .json or .parquet")


def _parse_lines(path: Path, text: str) -> list[Any]:
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise UserError(f"{path}, line {number} is not valid JSON: {error}") from error
    return rows


def _parse_list(path: Path, text: str) -> list[Any]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(rows, list):
        raise UserError(f"{path} holds no list of rows")
    return rows
