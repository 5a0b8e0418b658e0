"""Log-probabilities from a linear head in chunks: values and gradients of the plain computation, without its memory."""

from typing import Any

import pytest
import torch
from torch.nn.functional import linear

from dph.models.logprobs import chunked_logprobs, linear_logprobs, token_logprobs

STATES, WIDTH, VOCABULARY = 23, 8, 31
EXACT = 1e-6
"""fp32: values in nats, and gradients relative to the largest."""


def inputs(dtype=torch.float32, bias=True) -> Any:
    """Hidden states, a head, and tokens of which some share a state, in no order; one state predicts nothing."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(STATES, WIDTH, generator=generator)
    weight = 0.5 * torch.randn(VOCABULARY, WIDTH, generator=generator)
    shift = torch.randn(VOCABULARY, generator=generator) if bias else None
    states = torch.cat([torch.arange(STATES - 1), torch.tensor([3, 3, 0, 11])])[torch.randperm(26, generator=generator)]
    targets = torch.randint(VOCABULARY, (26,), generator=generator)
    tensors = [None if x is None else x.to(dtype).requires_grad_() for x in (hidden, weight, shift)]
    return tensors, states, targets


def plain(hidden, weight, bias, states, targets, temperature, entropy):
    return token_logprobs(linear(hidden, weight, bias), states, targets, temperature, entropy)


def evaluated(function, given, *more):
    """Log-probabilities, entropies, and gradients of a weighted sum of both."""
    tensors, states, targets = given
    logprobs, entropies = function(*tensors, states, targets, *more)
    slopes = torch.linspace(-1, 1, len(states)).to(logprobs.dtype)
    total = (slopes * logprobs).sum()
    if entropies is not None and entropies.requires_grad:
        total = total + (slopes.flip(0) * entropies).sum()
    gradients = torch.autograd.grad(total, [x for x in tensors if x is not None])
    return [logprobs.detach(), *([] if entropies is None else [entropies.detach()])], gradients


@pytest.mark.parametrize("size", [1, 7, STATES, 100])
@pytest.mark.parametrize("entropy", ["none", "value", "gradient"])
@pytest.mark.parametrize(("temperature", "bias"), [(1.0, False), (0.7, True)])
def test_chunks_of_any_size_compute_what_all_logits_give(size, entropy, temperature, bias):
    values, gradients = evaluated(plain, inputs(bias=bias), temperature, entropy)
    found, slopes = evaluated(linear_logprobs, inputs(bias=bias), temperature, entropy, size)
    assert len(found) == len(values) == (1 if entropy == "none" else 2)
    for value, expected in zip(found, values, strict=True):
        assert float((value - expected).abs().max()) <= 2 * EXACT  # logits reach 5: an ulp is 5e-7
    for slope, expected in zip(slopes, gradients, strict=True):
        assert float((slope - expected).abs().max()) <= EXACT * float(expected.abs().max())


@pytest.mark.parametrize("size", [1, 7, STATES])
@pytest.mark.parametrize("scale", [1.0, 2.0**12])
def test_masked_tokens_change_neither_entropies_nor_gradients(size, scale):
    """A head whose bias is −∞ for two thirds of the vocabulary, against the head of the other tokens in float64."""
    (hidden, weight, bias), states, targets = inputs()
    left = torch.arange(0, VOCABULARY, 3)
    targets = targets % len(left)
    masked = torch.full((VOCABULARY,), -torch.inf)
    masked[left] = scale * bias.detach()[left]
    tensors = [hidden, (scale * weight.detach()).requires_grad_(), masked.requires_grad_()]
    values, slopes = evaluated(linear_logprobs, (tensors, states, left[targets]), 0.7, "gradient", size)
    part = [tensors[0], tensors[1][left], tensors[2][left]]
    part = [x.detach().double().requires_grad_() for x in part]
    expected, exact = evaluated(plain, (part, states, targets), 0.7, "gradient")
    wide = [exact[0], *(torch.zeros_like(x, dtype=torch.float64) for x in slopes[1:])]
    for whole, some in zip(wide[1:], exact[1:], strict=True):
        whole[left] = some
    for found, truth in zip([*values, *slopes], [*expected, *wide], strict=True):
        # the logits themselves have the rounding of fp32, which is as large as they are
        assert float((found - truth).abs().max()) <= 4 * EXACT * scale * float(truth.abs().max().clamp(min=1.0))


def test_gradients_are_those_of_finite_differences():
    (hidden, weight, bias), states, targets = inputs(torch.float64)

    def compute(hidden, weight, bias) -> Any:
        logprobs, entropies = linear_logprobs(hidden, weight, bias, states, targets, 0.7, "gradient", 7)
        assert entropies is not None
        return logprobs, entropies

    assert torch.autograd.gradcheck(compute, (hidden, weight, bias))


def test_a_head_that_is_also_the_input_embedding_gets_both_gradients():
    tokens = torch.randint(VOCABULARY, (STATES,), generator=torch.Generator().manual_seed(1))
    found = []
    for function, more in ((plain, ()), (linear_logprobs, (7,))):
        (_, weight, _), states, targets = inputs()
        logprobs, _ = function(weight[tokens], weight, None, states, targets, 1.0, "none", *more)
        found.append(torch.autograd.grad(logprobs.square().sum(), weight)[0])
    assert float((found[1] - found[0]).abs().max()) <= EXACT * float(found[0].abs().max())


def test_a_frozen_head_gets_no_gradient():
    (hidden, weight, bias), states, targets = inputs()
    logprobs, _ = linear_logprobs(hidden, weight.detach(), bias.detach(), states, targets, 1.0, "value", 7)
    logprobs.sum().backward()
    assert hidden.grad is not None and weight.grad is None


def test_bfloat16_is_as_exact_as_all_logits_and_sums_the_heads_gradient_in_fp32():
    given = inputs(bias=False)
    _, exact = evaluated(plain, given, 0.7, "none")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        usual_values, usual = evaluated(plain, inputs(bias=False), 0.7, "none")
        values, found = evaluated(linear_logprobs, inputs(bias=False), 0.7, "none", 1)
    assert torch.equal(values[0], usual_values[0]) and found[1].dtype == torch.float32
    for slope, other, truth in zip(found, usual, exact, strict=True):
        assert 0 < float((slope - truth).norm()) <= 1.2 * float((other - truth).norm())
    assert not torch.equal(found[1], found[1].bfloat16().float()), "nor is it rounded afterwards"


@pytest.mark.parametrize("wraps", [False, True])
def test_no_tensor_of_all_logits_is_kept(monkeypatch, wraps):
    """Neither for a linear head nor for one that is wrapped, as one with adapters is."""
    monkeypatch.setattr("dph.models.logprobs.LOGITS_AT_ONCE", 7 * VOCABULARY)
    (hidden, weight, _), states, targets = inputs()
    head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)
    head.weight = torch.nn.Parameter(weight.detach())
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        logprobs, _ = chunked_logprobs(
            torch.nn.Sequential(head) if wraps else head, VOCABULARY, hidden, states, targets, 0.7, "value"
        )
    assert logprobs.requires_grad and max(kept) < STATES * VOCABULARY // 2
