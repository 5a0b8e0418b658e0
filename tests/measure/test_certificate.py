"""The certificate's bound: against a plain implementation, by enumeration, and by simulation at L = ε."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.reliability.certificate import SETTINGS, bernstein_bound, simulate
from benchmarks.reliability.rare import bounds, true_loss
from dph.errors import UserError
from dph.measure.certificate import (
    Choice,
    Judged,
    certificate,
    fixed_sequence,
    losses,
    smallest_set,
    upper_bound,
)


def refuted(d: list[float], m: float, alpha: float) -> bool:
    """Whether the capital of bets against "the mean of (d + 1)/2 is at least m" ever reaches 1/alpha, step by step."""
    capital, total, squares = 1.0, 0.5, 0.25
    for i, value in enumerate(d, 1):
        x = (value + 1) / 2
        bet = min(math.sqrt(2 * math.log(1 / alpha) / (squares / i * len(d))), 0.9 / (1 - m))
        capital *= 1 + bet * (m - x)
        if capital >= 1 / alpha:
            return True
        total += x
        squares += (x - total / (i + 1)) ** 2
    return False


@given(st.lists(st.sampled_from([-1.0, -0.25, 0.0, 0.25, 1.0]), min_size=1, max_size=40), st.sampled_from([0.05, 0.2]))
def test_the_bound_is_the_least_mean_that_is_refuted(d, alpha):
    bound = float(upper_bound(d, alpha))
    means = [(place / 400 + 1) / 2 for place in range(-399, 400)]
    hit = [refuted(d, m, alpha) for m in means]
    assert hit == sorted(hit)  # the refuted means are those above a bound
    least = next((2 * m - 1 for m, yes in zip(means, hit, strict=True) if yes), 1.0)
    assert least - 1 / 400 - 1e-4 <= bound <= least + 1e-4


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("values", [(0.0, 1.0), (-1.0, 1.0), (-0.5, 0.25)])
@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_all_sequences_of_two_values_together_miss_at_most_alpha(share, values, alpha):
    """The probability of a bound below the mean, exactly: over all 2^10 sequences of independent values."""
    sequences = np.array(list(product((0, 1), repeat=10)))
    chances = np.where(sequences == 1, share, 1 - share).prod(1)
    bounds = upper_bound(np.array(values)[sequences], alpha)
    mean = values[0] * (1 - share) + values[1] * share
    assert chances.sum() == pytest.approx(1) and chances[bounds < mean].sum() <= alpha


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=60))
def test_the_bound_lies_above_the_mean_and_rows_do_not_mix(d):
    bound = float(upper_bound(d))
    assert np.mean(d) - 1e-6 <= bound <= 1
    assert upper_bound([d, [0.0] * len(d)]).tolist() == [bound, float(upper_bound([0.0] * len(d)))]
    assert float(upper_bound(d, 0.01)) >= bound - 1e-5 or len(d) < 5


def test_worked_numbers():
    # 0.1 for all of 4 values: mean 0.1, no spread; log(2/0.05) = 3.6889, 14 · 3.6889 / 9 = 5.738
    assert bernstein_bound(np.full(4, 0.1)) == pytest.approx(0.1 + 14 * 3.68888 / 9, abs=1e-4)
    assert [smallest_set(epsilon) for epsilon in (0.02, 0.05, 0.1)] == [173, 68, 33]
    assert smallest_set(1e-9) is None  # above a million problems, which are not looked for
    for n in (33, 68, 173):
        epsilon = {33: 0.1, 68: 0.05, 173: 0.02}[n]
        assert upper_bound(np.zeros(n)) <= epsilon < upper_bound(np.zeros(n - 1))
    few, many = (float(upper_bound(np.zeros(n))) for n in (100, 1000))
    assert 3 / 1000 < many < few / 9  # no bound can be below ln(20)/N: a loss of that share may leave no trace


def test_losses_are_of_pass_at_k_and_not_in_the_order_of_ids():
    base = {f"p{i}": (4, 4) for i in range(50)} | {"half": (2, 4), "gain": (0, 2)}
    now = {f"p{i}": (4, 4) for i in range(50)} | {"half": (1, 4), "gain": (2, 2)}
    found = losses(base, now)
    assert found["half"] == 0.25 and found["gain"] == -1 and found["p0"] == 0
    assert losses(base, now, 2)["half"] == pytest.approx(5 / 6 - 3 / 6)  # 1 − C(2,2)/C(4,2), 1 − C(3,2)/C(4,2)
    assert list(found) != sorted(found) and set(found) == set(base)
    with pytest.raises(UserError, match="'extra'"):
        losses(base, now | {"extra": (1, 1)})
    with pytest.raises(UserError, match="'gain' has 2"):
        losses(base, now, 3)
    with pytest.raises(UserError, match="'a' has 0"):
        losses({"a": (1, 1)}, {"a": (0, 0)})
    with pytest.raises(UserError, match="there are none"):
        losses({}, {})


def test_a_certificate_says_what_it_found():
    base = {str(i): (2, 2) for i in range(100)}
    kept = certificate(base, base, 0.05)
    assert kept.certified and kept.loss == 0 and kept.lost == () and "certified: with 95 %" in kept.sentence()
    lost = certificate(base, base | {"7": (0, 2), "9": (1, 2)}, 0.05)
    assert lost.lost == ("7",) and lost.loss == pytest.approx(0.015)
    assert not lost.certified and lost.sentence().startswith("not certified") and "1 problem lost" in lost.sentence()


def test_a_sequence_ends_at_the_first_failure():
    base = {str(i): (1, 1) for i in range(100)}
    sides = [base, {id: (0, 1) for id in base}, base]
    asked = []

    def check(place):
        asked.append(place)
        return certificate(base, sides[place], 0.05)

    assert [found.certified for found in fixed_sequence(map(check, range(3)))] == [True, False]
    assert asked == [0, 1]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SETTINGS)
def test_coverage_at_the_edge(name):
    """4,000 runs with a true loss of epsilon; a run that certifies is an error."""
    errors = simulate(name, runs=4000, seed=1)
    assert errors.share <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 4000), errors


def rare(numbered):
    """A base model and a checkpoint: by the number of correct samples among 8, "a0" to "a8"."""
    samples = {f"a{right}": {number: int(number < right) for number in range(8)} for right in range(9)}
    return Judged(samples, numbered)


@pytest.mark.parametrize("numbered", [True, False])
def test_the_problems_that_can_lose_pass_at_k_are_chosen(numbered):
    """Of 4 samples that choose at least 1/4, and less than 4/4, for k = 4: 1, 2 or 3 correct ones; which of the 8
    samples choose is the same for problems with one id."""
    choice = Choice(rare(numbered), 4, 0.75, for_k=4)
    among = [int(id[1:]) - right for id, (right, _) in choice.base.items()]
    assert among and all(1 <= correct <= 3 for correct in among) and all(of == 4 for _, of in choice.base.values())
    assert "a0" not in choice.base and "a8" not in choice.base
    assert len(choice.ways(rare(numbered))) == (1 if numbered else 2)
    mastered = Choice(rare(numbered), 4, 0.75)
    assert len(mastered.ways(rare(numbered))) == 1


def test_problems_that_are_not_chosen_are_counted_with_what_they_lost():
    choice = Choice(rare(True), 4, 0.75, for_k=4)
    nothing = Judged({id: dict.fromkeys(each, 0) for id, each in rare(True).samples.items()}, True)
    others, lost = choice.others(rare(True), nothing)
    assert others == 9 - len(choice.base) and lost == others - 1  # a0 had nothing to lose
    assert choice.others(rare(True), rare(True)) == (others, 0)


@pytest.mark.parametrize(("population", "one_seed", "right_way"), [("all at 1/k", True, 0), ("all at 4/k", False, 1)])
def test_coverage_certificates_of_counts_miss_in_at_most_five_percent(population, one_seed, right_way):
    """The two cases in which one way to leave samples out would miss: of 60 runs 9 misses are 0.3 % likely at 5 %."""
    found, loss = bounds(population, one_seed, False, 60), true_loss(population)
    assert (found.max(1) < loss).sum() < 9
    assert (found[:, right_way] < loss).sum() < 9
    if one_seed:
        assert (found[:, 1 - right_way] < loss).sum() > 30
