"""Training in other precisions than fp32: runs resume exactly; a rehearsal set fits the weights that it came from."""

from dataclasses import replace

import pytest

from dph.config import ModelConfig
from dph.errors import RunError
from dph.models import loading as precision
from dph.models.policy import Policy
from dph.runs.directory import RunDir, read_metrics
from dph.stages.presample import presample
from dph.stages.train import train
from dph.training import loop
from helpers import base_run, interrupted_at, presample_config, train_config

MASTER = {"precision": "bf16_master"}


def test_an_interrupted_run_with_master_weights_goes_on_as_if_nothing_had_been(tmp_path, monkeypatch):
    settings = {"steps": 3, "checkpoint_every": 1, "model": MASTER, "optim": {"lr": 1e-4}}
    whole = train(train_config(tmp_path / "whole", "grpo", settings))
    config = train_config(tmp_path / "parts", "grpo", settings)
    monkeypatch.setattr(loop.Updater, "update", interrupted_at(loop.Updater.update, 3))
    with pytest.raises(KeyboardInterrupt):
        train(config)
    monkeypatch.undo()
    parts = train(config, resume=True)
    names = ["metrics.jsonl", "model/model.safetensors", "checkpoints/step-00000003/trainer.safetensors"]
    for name in names:
        assert (parts / name).read_bytes() == (whole / name).read_bytes(), name
    lines = read_metrics(parts)
    assert all(line["exp/ratio"] == pytest.approx(1, abs=0.1) for line in lines)
    assert all(line["exp/sampler_gap"] > 0 for line in lines)  # log π_old is the trainer's own
    loaded = Policy.load(ModelConfig(path=str(parts / "model"), device="cpu"))
    assert loaded.weight_hash() != Policy.load(ModelConfig(path=str(base_run() / "model"), device="cpu")).weight_hash()


def test_a_set_of_weights_in_fp32_does_not_fit_rounded_weights(tmp_path):
    with pytest.raises(RunError, match=r"weight_hash .* there"):
        train(train_config(tmp_path / "wrong", "dph_js", {"model": MASTER}))
    config = presample_config(tmp_path / "set")
    rounded = presample(replace(config, model=replace(config.model, precision="bf16_master")))
    settings = {"model": MASTER, "rehearsal": {"path": str(rounded)}}
    line = read_metrics(train(train_config(tmp_path / "right", "dph_js", settings)))[0]
    assert line["pef/tokens"] > 0


def test_a_resumed_run_keeps_the_precision_that_was_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(precision, "choose_precision", lambda *_: "bf16")
    settings = {"steps": 2, "checkpoint_every": 1, "model": {"precision": "auto"}}
    config = train_config(tmp_path / "run", "grpo", settings)
    monkeypatch.setattr(loop.Updater, "update", interrupted_at(loop.Updater.update, 2))
    with pytest.raises(KeyboardInterrupt):
        train(config)
    monkeypatch.undo()
    assert RunDir.open(tmp_path / "run", "train").manifest["precision"] == "bf16"
    monkeypatch.setattr(precision, "choose_precision", lambda *_: pytest.fail("measured again"))
    assert all(line["exp/sampler_gap"] > 0 for line in read_metrics(train(config, resume=True)))
