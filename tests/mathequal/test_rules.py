"""Rules of English and notation: each is named once, is told in data/rules.tsv, and decides the verdict on its example;
and what stands beside a box, by kinds."""

from pathlib import Path

import pytest

import mathequal
from mathequal import compare, explain
from mathequal.judge import RULES
from mathequal.responses import statement
from mathequal.rulebook import rule_tables, told, without

DATA = Path(mathequal.__path__[0]) / "data"
TOLD = told()
RESPONSES = [line.split("\t") for line in (DATA / "responses.tsv").read_text("utf-8").splitlines()[1:]]


def is_paid(gold: str, response: str, question: str) -> bool:
    """Whether a response is paid. In the files ␤ is a line break."""
    stated = statement(response.replace("␤", "\n"), [gold], question)
    return stated is not None and compare(gold, stated.answer, question=question).equal


def test_every_rule_is_named_once_and_told():
    ids = [rule.id for rules in rule_tables().values() for rule in rules]
    names = [*ids, *(rule.name for rule in RULES)]
    assert sorted(names) == sorted({*names})
    assert sorted(ids) == sorted(TOLD)
    assert all(rule.meaning for rule in TOLD.values()) and len({rule.meaning for rule in TOLD.values()}) == len(TOLD)


@pytest.mark.parametrize("id", TOLD)
def test_the_verdict_on_a_rule_s_example_turns_on_it(id: str):
    rule = TOLD[id]
    with_it = is_paid(rule.gold, rule.response, rule.question)
    with without(id):
        without_it = is_paid(rule.gold, rule.response, rule.question)
    assert (with_it, without_it) == (rule.paid, not rule.paid)


def test_a_rule_is_there_again_after_it_was_taken_away():
    before = {place: [rule.id for rule in rules] for place, rules in rule_tables().items()}
    with without("before.not"):
        assert is_paid("5", r"It is not $\boxed{5}$.", "")
    assert not is_paid("5", r"It is not $\boxed{5}$.", "")
    assert before == {place: [rule.id for rule in rules] for place, rules in rule_tables().items()}
    with pytest.raises(KeyError), without("before.nothing"):
        pass


@pytest.mark.parametrize("row", RESPONSES, ids=lambda row: f"{row[0]} {row[1]} {row[2]}")
def test_what_stands_beside_a_box_by_kinds(row: list[str]):
    verdict, _, gold, question, *responses = row
    assert responses
    others = [text for text in responses if is_paid(gold, text, question) != (verdict == "paid")]
    assert others == []


@pytest.mark.parametrize(
    ("gold", "response", "question", "rules"),
    [
        ("5", r"There are at least $\boxed{5}$.", "How many are there?", ("before.at-least",)),
        ("5", r"There are at least $\boxed{5}$.", "What is the least number?", ()),
        ("5", r"It is $\boxed{5}$.", "", ()),
        ("£45", r"\text{GBP }45", "", ("formula.empty-text", "phrase.gbp")),
        ("9", r"$2x=\boxed{9}$", "Solve $2x=18$ for $x$.", ("before.left-side",)),
        ("B", r"Statement $\boxed{B}$ is false.", "Which statement is false?", ()),
        ("B", r"Statement $\boxed{B}$ is false.", "Which is it?", ("after.not",)),
    ],
)
def test_an_explanation_names_the_rules_that_decided(gold: str, response: str, question: str, rules: tuple[str, ...]):
    assert sorted(explain(gold, response, question=question).rules) == sorted(rules)


def test_an_explanation_says_how_both_were_read():
    assert str(explain("5", r"There are $\boxed{5}$ million.")) == (
        "not equal: values and units\ngold    5  (number 5)\nanswer  5\\text{ million}  (number 5000000)\n"
        "rule    after.scale: a word that multiplies the value"
    )
    assert (
        str(explain("5", r"I do not know, \boxed{}"))
        == "not equal: no answer\ngold    5  (number 5)\nanswer  none found"
    )
