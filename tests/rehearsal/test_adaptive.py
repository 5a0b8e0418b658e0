"""Adaptive rehearsal: who joins and leaves, in which order, and that it is a function of the steps so far."""

import pytest

from dph.rehearsal.adaptive import AdaptiveSet
from dph.rehearsal.store import Rehearsal
from dph.runs.coverage import Ledger


def stored(id: str, count: int = 1) -> list[Rehearsal]:
    return [Rehearsal([1], [2, number], id, [-0.5, -0.5], f"{id}{number}") for number in range(count)]


REFERENCE = {"p": (8, 8), "q": (7, 8), "x": (4, 8), "y": (3, 8), "z": (0, 8)}


def made(ledger: Ledger, by_class: bool = False) -> AdaptiveSet:
    perfect, candidates = [*stored("p"), *stored("q")], [*stored("x", 2), *stored("y")]
    return AdaptiveSet(perfect, candidates, seed=3, falling=ledger, by_class=by_class)


def names(rows: list[Rehearsal]) -> list[str]:
    return [row.text for row in rows]


def test_a_prompt_joins_when_it_falls_and_leaves_when_it_recovers():
    ledger = Ledger(REFERENCE)
    rehearsal = made(ledger)
    assert rehearsal.needed() == ["p", "q"], "near-perfect prompts that training does not sample"
    ledger.note([("x", 0, 16), ("y", 6, 16), ("z", 0, 16)])
    assert rehearsal.needed() == ["p", "q", "x"]
    ledger.note([("x", 8, 16), ("y", 0, 16), ("p", 16, 16), ("q", 2, 16)])
    assert rehearsal.needed() == ["q", "y"], "p is safe; q is near-perfect and falls"


def test_a_prompt_that_was_not_sampled_joins_and_leaves_with_its_class():
    ledger = Ledger(REFERENCE)
    alone, together = made(ledger), made(ledger, by_class=True)
    ledger.note([("x", 0, 16)] * 16)
    assert alone.needed() == ["p", "q", "x"] and together.needed() == ["p", "q", "x", "y"]
    ledger.note([("y", 6, 16)])
    assert together.needed() == ["p", "q", "x"], "its own visit counts from then on"
    ledger = Ledger(REFERENCE)
    together = made(ledger, by_class=True)
    for correct, needed in ((0, ["p", "q", "x", "y"]), (16, ["p", "q"])):
        ledger.note([("x", correct, 16)] * 64)
        assert together.needed() == needed


def test_those_rehearsed_longest_ago_come_first_and_responses_take_turns():
    ledger = Ledger(REFERENCE)
    rehearsal = made(ledger)
    first = names(rehearsal.take(0, 3))
    assert sorted(first[:2]) == ["p0", "q0"] and first[2] == first[0]
    ledger.note([("x", 0, 16)])
    assert names(rehearsal.take(3, 3)) == ["x0", first[1], first[0]], "x was never rehearsed"
    assert names(rehearsal.take(6, 4)) == ["x1", first[1], first[0], "x0"]


def test_nothing_is_taken_where_no_prompt_is_in_need():
    ledger = Ledger(REFERENCE)
    ledger.note([("p", 16, 16), ("q", 16, 16)])
    rehearsal = made(ledger)
    assert rehearsal.take(0, 4) == [] and rehearsal.needed() == []


def test_responses_cannot_be_taken_out_of_order():
    rehearsal = made(Ledger(REFERENCE))
    rehearsal.take(0, 2)
    with pytest.raises(ValueError, match="2 responses were taken before, not 1"):
        rehearsal.take(1, 2)
