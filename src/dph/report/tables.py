"""The numbers of a report: metrics of each label with 95 % intervals, keep and exploration rates, and plain tables."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dph.metrics.bootstrap import Interval, bootstrap_interval, cluster_bootstrap
from dph.metrics.passk import exploration_rate, keep_rate, pass_at_k, ratio_of_sums
from dph.report.data import EvalRun, Split, Value, aligned_rows, column

KEEP_K = 8
"""Samples within which a problem counts as solved for keep and exploration rates (paper §6, Fig. 4)."""

Rows = Sequence[Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Cell:
    """A table's entry: text, and its interval where it has one."""

    text: str
    interval: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A titled table; the first entry of a row is its label."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


def summarise_label(runs: Sequence[EvalRun], split: str) -> Split:
    """A split's metrics for one label: those of its run, or over several runs (seeds) the mean over runs and problems
    with the bootstrap over both together.

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
            metrics[name] = _over_seeds(column(rows, lambda row, name=name: float(row[name])))
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


def _over_seeds(values: np.ndarray) -> Value:
    return _value(cluster_bootstrap(values))


def _value(interval: Interval) -> Value:
    return Value(interval.estimate, interval.low, interval.high)


def _pass(rows: Rows, k: int) -> Value:
    samples, correct = _counts(rows)
    enough = (samples >= k).all(axis=0)
    return _over_seeds(pass_at_k(samples[:, enough], correct[:, enough], k))


def _counts(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    return column(rows, lambda row: row["samples"]), column(rows, lambda row: row["correct"])


def retention(runs: Sequence[EvalRun], base: EvalRun, split: str, k: int = KEEP_K) -> dict[str, Value]:
    """Keep and exploration rate of one label's runs against the base run, "keep@k" and "explore@k", from unbiased
    pass@k estimates with intervals over problems (and seeds).

    Where the only run *is* the base, the result is the noise floor: the base against further samples of itself. Two
    disjoint sets of k samples both solve a problem with probability 2·pass@k − pass@2k, which is estimated from the
    same counts. Problems with fewer than k judged samples (2k for the floor) are left out; empty where none is
    left. Raises UserError when the runs were evaluated on different problems.
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
    if floor:
        both = 2 * ref - pass_at_k(samples[0, enough], correct[0, enough], 2 * k)
        pairs = np.stack([ref, both], 1)
        kept = bootstrap_interval(pairs, lambda v: ratio_of_sums(v[..., 1], v[..., 0]))
        found = bootstrap_interval(pairs, lambda v: ratio_of_sums(v[..., 0] - v[..., 1], 1 - v[..., 0]))
        return {f"keep@{k}": _value(kept), f"explore@{k}": _value(found)}
    rates = {f"keep@{k}": keep_rate, f"explore@{k}": exploration_rate}
    values: dict[str, Value] = {}
    for name, rate in rates.items():
        rng = np.random.default_rng(0)

        def statistic(v: np.ndarray, rate: Any = rate, rng: np.random.Generator = rng) -> np.ndarray:
            trained = np.moveaxis(v[..., 1:], -1, 0)  # [seeds, resamples, problems]; the bootstrap redraws problems
            seeds = rng.integers(len(trained), size=(len(v), len(trained)))
            return rate(v[..., 0], np.take_along_axis(trained, seeds.T[:, :, None], 0).mean(0))

        interval = bootstrap_interval(solved.T, statistic)
        values[name] = Value(float(rate(ref, solved[1:].mean(axis=0))), interval.low, interval.high)
    return values


def main_table(
    split: str,
    summaries: Mapping[str, Split],
    kept: Mapping[str, Mapping[str, Value]],
    elsewhere: Mapping[str, Mapping[str, Split]],
    note: str = "",
) -> Table:
    """One row a label: greedy, pass@k, styles, keep and exploration rate on a split, greedy on the other splits.

    elsewhere[other split][label] holds the summaries of the other splits.
    """
    known = {name for summary in summaries.values() for name in summary.metrics}
    passes = sorted(int(name.removeprefix("pass@")) for name in known if name.startswith("pass@"))
    # The curve has every power of two; a table of all of them hides the point.
    shown = [k for k in passes if k in (1, 8, 32) or k == passes[-1] < 8]
    names = [name for name in ("greedy", *(f"pass@{k}" for k in shown), "styles", "styles_correct") if name in known]
    rates = list(dict.fromkeys(name for values in kept.values() for name in values))
    rows = []
    for label, summary in summaries.items():
        row = [Cell(label), *(cell(name, summary.metrics.get(name)) for name in names)]
        row += [cell(name, kept.get(label, {}).get(name)) for name in rates]
        row += [
            cell("greedy", part[label].metrics.get("greedy") if label in part else None) for part in elsewhere.values()
        ]
        rows.append(row)
    titles = {"styles": "styles", "styles_correct": "styles (correct)"}
    columns = ["", *(titles.get(name, name) for name in [*names, *rates]), *(f"{other}: greedy" for other in elsewhere)]
    sizes = {(summary.problems, summary.samples) for summary in summaries.values()}
    size = ", ".join(f"{problems} problems, {samples} samples each" for problems, samples in sorted(sizes))
    return Table(f"Split {split} ({size})", columns, rows, note)


def kind_table(split: str, summaries: Mapping[str, Split]) -> Table | None:
    """Greedy accuracy and pass@1 by kind of problem, a row for each kind; None where there are no kinds."""
    kinds = sorted({kind for summary in summaries.values() for kind in summary.by_kind})
    if len(kinds) < 2:
        return None
    columns = ["", "problems", *(f"{label}: {name}" for name in ("greedy", "pass@1") for label in summaries)]
    rows = []
    for kind in kinds:
        values = [summary.by_kind.get(kind, {}) for summary in summaries.values()]
        count = next(int(value["problems"].mean) for value in values if "problems" in value)
        parts = [cell(name, value.get(name)) for name in ("greedy", "pass@1") for value in values]
        rows.append([Cell(kind or "(none)"), Cell(str(count)), *parts])
    return Table(f"Split {split} by kind of problem", columns, rows)


DIVERSITY = {
    "distinct_sql": "distinct SQL",
    "distinct_sql_correct": "distinct SQL (correct)",
    "distinct_plans": "distinct plans",
    "distinct_plans_correct": "distinct plans (correct)",
    "distinct_answers": "distinct answers",
    "distinct_answers_correct": "distinct answers (correct)",
    "ngram_overlap": "4-gram overlap",
    "ngram_overlap_correct": "4-gram overlap (correct)",
    "pass_area": "area under pass@k",
    "token_entropy": "entropy a token",
}
"""Column titles of the measures of diversity that `dph eval` reports."""
DIVERSITY_NOTE = (
    "Counts of distinct things among 32 samples of a problem; overlap of the 4-grams of two responses and the area "
    "under pass@k over log k in percent; entropy in nats. Fewer distinct answers is no loss where only one is right."
)


def diversity_table(split: str, summaries: Mapping[str, Split]) -> Table | None:
    """How varied the samples are, a row a label; None where no evaluation measured it."""
    names = [name for name in DIVERSITY if any(name in summary.metrics for summary in summaries.values())]
    if not names:
        return None
    rows = [
        [Cell(label), *(cell(name, summary.metrics.get(name)) for name in names)]
        for label, summary in summaries.items()
    ]
    return Table(f"Split {split}: diversity of the samples", ["", *map(DIVERSITY.get, names)], rows, DIVERSITY_NOTE)  # type: ignore[list-item]


def cell(name: str, value: Value | None) -> Cell:
    """A metric as text: counts of styles and the like as they are, entropies in nats, everything else in percent."""
    if value is None or math.isnan(value.mean):
        return Cell("–")
    counts = name.startswith(("styles", "distinct"))
    scale, digits = (1, 2) if counts else (1, 3) if name == "token_entropy" else (100, 1)
    interval = "" if math.isnan(value.low) else f"{scale * value.low:.{digits}f}–{scale * value.high:.{digits}f}"
    return Cell(f"{scale * value.mean:.{digits}f}", interval)


def transposed(table: Table) -> Table:
    """The table with rows and columns exchanged: a few labels side by side fit a terminal where many metrics do not."""
    heads = [row[0].text for row in table.rows]
    rows = [[Cell(name), *(row[index] for row in table.rows)] for index, name in enumerate(table.columns) if index > 0]
    return Table(table.title, ["", *heads], rows, table.note)


def to_markdown(table: Table) -> str:
    """The table in GitHub's Markdown, intervals in parentheses."""

    def line(entries: Sequence[str]) -> str:
        return "| " + " | ".join(entry.replace("|", "\\|").replace("\n", " ") for entry in entries) + " |"

    body = [
        line([entry.text + (f" ({entry.interval})" if entry.interval else "") for entry in row]) for row in table.rows
    ]
    rule = line(["---", *("---:" for _ in table.columns[1:])])
    parts = [f"**{table.title}**", "\n".join([line(table.columns), rule, *body]), table.note]
    return "\n\n".join(part for part in parts if part) + "\n"
