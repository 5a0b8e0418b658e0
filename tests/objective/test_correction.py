"""Truncated importance sampling between two engines, by enumeration over a small vocabulary."""

import math

import pytest
import torch

from dph.objective.correction import sampler_correction

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
