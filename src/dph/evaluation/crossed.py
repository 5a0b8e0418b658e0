"""Rows of one problem that are no samples of one model: other conditions, other systems, or the same rows once more.

A column of samples' numbers or measurements may differ within a problem as it likes. A column that differs within
a problem and repeats across problems is a condition, a system or an episode: its rows answer different questions.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dph.evaluation.fields import kind_of

MISSING = 255
"""The code of a row without a value."""


class Column(NamedTuple):
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


def part_of(name: str, column: Column, problem: NDArray[Any]) -> Part:
    """What a column is among the rows of the problems: a number of samples, a condition, nothing that is used although
    it differs within a problem, or "" if it does not differ or measures a sample."""
    kind = kind_of(name)
    if kind == "measure" or column.codes.min(initial=MISSING) == column.codes.max(initial=0):
        return ""
    (of, value), times, _ = pairs_of(problem.astype(np.int64), column.codes.astype(np.int64))
    there = np.bincount(of)
    there = there[there > 0]
    if there.max(initial=1) < 2:
        return ""
    if kind == "sample":
        return "number" if times.max() == 1 else ""
    if np.bincount(value).max() < 2:  # no value is there in a second problem
        return ""
    if kind == "condition":
        return "condition"
    if all(isinstance(one, bool) for one in column.values):
        return "ignored"  # most flags measure a sample
    if not _is_crossed(of, value, times, problem):
        return "ignored"
    present = [column.values[code] for code in np.unique(column.codes) if code != MISSING]
    counts = all(type(one) is int for one in present) and sorted(present) in (
        [*range(len(present))],
        [*range(1, len(present) + 1)],
    )
    return "number" if counts and times.max() == 1 else "condition"


def _is_crossed(of: NDArray[Any], value: NDArray[Any], times: NDArray[Any], problem: NDArray[Any]) -> bool:
    """Whether every problem has each value equally often as the others have it; of those with the most rows."""
    sizes = np.bincount(problem)
    full = sizes == sizes.max()
    if full.sum() < 2:
        return False
    kept = full[of]
    table = np.zeros((len(sizes), int(value.max()) + 1), np.int64)
    table[of[kept], value[kept]] = times[kept]
    rows = table[full]
    return bool((rows == rows[0]).all())


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
