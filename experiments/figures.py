"""The paper's figures from the runs of a grid (Figs. 1–5, App. G.1)."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from dph.report.comparison import KEEP_K, RATES, retention
from dph.report.data import EvalRun, Value
from dph.report.plots import Look, Series, canvas, draw_line, looks, tidy, training_series
from experiments.finished import (
    DIFFERENCES,
    DOMAINS,
    IN_DOMAIN,
    INTERVALS,
    Results,
    difference,
    mean_value,
    values,
)
from experiments.grid import Base, Sweep

_FAINT = "#DDDDDD"
_LARGEST_K = 32


def figures(results: Results) -> dict[str, tuple[Figure, str]]:
    """All figures for which the runs have finished, by file name, each with a description."""
    base = results.first_base
    if base is None or not results.split(IN_DOMAIN) or not results.of_base(base.name):
        return {}
    found = {
        "fig1_gap": (gap_figure(results, base), f"Fig. 1 left: gap to the base model by distribution; {DIFFERENCES}"),
        "fig1_modes": (modes_figure(), "Fig. 1 right: the Gaussian that each divergence fits to a bimodal target"),
        "greedy": (greedy_figure(results, base), f"Greedy accuracy against pass@k; {INTERVALS}"),
        "figG_seeds": (seeds_figure(results, base), "App. G.1: every training seed"),
    }
    kept = keep_figure(results, base)
    if kept is not None:
        found["fig4_keep"] = (kept, f"Fig. 4: keep and exploration rate at {KEEP_K} samples; {INTERVALS}")
    if not np.isnan(values([results.bases[base.name]], results.split(IN_DOMAIN), "styles")).all():
        found["fig2_styles"] = (styles_figure(results, base), "Fig. 2 left: solution styles in 32 samples of a problem")
    sweeps = [sweep for sweep in results.choice.grid.sweeps.values() if _points(results, sweep)]
    if sweeps:
        found["fig3_sweeps"] = (
            sweeps_figure(results, base, sweeps),
            f"Fig. 3: one setting against greedy and pass@k; {INTERVALS}",
        )
    strengths = [sweep for sweep in sweeps if sweep.setting.startswith("loss.")]
    if strengths:
        description = "What each divergence allows at its strengths: mean accuracy of samples against pass@k"
        found["frontier"] = (frontier_figure(results, base, strengths), description)
    curves = _training(results)
    if curves:
        found["fig5_training"] = (training_figure(curves), "Fig. 5: pass@8 through training, mean and range over seeds")
    return dict(sorted(found.items()))


def _labels(results: Results, base: Base) -> dict[str, Sequence[EvalRun]]:
    """Evaluations by label, the base model first."""
    trained = {results.arm(name).label: runs for name, runs in results.of_base(base.name).items()}
    return {base.label: [results.bases[base.name]], **trained}


def _k(results: Results, base: Base) -> int:
    """The k of the figures: 32, or the largest that half of the samples allow."""
    split = results.bases[base.name].splits[results.split(IN_DOMAIN)]
    allowed = [k for k in split.pass_curve if k <= min(_LARGEST_K, max(1, split.samples // 2))]
    return max(allowed)


def gap_figure(results: Results, base: Base) -> Figure:
    """Difference to the base model in greedy and pass@k on each domain, with intervals."""
    domains = {domain: results.split(domain) for domain in DOMAINS}
    domains = {domain: split for domain, split in domains.items() if split}
    metrics = ["greedy", f"pass@{_k(results, base)}"]
    labels = _labels(results, base)
    look = looks(list(labels), base.label)
    figure = canvas(4.6 * len(metrics), 3.9)
    for index, metric in enumerate(metrics):
        axes = figure.add_subplot(1, len(metrics), index + 1)
        tidy(axes, metric)
        trained = {label: runs for label, runs in labels.items() if label != base.label}
        for place, (label, runs) in enumerate(trained.items()):
            gaps = [difference(runs, labels[base.label], split, metric) for split in domains.values()]
            x = np.arange(len(domains)) + 0.7 * ((place + 0.5) / len(trained) - 0.5)
            _points_with_bars(axes, x, gaps, look[label], label)
        axes.axhline(0, color="#888888", linewidth=1)
        axes.set_xticks(range(len(domains)), list(domains))
        axes.set_ylabel("difference to the base model (points)", fontsize=10)
        axes.grid(axis="y", color=_FAINT, linewidth=0.8)
    _shared_legend(figure)
    return figure


MODES = ((0.6, -2.0, 0.5), (0.4, 2.0, 0.7))
"""Weight, mean and standard deviation of each mode of the target of Fig. 1 right."""


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
    axes.fill_between(x, p, color=_FAINT, label="target")
    styles = (("#D55E00", "-"), ("#0072B2", "-"), ("#222222", ":"))  # JS may lie on reverse KL
    for (name, (mean, spread)), (color, style) in zip(gaussian_fits().items(), styles, strict=True):
        axes.plot(x, _gaussian(x, mean, spread), color=color, linestyle=style, label=name)
    axes.set_xlim(-5, 5)
    axes.set_yticks([])
    axes.legend(frameon=False, fontsize=9)
    return figure


def greedy_figure(results: Results, base: Base) -> Figure:
    """Greedy accuracy (x) against pass@k (y), one point per method, with both intervals."""
    split, k = results.split(IN_DOMAIN), _k(results, base)
    labels = _labels(results, base)
    look = looks(list(labels), base.label)
    figure = canvas(5.6, 4.6)
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
    axes.grid(color=_FAINT, linewidth=0.8)
    _shared_legend(figure)
    return figure


def styles_figure(results: Results, base: Base) -> Figure:
    """Share of problems by the number of distinct styles, of all samples (left) and of correct ones (right)."""
    split, labels = results.split(IN_DOMAIN), _labels(results, base)
    look = looks(list(labels), base.label)
    figure = canvas(9.6, 3.9)
    for index, (metric, title) in enumerate((("styles", "all samples"), ("styles_correct", "correct samples only"))):
        axes = figure.add_subplot(1, 2, index + 1)
        tidy(axes, title)
        largest = int(max(np.nanmax(values(runs, split, metric)) for runs in labels.values()))
        numbers = range(0 if metric == "styles_correct" else 1, largest + 1)
        for label, runs in labels.items():
            found = values(runs, split, metric)
            shares = [float(np.mean(found == number)) for number in numbers]
            draw_line(axes, Series(label, list(numbers), [100 * share for share in shares]), look[label])
        axes.set_xticks(list(numbers))
        axes.set_xlabel("distinct styles in 32 samples", fontsize=10)
        axes.set_ylabel("problems (%)", fontsize=10)
        axes.grid(axis="y", color=_FAINT, linewidth=0.8)
    _shared_legend(figure)
    return figure


def sweeps_figure(results: Results, base: Base, sweeps: Sequence[Sweep]) -> Figure:
    """One row per sweep: the setting against greedy accuracy and pass@k, the base model as a dashed line."""
    split, k = results.split(IN_DOMAIN), _k(results, base)
    metrics = ("greedy", f"pass@{k}")
    figure = canvas(9.2, 2.9 * len(sweeps))
    look = Look("#0072B2", "o", "-")
    for row, sweep in enumerate(sweeps):
        points = _points(results, sweep)
        for column, metric in enumerate(metrics):
            axes = figure.add_subplot(len(sweeps), len(metrics), row * len(metrics) + column + 1)
            label = results.arm(sweep.arm).label
            tidy(axes, f"{label}: {metric}")
            found = [mean_value(runs, split, metric) for _, runs in points]
            x = [value for value, _ in points]
            scaled = [[100 * getattr(value, part) for value in found] for part in ("mean", "low", "high")]
            draw_line(axes, Series(label, x, *scaled), look)
            axes.axhline(
                100 * mean_value([results.bases[base.name]], split, metric).mean, color="#6B6B6B", linestyle="--"
            )
            axes.set_xscale("log")
            axes.set_xticks(x, [f"{value:g}" for value in x])
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_xlabel(sweep.setting, fontsize=10)
            axes.set_ylabel(f"{metric} (%)", fontsize=10)
            axes.grid(axis="y", color=_FAINT, linewidth=0.8)
    return figure


def frontier_figure(results: Results, base: Base, sweeps: Sequence[Sweep]) -> Figure:
    """Mean accuracy of samples (x) against pass@k (y): methods as points, each sweep as a line through its values."""
    split, k = results.split(IN_DOMAIN), _k(results, base)
    swept = {sweep.arm for sweep in sweeps}
    single = {results.arm(name).label: runs for name, runs in results.of_base(base.name).items() if name not in swept}
    single = {base.label: [results.bases[base.name]], **single}
    lines = {f"{results.arm(sweep.arm).label}, {sweep.setting.rpartition('.')[2]}": sweep for sweep in sweeps}
    look = looks([*single, *lines], base.label)
    figure = canvas(8.4, 5.6)
    axes = figure.add_subplot()
    tidy(axes, f"mean@n against pass@{k}, in-domain")

    def place(runs: Sequence[EvalRun]) -> tuple[float, float]:
        x, y = (100 * mean_value(runs, split, metric).mean for metric in ("mean", f"pass@{k}"))
        return x, y

    for label, runs in single.items():
        axes.plot(
            *place(runs), look[label].marker, color=look[label].color, label=label, markersize=7, linestyle="none"
        )
    for label, sweep in lines.items():
        points = _points(results, sweep)
        places = [place(runs) for _, runs in points]
        draw_line(axes, Series(label, [x for x, _ in places], [y for _, y in places]), look[label])
        for (value, _), where in zip(points, places, strict=True):
            axes.annotate(f"{value:g}", where, xytext=(4, 4), textcoords="offset points", fontsize=7)
    axes.set_xlabel("mean@n (%)", fontsize=10)
    axes.set_ylabel(f"pass@{k} (%)", fontsize=10)
    axes.grid(color=_FAINT, linewidth=0.8)
    _shared_legend(figure)
    return figure


def _points(results: Results, sweep: Sweep) -> list[tuple[float, Sequence[EvalRun]]]:
    """Finished points of a sweep by value; empty if there are fewer than two."""
    found = sorted((value, name) for name, value in sweep.values.items() if name in results.arms)
    return [(value, results.arms[name]) for value, name in found] if len(found) > 1 else []


def keep_figure(results: Results, base: Base) -> Figure | None:
    """Keep and exploration rate of every method, and of the base model against itself; None where neither has enough
    problems behind it."""
    split, run = results.split(IN_DOMAIN), results.bases[base.name]
    labels = _labels(results, base)
    look = looks(list(labels), base.label)
    rates = {label: retention(runs, run, split) for label, runs in labels.items()}
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
        axes.grid(axis="x", color=_FAINT, linewidth=0.8)
    return figure


def seeds_figure(results: Results, base: Base) -> Figure:
    """Greedy accuracy and pass@k of every training seed, with the mean over seeds."""
    split, k = results.split(IN_DOMAIN), _k(results, base)
    labels = _labels(results, base)
    look = looks(list(labels), base.label)
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
        axes.grid(axis="x", color=_FAINT, linewidth=0.8)
    return figure


def _training(results: Results) -> list[Series]:
    """pass@8 on the monitor's problems through training: mean over seeds between the lowest and the highest."""
    arms = [name for name in results.trained if not results.arm(name).variant_of]
    return training_series([run for name in arms for run in results.trained[name]], "eval/pass@8")


def training_figure(curves: Sequence[Series]) -> Figure:
    """pass@8 against training steps, one line per method."""
    figure = canvas(6.2, 4.6)
    axes = figure.add_subplot()
    tidy(axes, "pass@8 through training, development problems")
    look = looks([curve.label for curve in curves])
    for curve in curves:
        draw_line(axes, curve, look[curve.label])
    axes.set_xlabel("training step", fontsize=10)
    axes.set_ylabel("pass@8 (%)", fontsize=10)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=None))
    axes.grid(axis="y", color=_FAINT, linewidth=0.8)
    _shared_legend(figure)
    return figure


def _bars(found: Sequence[Value]) -> np.ndarray:
    """Distances from estimates to interval ends in points, as matplotlib takes them; 0 where there is no interval."""
    below = [value.mean - value.low for value in found]
    above = [value.high - value.mean for value in found]
    return 100 * np.nan_to_num(np.maximum(np.array([below, above]), 0.0))


def _points_with_bars(
    axes: Axes, places: np.ndarray, found: Sequence[Value], look: Look, label: str, *, horizontal: bool = False
) -> None:
    means = 100 * np.array([value.mean for value in found])
    x, y = (means, places) if horizontal else (places, means)
    xerr, yerr = (_bars(found), None) if horizontal else (None, _bars(found))
    axes.errorbar(x, y, yerr, xerr, fmt=look.marker, color=look.color, label=label, markersize=6, elinewidth=1.2)


def _shared_legend(figure: Figure) -> None:
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
