"""The coverage ledger: metrics by hand, its file under cuts and rewinds, and a run that is resumed."""

from math import comb

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
