"""The paper's figures (Figs. 1–5, App. G.1): of a grid's runs, or of any.

    python -m experiments.figures RUN … --base LABEL --out FOLDER

RUN is a run directory of `dph eval`, or for Figure 5 of `dph train` or a launch of `dph verl`. Evaluations with one
label are seeds of one method. Evaluations of several tasks may be mixed: each task and split is a distribution of its
own, the first one that of training.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from dph.cli.main import ending
from dph.config import flatten, read_settings
from dph.errors import SettingsError
from dph.process.progress import say, show_messages
from dph.report.comparison import KEEP_K, RATES, retention
from dph.report.data import LAUNCH, EvalRun, MetricValue, TrainRun, by_label, read_runs
from dph.report.plots import (
    Look,
    Series,
    canvas,
    draw_line,
    looks,
    tidy,
    to_png,
    training_curves,
    training_figure,
)
from dph.runs.files import write_atomically
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
SWEPT = ("loss.eta", "loss.kl_coef", "loss.alpha")
"""Settings of training that Fig. 3 draws if the runs of a method differ in one of them."""

Labels = Mapping[str, Sequence[EvalRun]]
"""Evaluations by label, the base model's first."""
Domains = Mapping[str, tuple[Labels, str]]
"""Evaluations of each distribution with the name of its split, that of the training task first."""
Points = Sequence[tuple[float, Sequence[EvalRun]]]
"""Evaluations by the value of a setting, in ascending order."""


def figures(results: Results) -> dict[str, tuple[Figure, str]]:
    """All figures of a grid for which the runs have finished, by file name, each with a description."""
    base = results.first_base
    if base is None or not results.split(IN_DOMAIN) or not results.of_base(base.name):
        return {}
    labels = _labels(results, base)
    domains = {name: (labels, results.split(name)) for name in DOMAINS if results.split(name)}
    split, k = results.split(IN_DOMAIN), _largest_k(domains[IN_DOMAIN])
    drawn = _of_domains(domains, base.label, k, only_first=True)
    drawn["greedy"] = (greedy_figure(labels, base.label, split, k), f"Greedy accuracy against pass@k; {INTERVALS}")
    sweeps = [sweep for sweep in results.choice.grid.sweeps.values() if _points(results, sweep)]
    named = [(results.arm(sweep.arm).label, sweep.setting, _points(results, sweep)) for sweep in sweeps]
    if named:
        figure = sweeps_figure(named, labels[base.label], split, k)
        drawn["fig3_sweeps"] = (figure, f"Fig. 3: one setting against greedy and pass@k; {INTERVALS}")
    strengths = [sweep for sweep in sweeps if sweep.setting.startswith("loss.")]
    if strengths:
        description = "What each divergence allows at its strengths: mean accuracy of samples against pass@k"
        drawn["frontier"] = (frontier_figure(results, base, strengths, k), description)
    plain = [name for name in results.trained if not results.arm(name).variant_of]
    return dict(sorted((drawn | _fig5([run for name in plain for run in results.trained[name]])).items()))


def figures_of_runs(evals: Sequence[EvalRun], trains: Sequence[TrainRun], base: str) -> dict[str, tuple[Figure, str]]:
    """The same of any runs, as far as these have what a figure shows. Raises UserError if no evaluation is labelled
    `base`."""
    domains = _domains(evals, base)
    k = min(map(_largest_k, domains.values()))
    drawn = _of_domains(domains, base, k)
    labels, split = next(iter(domains.values()))
    sweeps = _sweeps(labels)
    if sweeps:
        figure = sweeps_figure(sweeps, labels[base], split, k)
        drawn["fig3_sweeps"] = (figure, f"Fig. 3: one setting against greedy and pass@k; {INTERVALS}")
    return dict(sorted((drawn | _fig5(trains, base)).items()))


def _fig5(trains: Sequence[TrainRun], base: str | None = None) -> dict[str, tuple[Figure, str]]:
    """Figure 5, if the runs were monitored."""
    curves = training_curves(trains)
    description = "Fig. 5: pass@k through training on each set, mean and range over seeds"
    return {"fig5_training": (training_figure(curves, base), description)} if curves else {}


def _domains(evals: Sequence[EvalRun], base: str) -> Domains:
    """Evaluations by task and split, those that the base was evaluated on."""
    tasks = [str(_settings(run.path / "config.toml").get("task.name", "")) for run in evals]
    several = len(set(tasks)) > 1
    domains: dict[str, tuple[Labels, str]] = {}
    for task, split in dict.fromkeys(
        (task, split) for task, run in zip(tasks, evals, strict=True) for split in run.splits
    ):
        runs = [run for name, run in zip(tasks, evals, strict=True) if name == task and split in run.splits]
        labels = by_label(sorted(runs, key=lambda run: run.label != base))
        if base in labels:
            domains[f"{task} {split}" if several else split] = (labels, split)
    if not domains:
        raise SettingsError(f"no evaluation is labelled {base!r}; name the base model's label with --base")
    return domains


def _of_domains(domains: Domains, base: str, k: int, *, only_first: bool = False) -> dict[str, tuple[Figure, str]]:
    """The figures that need evaluations alone; with `only_first` all but Fig. 1 of the first distribution only."""
    gaps = {name: of_domain for name, of_domain in domains.items() if len(of_domain[0]) > 1}
    drawn = {"fig1_modes": (modes_figure(), "Fig. 1 right: the Gaussian that each divergence fits to a bimodal target")}
    if gaps:
        figure = gap_figure(gaps, base, k)
        drawn["fig1_gap"] = (figure, f"Fig. 1 left: gap to the base model by distribution; {DIFFERENCES}")
    shown = dict(list(domains.items())[:1]) if only_first else domains
    for name, (labels, split) in shown.items():
        end = "" if len(shown) == 1 else "_" + "".join(c if c.isalnum() else "-" for c in name)
        of = "" if len(shown) == 1 else f", {name}"
        drawn[f"figG_seeds{end}"] = (seeds_figure(labels, base, split, k), f"App. G.1: every training seed{of}")
        kept = keep_figure(labels, base, split)
        if kept is not None:
            description = f"Fig. 4: keep and exploration rate at {KEEP_K} samples{of}; {INTERVALS}"
            drawn[f"fig4_keep{end}"] = (kept, description)
        if not np.isnan(values(labels[base], split, "styles")).all():
            description = f"Fig. 2 left: solution styles in the samples of a problem{of}"
            drawn[f"fig2_styles{end}"] = (styles_figure(labels, base, split), description)
    return drawn


def _labels(results: Results, base: Base) -> dict[str, Sequence[EvalRun]]:
    """Evaluations by label, the base model first."""
    trained = {results.arm(name).label: runs for name, runs in results.of_base(base.name).items()}
    return {base.label: [results.bases[base.name]], **trained}


def _largest_k(domain: tuple[Labels, str]) -> int:
    """The k of the figures: 32, or the largest that half of the samples of every run allow."""
    labels, split = domain
    every = [run.splits[split] for runs in labels.values() for run in runs]
    samples = min(one.samples for one in every)
    return max(k for k in every[0].pass_curve if k <= min(_LARGEST_K, max(1, samples // 2)))


def gap_figure(domains: Domains, base: str, k: int) -> Figure:
    """Difference to the base model in greedy and pass@k on each domain, with intervals."""
    metrics = ["greedy", f"pass@{k}"]
    trained = list(dict.fromkeys(label for labels, _ in domains.values() for label in labels if label != base))
    look = looks([base, *trained], base)
    figure = canvas(4.6 * len(metrics), 3.9)
    for index, metric in enumerate(metrics):
        axes = figure.add_subplot(1, len(metrics), index + 1)
        tidy(axes, metric)
        for place, label in enumerate(trained):
            gaps = [
                difference(labels[label], labels[base], split, metric) if label in labels else MetricValue(np.nan)
                for labels, split in domains.values()
            ]
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


def greedy_figure(labels: Labels, base: str, split: str, k: int) -> Figure:
    """Greedy accuracy (x) against pass@k (y), one point per method, with both intervals."""
    look = looks(list(labels), base)
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


def styles_figure(labels: Labels, base: str, split: str) -> Figure:
    """Share of problems by the number of distinct styles, of all samples (left) and of correct ones (right)."""
    look = looks(list(labels), base)
    samples = labels[base][0].splits[split].samples
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
        axes.set_xlabel(f"distinct styles in {samples} samples", fontsize=10)
        axes.set_ylabel("problems (%)", fontsize=10)
        axes.grid(axis="y", color=_FAINT, linewidth=0.8)
    _shared_legend(figure)
    return figure


def sweeps_figure(sweeps: Sequence[tuple[str, str, Points]], base: Sequence[EvalRun], split: str, k: int) -> Figure:
    """One row per sweep (label, setting, points): the setting against greedy accuracy and pass@k, the base model as a
    dashed line."""
    metrics = ("greedy", f"pass@{k}")
    figure = canvas(9.2, 2.9 * len(sweeps))
    look = Look("#0072B2", "o", "-")
    for row, (label, setting, points) in enumerate(sweeps):
        for column, metric in enumerate(metrics):
            axes = figure.add_subplot(len(sweeps), len(metrics), row * len(metrics) + column + 1)
            tidy(axes, f"{label}: {metric}")
            found = [mean_value(runs, split, metric) for _, runs in points]
            x = [value for value, _ in points]
            scaled = [[100 * getattr(value, part) for value in found] for part in ("mean", "low", "high")]
            draw_line(axes, Series(label, x, *scaled), look)
            axes.axhline(100 * mean_value(base, split, metric).mean, color="#6B6B6B", linestyle="--")
            axes.set_xscale("log")
            axes.set_xticks(x, [f"{value:g}" for value in x])
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_xlabel(setting, fontsize=10)
            axes.set_ylabel(f"{metric} (%)", fontsize=10)
            axes.grid(axis="y", color=_FAINT, linewidth=0.8)
    return figure


def frontier_figure(results: Results, base: Base, sweeps: Sequence[Sweep], k: int) -> Figure:
    """Mean accuracy of samples (x) against pass@k (y): methods as points, each sweep as a line through its values."""
    split = results.split(IN_DOMAIN)
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


def _points(results: Results, sweep: Sweep) -> Points:
    """Finished points of a sweep by value; empty if there are fewer than two."""
    found = sorted((value, name) for name, value in sweep.values.items() if name in results.arms)
    return [(value, results.arms[name]) for value, name in found] if len(found) > 1 else []


def _sweeps(labels: Labels) -> list[tuple[str, str, Points]]:
    """For each method whose labels were trained with several values of one of SWEPT: the method, this setting, and the
    evaluations by its value. The axis of the values is logarithmic, so 0 is left out."""
    settings = {label: _trained_with(runs[0]) for label, runs in labels.items()}
    methods: dict[str, list[str]] = {}
    for label, of_label in settings.items():
        methods.setdefault(of_label.get("method", ""), []).append(label)
    found = []
    for method, arms in methods.items():
        by_setting = {name: {settings[arm].get(name): labels[arm] for arm in arms} for name in SWEPT}
        varied = {name: points for name, points in by_setting.items() if len(points) > 1}
        if method and len(varied) == 1:
            [(name, points)] = varied.items()
            found.append((method, name, sorted((value, runs) for value, runs in points.items() if value)))
    return found


def _trained_with(run: EvalRun) -> dict[str, Any]:
    """The settings that trained an evaluated model, with dots; empty for the model of no run."""
    folders = run.model.resolve().parents[:3] if run.model.exists() else ()
    files = (folder / name for folder in folders for name in (LAUNCH, "config.toml"))
    return next((_settings(file) for file in files if file.is_file()), {})


def _settings(file: Path) -> dict[str, Any]:
    return flatten(read_settings(file)) if file.is_file() else {}


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
        axes.grid(axis="x", color=_FAINT, linewidth=0.8)
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
        axes.grid(axis="x", color=_FAINT, linewidth=0.8)
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


def _shared_legend(figure: Figure) -> None:
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)


def main() -> None:
    """Draw the figures that the runs of the command line allow, as FOLDER/figNAME.png."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.figures", description="The paper's figures of any runs."
    )
    parser.add_argument("runs", nargs="*", type=Path, help="run directories; without any, Fig. 1 right alone is drawn")
    parser.add_argument("--base", default="base", help="label of the base model's evaluation (%(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="folder for the figures")
    words = parser.parse_args()
    show_messages()
    with ending("experiments"):
        drawn = {"fig1_modes": (modes_figure(), "Fig. 1 right")}
        if words.runs:
            drawn = figures_of_runs(*read_runs(words.runs), words.base)
        words.out.mkdir(parents=True, exist_ok=True)
        for name, (figure, description) in drawn.items():
            write_atomically(words.out / f"{name}.png", to_png(figure))
            say(f"{words.out / name}.png: {description}")


if __name__ == "__main__":
    main()
