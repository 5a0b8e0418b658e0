"""Oracles for pass@k and its relatives: enumeration of all subsets, exact combinatorics, known distributions. maj@k
against enumeration of all draws, and by hand. How often 95 % intervals over seeds and problems hold the truth, and
the quantiles that they use.
"""

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dph.errors import UserError
from dph.evaluation.passk import (
    bootstrap_interval,
    cluster_bootstrap,
    cover_at,
    coverage_shares,
    majority_at_k,
    mean_at_k,
    pass_at_k,
    ratio_of_sums,
    student_quantile,
)
from dph.evaluation.predictions import wilson_interval


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
    assert found["pass@2/low"] == 0 and found["pass@2/high"] == 0.5  # a quarter of resamples have one problem twice
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


def keep_rate(ref, trained):
    return ratio_of_sums(np.multiply(ref, trained), ref)


def exploration_rate(ref, trained):
    return keep_rate(np.subtract(1.0, ref), trained)


def test_keep_and_exploration_rate_of_solved_problems():
    ref = [True, True, True, False, False]
    trained = [True, False, True, True, False]
    assert keep_rate(ref, trained) == pytest.approx(2 / 3)
    assert exploration_rate(ref, trained) == pytest.approx(1 / 2)
    assert math.isnan(exploration_rate([True], [True]))
    assert math.isnan(keep_rate([False], [True]))


def test_rates_of_estimates_are_the_ratio_of_expected_counts():
    ref, trained = [0.9, 0.5, 0.1], [0.8, 0.2, 0.6]
    kept = new = solved = unsolved = 0.0
    for outcome in itertools.product([0, 1], repeat=6):  # every way in which three problems can be solved by both
        chance = math.prod(p if won else 1 - p for p, won in zip(ref + trained, outcome, strict=True))
        for before, after in zip(outcome[:3], outcome[3:], strict=True):
            solved += chance * before
            unsolved += chance * (1 - before)
            kept += chance * before * after
            new += chance * (1 - before) * after
    assert keep_rate(ref, trained) == pytest.approx(kept / solved)
    assert exploration_rate(ref, trained) == pytest.approx(new / unsolved)


def test_bootstrap_of_the_mean_has_the_standard_error_of_the_mean():
    values = np.random.default_rng(1).normal(size=400)
    interval = bootstrap_interval(values, resamples=4000)
    half_width = 1.959964 * values.std() / math.sqrt(400)
    assert interval.estimate == pytest.approx(values.mean())
    # a quantile of 4000 draws has a relative error of about 4 % at 2.5 %
    assert interval.high - interval.estimate == pytest.approx(half_width, rel=0.12)
    assert interval.estimate - interval.low == pytest.approx(half_width, rel=0.12)


@pytest.mark.parametrize(("successes", "count"), [(0, 10), (3, 10), (10, 10), (1, 1), (804, 972)])
def test_wilsons_bounds_are_the_shares_that_a_score_test_just_accepts(successes, count):
    interval, share = wilson_interval(successes, count), successes / count
    assert interval.estimate == share
    for bound, trivial in ((interval.low, 0), (interval.high, 1)):
        # (share − p)² = z²·p(1 − p)/n at the bounds, of which 0 and 1 are the trivial ones
        accepted = 1.959964**2 * bound * (1 - bound) / count
        assert bound == share == trivial or (share - bound) ** 2 == pytest.approx(accepted, rel=1e-5)
    assert 0 <= interval.low <= share <= interval.high <= 1 and interval.high - interval.low > 0.01


def test_wilson_needs_a_count():
    for successes, count in ((0, 0), (2, 1), (-1, 3)):
        with pytest.raises(ValueError, match="a share needs"):
            wilson_interval(successes, count)


def test_bootstrap_is_reproducible_and_narrows_with_the_level():
    values = np.arange(30.0)
    wide, again = bootstrap_interval(values, seed=3), bootstrap_interval(values, seed=3)
    assert wide == again
    assert wide != bootstrap_interval(values, seed=4)
    narrow = bootstrap_interval(values, seed=3, level=0.5)
    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.parametrize("problems", [2, 7, 250, 5000])
def test_bootstrap_is_the_plain_loop_over_resamples(problems):
    rng = np.random.default_rng(7)
    rates = rng.random((problems, 2)) * (rng.random((problems, 1)) > 0.3)
    for values, many, one in (
        (rates[:, 0], lambda v: v.mean(-1), lambda v: float(v.mean())),
        (rates, lambda v: keep_rate(v[..., 0], v[..., 1]), lambda v: float(keep_rate(v[:, 0], v[:, 1]))),
    ):
        draw = np.random.default_rng(3)
        draws = [one(values[draw.integers(problems, size=problems)]) for _ in range(200)]
        tail = (1 - 0.95) / 2  # 0.025 but for its last bit, which shows in an interpolated quantile
        low, high = np.nanquantile(draws, [tail, 1 - tail])
        found = bootstrap_interval(values, many, resamples=200, seed=3)
        np.testing.assert_array_equal([found.estimate, found.low, found.high], [one(values), low, high])


def test_bootstrap_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = 0
    for seed in range(200):
        interval = bootstrap_interval(rng.random(60) < 0.3, level=0.9, resamples=300, seed=seed)
        hits += interval.low <= 0.3 <= interval.high
    # 180 expected with standard deviation 4.2; percentile intervals of 60 problems run a little short
    assert 165 <= hits <= 195


def test_bootstrap_of_a_ratio_of_columns():
    ref, trained = np.array([1.0, 1, 0, 0] * 25), np.array([1.0, 0, 1, 0] * 25)
    interval = bootstrap_interval(np.stack([ref, trained], 1), lambda v: keep_rate(v[..., 0], v[..., 1]))
    assert interval.estimate == 0.5
    # a proportion among 50 problems: 1.96·√(½·½/50) = 0.139
    assert interval.high - interval.low == pytest.approx(2 * 0.139, rel=0.2)


def test_resamples_in_which_a_ratio_is_undefined_are_left_out():
    values = np.array([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]])  # (2/3)³ of the resamples solve nothing
    interval = bootstrap_interval(values, lambda v: keep_rate(v[..., 0], v[..., 1]))
    assert (interval.low, interval.high) == (1.0, 1.0)
    never = bootstrap_interval(np.zeros((3, 2)), lambda v: keep_rate(v[..., 0], v[..., 1]))
    assert math.isnan(never.low)


def test_cluster_bootstrap_adds_the_variances_of_seeds_and_problems():
    rng = np.random.default_rng(2)
    of_seed, of_problem = rng.normal(scale=0.5, size=(40, 1)), rng.normal(scale=1.0, size=(1, 60))
    values = of_seed + of_problem
    interval = cluster_bootstrap(values, resamples=4000)
    # additive effects: the two bootstrap variances add up, whatever the number of cells
    error = math.sqrt(of_seed.var() / 40 + of_problem.var() / 60)
    assert interval.estimate == pytest.approx(values.mean())
    assert interval.high - interval.low == pytest.approx(2 * 1.959964 * error, rel=0.1)
    # the mistake it guards against: all cells as independent
    assert interval.high - interval.low > 3 * (lambda i: i.high - i.low)(bootstrap_interval(values.ravel()))


def test_cluster_bootstrap_of_one_seed_is_the_ordinary_one():
    values = np.random.default_rng(5).random(200)
    one = cluster_bootstrap(values[None], resamples=4000)
    ordinary = bootstrap_interval(values, resamples=4000)
    # different random numbers: quantiles of 4000 draws agree to 12 % of the half-width of 0.04
    assert [one.low, one.high] == pytest.approx([ordinary.low, ordinary.high], abs=0.005)


def test_seeds_that_agree_add_nothing():
    values = np.random.default_rng(5).random(200)
    alone, together = bootstrap_interval(values), cluster_bootstrap([values] * 4)
    assert cluster_bootstrap([values]) == alone
    bounds = alone.estimate, alone.low, alone.high
    assert (together.estimate, together.low, together.high) == pytest.approx(bounds, rel=1e-12)  # another order of sums


@pytest.mark.parametrize(("seeds", "quantile"), [(2, 12.7062), (3, 4.30265), (5, 2.77645)])
def test_where_problems_agree_the_interval_is_students_over_seeds(seeds, quantile):
    means = np.random.default_rng(seeds).random(seeds)
    interval = cluster_bootstrap(np.repeat(means[:, None], 30, 1))
    half_width = quantile * means.std(ddof=1) / math.sqrt(seeds)
    assert interval.high - interval.estimate == pytest.approx(half_width, rel=1e-5)  # the quantile's digits
    assert interval.estimate - interval.low == pytest.approx(half_width, rel=1e-5)


def test_an_interval_stays_within_the_range_of_what_it_estimates():
    values = np.repeat([[0.97], [1.0]], 5, 1)
    free, held = cluster_bootstrap(values), cluster_bootstrap(values, within=(0.0, 1.0))
    assert free.high > 1.0 and (held.low, held.high) == (free.low, 1.0)


def test_bootstrap_refuses_what_it_cannot_mean():
    with pytest.raises(ValueError, match="at least one value"):
        bootstrap_interval([])
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        bootstrap_interval([1.0], level=95)
    with pytest.raises(ValueError, match=r"\[seeds, problems\]"):
        cluster_bootstrap([1.0, 2.0])


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


@pytest.mark.parametrize("seeds", [2, 3])
def test_intervals_of_few_seeds_that_vary_hold_the_truth(seeds: int) -> None:
    """A value is its problem's difficulty, a shift of its seed and a rest; experiments/tests/test_coverage.py has more
    seeds and differences."""
    rng, hits = np.random.default_rng(seeds), 0
    for trial in range(150):
        difficulty = rng.random(200) ** 0.3  # skewed, as accuracies are; mean 1/1.3
        values = difficulty + 0.06 * rng.normal(size=(seeds, 1)) + 0.15 * rng.normal(size=(seeds, 200))
        found = cluster_bootstrap(values, resamples=400, seed=trial)
        hits += found.low <= 1 / 1.3 <= found.high
    assert hits / 150 >= 0.90  # 0.95 of 150 with a standard deviation of 0.018


@pytest.mark.parametrize(
    ("df", "p", "expected"),
    # printed tables of Student's t
    [
        *((1, 0.975, 12.706), (2, 0.975, 4.303), (3, 0.975, 3.182), (4, 0.975, 2.776), (7, 0.975, 2.365)),
        *((4, 0.95, 2.132), (3, 0.995, 5.841), (30, 0.975, 2.042), (120, 0.975, 1.980), (5, 0.5, 0.0)),
    ],
)
def test_quantiles_of_students_t(df: int, p: float, expected: float) -> None:
    assert student_quantile(p, df) == pytest.approx(expected, abs=5.1e-4)
