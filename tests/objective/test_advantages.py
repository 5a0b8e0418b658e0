"""Oracles for group-relative advantages."""

import math
import statistics
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dph.objective import ADVANTAGES, Advantage, GroupView, group_advantages
from dph.types import Outcome, Verdict

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


def test_rewards_whose_squares_no_fp32_holds():
    # r = 10³⁰, 0, 0, 0 is 1, 0, 0, 0 in another unit
    advantages = group_advantages(torch.tensor([[1e30, 0.0, 0.0, 0.0]]))
    assert advantages[0].tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5])


def test_equal_rewards_give_zero_without_eps():
    assert group_advantages(torch.full((1, 7), 0.7), eps=0.0).tolist() == [[0.0] * 7]


# All advantages by name ---------------------------------------------------------------------------------------------

ALL = {name: {} for name in ADVANTAGES} | {"mara": {"beta": "0.1"}}
WITHOUT_BASELINE = {"w_reinforce", "diff_smoothing"}
"""They train groups of equal rewards, too, as their pages say."""


def as_drawn(rewards, correct, valid, logprobs=None):
    """A group whose responses differ in likelihood, text and style, unless `logprobs` gives all the same one."""
    size = len(rewards)
    outcomes = [
        Outcome.INFRA_ERROR if not ok else Outcome.CORRECT if right else Outcome.WRONG
        for ok, right in zip(valid, correct, strict=True)
    ]
    likely = [logprobs or -0.1 * (1 + 7 * i % 5) for i in range(size)]
    return GroupView(
        rewards=torch.tensor(rewards),
        verdicts=[Verdict(outcome, 0.0) for outcome in outcomes],
        old_logprobs=[torch.tensor([value]) for value in likely],
        texts=[f"{i % 3}" for i in range(size)],
        style_of=lambda text: text,
        ref_logprobs=[torch.tensor([value]) for value in likely],
    )


@st.composite
def groups(draw, rewards, largest=64):
    size = draw(st.integers(1, largest))
    values = draw(st.lists(rewards, min_size=size, max_size=size))
    flags = st.lists(st.booleans(), min_size=size, max_size=size)
    return as_drawn(values, draw(flags), draw(flags))


def judged(name, group):
    return Advantage(name, ALL[name])(group)[group.valid].tolist()


@pytest.mark.parametrize("name", ALL)
@settings(deadline=None, max_examples=60)
@given(group=groups(st.floats(-(2.0**100), 2.0**100, width=32) | st.sampled_from([0.0, 1.0, -1.0, 1e-40])))
def test_advantages_are_finite_for_any_rewards(name, group):
    assert all(map(math.isfinite, judged(name, group)))


@pytest.mark.parametrize("name", [name for name in ALL if name not in WITHOUT_BASELINE])
@settings(deadline=None, max_examples=60)
@given(reward=st.floats(-(2.0**100), 2.0**100, width=32), correct=st.booleans(), size=st.integers(1, 64))
def test_equal_responses_get_exactly_zero(name, reward, correct, size):
    group = as_drawn([reward] * size, [correct] * size, [True] * size, logprobs=-0.3)
    assert judged(name, group) == [0.0] * size


@pytest.mark.parametrize("name", [name for name in ALL if name not in WITHOUT_BASELINE])
@pytest.mark.parametrize("reward", [0.0, 0.1, 0.7, 1.0, -0.3])
def test_equal_rewards_are_zero_in_fp32_whatever_the_size(name, reward):
    for size in range(1, 65):
        group = as_drawn([reward] * size, [reward == 1] * size, [True] * size, logprobs=-0.3)
        assert judged(name, group) == [0.0] * size


def bounds(name, group):
    """What the pages say of an advantage for |r| ≤ 1: the smallest and the largest value."""
    n = int(group.valid.sum())
    z = (n - 1) / math.sqrt(n)
    spread = 0.5 - 0.1  # of log π here
    return {
        "maxrl": (1 - n, n - 1),
        "rs_grpo": (-1 / 2, (n - 1) / 2),
        "passk": (-math.sqrt(n - 1), math.sqrt(n - 1)),
        "w_reinforce": (-1, 0.1),
        "mara": (-2 - 0.1 * spread, 2 + 0.1 * spread),
        "diff_smoothing": (-z - 0.01 * 0.5, z + 0.01 * 0.5),
    }.get(name, (-z, z))


@pytest.mark.parametrize("name", ALL)
@settings(deadline=None, max_examples=60)
@given(group=groups(st.floats(-1, 1, width=32)))
def test_advantages_lie_within_their_bounds(name, group):
    if not group.valid.any():
        return
    low, high = bounds(name, group)
    rounding = 1e-5 * max(1, high)  # of a few fp32 operations
    assert all(low - rounding <= value <= high + rounding for value in judged(name, group))


@pytest.mark.parametrize("name", ALL)
@settings(deadline=None, max_examples=40)
@given(group=groups(st.floats(-1, 1, width=32), largest=12), data=st.data())
def test_the_order_of_responses_and_lost_ones_change_nothing(name, group, data):
    kept = [i for i, ok in enumerate(group.valid.tolist()) if ok]
    if not kept:
        return
    order = data.draw(st.permutations(kept))

    def part(values):
        return [values[i] for i in order]

    other = GroupView(
        rewards=group.rewards[order],
        verdicts=part(group.verdicts),
        old_logprobs=part(group.old_logprobs),
        texts=part(group.texts),
        style_of=group.style_of,
        ref_logprobs=part(group.ref_logprobs),
    )
    found = dict(zip(kept, judged(name, group), strict=True))
    assert judged(name, other) == pytest.approx(part(found), rel=1e-5, abs=1e-5)  # another order of fp32 sums


@pytest.mark.parametrize("name", ["group", "f_grpo", "gated", "rs_grpo", "uniqueness"])
@settings(deadline=None, max_examples=40)
@given(group=groups(st.integers(-64, 64).map(lambda n: n / 64)))
def test_a_constant_added_to_all_rewards_changes_nothing(name, group):
    # multiples of 1/64: the sums with 3 are exact in fp32
    assert judged(name, replace(group, rewards=group.rewards + 3)) == judged(name, group)


@settings(deadline=None, max_examples=40)
@given(group=groups(st.floats(-1, 1, width=32)), factor=st.sampled_from([2.0**-20, 8.0, 2.0**40]))
def test_maxrl_does_not_depend_on_the_unit_of_rewards(group, factor):
    assert judged("maxrl", replace(group, rewards=group.rewards * factor)) == pytest.approx(
        judged("maxrl", group), rel=1e-5, abs=1e-6
    )
