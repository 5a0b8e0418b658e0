"""Our pairs whose truth is known: right answers of many types with answers that equal them and answers that do not.

They are the files of data/ that hold examples, and the tests run all of them. `pairs` is for whoever tries another
judge on them: `dph judge` does.
"""

from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple

from mathequal.answers import Expression
from mathequal.reading import read
from mathequal.rulebook import told
from mathequal.trees import symbols


class Pair(NamedTuple):
    """A right answer, and an answer or a whole response that says the same or does not."""

    type: str
    """What the right answer is, in words (`type_of`); of whole responses "words beside a box"."""
    kind: str
    """What the pair is an example of, in the words of its file."""
    gold: str
    text: str
    """The answer, or the response if `whole`."""
    right: bool
    """Whether a judge should pay it."""
    question: str = ""
    whole: bool = False
    """Whether `text` is a response with a box in it."""


RESPONSES = "words beside a box"
_TYPES = {
    "quantity": "quantities",
    "assigned": "equations and named values",
    "equation": "equations and named values",
    "inequality": "sets of reals",
    "intervals": "sets of reals",
    "named set": "sets of reals",
    "list": "lists and sets",
    "set": "lists and sets",
    "tuple": "points",
    "matrix": "matrices and cases",
    "cases": "matrices and cases",
    "letters": "choices and texts",
    "text": "choices and texts",
}


def type_of(gold: str) -> str:
    """What a right answer is, in words.

    >>> type_of("3 cm"), type_of("7"), type_of("x+1"), type_of("(1, 2)")
    ('quantities', 'numbers', 'expressions', 'points')
    """
    answer = read(gold)
    if answer is None:
        return "choices and texts"
    if isinstance(answer, Expression):
        return "expressions" if symbols(answer.value) else "numbers"
    return _TYPES.get(answer.kind, "times, dates, bases, ratios, families")


def pairs() -> list[Pair]:
    """All pairs, each once: answers first, then whole responses."""
    return list(dict.fromkeys([*_answers(), *_responses()]))


def _lines(name: str) -> list[list[str]]:
    text = files("mathequal").joinpath(f"data/{name}.tsv").read_text("utf-8")
    return [line.split("\t") for line in text.splitlines()]


def _answers() -> Iterator[Pair]:
    for name in ("equal", "equal_notation", "unequal", "unequal_notation"):
        for kind, gold, *answers in _lines(name):
            type = type_of(gold)
            for answer in answers:
                yield Pair(type, kind, gold, answer, name.startswith("equal"))


def _responses() -> Iterator[Pair]:
    """Whole responses, in which ␤ is a line break: those of responses.tsv, and the example of each rule."""
    for verdict, kind, gold, question, *responses in _lines("responses")[1:]:
        for response in responses:
            yield Pair(RESPONSES, kind, gold, response.replace("␤", "\n"), verdict == "paid", question, True)
    for rule in told().values():
        yield Pair(RESPONSES, rule.meaning, rule.gold, rule.response.replace("␤", "\n"), rule.paid, rule.question, True)
