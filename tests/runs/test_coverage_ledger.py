"""The coverage ledger: metrics by hand, its file under cuts and rewinds, and a run that is resumed."""

from fractions import Fraction
from itertools import permutations
from math import comb, factorial

import pytest

from dph.runs.coverage import FILE, Ledger, as_few, drop_visits, read_visits, write_visits

REFERENCE = {"a": (8, 8), "b": (4, 8), "c": (1, 8), "d": (0, 8), "e": (0, 0)}
"""easy, middle, hard, hard (never solved), not judged"""


def test_metrics_by_hand():
    ledger = Ledger(REFERENCE)
    first = ledger.note([("a", 4, 4), ("b", 0, 4), ("d", 0, 4), ("new", 0, 4)])
    assert first == {
        "coverage/visited": 4,
        "coverage/falling": 1,  # b: 5·6·7·8 / (10·11·12·13) = 0.098; d: 9/13
        "coverage/lost": 1,  # b: the reference policy solved it
        "coverage/unsolved": 2,  # d and the problem that was not pre-sampled
        "coverage/solved_easy": 1,
        "coverage/solved_middle": 0,
        "coverage/solved_hard": 0,
    }
    assert ledger.lost == ["b"]
    second = ledger.note([("a", 0, 4), ("b", 1, 4), ("new", 2, 4), ("c", 0, 0)])  # c: no response could be judged
    assert second == {
        "coverage/visited": 4,
        "coverage/falling": 1,  # a: 24 / 17160; b has one of 4 again: 0.34
        "coverage/lost": 1,
        "coverage/unsolved": 1,
        "coverage/solved_easy": 0,
        "coverage/solved_middle": 1,
    }
    assert ledger.lost == ["a"]
    assert ledger.note([("new", 0, 4)])["coverage/lost"] == 2  # the run solved it before


@pytest.mark.parametrize(("correct", "name"), [(0, "hard"), (2, "hard"), (3, "middle"), (6, "middle"), (7, "easy")])
def test_classes_of_difficulty(correct, name):
    found = Ledger({"a": (correct, 8)}).note([("a", 1, 1)])
    assert [key for key in found if "solved_" in key] == [f"coverage/solved_{name}"]


def test_a_ledger_is_a_function_of_its_visits():
    visits = [[("a", 1, 4), ("b", 0, 4)], [("a", 0, 4)], [("c", 2, 4), ("d", 1, 4)]]
    whole = Ledger(REFERENCE)
    found = [whole.note(one) for one in visits]
    again = Ledger(REFERENCE)
    for one in visits[:2]:
        again.note(one)
    assert again.note(visits[2]) == found[2]


@pytest.mark.parametrize(
    ("correct", "n", "before", "out_of"), [(0, 16, 1, 8), (0, 3, 2, 4), (2, 5, 3, 4), (5, 5, 0, 8)]
)
def test_the_chance_of_as_few_by_integration(correct, n, before, out_of):
    """Against ∫ P(X ≤ correct | p) · posterior(p) dp over a fine grid of pass rates."""
    rates = [(i + 0.5) / 20_000 for i in range(20_000)]
    weights = [p**before * (1 - p) ** (out_of - before) for p in rates]
    tails = [sum(comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(correct + 1)) for p in rates]
    expected = sum(w * t for w, t in zip(weights, tails, strict=True)) / sum(weights)
    assert as_few(correct, n, before, out_of) == pytest.approx(expected, abs=1e-6)


def test_the_chance_of_as_few_of_more_than_a_float_can_count():
    """By fractions: C(1030, 515) exceeds 1.8e308. Sums of logarithms of up to 1e4 keep 12 digits."""

    def beta(x: int, y: int) -> Fraction:
        return Fraction(factorial(x - 1) * factorial(y - 1), factorial(x + y - 1))

    expected = sum(comb(1030, k) * beta(k + 5, 1035 - k) for k in range(516)) / beta(5, 5)
    assert as_few(515, 1030, 4, 8) == pytest.approx(float(expected), rel=1e-11)
    assert as_few(1030, 1030, 4, 8) == pytest.approx(1, rel=1e-11) and as_few(1030, 1030, 4, 8) <= 1
    assert as_few(0, 100_000, 8, 8) == pytest.approx(0, abs=1e-30)
    assert as_few(99_999, 100_000, 0, 0) == pytest.approx(1 - 1 / 100_001, rel=1e-7)  # uniform: every count alike


def test_visits_of_one_step_count_together_in_any_order():
    """q has 8 of 16 after 8 of 8, which the reference policy would do with a probability of 0.012; r was solved by one
    of its two groups; s, solved before the step, by none."""
    visits = [("q", 8, 8), ("q", 0, 8), ("r", 0, 8), ("r", 1, 8), ("s", 0, 4), ("s", 0, 0), ("s", 0, 4)]
    found = set()
    for order in permutations(visits):
        ledger = Ledger({"q": (8, 8), "r": (1, 8)})
        ledger.note([("s", 1, 4)])
        metrics = ledger.note(order)
        assert sorted(ledger.falling) == ["q"] and ledger.lost == ["s"]
        found.add(tuple(sorted(metrics.items())))
    [metrics] = found
    assert dict(metrics) == {
        "coverage/visited": 3,
        "coverage/falling": 1,
        "coverage/lost": 1,
        "coverage/unsolved": 0,
        "coverage/solved_easy": 1,
        "coverage/solved_hard": 1,  # one problem, though one of its groups has no correct response
    }


def test_falling_by_hand():
    """None of 16 after one of 8: B(2, 24) / B(2, 8) = (8·9) / (24·25) = 0.12; after two: (7·8·9) / (23·24·25)."""
    assert as_few(0, 16, 1, 8) == pytest.approx(0.12)
    assert as_few(0, 16, 2, 8) == pytest.approx(504 / 13800)
    ledger = Ledger({"a": (1, 8), "b": (2, 8)})
    assert ledger.falling == []
    assert ledger.note([("a", 0, 16), ("b", 0, 16), ("new", 0, 16)])["coverage/falling"] == 2
    assert ledger.falling == ["a", "b"], "new: the reference policy did not sample it"
    ledger.note([("a", 3, 16)])
    assert ledger.falling == ["b"], "a has recovered"


def test_the_file_survives_cuts_and_is_rewound(tmp_path):
    drop_visits(tmp_path, 3)
    assert read_visits(tmp_path) == {}
    for step in (1, 2, 3):
        write_visits(tmp_path, step, [("ä", step, 4), ("step", 0, 4)])
    drop_visits(tmp_path, 2)
    assert read_visits(tmp_path) == {1: [("ä", 1, 4), ("step", 0, 4)], 2: [("ä", 2, 4), ("step", 0, 4)]}
    text = (tmp_path / FILE).read_text(encoding="utf-8")
    for cut in ("{", '{"step": 3, "problems": [["a", 1', "[]", '{"step": 3, "problems": [["a", 1]]}', "\x00"):
        (tmp_path / FILE).write_text(text + cut, encoding="utf-8")
        assert list(read_visits(tmp_path)) == [1, 2]
