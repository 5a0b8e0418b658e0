"""Weights between two models: the formula, what is refused, and the two ways to ask for it."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from complaints import complaint, run
from dph.config import ModelConfig, SftConfig, to_toml
from dph.errors import ModelError
from dph.models.interpolation import interpolated, save_share
from dph.models.policy import Policy
from dph.models.scratch import new_policy
from dph.stages.sft import sft
from dph.stages.train import train
from helpers import TEXTS, TINY, base_run, tiny_policy, train_config, weights

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft


@pytest.fixture
def saved(tmp_path):
    """Folders of two random models of the same kind."""
    for name, seed in (("first", 1), ("last", 2)):
        tiny_policy(seed).save(tmp_path / name)
    return tmp_path / "first", tmp_path / "last"


@pytest.mark.parametrize("weight", [-0.5, 0.0, 0.25, 1.0, 1.5])
def test_every_weight_lies_on_the_line_through_the_two(saved, weight):
    first, last = (weights(path) for path in saved)
    found = dict(interpolated(ModelConfig(str(saved[0])), str(saved[1]), weight).model.named_parameters())
    assert found.keys() <= first.keys() | {"lm_head.weight"}
    for name in first.keys() & found.keys():
        torch.testing.assert_close(found[name].data, (1 - weight) * first[name] + weight * last[name])


def test_weights_of_16_bits_are_interpolated_in_32(saved):
    config = ModelConfig(str(saved[0]), precision="bf16_master")
    found = dict(interpolated(config, str(saved[1]), 0.5).model.named_parameters())
    first, last = (weights(path) for path in saved)
    name = "model.norm.weight"
    assert found[name].dtype == torch.bfloat16
    rounded = (first[name].bfloat16().float() + last[name].bfloat16().float()) / 2
    assert torch.equal(found[name].data, rounded.bfloat16())


def test_models_that_do_not_fit_together_are_refused(saved, tmp_path):
    other = new_policy(replace(TINY, hidden=16), TEXTS, 0)
    other.save(tmp_path / "narrow")
    with pytest.raises(ModelError, match="different shapes: they differ in "):
        interpolated(ModelConfig(str(saved[0])), str(tmp_path / "narrow"), 0.5)
    other = new_policy(TINY, [*TEXTS, "more words"], 0)
    other.save(tmp_path / "wordy")
    with pytest.raises(ModelError, match="different tokenizers"):
        interpolated(ModelConfig(str(saved[0])), str(tmp_path / "wordy"), 0.5)


def test_a_training_run_and_the_command_make_the_same_model(tmp_path, capsys):
    whole = train(train_config(tmp_path / "whole", "dph_js"))
    part = train(train_config(tmp_path / "part", "dph_js", {"trained_share": 0.25}))
    status, said = run(capsys, "interpolate", whole, "--weight", 0.25, "--out", tmp_path / "model")
    assert status == 0, said
    assert Policy.load(ModelConfig(str(part / "model"))).weight_hash() == (
        Policy.load(ModelConfig(str(tmp_path / "model"))).weight_hash()
    )
    assert "not the weights of the run itself but 0.75·initial + 0.25·trained" in (
        tmp_path / "model" / "README.md"
    ).read_text("utf-8")
    assert "| trained_share | 0.25 |" in (part / "model" / "README.md").read_text("utf-8")
    assert "| trained_share" not in (whole / "model" / "README.md").read_text("utf-8")
    newest = max((part / "checkpoints").glob("step-*"))
    assert load_file(newest / "model" / "model.safetensors").keys() == weights(whole / "model").keys()
    for name, value in weights(newest / "model").items():  # checkpoints go on from the trained weights
        assert torch.equal(value, weights(whole / "model")[name])


@pytest.mark.parametrize("targets", ["all-linear", "lm_head"])
def test_adapters_are_merged_first(tmp_path, targets):
    settings = {"model": {"lora_rank": 2, "lora_targets": targets}, "optim": {"lr": 0.05}}
    whole = train(train_config(tmp_path / "whole", "grpo", settings))
    part = train(train_config(tmp_path / "part", "grpo", {**settings, "trained_share": 0.5}))
    first, last, found = (weights(path) for path in (base_run() / "model", whole / "model", part / "model"))
    assert found.keys() == last.keys() == first.keys() | ({"lm_head.weight"} if targets == "lm_head" else set())
    first.setdefault("lm_head.weight", first["model.embed_tokens.weight"])  # tied
    for name, value in found.items():
        torch.testing.assert_close(value, (first[name] + last[name]) / 2)
    assert any(not torch.equal(value, first[name]) for name, value in last.items())


def with_adapters(folder, targets):
    """A policy whose embeddings are tied in its files, with random adapters."""
    if not folder.exists():
        tiny_policy().save(folder)
    policy = Policy.load(ModelConfig(str(folder), device="cpu", lora_rank=2, lora_targets=targets))
    generator = torch.Generator().manual_seed(3)
    for _, parameter in policy.trainable():
        parameter.data.normal_(0, 0.1, generator=generator)
    return policy


def logits(model):
    with torch.no_grad():
        return model(input_ids=torch.tensor([[3, 4, 5, 6]])).logits


@pytest.mark.parametrize("targets", ["lm_head", "embed_tokens", "embed_tokens,lm_head", "q_proj"])
@pytest.mark.parametrize("weight", [0.25, 1.0])
def test_adapters_of_tied_embeddings_untie_them_for_every_program(tmp_path, targets, weight):
    """The delta of an adapter times its share is the adapter with one of its matrices times the share."""
    policy = with_adapters(tmp_path / "base", targets)
    save_share(policy, ModelConfig(str(tmp_path / "base"), device="cpu"), weight, tmp_path / "out")
    for name, parameter in policy.trainable():
        if "_B" in name:
            parameter.data.mul_(weight)
    found = Policy.load(ModelConfig(str(tmp_path / "out"), device="cpu"))
    torch.testing.assert_close(logits(found.model), logits(policy.model), rtol=1e-5, atol=1e-4)
    tied = targets == "q_proj"
    assert json.loads((tmp_path / "out" / "config.json").read_text())["tie_word_embeddings"] == tied
    assert ("lm_head.weight" in weights(tmp_path / "out")) != tied
    assert policy.model.config.tie_word_embeddings, "the model in memory is as before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "out"]


@pytest.mark.parametrize("untied", ["first", "last"])
def test_embeddings_that_one_model_ties_are_not_tied_between_the_two(saved, untied):
    other = with_adapters(saved[0].parent / untied, "lm_head")
    other.save(saved[0].parent / "merged")
    pair = {"first": saved[0], "last": saved[1], untied: saved[0].parent / "merged"}
    found = interpolated(ModelConfig(str(pair["first"]), device="cpu"), str(pair["last"]), 0.25)
    found.save(saved[0].parent / "out")
    first, last, out = (weights(path) for path in (pair["first"], pair["last"], saved[0].parent / "out"))
    assert "lm_head.weight" in out
    for name, value in out.items():
        start, end = (x.get(name, x["model.embed_tokens.weight"]) for x in (first, last))
        torch.testing.assert_close(value, 0.75 * start + 0.25 * end)


def test_folders_of_adapters_are_refused_before_anything_is_trained(tmp_path):
    policy = with_adapters(tmp_path / "base", "q_proj")
    policy.model.save_pretrained(tmp_path / "adapters")
    policy.tokenizer.save_pretrained(tmp_path / "adapters")
    folder = str(tmp_path / "adapters")
    for config in (ModelConfig(folder, device="cpu"), ModelConfig(folder, device="cpu", lora_rank=2)):
        with pytest.raises(ModelError, match="holds adapters"):
            Policy.to_train(config)
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "x", "response": "y"}')
    with pytest.raises(ModelError, match="holds adapters"):
        sft(SftConfig(str(tmp_path / "run"), str(rows), model=ModelConfig(folder, device="cpu")))
    for pair in ((folder, str(tmp_path / "base")), (str(tmp_path / "base"), folder)):
        with pytest.raises(ModelError, match="holds adapters"):
            interpolated(ModelConfig(pair[0], device="cpu"), pair[1], 0.5)
    assert logits(Policy.load(ModelConfig(folder, device="cpu")).model).equal(logits(policy.model))


def test_models_without_a_run_are_interpolated_too(saved, tmp_path, capsys):
    status, said = run(capsys, "interpolate", saved[1], "--initial", saved[0], "--out", tmp_path / "out")
    assert status == 0, said
    first, last = (weights(path) for path in saved)
    for name, value in weights(tmp_path / "out").items():
        torch.testing.assert_close(value, (first[name] + last[name]) / 2)


def test_two_calls_make_the_mean_of_three_checkpoints(tmp_path, capsys):
    path = train(train_config(tmp_path / "run", "grpo", steps=3, checkpoint_every=1, keep_checkpoints=3))
    models = [path / "checkpoints" / f"step-{step:08d}" / "model" for step in (1, 2, 3)]
    steps = ((models[1], models[0], 0.5, "two"), (models[2], tmp_path / "two", 1 / 3, "three"))
    for trained, initial, weight, out in steps:
        words = ("interpolate", trained, "--initial", initial, "--weight", weight, "--out", tmp_path / out)
        status, said = run(capsys, *words)
        assert status == 0, said
    every = [weights(model) for model in models]
    for name, value in weights(tmp_path / "three").items():
        torch.testing.assert_close(value, sum(one[name] for one in every) / 3)
    assert any(not torch.equal(every[0][name], every[2][name]) for name in every[0])


KILLED = """
import os, sys
from pathlib import Path
import helpers  # the task of this test
from dph.cli.main import main
from dph.models.policy import Policy
save = Policy.save

def killed(policy, path, *state):
    save(policy, path, *state)
    if Path(sys.argv[1]) in (path.parent, path.parent.parent):
        os.kill(os.getpid(), 9)

Policy.save = killed
main(sys.argv[2:])
"""


def killed(folder, *words):
    """Run a command that is killed when it has written a model into a folder, or into a folder in it."""
    command = [sys.executable, "-c", KILLED, str(folder), *map(str, words)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    left = [path for path in folder.rglob("model.safetensors") if ".tmp" in str(path)]
    assert len(left) == 1  # a whole model


@pytest.mark.skipif(os.name == "nt", reason="Windows does not lock directories")
def test_a_killed_interpolation_leaves_nothing_after_the_next(saved, tmp_path, capsys):
    words = ("interpolate", saved[1], "--initial", saved[0], "--out")
    killed(tmp_path, *words, tmp_path / "out")
    status, said = run(capsys, *words, tmp_path / "other")
    assert status == 0, said
    assert {path.name for path in tmp_path.iterdir()} == {"first", "last", "other"}
    files = {path.name for path in (tmp_path / "other").iterdir()}
    assert {"config.json", "model.safetensors"} < files and not any(name.startswith((".", "tmp")) for name in files)


@pytest.mark.skipif(os.name == "nt", reason="Windows does not lock directories")
def test_a_run_that_is_killed_among_its_weights_leaves_nothing_after_it_is_resumed(tmp_path):
    """The trained weights and the mean are both written at the end."""
    config = train_config(tmp_path / "run", "grpo", trained_share=0.5)
    (tmp_path / "train.toml").write_text(to_toml(config))
    killed(tmp_path / "run", "train", "--config", tmp_path / "train.toml")
    run = train(config, resume=True)
    assert {path.name for path in run.iterdir() if path.name.startswith((".", "tmp", "model"))} == {"model"}
    assert {path.name for path in (run / "model").iterdir()} >= {"model.safetensors", "README.md"}
    assert not [path for path in (run / "model").iterdir() if path.is_dir()]


def test_the_command_says_what_is_wrong(tmp_path, capsys):
    assert "needs a run and a folder" in complaint(capsys, "interpolate", base_run())
    there = tmp_path / "there"
    there.mkdir()
    assert "exists already" in complaint(capsys, "interpolate", base_run(), "--out", there)
    untold = "does not tell which model it began with; name a run of sft or train, or that model with --initial"
    assert untold in complaint(capsys, "interpolate", base_run(), "--out", tmp_path / "out")
    assert untold in complaint(capsys, "interpolate", base_run() / "model", "--out", tmp_path / "out")
    assert "between -1 and 3" in complaint(capsys, "interpolate", base_run(), "--weight", 4, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
