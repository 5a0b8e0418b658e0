"""Rows of one problem that are no samples of one model: other conditions, other systems, or the same rows once more.

A column of samples' numbers or measurements may differ within a problem as it likes. A column that differs within
a problem and repeats across problems is a condition, a system or an episode: its rows answer different questions.
Where the name does not say it, the values do: what is set for a run is there equally often in every problem, and what
a sample turns out to have is not.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dph.measure.kinds import Kind, are_numbers, is_measured, kind_of

MISSING = (1 << 16) - 1
"""The code of a row without a value."""


class CodedColumn(NamedTuple):
    """A column with few different values."""

    codes: NDArray[Any]
    """[rows] The number of each row's value."""
    values: Sequence[Any]


def pairs_of(first: NDArray[Any], second: NDArray[Any]) -> tuple[NDArray[np.int64], ...]:
    """Distinct pairs [2, pairs] of two columns, from 0 and from −1 on; how often each occurs; the pair of each row."""
    width = np.int64(int(second.max(initial=0)) + 2)
    found, which, times = np.unique(first * width + second + 1, return_inverse=True, return_counts=True)
    return np.stack([found // width, found % width - 1]), times, which


Part = Literal["", "number", "condition", "ignored"]


class Grouped:
    """Rows in the order of their problems."""

    def __init__(self, problem: NDArray[Any]) -> None:
        self.problem = problem.astype(np.int64)
        self.order = np.argsort(problem, kind="stable")
        sizes = np.bincount(problem)
        self.inside = np.diff(self.problem[self.order]) == 0
        """Whether each row but the first is of the same problem as the one before it."""
        most = int(sizes.max(initial=0))
        starts = np.cumsum(sizes) - sizes
        self.full = self.order[starts[sizes == most][:, None] + np.arange(most)]
        """[problems, rows] The rows of the problems that have the most."""

    def differs(self, codes: NDArray[Any]) -> bool:
        """Whether a problem has several values."""
        ordered = codes[self.order]
        return bool(((ordered[1:] != ordered[:-1]) & self.inside).any())

    def are_distinct(self, codes: NDArray[Any]) -> bool:
        """Whether no problem has a value twice."""
        table = self.full[:_FIRST]
        if not _distinct(np.sort(codes[table], axis=1)):
            return False
        return pairs_of(self.problem, codes.astype(np.int64))[0].shape[1] == len(codes)

    def repeats(self, codes: NDArray[Any]) -> bool:
        """Whether a value is there in a second problem."""
        (_, value), _, _ = pairs_of(self.problem, codes.astype(np.int64))
        return int(np.bincount(value).max()) > 1

    def chance(self, codes: NDArray[Any]) -> float | None:
        """If every problem has each value equally often as the others have it, of those with the most rows: the chance
        of that for values drawn independently in the shares that they have. None if not."""
        table = self.full
        if len(table) < 2:
            return None
        first = np.sort(codes[table[0]])
        for part in (table[:_FIRST], table):
            if not (np.sort(codes[part], axis=1) == first).all():
                return None
        return math.exp((len(table) - 1) * _log_chance(np.unique(first, return_counts=True)[1]))

    def chance_of_most(self, codes: NDArray[Any]) -> tuple[int, float] | None:
        """As `chance`, where some problems lack rows or have further ones: how many problems have each value as often
        as most of them, and the chance of that. None if fewer than half of the problems do, or all of their rows have
        one value."""
        (problem, value), times, _ = pairs_of(self.problem, codes.astype(np.int64))
        starts = np.flatnonzero(np.diff(problem, prepend=-1))
        of_each = Counter(
            tuple(zip(value[start:end].tolist(), times[start:end].tolist(), strict=True))
            for start, end in zip(starts, [*starts[1:], len(problem)], strict=True)
        )
        usual, alike = max(of_each.items(), key=lambda item: (item[1], len(item[0])))
        if len(usual) < 2 or 2 * alike < len(starts):
            return None
        log_ways = math.log(math.comb(len(starts), alike))
        return alike, math.exp(min(0.0, log_ways + (alike - 1) * _log_chance(np.array([n for _, n in usual]))))


def _log_chance(times: NDArray[Any]) -> float:
    """The logarithm of the chance that values drawn in these shares have exactly these numbers of times."""
    n = int(times.sum())
    return math.lgamma(n + 1) + sum(r * math.log(r / n) - math.lgamma(r + 1) for r in times.tolist())


_FIRST = 64
"""Problems that are looked at first: most columns of measurements are told by them."""
_FEW_PROBLEMS = 3
"""From as many problems on, values that every problem has equally often are no chance."""
_UNLIKELY, _DOUBTFUL = 1e-3, 0.05
"""Chances of what is no chance: of values that a sample turns out to have, and of others where rows are missing."""
_MANY = 64
"""Values of a condition at most, unless every problem has all of them."""


def _distinct(ordered: NDArray[Any]) -> bool:
    return not (ordered[:, 1:] == ordered[:, :-1]).any()


def part_of(name: str, column: CodedColumn, rows: Grouped) -> Part:
    """What a column is among the rows of the problems: a number of samples, a condition, nothing that is used although
    it differs within a problem, or "" if it does not differ or measures a sample."""
    codes = column.codes
    if not rows.differs(codes):
        return ""
    kind = kind_of(name)
    present = np.unique(codes)
    values = [column.values[code] for code in present.tolist() if code < len(column.values)]
    if kind == "condition" and len(values) <= _MANY:
        return "condition" if rows.repeats(codes) else ""
    if kind == "sample" and are_numbers(values):
        return "number" if rows.are_distinct(codes) else ""
    chance, problems = rows.chance(codes), len(rows.full)
    if chance is None:
        if kind == "sample" and rows.are_distinct(codes):
            return "number"
        found = _crossed_with_gaps(codes, rows, few=len(values) <= _MANY)
        if found is None:
            return "ignored" if kind in ("", "setting") and len(values) <= _MANY else ""
        problems, chance = found
    distinct = rows.are_distinct(codes)
    if kind == "condition":
        return "condition"
    if all(isinstance(value, bool) for value in values):
        return _flag(name, kind, problems, chance)
    counting = distinct and are_numbers(values)
    if kind == "result":
        return "condition" if chance < _UNLIKELY and not counting else "ignored"
    if kind == "measure":
        return "condition" if problems >= _FEW_PROBLEMS or chance < _UNLIKELY else "ignored"
    return "condition"


def _crossed_with_gaps(codes: NDArray[Any], rows: Grouped, few: bool) -> tuple[int, float] | None:
    """How many problems have the values of a condition, and the chance of that for values drawn independently, if some
    problems lack rows or have further ones; None if the values look drawn.

    A value that no problem has twice and several problems have was set, as one that most problems have equally often
    was.
    """
    if few and rows.are_distinct(codes) and rows.repeats(codes):
        sizes = np.bincount(rows.problem)
        several = int((sizes > 1).sum())
        return several, 0.5 ** (int((sizes[sizes > 1] - 1).sum()) - 1)
    found = rows.chance_of_most(codes)
    return found if found and found[1] < _DOUBTFUL else None


def _flag(name: str, kind: Kind, problems: int, chance: float) -> Part:
    """What a flag is that every problem has equally often."""
    if kind in ("measure", "result", "sample"):
        return ""
    if kind == "setting":
        return "condition"
    sure = chance < _UNLIKELY or (problems >= _FEW_PROBLEMS and not is_measured(name))
    return "condition" if sure else "ignored"


class Twins(NamedTuple):
    """Responses of which every one is there more than once."""

    problems: int
    """Problems whose responses are all there so often."""
    times: int
    sure: bool
    """Whether greedy decoding is no explanation: a problem has several responses, each as often."""
    again: bool
    """Whether all rows come again in the same order."""


def twins(problem: NDArray[Any], prints: NDArray[np.int64], right: NDArray[np.float64]) -> Twins | None:
    """Whether every response of the problems with the most rows is there the same number of times, or a multiple of it,
    with the same verdict; prints: [rows] equal for equal responses. None if not."""
    responses = np.unique(prints, return_inverse=True)[1].astype(np.int64)
    codes = responses * 3 + np.nan_to_num(right, nan=2).astype(np.int64)
    (of, _), times, _ = pairs_of(problem.astype(np.int64), codes)
    sizes, kinds = np.bincount(problem), np.bincount(pairs_of(problem.astype(np.int64), responses)[0][0])
    used = sizes > 0
    first = np.searchsorted(of, np.flatnonzero(used))
    common = np.zeros(len(sizes), np.int64)
    common[used] = np.gcd.reduceat(times, first)
    larger = sizes > sizes[used].min()
    chosen = np.where(larger.any(), larger, used) & used
    repeated = int(np.gcd.reduce(common[chosen]))
    if repeated < 2:
        return None
    again = False
    if not larger.any() and len(problem) % repeated == 0:
        blocks = (problem.astype(np.int64) * (codes.max() + 1) + codes).reshape(repeated, -1)
        again = bool((blocks == blocks[0]).all()) and int(used.sum()) > 1
    return Twins(int(chosen.sum()), repeated, bool((kinds[chosen] > 1).any()), again)
