"""The paper's figures (Figs. 1–5, App. G.1): of a grid's runs, or of any.

    python -m experiments.figures RUN … --base LABEL --out FOLDER

RUN is a run directory of `dph eval`, or for Figure 5 of `dph train` or a launch of `dph verl`. Evaluations with one
label are seeds of one method. Evaluations of several tasks may be mixed: each task and split is a distribution of its
own, the first one that of training.
"""

import argparse
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from dph.cli.main import ending
from dph.config import flatten, preset_names, read_settings
from dph.errors import SettingsError
from dph.process.progress import say, show_messages
from dph.report.comparison import KEEP_K
from dph.report.data import LAUNCH, EvalRun, TrainRun, by_label, read_runs
from dph.report.plots import (
    Series,
    canvas,
    draw_line,
    legend_below,
    legend_shape,
    looks,
    tidy,
    to_png,
    training_curves,
    training_figure,
)
from dph.runs.files import write_atomically
from experiments.drawings import (
    FAINT,
    MODES_TEXT,
    Domains,
    Labels,
    Points,
    gap_figure,
    greedy_figure,
    keep_figure,
    modes_figure,
    seeds_figure,
    styles_figure,
    sweeps_figure,
)
from experiments.finished import DIFFERENCES, DOMAINS, IN_DOMAIN, INTERVALS, Results, mean_value, values
from experiments.grid import Base, Sweep

_LARGEST_K = 32
SWEPT = ("loss.kl_coef", "loss.eta", "loss.alpha")
"""Settings of training that Fig. 3 draws if runs differ in one of them and in nothing else that makes a method."""
_OF_METHOD = (
    "loss",
    "advantage",
    "dynamic_sampling",
    "overlong",
    "prompt_set",
    "rehearsal.rows",
    "trained_share",
    "optim.lr",
)
"""The settings that make a method, or the parts that hold them."""


def figures(results: Results) -> dict[str, tuple[Figure, str]]:
    """All figures of a grid for which the runs have finished, by file name, each with a description."""
    base = results.first_base
    if base is None or not results.split(IN_DOMAIN) or not results.of_base(base.name):
        return {}
    labels = _labels(results, base)
    domains = {name: (labels, results.split(name)) for name in DOMAINS if results.split(name)}
    split, k = results.split(IN_DOMAIN), _largest_k(domains[IN_DOMAIN])
    drawn = _of_domains(domains, base.label, k, plain_first=True)
    drawn["greedy"] = (greedy_figure(labels, base.label, split, k), f"Greedy accuracy against pass@k; {INTERVALS}")
    sweeps = [sweep for sweep in results.choice.grid.sweeps.values() if _points(results, sweep)]
    named = [(results.arm(sweep.arm).label, sweep.setting, _points(results, sweep)) for sweep in sweeps]
    if named:
        dapo = {results.arm(name).label: runs for name, runs in results.arms.items() if name == "dapo"}
        figure = sweeps_figure(named, {base.label: labels[base.label]} | dapo, split, k)
        drawn["fig3_sweeps"] = (figure, f"Fig. 3: one setting against greedy and pass@k; {INTERVALS}")
    strengths = [sweep for sweep in sweeps if sweep.setting.startswith("loss.")]
    if strengths:
        description = "What each divergence allows at its strengths: mean accuracy of samples against pass@k"
        drawn["frontier"] = (frontier_figure(results, base, strengths, k), description)
    plain = [name for name in results.trained if not results.arm(name).variant_of]
    return dict(sorted((drawn | _fig5([run for name in plain for run in results.trained[name]])).items()))


def figures_of_runs(evals: Sequence[EvalRun], trains: Sequence[TrainRun], base: str) -> dict[str, tuple[Figure, str]]:
    """The same of any runs, as far as these have what a figure shows. Methods come first, then the variants that differ
    from one of them in one setting. Raises UserError if no evaluation is labelled `base`."""
    labels, split = next(iter(_domains(evals, base).values()))
    trained = {label: _trained_with(runs[0]) for label, runs in labels.items()}
    sweeps = _sweeps(labels, trained)
    variants = _variants(sweeps, trained)
    domains = _domains(sorted(evals, key=lambda run: run.label in variants), base)
    k = min(map(_largest_k, domains.values()))
    drawn = _of_domains(domains, base, k)
    if sweeps:
        lines = {
            label: runs for label, runs in labels.items() if label == base or trained[label].get("method") == "dapo"
        }
        figure = sweeps_figure(sweeps, lines, split, k)
        drawn["fig3_sweeps"] = (figure, f"Fig. 3: one setting against greedy and pass@k; {INTERVALS}")
    trains = sorted(trains, key=lambda run: (run.label in variants, _place(labels, run.label)))
    return dict(sorted((drawn | _fig5(trains, base)).items()))


def _place(labels: Labels, label: str) -> int:
    """The place of a label among those that were evaluated; the others come last."""
    return list(labels).index(label) if label in labels else len(labels)


def _variants(sweeps: Sequence[tuple[str, str, Points]], trained: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """The labels of sweeps without those of the methods themselves: of each sweep the one that has the method's own
    name, or the one in the middle."""
    variants: set[str] = set()
    for _, _, points in sweeps:
        names = [runs[0].label for _, runs in points]
        own = [name for name in names if trained[name].get("method") in preset_names()]
        kept = own[0] if len(own) == 1 else names[len(names) // 2]
        variants |= {name for name in names if name != kept}
    return variants


def _fig5(trains: Sequence[TrainRun], base: str | None = None) -> dict[str, tuple[Figure, str]]:
    """Figure 5, if the runs were monitored."""
    curves = training_curves(trains)
    description = "Fig. 5: pass@k through training on each set, mean and range over seeds"
    return {"fig5_training": (training_figure(curves, base), description)} if curves else {}


def _domains(evals: Sequence[EvalRun], base: str) -> Domains:
    """Evaluations by task and split, those that the base was evaluated on."""
    tasks = [str(_settings(run.path / "config.toml").get("task.name", "")) for run in evals]
    pairs = dict.fromkeys((task, split) for task, run in zip(tasks, evals, strict=True) for split in run.splits)
    domains: dict[str, tuple[Labels, str]] = {}
    for task, split in pairs:
        runs = [run for name, run in zip(tasks, evals, strict=True) if name == task and split in run.splits]
        labels = by_label(sorted(runs, key=lambda run: run.label != base))
        if base in labels:
            splits = [other for name, other in pairs if name == task]
            several = len(set(tasks)) > 1
            named = (f"{task} {split}" if len(splits) > 1 else task) if several else split
            domains[named] = (labels, split)
    if not domains:
        raise SettingsError(f"no evaluation is labelled {base!r}; name the base model's label with --base")
    return domains


def _of_domains(domains: Domains, base: str, k: int, *, plain_first: bool = False) -> dict[str, tuple[Figure, str]]:
    """The figures that need evaluations alone, of each distribution; with `plain_first` the file names of the first one
    do not name it."""
    gaps = {name: of_domain for name, of_domain in domains.items() if len(of_domain[0]) > 1}
    drawn = {"fig1_modes": (modes_figure(), MODES_TEXT)}
    if gaps:
        figure = gap_figure(gaps, base, k)
        drawn["fig1_gap"] = (figure, f"Fig. 1 left: gap to the base model by distribution; {DIFFERENCES}")
    for place, (name, (labels, split)) in enumerate(domains.items()):
        bare = len(domains) == 1 or (plain_first and place == 0)
        end = "" if bare else "_" + "".join(c if c.isalnum() else "-" for c in name)
        of = "" if len(domains) == 1 else f", {name}"
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


def frontier_figure(results: Results, base: Base, sweeps: Sequence[Sweep], k: int) -> Figure:
    """Mean accuracy of samples (x) against pass@k (y): methods as points, each sweep as a line through its values."""
    split = results.split(IN_DOMAIN)
    swept = {sweep.arm for sweep in sweeps}
    single = {results.arm(name).label: runs for name, runs in results.of_base(base.name).items() if name not in swept}
    single = {base.label: [results.bases[base.name]], **single}
    lines = {f"{results.arm(sweep.arm).label}, {sweep.setting.rpartition('.')[2]}": sweep for sweep in sweeps}
    look = looks([*single, *lines], base.label)
    figure = canvas(8.4, 5.3 + legend_shape([*single, *lines], 8.4)[1])
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
    axes.grid(color=FAINT, linewidth=0.8)
    legend_below(figure, 8.4)
    return figure


def _points(results: Results, sweep: Sweep) -> Points:
    """Finished points of a sweep by value; empty if there are fewer than two."""
    found = sorted((value, name) for name, value in sweep.values.items() if name in results.arms)
    return [(value, results.arms[name]) for value, name in found] if len(found) > 1 else []


def _sweeps(labels: Labels, trained: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, Points]]:
    """For labels that were trained alike but for one of SWEPT: what their names have in common, this setting, and the
    evaluations by its value. The axis of the values is logarithmic, so 0 is left out.

    trained: the settings that trained each label, with dots; empty for the base model.
    """
    found = []
    for swept in SWEPT:
        alike: dict[str, list[str]] = {}
        for label, settings in trained.items():
            made = {key: value for key, value in settings.items() if key.startswith(_OF_METHOD) and key != swept}
            if settings.get(swept):
                alike.setdefault(repr(sorted(made.items())), []).append(label)
        for names in alike.values():
            points = {trained[name][swept]: labels[name] for name in names}
            if len(points) > 1:
                found.append((_common(names), swept, sorted(points.items())))
    return found


def _common(names: Sequence[str]) -> str:
    """What labels have in common, up to a comma: RKL of "RKL, β = 0.01" and "RKL, β = 0.1"."""
    words = (
        of_place[0] for of_place in takewhile(lambda w: len(set(w)) == 1, zip(*map(str.split, names), strict=False))
    )
    return " ".join(words).partition(",")[0].strip(" =")


def _trained_with(run: EvalRun) -> dict[str, Any]:
    """The settings that trained an evaluated model, with dots; empty for the model of no run."""
    folders = run.model.resolve().parents[:3] if run.model.exists() else ()
    files = (folder / name for folder in folders for name in (LAUNCH, "config.toml"))
    return next((_settings(file) for file in files if file.is_file()), {})


def _settings(file: Path) -> dict[str, Any]:
    return flatten(read_settings(file)) if file.is_file() else {}


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
        drawn = {"fig1_modes": (modes_figure(), MODES_TEXT)}
        if words.runs:
            drawn = figures_of_runs(*read_runs(words.runs), words.base)
        words.out.mkdir(parents=True, exist_ok=True)
        for name, (figure, description) in drawn.items():
            write_atomically(words.out / f"{name}.png", to_png(figure))
            say(f"{words.out / name}.png: {description}")


if __name__ == "__main__":
    main()
