"""What a report compares: metrics of each label on each split with 95 % intervals, keep and exploration rates."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dph.errors import UserError
from dph.metrics.bootstrap import bootstrap_interval, cluster_bootstrap, widened_by_seeds
from dph.metrics.passk import exploration_rate, keep_rate, pass_at_k, ratio_of_sums
from dph.metrics.wilson import Interval
from dph.report.data import EvalRun, Split, Value, aligned_rows, by_label, check_contents, column, range_of

KEEP_K = 8
"""Samples within which a problem counts as solved for keep and exploration rates (paper §6, Fig. 4)."""
RATES = (f"keep@{KEEP_K}", f"explore@{KEEP_K}")
"""The names of these rates."""
FEWEST_PROBLEMS = 5
"""A rate is left out where fewer problems stand behind it: the expected number that the base policy solves (keep rate)
or does not solve (exploration rate)."""
MAIN_SPLIT = "test"
"""The split of the first table, if every run has it; otherwise the first split that every run has."""

Rows = Sequence[Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Evaluations side by side."""

    base: str | None
    """Label of the reference policy's evaluation."""
    runs: Mapping[str, Sequence[EvalRun]]
    """Evaluations by label; those with one label are seeds of one method."""
    main: str
    """The split of the first table."""
    splits: Mapping[str, Mapping[str, Split]]
    """Metrics by split, the main one first, and by label; a split lacks the labels that were not evaluated on it."""

    @property
    def elsewhere(self) -> dict[str, Mapping[str, Split]]:
        """The splits other than the main one."""
        return {split: found for split, found in self.splits.items() if split != self.main}


def compare(evals: Sequence[EvalRun], base: str | None) -> Comparison:
    """Evaluations by label and split.

    Raises UserError when they have no split in common or were made on different problems.
    """
    check_contents(evals)
    runs = by_label(evals)
    names = list(dict.fromkeys(name for run in evals for name in run.splits))
    common = [name for name in names if all(name in run.splits for run in evals)]
    if not common:
        raise UserError(
            f"the evaluations have no split in common; they have: {', '.join(names)}; evaluate all of them on one "
            "split, or report them apart"
        )
    main = MAIN_SPLIT if MAIN_SPLIT in common else common[0]
    splits = {
        split: {
            label: summarise_label(group, split)
            for label, group in runs.items()
            if all(split in run.splits for run in group)
        }
        for split in (main, *(name for name in names if name != main))
    }
    return Comparison(base, runs, main, splits)


def summarise_label(runs: Sequence[EvalRun], split: str) -> Split:
    """A split's metrics for one label: those of its one run, or the means over several runs (seeds) and their problems,
    with intervals over runs and problems together.

    Raises UserError when the runs were evaluated on different problems.
    """
    first = runs[0].splits[split]
    if len(runs) == 1:
        return first
    rows = aligned_rows(runs, split)
    every = [run.splits[split] for run in runs]
    curve = {k: _pass(rows, k) for k in first.pass_curve if all(k in part.pass_curve for part in every)}
    metrics: dict[str, Value] = {}
    for name in first.metrics:
        if not all(name in part.metrics for part in every):
            continue
        if name.startswith("pass@"):
            metrics[name] = curve.get(int(name.removeprefix("pass@")), Value(math.nan))
        elif name in rows[0][0] and all(row[name] is not None for run in rows for row in run):
            metrics[name] = _over_seeds(column(rows, lambda row, name=name: float(row[name])), name)
        else:
            metrics[name] = Value(float(np.mean([part.metrics[name].mean for part in every])))
    return replace(
        first,
        metrics=metrics,
        pass_curve=curve,
        style_shares={
            style: float(np.mean([part.style_shares.get(style, 0.0) for part in every]))
            for style in sorted({style for part in every for style in part.style_shares})
        },
        by_kind={
            kind: {
                name: Value(float(np.mean([part.by_kind[kind][name].mean for part in every])))
                for name in values
                if all(name in part.by_kind.get(kind, {}) for part in every)
            }
            for kind, values in first.by_kind.items()
        },
    )


def _over_seeds(values: np.ndarray, name: str) -> Value:
    return _value(cluster_bootstrap(values, within=range_of(name)))


def _value(interval: Interval) -> Value:
    return Value(interval.estimate, interval.low, interval.high)


def _pass(rows: Rows, k: int) -> Value:
    samples, correct = _counts(rows)
    enough = (samples >= k).all(axis=0)
    return _over_seeds(pass_at_k(samples[:, enough], correct[:, enough], k), f"pass@{k}")


def _counts(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    return column(rows, lambda row: row["samples"]), column(rows, lambda row: row["correct"])


def retention(runs: Sequence[EvalRun], base: EvalRun, split: str, k: int = KEEP_K) -> dict[str, Value]:
    """Keep and exploration rate of one label's runs against the base run, "keep@k" and "explore@k", from unbiased
    pass@k estimates with intervals over problems (and seeds).

    Where the only run *is* the base, the result is the noise floor: the base against further samples of itself. Two
    disjoint sets of k samples both solve a problem with probability 2·pass@k − pass@2k, which is estimated from the
    same counts. Problems with fewer than k judged samples (2k for the floor) are left out, and so is a rate behind
    which fewer than FEWEST_PROBLEMS stand. Raises UserError when the runs were evaluated on different problems.
    """
    floor = len(runs) == 1 and runs[0].path == base.path
    others = [run for run in runs if run.path != base.path]
    rows = aligned_rows([base] if floor else [base, *others], split)
    samples, correct = _counts(rows)
    needed = 2 * k if floor else k
    enough = (samples >= needed).all(axis=0)
    if not enough.any():
        return {}
    solved = pass_at_k(samples[:, enough], correct[:, enough], k)
    ref = solved[0]
    behind = {f"keep@{k}": ref.sum(), f"explore@{k}": (1 - ref).sum()}
    supported = [name for name, problems in behind.items() if problems >= FEWEST_PROBLEMS]
    if floor:
        both = 2 * ref - pass_at_k(samples[0, enough], correct[0, enough], 2 * k)
        pairs = np.stack([ref, both], 1)
        kept = bootstrap_interval(pairs, lambda v: ratio_of_sums(v[..., 1], v[..., 0]))
        found = bootstrap_interval(pairs, lambda v: ratio_of_sums(v[..., 0] - v[..., 1], 1 - v[..., 0]))
        values = {f"keep@{k}": _value(kept), f"explore@{k}": _value(found)}
        return {name: value for name, value in values.items() if name in supported}
    values: dict[str, Value] = {}
    for name in supported:
        rate, weight = (keep_rate, ref) if name.startswith("keep") else (exploration_rate, 1 - ref)
        trained = solved[1:]
        pairs = np.stack([ref, trained.mean(0)], 1)
        over_problems = bootstrap_interval(pairs, lambda v, rate=rate: rate(v[..., 0], v[..., 1]))
        # To first order the rate is the mean of these over problems, and so it is for each seed.
        linear = over_problems.estimate + weight * (trained - over_problems.estimate) / weight.mean()
        values[name] = _value(widened_by_seeds(over_problems, [linear], within=range_of(name)))
    return values
