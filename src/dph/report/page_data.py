"""What the report's page shows through its script: curves, training runs, styles and sample completions."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from dph.report import plots
from dph.report.comparison import Comparison
from dph.report.data import Answer, EvalRun, Split, TrainRun, aligned_rows, column, read_answers
from dph.report.figures import monitored_metric
from dph.report.page import visible
from dph.runs.samples import MONITOR, Sample, read_samples

_LONGEST = 40_000_000
"""Characters of completions in one page; a browser holds them all in memory."""
_LONGEST_TIMELINES = 10_000_000
"""Characters of responses through training in one page."""
_NOT_CURVES = frozenset({"step", "skipped"})


def page_data(comparison: Comparison, trains: Sequence[TrainRun], further: Sequence[TrainRun]) -> dict[str, Any]:
    """The data of the page's script (JSON). `further` training runs are hidden in the training chart at first."""
    labels, summaries = comparison.runs, comparison.splits
    shown = [*labels, *(run.label for run in trains)]
    names = [*shown, *(run.label for run in further)]
    looks = plots.looks(names, comparison.base)
    monitored = monitored_metric(trains)
    styles = {
        label: summary.style_shares for label, summary in summaries[comparison.main].items() if summary.style_shares
    }
    colors = plots.style_colors([style for shares in styles.values() for style in shares])
    return {
        "labels": list(labels),
        "looks": {
            label: {"color": look.color, "marker": look.marker, "linestyle": look.linestyle}
            for label, look in looks.items()
        },
        "curves": {split: {label: _curve(s) for label, s in found.items()} for split, found in summaries.items()},
        "training": [
            {"label": run.label, "run": run.path.name, "metrics": _metrics(run)} for run in [*trains, *further]
        ],
        "training_hidden": sorted({run.label for run in further}.difference(shown)),
        "training_metric": f"eval/{monitored}" if monitored else "reward",
        "timelines": timelines(trains, _LONGEST_TIMELINES),
        "styles": {label: dict(shares) for label, shares in styles.items()},
        "style_colors": dict(colors),
        "problems": within(
            {split: _problems(split, {label: labels[label] for label in found}) for split, found in summaries.items()},
            _LONGEST,
        ),
    }


def _curve(summary: Split) -> dict[str, list[float] | list[str]]:
    points = summary.pass_curve
    low, high = ([getattr(point, part) for point in points.values()] for part in ("low", "high"))
    known = not any(math.isnan(value) for value in [*low, *high])
    over = [f", {point.over} problems" if point.over else "" for point in points.values()]
    return {
        **({"over": over} if any(over) else {}),
        "x": [float(k) for k in points],
        "y": [point.mean for point in points.values()],
        "low": low if known else [],
        "high": high if known else [],
    }


def _metrics(run: TrainRun) -> dict[str, tuple[list[float], list[float]]]:
    """Steps and values of every metric of a training run, to five digits."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for row in run.metrics:
        for name, value in row.items():
            if name in _NOT_CURVES or not isinstance(value, int | float) or not math.isfinite(value):
                continue
            steps, values = found.setdefault(name, ([], []))
            steps.append(row["step"])
            values.append(float(f"{value:.5g}"))
    return found


def _problems(split: str, labels: Mapping[str, Sequence[EvalRun]]) -> list[dict[str, Any]]:
    """All problems of a split with the completions of the first run of each label; those on which the runs differ most
    come first."""
    runs = [group[0] for group in labels.values()]
    rows = aligned_rows(runs, split)
    rates = column(rows, lambda row: row["correct"] / max(1, row["samples"]))
    answers = [read_answers(run, split) for run in runs]
    found = []
    for i in np.argsort(rates.min(axis=0) - rates.max(axis=0), kind="stable"):
        row = rows[0][i]
        answer = row.get("answer")
        found.append(
            {
                "id": visible(row["id"]),
                "kind": visible(row["kind"] or ""),
                "prompt": visible(row.get("prompt") or ""),
                "answer": None if answer is None else visible(answer),
                "runs": {
                    label: _side(run_rows[i], given.get(row["id"], []))
                    for label, run_rows, given in zip(labels, rows, answers, strict=True)
                },
            }
        )
    return found


def _side(row: Mapping[str, Any], given: Sequence[Answer]) -> dict[str, Any]:
    answers = [[visible(a.text), a.outcome, a.style, a.count, a.greedy] for a in given]
    return {"correct": row["correct"], "samples": row["samples"], "answers": answers, "more": 0}


def within(problems: dict[str, list[dict[str, Any]]], longest: int) -> dict[str, list[dict[str, Any]]]:
    """The problems with at most `longest` characters of completions.

    Every problem and label keeps its first n completions, the greedy one and the most frequent ones, with the largest
    n that fits but at least one; "more" counts those left out.
    """
    sides = [side for found in problems.values() for problem in found for side in problem["runs"].values()]
    lengths: Counter[int] = Counter()
    for side in sides:
        for rank, answer in enumerate(side["answers"]):
            lengths[rank] += len(answer[0])
    totals = np.cumsum([lengths[rank] for rank in range(len(lengths))])
    kept = max(1, int(np.searchsorted(totals, longest, side="right")))
    for side in sides:
        side["more"] = max(0, len(side["answers"]) - kept)
        del side["answers"][kept:]
    return problems


def timelines(trains: Sequence[TrainRun], longest: int) -> list[dict[str, Any]]:
    """The monitored problems of each training run that kept responses, those whose verdicts change most first.

    A run's problems have at most its share of `longest` characters of responses; "left_out" counts those that do not
    fit.
    """
    kept = {run.path: read_samples(run.path, MONITOR) for run in trains}
    runs = [run for run in trains if kept[run.path]]
    found = []
    for run in runs:
        problems: dict[str, list[Sample]] = {}
        for sample in kept[run.path]:
            problems.setdefault(sample.id, []).append(sample)
        every = sorted(map(_timeline, problems.values()), key=lambda problem: -problem["changes"])
        totals = np.cumsum([sum(len(a[0]) for *_, answers in problem["spans"] for a in answers) for problem in every])
        fit = max(1, int(np.searchsorted(totals, longest // len(runs), side="right")))
        found.append({"label": run.label, "run": run.path.name, "problems": every[:fit], "left_out": len(every[fit:])})
    return found


def _timeline(samples: Sequence[Sample]) -> dict[str, Any]:
    """One problem through training: spans of consecutive measured steps with the same responses, each [first step, last
    step, answers], and how often the verdict of the first response (the greedy one) changes."""
    steps: dict[int, list[Sample]] = {}
    for sample in samples:
        steps.setdefault(sample.step, []).append(sample)
    spans: list[list[Any]] = []
    for step, own in steps.items():
        answers = [[visible(s.response), s.outcome, f"{s.tokens} tokens", 0, s.sample < 0] for s in own]
        if spans and spans[-1][2] == answers:
            spans[-1][1] = step
        else:
            spans.append([step, step, answers])
    verdicts = [own[0].outcome for own in steps.values()]
    return {
        "id": visible(samples[0].id),
        "prompt": visible(samples[0].prompt),
        "changes": sum(one != following for one, following in pairwise(verdicts)),
        "spans": spans,
    }
