"""The alarm about a fall of pass@k: its bound against enumeration, its error over whole runs, and what it sees."""

import math
from itertools import combinations, product

import numpy as np
import pytest

from dph.measure.falls import FallAlarm, log_chance
from dph.measure.passk import pass_at_k


def share_of_dealings(pairs, k):
    """Of all ways to deal each problem's samples to the earlier and the newest looks, those that show such a fall."""
    ways = []
    for c, n, d, m in pairs:
        right = [1] * (c + d) + [0] * (n + m - c - d)
        got = [sum(right[i] for i in places) for places in combinations(range(n + m), n)]
        ways.append([float(pass_at_k(n, x, k) - pass_at_k(m, c + d - x, k)) for x in got])
    seen = sum(float(pass_at_k(n, c, k) - pass_at_k(m, d, k)) for c, n, d, m in pairs)
    falls = [sum(one) for one in product(*ways)]
    return sum(fall >= seen - 1e-12 for fall in falls) / len(falls)


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize(
    "pairs",
    [[(4, 4, 0, 4)], [(4, 4, 0, 4), (3, 4, 1, 4)], [(3, 4, 1, 3), (2, 4, 2, 4)], [(4, 5, 1, 3), (1, 4, 1, 4)]],
)
def test_the_bound_is_at_least_the_chance_by_enumeration(pairs, k):
    earlier, newest = np.split(np.array(pairs), 2, 1)
    exact, bound = share_of_dealings(pairs, k), math.exp(log_chance(earlier, newest, k))
    assert exact <= bound <= min(1, 12 * exact)  # Chernoff's bound loses a factor of about √(2π) standard errors


def test_no_fall_has_no_small_chance():
    for c, d in ((1, 3), (2, 2), (4, 4)):
        assert log_chance(np.array([[c, 4]]), np.array([[d, 4]]), 1) == 0


def test_the_levels_of_all_tests_add_up_to_alpha():
    # the b-th group of 2^j looks has b − 1 tests at 1 / 2^(j+1) / (b (b − 1)²)
    total = sum(2.0 ** -(j + 1) / (b * (b - 1)) for j in range(20) for b in range(2, 3000))
    assert 0.999 < total < 1


@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 1), (4, 2), (16, 8), (24, 8), (32, 16)])
def test_the_alarm_is_about_the_k_of_which_there_are_twice_as_many_samples(n, k):
    assert FallAlarm(n).k == k


def first_alarm(chances, n, rng):
    """The first look of [looks, problems] that raises the alarm."""
    alarm = FallAlarm(n)
    for look, chance in enumerate(chances):
        counts = {str(i): (int(c), n) for i, c in enumerate(rng.binomial(n, chance))}
        if alarm.note(look, counts):
            return look
    return None


def test_a_run_without_a_fall_raises_no_alarm_in_95_percent():
    """Chances that stay, and chances that rise: benchmarks/reliability/alarm.py has longer runs."""
    rng, alarms = np.random.default_rng(0), 0
    for run in range(60):
        chances = np.repeat(rng.beta(0.5, 0.5, 24)[None], 24, 0)
        if run % 2:
            chances = 1 - (1 - chances) * np.linspace(1, 0.7, 24)[:, None]
        alarms += first_alarm(chances, 8, rng) is not None
    assert alarms <= 6  # 3 at most on average: more than 6 with a probability of 3 %


def test_a_fall_is_seen_at_once_if_it_is_large_and_later_if_it_is_small():
    rng = np.random.default_rng(1)
    for share, within in ((0.4, 2), (0.75, 24)):
        seen = []
        for _ in range(6):
            chances = np.repeat(rng.beta(1, 2, 64)[None], 32, 0)
            chances[8:] *= share
            seen.append(first_alarm(chances, 16, rng))
        assert sum(look is not None and 8 <= look < 8 + within for look in seen) >= 5


def test_problems_without_enough_samples_count_only_where_they_have_them():
    alarm = FallAlarm(4)
    assert alarm.note(0, {"a": (4, 4), "b": (4, 4), "c": (4, 4), "d": (0, 1)}) is None
    assert alarm.note(1, {"a": (0, 1), "d": (0, 4)}) is None  # nothing in common
    fall = alarm.note(2, {"a": (0, 4), "b": (0, 4), "c": (0, 4)})
    assert fall is not None and (fall.before, fall.after) == (1.0, 0.0)
    assert (fall.steps_before, fall.steps_after) == ((0, 0), (2, 2))
    assert FallAlarm(4).note(0, {}) is None
