"""One function for each of the paper's figures (Figs. 1–4, App. G.1), from evaluations by label; `experiments.figures`
chooses what is drawn, and Fig. 5 is in `dph.report.plots`."""

import functools
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from dph.report.comparison import RATES, retention
from dph.report.data import EvalRun, MetricValue
from dph.report.plots import (
    Look,
    Series,
    canvas,
    draw_line,
    label_rows,
    legend_below,
    legend_shape,
    looks,
    panel_rows,
    tidy,
)
from experiments.finished import difference, mean_value, values

FAINT = "#DDDDDD"
_FEW_DOMAINS = 3
"""Distributions whose names fit below two panels that stand side by side."""

Labels = Mapping[str, Sequence[EvalRun]]
"""Evaluations by label, the base model's first."""
Domains = Mapping[str, tuple[Labels, str]]
"""Evaluations of each distribution with the name of its split, that of the training task first."""
Points = Sequence[tuple[float, Sequence[EvalRun]]]
"""Evaluations by the value of a setting, in ascending order."""


def gap_figure(domains: Domains, base: str, k: int) -> Figure:
    """Difference to the base model in greedy and pass@k on each domain, with intervals. Metrics stand side by side if
    there are few domains, otherwise one above the other."""
    metrics = ["greedy", f"pass@{k}"]
    trained = list(dict.fromkeys(label for labels, _ in domains.values() for label in labels if label != base))
    look, few = looks([base, *trained], base), len(domains) <= _FEW_DOMAINS
    groups = [row for row in label_rows(trained) for _ in range(1 if few else len(metrics))]
    last = [few or place % len(metrics) == len(metrics) - 1 for place in range(len(groups))]  # the legend is below it
    width = 9.2 if few else max(9.2, 1.35 * len(domains))
    legends = [names if ends else [] for names, ends in zip(groups, last, strict=True)]
    rows = panel_rows(legends, width, 3.5 if few else 2.9)
    drawn: dict[str, list[Axes]] = {}
    for place, (names, row) in enumerate(zip(groups, rows, strict=True)):
        for column, metric in enumerate(metrics if few else metrics[place % len(metrics) :][:1]):
            axes = row.add_subplot(1, len(metrics) if few else 1, column + 1)
            tidy(axes, metric)
            _draw_gaps(axes, domains, base, names, metric, look)
            drawn.setdefault(metric, []).append(axes)
        if last[place]:
            legend_below(row, width)
    for same in drawn.values():  # one scale for a metric, so that the rows can be compared
        low, high = zip(*(axes.get_ylim() for axes in same), strict=True)
        for axes in same:
            axes.set_ylim(min(low), max(high))
    return rows[0].get_figure(root=True)  # type: ignore[return-value]


def _draw_gaps(
    axes: Axes, domains: Domains, base: str, names: Sequence[str], metric: str, look: Mapping[str, Look]
) -> None:
    """The difference of each label to the base model on each domain."""
    for place, label in enumerate(names):
        gaps = [
            difference(labels[label], labels[base], split, metric) if label in labels else MetricValue(np.nan)
            for labels, split in domains.values()
        ]
        x = np.arange(len(domains)) + 0.7 * ((place + 0.5) / len(names) - 0.5)
        _points_with_bars(axes, x, gaps, look[label], label)
    axes.axhline(0, color="#888888", linewidth=1)
    axes.set_xticks(range(len(domains)), list(domains))
    axes.set_ylabel("difference to the base\nmodel (points)", fontsize=10)
    axes.grid(axis="y", color=FAINT, linewidth=0.8)


MODES = ((0.6, -2.0, 0.5), (0.4, 2.0, 0.7))
"""Weight, mean and standard deviation of each mode of the target of Fig. 1 right."""
MODES_TEXT = (
    "Fig. 1 right: the Gaussian that each divergence fits to a bimodal target. JS is bounded, so between "
    "modes that are this far apart it chooses one as reverse KL does: the two curves lie on each other"
)


@functools.cache
def gaussian_fits() -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of the Gaussian q with the smallest divergence from the bimodal p, over a grid."""
    x, p = _target()
    step = x[1] - x[0]
    means, spreads = np.linspace(-3, 3, 241), np.linspace(0.3, 3, 136)
    mu, sigma = (axis.ravel()[:, None] for axis in np.meshgrid(means, spreads))
    log_q, log_p = -((x - mu) ** 2) / (2 * sigma**2) - np.log(sigma * np.sqrt(2 * np.pi)), np.log(p)
    q, log_m = np.exp(log_q), np.logaddexp(log_p, log_q) - np.log(2)
    losses = {
        "reverse KL(q‖p)": (q * (log_q - log_p)).sum(1) * step,
        "forward KL(p‖q)": (p * (log_p - log_q)).sum(1) * step,
        "JS": (p * (log_p - log_m) + q * (log_q - log_m)).sum(1) * step,
    }
    return {name: (float(mu[loss.argmin(), 0]), float(sigma[loss.argmin(), 0])) for name, loss in losses.items()}


def _target() -> tuple[np.ndarray, np.ndarray]:
    x = np.linspace(-8, 8, 641)
    return x, np.sum([weight * _gaussian(x, mean, spread) for weight, mean, spread in MODES], axis=0)


def _gaussian(x: np.ndarray, mean: float, spread: float) -> np.ndarray:
    return np.exp(-((x - mean) ** 2) / (2 * spread**2)) / (spread * np.sqrt(2 * np.pi))


def modes_figure() -> Figure:
    """A bimodal density and the Gaussian that minimises each divergence from it: one mode, or both covered."""
    x, p = _target()
    figure = canvas(5.6, 3.6)
    axes = figure.add_subplot()
    tidy(axes, "what a single Gaussian fits to two modes")
    axes.fill_between(x, p, color=FAINT, label="target")
    styles = (("#D55E00", "-"), ("#0072B2", "-"), ("#222222", ":"))  # JS may lie on reverse KL
    for (name, (mean, spread)), (color, style) in zip(gaussian_fits().items(), styles, strict=True):
        axes.plot(x, _gaussian(x, mean, spread), color=color, linestyle=style, label=name)
    mean, spread = gaussian_fits()["JS"]
    peak = (mean, float(_gaussian(np.array(mean), mean, spread)))
    arrow = {"arrowstyle": "-", "color": "#888888"}
    axes.annotate("JS and reverse KL", peak, (-0.9, peak[1]), fontsize=9, va="center", arrowprops=arrow)
    axes.set_xlim(-5, 5)
    axes.set_yticks([])
    axes.legend(frameon=False, fontsize=9)
    return figure


def greedy_figure(labels: Labels, base: str, split: str, k: int) -> Figure:
    """Greedy accuracy (x) against pass@k (y), one point per method, with both intervals."""
    look = looks(list(labels), base)
    figure = canvas(5.6, 4.3 + legend_shape(list(labels), 5.6)[1])
    axes = figure.add_subplot()
    tidy(axes, f"greedy against pass@{k}, in-domain")
    for label, runs in labels.items():
        x, y = (mean_value(runs, split, metric) for metric in ("greedy", f"pass@{k}"))
        axes.errorbar(
            [100 * x.mean],
            [100 * y.mean],
            _bars([y]),
            _bars([x]),
            fmt=look[label].marker,
            color=look[label].color,
            label=label,
            markersize=7,
            elinewidth=1,
            alpha=0.9,
        )
    axes.set_xlabel("greedy (%)", fontsize=10)
    axes.set_ylabel(f"pass@{k} (%)", fontsize=10)
    axes.grid(color=FAINT, linewidth=0.8)
    legend_below(figure, 5.6)
    return figure


def styles_figure(labels: Labels, base: str, split: str) -> Figure:
    """Share of problems by the number of distinct styles, of all samples (left) and of correct ones (right)."""
    look, groups = looks(list(labels), base), label_rows(list(labels), base)
    samples = labels[base][0].splits[split].samples
    rows = panel_rows(groups, 9.6, 3.5)
    for names, row in zip(groups, rows, strict=True):
        for index, (metric, title) in enumerate(
            (("styles", "all samples"), ("styles_correct", "correct samples only"))
        ):
            axes = row.add_subplot(1, 2, index + 1)
            tidy(axes, title)
            largest = int(max(np.nanmax(values(runs, split, metric)) for runs in labels.values()))
            numbers = range(0 if metric == "styles_correct" else 1, largest + 1)
            for label in names:
                found = values(labels[label], split, metric)
                shares = [float(np.mean(found == number)) for number in numbers]
                draw_line(axes, Series(label, list(numbers), [100 * share for share in shares]), look[label])
            axes.set_xticks(list(numbers))
            axes.set_xlabel(f"distinct styles in {samples} samples", fontsize=10)
            axes.set_ylabel("problems (%)", fontsize=10)
            axes.grid(axis="y", color=FAINT, linewidth=0.8)
        legend_below(row, 9.6)
    return rows[0].get_figure(root=True)  # type: ignore[return-value]


def sweeps_figure(sweeps: Sequence[tuple[str, str, Points]], others: Labels, split: str, k: int) -> Figure:
    """One row per sweep (label, setting, points): the setting against greedy accuracy and pass@k. others: models that
    the setting does not exist for, as horizontal lines: the base model's first, and DAPO's, the limit of β → 0."""
    metrics = ("greedy", f"pass@{k}")
    figure = canvas(9.2, 0.3 + 2.9 * len(sweeps))
    look = Look("#0072B2", "o", "-")
    for row, (label, setting, points) in enumerate(sweeps):
        for column, metric in enumerate(metrics):
            axes = figure.add_subplot(len(sweeps), len(metrics), row * len(metrics) + column + 1)
            tidy(axes, f"{label}: {metric}")
            found = [mean_value(runs, split, metric) for _, runs in points]
            x = [value for value, _ in points]
            scaled = [[100 * getattr(value, part) for value in found] for part in ("mean", "low", "high")]
            draw_line(axes, Series("one setting varied", x, *scaled), look)
            for (name, runs), (color, style) in zip(
                others.items(), (("#6B6B6B", "--"), ("#D55E00", "-.")), strict=False
            ):
                axes.axhline(100 * mean_value(runs, split, metric).mean, color=color, linestyle=style, label=name)
            axes.set_xscale("log")
            axes.set_xticks(x, [f"{value:g}" for value in x])
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_xlabel(setting, fontsize=10)
            axes.set_ylabel(f"{metric} (%)", fontsize=10)
            axes.grid(axis="y", color=FAINT, linewidth=0.8)
    legend_below(figure, 9.2)
    return figure


def keep_figure(labels: Labels, base: str, split: str) -> Figure | None:
    """Keep and exploration rate of every method, and of the base model against itself; None if neither has enough
    problems behind it."""
    look = looks(list(labels), base)
    rates = {label: retention(runs, labels[base][0], split) for label, runs in labels.items()}
    titles = dict(zip(RATES, ("keep rate", "exploration rate"), strict=True))
    drawn = [key for key in RATES if any(key in found for found in rates.values())]
    if not drawn:
        return None
    figure = canvas(4.8 * len(drawn), 0.9 + 0.34 * len(labels))
    for index, key in enumerate(drawn):
        axes = figure.add_subplot(1, len(drawn), index + 1)
        tidy(axes, titles[key])
        for place, label in enumerate(labels):
            if key in rates[label]:
                _points_with_bars(axes, np.array([place]), [rates[label][key]], look[label], label, horizontal=True)
        axes.set_yticks(range(len(labels)), list(labels) if index == 0 else [""] * len(labels))
        axes.invert_yaxis()
        axes.set_xlabel("%", fontsize=10)
        axes.grid(axis="x", color=FAINT, linewidth=0.8)
    return figure


def seeds_figure(labels: Labels, base: str, split: str, k: int) -> Figure:
    """Greedy accuracy and pass@k of every training seed, with the mean over seeds."""
    look = looks(list(labels), base)
    figure = canvas(9.6, 0.9 + 0.34 * len(labels))
    for index, metric in enumerate(("greedy", f"pass@{k}")):
        axes = figure.add_subplot(1, 2, index + 1)
        tidy(axes, f"{metric} by seed (%)")
        for place, (label, runs) in enumerate(labels.items()):
            means = 100 * np.nanmean(values(runs, split, metric), axis=1)
            axes.plot(means, [place] * len(means), look[label].marker, color=look[label].color, alpha=0.6)
            axes.plot([means.mean()], [place], "|", color="#222222", markersize=14)
        axes.set_yticks(range(len(labels)), list(labels) if index == 0 else [""] * len(labels))
        axes.invert_yaxis()
        axes.grid(axis="x", color=FAINT, linewidth=0.8)
    return figure


def _bars(found: Sequence[MetricValue]) -> np.ndarray:
    """Distances from estimates to interval ends in points, as matplotlib takes them; 0 where there is no interval."""
    below = [value.mean - value.low for value in found]
    above = [value.high - value.mean for value in found]
    return 100 * np.nan_to_num(np.maximum(np.array([below, above]), 0.0))


def _points_with_bars(
    axes: Axes, places: np.ndarray, found: Sequence[MetricValue], look: Look, label: str, *, horizontal: bool = False
) -> None:
    means = 100 * np.array([value.mean for value in found])
    x, y = (means, places) if horizontal else (places, means)
    xerr, yerr = (_bars(found), None) if horizontal else (None, _bars(found))
    axes.errorbar(x, y, yerr, xerr, fmt=look.marker, color=look.color, label=label, markersize=6, elinewidth=1.2)
