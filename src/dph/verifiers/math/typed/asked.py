"""What a question asks of the form of an answer, beyond its value: factors, a sum, lowest terms, an order.

An expression is compared as a function of its letters, and a fraction as a number; the question's words reverse that:

    Factor 2x² − 18.            2(x + 3)(x − 3)    not 2(x² − 9)
    Expand (x + 2)(x + 5).      x² + 7x + 10       not x·x + 2x + 5x + 10
    Write 21/28 in lowest terms.    3/4            not 21/28, nor 6/8
    List them in increasing order.  1, 2, 5        not 2, 1, 5

A rule asks of an answer only what the gold answer keeps.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import gcd, lcm
from typing import Any

from dph.verifiers.math.typed.grammar import Node, Unevaluable, holds
from dph.verifiers.math.typed.text import word_list
from dph.verifiers.math.typed.values import Formula, exact, formula_of, is_unfinished, negative, symbols


@dataclass(frozen=True, slots=True)
class Rule:
    """What some words of a question ask of an answer."""

    words: re.Pattern[str]
    kept: Callable[[Node], bool]
    """Whether an expression keeps the rule."""
    measure: Callable[[Node], int] = lambda _: 0
    """What an answer must have at least as much of as the gold answer."""

    def allows(self, gold: Node, answer: Node) -> bool:
        """Whether an answer keeps the rule, or the gold answer does not."""
        try:
            return not self.kept(gold) or (self.kept(answer) and self.measure(answer) >= self.measure(gold))
        except Unevaluable:
            return True


def _factors(node: Node) -> Iterator[tuple[Node, int]]:
    """The factors of a product that hold letters, with their powers."""
    match node:
        case ("-", inner):
            yield from _factors(inner)
        case ("*", *parts):
            for part in parts:
                yield from _factors(part)
        case ("/", top, bottom):
            yield from _factors(top)
            yield from ((factor, -power) for factor, power in _factors(bottom))
        case ("^", base, ("n", power, "int")):
            yield from ((factor, own * int(power)) for factor, own in _factors(base))
        case _ if symbols(node):
            yield node, 1


def _content(formula: Formula) -> Fraction:
    """The largest number that divides every coefficient."""
    tops, bottoms = [x.numerator for _, x in formula], [x.denominator for _, x in formula]
    return Fraction(gcd(*tops), lcm(*bottoms)) if formula else Fraction(1)


def _common(formula: Formula) -> set[Any]:
    """What divides every term of a sum: the factors of a single term, letters, or the sum itself."""
    if len(formula) > 1:
        shared = set.intersection(*({factor for factor, power in product if power > 0} for product, _ in formula))
        return shared | {formula}
    return {factor for product, _ in formula for factor, power in product if power > 0}


def _is_factored(node: Node) -> bool:
    """Whether a polynomial is a product of sums from which nothing more can be drawn out at sight."""
    for factor, power in _factors(node):
        formula = formula_of(factor)
        sum_of_powers = factor[0] == "+" and len(formula) > 1 and not holds(factor, "f", "call", "big")
        if power < 0 or not (factor[0] == "s" or sum_of_powers):
            return False
        if len(formula) > 1 and (_content(formula) != 1 or len(_common(formula)) > 1):
            return False
    return True


def _number_of_factors(node: Node) -> int:
    return sum(power for _, power in _factors(node))


def _is_expanded(node: Node) -> bool:
    """Whether an expression is a sum of terms without products of sums, like terms or common brackets."""
    terms = [x[1] if x[0] == "-" else x for x in (node[1:] if node[0] == "+" else (node,))]
    sums = [[(f, p) for f, p in _factors(term) if f[0] == "+" and p > 0] for term in terms]
    if any(len(some) > 1 or any(power > 1 for _, power in some) for some in sums):
        return False
    brackets = [formula_of(factor) for some in sums for factor, _ in some]
    return len(brackets) == len({*brackets}) and not is_unfinished(node)


def _is_finished(node: Node) -> bool:
    return not is_unfinished(node)


def _is_reduced(node: Node) -> bool:
    """Whether the fractions of an expression are in lowest terms."""
    match node:
        case ("n", _, "frac" | "mixed", common):
            return common == 1
        case ("/", top, bottom):
            above, below = formula_of(top), formula_of(bottom)
            left, right = _content(above), _content(below)
            whole = left.denominator == right.denominator == 1
            numbers = not whole or gcd(left.numerator, right.numerator) == 1
            signs = _common(below) | {negative(x) for x in _common(below) if isinstance(x, frozenset)}
            return numbers and not _common(above) & signs and _is_reduced(top) and _is_reduced(bottom)
        case ("ratio", terms):
            values = [exact(term) for term in terms]
            return not all(x and x.denominator == 1 for x in values) or gcd(*(int(x or 0) for x in values)) == 1
        case ("-" | "+" | "*", *parts):
            return all(map(_is_reduced, parts))
    return True


def _is_of_primes(node: Node) -> bool:
    """Whether a number is written as a product of powers of primes."""
    factors = node[1:] if node[0] == "*" else (node,)
    bases = [x[1] if x[0] == "^" and x[2][0] == "n" else x for x in factors]
    return (len(factors) > 1 or bases != [node]) and all(map(_is_prime, bases))


def _is_prime(node: Node) -> bool:
    value = node[1] if node[0] == "n" and node[2] == "int" else 0
    return 1 < value < 10**6 and all(int(value) % n for n in range(2, int(float(value) ** 0.5) + 1))


_VERB = r"(?:^|[.!?:;,)\n]\s*|\b(?:and|or|then|please|to|by|first|completely|fully|should|must|can)\s+)"
_SIMPLER = r"\bsimpl(?:if|est)|\blowest terms|\breduced?\b|\birreducible|\bcombin|\blike terms"
RULES = (
    Rule(
        re.compile(rf"{_VERB}(?:completely |fully )?factor(?:i[sz]e)?\b(?! of\b)|\bfactored form|\bin factors\b", re.I),
        _is_factored,
        _number_of_factors,
    ),
    Rule(re.compile(rf"{_VERB}(?:expand|multiply|distribute)\b|\bmultiply out|\bexpanded form", re.I), _is_expanded),
    Rule(re.compile(_SIMPLER, re.I), _is_reduced),
    Rule(re.compile(r"\bprime factori[sz]ation|\bproduct of (?:\w+ )?primes?\b", re.I), _is_of_primes),
    Rule(
        re.compile(rf"{_SIMPLER}|\bcollect\b|\bdistribut|{_VERB}(?:expand|multiply|add|subtract|perform)\b", re.I),
        _is_finished,
    ),
)
"""What a question's words ask. Each example above is one of them."""


_STEMS = word_list(
    "factor expand multipl distribut simpl lowest reduce irreduc combin like collect add subtract perform prime"
)


@lru_cache(maxsize=1024)
def rules_of(question: str) -> tuple[Rule, ...]:
    """The rules for expressions that a question's words name."""
    words = " ".join(question.lower().split())
    if not any(stem in words for stem in _STEMS):  # the usual case
        return ()
    return tuple(rule for rule in RULES if rule.words.search(words))


@lru_cache(maxsize=1024)
def may_be_on_matrices(question: str) -> bool:
    """Whether the letters of a question may be matrices: it says so, or there is no question."""
    words = question.lower()
    return not words.strip(" ?") or any(stem in words for stem in _MATRICES)


_MATRICES = word_list("matri operator transpose invertible inverse group")


_UP = "least|smallest|lowest|shortest|fewest|youngest|lightest|slowest|cheapest|earliest|minimum"
_DOWN = "greatest|largest|highest|longest|most|oldest|heaviest|fastest|biggest|latest|maximum"
_ORDERS = tuple(
    (order, re.compile(words, re.I))
    for order, words in (
        ("up", rf"\b(?:increasing|ascending)(?: \w+)? order|\bfrom (?:the )?(?:{_UP}) to (?:the )?(?:{_DOWN})\b"),
        ("down", rf"\b(?:decreasing|descending)(?: \w+)? order|\bfrom (?:the )?(?:{_DOWN}) to (?:the )?(?:{_UP})\b"),
        ("given", r"\b(?:in|into|by) (?:(?:the|this|that|an?) )?(?:\w+ )?order\b(?! (?:to|that|for|of operations)\b)"),
        ("given", r"\brespectively\b.{0,80}$"),
    )
)


@lru_cache(maxsize=1024)
def order_of(question: str) -> str:
    """The order of values that a question asks for: up, down, given for the gold answer's, or "" for none."""
    words = " ".join(question.split())
    if not any(stem in words for stem in ("order", "Order", "from ", "From ", "espectively")):
        return ""
    return next((order for order, pattern in _ORDERS if pattern.search(words)), "")


def keeps_order(order: str, values: Sequence[Fraction | None]) -> bool:
    """Whether the values of a gold answer are in an order, so that it can be asked of an answer; unknown values are."""
    known = [value for value in values if value is not None]
    in_order = len(known) < len(values) or known == sorted(known, reverse=order == "down")
    return bool(order) and (order == "given" or in_order)
