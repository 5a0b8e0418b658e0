"""Oracles for group-relative advantages."""

import math
import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dph.objective.advantages import group_advantages

rewards_lists = st.lists(st.floats(-2, 2, width=32), min_size=2, max_size=8)


def test_golden_group():
    # r = 1, 0, 0, 0: mean ¼, unbiased variance (9/16 + 3/16)/3 = ¼, std ½; (1 − ¼)/½ = 1.5 and −¼/½ = −0.5
    advantages = group_advantages(torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=torch.float64))
    assert advantages[0].tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5], rel=3e-6)  # eps/std = 2e-6


def test_without_division_by_the_std():
    advantages = group_advantages(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), normalize_std=False)
    assert advantages[0].tolist() == [0.75, -0.25, -0.25, -0.25]


@settings(deadline=None)
@given(rewards=rewards_lists)
def test_agrees_with_the_standard_library(rewards):
    mean, std = statistics.fmean(rewards), statistics.stdev(rewards)
    expected = [(reward - mean) / (std + 1e-6) for reward in rewards]
    advantages = group_advantages(torch.tensor([rewards], dtype=torch.float64))[0].tolist()
    # fp64 rounding of the mean, 1e-15, over eps
    assert advantages == pytest.approx(expected, abs=1e-8)


@settings(deadline=None)
@given(reward=st.floats(-2, 2, width=32), size=st.integers(1, 16))
def test_equal_rewards_give_exactly_zero_in_fp32(reward, size):
    # 0.1 seven times has an fp32 mean that is not 0.1; over eps that would be an advantage of a few hundredths
    assert group_advantages(torch.full((1, size), reward)).abs().max() == 0.0


@settings(deadline=None)
@given(rewards=rewards_lists, data=st.data())
def test_invalid_rollouts_are_as_if_never_drawn(rewards, data):
    valid = data.draw(st.lists(st.booleans(), min_size=len(rewards), max_size=len(rewards)))
    kept = [reward for reward, ok in zip(rewards, valid, strict=True) if ok]
    with_nan = [reward if ok else math.nan for reward, ok in zip(rewards, valid, strict=True)]
    advantages = group_advantages(torch.tensor([with_nan], dtype=torch.float64), torch.tensor([valid]))[0].tolist()
    alone = group_advantages(torch.tensor([kept], dtype=torch.float64))[0].tolist() if len(kept) > 1 else [0.0]
    # another order of summation: fp64 rounding over eps
    assert [a for a, ok in zip(advantages, valid, strict=True) if ok] == pytest.approx(alone[: len(kept)], abs=1e-8)
    assert all(a == 0.0 for a, ok in zip(advantages, valid, strict=True) if not ok)


def test_groups_do_not_mix():
    rewards = torch.tensor([[1.0, 0.0, 1.0], [5.0, 5.0, 2.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    together = group_advantages(rewards)
    for row, group in zip(together, rewards, strict=True):
        torch.testing.assert_close(row, group_advantages(group[None])[0], rtol=0, atol=0)


def test_shift_invariant_and_zero_mean():
    rewards = torch.tensor([[0.2, 1.0, 0.0, 0.7]], dtype=torch.float64)
    advantages = group_advantages(rewards)
    torch.testing.assert_close(group_advantages(rewards + 3), advantages, rtol=0, atol=1e-12)  # fp64 at std 0.45
    assert float(advantages.sum()) == pytest.approx(0, abs=1e-12)
