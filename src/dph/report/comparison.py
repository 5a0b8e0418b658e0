"""The numbers of a report: metrics of each label on each split with 95 % intervals, and keep and exploration rates."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dph.errors import SettingsError, counted
from dph.measure.intervals import (
    Interval,
    difference_over_runs,
    interval_over_runs,
    ratio_interval,
    widened_by_runs,
)
from dph.measure.losses import missed_among
from dph.measure.passk import pass_at_k
from dph.measure.strata import FEWEST, FEWEST_PROBLEMS, Stratum, largest_k, strata
from dph.measure.wording import decimal, in_problems
from dph.report.data import (
    EvalRun,
    MetricValue,
    Split,
    aligned_rows,
    by_label,
    check_contents,
    column,
    range_of,
    values_of,
)

KEEP_K = 8
"""The number of samples within which a problem counts as solved, for keep and exploration rates (paper §6, Fig. 4)."""
RATES = (f"keep@{KEEP_K}", f"explore@{KEEP_K}")
"""The names of the keep rate and of the exploration rate."""
_FEW_PROBLEMS = 30  # with fewer, 1.96·√(p (1 − p)/n) is over 18 points at p = 1/2
_IN_HEADLINE = 3  # the labels that are compared with the base in the headline
MAIN_SPLIT = "test"
"""The split of the first table, if every run has it; otherwise the first split that every run has."""


@dataclass(frozen=True, slots=True)
class EvaluationTable:
    """Evaluations side by side."""

    base: str | None
    """The label of the evaluation of the reference policy."""
    runs: Mapping[str, Sequence[EvalRun]]
    """The evaluations by label. Those with one label are seeds of one method."""
    main: str
    """The split of the first table."""
    splits: Mapping[str, Mapping[str, Split]]
    """The metrics by split, the main split first, and by label. A split lacks the labels that were not evaluated on
    it."""

    @property
    def elsewhere(self) -> dict[str, Mapping[str, Split]]:
        """The splits other than the main one."""
        return {split: labels for split, labels in self.splits.items() if split != self.main}


def tabulate(evals: Sequence[EvalRun], base: str | None) -> EvaluationTable:
    """The evaluations by label and split. base: the label of the reference policy. Raises UserError if the evaluations
    have no split in common, or different problems."""
    check_contents(evals)
    runs = by_label(evals)
    names = list(dict.fromkeys(name for run in evals for name in run.splits))
    common = [name for name in names if all(name in run.splits for run in evals)]
    if not common:
        there = f"the evaluations have no split in common ({', '.join(names)})"
        raise SettingsError(f"{there}; evaluate all of them on one split, or report them apart")
    main = MAIN_SPLIT if MAIN_SPLIT in common else common[0]
    splits: dict[str, dict[str, Split]] = {}
    for split in dict.fromkeys([main, *names]):
        evaluated = {label: group for label, group in runs.items() if all(split in run.splits for run in group)}
        splits[split] = {label: summarise_label(group, split) for label, group in evaluated.items()}
    return EvaluationTable(base, runs, main, splits)


def summarise_label(runs: Sequence[EvalRun], split: str) -> Split:
    """The metrics of a split for one label.

    With one run, they are the metrics of the run. With several runs (seeds), they are means over the runs and over the
    problems that have the metric in each run, with intervals over both. Raises UserError as `aligned_rows` does.
    """
    of_runs = [run.splits[split] for run in runs]
    first = of_runs[0]
    if len(runs) == 1:
        return first
    rows = aligned_rows(runs, split)
    shared = [k for k in first.pass_curve if all(k in of_run.pass_curve for of_run in of_runs)]
    curve = {k: mean_of(values_of(rows, f"pass@{k}"), f"pass@{k}") for k in shared}
    metrics: dict[str, MetricValue] = {}
    for name in [name for name in first.metrics if all(name in of_run.metrics for of_run in of_runs)]:
        if name.startswith("pass@") or all(name in row for run in rows for row in run):
            metrics[name] = mean_of(values_of(rows, name), name)
        else:
            metrics[name] = MetricValue(float(np.mean([of_run.metrics[name].mean for of_run in of_runs])))
    return replace(
        first,
        metrics=metrics,
        pass_curve={k: value for k, value in curve.items() if value.problems},
        style_shares={
            style: float(np.mean([of_run.style_shares.get(style, 0.0) for of_run in of_runs]))
            for style in sorted(set().union(*(of_run.style_shares for of_run in of_runs)))
        },
    )


def samples_of(runs: Sequence[EvalRun], split: str) -> tuple[int, int]:
    """The smallest and the largest number of judged samples that a problem of a split has in some runs."""
    samples = [int(row["samples"]) for run in runs for row in run.problems if row["split"] == split]
    return min(samples, default=0), max(samples, default=0)


def mean_of(values: np.ndarray, metric: str) -> MetricValue:
    """The mean of the values of a metric, [seeds, problems], with its interval. A problem without a value in some seed
    (NaN) is left out. The mean is NaN if no problem is left."""
    has_it = np.asarray(~np.isnan(values).any(axis=0))
    if not has_it.any():
        return MetricValue(math.nan)
    return _value(interval_over_runs(values[:, has_it], range_of(metric)), has_it)


def _value(interval: Interval, has_it: np.ndarray) -> MetricValue:
    return MetricValue(interval.estimate, interval.low, interval.high, int(has_it.sum()), has_it.size)


@dataclass(frozen=True, slots=True)
class Difference:
    """The changes from one label to another on the main split, paired by problem."""

    after: str
    before: str
    metrics: Mapping[str, MetricValue]
    lost: float
    """The number of problems that a sample of `before` solves and no sample of `after`. With several runs it is the
    expectation for one run of each side. With unequal numbers of samples it is the expectation for as many samples as
    the run with the fewest has."""
    gained: float


def label_differences(comparison: EvaluationTable) -> list[Difference]:
    """The changes to every label from the base and from GRPO, as far as these labels are there; otherwise from the
    first label."""
    labels = list(comparison.runs)
    grpo = [label for label in labels if label.casefold() == "grpo"]
    references = [label for label in [comparison.base, *grpo] if label in labels] or labels[:1]
    pairs = [(a, b) for b in references for a in labels if a != b and not (b in grpo and a == comparison.base)]
    return [_difference(comparison, after, before) for after, before in pairs]


def _difference(comparison: EvaluationTable, after: str, before: str) -> Difference:
    sides = comparison.runs[before], comparison.runs[after]
    split, summaries = comparison.main, [comparison.splits[comparison.main][label] for label in (before, after)]
    rows = aligned_rows([*sides[0], *sides[1]], split)
    first, second = rows[: len(sides[0])], rows[len(sides[0]) :]
    ks = sorted(set(summaries[0].pass_curve) & set(summaries[1].pass_curve))
    mean = next((name for name in summaries[0].metrics if name.startswith("mean@")), "pass@1")
    if len({row["samples"] for run in rows for row in run}) > 1:
        mean = "pass@1"  # it is the same share of correct samples, with a name that has no number of samples
    names = dict.fromkeys(["greedy", mean, *(f"pass@{k}" for k in ks if k > 1 and k in (8, ks[-1]))])
    metrics = {}
    for name in names:
        old, new = values_of(first, name), values_of(second, name)
        has_it = np.asarray(~np.isnan(old).any(axis=0) & ~np.isnan(new).any(axis=0))
        if has_it.any():
            old, new = old[:, has_it], new[:, has_it]
            metrics[name] = _value(difference_over_runs(new, old), has_it)
    missed = _missed(first, second)
    lost, gained = ((1 - share) * opposite for share, opposite in (missed, missed[::-1]))
    return Difference(after, before, metrics, float(lost.sum()), float(gained.sum()))


def _missed(*sides: Sequence[Sequence[Mapping[str, Any]]]) -> list[np.ndarray]:
    """For each side, the chance [problems] that a run of the side does not solve a problem. The chance is for as many
    samples as the run with the fewest has, on either side."""
    counts = [[column(side, lambda row, name=name: row[name]) for name in ("samples", "correct")] for side in sides]
    fewest = np.concatenate([samples for samples, _ in counts]).min(axis=0)
    return [missed_among(samples, correct, fewest).mean(axis=0) for samples, correct in counts]


def headline(comparison: EvaluationTable) -> str:
    """The result in one line: the changes from the base to the other labels, and a warning if the problems are too
    few."""
    n = max(summary.problems for summary in comparison.splits[comparison.main].values())
    moves = f"the choice of problems alone moves a score by up to ±{98 / math.sqrt(max(1, n)):.0f} points (95 %)"
    few = f"; too few problems to decide anything ({n}): {moves}" if n < _FEW_PROBLEMS else ""
    changes = label_differences(comparison)
    sentences = [_sentence(change) for change in changes if change.before == changes[0].before]
    if sentences:
        below = [f"{len(sentences) - _IN_HEADLINE} more below"] if len(sentences) > _IN_HEADLINE else []
        return "; ".join([*sentences[:_IN_HEADLINE], *below]) + few
    [(label, summary)] = comparison.splits[comparison.main].items()
    metrics = {"greedy": summary.metrics.get("greedy"), **{f"pass@{k}": v for k, v in summary.pass_curve.items()}}
    values = ", ".join(f"{name} {100 * value.mean:.1f}" for name, value in metrics.items() if value)
    return f"{label}: {values} on {counted(summary.problems, 'problem')}{few}"


def _sentence(change: Difference) -> str:
    changed = ", ".join(f"{name} {points(value)}" for name, value in change.metrics.items() if name != "greedy")
    lost = f"{in_problems(change.lost)} lost, {decimal(change.gained)} gained"
    return f"{change.after} against {change.before}: {changed}: {lost}"


def points(value: MetricValue) -> str:
    """A difference of shares in points of percent, with its interval."""
    mean, low, high = (f"{100 * number:+.1f}".replace("-", "−") for number in (value.mean, value.low, value.high))
    return f"{mean} ({low} to {high})"


def strata_of(comparison: EvaluationTable) -> dict[tuple[str, int], list[Stratum]]:
    """The change from the base on the main split, by how often the base solves a problem. It is given for each other
    label, and for pass@8 and the largest pass@k. Empty without a base.

    The classes and levels of the base come from its first run, as in `retention`. A problem is left out if the base has
    fewer than FEWEST judged samples of it, or another run has fewer than half as many.
    """
    base, split = comparison.base, comparison.main
    if base is None or base not in comparison.runs:
        return {}
    found: dict[tuple[str, int], list[Stratum]] = {}
    for label, runs in comparison.runs.items():
        if label == base:
            continue
        rows = aligned_rows([comparison.runs[base][0], *runs], split)
        samples, correct = (column(rows, lambda row, name=name: row[name]) for name in ("samples", "correct"))
        enough = (samples[0] >= FEWEST) & (samples[1:] >= FEWEST // 2).all(axis=0)
        if enough.any() and (most := largest_k(*samples[:, enough])):
            sides = list(zip(samples[:, enough], correct[:, enough], strict=True))
            found |= {(label, k): strata(sides[0], sides[1:], k) for k in sorted({min(8, most), most})}
    return found


def retention(runs: Sequence[EvalRun], base: EvalRun, split: str, k: int = KEEP_K) -> dict[str, MetricValue]:
    """The keep rate "keep@k" and the exploration rate "explore@k" of the runs of one label against a run of the base,
    from unbiased estimates of pass@k, with intervals over problems (and seeds).

    If the only run *is* that of the base, the result is the noise floor: the base against further samples of itself.
    Two disjoint sets of k samples both solve a problem with probability 2·pass@k − pass@2k. Problems with fewer than k
    judged samples (2k for the noise floor) are left out, and so is a rate over fewer than FEWEST_PROBLEMS problems.
    """
    later = [run for run in runs if run.path != base.path]
    rows = aligned_rows([base, *later], split)
    samples, correct = (column(rows, lambda row, name=name: row[name]) for name in ("samples", "correct"))
    enough = np.asarray((samples >= (k if later else 2 * k)).all(axis=0))
    if not enough.any():
        return {}
    solved = pass_at_k(samples[:, enough], correct[:, enough], k)
    ref, trained = solved[0], solved[1:]
    kept = ref * trained.mean(0) if later else 2 * ref - pass_at_k(samples[0, enough], correct[0, enough], 2 * k)
    new = (1 - ref) * trained.mean(0) if later else ref - kept
    values: dict[str, MetricValue] = {}
    for name, both, reference in ((f"keep@{k}", kept, ref), (f"explore@{k}", new, 1 - ref)):
        if reference.sum() < FEWEST_PROBLEMS:
            continue
        interval = ratio_interval(both, reference)
        if later:
            # To first order, the rate is the mean of these values over problems, for each seed too.
            linear = interval.estimate + reference * (trained - interval.estimate) / reference.mean()
            interval = widened_by_runs(interval, [linear], range_of(name))
        values[name] = _value(interval, enough)
    return values
