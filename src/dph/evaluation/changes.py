"""Changes between judged samples: pass@k, cover@τ and maj@k with intervals, paired differences, lost problems;
in words, as text and as JSON. Its page is `dph.report.passk`.

Intervals are those of `dph.evaluation.intervals`, over problems.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dph.errors import DataError, SettingsError, counted, one_line
from dph.evaluation.intervals import FloatArray, mean_interval
from dph.evaluation.passk import (
    cover_at,
    majority_at_k,
    missed_at_k,
    pass_at_k,
    powers_of_two,
)
from dph.evaluation.samples import Samples
from dph.types import Interval

SHARES = (0.25, 0.5, 0.75, 1.0)
"""The τ of cover@τ."""
_VOTES_OF = 2000
"""Samples up to which maj@k is computed for k below n, which is slow."""
_NAMED = 10
"""Problems that the text names; the page and the JSON name all."""
Metrics = dict[str, FloatArray]
"""The values of each metric [problems]."""


@dataclass(frozen=True, slots=True)
class Scores:
    """One file's scores; every metric is the mean over its problems."""

    name: str
    problems: int
    samples: tuple[int, int]
    """The fewest and the most samples of a problem."""
    metrics: dict[str, Interval]
    """pass@k, cover@τ (the share of problems with at least τ of the samples right), maj@k."""
    distinct: dict[int, float]
    """Expected number of distinct answers among m samples of a problem, by m; empty without answers."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem in both files."""

    id: str
    before: tuple[int, int]
    """Correct and all samples."""
    after: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Change:
    """AFTER against BEFORE on the problems that both have."""

    before: str
    after: str
    problems: int
    differences: dict[str, Interval]
    """AFTER − BEFORE, paired by problem, of each metric that both have."""
    errors: dict[str, float]
    """The standard error of each difference: the standard deviation over problems / √problems."""
    lost: list[Problem]
    """Solved by a sample of BEFORE and by none of AFTER; those that BEFORE solves most often come first."""
    gained: list[Problem]
    sign_p: float
    """Exact two-sided p-value of as many lost against gained problems if both are equally likely."""
    lost_share: float
    """Lost problems / problems that BEFORE solves; 0 if it solves none."""
    mix: dict[int, float]
    """pass@k of b samples of BEFORE and k − b of AFTER, by at most 17 b; k is the largest k of `differences`."""


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
    """
    sides = [before, *others]
    tables = [_metrics(side, _chosen(side, ks)) for side in sides]
    scores = [
        Scores(
            side.name,
            len(side.problems),
            (int(side.n.min()), int(side.n.max())),
            {name: mean_interval(values, 0.0, 1.0) for name, values in table.items()},
            _distinct(side),
        )
        for side, table in zip(sides, tables, strict=True)
    ]
    changes = [
        _change((before, side), (tables[0], table), partial, same_prompts)
        for side, table in zip(others, tables[1:], strict=True)
    ]
    return Comparison(scores, changes, [note for side in sides for note in side.notes])


def _chosen(side: Samples, ks: Sequence[int]) -> list[int]:
    fewest = int(side.n.min())
    for k in ks:
        if not 1 <= k <= fewest:
            raise SettingsError(f"{side.name}: pass@{k} needs k from 1 to the {fewest} samples that every problem has")
    return sorted(set(ks) or {*powers_of_two(fewest), fewest})


def _metrics(side: Samples, ks: Sequence[int]) -> Metrics:
    n, c = side.n, side.c
    metrics = {f"pass@{k}": pass_at_k(n, c, k) for k in ks}
    for share in SHARES if n.max() > 1 else ():
        metrics[f"cover@{share:g}"] = cover_at(n, c, share)
    if side.answer is not None:
        for k in ks:
            if n.min() == n.max() == k or len(side.problem) <= _VOTES_OF:
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


def _distinct(side: Samples) -> dict[int, float]:
    """Σ over answers of 1 − C(n − votes, m) / C(n, m), the mean over problems (Hurlbert 1971)."""
    if side.answer is None:
        return {}
    answered = side.answer >= 0
    width = int(side.answer.max(initial=0)) + 1
    pairs = side.problem[answered].astype(np.int64) * width + side.answer[answered]
    answers, votes = np.unique(pairs, return_counts=True)
    n, ms = side.n, _chosen(side, ())
    return {m: float(pass_at_k(n[answers // width], votes, m).sum() / len(n)) if len(votes) else 0.0 for m in ms}


def _change(
    sides: tuple[Samples, Samples], metrics: tuple[Metrics, Metrics], partial: bool, same_prompts: bool
) -> Change:
    before, after = sides
    place = {id: i for i, id in enumerate(after.problems)}
    common = [(i, place[id]) for i, id in enumerate(before.problems) if id in place]
    if not common:
        ids = f"for example {before.problems[0]!r} and {after.problems[0]!r}"
        raise DataError(f"{before.name} and {after.name} have no problem in common: the ids are, {ids}")
    missing = (len(before.problems) - len(common), len(after.problems) - len(common))
    if any(missing) and not partial:
        absent = f"{missing[0]} problems of {before.name} are not in {after.name}, and {missing[1]} the other way round"
        raise DataError(f"{absent}; --partial compares the common ones")
    first, second = (np.array(places) for places in zip(*common, strict=True))
    if same_prompts and before.prompts is not None and after.prompts is not None:
        differ = [i for i, j in common if before.prompts[i] != after.prompts[j]]
        if differ:
            example = f"for example {before.problems[differ[0]]!r}; if only the template differs, say --prompt none"
            raise DataError(f"{len(differ)} prompts differ between {before.name} and {after.name}, {example}")
    shared = [name for name in metrics[0] if name in metrics[1]]
    values = {name: metrics[1][name][second] - metrics[0][name][first] for name in shared}
    n, c = (before.n[first], after.n[second]), (before.c[first], after.c[second])
    counts = np.stack([c[0], n[0], c[1], n[1]], 1).tolist()
    ids = [before.problems[i] for i, _ in common]
    pairs = [Problem(id, (cb, nb), (ca, na)) for id, (cb, nb, ca, na) in zip(ids, counts, strict=True)]
    lost = sorted((p for p in pairs if p.before[0] and not p.after[0]), key=lambda p: -p.before[0] / p.before[1])
    gained = sorted((p for p in pairs if p.after[0] and not p.before[0]), key=lambda p: -p.after[0] / p.after[1])
    k = max(int(name[5:]) for name in shared if name.startswith("pass@"))
    solved, bs = int((c[0] > 0).sum()), sorted({round(k * i / 16) for i in range(17)})
    return Change(
        before.name,
        after.name,
        len(common),
        {name: mean_interval(difference, -1.0, 1.0) for name, difference in values.items()},
        {name: float(d.std(ddof=1)) / math.sqrt(len(d)) if len(d) > 1 else math.nan for name, d in values.items()},
        lost,
        gained,
        _sign_test(len(lost), len(gained)),
        len(lost) / solved if solved else 0.0,
        # unbiased, because the samples of both sides are independent
        {b: float(1 - (missed_at_k(n[0], c[0], b) * missed_at_k(n[1], c[1], k - b)).mean()) for b in bs},
    )


def _sign_test(one: int, other: int) -> float:
    total, fewer = one + other, min(one, other)
    if total > 1000:  # the normal limit, with its correction for continuity
        return math.erfc(max(0.0, abs(one - other) - 1) / math.sqrt(2 * total))
    return min(1.0, 2 * sum(math.comb(total, i) for i in range(fewer + 1)) / 2**total)


def verdict(change: Change) -> str:
    """The change, in one sentence."""
    name = next(reversed([name for name in change.differences if name.startswith("pass@")]))
    difference = change.differences[name]
    if difference.low <= 0 <= difference.high:
        changed = f"{name} did not change measurably ({_points(difference)})"
    else:
        low, high = sorted(100 * abs(end) for end in (difference.low, difference.high))
        rose = "rose" if difference.estimate > 0 else "fell"
        changed = f"{name} {rose} by {100 * abs(difference.estimate):.1f} points ({low:.1f} to {high:.1f})"
    half = sum(2 * problem.before[0] >= problem.before[1] for problem in change.lost)
    often = f" ({half} of them solved by at least half of the samples before)" if half else ""
    lost, gained = (counted(len(problems), "problem") for problems in (change.lost, change.gained))
    return f"{changed}: {lost} lost{often}, {gained} gained"


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Everything, as JSON takes it; a number that is not defined is null."""
    return {"verdicts": [verdict(change) for change in comparison.changes]} | _plain(asdict(comparison))


def as_text(comparison: Comparison) -> str:
    """Tables in percent, one line for each metric, and the lost and gained problems by name."""
    lines = [f"{verdict(change)}." for change in comparison.changes]
    for table in (scores_table(comparison), distinct_table(comparison), *map(mix_table, comparison.changes)):
        every = [table.columns, *table.rows] if table.rows else []
        widths = [max(map(len, column)) for column in zip(*every, strict=True)]
        cells = [[f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)] for row in every]
        lines += ["", *("  ".join(row).rstrip() for row in cells)] if cells else []
    for change in comparison.changes:
        for what, problems in (("lost", change.lost), ("gained", change.gained)):
            if problems:
                lines += ["", f"{what} in {change.after}:", *(f"  {_problem(one)}" for one in problems[:_NAMED])]
            if len(problems) > _NAMED:
                lines.append(f"  and {len(problems) - _NAMED} more")
        lost, gained = len(change.lost), len(change.gained)
        lines += ["", f"{lost} lost and {gained} gained: p = {change.sign_p:.2g} (exact sign test)"]
    return "\n".join([*lines, "", "percent, with 95 % intervals over problems"]).lstrip()


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def scores_table(comparison: Comparison) -> Table:
    names = list(dict.fromkeys(name for scores in comparison.scores for name in scores.metrics))
    labels = _labels(len(comparison.scores))
    rows = []
    for name in names:
        cells = [_share(scores.metrics.get(name)) for scores in comparison.scores]
        rows.append([name, *cells, *(_points(change.differences.get(name)) for change in comparison.changes)])
    return Table("Scores", ["", *labels, *(f"{label} − before" for label in labels[1:])], rows)


def distinct_table(comparison: Comparison) -> Table:
    ms = sorted({m for scores in comparison.scores for m in scores.distinct})
    cells = [[f"{s.distinct[m]:.2f}" if m in s.distinct else "–" for s in comparison.scores] for m in ms]
    rows = [[f"of {m}", *row] for m, row in zip(ms, cells, strict=True)]
    return Table("Distinct answers", ["distinct answers", *_labels(len(comparison.scores))], rows)


def mix_table(change: Change) -> Table:
    k = max(change.mix)
    chosen = sorted(
        {b for b in change.mix if b in (0, k)} | {round(k / 4), round(k / 2), round(3 * k / 4)} & set(change.mix)
    )
    columns = [f"samples of before among {k}", *map(str, chosen)]
    return Table("Mix", columns, [[f"pass@{k}", *(f"{100 * change.mix[b]:.1f}" for b in chosen)]] if k > 1 else [])


def _labels(count: int) -> list[str]:
    return ["before", "after", *(f"after {i}" for i in range(2, count))][:count]


def _share(value: Interval | None) -> str:
    return "–" if value is None else f"{100 * value.estimate:.1f} ({100 * value.low:.1f}–{100 * value.high:.1f})"


def _points(value: Interval | None) -> str:
    return "–" if value is None else f"{100 * value.estimate:+.1f} ({100 * value.low:+.1f} to {100 * value.high:+.1f})"


def _problem(problem: Problem) -> str:
    (cb, nb), (ca, na) = problem.before, problem.after
    return f"{one_line(problem.id, 60)} ({cb}/{nb} → {ca}/{na})"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
