"""Checks of settings that were filled in Python: bounds, and what a stage does not read."""

from dataclasses import replace

import pytest

from dph.config import (
    DemoConfig,
    EvalConfig,
    LossConfig,
    ModelConfig,
    OptimConfig,
    PresampleConfig,
    RolloutConfig,
    SamplerConfig,
    SftConfig,
    TrainConfig,
    VerifyConfig,
    VerlConfig,
)
from dph.errors import SettingsError
from dph.integrations.verl.launch import write_launch
from dph.objective import Objective
from dph.stages.demo import demo
from dph.stages.evaluate import evaluate
from dph.stages.presample import presample
from dph.stages.sft import sft
from dph.stages.train import train
from dph.stages.verify import verify

TRAIN = TrainConfig(out="run", loss=LossConfig(eta=0.0))
VERL = VerlConfig(out="run", loss=LossConfig(eta=0.0), model=ModelConfig(path="model"))
VERL = replace(VERL, cluster=replace(VERL.cluster, gpus=0))
OUT_OF_BOUNDS = {
    "steps is -1; it must be 0 or more, and finite": (train, replace(TRAIN, steps=-1)),
    "steps is '9'; it must be 0 or more, and finite": (train, replace(TRAIN, steps="9")),
    "optim.lr is -1.0; it must be 0": (train, replace(TRAIN, optim=replace(TRAIN.optim, lr=-1.0))),
    "loss.kl_coef is -1.0; it must be 0": (train, replace(TRAIN, loss=LossConfig(kl="k3", kl_coef=-1.0))),
    "optim.beta1 is 1.5": (sft, SftConfig("run", optim=OptimConfig(beta1=1.5))),
    "stored is 0; it must be at least 1": (presample, PresampleConfig(out="run", stored=0)),
    "rollout.top_p is 2.0": (evaluate, EvalConfig("run", rollout=RolloutConfig(top_p=2.0))),
    "verifier.workers is 0": (verify, replace(VerifyConfig(), verifier=replace(VerifyConfig().verifier, workers=0))),
    "cluster.gpus is 0": (write_launch, VERL),
    "jobs is 0": (demo, DemoConfig(jobs=0)),
    "loss.clip_low is 1.5": (Objective, LossConfig(clip_low=1.5)),
    "loss.eta is -1.0": (Objective, LossConfig(eta=-1.0)),
    "model.lora_rank is set, but": (evaluate, EvalConfig("run", model=ModelConfig("m", lora_rank=2))),
    "rollout.prompts is set": (presample, PresampleConfig(out="run", rollout=RolloutConfig(n=8, prompts=1))),
    "sampler.tensor_parallel": (train, replace(TRAIN, sampler=SamplerConfig(tensor_parallel=2))),
    "loss.clip_high is inf": (Objective, LossConfig(clip_high=float("inf"))),
}
"""Settings that the command line refuses, given to the functions behind it."""


@pytest.mark.parametrize("message", OUT_OF_BOUNDS)
def test_bounds_hold_for_settings_filled_in_python(tmp_path, monkeypatch, message):
    monkeypatch.chdir(tmp_path)
    stage, config = OUT_OF_BOUNDS[message]
    with pytest.raises(SettingsError, match=message):
        stage(config)
    assert not list(tmp_path.iterdir())
