"""Rehearsal composed with what others add to GRPO (paper §1, §5: "orthogonal"): every pair trains, and both act."""

import functools
import math
from pathlib import Path

import pytest
import torch

from dph.objective.advantages import ADVANTAGES
from dph.objective.policy_losses import POLICY_LOSSES
from dph.runs.directory import read_metrics
from dph.stages.train import train
from helpers import folder, train_config, weights

REHEARSAL = ("dph_f", "dph_js", "dph_js_def")
OPTIONS = {"passk": {"k": "2"}, "mara": {"beta": "0.1"}}
"""Of an advantage, where its defaults do not fit groups of four."""
ADDITIONS = {
    "dapo": {"dynamic_sampling": {"enabled": True, "max_attempts": 4}, "overlong": {"buffer": 2}},
    "entropy": {"loss": {"entropy_coef": 0.1}},
    "kl": {"loss": {"kl": "k2", "kl_coef": 0.1}},
    **{f"loss {name}": {"loss": {"policy": name}} for name in POLICY_LOSSES if name != "ppo_clip"},
    **{
        f"advantage {name}": {"advantage": {"name": name, "options": OPTIONS.get(name, {})}}
        for name in ADVANTAGES
        if name != "group"
    },
}
STEPS = 2


@functools.cache
def plain(method: str) -> dict[str, torch.Tensor]:
    """The weights of a run with rehearsal alone."""
    return weights(train(train_config(folder() / method, method, steps=STEPS)) / "model")


@pytest.mark.parametrize("method", REHEARSAL)
@pytest.mark.parametrize("addition", ADDITIONS)
def test_rehearsal_and_an_addition_act_together(addition: str, method: str, tmp_path: Path) -> None:
    run = train(train_config(tmp_path, method, ADDITIONS[addition], steps=STEPS))
    lines = read_metrics(run)
    assert all(math.isfinite(value) for line in lines for value in line.values())
    assert [line["pef/tokens"] for line in lines] == [12.0] * STEPS and lines[-1]["pef/divergence"] != 0
    assert not any(line["skipped_updates"] for line in lines)
    trained, alone = weights(run / "model"), plain(method)
    if addition == "dapo":  # no group of this task is constant, so nothing is drawn again
        assert all("kept/response_length" in line for line in lines)
    elif addition != "advantage gated":  # its gate is open on these groups
        assert any(not torch.equal(value, alone[name]) for name, value in trained.items())
    assert any(not torch.equal(value, trained[name]) for name, value in weaker(addition, method, tmp_path).items())


def weaker(addition: str, method: str, path: Path) -> dict[str, torch.Tensor]:
    """The weights of the same run with almost no weight on rehearsal."""
    settings = ADDITIONS[addition] | {"loss": {**ADDITIONS[addition].get("loss", {}), "eta": 1e-9}}
    return weights(train(train_config(path / "weaker", method, settings, steps=STEPS)) / "model")
