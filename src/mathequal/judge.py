"""Equality of typed answers: the gold answer's type decides what is compared, and how (long: one class of rules)."""

import operator
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import Any, NamedTuple

from mathequal.answers import Answer
from mathequal.asked import (
    asks_for_a_function,
    asks_for_percent,
    base_asked,
    has_modulus,
    has_options,
    keeps_order,
    letter_asked,
    may_be_on_matrices,
    order_of,
    rules_of,
)
from mathequal.asked_units import fits_question, units_asked
from mathequal.budget import Budget, Unevaluable
from mathequal.conditions import may_exclude, may_hedge
from mathequal.extract import Decimals
from mathequal.formula import is_unfinished
from mathequal.grammar import LONGEST
from mathequal.identity import identical, proportional
from mathequal.languages import thing
from mathequal.names import names_are_reversed
from mathequal.nodes import (
    IMAGINARY,
    PI,
    Big,
    Call,
    Constant,
    Degrees,
    Function,
    Negative,
    Node,
    Number,
    Product,
    Quotient,
    Ratio,
    Sum,
    Symbol,
    Words,
)
from mathequal.numeric import alone, digits, mp, numeric
from mathequal.rational import exact
from mathequal.reading import read
from mathequal.real_sets import sign_of_infinity, to_intervals
from mathequal.text import bare_text, word_list
from mathequal.trees import (
    canonical,
    contains,
    holds,
    integer_node,
    numeral,
    operations,
    replaced,
    symbols,
)
from mathequal.units import DEGREE, PERCENT, RADIAN, Unit, adds_a_name

UNPARSED = "unparsed"
"""What is said of answers of which one was not read, and whose texts differ."""

_STEPS = 20_000
_LONGEST_LIST = 60
_LONG_IN_DIGITS = 10**6  # from here on a power of ten is a usual way to write a number
_HEAVY = {*word_list("sum prod int oint lim max min gcd lcm det call arg sgn norm Re Im")}
_FAMILIES = tuple(frozenset(family.split()) for family in (
    "sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc", "ln log logb", "! binom", "floor ceil",
    "sinh cosh tanh coth arsinh",
))  # fmt: skip
_SET_RULES: dict[Any, Callable[[int, int], int]] = {"cap": operator.and_, ",": operator.and_, "minus": operator.gt}
_LETTER = re.compile("(?<![A-Za-z])[A-Z](?![A-Za-z])")
_BASIS = (Constant("i"), Symbol("j"), Symbol("k"))  # 2i + 3j is (2, 3)


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
        comparison = Comparison(decimals, question)
        equal = None if left is None or right is None else comparison.decide(left, right, gold, answer)
    if equal is None:
        same = bare_text(gold) == bare_text(answer)
        return Judgement(same, "the same text" if same else "not read", "text" if same else UNPARSED)
    if not equal and comparison.other_form:
        return Judgement(False, f"the form that the question asks for: {comparison.other_form}", "form")
    return Judgement(equal, comparison.rule)


def answer_key(answer: str) -> str:
    """What equal numbers, and answers with equal text, share."""
    typed = read(answer)
    value = exact(typed.value) if typed and typed.kind == "expression" else None
    return bare_text(answer) if value is None else str(value)


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


def _form_allowed(gold: Node, answer: Node) -> bool:
    """Whether an answer is a result, as the gold answer is, and not a computation that has yet to be done."""
    known, used = operations(gold), operations(answer)
    if used >= {"sin", "cos"} and contains(answer, IMAGINARY):
        known |= {"sin", "cos"}  # the polar form of a complex number
    if (used - known) & _HEAVY:
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


def _ends(pieces: Sequence[Any]) -> Iterator[Node]:
    """The finite ends of intervals and of their unions, intersections and differences."""
    for piece in pieces:
        if piece[0] in _SET_RULES:
            yield from (end for part in piece[1:] for end in _ends(part))
        else:
            yield from (end for end in (piece[0], piece[2]) if not sign_of_infinity(end))


def _is_clock(terms: Sequence[Node]) -> bool:
    """Whether a:b may be a time, as 12:00 and 7:45, for which 14:90 is not another way to write it."""
    hour, minute = (exact(terms[0]), exact(terms[-1])) if len(terms) == 2 else (None, None)
    return hour is not None and minute is not None and 0 <= hour < 24 and 10 <= minute < 60


def _units_of(answer: Answer) -> Iterator[Unit | None]:
    """The units of a quantity, or of the members of a list; None for one that counts things."""
    yield from (x.unit for x in (answer, *answer.items) if x.kind == "quantity")


class Comparison:
    """One comparison, with its budget. Its methods return True, False, or None if nothing decides."""

    def __init__(self, decimals: Decimals, question: str) -> None:
        self.budget, self.rounded, self.ends = Budget(_STEPS), decimals == "rounded", list[Any]()
        self.question, self.rules, self.order = question, rules_of(question), order_of(question)
        self.other_form = ""
        """The first rule of the question that refused an expression."""
        self.rule = ""
        """The rule that decides, of the whole answers and not of their parts."""
        self.budget.matrices = may_be_on_matrices(question)

    def decide(self, gold: Answer, answer: Answer, gold_text: str, answer_text: str) -> bool | None:
        """Equality; also with letters after numbers as units, if the other side has one."""
        self.rule = self.refusal(gold, answer, gold_text)
        if self.rule:
            return False
        if self.order and gold.kind == answer.kind == "letters":
            self.rule = "the order of letters that the question asks for"
            return _LETTER.findall(gold_text) == _LETTER.findall(answer_text)
        if gold == answer:
            self.rule = "the same reading"
            return True
        equal = self.equal(gold, answer)
        if equal is not True and gold.kind in ("expression", "assigned", "list") and self.families(gold, answer):
            self.rule, equal = "families over the integers", True
        has_unit = any(x.kind == "quantity" for x in (gold, answer, *gold.items, *answer.items))
        if equal is not True and (has_unit or units_asked(self.question)):
            return self.measured(gold_text, answer_text) or equal
        return equal

    def measured(self, gold_text: str, answer_text: str) -> bool:
        """Equality with letters after numbers as units, if both sides have units then, or the question asks for that of
        one."""
        gold, answer = (read(text, units=True) for text in (gold_text, answer_text))
        if gold is None or answer is None:
            return False
        units = [{*_units_of(x)} for x in (gold, answer)]
        if not all(units) and not (units[0] | units[1]) & units_asked(self.question):
            return False
        before, self.rule = self.rule, ""
        equal = self.equal(gold, answer) is True
        self.rule = self.rule if equal else before
        return equal

    def refusal(self, gold: Answer, answer: Answer, gold_text: str) -> str:
        """The rule by which what an answer says beside its value makes it another one, whatever the value; or ""."""
        if gold.said and answer.said and not gold.said & answer.said:
            return "another name before the value"  # a sum and a product
        if names_are_reversed(answer.name, self.question):
            return "a ratio in the other order"
        if answer.over_reals and gold.kind == "family":
            return "an index over the reals"  # n ∈ ℝ for n ∈ ℤ
        if answer.hedged and not may_hedge(gold, gold_text, self.question):
            return "a hedge that nobody asked for"
        if answer.excluded and not may_exclude(gold, answer, self.question, self.budget):
            return "other excluded values"
        return ""

    def equal(self, gold: Answer, answer: Answer) -> bool | None:
        """Equality by the first of `_RULES` for the kinds of both."""
        try:
            self.budget.spend()
        except Unevaluable:
            return None
        if gold.others or answer.others:
            golds, answers = ((replace(x, others=()), *x.others) for x in (gold, answer))
            pairs = [(x, y) for x in golds for y in answers if x is golds[0] or x.kind == y.kind]
            return self.any_reading(pairs)
        kinds = {gold.kind, answer.kind}
        if not kinds & {"assigned", "family"} and not _same_name(gold.name, answer.name):  # x ∈ S, y ∈ S
            self.rule = self.rule or "another name"
            return False
        for rule in RULES:
            if kinds & rule.some and kinds <= (rule.every or kinds):
                self.rule = self.rule or rule.name
                return rule.compare(self, gold, answer)
        self.rule = self.rule or ("the same kind and value" if len(kinds) == 1 else "another kind of answer")
        return gold.kind == answer.kind and gold.value == answer.value

    def any_reading(self, pairs: Sequence[tuple[Answer, Answer]]) -> bool | None:
        """Equality of one of several pairs of readings; the rule is that of the first pair that is equal."""
        before, results, rules = self.rule, list[bool | None](), list[str]()
        for gold, answer in pairs:
            self.rule = before
            results.append(self.equal(gold, answer))
            rules.append(self.rule)
        self.rule = rules[results.index(True)] if True in results else (rules or [before])[0]
        return any_of(results)

    # Values.
    def form_allowed(self, gold: Node, answer: Node) -> bool:
        """Whether an answer is a result in the form that the question asks for."""
        if not _form_allowed(gold, answer):
            return False
        refused = next((rule.name for rule in self.rules if not rule.allows(gold, answer)), "")
        self.other_form = self.other_form or refused
        return not refused

    def identical(self, gold: Node, answer: Node) -> bool | None:
        return identical(gold, answer, self.budget)

    def expressions(self, gold: Node, answer: Node) -> bool | None:
        decimal = self.rounded and numeral(gold) in ("dec", "sci")
        if decimal and not symbols(answer) | operations(answer) & _HEAVY and abs(self.error(answer, gold)[0]) <= 0.5:
            return True
        return self.form_allowed(gold, answer) and self.identical(gold, answer)

    def quantities(self, gold: Answer, answer: Answer) -> bool | None:
        """Equal up to exact conversion; either side may leave its unit out."""
        (left, factor), (right, other) = gold.unit or (None, Fraction(1)), answer.unit or (None, Fraction(1))
        g, a = gold.value, answer.value
        if gold.words and answer.words and not _same_words(gold.words, answer.words):
            return False
        if answer.words and not gold.words and not adds_a_name(answer.words, exact(a)):
            return False
        if (gold.words and right) or (answer.words and left) or (gold.words[:1] == ("of",) and not answer.words):
            return False
        if (left == () and right) or (right == () and left):  # "units" are of length
            return (left or right) == (("L", 1),) and self.expressions(g, a)
        if left and right:
            if {left, right} == {DEGREE, RADIAN}:
                return self.identical(*(Degrees(x) if unit == DEGREE else x for x, unit in ((g, left), (a, right))))
            if left != right:  # cm² in place of square units
                squared = {"U", "L"} == {left[0][0], right[0][0]} and left[0][1] == right[0][1] > 1
                return squared and len(left) == len(right) == 1 and self.expressions(g, a)
            if factor == other:
                return self.expressions(g, a)
            worked_out = self.form_allowed(g, a) or (numeral(a) and (exact(a) or 1) % 1)
            return bool(worked_out) and self.identical(Product(Number(factor, ""), g), Product(Number(other, ""), a))
        if left is None and right == () and other != 1:  # mm per m
            return self.form_allowed(g, a) and self.identical(g, Product(Number(other, ""), a))
        fits = left is not None or right is None or fits_question((right, other), self.question)
        if PERCENT in (left, right):
            if left and not right and asks_for_percent(self.question):  # 0.45 and 9/20 have yet to be converted
                return self.expressions(g, a)
            share = Product(Number((factor if left else other) / 100, ""), g if left else a)
            plain = left is not None or (value := exact(g)) is None or abs(value) >= 1 or value == 0
            asked = self.question != "" or numeral(g) in ("int", "dec", "mixed")  # 13/12 % is nobody's 13/12
            plain &= left is not None or (fits and asked and other == 1)
            loose = self.form_allowed(g, a) or bool(numeral(g) and numeral(a))
            same = loose and self.identical(*((share, a) if left else (g, share)))
            return any_of([plain and self.expressions(g, a), same])
        if DEGREE in (left, right) and contains(a if left else g, PI):
            return self.identical(*((Degrees(g), a) if left else (g, Degrees(a))))
        return fits and self.expressions(g, a)

    def entries(self, gold: Node, answer: Node) -> bool | None:
        drawn_out = exact(answer) is None  # a scalar may be; with numbers, it was multiplied in
        scalar = drawn_out and not symbols(gold) and not operations(answer)
        return any_of([self.expressions(gold, answer), scalar and self.identical(gold, answer)])

    def ratios(self, gold: Answer, answer: Answer) -> bool | None:
        if gold.kind == answer.kind:
            left, right = gold.value, answer.value
            if not all(rule.allows(Ratio(left), Ratio(right)) for rule in self.rules):
                return False
            if len(left) != len(right) or any(exact(term) == 0 for term in (*left, *right)) or _is_clock(left):
                return len(left) == len(right) and all_of(map(self.identical, left, right))
            pairs = zip(left[1:], right[1:], strict=True)
            return all_of(self.identical(Product(x, right[0]), Product(y, left[0])) for x, y in pairs)
        terms, other = (gold.value, answer) if gold.kind == "ratio" else (answer.value, gold)
        if other.kind == "time":  # 16:30 is one of the 24-hour clock
            return _is_clock(terms) and (*map(exact, terms), *[0] * (3 - len(terms))) == other.value
        quotient = len(terms) == 2 and other.kind == "expression" and numeral(other.value) == "frac"
        return quotient and self.identical(Quotient(*terms), other.value)

    # Lists and sets.
    def in_order(self, gold: Sequence[Answer], answer: Sequence[Answer]) -> bool | None:
        return len(gold) == len(answer) and all_of(map(self.equal, gold, answer))

    def matched(self, gold: Answer, answer: Answer) -> bool | None:
        """Whether the elements pair off; equality is taken as transitive."""
        left, unknown = [*answer.items], False
        if len(gold.items) != len(left):
            return False
        for x in gold.items:
            results = [self.equal(x, y) for y in left]
            if True in results:
                left.pop(results.index(True))
            elif None in results:
                unknown = True
            else:
                return False
        return None if unknown else True

    def collections(self, gold: Answer, answer: Answer) -> bool | None:
        """Lists and sets up to order, sets without repetition. Names that differ pair the values; if only one side has
        them, the order does."""
        sides = (gold, answer)
        if max(len(x.items) for x in sides) > _LONGEST_LIST:
            return _same_numbers(gold, answer)
        by_name = [_names_differ(x) for x in sides]
        if all(by_name):
            named = {x.name: x for x in answer.items}
            pairs = [(x, named.get(x.name)) for x in gold.items]
            alike = ("or" in gold.links) == ("or" in answer.links) and len(gold.items) == len(answer.items)
            return alike and all_of(y is not None and self.equal(x, y) for x, y in pairs)
        if any(by_name):
            plain = answer if by_name[0] else gold
            ordered = (plain.kind == "list" or plain.marks == "()") and "or" not in {*gold.links} ^ {*answer.links}
            values = [x.items if x is plain else [y.items[-1] for y in x.items] for x in sides]
            return ordered and "assigned" not in {x.kind for x in plain.items} and self.in_order(*values)
        if self.order == "members" and {gold.kind, answer.kind} == {"list", "tuple"}:
            return self.in_order(gold.items, answer.items)
        if "tuple" in (gold.kind, answer.kind) or not _alternatives_agree(gold, answer):
            return False
        if any(x.kind == "equation" for x in answer.items) and all(x.kind != "equation" for x in gold.items):
            return False
        names = [{x.name for x in side.items if x.name} for side in sides]
        if all(len(x) == 1 for x in names) and not _same_name(*names[0], *names[1]):
            return False
        if all(len({str(name[1]).split("_")[0] for name in x}) < 2 for x in names):  # x_1 and x_2 only count
            sides = gold, answer = tuple(replace(x, items=(*map(_value_of, x.items),)) for x in sides)
        if self.order and keeps_order(
            self.order, [exact(x.value) if x.kind in ("expression", "quantity") else None for x in gold.items]
        ):
            return self.in_order(gold.items, answer.items)
        if "set" not in (gold.kind, answer.kind):
            return self.matched(gold, answer)
        found = [
            [(x.kind == "set") == (y.kind == "set") and self.equal(x, y) for y in answer.items] for x in gold.items
        ]
        return all_of(map(any_of, [*found, *zip(*found, strict=True)])) if found and found[0] else sides[0] == sides[1]

    def identities(self, gold: Answer, answer: Answer) -> bool | None:
        """(x − 1)(x + 1) = x² − 1 for one of its sides."""
        if gold.kind != "expression" or not symbols(gold.value):
            return gold.kind == answer.kind
        sides = [side for side in answer.value if not isinstance(side, Big)] or answer.value  # ∫ x dx = x²/2 + C
        allowed = any(self.form_allowed(gold.value, side) for side in sides)
        return allowed and all_of(self.identical(gold.value, side) for side in sides)

    def sets_of_one(self, gold: Answer, answer: Answer) -> bool | None:
        single = [x.items[0] if x.kind == "set" and len(x.items) == 1 else x for x in (gold, answer)]
        return "set" not in {x.kind for x in single} and self.equal(*single)

    def all_alternatives(self, gold: Answer, answer: Answer) -> bool | None:
        """1/2 or 0.5 for 1/2; and the same in two boxes, which a comma joins."""
        forms = {numeral(x.value) for x in answer.items if x.kind == "expression"} - {"", "int"}
        apart = {*answer.links} == {","} and len(forms) == len(answer.items)
        several = answer.kind == "list" and ({*answer.links} == {"or"} or apart)
        several = several and len({x.name for x in answer.items}) == 1
        return several and all_of(self.equal(gold, x) for x in answer.items)

    def bases(self, gold: Answer, answer: Answer) -> bool:
        """Digits with their base; either side may leave out the base that the question asks for."""
        if gold.kind == answer.kind:
            return gold.value == answer.value
        based, other = (gold, answer) if gold.kind == "base" else (answer, gold)
        if other.kind != "expression" or based.kind != "base" or based is gold:
            return False
        sign, digits, radix = based.value
        return (
            base_asked(self.question) == radix and bool(digits.isdecimal()) and exact(other.value) == int(sign + digits)
        )

    def letters(self, gold: Answer, answer: Answer) -> bool | None:
        """Choices; the texts of two are compared if both can be read."""
        texts = [*map(read, gold.words + answer.words)] if gold.kind == answer.kind else []
        if len(texts) == 2 and None not in texts and self.equal(*filter(None, texts)) is False:
            return False
        letters, others = _letters(gold), _letters(answer)
        if letters and answer.kind == "expression" and has_options(self.question):  # (b) for B
            others = others and frozenset(letter.upper() for letter in others)
        return letters is not None and letters == others

    def tables(self, gold: Answer, answer: Answer) -> bool | None:
        """Matrices, vectors, lists of rows, and sums of i, j and k."""
        kinds = {gold.kind, answer.kind}
        fixed, other = (answer, gold) if gold.kind == "expression" else (gold, answer)
        if kinds == {"tuple"}:
            return gold.marks == answer.marks and self.in_order(gold.items, answer.items)
        (shapes, left), (others, right) = map(_cells, (fixed, other))
        if other.kind == "expression" and symbols(other.value) & {"j", "k"}:
            terms = [Product(x, unit) for x, unit in zip(left, _BASIS, strict=False) if exact(x) != 0]
            vector = len(left) <= 3 and any(1 in shape for shape in shapes)
            return vector and self.identical(Sum(*terms), other.value)
        if "matrix" not in kinds or not shapes & others:
            return False
        return all_of(map(self.entries, *((left, right) if fixed is gold else (right, left))))

    def sets_of_reals(self, gold: Answer, answer: Answer) -> bool | None:
        left, right = to_intervals(gold), to_intervals(answer)
        if left is None or right is None:
            return False
        return self.intervals(left, right) and self.ends_allowed(left, right)

    def ends_allowed(self, gold: Sequence[Any], answer: Sequence[Any]) -> bool:
        """Whether the ends of an answer's intervals are results, as the gold answer's are: x > 3, not x > 6/2."""
        known = [*_ends(gold)]
        return all(
            any(_form_allowed(x, end) for x in known) for end in _ends(answer) if end not in known and not symbols(end)
        )

    # Names and chains.
    def named(self, gold: Answer, answer: Answer) -> bool | None:
        """x = 5, f(x) = …, x ∈ S, and chains a = b = c."""
        kinds = {gold.kind, answer.kind}
        if "equation" in kinds:
            if gold.kind == "assigned" and asks_for_a_function(self.question):
                return False
            sides = answer.value if gold.kind == "equation" else gold.value
            curve = (
                bool(sides) and len(sides) == 2 and symbols(sides[1]) != set() and isinstance(sides[0], (Symbol, Call))
            )
            return curve and self.equations(gold, answer)
        if kinds == {"assigned"}:
            pairs = [(x, y) for x in gold.items for y in answer.items if x.kind == y.kind == "quantity"]
            if pairs and not any(x.unit == y.unit or self.equal(x, y) for x, y in pairs):
                return False  # though members without units are equal
            answer = _with_arguments_of(gold, answer) or answer
            if _same_name(gold.name, answer.name):
                if len(gold.items) > 1 and any(isinstance(x.value, Symbol) for x in gold.items):  # a = b = 0
                    return self.in_order(gold.items, answer.items)
                return any_of(self.chain(member, answer) for member in _exact_members(gold))
            if asks_for_a_function(self.question):
                return False
            curves = [x for x in (gold, answer) if x.value and len(x.value) == 2 and symbols(x.value[1])]
            return len(curves) == 2 and self.equations(*curves)
        if gold.kind == "assigned":
            return any_of(self.equal(member, answer) for member in _exact_members(gold))
        name = answer.name
        if gold.kind == "expression" and not symbols(gold.value) and name and isinstance(name, Symbol):
            asked = letter_asked(self.question)
            if asked and len(name[1]) == 1 and name[1].islower() and name[1] != asked:  # y = 5 for x
                return False
        if name is not None and gold.kind in ("text", "letters", "time", "date", "inequality"):
            return False
        if gold.kind == "expression" and name == gold.value and {*answer.links} == {"~"}:
            return all_of(self.approximates(gold, x) for x in answer.items)
        if (
            name and isinstance(name, Call) and symbols(gold.value) and any(not isinstance(x, Symbol) for x in name[2:])
        ):  # f(2x)
            return False
        if (
            name
            and isinstance(name, Symbol)
            and gold.kind in ("expression", "quantity")
            and symbols(name) & symbols(gold.value)
        ):
            return False
        if gold.kind in ("list", "set") and not (len(answer.items) == 1 and answer.items[0].kind in ("list", "set")):
            return False
        return self.chain(gold, answer)

    def chain(self, gold: Answer, answer: Answer) -> bool | None:
        """Every member of the answer's chain must be right, or a right one in another unit (1.5 m = 150 cm); after an
        approximation sign, to its last digit. Formulas on the way to a number, of N = x + y = 76, only say what it is,
        as \\gcd(12, 18) does before 6."""
        exactly = _exact_members(answer)
        if len(exactly) > 1 and gold.kind in ("expression", "quantity") and not symbols(gold.value):
            *others, last = exactly
            exactly = [*(x for x in others if not self.is_definition(x, answer)), last]
        if "~" in answer.links[1:] and gold.kind == "expression" and numeral(gold.value) in ("int", "dec", "sci"):
            about = [x for link, x in zip(answer.links, answer.items, strict=True) if link != "="]
            errors = [abs(self.error(y.value, x.value)[0]) for x in about for y in exactly if not symbols(y.value)]
            if all(self.equal(gold, x) for x in about) and len(errors) >= len(about) and max(errors) <= 0.5001:
                return True  # 5√2 ≈ 7.07 for 7.07
        equal = [self.equal(gold, x) for x in exactly]
        if len(answer.items) == 1:
            return equal[0]
        known = [x for same, x in zip(equal, exactly, strict=True) if same and x.kind == "quantity"]
        right = [
            any_of([same, self.same_value(gold, x, last=x is exactly[-1]), any_of(self.converted(y, x) for y in known)])
            for same, x in zip(equal, exactly, strict=True)
        ]
        rounded = [
            self.approximates(gold, x) for link, x in zip(answer.links, answer.items, strict=True) if link != "="
        ]
        steps = [same is not False for same in right[:-1]]  # an integral before its value is not worked out again
        return all_of([*steps, right[-1], *rounded, any_of(equal)])

    @staticmethod
    def is_definition(member: Answer, chain: Answer) -> bool:
        """Whether a member of a chain only says what its number is: xy of N = xy = 6, but not 2x of 2x = 6."""
        letters = symbols(member.value) if member.kind == "expression" else set()
        return len(letters) > (chain.name is None)

    def converted(self, known: Answer, other: Answer) -> bool | None:
        """Whether a quantity is another one in another unit."""
        units = [x.unit for x in (known, other) if x.kind == "quantity" and x.unit]
        if len(units) == 2 and units[0] == units[1]:
            return self.identical(known.value, other.value)
        return len(units) == 2 and units[0][0] == units[1][0] and self.quantities(known, other)

    def same_value(self, gold: Answer, answer: Answer, *, last: bool) -> bool | None:
        """Equality of value, whatever the form."""
        if not last and answer.kind == "expression" and gold.unit and gold.unit[0] == PERCENT:  # 19/25 = 76 %
            return self.identical(Product(Number(gold.unit[1] / 100, ""), gold.value), answer.value)
        if not {gold.kind, answer.kind} <= {"expression", "quantity"} or (last and operations(answer.value) & _HEAVY):
            return False
        same_unit = gold.kind == answer.kind == "expression" or (answer.kind == "expression" and not last)
        return same_unit and self.identical(gold.value, answer.value)

    def approximates(self, gold: Answer, answer: Answer) -> bool:
        """Whether a decimal number is the gold answer's value, rounded or, within 5 %, cut off."""
        if not {gold.kind, answer.kind} <= {"expression", "quantity"} or symbols(gold.value):
            return False
        if gold.unit and answer.unit and gold.unit[0] != answer.unit[0]:
            return False
        if numeral(answer.value) not in ("int", "dec", "sci"):
            return False
        error, share = self.error(gold.value, answer.value)
        return bool(abs(error) <= 0.5001 or (0 <= error <= 1 and share <= 0.05))

    def error(self, node: Node, decimal: Node) -> tuple[Any, Any]:
        """How far a decimal number is from a constant towards zero: in units of its last digit, and as a share."""
        value, written = numeric(node, self.budget), exact(decimal)
        if not isinstance(value, mp.mpf) or written is None:
            return mp.inf, mp.inf
        error = (value - mp.mpf(written.numerator) / written.denominator) * (mp.sign(value) or 1)
        return error / mp.mpf(10) ** (decimal[3] if len(decimal) > 3 else 0), error / abs(value) if value else mp.inf

    # Sets of reals.
    def number(self, node: Node) -> Any:
        """A real number, an infinity, or None; of numbers that agree to 25 digits, the first."""
        if sign := sign_of_infinity(node):
            return mp.inf * sign
        value = None if symbols(node) else numeric(node, self.budget)
        if not isinstance(value, mp.mpf):
            return None
        self.ends.append(value)
        return next(end for end in self.ends if _close(end, value))

    def cuts(self, intervals: Sequence[Any]) -> list[Any] | None:
        """Where a union of intervals begins and ends, in turn: a number, and whether the cut is after it; None if an
        end has no value. Raises Unevaluable for an empty interval."""
        union: list[Any] = []
        for x in intervals:
            if rule := _SET_RULES.get(x[0]):
                left, right = self.cuts(x[1]), self.cuts(x[2])
                if left is None or right is None:
                    return None
                piece = _merged(left, right, rule) or (_merged(left, right, operator.or_) if x[0] == "," else [])
            else:
                low, high = self.number(x[0]), self.number(x[2])
                if low is None or high is None:
                    return None
                piece = [(low, not x[1]), (high, x[3])]
                if piece[0] >= piece[1]:
                    raise Unevaluable("empty interval")
            union = _merged(union, piece, operator.or_)
        return union

    def intervals(self, gold: Sequence[Any], answer: Sequence[Any]) -> bool | None:
        with digits(40):
            try:
                left, right = self.cuts(gold), self.cuts(answer)
            except Unevaluable:
                return False
        if left is not None or right is not None:
            return left == right
        ends = [sorted(canonical(("", *piece)) for piece in side) for side in (gold, answer)]
        return ends[0] == ends[1] or None  # they hold symbols

    # Equations, inequalities, families.
    def equations(self, gold: Answer, answer: Answer) -> bool | None:
        left, right = (Sum(x.value[0], Negative(x.value[1])) for x in (gold, answer))
        if not all(rule.allows(x, y) for rule in self.rules for x, y in zip(gold.value, answer.value, strict=False)):
            return False
        heavy = (operations(right) - operations(left)) & _HEAVY
        return not heavy and proportional(left, right, self.budget, positive=False)

    def inequalities(self, gold: Answer, answer: Answer) -> bool | None:
        (left, operators), (right, others) = gold.value, answer.value
        if operators != others or len(left) != len(right):
            return False
        pairs = zip(left, right, strict=True)
        same = all_of(any_of([canonical(x) == canonical(y), self.identical(x, y)]) for x, y in pairs)
        if same or len(left) != 2:
            return same
        left, right = (Sum(sides[0], Negative(sides[1])) for sides in (left, right))
        return proportional(left, right, self.budget, positive=True)

    def in_a_chain(self, gold: Answer, answer: Answer) -> bool | None:
        """A list in the order that the question asks for, as inequalities: −2 < 0 < 4."""
        if gold.kind != "list" or self.order not in ("up", "down") or any(x != "<" for x in answer.value[1]):
            return False
        values = [Answer("expression", side) for side in answer.value[0]]
        return self.in_order(gold.items, values if self.order == "up" else values[::-1])

    def progressions(self, answer: Answer, given: bool) -> list[tuple[Any, Any]] | None:
        """(offset, period) of each a + b k; None for another kind of answer. given: the other side is a family, so that
        k, n or m is the integer."""
        match answer:
            case Answer("assigned", items=(inner,)):
                return self.progressions(inner, given)
            case Answer("list"):
                parts = [self.progressions(x, given) for x in answer.items]
                return None if None in parts else [x for part in parts for x in part or ()]
            case Answer("family", values, marks=index):
                pass
            case Answer("expression", value) if symbols(value) in ({"k"}, {"n"}, {"m"}) and (
                given or contains(value, PI) or holds(value, Degrees)
            ):
                values, [index] = (value,), symbols(value)
            case _:
                return None
        found = []
        for value in values:
            terms = [replaced(value, {Symbol(index): integer_node(k)}) for k in range(4)]
            steps: list[Any] = [None if symbols(term) else numeric(term, self.budget) for term in terms]
            if not all(isinstance(x, mp.mpf) for x in steps):
                return None
            period = steps[1] - steps[0]
            if period == 0 or not all(_close(steps[k + 1] - steps[k], period) for k in (1, 2)):
                return None
            found.append((steps[0], abs(period)))
        return found

    def remainder(self, gold: Answer, answer: Answer) -> bool:
        """Whether an answer is a remainder with its modulus, 9 (mod 13), where the question asks for this remainder."""
        match answer:
            case Answer("family", [Sum([residue, Product([modulus, Symbol("mod")])])], marks="mod"):
                value, whole = exact(residue), exact(modulus)
                if value is None or whole is None or not 0 <= value < whole:
                    return False
                return value == exact(gold.value) and has_modulus(self.question, whole)
        return False

    def families(self, gold: Answer, answer: Answer) -> bool | None:
        if gold.kind == "expression" and self.remainder(gold, answer):
            return True
        with digits(40):
            if not _same_name(gold.name, answer.name):
                return False
            given = "family" in (gold.kind, answer.kind)
            left, right = self.progressions(gold, given), self.progressions(answer, given)
            if not left or not right:
                return False if left or right else None
            periods = [period for _, period in left + right]
            low = -min(periods) * mp.e / 10  # so that no offset is at an end
            high = low + max(24 * min(periods), 2 * max(periods))
            if high > 5000 * min(periods):
                return None
            values = []
            for progressions in (left, right):
                firsts = [(low + (offset - low) % period, period) for offset, period in progressions]
                every = sorted(x + k * step for x, step in firsts for k in range(int((high - x) / step) + 1))
                values.append([x for n, x in enumerate(every) if n == 0 or not _close(x, every[n - 1])])
            return len(values[0]) == len(values[1]) and all(map(_close, *values))


def _close(x: Any, y: Any) -> bool:
    return x == y or (mp.isfinite(x) and mp.isfinite(y) and abs(x - y) <= mp.mpf(10) ** -25 * max(1, abs(x)))


def _merged(left: Sequence[Any], right: Sequence[Any], rule: Callable[[int, int], int]) -> list[Any]:
    """The cuts of the set of numbers that are in two sets by a rule."""
    found = []
    for cut in sorted({*left, *right}):
        inside = rule(bisect_right(left, cut) % 2, bisect_right(right, cut) % 2)
        if inside != len(found) % 2:
            found.append(cut)
    return found


def _same_words(left: Sequence[str], right: Sequence[str]) -> bool:
    texts = [re.sub(r"\w{4,}|\b\w[a-z]*\b", lambda word: word[0].lower(), thing(" ".join(x))) for x in (left, right)]
    first, second = (re.sub(r"[.,]|s\b", "", text.replace("/", " per ")).split() for text in texts)  # GB is not Gb
    things = {str(" ".join(words).partition(" of")[0].split()[-1:]) for words in (first, second)}
    extra = {*first} ^ {*second}
    if "more" in extra or ("of" in extra and len(things) > 1):
        return False
    return first == second or ("per" not in first + second and ({*first} <= {*second} or {*second} <= {*first}))


def _letters(answer: Answer) -> frozenset[str] | None:
    r"""The letters of a choice, of a list of choices, or of a run such as \text{AC}: in order, each once."""
    run = ""
    match answer:
        case Answer("letters"):
            return answer.value
        case Answer("expression", Symbol(letter)):
            return frozenset({letter})
        case Answer("list" | "set") if "or" not in answer.links:
            parts = [*map(_letters, answer.items)]
            return None if None in parts else frozenset(letter for part in parts for letter in part or ())
        case Answer("text", text) if text.isalpha():
            run = text.upper()
        case Answer("expression", Product(factors)) if all(isinstance(factor, Symbol) for factor in factors):
            run = "".join(factor[1] for factor in factors)
    in_order = len(run) > 1 and run in ("".join(letters) for letters in combinations("ABCDEFGH", len(run)))
    return frozenset(run) if in_order else None


def _same_numbers(gold: Answer, answer: Answer) -> bool | None:
    """Equality of long lists and sets of numbers; None if there are other members."""
    values = [
        [exact(y.value) if y.kind == "expression" and numeral(y.value) else None for y in x.items]
        for x in (gold, answer)
    ]
    if "tuple" in (gold.kind, answer.kind) or any(None in side for side in values):
        return None
    known = [[value for value in side if value is not None] for side in values]
    left, right = (sorted({*side} if "set" in (gold.kind, answer.kind) else side) for side in known)
    return left == right


def _value_of(answer: Answer) -> Answer:
    """A value without its name."""
    return answer.items[0] if answer.kind == "assigned" and len(answer.items) == 1 else answer


def _alternatives_agree(gold: Answer, answer: Answer) -> bool:
    """Whether both say "or", or neither does; it makes no difference between values that solve something."""
    links, items = {*gold.links} ^ {*answer.links}, gold.items
    both = "and" in links
    things = [
        x.words or (x.kind == "expression" and (isinstance(x.value, Symbol) or (both and symbols(x.value))))
        for x in items
    ]
    several = both and len({x.unit for x in items}) > 1  # 2 hours and 5 minutes
    return "or" not in links or not (several or all(things))


def _names_differ(answer: Answer) -> bool:
    """Whether the elements of a list have different names, which pair the values; x_1, x_2 only count them."""
    names = [x.name for x in answer.items if x.kind == "assigned" and x.name]
    if answer.kind != "list" or len(names) < max(2, len(answer.items)) or len({*names}) < len(names):
        return False
    stems = {name[1].split("_")[0] if isinstance(name, Symbol) and "_" in name[1] else None for name in names}
    return None in stems or len(stems) > 1


def _cells(answer: Answer) -> tuple[set[tuple[int, int]], Sequence[Node]]:
    """The shapes and entries of a matrix, a list of rows, a binomial (a column), or a tuple (a row or a column)."""
    match answer:
        case Answer("matrix", rows):
            return {(len(rows), len(rows[0]))}, [cell for row in rows for cell in row]
        case Answer("tuple", marks="[]", items=rows) if len({len(row.items) for row in rows} | {0}) == 2:
            return {(len(rows), len(rows[0].items))}, [cell for row in rows for cell in row.value]
        case Answer("expression", Function("binom", column)):
            return {(2, 1)}, column
    size = len(answer.items)
    return {(1, size), (size, 1)}, answer.value


def _same_name(left: Node | None, right: Node | None) -> bool:
    """Whether two names may be of one thing: y may be f(x), and each of them has no name."""
    if left is None or right is None or left == right or "text" in (left[0], right[0]):
        names = [x for x in (left, right) if x and isinstance(x, (Words, Product))]
        words = [x[1].strip() if isinstance(x, Words) else "".join(str(part[1]) for part in x[1:]) for x in names]
        spelled = all(isinstance(x, Words) for x in names) or all(map(str.isupper, words))  # AB is not BC
        return len(words) < 2 or not spelled or " " in "".join(words) or words[0] == words[1]
    if re.fullmatch("fracdyd. y'", " ".join(sorted(str(name[1]) for name in (left, right)))):
        return True
    if "call" in (left[0], right[0]):
        call, other = (left, right) if isinstance(left, Call) else (right, left)
        other_function = "'" in call[1] or ("^" in call[1] and call is right)  # y is neither f'(x) nor f^{-1}(x)
        value = None if other_function else "y" if len(call) == 3 else "z"
        return isinstance(other, Symbol) and other[1] in (value, call[1].rstrip("'"))
    return canonical(left) == canonical(right)


def _with_arguments_of(gold: Answer, answer: Answer) -> Answer | None:
    """f(t) = t² with the argument of f(x) = x²; None if the two are not calls of one function with other arguments."""
    left, right = gold.name, answer.name
    if (
        not left
        or not right
        or not isinstance(left, Call)
        or left[:2] != right[:2]
        or left == right
        or len(left) != len(right)
    ):
        return None
    taken = {*left[2:]} & {Symbol(name) for x in answer.items for name in symbols(x.value)}
    if taken or any(not isinstance(x, Symbol) or x[1][0].isupper() for x in (*left[2:], *right[2:])):
        return None
    if {x[1] for x in right[2:]} & {name for x in gold.items for name in symbols(x.value)}:
        return None
    renamed = dict(zip(right[2:], left[2:], strict=True))
    items = tuple(replace(x, value=replaced(x.value, renamed)) for x in answer.items)
    return replace(answer, items=items, name=left)


def _exact_members(answer: Answer) -> list[Answer]:
    """The members of a chain that are said to be equal; approximations follow the first."""
    return [x for n, (link, x) in enumerate(zip(answer.links, answer.items, strict=True)) if n == 0 or link == "="]


class KindRule(NamedTuple):
    """What compares two answers by their kinds."""

    name: str
    some: set[str]
    """Kinds of which one side has one."""
    every: set[str]
    """Kinds of which both sides have one; any, if none is named."""
    compare: Callable[[Comparison, Answer, Answer], bool | None]


RULES = tuple(
    KindRule(name, {*some.split()}, {*every.split()}, compare) for name, some, every, compare in (
        ("families over the integers", "family", "", Comparison.families),
        ("names and chains", "assigned", "", Comparison.named),
        ("values and units", "quantity expression", "quantity expression", Comparison.quantities),
        ("ratios", "ratio", "", Comparison.ratios),
        ("matrices and tuples", "matrix tuple", "matrix tuple expression", Comparison.tables),
        ("sets of reals", "intervals", "", Comparison.sets_of_reals),
        ("lists and sets", "list", "list set tuple", Comparison.collections),
        ("sets", "set", "set", Comparison.collections),
        ("a set of one", "set", "set expression quantity tuple", Comparison.sets_of_one),
        ("alternatives that are all equal", "list", "list expression quantity", Comparison.all_alternatives),
        ("letters of choices", "letters", "", Comparison.letters),
        ("digits of a base", "base", "", Comparison.bases),
        ("cases", "cases", "cases", Comparison.matched),
        ("equations", "equation", "equation", Comparison.equations),
        ("an equation for one of its sides", "equation", "equation expression", Comparison.identities),
        ("inequalities", "inequality", "inequality", Comparison.inequalities),
        ("a list in order as a chain", "inequality", "list inequality", Comparison.in_a_chain),
    )
)  # fmt: skip
"""The first rule for the kinds of two answers compares them. Answers without one are equal if their kinds and values
are."""
