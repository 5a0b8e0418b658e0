"""The rows of a table of judged samples that count, the problem of each, and refusals that name what to type."""

import math
import re
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dph.config import Reading
from dph.errors import DataError
from dph.measure.crossed import MISSING, CodedColumn, pairs_of
from dph.measure.fields import Role, field_text, preference, role_of, verdict_number
from dph.measure.kinds import counts_up, number_samples
from dph.measure.table import LogTable

LINE = "line"
"""The id that is a record's place in its file."""
_FLOAT = re.compile(r"-?\d+\.0")
_NULL = ("null", "none", "")
"""What a user types for a missing value."""
SHOWN = 4
"""Values that a message names at most."""
IntArray = NDArray[np.int32]


class Rows:
    """The columns of one table, and the rows that count."""

    def __init__(self, name: str, table: LogTable, reading: Reading) -> None:
        self.name, self.table, self.reading = name, table, reading
        self.rows: NDArray[np.intp] = np.arange(table.rows)
        self.notes: list[str] = []
        self.used: set[str] = set(table.used)
        """The options that had an effect so far."""
        self._merged: dict[str, tuple[NDArray[np.intp], IntArray, list[str]]] = {}
        """By a column's name the rows that were merged, the number of each row's value, and the values."""
        self._read: dict[str, tuple[NDArray[np.intp], NDArray[np.float64]]] = {}
        """By a column's name the rows whose verdicts were read, and the verdicts."""

    def _error(self, text: str) -> DataError:
        return DataError(f"{self.name}: {text}")

    def _column(self, name: str) -> NDArray[np.object_]:
        """The values of a column in the rows that count; None without one. Raises DataError for an unknown name."""
        if name not in self.table.columns:
            lists = " with one value a row" if name in self.table.others else ""
            raise self._error(f"no column{lists} is named {name!r}; there are {self._all_names()}")
        return self.table.columns[name][self.rows]

    def _values(self, name: str) -> tuple[IntArray, list[str]]:
        """The number of each row's value in a column, −1 without one, and the texts of the values."""
        if name not in self._merged or self._merged[name][0] is not self.rows:
            self._merged[name] = self.rows, *merged(self._column(name))
        return self._merged[name][1:]

    def _few(self, name: str) -> CodedColumn:
        """A column with few different values, in the rows that count."""
        if name in self.table.few:
            codes, values = self.table.few[name]
            return CodedColumn(codes[self.rows], values)
        codes, texts = self._values(name)
        return CodedColumn(np.where(codes < 0, MISSING, codes), texts)

    def _all_names(self) -> str:
        names = sorted({*self.table.columns, *self.table.others}, key=lambda name: (name.count("."), name))
        return ", ".join(names[:20]) + (" …" if len(names) > 20 else "")

    def _of(self, role: Role) -> list[str]:
        """The columns of a role that have a value, the preferred one first."""
        names = [name for name in self.table.columns if role_of(name) == role]
        names = [name for name in names if any(value is not None for value in self._column(name))]
        return sorted(names, key=lambda name: preference(name, role))

    def _where(self, name: str, wanted: Callable[[Any], bool], *, missing: bool = False) -> NDArray[np.bool_]:
        """The rows whose value in a column is wanted."""
        return np.array([missing if value is None else wanted(value) for value in self._column(name)], np.bool_)

    def _with_value(self, name: str, value: str) -> NDArray[np.bool_]:
        """The rows that have the value that a user typed in a column; null stands for rows without a value."""
        rows = self._where(name, is_text(value))
        if not rows.any() and value.lower() in _NULL:
            rows = self._where(name, lambda _: False, missing=True)
        return rows

    def _empty_responses(self) -> NDArray[np.bool_]:
        names = self._of("response")
        empty = [self._where(name, lambda text: text == "", missing=True) for name in names]
        return np.logical_and.reduce(empty) if names else np.zeros(len(self.rows), bool)

    def _select(self) -> None:
        """Keep the rows that are asked for; refuse several models, steps or filters in one file."""
        asked = [text.partition("=")[0] if "=" in text else "" for text in self.reading.filter]
        if twice := next((name for name in asked if asked.count(name) > 1), None):
            raise self._error(f"--filter names {twice!r} twice, and no row has two values; name one")
        if asked.count("") > 1:
            both = " and ".join(f"--filter {text}" for text in self.reading.filter if "=" not in text)
            raise self._error(f"{both} each choose one of the rows of a problem; name one")
        for text in self.reading.filter:
            before = len(self.rows)
            name, equals, value = text.partition("=")
            if not equals:
                name, value = next(iter(self._of("filter")), ""), text
            kept = self.rows[self._with_value(name, value)] if name else self._nth_rows(text)
            if not len(kept):
                there = f"; {name!r} has {self._examples(name)}" if name else ""
                raise self._error(f"no row is left by --filter {text}{there}")
            self.used |= {f"filter {text}"} if len(kept) < before else set()
            self.rows = kept
        for name in self._of("sample"):  # −1 is the greedy response of `dph eval`
            self.rows = self.rows[self._where(name, lambda number: verdict_number(number) != -1, missing=True)]
        if self.reading.id or self._naming():
            self._check_systems()

    def _check_systems(self) -> None:
        """Refuse rows of several filters, models or steps."""
        for role in ("filter", "model", "step"):
            for name in self._of(role):
                _, values = self._values(name)
                if len(values) > 1 and "." not in name:
                    rows = f"the rows have {len(values)} values of {name!r} ({', '.join(values[:SHOWN])})"
                    raise self._error(f"{rows}, not samples of one run; {self._one_of(name, values[-1])}")

    def _one_of(self, name: str, value: str) -> str:
        """What to type to read the rows of one system."""
        return f"choose one with --filter {name}={value}"

    def _nth_rows(self, text: str) -> NDArray[np.intp]:
        """The rows that are the first, second … of their problem."""
        if not text.isdecimal() or len(text) > 9 or int(text) < 1:
            raise self._error(f"no column is named filter; --filter {text} needs COLUMN=VALUE or a number from 1 on")
        _, ids, _ = self._ids()
        order = np.argsort(ids, kind="stable")
        return np.sort(self.rows[order[ranks_of(np.bincount(ids)) == int(text) - 1]])

    def _ids(self) -> tuple[str, IntArray, list[str]]:
        """The column of ids, the problem of each row, and the problems' ids."""
        names = [self.reading.id] if self.reading.id else self._naming()
        if names and names[0] != LINE:
            codes, keys = self._joined(names[0])
            if (codes < 0).any():
                raise self._unnamed(int(self.rows[np.argmax(codes < 0)]), names[0])
            for other in self._of("id") if not self.reading.id and len(codes) == len(keys) > 1 else ():
                sizes = np.bincount(self._values(other)[0] + 1)[1:]
                if len(sizes) > 1 and sizes.min() == sizes.max() > 1:
                    rows = f"{names[0]} differs in every row, but each {other} is there {sizes[0]} times"
                    raise self._error(f"{rows}; choose with --id {names[0]} or --id {other}")
            for task in self._of("task"):  # one id in two tasks names two problems
                split, tasks = self._values(task)
                pairs, _, both = pairs_of(codes, split)
                if len(tasks) > 1:
                    apart = pairs.shape[1] > len(keys)
                    keys = [f"{tasks[j]}/{keys[i]}" if apart and j >= 0 else keys[i] for i, j in pairs.T]
                    codes = both.astype(np.int32)
            return names[0], codes, keys
        place, sizes = self._places()
        if self.reading.id != LINE and (len(self.table.sources) < 2 or len(sizes) > 1 or not self._is_numbered()):
            choice = "choose one with --id, or the place in the file with --id line"
            raise self._error(f"no column names the problems; {choice}; there are {self._all_names()}")
        return LINE, place[self.rows].astype(np.int32), [str(i + 1) for i in range(max(sizes))]

    def _unnamed(self, place: int, name: str) -> DataError:
        """The refusal of a row that has no id. place: of the row in the table."""
        row = f"row {int(self._places()[0][place]) + 1}"
        what = f"has no {name!r}, which names the problems of the others"
        if len(self.table.sources) < 2:
            return self._error(f"{row} {what}")
        ends = np.cumsum([source.rows for source in self.table.sources])
        file = self.table.sources[int(np.searchsorted(ends, place, side="right"))].name
        remedy = "if its files are of several runs or tasks, name one of them"
        return self._error(f"{row} of {PurePath(file).name!r} {what}; {remedy}")

    def _places(self) -> tuple[NDArray[np.int64], set[int]]:
        """The place of each row's record in its file, [rows of the table], and the files' numbers of records."""
        lengths = np.array([source.rows for source in self.table.sources], np.int64)
        ends, records = np.cumsum(lengths, dtype=np.int64), self.table.records
        firsts = records[ends - lengths]
        sizes = records[ends - 1] - firsts + 1
        return records - np.repeat(firsts, lengths), set(sizes.tolist())

    def _naming(self) -> list[str]:
        """The column that names the problems, if there is one: the preferred one of those that differ between rows."""
        names = [*self._of("id"), *self._of("prompt")]
        differing = [name for name in names if len(self._values(name)[1]) > 1]
        return [*differing, *names, *self._of("task")][:1]

    def _joined(self, name: str) -> tuple[IntArray, list[str]]:
        """The values of a column, or of several that are named with commas between them. Joined values are written with
        a slash between them, and a slash within all but the last one as `\\/`: other values never look alike."""
        if name in self.table.columns or "," not in name:
            return _named(*self._values(name))
        first, *parts = name.split(",")
        codes, keys = _named(*self._values(first))
        keys = [_escaped(key) for key in keys]
        for number, part in enumerate(parts, 1):
            further, values = _named(*self._values(part))
            values = values if number == len(parts) else [_escaped(value) for value in values]
            if (further < 0).any() and role_of(part) not in ("id", "prompt", "task"):  # a condition may be null
                null = values.index("null") if "null" in values else len(values)
                further, values = np.where(further < 0, null, further), [*values, "null"]
            pairs, _, both = pairs_of(codes, further)
            missing = (codes < 0) | (further < 0)
            keys = [f"{keys[i]}/{values[j]}" if i >= 0 and j >= 0 else "" for i, j in pairs.T]
            codes = np.where(missing, -1, both).astype(np.int32)
        return codes, keys

    def _is_numbered(self) -> bool:
        """Whether the files' names differ in one number only, which counts samples from 0 or 1."""
        return self._counted() is not None and not self._are_systems()

    def _are_systems(self) -> bool:
        """Whether the number in which the files' names differ may tell systems, steps or conditions apart."""
        beside = self._counted()
        return beside is not None and not number_samples(*beside)

    def _counted(self) -> tuple[str, str] | None:
        """The texts before and behind the only number in which the files' names differ, if it counts from 0 or 1."""
        names = [re.split(r"(\d+)", source.name) for source in self.table.sources]
        differ = [i for i in range(len(names[0])) if len({tuple(name[i : i + 1]) for name in names}) > 1]
        if len({*map(len, names)}) > 1 or len(differ) != 1 or differ[0] % 2 == 0:
            return None
        place = differ[0]
        numbers = sorted(int(name[place]) for name in names)
        return ("".join(names[0][:place]), "".join(names[0][place + 1 :])) if counts_up(numbers) else None

    def _file(self) -> NDArray[np.intp]:
        """The file of each row, as a place among the sources."""
        sizes = [source.rows for source in self.table.sources]
        return np.repeat(np.arange(len(sizes)), sizes)[self.rows]

    def _scores(self, name: str) -> NDArray[np.float64]:
        """The number of each row's verdict, NaN without one; NaN everywhere if a value is not a verdict."""
        if name not in self._read or self._read[name][0] is not self.rows:
            self._read[name] = self.rows, self._scores_of(name)
        return self._read[name][1]

    def _scores_of(self, name: str) -> NDArray[np.float64]:
        if name not in self.table.columns and name in self.table.few:
            codes, values = self._few(name)
            of = [verdict_number(value) for value in values]
            return np.array([*(np.nan if None in of else number for number in of), np.nan])[np.minimum(codes, len(of))]
        numbers = [np.nan if value is None else verdict_number(value) for value in self._column(name)]
        return np.full(len(numbers), np.nan) if None in numbers else np.array(numbers, np.float64)

    def _examples(self, name: str) -> str:
        codes, texts = self._values(name)
        return ", ".join([*(repr(text[:40]) for text in texts[-SHOWN:]), *(["null"] if (codes < 0).any() else [])])


def _known(value: Any) -> str | None:
    """A value's text; None for a number that is none."""
    return None if isinstance(value, float) and math.isnan(value) else field_text(value)


def is_text(text: str) -> Callable[[Any], bool]:
    """Whether a value is the one that a user typed; 0.70 is 0.7, and true is True."""
    number = verdict_number(text) if not text.isalpha() else None
    typed = {text, field_text(number)} if number is not None else {text, text.capitalize()} & {"True", "False", text}
    return lambda value: field_text(value) in typed


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("/", "\\/")


def merged(column: NDArray[np.object_]) -> tuple[IntArray, list[str]]:
    """The number of each row's value, −1 without one, and the texts of the values, in the order of the rows."""
    numbers: dict[str, int] = {}
    texts = (value if value is None or type(value) is str else _known(value) for value in column)
    codes = [-1 if text is None else numbers.setdefault(text, len(numbers)) for text in texts]
    return np.array(codes, np.int32), list(numbers)


def _named(codes: IntArray, keys: list[str]) -> tuple[IntArray, list[str]]:
    """Ids as they are compared: without white space around them, and without the ".0" that a table of text writes
    behind whole numbers, if all have it."""
    plain = [key.strip() for key in keys]
    if plain and all(map(_FLOAT.fullmatch, plain)):
        plain = [key.partition(".")[0] for key in plain]
    if plain == keys:
        return codes, keys
    numbers = {key: number for number, key in enumerate(dict.fromkeys(plain))}
    return np.array([*(numbers[key] for key in plain), -1], np.int32)[codes], list(numbers)


def ranks_of(lengths: NDArray[np.intp]) -> NDArray[np.intp]:
    """0 … l − 1 for each length l."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
