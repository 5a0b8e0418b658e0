"""How often 95 % intervals over seeds and problems hold the truth, and the quantiles that they use."""

import numpy as np
import pytest

from dph.evaluation.passk import cluster_bootstrap, student_quantile


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
