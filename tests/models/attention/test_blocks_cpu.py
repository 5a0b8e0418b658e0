"""Gradients of attention by matrix products in blocks: those of the definition, as exact as torch's kernel."""

import pytest
import torch
from torch import Tensor

from dph.models.attention import blocks_cpu, split_cpu
from dph.models.batch import Tokens
from helpers import random_policy

SHAPES = {
    "one sequence": (1, 37, 37, 6, 2, 16),
    "responses": (5, 21, 21, 6, 6, 16),
    "shared key heads": (3, 33, 33, 8, 2, 12),
    "a prefix": (1, 40, 90, 6, 2, 16),
    "one query": (1, 1, 50, 6, 3, 16),
}
"""B, L, S, H, G and D; the queries of the last two see every key."""


def inputs(shape: tuple[int, ...], sharp: float) -> list[Tensor]:
    """Gradient of the outputs, queries, keys and values, in bf16; `sharp` queries look at few keys."""
    batch, length, keys, heads, shared, width = shape
    generator = torch.Generator().manual_seed(0)
    shapes = [(length, heads), (length, heads), (keys, shared), (keys, shared)]
    found = [torch.randn(batch, count, number, width, generator=generator) for count, number in shapes]
    found[1] *= sharp
    return [x.bfloat16() for x in found]


def by_definition(given: list[Tensor], causal: bool, scale: float, elsewhere: float) -> list[Tensor]:
    """Outputs, λ and gradients in fp64.

    elsewhere: weight of keys that are not among these and have values of 0, where these have a weight of 1 together.
    """
    grad, q, k, v = (x.double() for x in given)
    for x in (q, k, v):
        x.requires_grad_()
    ratio = q.shape[2] // k.shape[2]
    keys, values = (x.repeat_interleave(ratio, dim=2).transpose(1, 2) for x in (k, v))
    scores = scale * q.transpose(1, 2) @ keys.mT
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    inside = scores.logsumexp(-1)
    lse = torch.logaddexp(inside, inside.detach() + torch.tensor(elsewhere).log()) if elsewhere else inside
    out = ((scores - lse[..., None]).exp() @ values).transpose(1, 2)
    return [out.detach(), lse.detach().transpose(1, 2), *torch.autograd.grad(out, (q, k, v), grad)]


def error(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("block", [1 << 19, 700])
@pytest.mark.parametrize("sharp", [1.0, 6.0])
@pytest.mark.parametrize("name", SHAPES)
def test_gradients_are_those_of_the_definition(
    name: str, sharp: float, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks_cpu, "BLOCK_SCORES", block)
    monkeypatch.setattr(blocks_cpu, "FEWEST_QUERIES", 4)
    shape = SHAPES[name]
    causal, scale = shape[1] == shape[2], 0.3
    given = inputs(shape, sharp)
    grad, q, k, v = given
    out, lse, *exact = by_definition(given, causal, scale, 0.0)
    saved = grad, q, k, v, out.bfloat16(), lse.float()
    found = blocks_cpu.backward(*saved, causal, scale)
    usual = split_cpu.kernel_backward(saved, causal, scale)
    for value, other, truth in zip(found, usual, exact, strict=True):
        assert value.shape == truth.shape and value.dtype == torch.bfloat16
        assert error(value, truth) < 1.6 * error(other, truth) + 0.001 < 0.02


def test_keys_elsewhere_take_their_share() -> None:
    given = inputs(SHAPES["a prefix"], 1.0)
    grad, q, k, v = given
    out, lse, *exact = by_definition(given, False, 0.3, 3.0)
    found = blocks_cpu.backward(grad, q, k, v, out.bfloat16(), lse.float(), False, 0.3)
    for value, truth in zip(found, exact, strict=True):
        assert error(value, truth) < 0.01


def test_it_is_used_for_bf16_only(monkeypatch: pytest.MonkeyPatch) -> None:
    if not blocks_cpu.usable(torch.zeros(1, dtype=torch.bfloat16)):
        pytest.skip("this processor has no matrix products in bf16")
    assert not any(blocks_cpu.usable(torch.zeros(1, dtype=dtype)) for dtype in (torch.float32, torch.float16))
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not blocks_cpu.usable(torch.zeros(1, dtype=torch.bfloat16))


def test_scores_of_later_keys_may_be_as_large_as_they_like() -> None:
    grad, q, k, v = inputs(SHAPES["responses"], 1.0)
    k[:, -1] = 200 * q[:, 0]  # the last key, which the first query must not see: exp of its score is infinite
    out, lse, *exact = by_definition([grad, q, k, v], True, 1.0, 0.0)
    for value, truth in zip(
        blocks_cpu.backward(grad, q, k, v, out.bfloat16(), lse.float(), True, 1.0), exact, strict=True
    ):
        assert error(value, truth) < 0.02


def test_a_block_holds_whole_heads_or_some_queries_of_one() -> None:
    scores = blocks_cpu.BLOCK_SCORES * torch.get_num_threads()
    assert blocks_cpu.block_of(12, 3, 100, 100) == (min(12, scores // 30000), 100)
    at_once, span = blocks_cpu.block_of(12, 3, 5000, 5000)
    assert at_once == 1 and span == max(blocks_cpu.FEWEST_QUERIES, scores // 15000) < 5000


def test_the_gradient_of_a_model_is_as_exact_as_with_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = random_policy("llama", hidden_size=64, head_dim=16)
    prompts = [list(range(2, 17)), list(range(4, 12))]
    rows = [Tokens(prompt, [3 + (place * step) % 14 for step in range(9)]) for prompt in prompts for place in (1, 3, 5)]

    def gradient(precision: str, blocks: bool) -> Tensor:
        monkeypatch.setattr(blocks_cpu, "usable", lambda q: blocks and q.dtype == torch.bfloat16)
        policy.model.zero_grad()
        with policy.in_precision(precision):
            logprobs, _ = policy.logprobs(policy.collate(rows, shared=True))
            (logprobs * torch.linspace(-1, 1, logprobs.numel()).reshape(logprobs.shape)).sum().backward()
        return torch.cat([p.grad.flatten() for p in policy.model.parameters() if p.grad is not None]).clone()

    exact, usual, found = gradient("fp32", False), gradient("bf16", False), gradient("bf16", True)
    assert 0 < error(found, exact.double()) < 1.1 * error(usual, exact.double())
    assert not torch.equal(found, usual)
