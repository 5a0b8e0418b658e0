"""What a question asks of the form of an answer, beyond its value: factors, a sum, lowest terms, an order.

An expression is compared as a function of its letters, and a fraction as a number; the question's words reverse that:

    Factor 2x² − 18.            2(x + 3)(x − 3)    not 2(x² − 9)
    Expand (x + 2)(x + 5).      x² + 7x + 10       not x·x + 2x + 5x + 10
    Write 21/28 in lowest terms.    3/4            not 21/28, nor 6/8
    List them in increasing order.  1, 2, 5        not 2, 1, 5

A rule asks of an answer only what the gold answer keeps.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from mathequal.budget import Unevaluable
from mathequal.forms import (
    base_of_power,
    divides_by_no_letter,
    divides_by_real_numbers,
    has_functions_of_letters,
    has_one_letter_once,
    has_positive_exponents,
    is_expanded,
    is_factored,
    is_finished,
    is_form,
    is_of_partial_fractions,
    is_of_primes,
    is_power,
    is_reduced,
    is_scientific,
    is_simple_radical,
    is_single_fraction,
    is_single_log,
    is_without_brackets,
    is_without_logs_of_products,
    number_of_factors,
    number_of_fractions,
)
from mathequal.nodes import Node
from mathequal.text import word_list


@dataclass(frozen=True, slots=True)
class FormRule:
    """What some words of a question ask of an answer."""

    name: str
    words: re.Pattern[str]
    kept: Callable[[Node], bool]
    """Whether an expression keeps the rule."""
    measure: Callable[[Node], int] = lambda _: 0
    """What an answer must have at least as much of as the gold answer."""
    shared: Callable[[Node], object] = lambda _: None
    """What an answer must have in common with the gold answer."""
    of_numbers: bool = False
    """Whether it asks for a form of numbers, of which a question may leave the choice: a fraction or a decimal."""

    def allows(self, gold: Node, answer: Node) -> bool:
        """Whether an answer keeps the rule, or the gold answer does not."""
        try:
            if not self.kept(gold):
                return True
            alike = self.kept(answer) and self.shared(answer) == self.shared(gold)
            return alike and self.measure(answer) >= self.measure(gold)
        except Unevaluable:
            return True


_VERB = r"(?:^|[.!?:;,)\n]\s*|\b(?:and|or|then|please|to|by|first|completely|fully|should|must|can)\s+)"
_SIMPLER = r"\bsimpl(?:if|est)|\blowest terms|\breduced?\b|\birreducible|\bcombin|\blike terms"
_EXPANDS = rf"{_VERB}(?:expand|multiply|distribute)\b|\bmultiply out|\bexpanded form"
_OPENS = (
    r"\bfind the product:? (?=\\?[$(\\])|"
    r"\b(?:remove|clear|open|eliminate|get rid of)(?: up)? (?:all |the )*(?:brackets|parenthes[ei]s)"
)
_AS = r"\b(?:as|in|into|to)(?: (?:an?|the|its|your answer as an?))?(?: (?:equivalent|exact|single|common|terminating))*"
RULES = (
    FormRule(
        "factored",
        re.compile(rf"{_VERB}(?:completely |fully )?factor(?:i[sz]e)?\b(?! of\b)|\bfactored form|\bin factors\b", re.I),
        is_factored,
        number_of_factors,
    ),
    FormRule("expanded", re.compile(_EXPANDS, re.I), is_expanded),
    FormRule("expanded logarithms", re.compile(_EXPANDS, re.I), is_without_logs_of_products),
    FormRule("without brackets", re.compile(rf"{_EXPANDS}|{_OPENS}|\bslope[- ]intercept", re.I), is_without_brackets),
    FormRule(
        "in lowest terms",
        re.compile(rf"{_SIMPLER}|{_VERB}divide\b|\bfind the quotient\b|\brationali[sz]", re.I),
        is_reduced,
    ),
    FormRule(
        "no letter below a fraction bar",
        re.compile(rf"{_SIMPLER}|{_VERB}divide\b|\bquotient\b", re.I),
        divides_by_no_letter,
    ),
    FormRule(
        "a real denominator",
        re.compile(rf"{_SIMPLER}|\brationali[sz]|\bstandard form|\bform \$?a ?\+ ?bi|{_VERB}divide\b", re.I),
        divides_by_real_numbers,
    ),
    FormRule(
        "a sum of partial fractions",
        re.compile(r"\bpartial fractions?\b", re.I),
        is_of_partial_fractions,
        number_of_fractions,
    ),
    FormRule(
        "a single fraction",
        re.compile(r"\b(?:single|one|common) (?:\w+ )?(?:fraction|denominator)\b", re.I),
        is_single_fraction,
    ),
    FormRule(
        "positive exponents",
        re.compile(r"\bpositive (?:\w+ )?(?:exponent|power|ind(?:ex|ices))", re.I),
        has_positive_exponents,
    ),
    FormRule(
        "a power of the base that is named",
        re.compile(r"\bas a (?:single |whole )?power of|\bin the form \$?\w+ ?\^", re.I),
        is_power,
        shared=base_of_power,
    ),
    FormRule(
        "functions of single letters",
        re.compile(r"\bin terms of [$\\( ]*(?:sin|cos|tan|sec|csc|cot)", re.I),
        has_functions_of_letters,
    ),
    FormRule(
        "a product of primes",
        re.compile(r"\bprime factori[sz]ation|\bproduct of (?:\w+ )?primes?\b", re.I),
        is_of_primes,
    ),
    FormRule(
        "nothing left to work out",
        re.compile(
            rf"{_SIMPLER}|{_EXPANDS}|{_OPENS}|\bcollect\b|\bdistribut|{_VERB}(?:add|subtract|perform|divide|factor\w*)\b|"
            r"\bslope[- ]intercept",
            re.I,
        ),
        is_finished,
    ),
    FormRule(
        "simple radicals",
        re.compile(r"\bsimpl(?:if|est)|\bradicals?\b|\bsurds?\b|\brationali[sz]", re.I),
        is_simple_radical,
    ),
    FormRule(
        "a single logarithm",
        re.compile(r"\bsingle (?:\w+ )?log|\b(?:one|1) log(?:arithm)?\b|\bcondense\b", re.I),
        is_single_log,
    ),
    FormRule(
        "each letter in one place",
        re.compile(r"\bcomplet\w* (?:the )?squares?\b|\bvertex form", re.I),
        has_one_letter_once,
    ),
    FormRule(
        "scientific notation",
        re.compile(r"\bscientific notation|\bscientific form|\bstandard (?:form|notation)", re.I),
        is_scientific,
        of_numbers=True,
    ),
    FormRule(
        "usual notation",
        re.compile(
            r"\bscientific|\bstandard (?:form|notation)|\bordinary|\bwithout (?:exponents|powers)|\bas an integer"
            r"|\b(?:decimal|usual) (?:notation|form)|\b(?:in|using) (?:digits|figures|numerals)\b",
            re.I,
        ),
        is_form("int", "dec"),
        of_numbers=True,
    ),
    FormRule(
        "a decimal number",
        re.compile(rf"{_AS} decimal\b|\bdecimal form", re.I),
        is_form("int", "dec", "rep"),
        of_numbers=True,
    ),
    FormRule(
        "a fraction",
        re.compile(rf"{_AS} (?:\w+ )?fraction\b|\bfraction(?:al)? form|\bfraction in", re.I),
        is_form("frac", "mixed"),
        of_numbers=True,
    ),
    FormRule(
        "a mixed number",
        re.compile(r"\bmixed (?:number|fraction|numeral)", re.I),
        is_form("mixed"),
        of_numbers=True,
    ),
    FormRule("an improper fraction", re.compile(r"\bimproper fraction", re.I), is_form("frac"), of_numbers=True),
)
"""What a question's words ask. Each example above is one of them."""

_STEMS = word_list(
    """factor expand multipl distribut simpl lowest reduce irreduc combin like collect add subtract perform prime
    product bracket parenthes slope divide quotient radical surd rationali single condense square vertex scientific
    standard ordinary without decimal fraction mixed integer log partial positive power terms digits figures numerals
    form"""
)


@lru_cache(maxsize=1024)
def rules_of(question: str) -> tuple[FormRule, ...]:
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


_PERCENT = re.compile(
    r"\b(?:as|in|into|to)(?: an?)? (?:exact )?percent(?:age)?s?\b|\bpercent(?:age)? (?:form|notation)", re.I
)


@lru_cache(maxsize=1024)
def asks_for_percent(question: str) -> bool:
    """Whether a question asks for its number as a percentage."""
    return "ercent" in question and _PERCENT.search(question) is not None


_MODULUS = re.compile(
    r"(?:\\[bp]?mod\b|\bmod(?:ulo)?\b|\bdivid(?:ed|e|ing)\b(?: \w+){0,6}? by|\\pmod)[\s{$\\]*?(\d+)", re.I
)
_HAS_REMAINDERS = re.compile(r"\bmod|\bremainder|\bcongruen|\bresidue|\bunits? digit|\bdivided\b|\blast digit", re.I)


def has_modulus(question: str, modulus: Fraction) -> bool:
    """Whether a question asks for a remainder by this modulus."""
    named = _MODULUS.findall(question)
    return str(modulus) in named if named else _HAS_REMAINDERS.search(question) is not None


_BASES = {"binary": 2, "octal": 8, "hexadecimal": 16, "hex": 16}
_BASE = re.compile(
    r"\b(?:to|in|into|as)\b[^.?!]{0,30}?\b(?:base[- ]?[\s${\\]*(\d{1,2})|(binary|octal|hexadecimal|hex))\b", re.I
)


def base_asked(question: str) -> int:
    """The base in which a question asks for a number; 0 if it names none."""
    found = _BASE.search(question) if "bas" in question or "al" in question or "bin" in question else None
    return int(found[1] or _BASES[found[2].lower()]) if found else 0


_OPTIONS = re.compile(r"(?<![A-Za-z])\(?A[).:].*(?<![A-Za-z])\(?B[).:]|\\text\w*\s*\{\s*\(A\)", re.S)


def has_options(question: str) -> bool:
    """Whether a question lists its answers by letters."""
    return "B" in question and _OPTIONS.search(question) is not None


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
