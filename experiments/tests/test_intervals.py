"""Intervals of differences: Student's and Welch's by hand, pairing by problem, and how often they hold the truth."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dph.evaluation.passk import bootstrap_interval
from experiments.intervals import cluster_difference


@settings(deadline=None)
@given(shift=st.floats(-1, 1))
def test_the_difference_of_a_constant_shift_has_no_width(shift):
    hard_and_easy = np.linspace(0, 1, 20)
    interval = cluster_difference([hard_and_easy + shift], [hard_and_easy], resamples=50)
    assert [interval.low, interval.estimate, interval.high] == pytest.approx([shift] * 3, abs=1e-15)


def test_seeds_that_agree_add_nothing():
    values, other = np.random.default_rng(5).random(200), np.random.default_rng(6).random(200)
    found, alone = cluster_difference([values] * 4, [other] * 2), bootstrap_interval(values - other)
    bounds = alone.estimate, alone.low, alone.high
    assert (found.estimate, found.low, found.high) == pytest.approx(bounds, rel=1e-12)  # sums in another order


def test_where_problems_agree_the_difference_is_welchs_or_adds_both_sides():
    first, second, more = np.array([0.5, 0.7, 0.9]), np.array([0.2, 0.3, 0.7]), np.array([0.2, 0.3, 0.7, 0.6])

    def half_width(a, b):
        found = cluster_difference(np.repeat(a[:, None], 9, 1), np.repeat(b[:, None], 9, 1))
        return found.high - found.estimate

    # Variances 0.04 and 0.07 of three seeds each: df = 2 · 0.11² / (0.04² + 0.07²) = 3.7231, whose quantile is 2.85982.
    assert half_width(first, second) == pytest.approx(2.85982 * math.sqrt(0.11 / 3), rel=1e-5)
    apart = (4.30265 * math.sqrt(0.04 / 3), 3.18245 * more.std(ddof=1) / 2)
    assert half_width(first, more) == pytest.approx(math.hypot(*apart), rel=1e-5)
    # The model of a single seed is compared as it is.
    assert half_width(first, second[:1]) == pytest.approx(4.30265 * math.sqrt(0.04 / 3), rel=1e-5)


def test_cluster_difference_with_one_seed_is_that_of_paired_problems():
    rng = np.random.default_rng(0)
    a = rng.random(60)
    b = a - 0.1 + 0.02 * rng.normal(size=60)
    assert cluster_difference([a], [b]) == bootstrap_interval(a - b)


def test_cluster_difference_covers_the_truth_as_often_as_it_says():
    # a and b share the problems' difficulty; seeds have effects of their own. The true difference is 0.3.
    rng = np.random.default_rng(1)
    hits = 0
    for trial in range(200):
        problems = rng.normal(size=(1, 40))
        a = 0.3 + problems + 0.3 * rng.normal(size=(8, 1)) + rng.normal(size=(8, 40))
        b = problems + 0.3 * rng.normal(size=(8, 1)) + rng.normal(size=(8, 40))
        interval = cluster_difference(a, b, resamples=300, seed=trial)
        hits += interval.low <= 0.3 <= interval.high
    assert 0.88 <= hits / 200 <= 0.99


def test_cluster_difference_needs_the_same_problems():
    with pytest.raises(ValueError, match="same problems"):
        cluster_difference(np.zeros((2, 3)), np.zeros((2, 4)))
