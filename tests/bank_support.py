"""Builders that the tests of the bank share."""

from dataclasses import astuple

from dph.measure.metrics import answer_of
from dph.rehearsal.bank import Bank
from dph.rehearsal.modes import BankKey, Forms, Solution
from dph.types import Problem

PROBLEMS = {name: Problem(name, f"solve {name}", "1", "exact") for name in "abcdef"}
FORMS = Forms(PROBLEMS, lambda problem, text: text.split()[0] if text.split() else "other", answer_of)


def bank(key="style", capacity=3, seed=0, problems=PROBLEMS, forms=FORMS):
    return Bank(BankKey(key, forms), capacity, seed, list(problems))


def solution(problem, text, *, correct=True, finished=True):
    ids = [ord(letter) for letter in text]
    return Solution(problem, [1, ord(problem)], ids, [-0.5 - i / 8 for i in range(len(ids))], text, correct, finished)


def admit(store, step, groups):
    """A step in which a single process saw all groups: (problem, texts)."""
    seen = [store.sight(problem, [solution(problem, text) for text in texts]) for problem, texts in groups]
    admission = store.admission(step, seen)
    store.commit(admission)
    return admission


def held(store):
    """The bank's entries as plain values, in their order."""
    return [(e.row.problem_id, e.row.text, *astuple(e)[1:]) for e in sorted(store.entries, key=lambda e: e.age)]
