"""The figures of a report: pass@k, training curves and solution styles of the labels."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from dph.report import plots
from dph.report.comparison import Comparison
from dph.report.data import Split, TrainRun

_CURVES = (
    *("reward", "pass_rate", "informative", "eval/greedy", "eval/pass@1", "eval/pass@8", "eval/styles"),
    *("coverage/lost", "coverage/falling", "coverage/solved_hard"),
    *("eval/styles_correct", "exp/entropy", "response_length", "grad_norm", "pef/log_ratio_q50", "pef/forgotten"),
)


def figures(comparison: Comparison, trains: Sequence[TrainRun]) -> dict[str, tuple[Figure, str]]:
    """Figures by file name, each with its description; the first one is an overview."""
    base, main = comparison.base, comparison.main
    summaries = comparison.splits[main]
    curves = _pass_series(summaries)
    shares = {label: summary.style_shares for label, summary in summaries.items() if summary.style_shares}
    monitored = monitored_metric(trains)
    training = training_series(trains, f"eval/{monitored}") if monitored else []
    names = ", ".join(summaries)
    overview = plots.overview_figure(curves, training, shares, base=base, training_label=monitored)
    parts = {"pass@k": curves, f"{monitored} through training": training, "solution styles": shares}
    figures = {"overview": (overview, f"{', '.join(part for part in parts if parts[part])} of {names}")}
    figures["pass_at_k"] = (plots.pass_curve_figure(curves, base=base), f"pass@k of {names} on {main}")
    if training:
        figure = plots.training_figure(training, ylabel=monitored, base=base)
        figures["training"] = (figure, f"{monitored} through training of {names}")
    if shares:
        figures["styles"] = (plots.style_figure(shares), f"shares of solution styles of {names} on {main}")
    for split, found in comparison.elsewhere.items():
        figure = plots.pass_curve_figure(_pass_series(found), base=base, title=split)
        figures[f"pass_at_k_{_file_name(split)}"] = (figure, f"pass@k of {', '.join(found)} on {split}")
    metrics = {name: training_series(trains, name) for name in _CURVES}
    if any(metrics.values()):
        grid = plots.metrics_figure({name: series for name, series in metrics.items() if series})
        figures["metrics"] = (grid, f"metrics through training of {', '.join(dict.fromkeys(t.label for t in trains))}")
    return figures


def _file_name(split: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in split)


def _pass_series(summaries: Mapping[str, Split]) -> list[plots.Series]:
    series = []
    for label, summary in summaries.items():
        points = summary.pass_curve
        y, low, high = ([getattr(point, part) for point in points.values()] for part in ("mean", "low", "high"))
        series.append(plots.Series(label, list(points), y, low, high))
    return series


def monitored_metric(trains: Sequence[TrainRun]) -> str:
    """pass@8 where it was measured through training, else the largest pass@k below it; "" where there is none."""
    found = {name.removeprefix("eval/") for run in trains for row in run.metrics for name in row}
    return next((f"pass@{k}" for k in (8, 4, 2, 1) if f"pass@{k}" in found), "")


def training_series(trains: Sequence[TrainRun], name: str) -> list[plots.Series]:
    """A metric through training for each label: over repeated runs the mean, between the lowest and the highest."""
    groups: dict[str, list[dict[float, float]]] = {}
    for run in trains:
        points = {row["step"]: float(row[name]) for row in run.metrics if row.get(name) is not None}
        if points:
            groups.setdefault(run.label, []).append(points)
    series = []
    for label, runs in groups.items():
        steps = sorted(set.intersection(*map(set, runs)))
        values = np.array([[points[step] for step in steps] for points in runs])
        band = (values.min(axis=0).tolist(), values.max(axis=0).tolist()) if len(runs) > 1 else ()
        series.append(plots.Series(label, steps, values.mean(axis=0).tolist(), *band))
    return series
