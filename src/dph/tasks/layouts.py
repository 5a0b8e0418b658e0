"""Rows in the layouts of JSON documents: a list of rows, a table of columns, and lists within an object."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dph.columns import NAMES, ignored
from dph.errors import DataError
from dph.process.progress import say

_USUAL = {*NAMES["prompt"], *NAMES["answer"]}


def rows_of_document(path: Path, value: Any) -> list[Any]:
    """The rows of a JSON document.

    value: a list of rows; a table of columns, {"question": [...], "answer": [...]}, as `to_dict("list")` and `to_json`
    of pandas write it, also by rows ("index") or split; or an object in which one list has rows, {"data": [...]}, whose
    other fields are named as ignored. Raises DataError, with what to do, for another value.

    >>> rows_of_document(Path("a.json"), {"question": ["1 + 1?", "1 + 2?"], "answer": ["2", "3"]})
    [{'question': '1 + 1?', 'answer': '2'}, {'question': '1 + 2?', 'answer': '3'}]
    """
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        raise DataError(f"{path} holds no list of rows")
    rows = _table(value) or _split(value) or _by_row(value)
    if rows is not None:
        return rows
    listed = [name for name, items in value.items() if _are_rows(items)]
    listed = [name for name in listed if _USUAL & {*map(str.lower, _viewed(value[name][0]))}] or listed
    if len(listed) == 1:
        if line := ignored([name for name in value if name != listed[0]], f"the rows are those of {listed[0]!r}"):
            say(line)
        return [_viewed(row) for row in value[listed[0]]]
    named = ", ".join(value) or "nothing"
    remedy = f"; write the rows of each of {', '.join(listed)} to a file of its own" if listed else ""
    raise DataError(f"{path} holds no list of rows, but an object with: {named}{remedy}")


def is_document(row: Any) -> bool:
    """Whether the only row of a file of lines is an object with a list of rows rather than a row."""
    return isinstance(row, dict) and not _USUAL & {name.lower() for name in row} and any(map(_are_rows, row.values()))


def _are_rows(value: Any) -> bool:
    """Whether a value is a list of objects, which are no messages."""
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) and "role" not in row for row in value)


def _are_messages(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict) and "role" in item for item in value)


def _viewed(row: dict[str, Any]) -> Any:
    """A row without what the viewer of a hub puts around it."""
    return row["row"] if isinstance(row.get("row"), dict) and {*row} <= {"row_idx", "row", "truncated_cells"} else row


def _table(value: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The rows of columns: lists of one length, or objects with the same keys; None for another object."""
    columns = [*value.values()]
    if not _USUAL & {name.lower() for name in value} or any(map(_are_messages, columns)):
        return None
    if all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns) and columns[0]:
        return [dict(zip(value, cells, strict=True)) for cells in zip(*columns, strict=True)]
    if all(isinstance(column, dict) and column.keys() == columns[0].keys() for column in columns) and columns[0]:
        return [{name: value[name][key] for name in value} for key in columns[0]]
    return None


def _split(value: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The rows of pandas' layout "split": the names of the columns, and lists of cells; None for another object."""
    names, data = value.get("columns"), value.get("data")
    if not isinstance(names, list) or not isinstance(data, list) or not all(isinstance(name, str) for name in names):
        return None
    whole = all(isinstance(cells, list) and len(cells) == len(names) for cells in data)
    return [dict(zip(names, cells, strict=True)) for cells in data] if whole and data else None


def _by_row(value: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The rows of an object that has each under a name, which is its id if it has none; None for another object."""
    rows = [*value.values()]
    if not rows or not all(isinstance(row, dict) and _USUAL & {name.lower() for name in row} for row in rows):
        return None
    return [row if "id" in row else {"id": name, **row} for name, row in value.items()]
