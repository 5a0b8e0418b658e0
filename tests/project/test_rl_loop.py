"""examples/rl_loop.py: a training loop from top to bottom, which takes the steps of `dph train`."""

import runpy
from pathlib import Path

import pytest

from dph.runs.directory import read_metrics
from dph.stages.train import train
from helpers import train_config

PATH = Path(__file__).parents[2] / "examples" / "rl_loop.py"


def test_the_loop_is_short_and_its_steps_are_those_of_the_library(tmp_path):
    assert len(PATH.read_text(encoding="utf-8").splitlines()) <= 150
    config = train_config(tmp_path, "dph_js", {"steps": 4, "optim": {"minibatches": 1}})
    steps = list(runpy.run_path(str(PATH))["train"](config))
    lines = read_metrics(train(config))
    assert len(steps) == len(lines) == 4 and any(step["loss"] for step in steps)
    for step, line in zip(steps, lines, strict=True):
        # groups without a gradient are not passed back there: fp32 sums in another order
        assert step == {name: pytest.approx(line[name], rel=1e-4, abs=1e-6) for name in step}


def test_the_reward_rises(tmp_path):
    settings = {"steps": 30, "rollout": {"prompts": 6, "n": 8}, "optim": {"lr": 5e-3}}
    config = train_config(tmp_path, "dph_js", settings)
    rewards = [step["reward"] for step in runpy.run_path(str(PATH))["train"](config)]
    assert sum(rewards[:5]) / 5 < 0.7 < 0.8 < sum(rewards[-5:]) / 5
