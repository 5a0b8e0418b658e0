"""The paper's figures of any runs, and Figure 1 right: the fits against what is known of them."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dph.errors import SettingsError
from dph.report.data import read_runs
from experiments.drawings import MODES, gaussian_fits, modes_figure
from experiments.figures import figures_of_runs
from report_support import interval, write_eval, write_train


def test_forward_kl_matches_moments_and_reverse_kl_a_mode() -> None:
    fits = gaussian_fits()
    weights, means, spreads = map(np.array, zip(*MODES, strict=True))
    mean = weights @ means
    spread = np.sqrt(weights @ (spreads**2 + means**2) - mean**2)
    assert fits["forward KL(p‖q)"] == pytest.approx((mean, spread), abs=0.02)  # the maximum likelihood of a Gaussian
    assert fits["reverse KL(q‖p)"] == pytest.approx((means[0], spreads[0]), abs=0.05)  # the heavier, narrower mode
    assert fits["JS"] == pytest.approx((means[0], spreads[0]), abs=0.05)  # between far modes JS chooses one, too


def test_the_figure_has_the_target_and_three_fits() -> None:
    (axes,) = modes_figure().axes
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["target", *gaussian_fits()]


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Evaluations on two tasks, each with a split dev: a base, GRPO, and DPH-JS with two η, one with two seeds; and
    training runs that measured both."""
    eta = {"small": 0.05, "large": 0.2, "large-2": 0.2, "grpo": 0.2}
    found = []
    for name, value in eta.items():
        train = write_train(tmp_path / name, "grpo" if name == "grpo" else "dph_js", [0.5, 0.75])
        with (train / "config.toml").open("a") as file:
            file.write(f"[loss]\neta = {value}\n")
        lines = [json.loads(line) for line in (train / "metrics.jsonl").read_text().splitlines()]
        written = [json.dumps(line | {"monitor/spider/pass@8": 0.25}) + "\n" for line in lines]
        (train / "metrics.jsonl").write_text("".join(written))
        (train / "model").mkdir()
        found.append(train)
    labels = {"base": "base", "small": "η = 0.05", "large": "η = 0.2", "large-2": "η = 0.2", "grpo": "GRPO"}
    for task, correct in (("bird", [16, 16, 1, 0, 8, 16]), ("spider", [16, 0, 0, 0])):
        for name, label in labels.items():
            folder = tmp_path / "eval" / task / name
            metrics = {"greedy": interval(0.5)}
            model = tmp_path / name / "model"
            write_eval(folder, label, correct, samples=16, splits=("dev",), model=model, metrics=metrics, prefix=task)
            (folder / "config.toml").write_text(f'[task]\nname = "{task}"\n')
            found.append(folder)
    return found


def test_every_figure_comes_from_runs_of_any_place(runs: list[Path], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "experiments.figures", *map(str, runs), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        *("fig1_gap.png", "fig1_modes.png", "fig3_sweeps.png", "fig5_training.png"),
        *(f"{name}_{task}.png" for name in ("fig2_styles", "figG_seeds") for task in ("bird", "spider")),
    }
    assert "App. G.1: every training seed, spider" in done.stdout + done.stderr
    alone = [sys.executable, "-m", "experiments.figures", "--out", str(tmp_path / "alone")]
    subprocess.run(alone, check=True, capture_output=True)
    assert [file.name for file in (tmp_path / "alone").iterdir()] == ["fig1_modes.png"]


def test_the_figures_hold_what_the_runs_have(runs: list[Path]) -> None:
    drawn = {name: figure for name, (figure, _) in figures_of_runs(*read_runs(runs), "base").items()}
    gap = drawn["fig1_gap"].axes[0]
    assert [tick.get_text() for tick in gap.get_xticklabels()] == ["bird", "spider"]
    sweep = drawn["fig3_sweeps"].axes[0]
    assert sweep.get_xlabel() == "loss.eta" and np.array_equal(sweep.lines[0].get_xdata(), [0.05, 0.2])
    assert [axes.get_title("left") for axes in drawn["fig5_training"].axes] == [
        "the training task: pass@8",
        "spider: pass@8",
    ]
    assert np.array_equal(drawn["fig5_training"].axes[1].lines[0].get_ydata(), [0.25, 0.25])
    with pytest.raises(SettingsError, match="'nobody'"):
        figures_of_runs(*read_runs(runs), "nobody")
