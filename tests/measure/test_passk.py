"""Oracles for pass@k and its relatives: enumeration of all subsets, exact combinatorics, known distributions. maj@k
against enumeration of all draws, and by hand.
"""

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dph.errors import UserError
from dph.measure.passk import (
    cover_at,
    coverage_shares,
    majority_at_k,
    mean_at_k,
    pass_at_k,
)


@pytest.mark.parametrize(("n", "c", "k"), [(n, c, k) for n in (1, 4, 6) for c in range(n + 1) for k in range(1, n + 1)])
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_sample(n, c, k):
    samples = [True] * c + [False] * (n - c)
    subsets = list(itertools.combinations(samples, k))
    assert float(pass_at_k(n, c, k)) == pytest.approx(sum(map(any, subsets)) / len(subsets), rel=1e-13, abs=1e-15)


@settings(deadline=None)
@given(n=st.integers(1, 300), data=st.data())
def test_pass_at_k_against_exact_binomials(n, data):
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    exact = 1 - math.comb(n - c, k) / math.comb(n, k)
    assert float(pass_at_k(n, c, k)) == pytest.approx(exact, abs=1e-12)  # up to 300 roundings of 1e-16


@pytest.mark.parametrize("p", [0.05, 0.3])
def test_pass_at_k_is_unbiased(p):
    n, k = 8, 4
    # E over c ~ Binomial(n, p) must be the true probability that one of k samples is correct
    chance = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    expected = sum(chance * pass_at_k(n, np.arange(n + 1), k))
    assert expected == pytest.approx(1 - (1 - p) ** k, rel=1e-12)
    # drawing with replacement, the estimator that must not be used, is too small
    replacement = [1 - (1 - c / n) ** k for c in range(n + 1)]
    assert sum(np.multiply(chance, replacement)) < expected - 0.01


def test_vectors():
    np.testing.assert_allclose(pass_at_k([4, 8], [1, 2], 2), [1 / 2, 1 - 15 / 28])  # C(6,2)/C(8,2) = 15/28


def test_shares_for_a_log_over_the_problems_with_enough_responses():
    # C(3,2)/C(4,2) = 1/2 for one of four; the problem with two responses has none right; the one without is left out
    found = coverage_shares([4, 2, 0], [1, 0, 0])
    expected = {"pass@2": (0.5 + 0) / 2, "pass@4": 1.0, "cover@0.5": 0.0, "cover@1": 0.0}
    assert {name: value for name, value in found.items() if name in expected} == pytest.approx(expected)
    assert found["pass@2/low"] == 0 and found["pass@2/high"] == 1  # two problems say next to nothing
    assert coverage_shares([1, 1], [1, 0]) == {}
    many = coverage_shares([8] * 40, [8] * 10 + [4] * 10 + [3] * 20)
    assert many["cover@0.5"] == 0.5 and many["cover@1"] == 0.25


def test_cover_counts_problems_with_enough_right_samples():
    assert cover_at([10, 10, 3, 3], [3, 2, 2, 1], 0.3).tolist() == [1, 0, 1, 1]  # 0.3 · 10 is not 3 in floats
    assert cover_at([3, 3], [2, 1], 2 / 3).tolist() == [1, 0]


def test_mean_at_k_is_pass_at_1():
    np.testing.assert_allclose(mean_at_k([4, 8], [1, 2]), pass_at_k([4, 8], [1, 2], 1))


def test_too_few_samples_and_impossible_counts():
    with pytest.raises(UserError, match="pass@8 needs at least 8 samples"):
        pass_at_k([16, 4], [1, 1], 8)
    with pytest.raises(UserError, match="k of at least 1"):
        pass_at_k(4, 1, 0)
    with pytest.raises(ValueError, match="0 ≤ c ≤ n"):
        pass_at_k(4, 5, 1)


def by_enumeration(answers, correct, k):
    total, draws = 0.0, list(itertools.combinations(range(len(answers)), k))
    for draw in draws:
        votes = [answers[i] for i in draw if answers[i] is not None]
        most = max(map(votes.count, votes), default=0)
        winners = {answer for answer in votes if votes.count(answer) == most}
        for winner in winners:
            verdicts = [good for answer, good in zip(answers, correct, strict=True) if answer == winner]
            total += sum(verdicts) / len(verdicts) / len(winners)
    return total / len(draws)


def test_all_draws_enumerated():
    rng = random.Random(0)
    for _ in range(150):
        answers = [rng.choice([None, *"aabcd"]) for _ in range(rng.randint(1, 9))]
        correct = [answer == "a" or (answer == "b" and rng.random() < 0.5) for answer in answers]
        for k in range(1, len(answers) + 1):
            assert majority_at_k(answers, correct, k) == pytest.approx(by_enumeration(answers, correct, k), abs=1e-12)


def test_by_hand():
    answers, correct = ["right", "right", "wrong", "other"], [True, True, False, False]
    assert majority_at_k(answers, correct, 4) == 1
    assert majority_at_k(answers, correct, 1) == pytest.approx(1 / 2)
    # Of the four draws of three, two hold both right samples; the other two hold three different answers.
    assert majority_at_k(answers, correct, 3) == pytest.approx((1 + 1 + 1 / 3 + 1 / 3) / 4)
    assert majority_at_k([None, None], [False, False], 2) == 0


def test_the_vote_of_many_samples_follows_the_law_of_large_numbers():
    answers, correct = ["a"] * 1100 + ["b"] * 900, [True] * 1100 + [False] * 900
    assert majority_at_k(answers, correct, 1) == pytest.approx(0.55)
    assert 0.97 < majority_at_k(answers, correct, 401) < majority_at_k(answers, correct, 801) <= 1


@pytest.mark.parametrize("k", [0, 3])
def test_a_k_out_of_range_is_refused(k):
    with pytest.raises(UserError, match=f"maj@{k} needs at least"):
        majority_at_k(["a", "b"], [True, False], k)
