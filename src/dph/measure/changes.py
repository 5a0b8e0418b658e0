"""Changes between judged samples: pass@k, cover@τ and maj@k with intervals, paired differences, lost problems.
`dph.measure.wording` puts them into words; their page is `dph.report.passk`.

Intervals are those of `dph.measure.intervals`, over problems.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dph.errors import DataError, SettingsError, counted
from dph.measure.bands import Band, band
from dph.measure.intervals import FloatArray, mean_interval
from dph.measure.losses import cover_among, losses
from dph.measure.passk import (
    majority_at_k,
    missed_at_k,
    pass_at_k,
    powers_of_two,
)
from dph.measure.samples import Samples
from dph.measure.strata import Stratum, largest_k, strata
from dph.types import Interval

SHARES = (0.25, 0.5, 0.75, 1.0)
"""The τ of cover@τ."""
_VOTES_OF, _VOTES_OF_ALL = 2000, 100_000
"""Samples up to which maj@k is computed for k below n, which is slow; and if k is the smaller number of samples."""
Metrics = dict[str, FloatArray]
"""The values of each metric [problems]."""
_Count = tuple[int, int]
"""Correct and all samples of a problem."""
_Counts = tuple[NDArray[np.int64], NDArray[np.int64]]
"""The numbers of all and of correct samples, [problems]."""


@dataclass(frozen=True, slots=True)
class Scores:
    """One file's scores; every metric is the mean over its problems."""

    name: str
    problems: int
    samples: tuple[int, int]
    """The fewest and the most samples of a problem."""
    metrics: dict[str, Interval]
    """pass@k, cover@τ (the share of problems with at least τ of the samples right, of as many samples as the file with
    the fewest has), maj@k."""
    distinct: dict[int, float]
    """Expected number of distinct answers among m samples of a problem, by m; empty without answers."""
    runs: int = 1
    """Training runs of which these are the means; with several, the intervals are over runs and problems."""


@dataclass(frozen=True, slots=True)
class ProblemCounts:
    """One problem in both files."""

    id: str
    before: tuple[int, int]
    """Correct and all samples."""
    after: tuple[int, int]
    chance: float = 1.0
    """The chance that it is lost (or gained) among as many samples as the side with fewer has."""


@dataclass(frozen=True, slots=True)
class Change:
    """AFTER against BEFORE on the problems that both have."""

    before: str
    after: str
    problems: int
    differences: dict[str, Interval]
    """AFTER − BEFORE, paired by problem, of each metric that both have."""
    errors: dict[str, float]
    """The standard error of each difference: the standard deviation over problems / √problems; empty with several runs
    on a side."""
    lost: list[ProblemCounts]
    """Solved by a sample of BEFORE and by none of AFTER; those that BEFORE solves most often come first. For unequal
    numbers of samples: those with a chance of ½ or more (`dph.measure.losses`), the likeliest first."""
    gained: list[ProblemCounts]
    sign_p: float
    """Exact two-sided p-value of as many lost against gained problems if both are equally likely; for unequal numbers
    of samples, of their expectations."""
    lost_share: float
    """The lost problems above what chance alone stays below in 95 % of cases / problems that BEFORE solves; 0 if it
    solves none."""
    mix: dict[int, float]
    """pass@k of b samples of BEFORE and k − b of AFTER, by at most 17 b; k is the largest k of `differences`."""
    samples: tuple[int, int] = (0, 0)
    """The fewest and the most samples of a problem among which lost and gained are counted."""
    lost_count: float = 0.0
    """Lost problems; an expectation if the sides have unequal numbers of samples."""
    gained_count: float = 0.0
    by_chance: float = 0.0
    """Problems that would be lost, and gained, if both sides were samples of one model."""
    expected: bool = False
    """Whether the sides have unequal numbers of samples."""
    common: bool = False
    """Whether a side has problems that are left out, because another one lacks them."""
    band: Band | None = None
    """The change of pass@k at all k at once; None if a problem has one sample only."""
    strata: list[Stratum] = field(default_factory=list)
    """The change by how often BEFORE solves a problem, in pass@k for the largest k of `differences` that half of
    BEFORE's samples allow; empty if BEFORE has too few samples (`dph.measure.strata.FEWEST`)."""

    @property
    def among(self) -> str:
        """The samples of a problem among which lost and gained are counted, as "4 samples" or "2 to 4 samples"."""
        low, high = self.samples
        return counted(low, "sample") if low == high else f"{low} to {high} samples"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Scores of every file, and what changed from the first to each other one."""

    scores: list[Scores]
    changes: list[Change]
    notes: list[str] = field(default_factory=list)


def compare(
    before: Samples, *others: Samples, ks: Sequence[int] = (), partial: bool = False, same_prompts: bool = True
) -> Comparison:
    """Scores of judged samples, and the paired changes from `before` to each of the others.

    Args:
        ks: the k of pass@k and maj@k; empty: 1, 2, 4 … and the number of samples.
        partial: compare the problems that both have; otherwise different problems raise DataError.
        same_prompts: refuse a prompt that differs under one id.

    Two problems with two samples each; training loses the first problem:

    >>> from dph.measure import Samples, verdict
    >>> def judged(name, *right):
    ...     problem = np.repeat(np.arange(2), 2)
    ...     return Samples(name, ["a", "b"], problem, np.array(right, dtype=bool), None, None, "")
    >>> comparison = compare(judged("before", 1, 0, 1, 1), judged("after", 0, 0, 1, 1))
    >>> comparison.changes[0].differences["pass@2"].estimate
    -0.5
    >>> [problem.id for problem in comparison.changes[0].lost]
    ['a']
    """
    for side in others:
        check_problems(before, side, partial, same_prompts)
    sides, left_out = common_problems([before, *others])
    fewest = min(int(side.n.min()) for side in sides)
    tables = [
        metrics_of(side, chosen_ks(side, ks, fewest), m) for side, m in zip(sides, samples_of_all(sides), strict=True)
    ]
    scores = [
        Scores(
            side.name,
            len(side.problems),
            (int(side.n.min()), int(side.n.max())),
            {name: mean_interval(values, 0.0, 1.0) for name, values in table.items()},
            distinct_of(side, fewest),
        )
        for side, table in zip(sides, tables, strict=True)
    ]
    changes = [
        change_between((sides[0], side), (tables[0], table), bool(left_out))
        for side, table in zip(sides[1:], tables[1:], strict=True)
    ]
    notes = [note for side in sides for note in side.notes]
    return Comparison(scores, changes, [*notes, *left_out, *filter(None, map(note_of_unequal, changes))])


def common_problems(sides: Sequence[Samples]) -> tuple[list[Samples], list[str]]:
    """The sides without the problems that another side lacks, and a sentence for each that has such problems."""
    common = set(sides[0].problems).intersection(*(side.problems for side in sides[1:]))
    if all(len(side.problems) == len(common) for side in sides):
        return list(sides), []
    notes = [
        f"{side.name}: {counted(absent, 'problem')} of {len(side.problems)} left out, which another file lacks"
        for side in sides
        if (absent := len(side.problems) - len(common))
    ]
    return [_only(side, common) for side in sides], notes


def _only(side: Samples, problems: set[str]) -> Samples:
    """Some of the problems, in their order."""
    kept = np.array([id in problems for id in side.problems])
    number, rows = np.cumsum(kept) - 1, kept[side.problem]
    return replace(
        side,
        problems=[id for id in side.problems if id in problems],
        problem=number[side.problem[rows]].astype(np.int32),
        right=side.right[rows],
        answer=None if side.answer is None else side.answer[rows],
        prompts=None if side.prompts is None else [p for p, keep in zip(side.prompts, kept, strict=True) if keep],
        number=None if side.number is None else side.number[rows],
    )


def samples_of_all(sides: Sequence[Samples]) -> list[NDArray[np.int64]]:
    """For each side, the samples that every side has of each of its problems, which are the same for all sides."""
    place = {id: i for i, id in enumerate(sides[0].problems)}
    places = [np.array([place[id] for id in side.problems]) for side in sides]
    fewest = np.full(len(place), np.iinfo(np.int64).max)
    for side, where in zip(sides, places, strict=True):
        fewest[where] = np.minimum(fewest[where], side.n)
    return [fewest[where] for where in places]


def note_of_unequal(change: Change) -> str:
    """Why lost and gained are expectations; "" if they are counts."""
    if not change.expected:
        return ""
    sides = f"{change.before} and {change.after} have unequal numbers of samples"
    return f"{sides}: lost, gained and cover are expected values among {change.among} of each"


def chosen_ks(side: Samples, ks: Sequence[int], of_all: int) -> list[int]:
    """The k of a side; of_all: the fewest samples of a problem on any side."""
    fewest = int(side.n.min())
    for k in ks:
        if not 1 <= k <= fewest:
            has = f"because every problem has {counted(fewest, 'sample')}"
            raise SettingsError(f"{side.name}: pass@{k} needs k from 1 to {fewest}, {has}")
    return sorted(set(ks) or {*powers_of_two(fewest), fewest, of_all})


def metrics_of(side: Samples, ks: Sequence[int], m: NDArray[np.int64]) -> Metrics:
    n, c = side.n, side.c
    metrics = {f"pass@{k}": pass_at_k(n, c, k) for k in ks}
    for share in SHARES if n.max() > 1 else ():
        metrics[f"cover@{share:g}"] = cover_among(n, c, m, share)
    if side.answer is not None:
        for k in ks:
            of_all = bool((m == k).all()) and len(side.problem) <= _VOTES_OF_ALL
            if n.min() == n.max() == k or of_all or len(side.problem) <= _VOTES_OF:
                metrics[f"maj@{k}"] = _majority(side, side.answer, k)
    return metrics


def _majority(side: Samples, answer: NDArray[np.int32], k: int) -> FloatArray:
    """maj@k of each problem."""
    order = np.argsort(side.problem, kind="stable")
    values = []
    for rows in np.split(order, np.cumsum(side.n)[:-1]):
        answers = [None if code < 0 else code for code in answer[rows].tolist()]
        values.append(majority_at_k(answers, side.right[rows].tolist(), k))
    return np.array(values)


def distinct_of(side: Samples, of_all: int) -> dict[int, float]:
    """Σ over answers of 1 − C(n − votes, m) / C(n, m), the mean over problems (Hurlbert 1971)."""
    if side.answer is None:
        return {}
    answered = side.answer >= 0
    width = int(side.answer.max(initial=0)) + 1
    pairs = side.problem[answered].astype(np.int64) * width + side.answer[answered]
    answers, votes = np.unique(pairs, return_counts=True)
    n, ms = side.n, chosen_ks(side, (), of_all)
    return {m: float(pass_at_k(n[answers // width], votes, m).sum() / len(n)) if len(votes) else 0.0 for m in ms}


def check_problems(before: Samples, after: Samples, partial: bool, same_prompts: bool) -> None:
    """Raises DataError for different problems, unless some may be missing, and for prompts that differ under one id."""
    place = {id: i for i, id in enumerate(after.problems)}
    common = [(i, place[id]) for i, id in enumerate(before.problems) if id in place]
    if not common:
        ids = f"for example {before.problems[0]!r} and {after.problems[0]!r}"
        raise DataError(f"{before.name} and {after.name} have no problem in common: the ids are, {ids}")
    missing = (len(before.problems) - len(common), len(after.problems) - len(common))
    if any(missing) and not partial:
        absent = " and ".join(
            f"{counted(number, 'problem')} of {side.name} alone"
            for number, side in zip(missing, (before, after), strict=True)
            if number
        )
        raise DataError(f"the files have different problems: {absent}; --partial compares the common ones")
    if same_prompts:
        check_prompts(before, after)


def check_prompts(before: Samples, after: Samples) -> None:
    """Raises DataError if a problem has different prompts in two files that have prompts."""
    if before.prompts is not None and after.prompts is not None:
        place = {id: i for i, id in enumerate(after.problems)}
        common = [(i, place[id]) for i, id in enumerate(before.problems) if id in place]
        differ = [i for i, j in common if before.prompts[i] != after.prompts[j]]
        if differ:
            example = f"for example {before.problems[differ[0]]!r}; if only the template differs, say --prompt none"
            many = f"different prompts of {counted(len(differ), 'problem')}"
            raise DataError(f"{many} in {before.name} and {after.name}, {example}")


def change_between(sides: tuple[Samples, Samples], metrics: tuple[Metrics, Metrics], left_out: bool) -> Change:
    before, after = sides
    place = {id: i for i, id in enumerate(after.problems)}
    second = np.array([place[id] for id in before.problems])
    shared = [name for name in metrics[0] if name in metrics[1]]
    values = {name: metrics[1][name][second] - metrics[0][name] for name in shared}
    n, c = (before.n, after.n[second]), (before.c, after.c[second])
    found = losses((n[0], c[0]), (n[1], c[1]))
    k = max(int(name[5:]) for name in shared if name.startswith("pass@"))
    bs = sorted({round(k * i / 16) for i in range(17)})
    counts = [
        (id, (cb, nb), (ca, na)) for id, cb, nb, ca, na in zip(before.problems, c[0], n[0], c[1], n[1], strict=True)
    ]
    return Change(
        before.name,
        after.name,
        len(place),
        {name: mean_interval(difference, -1.0, 1.0) for name, difference in values.items()},
        {name: float(d.std(ddof=1)) / math.sqrt(len(d)) if len(d) > 1 else math.nan for name, d in values.items()},
        _likely(counts, found.lost, 0),
        _likely(counts, found.gained, 1),
        found.sign_p,
        found.share,
        # unbiased, because the samples of both sides are independent
        {b: float(1 - (missed_at_k(n[0], c[0], b) * missed_at_k(n[1], c[1], k - b)).mean()) for b in bs},
        (int(found.m.min()), int(found.m.max())),
        float(found.lost.sum()),
        float(found.gained.sum()),
        found.by_chance,
        bool((n[0] != n[1]).any()),
        left_out,
        band([(n[0], c[0])], [(n[1], c[1])]) if found.m.min() > 1 else None,
        _strata((n[0], c[0]), (n[1], c[1]), [int(name[5:]) for name in shared if name.startswith("pass@")]),
    )


def _strata(before: _Counts, after: _Counts, ks: Sequence[int]) -> list[Stratum]:
    most = largest_k(before[0], after[0])
    chosen = max((k for k in ks if k <= most), default=0)
    return strata(before, [after], chosen) if chosen else []


def _likely(counts: Sequence[tuple[str, _Count, _Count]], chances: FloatArray, side: int) -> list[ProblemCounts]:
    """The problems that are lost (or gained) with a chance of ½ or more, the likeliest first, and among these those
    that the given side solves most often."""
    found = []
    for i in np.flatnonzero(chances >= 0.5):
        id, (cb, nb), (ca, na) = counts[int(i)]
        found.append(ProblemCounts(id, (int(cb), int(nb)), (int(ca), int(na)), float(chances[i])))
    solved = [(problem.before, problem.after)[side] for problem in found]
    order = sorted(range(len(found)), key=lambda i: (-found[i].chance, -solved[i][0] / solved[i][1]))
    return [found[i] for i in order]
