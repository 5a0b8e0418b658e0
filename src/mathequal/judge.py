"""Whether two answers say the same: what they say beside their values, and the rule for their kinds."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from mathequal.answers import (
    Answer,
    Chain,
    Congruence,
    Digits,
    Equation,
    Expression,
    Family,
    Inequality,
    Intervals,
    Letters,
    Members,
    Piecewise,
    Proportion,
    Quantity,
    Row,
    Several,
    Table,
)
from mathequal.asked_units import units_asked
from mathequal.comparison import Comparison, KindRule
from mathequal.conditions import may_exclude, may_hedge
from mathequal.equal_collections import all_alternatives, collections, letters, matched, sets_of_one, tables
from mathequal.equal_names import named
from mathequal.equal_reals import sets_of_reals
from mathequal.equal_relations import equations, families, identities, in_a_chain, inequalities
from mathequal.equal_values import bases, quantities, ratios
from mathequal.extract import Decimals
from mathequal.grammar import LONGEST
from mathequal.names import names_are_reversed
from mathequal.numeric import alone
from mathequal.rational import exact
from mathequal.reading import read
from mathequal.text import bare_text
from mathequal.units import Unit

UNPARSED = "unparsed"
"""What is said of answers of which one was not read, and whose texts differ."""

_LETTER = re.compile("(?<![A-Za-z])[A-Z](?![A-Za-z])")

RULES = (
    KindRule("families over the integers", (Family, Congruence), (), families),
    KindRule("names and chains", (Chain,), (), named),
    KindRule("values and units", (Quantity, Expression), (Quantity, Expression), quantities),
    KindRule("ratios", (Proportion,), (), ratios),
    KindRule("matrices and tuples", (Table, Row), (Table, Row, Expression), tables),
    KindRule("sets of reals", (Intervals,), (), sets_of_reals),
    KindRule("lists and sets", (Several,), (Several, Members, Row), collections),
    KindRule("sets", (Members,), (Members,), collections),
    KindRule("a set of one", (Members,), (Members, Expression, Quantity, Row), sets_of_one),
    KindRule("alternatives that are all equal", (Several,), (Several, Expression, Quantity), all_alternatives),
    KindRule("letters of choices", (Letters,), (), letters),
    KindRule("digits of a base", (Digits,), (), bases),
    KindRule("cases", (Piecewise,), (Piecewise,), matched),
    KindRule("equations", (Equation,), (Equation,), equations),
    KindRule("an equation for one of its sides", (Equation,), (Equation, Expression), identities),
    KindRule("inequalities", (Inequality,), (Inequality,), inequalities),
    KindRule("a list in order as a chain", (Inequality,), (Several, Inequality), in_a_chain),
)
"""The first rule for the classes of two answers compares them. Answers without one are equal if their classes and
fields are."""


class Judgement(NamedTuple):
    """Whether two answers say the same."""

    equal: bool
    rule: str
    """The name of the rule that decided, for people: one of `RULES`, or what refused the answer beside its value."""
    detail: str = ""
    """For programs: `UNPARSED` if one answer was not read and the texts differ, "text" if they are the same, "long" for
    an answer that is too long to be read, "form" if the question asks for another form, and otherwise ""."""


def compare(gold: str, answer: str, *, decimals: Decimals = "exact", question: str = "") -> Judgement:
    """Whether an answer equals the gold answer, by the rule for their types.

    decimals: whether a value must equal a gold decimal number ("exact"), or may round to it ("rounded"). question: says
    which units may be left out, and which form is asked for.

    >>> compare(r"\\frac{1}{2}", "0.5").equal
    True
    >>> compare("(1, 2)", "(2, 1)")
    Judgement(equal=False, rule='matrices and tuples', detail='')
    """
    if len(answer) > LONGEST:
        return Judgement(False, "too long", "long")
    with alone:
        left, right = (read(text) or read(text, units=True) for text in (gold, answer))
        comparison = Comparison(decimals, gold, question, RULES)
        equal = None if left is None or right is None else _decided(comparison, left, right, gold, answer)
    if equal is None:
        same = bare_text(gold) == bare_text(answer)
        return Judgement(same, "the same text" if same else "not read", "text" if same else UNPARSED)
    if not equal and comparison.other_form:
        return Judgement(False, f"the form that the question asks for: {comparison.other_form}", "form")
    return Judgement(equal, comparison.rule)


def answer_key(answer: str) -> str:
    """What equal numbers, and answers with equal text, share."""
    typed = read(answer)
    value = exact(typed.value) if isinstance(typed, Expression) else None
    return bare_text(answer) if value is None else str(value)


def _decided(c: Comparison, gold: Answer, answer: Answer, gold_text: str, answer_text: str) -> bool | None:
    """Equality; also with letters after numbers as units, if the other side has one."""
    c.rule = _refusal(c, gold, answer, gold_text)
    if c.rule:
        return False
    if c.order and isinstance(gold, Letters) and isinstance(answer, Letters):
        c.rule = "the order of letters that the question asks for"
        return _LETTER.findall(gold_text) == _LETTER.findall(answer_text)
    if gold == answer:
        c.rule = "the same reading"
        return True
    equal = c.equal(gold, answer)
    if equal is not True and isinstance(gold, (Expression, Chain, Several)) and families(c, gold, answer):
        c.rule, equal = "families over the integers", True
    has_unit = any(isinstance(x, Quantity) for x in (gold, answer, *gold.items, *answer.items))
    if equal is not True and (has_unit or units_asked(c.question)):
        return _equal_with_units(c, gold_text, answer_text) or equal
    return equal


def _equal_with_units(c: Comparison, gold_text: str, answer_text: str) -> bool:
    """Equality with letters after numbers as units, if both sides have units then, or the question asks for that of
    one."""
    gold, answer = (read(text, units=True) for text in (gold_text, answer_text))
    if gold is None or answer is None:
        return False
    units = [{*_units_of(x)} for x in (gold, answer)]
    if not all(units) and not (units[0] | units[1]) & units_asked(c.question):
        return False
    before, c.rule = c.rule, ""
    equal = c.equal(gold, answer) is True
    c.rule = c.rule if equal else before
    return equal


def _units_of(answer: Answer) -> Iterator[Unit | None]:
    """The units of a quantity, or of the members of a list; None for one that counts things."""
    yield from (x.unit for x in (answer, *answer.items) if isinstance(x, Quantity))


def _refusal(c: Comparison, gold: Answer, answer: Answer, gold_text: str) -> str:
    """The rule by which what an answer says beside its value makes it another one, whatever the value; or ""."""
    if gold.said and answer.said and not gold.said & answer.said:
        return "another name before the value"  # a sum and a product
    if names_are_reversed(answer.name, c.question):
        return "a ratio in the other order"
    if answer.over_reals and isinstance(gold, (Family, Congruence)):
        return "an index over the reals"  # n ∈ ℝ for n ∈ ℤ
    if answer.hedged and not may_hedge(gold, gold_text, c.question):
        return "a hedge that nobody asked for"
    if answer.excluded and not may_exclude(gold, answer, c.question, c.budget):
        return "other excluded values"
    return ""
