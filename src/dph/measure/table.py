"""Rows of judged samples as columns: which are kept, with their values or with the numbers of few different ones."""

import json
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dph.measure.crossed import MISSING
from dph.measure.fields import is_maximum, is_share_of_samples, role_of, verdict_rank
from dph.measure.kinds import kind_of, sample_of
from dph.runs.parquet import plain_value

VALUES, RESPONSE, _FEW, _NOTHING = 1, 2, 3, 4
"""A column is kept with its values, or only whether each response is empty (and its fingerprint), or as long as it has
few different values, or not at all."""
FEW_VALUES = 4096
"""Different values of a column at most that is kept although nothing is known about its name."""
_FEW_MEASURED = 64
"""Of a column of lists, or with a name of measurements, of which most have a value of its own in every row."""
_LONGEST_LIST = 32
_NO_CODE = object()
"""In place of a long list or a table, which no code stands for."""
_MOST_COLUMNS = 1000
"""Names of columns that are remembered; every row may have further keys."""
_PLAIN = frozenset({str, bool, int, float})


class Source(NamedTuple):
    """A file, and the number of its rows."""

    name: str
    rows: int


@dataclass(slots=True)
class LogTable:
    """Rows of samples, as far as their columns have a role."""

    rows: int = 0
    columns: dict[str, NDArray[np.object_]] = field(default_factory=dict)
    """By the path of its keys, the value of each row; None without one."""
    sources: list[Source] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    """All files that were opened, also those without rows."""
    headers: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    """Documents and rows that hold no sample, with the name of their file."""
    others: set[str] = field(default_factory=set)
    """Columns that were not read, because nothing is known about their names."""
    few: dict[str, tuple[NDArray[np.uint16], list[Any]]] = field(default_factory=dict)
    """Those of them that have few different values: the number of each row's value, MISSING without one, and the
    values; lists as JSON."""
    used: set[str] = field(default_factory=set)
    """The options that had an effect: `records`, if a document had the samples under that key."""
    counts: bool = False
    """Whether the rows are the counts of a run of `dph eval`, one for each problem."""
    notes: list[str] = field(default_factory=list)
    """What a user should know of how the rows were read, a sentence each."""
    records: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """[rows] The record that each row is of, counted over all files: a record with a list of samples makes several."""
    prints: NDArray[np.int64] | None = None
    """[rows] Fingerprints of the responses, equal for equal ones; None if no row has a response."""


class TableBuilder:
    """Collects rows into one `LogTable`."""

    def __init__(self, named: frozenset[str]) -> None:
        """named: columns to keep whatever their names are."""
        self.table, self.named = LogTable(), named
        self.columns: dict[str, list[Any]] = {}
        """By the path of a column that is kept with its values, those so far."""
        self._texts: dict[str, str] = {}
        """Every distinct text, once."""
        self._kept: dict[str, int] = {}
        """By the path of a column, how it is kept."""
        self._few: dict[str, tuple[array[int], dict[Any, int]]] = {}
        self._prints = array("q")
        self._records = array("q")

    def add(self, row: Mapping[str, Any], of_last: bool = False) -> None:
        """Add a row; of_last: it is of the same record of its file as the row before it."""
        mark, number, ways, columns, texts = 0, self.table.rows, self._kept, self.columns, self._texts
        for path, value in row.items():
            kept = ways.get(path) or self.kept_of(path)
            if kept == _NOTHING or (value is None and kept != RESPONSE):
                continue
            if kept == _FEW:
                self._add_few(path, value if type(value) in _PLAIN else _code_of(value))
                continue
            if kept == RESPONSE:  # null counts as empty: a run whose responses are all empty has failed
                empty = not value.strip() if isinstance(value, str) else _is_empty(value)
                mark ^= 0 if empty else hash(value if isinstance(value, str) else str(value)) ^ hash(path)
                value = "" if empty else "…"
            elif type(value) not in _PLAIN and (value := self._plain(path, value)) is None:
                continue
            if type(value) is str:
                known = texts.get(value)
                value = self._text(value) if known is None else known
            column = columns.get(path)
            if column is None:
                column = columns[path] = []
            if len(column) < number:
                column += [None] * (number - len(column))
            column.append(value)
        self._prints.append(mark)
        self._records.append(self._records[-1] + (not of_last) if self._records else 0)
        self.table.rows = number + 1

    def _add_few(self, path: str, value: Any) -> None:
        """Note the value of a column that is kept while it has few different ones."""
        few = self._few.get(path)
        if few is None:
            few = self._few[path] = (array("H"), {})
        codes, numbers = few
        code = numbers.get(value)
        if code is None:
            few_do = type(value) is _List or kind_of(path) in ("measure", "result")
            most = _FEW_MEASURED if few_do else FEW_VALUES
            if value is _NO_CODE or len(numbers) >= most:
                self._kept[path] = _NOTHING
                del self._few[path]
                return
            code = numbers[value] = len(numbers)
        missing = self.table.rows - len(codes)
        if missing:
            codes.extend([MISSING] * missing)
        codes.append(code)

    def _plain(self, path: str, value: Any) -> Any:
        """A value that is neither text, number nor truth, as one of these; None for one that does not count."""
        if not isinstance(value, list | dict):
            return plain_value(value)
        if isinstance(value, list) and role_of(path) == "id" and path not in self.named:
            return None  # columns of a table, perhaps of different lengths, are not one problem
        return json.dumps(value, ensure_ascii=False, sort_keys=True, default=plain_value)

    def _text(self, text: str) -> str:
        """A text that was not met before, as it can be written: one object for all that are equal."""
        return self._texts.setdefault(text, printable(text))

    def kept_of(self, path: str) -> int:
        """How a column is kept."""
        known = path in self.named or role_of(path) or verdict_rank(path) or is_maximum(path) or path == "c"
        known = known or sample_of(path) is not None or is_share_of_samples(path)
        kept = VALUES if known else _FEW if len(self._kept) < _MOST_COLUMNS else _NOTHING
        if role_of(path) == "response" and path not in self.named:
            kept = RESPONSE
        if len(self._kept) < _MOST_COLUMNS:
            self._kept[path] = kept
            if not known:
                self.table.others.add(path)
        return kept

    def finished(self) -> LogTable:
        rows = self.table.rows
        for path, column in self.columns.items():
            self.table.columns[path] = np.fromiter(column + [None] * (rows - len(column)), np.object_, rows)
        for path, (codes, numbers) in self._few.items():
            codes.extend([MISSING] * (rows - len(codes)))
            self.table.few[path] = np.array(codes, np.uint16), list(numbers)
        self.table.records = np.array(self._records, np.int64)
        prints = np.array(self._prints, np.int64)
        self.table.prints = prints if prints.any() else None
        return self.table


def printable(text: str) -> str:
    """A text with halves of surrogate pairs, which UTF-8 does not have, as their escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


class _List(str):
    """A short list as JSON."""

    __slots__ = ()


def _code_of(value: Any) -> Any:
    """A short list of texts and numbers as what a code stands for."""
    if not isinstance(value, list) or len(value) > _LONGEST_LIST or not _PLAIN.issuperset(map(type, value)):
        return _NO_CODE
    return _List(json.dumps(value, ensure_ascii=False))


def _is_empty(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_empty, value))
    return not value.strip() if isinstance(value, str) else value in (None, {})
