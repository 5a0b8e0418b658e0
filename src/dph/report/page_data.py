"""What the report's page shows through its script: curves, training runs, styles and sample completions."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dph.report import plots
from dph.report.comparison import Comparison
from dph.report.data import Answer, EvalRun, Split, TrainRun, aligned_rows, column, read_answers
from dph.report.figures import monitored_metric
from dph.report.page import visible

_BROWSED, _BROWSED_ELSEWHERE = 60, 12
"""Problems of the main split and of each other split whose completions can be browsed."""
_ANSWERS = 6
"""Distinct completions shown of one problem and label."""
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
        "styles": {label: dict(shares) for label, shares in styles.items()},
        "style_colors": dict(colors),
        "problems": {
            split: _problems(split, labels, _BROWSED if split == comparison.main else _BROWSED_ELSEWHERE)
            for split, found in summaries.items()
            if len(found) == len(labels)
        },
    }


def _curve(summary: Split) -> dict[str, list[float]]:
    points = summary.pass_curve
    low, high = ([getattr(point, part) for point in points.values()] for part in ("low", "high"))
    known = not any(math.isnan(value) for value in [*low, *high])
    return {
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


def _problems(split: str, labels: Mapping[str, Sequence[EvalRun]], count: int) -> list[dict[str, Any]]:
    """Problems with completions of the first run of each label: half of them those on which the runs differ most, the
    others evenly spread."""
    runs = [group[0] for group in labels.values()]
    rows = aligned_rows(runs, split)
    rates = column(rows, lambda row: row["correct"] / max(1, row["samples"]))
    differ = np.argsort(rates.min(axis=0) - rates.max(axis=0), kind="stable")
    chosen = [int(i) for i in differ[: count // 2]]
    rest = [i for i in range(rates.shape[1]) if i not in chosen]
    spread = min(len(rest), count - len(chosen))
    chosen += [rest[i * len(rest) // spread] for i in range(spread)]
    ids = [rows[0][i]["id"] for i in chosen]
    answers = [read_answers(run, split, ids) for run in runs]
    found = []
    for i, name in zip(chosen, ids, strict=True):
        row = rows[0][i]
        answer = row.get("answer")
        found.append(
            {
                "id": visible(name),
                "kind": visible(row["kind"] or ""),
                "prompt": visible(row.get("prompt") or ""),
                "answer": None if answer is None else visible(answer),
                "runs": {
                    label: _side(run_rows[i], given.get(name, []))
                    for label, run_rows, given in zip(labels, rows, answers, strict=True)
                },
            }
        )
    return found


def _side(row: Mapping[str, Any], given: Sequence[Answer]) -> dict[str, Any]:
    shown = [[visible(a.text), a.outcome, a.style, a.count, a.greedy] for a in given[:_ANSWERS]]
    return {
        "correct": row["correct"],
        "samples": row["samples"],
        "answers": shown,
        "more": max(0, len(given) - _ANSWERS),
    }
