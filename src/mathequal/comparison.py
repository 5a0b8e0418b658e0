"""One comparison of two answers: its question, its bounded work, and how expressions in them are compared."""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from mathequal.answers import Answer, Chain, Congruence, Family
from mathequal.asked import order_of, rules_of
from mathequal.budget import Budget, Unevaluable
from mathequal.extract import Decimals
from mathequal.formula import is_unfinished
from mathequal.identity import identical
from mathequal.matrices import matrices_of
from mathequal.nodes import IMAGINARY, Call, Node, Number, Product, Symbol, Words
from mathequal.numeric import mp, numeric
from mathequal.rational import exact
from mathequal.text import word_list
from mathequal.trees import canonical, contains, numeral, operations, symbols

_STEPS = 20_000
_LONG_IN_DIGITS = 10**6  # from here on a power of ten is a usual way to write a number
HEAVY = {*word_list("sum prod int oint lim max min gcd lcm det call arg sgn norm Re Im")}
"""Operations that no answer has unless the gold answer has them."""
_FAMILIES = tuple(frozenset(family.split()) for family in (
    "sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc", "ln log logb", "! binom", "floor ceil",
    "sinh cosh tanh coth arsinh",
))  # fmt: skip


class KindRule(NamedTuple):
    """What compares two answers of certain classes."""

    name: str
    some: tuple[type[Answer], ...]
    """Classes of which one side is one."""
    every: tuple[type[Answer], ...]
    """Classes of which both sides are one; any, if none is named."""
    compare: Callable[["Comparison", Any, Any], bool | None]

    def is_for(self, gold: Answer, answer: Answer) -> bool:
        """Whether the rule compares these two."""
        if not isinstance(gold, self.some) and not isinstance(answer, self.some):
            return False
        return not self.every or (isinstance(gold, self.every) and isinstance(answer, self.every))


def any_of(results: Iterable[bool | None]) -> bool | None:
    """Or, with None for what is not known."""
    found = [*results]
    return True if True in found else None if None in found else False


def all_of(results: Iterable[bool | None]) -> bool | None:
    """And, with None for what is not known; stops at the first False."""
    unknown = False
    for result in results:
        if result is False:
            return False
        unknown |= result is None
    return None if unknown else True


def is_result(gold: Node, answer: Node) -> bool:
    """Whether an answer is a result, as the gold answer is, and not a computation that has yet to be done."""
    known, used = operations(gold), operations(answer)
    if used >= {"sin", "cos"} and contains(answer, IMAGINARY):
        known |= {"sin", "cos"}  # the polar form of a complex number
    if (used - known) & HEAVY:
        return False
    if (wanted := numeral(gold)) not in ("", "ten"):
        form = numeral(answer)
        if wanted == "int" and form == "ten" and abs(exact(answer) or 0) < _LONG_IN_DIGITS:  # 10^2
            return False
        return form != "" and not (wanted in ("int", "scaled") and form == "frac")
    if symbols(gold):
        return True
    with suppress(Unevaluable):
        if exact(gold) is None and is_unfinished(answer) and not is_unfinished(gold):
            return False
    return not used - known - set().union(*(family for family in _FAMILIES if known & family))


class Comparison:
    """One comparison, with its budget. Its methods return True, False, or None if nothing decides."""

    def __init__(self, decimals: Decimals, gold: str, question: str, kind_rules: Sequence[KindRule]) -> None:
        self.budget, self.rounded, self.ends = Budget(_STEPS), decimals == "rounded", list[Any]()
        self.question, self.rules, self.order = question, rules_of(question), order_of(question)
        self.kind_rules = kind_rules
        self.other_form = ""
        """The first rule of the question that refused an expression."""
        self.rule = ""
        """The rule that decides, of the whole answers and not of their parts."""
        self.budget.matrices = matrices_of(question, gold)

    def equal(self, gold: Answer, answer: Answer) -> bool | None:
        """Equality by the first rule for the classes of both; without one, answers of one class with the same fields
        are equal."""
        try:
            self.budget.spend()
        except Unevaluable:
            return None
        if gold.others or answer.others:
            golds, answers = ((replace(x, others=()), *x.others) for x in (gold, answer))
            pairs = [(x, y) for x in golds for y in answers if x is golds[0] or x.kind == y.kind]
            return self.any_reading(pairs)
        if not _has_names_apart(gold) and not _has_names_apart(answer) and not same_name(gold.name, answer.name):
            self.rule = self.rule or "another name"  # x ∈ S, y ∈ S
            return False
        for rule in self.kind_rules:
            if rule.is_for(gold, answer):
                self.rule = self.rule or rule.name
                return rule.compare(self, gold, answer)
        self.rule = self.rule or ("the same kind and value" if gold.kind == answer.kind else "another kind of answer")
        return gold.says(answer)

    def any_reading(self, pairs: Sequence[tuple[Answer, Answer]]) -> bool | None:
        """Equality of one of several pairs of readings; the rule is that of the first pair that is equal."""
        before, results, rules = self.rule, list[bool | None](), list[str]()
        for gold, answer in pairs:
            self.rule = before
            results.append(self.equal(gold, answer))
            rules.append(self.rule)
        self.rule = rules[results.index(True)] if True in results else (rules or [before])[0]
        return any_of(results)

    def in_order(self, gold: Sequence[Answer], answer: Sequence[Answer]) -> bool | None:
        """Equality of several answers one by one."""
        return len(gold) == len(answer) and all_of(map(self.equal, gold, answer))

    def form_allowed(self, gold: Node, answer: Node) -> bool:
        """Whether an answer is a result in the form that the question asks for."""
        if not is_result(gold, answer):
            return False
        refused = next((rule.name for rule in self.rules if not rule.allows(gold, answer)), "")
        self.other_form = self.other_form or refused
        return not refused

    def identical(self, gold: Node, answer: Node) -> bool | None:
        """Whether two expressions are the same function of the same letters, in whatever form."""
        return identical(gold, answer, self.budget)

    def expressions(self, gold: Node, answer: Node) -> bool | None:
        """Equality of expressions in value and in form; also up to rounding, if that is allowed."""
        decimal = self.rounded and numeral(gold) in ("dec", "sci")
        if decimal and not symbols(answer) | operations(answer) & HEAVY and abs(self.error(answer, gold)[0]) <= 0.5:
            return True
        return self.form_allowed(gold, answer) and self.identical(gold, answer)

    def error(self, node: Node, decimal: Node) -> tuple[Any, Any]:
        """How far a decimal number is from a constant towards zero: in units of its last digit, and as a share."""
        value, written = numeric(node, self.budget), exact(decimal)
        if not isinstance(value, mp.mpf) or written is None:
            return mp.inf, mp.inf
        error = (value - mp.mpf(written.numerator) / written.denominator) * (mp.sign(value) or 1)
        places = decimal.detail or 0 if isinstance(decimal, Number) else 0
        return error / mp.mpf(10) ** places, error / abs(value) if value else mp.inf


def _has_names_apart(answer: Answer) -> bool:
    """Whether the rule for an answer compares its name itself."""
    return isinstance(answer, (Chain, Family, Congruence))


def same_name(left: Node | None, right: Node | None) -> bool:
    """Whether two names may be of one thing: y may be f(x), and each of them has no name."""
    if left is None or right is None or left == right or isinstance(left, Words) or isinstance(right, Words):
        words = [_spelled(x) for x in (left, right) if isinstance(x, (Words, Product))]
        both = all(isinstance(x, Words) for x in (left, right)) or all(map(str.isupper, words))  # AB is not BC
        return len(words) < 2 or not both or " " in "".join(words) or words[0] == words[1]
    if re.fullmatch("fracdyd. y'", " ".join(sorted(map(_first_part, (left, right))))):
        return True
    if isinstance(left, Call) or isinstance(right, Call):
        call, other = (left, right) if isinstance(left, Call) else (right, left)
        assert isinstance(call, Call)
        other_function = "'" in call.name or ("^" in call.name and call is right)  # y is neither f'(x) nor f^{-1}(x)
        value = None if other_function else "y" if len(call.arguments) == 1 else "z"
        return isinstance(other, Symbol) and other.name in (value, call.name.rstrip("'"))
    return canonical(left) == canonical(right)


def _spelled(name: Words | Product) -> str:
    return name.words.strip() if isinstance(name, Words) else "".join(map(_first_part, name.factors))


def _first_part(name: Node) -> str:
    """The letters of a symbol, or the text of another node's first part."""
    return name.name if isinstance(name, Symbol) else str(next(iter(name.parts), ""))
