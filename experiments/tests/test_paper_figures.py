"""Every figure and table of the paper from finished runs in the places and with the settings that the written launches
have: the runs are made up, all else is as on a cluster."""

import functools
import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from matplotlib.figure import Figure
from matplotlib.legend import Legend

from dph.report.data import read_runs
from dph.report.plots import MOST_LABELS
from dph.tasks.benchmarks import BENCHMARKS
from experiments.config import ReproduceConfig
from experiments.figures import figures_of_runs
from experiments.paper.study import Recipe, evaluation_folder, read_study
from experiments.run import reproduce
from report_support import interval, write_eval

ROOT = Path(__file__).parents[2]
PROBLEMS = 24


def finish(recipe: Recipe, folder: Path) -> None:
    """Make up the results of every launch of a recipe: the metrics that verl logs, a last model, its evaluations."""
    arms = read_study().arms
    for where in ("base", "base-again"):
        evaluate(
            recipe, folder / "eval" / where, "base" if where == "base" else "base (again)", recipe.model, Random(where)
        )
    for launch in sorted(folder.glob("*/seed-*")):
        name, seed = launch.parent.name, int(launch.name.removeprefix("seed-"))
        draw, model = Random(f"{name}-{seed}"), launch / "models" / "step-209"
        model.mkdir(parents=True)
        write_metrics(launch, draw, monitored=bool(recipe.monitor))
        evaluate(recipe, evaluation_folder(folder, name, seed), arms[name].label, model, draw)


def write_metrics(launch: Path, draw: Random, *, monitored: bool) -> None:
    start, lines = (0.7, 0.9), []
    for step in range(0, 201, 20):
        data = {"val-core/bird/acc/pass@8": start[0] - draw.uniform(0, 0.0005) * step}
        data["val-core/monitor/spider/acc/pass@8"] = start[1] - draw.uniform(0, 0.0006) * step
        if not monitored:
            data = {"critic/score/mean": draw.random()}
        lines.append(json.dumps({"step": step, "data": data}) + "\n")
    (launch / "metrics.jsonl").write_text("".join(lines))


def evaluate(recipe: Recipe, folder: Path, label: str, model: Path | str, draw: Random) -> None:
    sets = {name: BENCHMARKS[name] for name in (*recipe.benchmarks, *recipe.out_of_domain)}
    tasks: dict[str, tuple[str, tuple[str, ...], int]] = {
        name: (one.task, (one.split,), 2 * one.k) for name, one in sets.items()
    }
    if recipe.splits:
        tasks[recipe.data] = (recipe.data, recipe.splits, 32)
    for name, (task, splits, samples) in tasks.items():
        correct = [draw.choice((0, 1, 3, samples // 2, samples - 1, samples)) for _ in range(PROBLEMS)]
        styles = [draw.randint(1, 5) for _ in range(PROBLEMS)]
        columns: dict[str, list[int]] | dict[str, list[None]] = {
            "styles": styles,
            "styles_correct": [min(s, c) for s, c in zip(styles, correct, strict=True)],
        }
        if not recipe.splits:
            columns = {name: [None] * PROBLEMS for name in columns}
        path = write_eval(
            folder / name, label, correct, samples=samples, splits=splits, model=model, prefix=name,
            metrics={"greedy": interval(0.5)}, columns=columns,
        )  # fmt: skip
        scores = json.loads((path / "scores.json").read_text())
        for split in scores["splits"].values():
            split["pass_curve"] = {str(2**i): interval(0.5) for i in range(9) if 2**i <= samples}
        (path / "scores.json").write_text(json.dumps(scores))
        (path / "config.toml").write_text(f'[task]\nname = "{task}"\n')


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the whole study, with every run finished."""
    out = tmp_path_factory.mktemp("paper")
    reproduce(ReproduceConfig(scale="full", out=str(out), data="d"))
    for recipe in read_study().recipes:
        finish(recipe, out / recipe.name)
    return out


def command_of(page: Path, recipe: str) -> list[str]:
    """The words of the command that draws a recipe's figures, as the study's README.md has it."""
    section = page.read_text(encoding="utf-8").partition(f"\n## {recipe}\n")[2].partition("\n## ")[0]
    [line] = [line for line in section.splitlines() if "experiments.figures" in line]
    return shlex.split(line)


@functools.cache
def drawn(study: Path, recipe: str) -> dict[str, Figure]:
    """The figures of the runs that the command names."""
    words = command_of(study / "README.md", recipe)
    patterns = words[words.index("experiments.figures") + 1 : words.index("--out")]
    runs = [path for pattern in patterns for path in sorted((study / recipe).glob(pattern))]
    return {name: figure for name, (figure, _) in figures_of_runs(*read_runs(runs), "base").items()}


def outside(figure: Figure) -> list[str]:
    """The texts of a figure that its edge cuts."""
    figure.canvas.draw()
    shown = [text for legend in figure.findobj(Legend) for text in legend.get_texts()]
    for axes in figure.axes:
        shown += [axes.xaxis.label, axes.yaxis.label]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            shown += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    boxes = [(text.get_text(), text.get_window_extent()) for text in shown if text.get_text()]
    page = figure.bbox
    return [
        text
        for text, box in boxes
        if not (page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1)
    ]


def titles(figure: Figure) -> list[str]:
    return [axes.get_title("left") for axes in figure.axes]


@pytest.mark.parametrize("recipe", [recipe.name for recipe in read_study().recipes])
def test_no_figure_cuts_a_text_or_fills_a_panel_with_lines(study: Path, recipe: str) -> None:
    figures = drawn(study, recipe)
    assert figures.keys() >= {"fig1_gap", "fig1_modes"}
    for name, figure in figures.items():
        assert outside(figure) == [], name
        if name.startswith(("fig1_gap", "fig2", "fig5")):
            for axes in figure.axes:
                assert 0 < len(axes.get_legend_handles_labels()[1]) <= MOST_LABELS + 1, name


def test_figure_3_has_every_strength_and_dapo(study: Path) -> None:
    figure = drawn(study, "llama_sql")["fig3_sweeps"]
    assert titles(figure)[::2] == [
        "RKL: greedy",
        "DPH-JS: greedy",
        "DPH-JS by its definition: greedy",
        "α: greedy",
    ]
    ticks = [[label.get_text() for label in axes.get_xticklabels()] for axes in figure.axes[::2]]
    strengths = ["0.01", "0.05", "0.2"]
    assert ticks == [["0.001", "0.003", "0.01", "0.03", "0.1"], strengths, strengths, ["0.2", "0.5", "0.8"]]
    for axes in figure.axes:
        assert axes.get_legend_handles_labels()[1] == ["one setting varied", "base", "DAPO"]


def test_figures_1_4_and_5_hold_every_arm_and_every_set(study: Path) -> None:
    figures = drawn(study, "llama_sql")
    trained = {arm.label for name, arm in read_study().arms.items() if (study / "llama_sql" / name).is_dir()}
    assert len(trained) == 18
    for name in ("fig1_gap", "fig5_training"):
        shown = {label for axes in figures[name].axes for label in axes.get_legend_handles_labels()[1]}
        assert shown == trained, name
    first = figures["fig1_gap"].axes[0].get_legend_handles_labels()[1]
    assert {"GRPO", "DAPO", "RKL, β = 0.01", "DPH-F", "DPH-JS, η = 0.2"} <= set(first)  # in one panel
    benchmarks = (*read_study().recipes[0].benchmarks, *read_study().recipes[0].out_of_domain)
    sets = {name.replace("_", "-") for name in benchmarks}
    assert {name.removeprefix("fig4_keep_") for name in figures if name.startswith("fig4")} == sets
    assert set(titles(figures["fig5_training"])) == {"the training task: pass@8", "spider: pass@8"}
    rows = [label.get_text() for label in figures["fig4_keep_bird"].axes[0].get_yticklabels()]
    assert set(rows) == trained | {"base"}


def test_figure_2_has_reverse_kl(study: Path) -> None:
    figures = drawn(study, "llama_styles")
    for split in ("bird", "spider"):
        labels = figures[f"fig2_styles_{split}"].axes[0].get_legend_handles_labels()[1]
        assert set(labels) == {"base", "GRPO", "RKL, β = 0.01", "DPH-F", "DPH-JS, η = 0.2"}


def test_every_table_is_complete(study: Path) -> None:
    text = reproduce(replace(ReproduceConfig(scale="full"), out=str(study), report_only=True)).read_text(
        encoding="utf-8"
    )
    parts: list[str] = re.split(r"\n(?:## |\*\*)(?=table-|figure-)", text)
    sections = {part.split(": ")[0]: part for part in parts}
    for table in read_study().tables:
        if table.benchmarks:
            rows = [line.split(" | ") for line in sections[table.name].splitlines() if line.startswith("| ")]
            own = [row for row in rows[2:] if "not run here" not in row[0]]
            assert len(own) == sum(1 + len(arms) for arms in table.rows.values()), table.name
            assert [row for row in own if any(cell.startswith("–") for cell in row)] == []
    assert "amc23 pass@64" in text and "math500 mean@16" in text


def test_the_written_command_draws_them(study: Path) -> None:
    words = command_of(study / "README.md", "llama_styles")
    line = shlex.join([sys.executable if word == "python" else word for word in words]).replace("'", "")
    subprocess.run(["bash", "-c", line], cwd=study / "llama_styles", check=True, capture_output=True)
    files = {file.name for file in (study / "llama_styles" / "report" / "figures").iterdir()}
    assert {"fig1_gap.png", "fig1_modes.png", "fig2_styles_bird.png", "fig4_keep_spider.png"} <= files
