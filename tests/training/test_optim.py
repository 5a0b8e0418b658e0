"""Master weights: an optimizer step on fp32 copies, rounded to parameters of 16 bits."""

import pytest
import torch

from dph.config import ModelConfig, OptimConfig
from dph.models.policy import Policy
from dph.training import checkpoints
from dph.training.checkpoints import TrainState
from dph.training.optim import Optimizer
from dph.training.rows import collate
from helpers import random_rows, tiny_policy

CONFIG = OptimConfig(lr=1e-3, weight_decay=0.1, grad_clip=0.5)


def pair(values):
    """The same weights as parameters of 16 and of 32 bits, each with its optimizer."""
    narrow = torch.nn.Parameter(values.bfloat16())
    wide = torch.nn.Parameter(values.bfloat16().float())
    return (narrow, Optimizer([("w", narrow)], CONFIG, 10)), (wide, Optimizer([("w", wide)], CONFIG, 10))


def test_a_step_is_the_fp32_step_on_the_same_gradient_then_rounded():
    generator = torch.Generator().manual_seed(0)
    (narrow, own), (wide, plain) = pair(torch.randn(40, 30, generator=generator))
    unchanged = narrow.detach().clone()
    for _ in range(4):
        gradient = torch.randn(40, 30, generator=generator).bfloat16()
        narrow.backward(gradient)
        wide.backward(gradient.float())
        assert narrow.grad is None  # the copy has it
        assert own.step() == plain.step()
        assert torch.equal(own.parameters[0], wide) and torch.equal(narrow, wide.bfloat16())
    assert not bool((wide == unchanged.float()).any()) and bool((narrow == unchanged).any())


def test_gradients_of_micro_batches_are_summed_in_fp32():
    (narrow, own), _ = pair(torch.ones(3))
    for part in (256.0, 1.0, 1.0):  # in bf16, 256 + 1 is 256
        narrow.backward(torch.full((3,), part, dtype=torch.bfloat16))
    assert own.parameters[0].grad is not None and own.parameters[0].grad.tolist() == [258.0] * 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_summed_over_passes_and_a_parameter_without_one_is_skipped(dtype):
    used, unused = (torch.nn.Parameter(torch.ones(5, dtype=dtype)) for _ in range(2))
    optimizer = Optimizer([("used", used), ("unused", unused)], OptimConfig(lr=0.5, weight_decay=0.1), 10)
    stepped, other = optimizer.parameters
    for step in (1.0, 2.0):
        (step * used).sum().backward()
        (3 * used).sum().backward()
        assert stepped.grad is not None and stepped.grad.tolist() == [step + 3.0] * 5
        assert other.grad is None, "a parameter without a gradient is skipped, without weight decay"
        optimizer.step()
        assert stepped.grad is None
    assert unused.tolist() == [1.0] * 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_checkpoint_reads_the_moments_where_they_are(dtype):
    """A copy of two moments and a master weight would take 8 to 12 bytes a parameter more while it is written."""
    parameter = torch.nn.Parameter(torch.ones(40, 30, dtype=dtype))
    optimizer = Optimizer([("w", parameter)], CONFIG, 10)
    parameter.backward(torch.ones(40, 30, dtype=dtype))
    optimizer.step()
    first, second = optimizer.state(), optimizer.state()  # both are alive: a copy would be at another place
    assert first.keys() == {"w/step", "w/exp_avg", "w/exp_avg_sq"} | (
        {"w/master"} if dtype == torch.bfloat16 else set()
    )
    assert all(first[name].data_ptr() == second[name].data_ptr() for name in first)
    assert not any(value.requires_grad for value in first.values())
    parameter.backward(torch.ones(40, 30, dtype=dtype))
    optimizer.step()
    assert first["w/step"] == 2, "a later step is seen in what was read before"


def test_steps_smaller_than_bf16_resolves_add_up():
    parameter = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    optimizer = Optimizer([("w", parameter)], OptimConfig(lr=1e-3, weight_decay=0.0), 100)
    seen = []
    for _ in range(8):
        parameter.backward(torch.ones(1, dtype=torch.bfloat16))
        optimizer.step()
        seen.append(float(parameter.detach()))
    # Adam moves by lr: 1 − 0.001·k. Below 1, bf16 has steps of 2^-8 ≈ 0.0039, so the rounded weight moves at k = 2
    # (0.998 → 0.99609) and k = 6 (0.994 → 0.99219)
    assert seen == pytest.approx([1.0] + [0.99609375] * 4 + [0.9921875] * 3)


def test_resuming_with_master_weights_is_exact(tmp_path):
    tiny_policy().save(tmp_path / "begun")

    def load(path):
        policy = Policy.load(ModelConfig(path=str(path), device="cpu", precision="bf16_master"))
        return policy, Optimizer(policy.trainable(), OptimConfig(lr=1e-4), 10)

    def step(policy, optimizer, seed):
        policy.logprobs(collate(random_rows(policy, 4, seed)))[0].sum().backward()
        optimizer.step()

    policy, optimizer = load(tmp_path / "begun")
    for seed in range(2):
        step(policy, optimizer, seed)
    saved = checkpoints.save(tmp_path, policy, optimizer, TrainState(step=2, optimizer_steps=2), keep=2)
    again, restored = load(saved / "model")
    checkpoints.restore(saved, again, restored)
    for seed in (2, 3):
        step(policy, optimizer, seed)
        step(again, restored, seed)
    assert (
        again.weight_hash() == policy.weight_hash() and again.weight_hash() != load(tmp_path / "begun")[0].weight_hash()
    )
    checkpoints.save(tmp_path / "a", policy, optimizer, TrainState(step=4, optimizer_steps=4), keep=2)
    checkpoints.save(tmp_path / "b", again, restored, TrainState(step=4, optimizer_steps=4), keep=2)
    for name in ("trainer.safetensors", "model/model.safetensors"):
        found = [(checkpoints.path_of(tmp_path / run, 4) / name).read_bytes() for run in "ab"]
        assert found[0] == found[1]
