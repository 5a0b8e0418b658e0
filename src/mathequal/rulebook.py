"""A rule of English or of notation: how it is recognised, and how else it is written.

A table of rules is a list in the order of their replacement. What each rule means, with an example whose verdict turns
on it, is in data/rules.tsv; `rule_tables` has all tables, and `told` what the file says.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.resources import files
from typing import Any, NamedTuple


class Rule(NamedTuple):
    """One notation or phrase, and its usual spelling."""

    id: str
    needs: str
    """Characters that every text has in which the pattern is found; they are looked for first, which is faster."""
    pattern: re.Pattern[str]
    usual: str | Callable[[re.Match[str]], str]


def table(entries: Iterable[tuple[str, str, str, Any]], flags: int = 0) -> list[Rule]:
    """Rules with their patterns compiled."""
    return [Rule(id, needs, re.compile(pattern, flags), usual) for id, needs, pattern, usual in entries]


def rewritten(text: str, rules: Iterable[Rule]) -> str:
    """A text in its usual spelling."""
    for _, needs, pattern, usual in rules:
        if needs in text:
            text = pattern.sub(usual, text)
    return text


class Told(NamedTuple):
    """What data/rules.tsv says of a rule."""

    meaning: str
    paid: bool
    """Whether the example is paid; without the rule it is not, or the other way round."""
    gold: str
    response: str
    question: str


def rule_tables() -> dict[str, list[Any]]:
    """Every table of rules by the names of its module and of itself. Each of their rules has an `id`."""
    places = (
        *("spelling.SPELLING", "phrases.WHOLE", "phrases.PHRASES", "phrases.AS_FORMULA"),
        *("notation.NOTATION", "notation.HEDGES"),
        *("beside_words.BEFORE", "beside_words.AFTER", "responses.LEFT_SIDES", "retracted.RETRACTIONS"),
        *(f"beside.{name}" for name in ("SIGNS", "STATED", "TOUCHING", "APART", "SCALES")),
    )
    modules = {place: import_module(f"mathequal.{place.partition('.')[0]}") for place in places}
    return {place: getattr(module, place.partition(".")[2]) for place, module in modules.items()}


def told() -> dict[str, Told]:
    """The meaning and the example of each rule, by its id."""
    rows = files("mathequal").joinpath("data/rules.tsv").read_text("utf-8").splitlines()
    found = dict[str, Told]()
    for row in rows[1:]:
        id, meaning, paid, gold, response, question, *_ = [*row.split("\t"), ""]
        if id in found:
            raise ValueError(f"data/rules.tsv has the rule {id} twice")
        found[id] = Told(meaning, paid == "paid", gold, response, question)
    return found


def forget() -> None:
    """Empty every cache, so that a table which has changed counts."""
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] == "mathequal":
            for value in [*vars(module).values()]:
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
    sys.modules["mathequal.beside_words"].INDEXES.clear()


@contextmanager
def without(id: str) -> Iterator[None]:
    """The judge without one of its rules: what turns on it."""
    for rules in rule_tables().values():
        for place, rule in enumerate(rules):
            if rule.id == id:
                del rules[place]
                forget()
                try:
                    yield
                finally:
                    rules.insert(place, rule)
                    forget()
                return
    raise KeyError(id)
