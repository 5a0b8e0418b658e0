"""maj@k against enumeration of all draws, and by hand."""

import itertools
import random

import pytest

from dph.errors import UserError
from dph.evaluation.passk import majority_at_k


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
