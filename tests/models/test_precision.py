"""Precisions: what they compute, what "auto" chooses and keeps, and weights of 16 bits in every part of a policy."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from dph.config import ModelConfig
from dph.config.sampling import SamplingParams
from dph.models import device as devices
from dph.models.batch import Tokens
from dph.models.device import choose_precision, settled
from dph.models.policy import Policy
from dph.runs.directory import RunDir
from dph.sampling.generate import HFSampler
from helpers import tiny_policy

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft


@pytest.fixture
def saved(tmp_path):
    tiny_policy().save(tmp_path / "model")
    return str(tmp_path / "model")


def test_weights_of_16_bits_give_the_log_probabilities_of_the_rounded_weights(saved):
    narrow = Policy.load(ModelConfig(path=saved, device="cpu", precision="bf16_master"))
    assert {p.dtype for p in narrow.model.parameters()} == {torch.bfloat16} and narrow.precision == "bf16"
    wide = Policy.load(ModelConfig(path=saved, device="cpu"))
    with torch.no_grad():
        for parameter in wide.model.parameters():
            parameter.copy_(parameter.bfloat16())
    rows = [Tokens([2, 3, 4], [5, token, 6]) for token in range(3)]
    assert narrow.weight_hash() == wide.weight_hash()
    found, exact = (torch.tensor(policy.response_logprobs(rows, 0.7, 100)) for policy in (narrow, wide))
    error = float((found - exact).abs().max())
    assert 0 < error < 0.3  # as for autocast in test_prefix.py
    with narrow.in_precision("fp32"):
        again = torch.tensor(narrow.response_logprobs(rows, 0.7, 100))
    assert torch.equal(again, exact) and {p.dtype for p in narrow.model.parameters()} == {torch.bfloat16}


def test_weights_of_16_bits_are_sampled_with_shared_prompts(saved, capsys):
    policy = Policy.load(ModelConfig(path=saved, device="cpu", precision="bf16_master"))
    capsys.readouterr()
    prompts = [[2, 3, 4, 5], [6, 7]]
    groups = HFSampler(policy).sample(prompts, SamplingParams(3, max_tokens=8), [1, 2])
    assert "because of this model" not in capsys.readouterr().err
    sampled = [(prompt, one) for prompt, group in zip(prompts, groups, strict=True) for one in group]
    again = policy.response_logprobs([Tokens(prompt, one.token_ids) for prompt, one in sampled], 1.0, 1000)
    before = torch.tensor([value for _, one in sampled for value in one.logprobs])
    after = torch.tensor([value for own in again for value in own])
    assert 0 < float((before - after).abs().mean()) < 0.1  # at most the limit of dph.rehearsal.check for bf16


def test_an_exported_model_of_16_bits_loads_anywhere_with_the_same_weights(saved, tmp_path):
    policy = Policy.load(ModelConfig(path=saved, device="cpu", precision="bf16_master"))
    policy.save(tmp_path / "out")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto")
    assert plain.dtype == torch.bfloat16
    for setting in ("fp32", "bf16_master"):
        again = Policy.load(ModelConfig(path=str(tmp_path / "out"), device="cpu", precision=setting))
        assert again.weight_hash() == policy.weight_hash()


def test_adapters_of_weights_of_16_bits_stay_in_fp32(saved):
    model = ModelConfig(path=saved, device="cpu", precision="bf16_master", lora_rank=2)
    policy = Policy.load(model)
    assert {p.dtype for _, p in policy.trainable()} == {torch.float32}
    policy.response_logprobs([Tokens([2, 3], [4])], 1.0, 100)


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"amx_bf16": True, "avx512_bf16": True}, "bf16"),
        ({"amx_bf16": False, "avx512_bf16": True}, "bf16"),
        ({"amx_bf16": False, "avx512_bf16": False, "avx512_f": True}, "fp32"),
        ({"architecture": "arm64"}, "fp32"),
    ],
)
def test_auto_takes_bf16_on_a_cpu_that_multiplies_matrices_in_it(saved, monkeypatch, capsys, capabilities, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    policy = Policy.load(ModelConfig(path=saved, device="cpu", precision="auto"))
    assert policy.precision == expected
    assert f"auto is {expected} on cpu" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("supported", "expected"), [(True, "bf16"), (False, "fp32")])
def test_auto_takes_bf16_on_a_gpu_that_has_it(monkeypatch, supported, expected):
    monkeypatch.setattr(devices, "choose_device", lambda name: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    assert choose_precision(ModelConfig()) == expected


def test_a_run_chooses_once(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(devices, "choose_precision", lambda *args: calls.append(args) or "bf16")
    model, out = ModelConfig(path="m", precision="auto"), tmp_path / "run"
    run = RunDir.start(str(out), "eval", model)
    assert settled(model, run) == replace(model, precision="bf16")
    assert settled(model, RunDir.open(out, "eval")) == replace(model, precision="bf16") and len(calls) == 1
    assert settled(replace(model, precision="fp32"), run).precision == "fp32" and len(calls) == 1
