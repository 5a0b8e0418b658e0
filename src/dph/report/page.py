"""What the report's page shows through its script: curves, training runs, styles and sample completions."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dph.report import html, plots
from dph.report.data import Answer, EvalRun, Split, TrainRun, aligned_rows, column, read_answers

_BROWSED = 60
_BROWSED_ELSEWHERE = 12
_ANSWERS = 6
_NOT_CURVES = frozenset({"step", "skipped"})


def page_data(
    main: str,
    labels: Mapping[str, Sequence[EvalRun]],
    summaries: Mapping[str, Mapping[str, Split]],
    trains: Sequence[TrainRun],
    further: Sequence[TrainRun],
    base: str | None,
    monitored: str,
) -> dict[str, Any]:
    """The data of the page's script (JSON).

    summaries[split][label], the main split first; `further` training runs are hidden in the training chart at first;
    `monitored` names the metric that it opens with.
    """
    shown = [*labels, *(run.label for run in trains)]
    names = [*shown, *(run.label for run in further)]
    looks = plots.looks(names, base)
    styles = {label: summary.style_shares for label, summary in summaries[main].items() if summary.style_shares}
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
        "training_metric": monitored,
        "styles": {label: dict(shares) for label, shares in styles.items()},
        "style_colors": dict(colors),
        "problems": {
            split: _problems(split, labels, _BROWSED if split == main else _BROWSED_ELSEWHERE)
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
    """Problems with completions of the first run of each label: half are those on which the runs differ most, the
    others spread evenly."""
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
                "id": html.visible(name),
                "kind": html.visible(row["kind"] or ""),
                "prompt": html.visible(row.get("prompt") or ""),
                "answer": None if answer is None else html.visible(answer),
                "runs": {
                    label: _side(run_rows[i], given.get(name, []))
                    for label, run_rows, given in zip(labels, rows, answers, strict=True)
                },
            }
        )
    return found


def _side(row: Mapping[str, Any], given: Sequence[Answer]) -> dict[str, Any]:
    shown = [[html.visible(a.text), a.outcome, a.style, a.count, a.greedy] for a in given[:_ANSWERS]]
    return {
        "correct": row["correct"],
        "samples": row["samples"],
        "answers": shown,
        "more": max(0, len(given) - _ANSWERS),
    }


def charts(data: Mapping[str, Any]) -> str:
    """HTML of the charts that the script draws."""
    parts = [
        "<h2>Pass@k</h2>",
        '<div class=controls><label>Problems <select id="pass-split"></select></label></div>',
        '<div class=chart id="pass-chart"></div>',
    ]
    if data["styles"]:
        height = 8 + 2 * len(data["styles"])
        parts.append(
            '<h2>Solution styles of all samples</h2><div class=chart id="styles-chart" '
            f'style="height:{height}rem"></div>'
        )
    return "\n".join(parts)


def training_chart() -> str:
    """HTML of the training chart."""
    return (
        "<h2>Training</h2><div class=controls><label>Metric <select id=training-metric></select></label>"
        "<label><input type=checkbox id=training-each> every run by itself</label></div>"
        '<div class=chart id="training-chart"></div>'
        "<p class=soft>Runs with one label are shown as their mean between the lowest and the highest. Drag to zoom, "
        "double-click to return, click a name to hide or show it.</p>"
    )


def browser() -> str:
    """HTML of the browser of completions."""
    orders = (
        ("", "as listed: differing most, then spread evenly"),
        ("right", "where the right one gains most"),
        ("left", "where the left one gains most"),
    )
    options = "".join(f'<option value="{value}">{text}</option>' for value, text in orders)
    return (
        "<h2>Completions</h2><div class=controls>"
        "<label>Problems <select id=browse-split></select></label>"
        "<label>Left <select id=left></select></label><label>Right <select id=right></select></label>"
        f"<label>Order <select id=order>{options}</select></label>"
        '<label>Search <input id=search type=search placeholder="id, kind or prompt"></label></div>'
        "<div class=controls><button id=previous>Previous</button><button id=next>Next</button>"
        "<label><select id=problem aria-label=Problem></select></label><span id=count class=soft></span></div>"
        "<div id=prompt></div><div id=sides class=runs></div>"
        "<p class=soft>Equal completions are counted together; the greedy one comes first. Of repeated runs the first "
        "is shown.</p>"
    )
