"""Reads rows from users' files, JSONL, CSV or Parquet, with one clear message per fault."""

import csv
import gzip
import io
import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from dph.columns import ignored
from dph.config.files import MOST_COLUMNS, opened, read_bytes, read_unpacked
from dph.config.text import decoded, delimiter_of, is_json, parse_json, refuse_other_kinds
from dph.errors import DataError, RowsError, counted, refused
from dph.process.progress import say
from dph.runs.parquet import read_parquet, rows_of
from dph.tasks.features import as_described, described
from dph.tasks.layouts import is_document, rows_of_document

KINDS = (".jsonl", ".jsonl.gz", ".json", ".csv", ".tsv", ".parquet")
"""The ends of the names of files with rows."""


def read_rows(path: Path, required: Sequence[str] = (), texts: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Rows of a .jsonl, .jsonl.gz, .json (see `rows_of_document`), .csv, .tsv or .parquet file as dictionaries.

    The first line of a CSV file names its columns; its values are texts, and None for an empty cell. Commas,
    semicolons, tabs or bars separate them, whichever the first line has most of.

    Raises UserError, naming line, row or columns, if the file is missing, of another kind, damaged or empty, lacks a
    required column, has a value other than text in a column of `texts`, or contains text that cannot be encoded.

    >>> Path("rows.csv").write_text("question;answer\\n1 + 1?;2\\n1 + 2?;\\n") > 0
    True
    >>> read_rows(Path("rows.csv"))
    [{'question': '1 + 1?', 'answer': '2'}, {'question': '1 + 2?', 'answer': None}]
    """
    return [row for _, row in placed_rows(path, required, texts)]


def placed_rows(
    path: Path, required: Sequence[str] = (), texts: Sequence[str] = ()
) -> list[tuple[str, dict[str, Any]]]:
    """As `read_rows`, each row with its place for messages: "FILE, row 3", and its line if that is another."""
    check_file(path, KINDS)
    try:
        rows = _read(path)
    except (OSError, ValueError, ArithmeticError, TypeError, EOFError, zlib.error) as error:
        raise DataError(refused(f"{path} cannot be read", error)) from error
    if not rows:
        raise DataError(f"{path} holds no rows; write some, or give another file")
    placed = [
        (f"{path}, row {number}" + ("" if line in (0, number) else f" (line {line})"), row)
        for number, (line, row) in enumerate(rows, 1)
    ]
    if faults := [f"{where}{fault}" for where, row in placed if (fault := _fault(row, required, texts))]:
        raise RowsError(faults)
    return placed


def check_file(path: Path, kinds: tuple[str, ...]) -> None:
    """Raises DataError for a file that is missing, and for a folder, with the files of these kinds in it."""
    if path.is_dir():
        inside = ", ".join(sorted(file.name for file in path.iterdir() if file.name.endswith(kinds)))
        raise DataError(f"{path} is a folder, not a file; give a file in it: {inside or 'none is ' + ', '.join(kinds)}")
    if not path.is_file():
        fault = f"{path} is not a regular file" if path.exists() else f"there is no file {path.absolute()}"
        raise DataError(f"{fault}; correct its path")


def _fault(row: Any, required: Sequence[str], texts: Sequence[str]) -> str:
    """Why a row cannot be used; "" if it can."""
    if not isinstance(row, dict):
        hint = "; name the file .json" if isinstance(row, list) else ""
        return f": expected an object with named fields, found {type(row).__name__}{hint}"
    if missing := [name for name in (*required, *texts) if row.get(name) is None]:
        return f": {absent(row, missing[0])}"
    wrong = [name for name in texts if not isinstance(row[name], str)]
    return f": {wrong[0]!r} must be text, not {type(row[wrong[0]]).__name__}" if wrong else ""


def absent(row: Mapping[str, Any], *names: str) -> str:
    """Why a row has none of these columns: one of them is null, or none is there.

    >>> absent({"question": "1 + 1?", "answer": None}, "answer")
    'answer is null'
    >>> absent({"question": "1 + 1?"}, "answer")
    "no 'answer'; it has: question"
    """
    if null := [name for name in names if name in row]:
        return f"{null[0]} is null"
    return f"no {' or '.join(map(repr, names))}; it has: {', '.join(map(str, row))}"


def read_text(path: Path) -> str:
    """The text of a file, without a byte order mark. Raises UserError if it is missing or not text."""
    try:
        return decoded(read_bytes(path))
    except (OSError, ValueError) as error:
        raise DataError(refused(f"{path} cannot be read", error)) from error


def parse_file(path: Path, text: str) -> Any:
    """The JSON value of a file's text. Raises DataError if it is not valid or has text that cannot be encoded."""
    try:
        return _parse(text)
    except ValueError as error:
        lines = [line for line in text.split("\n") if line.strip()]
        hint = "; it holds a JSON value on each line: name it .jsonl" if len(lines) > 1 and is_json(lines[0]) else ""
        raise DataError(f"{path} is not valid JSON: {error}{hint}") from error


def _read(path: Path) -> list[tuple[int, Any]]:
    """The line on which each row begins, 0 in files without lines, and the row."""
    name = path.name.lower()
    if name.endswith(".parquet"):
        return [(0, row) for row in _read_parquet(path)]
    if name.endswith(".json"):
        return [(0, row) for row in rows_of_document(path, parse_file(path, read_text(path)))]
    if name.endswith(".jsonl.gz"):
        with opened(path) as packed, gzip.open(packed) as file:
            return _parse_lines(path, decoded(read_unpacked(cast(BinaryIO, file), os.fstat(packed.fileno()).st_size)))
    if name.endswith(".jsonl"):
        return _parse_lines(path, read_text(path))
    if name.endswith((".csv", ".tsv")):
        return _parse_csv(path, read_text(path))
    raise DataError(f"{path} is of an unknown kind; use {', '.join(KINDS[:-1])} or {KINDS[-1]}")


def _read_parquet(path: Path) -> list[Any]:
    with opened(path) as file:
        refuse_other_kinds(file.read(64), b"PAR1")
    return described_rows(read_parquet(path))


def described_rows(table: Any, features: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The rows of a table of Arrow: classes by their names, and numbers as they were written. features: what the
    library `datasets` says of the columns; by default what the table's schema says. Raises ValueError for values that
    cannot be read."""
    features = described(table.schema) if features is None else features
    return [as_described(_with_short_floats(row, table.schema), features) for row in rows_of(table)]


def _with_short_floats(row: dict[str, Any], schema: Any) -> dict[str, Any]:
    """A row in which numbers of 16 and 32 bits are the decimals that the file's author wrote: 0.1, not
    0.10000000149011612. schema: of Arrow."""
    narrow = [field for field in schema if "float" in str(field.type)]  # a type of 64 bits is called double
    return row | {field.name: _short(row[field.name], field.type) for field in narrow}


def _short(value: Any, kind: Any) -> Any:
    if hasattr(kind, "item_type") and value is not None:  # a map
        return {str(key): _short(item, kind.item_type) for key, item in value}
    if hasattr(kind, "index_type"):  # a column whose values are numbered
        kind = kind.value_type
    if isinstance(value, list):
        return [_short(item, kind.value_type) for item in value]
    if isinstance(value, dict):
        return {field.name: _short(value[field.name], field.type) for field in kind}
    return float(str(kind.to_pandas_dtype()(value))) if isinstance(value, float) else value


def _parse_lines(path: Path, text: str) -> list[tuple[int, Any]]:
    rows, faults = [], []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                rows.append((number, _parse(line)))
            except ValueError as error:
                if not rows and "\n" in text.strip() and is_json(text):
                    raise DataError(
                        f"{path} is one JSON document: put each row on its own line, or name it .json if it is a list"
                    ) from error
                at = isinstance(error, json.JSONDecodeError)
                fault = f"{error.msg.removesuffix(' at')} at column {error.colno}" if at else str(error)
                remedy = "" if ";" in fault else "; correct the line, or leave it out"
                faults.append(f"{path}, line {number} is not valid JSON: {fault}{remedy}")
    if faults:
        raise RowsError(faults)
    if len(rows) == 1 and is_document(rows[0][1]):
        return [(0, row) for row in rows_of_document(path, rows[0][1])]
    return rows


def _parse_csv(path: Path, text: str) -> list[tuple[int, Any]]:
    """The rows below the first line. Rows of separators alone are left out and counted. A column without a name, such
    as the index that pandas writes, is left out, and said if it has values."""
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    first = text.lstrip("\n").partition("\n")[0]
    told = _SEPARATOR.match(text)
    separator = told[1] if told else delimiter_of(first)
    reader = csv.reader(io.StringIO(text[told.end() :] if told else text), delimiter=separator, strict=True)
    above = told[0].count("\n") if told else 0
    rows: list[tuple[int, Any]] = []
    faults, names, end, nameless = [], list[str](), above, False
    blank: list[int] = []
    try:
        for cells in reader:
            start, end = end + 1, above + reader.line_num
            if not any(cell.strip() for cell in cells):
                blank += [start] * (len(cells) > 1)
                continue
            if not names:
                names = [cell.strip() for cell in cells]
                if len(names) > MOST_COLUMNS:
                    raise DataError(f"{path} has {len(names)} columns; at most {MOST_COLUMNS} are read")
                if twice := next((name for name, times in Counter(names).items() if name and times > 1), ""):
                    raise DataError(f"{path}, line {start} names the column {twice!r:.100} twice; rename one")
            elif len(cells) != len(names):
                faults.append(
                    f"{path}, line {start} has {counted(len(cells), 'cell')} for {counted(len(names), 'column')}; "
                    + _remedy(len(cells), len(names))
                )
            else:
                row = {name: cell if cell.strip() else None for name, cell in zip(names, cells, strict=True) if name}
                nameless = nameless or any(cell.strip() for name, cell in zip(names, cells, strict=True) if not name)
                rows.append((start, row))
    except csv.Error as error:
        raise DataError(f"{path}, line {end + 1} is not valid CSV: {error}; check its double quotes") from error
    if faults:
        raise RowsError(faults)
    if blank:
        rows_left = f"{counted(len(blank), 'row')} (first: line {blank[0]})"
        say(f"{path}: left out, because all their cells are empty: {rows_left}")
    if nameless:
        say(ignored(["a column without a name"]))
    return rows


def _remedy(cells: int, columns: int) -> str:
    """What to do about a row with another number of cells than there are columns."""
    if columns == 1:
        return "the first line must name the columns: remove a line above the one that does, or a separator at an end"
    if cells < columns:
        return "give it a cell, which may be empty, for each column"
    return "put a cell that holds a separator into double quotes"


_SEPARATOR = re.compile(r'\n*"?sep=([,;\t|])"?[,;\t|]*\n')
"""The line above a table by which Excel is told what separates its cells."""


def _parse(text: str) -> Any:
    """Parse JSON. Raises ValueError if it is invalid or has half of a surrogate pair: JSON's escapes can encode one,
    but neither a tokenizer nor a file accepts it."""
    value = parse_json(text)
    if "\\ud" in text.lower() and _HALF.search(json.dumps(value, ensure_ascii=False)):
        raise ValueError("a text contains half of a surrogate pair, which is not a character")
    return value


_HALF = re.compile("[\ud800-\udfff]")
