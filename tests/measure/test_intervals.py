"""95 % intervals: golden values by hand, exact coverage of shares, simulated coverage of pass@k, of differences, of
ratios and over several runs, and the quantiles that they use."""

import math

import numpy as np
import pytest

from dph.measure.intervals import (
    UNBOUNDED,
    difference_over_runs,
    interval_over_runs,
    mean_interval,
    ratio_interval,
    student_quantile,
)
from dph.measure.passk import pass_at_k


def test_the_interval_by_hand():
    # 1, 1, 0, 1 and the ends 0, 1: mean 2/3, variance 6 · (2/3 · 1/3) / 5 = 4/15, reach 3.18245 · √(4/15/6) = 0.67092
    found = mean_interval([1, 1, 0, 1])
    assert (found.estimate, found.high, found.level) == (0.75, 1.0, 0.95)
    assert found.low == pytest.approx(max(0, 2 / 3 - 0.67092), abs=1e-5)
    # sixteen: 12 right; with the ends 13 of 18, variance 18 · (13/18 · 5/18) / 17, t = 2.13145 with 15
    reach = 2.13145 * math.sqrt(18 * (13 * 5 / 18**2) / 17 / 18)
    found = mean_interval([1] * 12 + [0] * 4)
    assert (found.low, found.high) == pytest.approx((13 / 18 - reach, 13 / 18 + reach), abs=1e-5)


def test_an_interval_has_a_width_if_all_problems_agree():
    found = mean_interval(np.ones(20))
    assert found.high == 1 and 0.80 < found.low < 0.90
    assert mean_interval(np.zeros(20), -1, 1).low == -mean_interval(np.zeros(20), -1, 1).high < 0
    styles = mean_interval(np.ones(20), 0, math.inf)  # a number of things has no upper end
    assert styles.low == pytest.approx(2 - styles.high) and 0.8 < styles.low < 0.9
    nothing = mean_interval(np.zeros(20), 0, math.inf)
    assert nothing.low == 0 and 0.2 < nothing.high < 0.3


@pytest.mark.parametrize("problems", [4, 8, 16, 30, 64, 200, 2000])
def test_intervals_of_shares_hold_the_truth_by_exact_computation(problems: int):
    """The binomial sum over all outcomes, for rates from 1e-5 to 1/2 (the others are symmetric)."""
    right = np.arange(problems + 1)
    found = [mean_interval(np.repeat([1.0, 0.0], [c, problems - c])) for c in right]
    low, high = (np.array([getattr(one, end) for one in found]) for end in ("low", "high"))
    log_ways = np.array([math.lgamma(problems + 1) - math.lgamma(c + 1) - math.lgamma(problems - c + 1) for c in right])
    rates = np.logspace(-5, math.log10(0.5), 150)[:, None]
    chances = np.exp(log_ways + right * np.log(rates) + (problems - right) * np.log1p(-rates))
    assert chances.sum(-1) == pytest.approx(np.ones(150), abs=1e-8)
    covered = (chances * ((low <= rates) & (rates <= high))).sum(-1)
    assert covered.min() >= 0.93


POPULATIONS = {
    "right": lambda rng, count: np.ones(count),
    "wrong": lambda rng, count: np.zeros(count),
    "bimodal": lambda rng, count: np.where(rng.random(count) < 0.3, 0.02, 0.97),
    "rarely solved": lambda rng, count: np.where(rng.random(count) < 0.05, 0.95, 0.0),
    "skewed": lambda rng, count: rng.beta(0.3, 0.9, count),
}


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("problems", [4, 20, 100, 1000])
def test_intervals_hold_the_truth(population: str, problems: int) -> None:
    """Of pass@k, and of a paired difference whose problems move together, for 1, 8 and 64 samples."""
    rng = np.random.default_rng(problems)
    draw = POPULATIONS[population]
    every = draw(rng, 400_000)
    for n, k in ((1, 1), (8, 4), (64, 1), (64, 32)):
        trials, hits = 100, np.zeros(2)
        truth = (1 - (1 - every) ** k).mean()
        moved = (1 - (1 - 0.8 * every) ** k).mean() - truth
        for _ in range(trials):
            chances = draw(rng, problems)
            first, second = (pass_at_k(n, rng.binomial(n, p), k) for p in (chances, 0.8 * chances))
            for number, (values, value, low) in enumerate(((first, truth, 0), (second - first, moved, -1))):
                interval = mean_interval(values, low, 1)
                hits[number] += interval.low - 1e-9 <= value <= interval.high + 1e-9
        assert (hits / trials >= 0.90).all(), (n, k, hits / trials)  # 0.95 with a standard deviation of 0.02


def test_a_ratio_over_equal_parts_is_a_mean_and_uses_only_the_problems_that_count():
    values = np.array([1.0, 0.0, 1.0, 1.0, 0.5])
    assert ratio_interval(values, np.ones(5)) == mean_interval(values)
    halves = ratio_interval(values / 2, np.full(5, 0.5))
    assert (halves.estimate, halves.low, halves.high) == pytest.approx(
        tuple(getattr(mean_interval(values), end) for end in ("estimate", "low", "high"))
    )
    # a share among 50 of 100 problems: 1.96·√(½·½/52) = 0.136, as among those 50 alone
    ref, trained = np.array([1.0, 1, 0, 0] * 25), np.array([1.0, 0, 1, 0] * 25)
    found, alone = ratio_interval(ref * trained, ref), mean_interval(trained[ref > 0])
    assert found.estimate == alone.estimate == 0.5
    assert found.high - found.low == pytest.approx(alone.high - alone.low, rel=0.01)
    assert math.isnan(ratio_interval([0.0, 0.0], [0.0, 0.0]).estimate)


def test_intervals_of_rates_hold_the_truth():
    """The keep and the exploration rate at 8 of 32 samples, of a policy that is worse than the base everywhere."""
    rng = np.random.default_rng(7)
    every = rng.beta(0.3, 0.9, 400_000)
    base, policy = (1 - (1 - p) ** 8 for p in (every, 0.4 * every))
    truths = (base * policy).sum() / base.sum(), ((1 - base) * policy).sum() / (1 - base).sum()
    hits = np.zeros(2)
    for _ in range(300):
        chances = rng.beta(0.3, 0.9, 60)
        old, new = (pass_at_k(32, rng.binomial(32, p), 8) for p in (chances, 0.4 * chances))
        for number, below in enumerate((old, 1 - old)):
            found = ratio_interval(below * new, below)
            hits[number] += found.low <= truths[number] <= found.high
    assert (hits / 300 >= 0.92).all()  # 0.95 with a standard deviation of 0.013


def test_what_has_no_interval_is_refused():
    for values in ([], [[1.0]]):
        with pytest.raises(ValueError, match="needs values"):
            mean_interval(values)
    with pytest.raises(ValueError, match=r"\[runs, problems\]"):
        interval_over_runs([1.0, 2.0])
    with pytest.raises(ValueError, match="same problems"):
        difference_over_runs(np.zeros((2, 3)), np.zeros((2, 4)))


def test_one_run_has_the_interval_over_problems_and_runs_that_agree_add_nothing():
    values, other = np.random.default_rng(5).random(200), np.random.default_rng(6).random(200)
    alone = mean_interval(values)
    assert interval_over_runs([values]) == alone
    together = interval_over_runs([values] * 4)  # sums in another order
    assert (together.low, together.high) == pytest.approx((alone.low, alone.high), rel=1e-12)
    change = mean_interval(values - other, -1, 1)
    assert difference_over_runs([values], [other]) == change
    agree = difference_over_runs([values] * 4, [other] * 2)
    assert (agree.low, agree.high) == pytest.approx((change.low, change.high), rel=1e-12)


def test_over_many_runs_and_problems_the_variances_add_up():
    rng = np.random.default_rng(2)
    of_run, of_problem = rng.normal(scale=0.5, size=(40, 1)), rng.normal(scale=1.0, size=(1, 600))
    values = of_run + of_problem
    found = interval_over_runs(values, UNBOUNDED)
    error = math.sqrt(of_run.var() / 40 + of_problem.var() / 600)
    assert found.estimate == pytest.approx(values.mean())
    assert found.high - found.low == pytest.approx(2 * 1.98 * error, rel=0.1)
    # the mistake it guards against: all cells as independent
    cells = mean_interval(values.ravel(), *UNBOUNDED)
    assert found.high - found.low > 3 * (cells.high - cells.low)


@pytest.mark.parametrize(("runs", "quantile"), [(2, 12.7062), (3, 4.30265), (5, 2.77645)])
def test_where_problems_agree_the_interval_is_students_over_runs_and_adds_the_imaginary_problems(runs, quantile):
    means = np.random.default_rng(runs).random(runs)
    found = interval_over_runs(np.repeat(means[:, None], 3000, 1), UNBOUNDED)
    half_width = quantile * means.std(ddof=1) / math.sqrt(runs)
    assert found.high - found.estimate == pytest.approx(half_width, rel=1e-3)  # the problems add 1/3000
    assert found.estimate - found.low == pytest.approx(half_width, rel=1e-3)


def test_where_problems_agree_the_difference_is_welchs_or_adds_both_sides():
    first, second, more = np.array([0.5, 0.7, 0.9]), np.array([0.2, 0.3, 0.7]), np.array([0.2, 0.3, 0.7, 0.6])

    def half_width(a, b):
        found = difference_over_runs(np.repeat(a[:, None], 3000, 1), np.repeat(b[:, None], 3000, 1), UNBOUNDED)
        return found.high - found.estimate

    # Variances 0.04 and 0.07 of three runs each: df = 2 · 0.11² / (0.04² + 0.07²) = 3.7231, whose quantile is 2.85982.
    assert half_width(first, second) == pytest.approx(2.85982 * math.sqrt(0.11 / 3), rel=1e-3)
    apart = (4.30265 * math.sqrt(0.04 / 3), 3.18245 * more.std(ddof=1) / 2)
    assert half_width(first, more) == pytest.approx(math.hypot(*apart), rel=1e-3)
    # The model of a single run is compared as it is.
    assert half_width(first, second[:1]) == pytest.approx(4.30265 * math.sqrt(0.04 / 3), rel=1e-3)


def test_an_interval_stays_within_the_range_of_what_it_estimates():
    values = np.repeat([[0.97], [1.0]], 5, 1)
    free, held = interval_over_runs(values, UNBOUNDED), interval_over_runs(values)
    assert free.high > 1.0 and held.high == 1.0


@pytest.mark.parametrize("runs", [(2, 2), (3, 3), (1, 3)])
@pytest.mark.parametrize(("problems", "population"), [(8, (20, 0.5)), (30, (0.2, 0.2)), (200, (1, 1))])
def test_differences_over_runs_hold_the_truth(runs, problems, population) -> None:
    """Of pass@8 of 8 between two sides of several runs, near 1, with two kinds of problems and between. A run shifts
    the log-odds of all problems and of each; a side with one run is that very run."""
    rng, hits, trials, k = np.random.default_rng(sum(runs)), 0, 60, 8

    def chances(odds, run):
        return 1 / (1 + np.exp(-(odds + run + 0.4 * rng.normal(size=(len(run), len(odds))))))

    def odds(count):
        p = np.clip(rng.beta(population[0], population[1], count), 1e-9, 1 - 1e-9)
        return np.log(p) - np.log1p(-p)

    def truth(shift, run):
        drawn = 0.4 * rng.normal(size=20_000) if run is None else np.full(20_000, run)
        return (1 - (1 - chances(odds(20_000), (shift + drawn)[None])) ** k).mean()

    fixed = truth(0.0, None), truth(-0.3, None)
    for _ in range(trials):
        own, shifts = odds(problems), [0.4 * rng.normal(size=(count, 1)) for count in runs]
        old, new = (
            pass_at_k(k, rng.binomial(k, chances(own, shift + run)), k)
            for shift, run in zip((0.0, -0.3), shifts, strict=True)
        )
        start = truth(0.0, float(shifts[0][0, 0])) if runs[0] == 1 else fixed[0]
        found = difference_over_runs(new, old)
        hits += found.low <= fixed[1] - start <= found.high
    assert hits / trials >= 0.88  # 0.95 with a standard deviation of 0.028


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
