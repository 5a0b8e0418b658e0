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

from mathequal.budget import Unevaluable
from mathequal.formula import Formula, formula_of, is_unfinished, negative
from mathequal.nodes import Node, holds, numeral, symbols
from mathequal.rational import exact
from mathequal.text import word_list


@dataclass(frozen=True, slots=True)
class Rule:
    """What some words of a question ask of an answer."""

    words: re.Pattern[str]
    kept: Callable[[Node], bool]
    """Whether an expression keeps the rule."""
    measure: Callable[[Node], int] = lambda _: 0
    """What an answer must have at least as much of as the gold answer."""
    of_numbers: bool = False
    """Whether it asks for a form of numbers, of which a question may leave the choice: a fraction or a decimal."""

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
    return len(brackets) == len({*brackets}) and not is_unfinished(node) and not _holds_power_of_numbers(node)


def _is_without_brackets(node: Node) -> bool:
    """Whether no term of an expanded sum multiplies a sum."""
    terms = [x[1] if x[0] == "-" else x for x in (node[1:] if node[0] == "+" else (node,))]
    multiplied = any(x[0] == "*" and any(f[0] == "+" and p > 0 for f, p in _factors(x)) for x in terms)
    return not multiplied and _is_expanded(node)


def _holds_power_of_numbers(node: Any) -> bool:
    match node:
        case ("^", ("n", *_), ("n", _, "int", *_)):
            return True
    return isinstance(node, tuple) and any(map(_holds_power_of_numbers, node[1:]))


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


def _is_simple_radical(node: Any) -> bool:
    """Whether each root is of what has no factor that can be drawn out, no two roots are multiplied, and none is below
    a fraction bar."""
    if not isinstance(node, tuple) or not node:
        return True
    if root := _root(node):  # roots in roots are another way to write a sum of roots
        return _holds_root(root[0]) or _is_without_powers(*root)
    if node[0] == "*" and sum(_root(x) is not None and not symbols(x) for x in node[1:]) > 1:
        return False
    if node[0] == "/" and _holds_root(node[2]):
        return False
    return all(map(_is_simple_radical, node[1:]))


def _root(node: Node) -> tuple[Node, int] | None:
    """What a root is of, and its index: of √2, ∛2 and 2^{1/3}."""
    match node:
        case ("f", "sqrt", inner):
            return inner, 2
        case ("f", "root", inner, ("n", index, "int")) if 1 < index < 100:
            return inner, int(index)
        case ("^", base, exponent) if exponent[0] in ("n", "/") and (value := exact(exponent)) is not None:
            return (base, value.denominator) if 1 < value.denominator < 100 else None
    return None


def _holds_root(node: Any) -> bool:
    return isinstance(node, tuple) and node != () and (_root(node) is not None or any(map(_holds_root, node[1:])))


def _is_without_powers(node: Node, index: int) -> bool:
    """Whether nothing can be drawn out of a root: no factor is a power of the index, and the index cannot be less."""
    formula = formula_of(node)
    if len(formula) != 1:
        return True
    [(product, value)] = formula
    if value.denominator != 1:
        return bool(product)
    number, powers = abs(value.numerator), [power for _, power in product]
    prime = 2
    while prime < 1000 and number > 1:
        power = 0
        while number % prime == 0:
            number, power = number // prime, power + 1
        powers += [power] * (power > 0)
        prime += 1
    if number > 1:
        whole = round(float(number) ** (1 / index)) if number.bit_length() < 900 else 0
        powers.append(index if whole**index == number else 1)
    return bool(powers) and max(powers) < index and gcd(index, *powers) == 1


def _divides_by_no_letter(node: Any) -> bool:
    """Whether no polynomial of letters is below a fraction bar."""
    if not isinstance(node, tuple) or not node:
        return True
    return not (node[0] == "/" and symbols(node[2]) and not holds(node[2], "f", "call")) and all(
        map(_divides_by_no_letter, node[1:])
    )


def _is_single_log(node: Node) -> bool:
    return (
        node[0] == "f" and node[1] in ("ln", "log", "logb") and not holds(node[2], "f") and not is_unfinished(node[2])
    )


def _has_one_letter_once(node: Node) -> bool:
    """Whether each letter is in one place only, as in a (x − h)² + k, and nothing is left to add."""
    return _places(node) == len(symbols(node)) > 0 and not is_unfinished(node)


def _places(node: Any) -> int:
    if not isinstance(node, tuple) or not node:
        return 0
    return 1 if node[0] == "s" else sum(map(_places, node[1:]))


def _is_form(*forms: str) -> Callable[[Node], bool]:
    return lambda node: numeral(node) in forms


def _is_scientific(node: Node) -> bool:
    """Whether a number is a × 10^n with one digit other than 0 before the point."""
    match node:
        case ("-", inner):
            return _is_scientific(inner)
        case ("n", value, "sci", _, power):
            return 1 <= abs(value) / Fraction(10) ** power < 10
    return numeral(node) == "ten"


_VERB = r"(?:^|[.!?:;,)\n]\s*|\b(?:and|or|then|please|to|by|first|completely|fully|should|must|can)\s+)"
_SIMPLER = r"\bsimpl(?:if|est)|\blowest terms|\breduced?\b|\birreducible|\bcombin|\blike terms"
_EXPANDS = rf"{_VERB}(?:expand|multiply|distribute)\b|\bmultiply out|\bexpanded form"
_OPENS = (
    r"\bfind the product:? (?=\\?[$(\\])|"
    r"\b(?:remove|clear|open|eliminate|get rid of)(?: up)? (?:all |the )*(?:brackets|parenthes[ei]s)"
)
_AS = r"\b(?:as|in|into|to)(?: (?:an?|the|its|your answer as an?))?(?: (?:equivalent|exact|single|common|terminating))*"
RULES = (
    Rule(
        re.compile(rf"{_VERB}(?:completely |fully )?factor(?:i[sz]e)?\b(?! of\b)|\bfactored form|\bin factors\b", re.I),
        _is_factored,
        _number_of_factors,
    ),
    Rule(re.compile(_EXPANDS, re.I), _is_expanded),
    Rule(re.compile(rf"{_OPENS}|\bslope[- ]intercept", re.I), _is_without_brackets),
    Rule(re.compile(rf"{_SIMPLER}|{_VERB}divide\b|\bfind the quotient\b", re.I), _is_reduced),
    Rule(re.compile(rf"{_SIMPLER}|{_VERB}divide\b|\bquotient\b", re.I), _divides_by_no_letter),
    Rule(re.compile(r"\bprime factori[sz]ation|\bproduct of (?:\w+ )?primes?\b", re.I), _is_of_primes),
    Rule(
        re.compile(
            rf"{_SIMPLER}|{_EXPANDS}|{_OPENS}|\bcollect\b|\bdistribut|{_VERB}(?:add|subtract|perform|divide)\b|"
            r"\bslope[- ]intercept",
            re.I,
        ),
        _is_finished,
    ),
    Rule(re.compile(r"\bsimpl(?:if|est)|\bradicals?\b|\bsurds?\b|\brationali[sz]", re.I), _is_simple_radical),
    Rule(re.compile(r"\bsingle (?:\w+ )?log|\b(?:one|1) log(?:arithm)?\b|\bcondense\b", re.I), _is_single_log),
    Rule(re.compile(r"\bcomplet\w* (?:the )?squares?\b|\bvertex form", re.I), _has_one_letter_once),
    Rule(
        re.compile(r"\bscientific notation|\bscientific form|\bstandard (?:form|notation)", re.I),
        _is_scientific,
        of_numbers=True,
    ),
    Rule(
        re.compile(
            r"\bscientific|\bstandard (?:form|notation)|\bordinary|\bwithout (?:exponents|powers)|\bas an integer"
            r"|\b(?:decimal|usual) (?:notation|form)",
            re.I,
        ),
        _is_form("int", "dec"),
        of_numbers=True,
    ),
    Rule(re.compile(rf"{_AS} decimal\b|\bdecimal form", re.I), _is_form("int", "dec", "rep"), of_numbers=True),
    Rule(
        re.compile(rf"{_AS} (?:\w+ )?fraction\b|\bfraction(?:al)? form|\bfraction in", re.I),
        _is_form("frac", "mixed"),
        of_numbers=True,
    ),
    Rule(re.compile(r"\bmixed (?:number|fraction|numeral)", re.I), _is_form("mixed"), of_numbers=True),
    Rule(re.compile(r"\bimproper fraction", re.I), _is_form("frac"), of_numbers=True),
)
"""What a question's words ask. Each example above is one of them."""


_STEMS = word_list(
    """factor expand multipl distribut simpl lowest reduce irreduc combin like collect add subtract perform prime
    product bracket parenthes slope divide quotient radical surd rationali single condense square vertex scientific
    standard ordinary without decimal fraction mixed integer log"""
)


@lru_cache(maxsize=1024)
def rules_of(question: str) -> tuple[Rule, ...]:
    """The rules for expressions that a question's words name."""
    words = " ".join(question.lower().split())
    if not any(stem in words for stem in _STEMS):  # the usual case
        return ()
    either = _EITHER.search(words)
    return tuple(rule for rule in RULES if rule.words.search(words) and not (either and rule.of_numbers))


_EITHER = re.compile(
    r"\b(?:fraction|decimal|mixed number|percent\w*|integer),? or\b|\bor (?:as |in )?(?:an? )?(?:\w+ )?"
    r"(?:fraction|decimal|mixed|percent)"
)


@lru_cache(maxsize=1024)
def may_be_on_matrices(question: str) -> bool:
    """Whether the letters of a question may be matrices: it says so, or there is no question."""
    words = question.lower()
    return not words.strip(" ?") or any(stem in words for stem in _MATRICES)


_MATRICES = word_list("matri operator transpose invertible inverse group")


_PERCENT = re.compile(
    r"\b(?:as|in|into|to)(?: an?)? (?:exact )?percent(?:age)?s?\b|\bpercent(?:age)? (?:form|notation)", re.I
)


@lru_cache(maxsize=1024)
def asks_for_percent(question: str) -> bool:
    """Whether a question asks for its number as a percentage."""
    return "ercent" in question and _PERCENT.search(question) is not None


_SOLVES_FOR = re.compile(r"\bsolve\b[^.?!]*\bfor \$?\\?\(?([a-z])(?![\w,]| and)", re.I)


@lru_cache(maxsize=1024)
def letter_asked(question: str) -> str:
    """The letter that a question asks to solve for; "" if it names none."""
    found = _SOLVES_FOR.search(question) if "olve" in question else None
    return found[1] if found else ""


def asks_for_a_function(question: str) -> bool:
    """Whether a question asks for an equation that is solved for its y."""
    return "ntercept" in question and "lope" in question


_UP = (
    "least|smallest|lowest|shortest|fewest|youngest|lightest|slowest|cheapest|earliest|minimum|"
    "smaller|lower|shorter|lesser|younger"
)
_DOWN = (
    "greatest|largest|highest|longest|most|oldest|heaviest|fastest|biggest|latest|maximum|"
    "greater|larger|higher|longer|older"
)
_FIRST = r"\b(?:{0})(?: \w+)? first\b|\b(?:start|begin)\w* (?:with|from|at) the (?:{0})\b"
_ASKS = (
    r"\b(?:give|list|state|write|enter|report|name|provide|answer|find|determine|compute|calculate|generate|"
    r"what (?:are|is))\b"
)
_ORDERS = tuple(
    (order, re.compile(words, re.I))
    for order, words in (
        ("up", rf"(?<!non-)(?<!non)(?<!non )(?:increasing|ascending)(?: \w+)? order|\bnon-? ?decreasing\b(?! func)|"
               rf"\bfrom (?:the )?(?:{_UP}) to (?:the )?(?:{_DOWN})\b|{_FIRST.format(_UP)}|"
               r"\b(?:sort|list|arrange|order|rank|put|write)\b[^.?!]*\bascending\b"),
        ("down", rf"(?<!non-)(?<!non)(?<!non )(?:decreasing|descending)(?: \w+)? order|\bnon-? ?increasing\b(?! func)|"
                 rf"\bfrom (?:the )?(?:{_DOWN}) to (?:the )?(?:{_UP})\b|{_FIRST.format(_DOWN)}|"
                 r"\b(?:sort|list|arrange|order|rank|put|write)\b[^.?!]*\bdescending\b"),
        ("given", r"\b(?:in|into|by) (?:(?:the|this|that|an?) )?(?:\w+ )?order\b(?! (?:to|that|for|of operations)\b)|"
                  r"(?<!what )(?<!some )(?<!any )(?<!this )(?<!same )(?<!a )"
                  r"\bsort(?:ed)?\b(?! of\b| (?:this |that |it )?out\b)|"
                  r"\b(?:arrange|rank|order) (?:the|these|them|those|following|from)\b|"
                  r"\bfrom (?:the )?(?:\w+est|least \w+|(?:left|top|front|first|inner|outer)\w*) to (?:the )?"
                  r"(?:\w+est|most \w+|(?:right|bottom|back|last|outer|inner)\w*)\b|"
                  rf"{_ASKS}[^.?!]{{0,60}}\bfirst\b[^.?!]{{1,120}}\bthen\b|"
                  rf"{_ASKS}(?: \w+){{0,3}} first (?:\w+|\$[^$]*\$) (?:\w+ )?(?:terms|elements|members|entries)\b|"
                  rf"(?:{_ASKS}[^.?!]*|\b(?:which|how)\b[^.?!]*)\brespectively\b|\brespectively\b[^.!]*\?|"
                  r"\brespectively\b[^.?!]*[.?!]?[^.?!\w]*$|\blet\b[^.?!]*\brespectively\b"),
        ("members", r"\bordered (?:pair|triple|triplet|quadruple|quintuple|tuple|n-tuple)\b(?!s)"),
    )
)  # fmt: skip
_ORDER_STEMS = word_list("order from respectively sort first arrange rank start begin scending increasing decreasing")


@lru_cache(maxsize=1024)
def order_of(question: str) -> str:
    """The order of values that a question asks for: up, down, given for the gold answer's, members for that of a tuple,
    or "" for none."""
    words = " ".join(question.split())
    low = words.lower()
    if not any(stem in low for stem in _ORDER_STEMS):
        return ""
    return next((order for order, pattern in _ORDERS if pattern.search(words)), "")


def keeps_order(order: str, values: Sequence[Fraction | None]) -> bool:
    """Whether the values of a gold answer are in an order, so that it can be asked of an answer; unknown values are."""
    known = [value for value in values if value is not None]
    if order == "members":
        return len(known) == len(values)
    in_order = len(known) < len(values) or known == sorted(known, reverse=order == "down")
    return bool(order) and (order == "given" or in_order)
