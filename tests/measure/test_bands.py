"""The band over all k against the intervals of a single k, against a simulated maximum, and its coverage; the regions
and the set of the first loss, by hand."""

import json
import math
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from benchmarks.reliability.bands import POPULATIONS, Held, trial
from dph.measure.bands import SHOWN, band, tube_quantile
from dph.measure.intervals import difference_over_runs, mean_interval, student_quantile
from dph.measure.passk import pass_at_k


def ends(found, place: int) -> tuple[float, float, float]:
    return found.estimate[place], found.low[place], found.high[place]


@pytest.mark.parametrize("df", [1, 2.5, 29, 1058])
def test_without_a_length_the_tube_has_students_quantile(df: float) -> None:
    assert tube_quantile(0.0, df) == pytest.approx(student_quantile(0.975, df), rel=1e-4)
    # by hand for many degrees of freedom, where 2(1 − Φ(c)) + κ/π · exp(−c²/2) = 0.05
    c = tube_quantile(math.pi, 1e5)
    assert math.erfc(c / math.sqrt(2)) + math.exp(-c * c / 2) == pytest.approx(0.05, rel=2e-3)


def test_for_one_k_the_band_is_the_interval() -> None:
    rng = np.random.default_rng(1)
    n, sides = np.ones(25), [rng.integers(0, 2, (runs, 25)) for runs in (1, 1, 3, 2, 3)]
    one = mean_interval(1.0 * sides[1][0] - sides[0][0], -1.0, 1.0)
    found = band([(n, sides[0][0])], [(n, sides[1][0])])
    assert ends(found, 0) == pytest.approx((one.estimate, one.low, one.high), abs=1e-4)
    for old, new in ((0, 2), (2, 0), (2, 4), (2, 3), (3, 2)):
        over = difference_over_runs(1.0 * sides[new], 1.0 * sides[old])
        found = band([(n, c) for c in sides[old]], [(n, c) for c in sides[new]])
        assert ends(found, 0) == pytest.approx((over.estimate, over.low, over.high), abs=2e-4)
        assert found.runs == (len(sides[old]), len(sides[new]))


def test_the_estimate_is_the_mean_difference_at_every_k_and_the_band_holds_every_interval() -> None:
    rng = np.random.default_rng(2)
    n, m = rng.integers(40, 60, 30), np.full(30, 50)
    before, after = rng.binomial(n, 0.2), rng.binomial(m, rng.beta(0.5, 1, 30))
    found = band([(n, before)], [(m, after)])
    assert found.ks == list(range(1, n.min() + 1)) and found.k == n.min()
    for k in found.ks:
        values = pass_at_k(m, after, k) - pass_at_k(n, before, k)
        one = mean_interval(values, -1, 1)
        estimate, low, high = ends(found, k - 1)
        assert estimate == pytest.approx(float(values.mean()), abs=1e-12)
        assert low <= one.low + 1e-5 and one.high - 1e-5 <= high


def test_the_quantile_bounds_the_largest_standardised_error_closely() -> None:
    """Against 40,000 draws of a normal process with the correlations of pass@1 … pass@64 of 400 problems."""
    rng = np.random.default_rng(3)
    chances = rng.beta(0.3, 0.9, 400)
    n, before, after = np.full(400, 64), *(rng.binomial(64, p) for p in (chances, chances**0.8))
    values = np.stack([pass_at_k(n, after, k) - pass_at_k(n, before, k) for k in range(1, 65)])
    values -= values.mean(1, keepdims=True)
    unit = values / np.sqrt((values**2).sum(1, keepdims=True))
    length = sum(math.acos(min(1.0, float(a @ b))) for a, b in pairwise(unit))
    largest = np.abs(unit @ rng.normal(size=(400, 40_000))).max(0)
    missed = float((largest > tube_quantile(length, 1e5)).mean())
    assert 0.037 <= missed <= 0.053, missed  # 5 % at most, with a standard error of 0.1


def test_regions_and_the_first_loss_by_hand() -> None:
    # 300 problems: 200 rise from 8 to 16 of 64, 100 fall from 4 to 0 of 64. Few samples show the gain, many the loss.
    n = np.full(300, 64)
    found = band([(n, [8] * 200 + [4] * 100)], [(n, [16] * 200 + [0] * 100)])
    [above], [below], [between] = found.above, found.below, found.undecided
    assert above[0] == 1 and below[1] == 64
    assert (above[1] + 1, below[0] - 1) == between, "the three regions are all k from 1 to 64"
    assert found.first_loss == (above[1] + 1, below[0])
    for (first, last), sign in ((above, 1), (below, -1)):
        assert all(sign * found.estimate[k - 1] > 0 for k in range(first, last + 1))
    of = {c: np.array([float(pass_at_k(64, c, k)) for k in found.ks]) for c in (4, 8, 16)}
    assert found.estimate == pytest.approx((2 * (of[16] - of[8]) - of[4]) / 3, abs=1e-12)


def test_what_is_not_shown_stays_open() -> None:
    n = np.full(300, 16)
    better = band([(n, [4] * 300)], [(n, [8] * 300)])
    assert better.below == [] and better.first_loss[1] is None
    same = band([(n, [4] * 300)], [(n, [4] * 300)])
    assert same.undecided == [(1, 16)] and same.first_loss == (1, None)
    worse = band([(n, [8] * 300)], [(n, [1] * 300)])
    assert worse.first_loss == (1, 1) and worse.above == []
    sure = band([([4] * 1000, [0] * 1000)], [([4] * 1000, [4] * 1000)])
    assert sure.first_loss == (None, None) and sure.above == [(1, 4)]


def test_many_k_are_listed_in_part_and_counted_in_full() -> None:
    n = np.full(20, 1000)
    found = band([(n, [500] * 20)], [(n, [0] * 10 + [500] * 10)])
    assert found.ks[:SHOWN] == list(range(1, SHOWN + 1)) and found.ks[-1] == 1000 and len(found.ks) < 520
    assert found.below[0][1] == 1000 and found.estimate[-1] == pytest.approx(-0.5)


@pytest.mark.parametrize("sides", [([], [([4], [1])]), ([([4], [1])], [([4, 4], [1, 1])]), ([([], [])], [([], [])])])
def test_sides_of_different_problems_are_refused(sides) -> None:
    with pytest.raises(ValueError, match="same problems"):
        band(*sides)


@pytest.mark.parametrize("population", POPULATIONS, ids=lambda one: one.name)
def test_the_band_and_the_first_loss_hold_the_truth(population) -> None:
    """60 comparisons each of 30 and of 200 problems with 16 samples, half of them with unequal numbers."""
    held = Held()
    for problems in (30, 200):
        rng = np.random.default_rng(problems)
        for number in range(60):
            trial(rng, population, problems, 16, number % 2 == 1, held)
    assert held.trials == 120
    assert held.band >= 0.90 * 120 and held.first_loss >= 0.90 * 120  # 95 % with a standard deviation of 2 points
    assert np.min(held.single) >= 0.88 * 120


def write_counts(file: Path, n: int, correct: list[int]) -> Path:
    rows = ({"id": f"p{i}", "c": c, "n": n} for i, c in enumerate(correct))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def passk(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dph", "passk", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)


def test_the_command_says_at_which_k_and_on_which_problems(tmp_path: Path) -> None:
    before = write_counts(tmp_path / "before.jsonl", 64, [8] * 200 + [4] * 100)
    after = write_counts(tmp_path / "after.jsonl", 64, [16] * 200 + [0] * 100)
    expected = band([(np.full(300, 64), [8] * 200 + [4] * 100)], [(np.full(300, 64), [16] * 200 + [0] * 100)])
    [above], [below] = expected.above, expected.below
    first, second, third, *table = passk(before, after, "--html", tmp_path / "page.html").stdout.splitlines()
    assert first.startswith("pass@64 fell by")
    assert second.startswith("At all k from 1 to 64 at once (95 % over problems), pass@k is higher for k = 1–")
    assert f"lower for k = {below[0]}–64; the first k with a loss lies between {above[1] + 1} and {below[0]}." in second
    assert third.startswith("Where pass@32 was lost: -") and "solves in 0–25 % of its samples" in third
    assert table[1].endswith("at all k at once")
    page = (tmp_path / "page.html").read_text()
    assert second in page and third in page and "Change of pass@k from" in page
    [change] = json.loads(passk(before, after, "--json", "--k", 1).stdout)["changes"]
    assert change["band"]["above"] == [list(above)] and change["band"]["low"] == expected.low
    assert change["band"]["first_loss"] == list(expected.first_loss), "over every k, whichever are asked for"


def test_without_a_loss_the_command_says_so(tmp_path: Path) -> None:
    before = write_counts(tmp_path / "before.jsonl", 16, [4] * 300)
    after = write_counts(tmp_path / "after.jsonl", 16, [8] * 300)
    one, two = (write_counts(tmp_path / f"{name}.jsonl", 1, [0, 1] * 20) for name in ("one", "two"))
    said = passk(before, after).stdout
    assert "no loss is shown" in said or "there is no loss at any of these k" in said
    assert "No class of problems, by how often before solves them, shows a loss of pass@8." in said
    assert "at once" not in passk(one, two).stdout, "one k has an interval, and no band"
