"""Truncated importance sampling between two engines, by enumeration over a small vocabulary."""

import math

import pytest
import torch

from dph.config import LossConfig
from dph.objective import LossCounts, Objective, TokenBatch, sampler_correction

SAMPLER = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
TRAINER = torch.tensor([0.4, 0.3, 0.1, 0.2], dtype=torch.float64)


def every_token(cap):
    """Each token of the vocabulary as one sample: expectations are sums weighed by the sampler's probabilities."""
    old, sampled, mask = TRAINER.log()[None], SAMPLER.log()[None], torch.ones(1, 4)
    weights, _ = sampler_correction(old, sampled, mask, cap)
    return weights[0]


def test_without_a_cap_expectations_are_the_trainers():
    values = torch.tensor([1.0, -2.0, 3.0, 5.0], dtype=torch.float64)
    assert float((SAMPLER * every_token(1e9) * values).sum()) == pytest.approx(float((TRAINER * values).sum()))


def test_the_cap():
    """Ratios are 0.8, 1, 2/3 and 4."""
    assert every_token(2.0).tolist() == pytest.approx([0.8, 1, 2 / 3, 2])
    assert every_token(0.0).tolist() == [1, 1, 1, 1]


def test_the_kl_estimate_is_unbiased():
    total = 0.0
    for token in range(4):
        part = torch.tensor([[token]])
        _, sums = sampler_correction(TRAINER.log()[part], SAMPLER.log()[part], torch.ones(1, 1), 2.0)
        total += float(SAMPLER[token] * sums["exp/sampler_kl"])
        assert float(sums["exp/sampler_kl"]) >= 0
        assert float(sums["exp/sampler_gap"]) == pytest.approx(abs(math.log(TRAINER[token] / SAMPLER[token])))
    assert total == pytest.approx(float((SAMPLER * (SAMPLER / TRAINER).log()).sum()))


def test_what_is_masked_does_not_count():
    old = torch.tensor([[-1.0, -torch.inf, -3.0]])
    sampled = torch.tensor([[-1.5, 0.0, torch.nan]])
    weights, sums = sampler_correction(old, sampled, torch.tensor([[1.0, 0.0, 0.0]]), 0.0)
    assert torch.isfinite(weights).all() and {name: float(v) for name, v in sums.items()} == {
        "exp/sampler_gap": 0.5,
        "exp/sampler_kl": pytest.approx(math.exp(0.5) - 1.5),
        "exp/importance": 1.0,
    }


REF = torch.tensor([0.1, 0.25, 0.6, 0.05], dtype=torch.float64)
ADVANTAGES = torch.tensor([1.0, -0.5, 0.25, 2.0], dtype=torch.float64)


def kl(p, q):
    return (p * (p / q).log()).sum()


EXACT = {
    "policy loss": (LossConfig(eta=0.0), lambda pi: -(pi * ADVANTAGES).sum()),
    "KL": (LossConfig(eta=0.0, kl="k3_is", kl_coef=0.7), lambda pi: -(pi * ADVANTAGES).sum() + 0.7 * kl(pi, REF)),
    "JS": (
        LossConfig(eta=0.6, estimator="definition", reduction="per_set"),
        lambda pi: -(pi * ADVANTAGES).sum() + 0.6 * 0.5 * kl(pi, (pi + REF) / 2),
    ),
    "entropy": (
        LossConfig(eta=0.0, entropy_coef=0.4),
        lambda pi: -(pi * ADVANTAGES).sum() + 0.4 * (pi * pi.log()).sum(),
    ),
}
"""Terms of the objective on rollouts, with the expectation whose gradient each must have."""


@pytest.mark.parametrize("term", EXACT)
def test_every_term_on_rollouts_of_another_engine_has_the_gradient_of_the_trainers_expectation(term):
    """Every token of the vocabulary once: the mean over rows is the expectation under a uniform sampler."""
    config, exact = EXACT[term]
    logits = TRAINER.log().requires_grad_()
    logprobs, old = logits.log_softmax(-1)[:, None], TRAINER.log()[:, None]
    batch = TokenBatch(old, REF.log()[:, None], torch.ones(4, 1), ADVANTAGES, torch.zeros(4, dtype=torch.bool))
    uniform = torch.full((4, 1), 0.25, dtype=torch.float64).log()
    importance, _ = sampler_correction(old, uniform, torch.ones(4, 1), cap=1e9)
    entropy = -(logprobs.exp() * logprobs).sum().expand(4, 1) if config.entropy_coef else None
    loss, _ = Objective(config)(logprobs, batch, LossCounts.of(batch), entropy, importance)
    (found,) = torch.autograd.grad(loss, logits)
    (expected,) = torch.autograd.grad(exact(logits.softmax(-1)), logits)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)  # fp64, sums of four terms of order one
