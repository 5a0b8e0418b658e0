"""A report as one HTML page that stands alone: it loads nothing from elsewhere, and escapes every text from outside.

Text that a model wrote is escaped by the template (`assets/page.html`), or lies inside compressed data that the script
of the page shows as text, never as markup. A content security policy lets only that script run, and forbids loads from
elsewhere. So even a completion that slipped through could do nothing.
"""

import base64
import gzip
import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np
from markupsafe import Markup

from dph.config.files import read_bytes
from dph.errors import counted
from dph.report import plots
from dph.report.comparison import EvaluationTable
from dph.report.data import EvalRun, Split, TrainRun, aligned_rows, column, monitored_metric, read_answers
from dph.report.tables import ReportTable
from dph.report.templates import TEMPLATES, template_text, visible
from dph.runs.samples import MONITOR, Sample, read_kept_samples

MAX_COMPLETIONS = 40_000_000
"""The largest number of characters of completions in one page. A browser holds them all in memory."""
MAX_TIMELINES = 10_000_000
"""The largest number of characters of responses through training in one page."""
_NOT_CURVES = frozenset({"step", "skipped"})


def render(
    title: str,
    data: Mapping[str, Any],
    *,
    tables: Sequence[ReportTable],
    settings: Sequence[tuple[str, str]],
    headline: str = "",
    images: Sequence[tuple[bytes, str]] = (),
) -> str:
    """The whole page as HTML.

    Args:
        title: of the page.
        data: the data that the script of the page shows (`page_data`), as JSON takes it.
        tables: the tables, in their order.
        settings: for each run, a heading and a long text that the page unfolds (`settings_of`).
        headline: the result, in one line.
        images: PNG files, each with its description.
    """
    packed = _compressed(json.dumps(data, ensure_ascii=False, allow_nan=False))
    return TEMPLATES.get_template("page.html").render(
        title=title,
        headline=headline,
        # A hash of the data, so that no text in the page can have been written to match it.
        nonce=hashlib.blake2b(packed.encode(), digest_size=16).hexdigest(),
        tables=tables,
        images=[(Markup(base64.b64encode(png).decode()), description) for png, description in images],
        settings=settings,
        styles=len(data["styles"]),
        training=bool(data["training"]),
        timelines=bool(data.get("timelines")),
        css=Markup(template_text("dph.report", "assets", "report.css")),
        script=Markup(template_text("dph.report", "assets", "report.js")),
        data=Markup(packed),
        library=Markup(_compressed(template_text("plotly", "package_data", "plotly.min.js"))),
    )


def settings_of(runs: Sequence[EvalRun | TrainRun]) -> list[tuple[str, str]]:
    """For each run, its label and path, and the text of its config.toml."""
    settings = []
    for run in runs:
        file = run.path / "config.toml"
        try:
            text = read_bytes(file).decode(errors="replace")
        except OSError:  # it is missing, or is no file
            text = "There is no config.toml."
        settings.append((f"{run.label}: {run.path}", text))
    return settings


def _compressed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(errors="replace"), mtime=0)).decode()


def page_data(comparison: EvaluationTable, trains: Sequence[TrainRun]) -> dict[str, Any]:
    """The data that the script of the page shows, as JSON takes it."""
    labels, summaries = comparison.runs, comparison.splits
    looks = plots.looks([*labels, *(run.label for run in trains)], comparison.base)
    monitored = monitored_metric(trains)
    styles = {
        label: summary.style_shares for label, summary in summaries[comparison.main].items() if summary.style_shares
    }
    colors = plots.style_colors([style for shares in styles.values() for style in shares])
    return {
        "labels": list(labels),
        "looks": {label: asdict(look) for label, look in looks.items()},
        "curves": {split: {label: _curve(s) for label, s in of_split.items()} for split, of_split in summaries.items()},
        "training": [{"label": run.label, "run": run.path.name, "metrics": _metrics(run)} for run in trains],
        "training_metric": f"eval/{monitored}" if monitored else "reward",
        "timelines": timelines(trains, MAX_TIMELINES),
        "styles": {label: dict(shares) for label, shares in styles.items()},
        "style_colors": dict(colors),
        "problems": within(
            {
                split: _problems(split, {label: labels[label] for label in of_split})
                for split, of_split in summaries.items()
            },
            MAX_COMPLETIONS,
        ),
    }


def _curve(summary: Split) -> dict[str, list[float] | list[str]]:
    points = summary.pass_curve
    low, high = ([getattr(point, end) for point in points.values()] for end in ("low", "high"))
    with_interval = not any(math.isnan(value) for value in [*low, *high])
    over = [f", {point.over} problems" if point.over else "" for point in points.values()]
    return {
        **({"over": over} if any(over) else {}),
        "x": [float(k) for k in points],
        "y": [point.mean for point in points.values()],
        "low": low if with_interval else [],
        "high": high if with_interval else [],
    }


def _metrics(run: TrainRun) -> dict[str, tuple[list[float], list[float]]]:
    """The steps and the values of every metric of a training run, to five digits."""
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for row in run.metrics:
        for name, value in row.items():
            if name in _NOT_CURVES or not isinstance(value, int | float) or not math.isfinite(value):
                continue
            steps, values = curves.setdefault(name, ([], []))
            steps.append(row["step"])
            values.append(float(f"{value:.5g}"))
    return curves


def _problems(split: str, labels: Mapping[str, Sequence[EvalRun]]) -> list[dict[str, Any]]:
    """All problems of a split, with completions of the first run of each label. The problems on which runs differ most
    come first."""
    runs = [group[0] for group in labels.values()]
    rows = aligned_rows(runs, split)
    rates = column(rows, lambda row: row["correct"] / max(1, row["samples"]))
    answers = [read_answers(run, split) for run in runs]
    problems = []
    for i in np.argsort(rates.min(axis=0) - rates.max(axis=0), kind="stable"):
        row = rows[0][i]
        answer = row.get("answer")
        sides = {}
        for label, of_run, completions in zip(labels, rows, answers, strict=True):
            drawn = [[visible(text), *facts] for text, *facts in completions.get(row["id"], [])]
            sides[label] = {name: of_run[i][name] for name in ("correct", "samples")} | {"answers": drawn, "more": 0}
        problems.append(
            {
                "id": visible(row["id"]),
                "kind": visible(row["kind"] or ""),
                "prompt": visible(row.get("prompt") or ""),
                "answer": None if answer is None else visible(answer),
                "runs": sides,
            }
        )
    return problems


def within(problems: dict[str, list[dict[str, Any]]], longest: int) -> dict[str, list[dict[str, Any]]]:
    """The problems with at most `longest` characters of completions. Every problem and label keeps its first n
    completions. n is the largest number that fits, but at least one. "more" counts the completions that are left
    out."""
    sides = [side for of_split in problems.values() for problem in of_split for side in problem["runs"].values()]
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
    """The monitored problems of each training run that kept responses. The problems whose verdicts change most come
    first.

    The runs share `longest` characters of responses equally. Each run keeps its first problems, as many as fit into its
    share but at least one. "left_out" counts the others.
    """
    kept = {run.path: read_kept_samples(run.path, MONITOR) for run in trains}
    runs = [run for run in trains if kept[run.path]]
    of_runs = []
    for run in runs:
        problems: dict[str, list[Sample]] = {}
        for sample in kept[run.path]:
            problems.setdefault(sample.id, []).append(sample)
        ordered = sorted(map(_timeline, problems.values()), key=lambda problem: -problem["changes"])
        totals = np.cumsum([sum(len(a[0]) for *_, answers in problem["spans"] for a in answers) for problem in ordered])
        fit = max(1, int(np.searchsorted(totals, longest // len(runs), side="right")))
        of_runs.append(
            {"label": run.label, "run": run.path.name, "problems": ordered[:fit], "left_out": len(ordered[fit:])}
        )
    return of_runs


def _timeline(samples: Sequence[Sample]) -> dict[str, Any]:
    """One problem through training.

    Consecutive measured steps with the same responses form a span: [first step, last step, answers]. "changes" counts
    how often the verdict of the first response, which is the greedy one, changes.
    """
    steps: dict[int, list[Sample]] = {}
    for sample in samples:
        steps.setdefault(sample.step, []).append(sample)
    spans: list[list[Any]] = []
    for step, measured in steps.items():
        answers = [[visible(s.response), s.outcome, counted(s.tokens, "token"), 0, s.sample < 0] for s in measured]
        if spans and spans[-1][2] == answers:
            spans[-1][1] = step
        else:
            spans.append([step, step, answers])
    verdicts = [measured[0].outcome for measured in steps.values()]
    return {
        "id": visible(samples[0].id),
        "prompt": visible(samples[0].prompt),
        "changes": sum(verdict != following for verdict, following in pairwise(verdicts)),
        "spans": spans,
    }
