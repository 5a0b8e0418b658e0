"""Equality of typed answers: the gold answer's type decides what is compared, and how."""

import operator
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import Any

from dph.types import UNPARSED
from dph.verifiers.math.answer import FORMULA, Decimals
from dph.verifiers.math.typed.grammar import LONGEST, Budget, Node, Unevaluable, holds, integer_node, replaced
from dph.verifiers.math.typed.read import Answer, read, sign_of_infinity, to_intervals
from dph.verifiers.math.typed.text import bare_text, stands_in, word_list
from dph.verifiers.math.typed.units import DEGREE, PERCENT, RADIAN, adds_a_name
from dph.verifiers.math.typed.values import (
    Numeric,
    alone,
    canonical,
    contains_pi,
    digits,
    exact,
    identical,
    mp,
    numeric,
    operations,
    proportional,
    symbols,
)

_STEPS = 20_000
_LONGEST_LIST = 60
_HEAVY = {*word_list("sum prod int oint lim max min gcd lcm det call arg sgn norm Re Im")}
_FAMILIES = tuple(frozenset(family.split()) for family in (
    "sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc", "ln log logb", "! binom", "floor ceil",
    "sinh cosh tanh coth arsinh",
))  # fmt: skip
_MOST_FORMULAS = 20
_SET_RULES: dict[Any, Callable[[int, int], int]] = {"cap": operator.and_, ",": operator.and_, "minus": operator.gt}
_HUNDRED = integer_node(100)
_BASIS = (("c", "i"), ("s", "j"), ("s", "k"))  # 2i + 3j is (2, 3)


def compare(gold: str, answer: str, *, decimals: Decimals = "exact") -> tuple[bool, str]:
    """Whether an answer equals the gold answer, and `UNPARSED` if only the texts could be compared."""
    if len(answer) > LONGEST:
        return False, "long"
    with alone:
        left, right = (read(text) or read(text, units=True) for text in (gold, answer))
        equal = None if left is None or right is None else Comparison(decimals).decide(left, right, gold, answer)
    if equal is None:
        return (True, "text") if bare_text(gold) == bare_text(answer) else (False, UNPARSED)
    return equal, ""


def answer_key(answer: str) -> str:
    """What equal numbers, and answers with equal text, share."""
    typed = read(answer)
    value = exact(typed.value) if typed and typed.kind == "expression" else None
    return bare_text(answer) if value is None else str(value)


def is_copied(answer: str, golds: Sequence[str], question: str) -> bool:
    """Whether the question holds an answer, in any order of terms, except a gold answer, number, choice or text."""
    typed = read(answer)
    if typed is None or any(bare_text(gold) == bare_text(answer) or read(gold) == typed for gold in golds):
        return False
    value = typed.items[0] if typed.kind == "assigned" else typed
    number = value.kind in ("expression", "quantity") and numeral(value.value)
    if number or value.kind in ("choice", "letters", "text"):
        return False
    if stands_in(answer, question):
        return True
    form = _unordered(value)
    if not form or form in [_unordered(read(gold)) for gold in golds]:
        return False
    formulas = ["".join(found.groups("")) for found in FORMULA.finditer(question)]
    return form in [_unordered(read(formula)) for formula in formulas[:_MOST_FORMULAS]]


def _unordered(answer: Answer | None) -> list[str]:
    """The sides of an equation, or an expression, with sums and products sorted; nothing for other answers."""
    if answer is None or answer.kind not in ("expression", "equation"):
        return []
    return sorted(map(canonical, answer.value if answer.kind == "equation" else (answer.value,)))


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


def numeral(node: Node) -> str:
    """int, dec, frac, mixed, rep, sci or ten (a power) for a number written as a result; "" if yet to be computed."""
    match node:
        case ("n", _, form, *_):
            return form
        case ("-", inner):
            return numeral(inner)
        case ("/", top, ("n", bottom, "int")) if bottom == 1:
            return numeral(top)
        case ("/", *parts) if {*map(numeral, parts)} <= {"int", "dec", "frac"}:
            return "frac"
    return ""


def _form_allowed(gold: Node, answer: Node) -> bool:
    """Whether an answer is a result, as the gold answer is, and not a computation that has yet to be done."""
    known, used = operations(gold), operations(answer)
    if "('^', ('c', 'e')" in repr(gold) and "('c', 'i')" in repr(gold):
        known |= {"sin", "cos"}  # e^{iφ}
    if (used - known) & _HEAVY:
        return False
    if numeral(gold) not in ("", "ten"):
        form = numeral(answer)
        return form != "" and (numeral(gold), form) != ("int", "frac")
    if symbols(gold):
        return True
    return not used - known - set().union(*(family for family in _FAMILIES if known & family))


def _is_clock(terms: Sequence[Node]) -> bool:
    """Whether a:b may be a time, as 12:00 and 7:45, for which 14:90 is not another way to write it."""
    hour, minute = (exact(terms[0]), exact(terms[-1])) if len(terms) == 2 else (None, None)
    return hour is not None and minute is not None and 0 <= hour < 24 and 10 <= minute < 60


class Comparison:
    """One comparison, with its budget. Its methods return True, False, or None if nothing decides."""

    def __init__(self, decimals: Decimals = "exact") -> None:
        self.budget, self.rounded, self.ends = Budget(_STEPS), decimals == "rounded", list[Any]()

    def decide(self, gold: Answer, answer: Answer, gold_text: str, answer_text: str) -> bool | None:
        """Equality; also with letters after numbers as units, if the other side has one."""
        equal = gold == answer or self.equal(gold, answer)
        if equal is not True and gold.kind in ("expression", "assigned", "list", "family", "congruence"):
            equal = self.families(gold, answer) or equal
        if equal is not True and any(x.kind == "quantity" for x in (gold, answer, *gold.items, *answer.items)):
            sides = [read(text, units=True) for text in (gold_text, answer_text)]
            if all(x is not None and "quantity" in (x.kind, *(y.kind for y in x.items)) for x in sides):
                equal = self.equal(*filter(None, sides)) or equal
        return equal

    def equal(self, gold: Answer, answer: Answer) -> bool | None:
        try:
            self.budget.spend()
        except Unevaluable:
            return None
        if gold.others or answer.others:
            golds, answers = ((replace(x, others=()), *x.others) for x in (gold, answer))
            pairs = [(x, y) for x in golds for y in answers if x is golds[0] or x.kind == y.kind]
            return any_of(self.equal(x, y) for x, y in pairs)
        kinds = {gold.kind, answer.kind}
        if "family" in kinds:
            return self.families(gold, answer)
        if kinds & {"assigned", "member"}:
            return self.named(gold, answer)
        if kinds <= {"quantity", "expression"}:
            return self.quantities(gold, answer)
        if "ratio" in kinds:
            return self.ratios(gold, answer)
        if kinds & {"expression", "quantity", "tuple"} and "set" in kinds:
            single = [x.items[0] if x.kind == "set" and len(x.items) == 1 else x for x in (gold, answer)]
            return "set" not in {x.kind for x in single} and self.equal(*single)
        if kinds in ({"tuple", "expression"}, {"matrix", "expression"}):
            fixed, other = (answer, gold) if gold.kind == "expression" else (gold, answer)
            if symbols(other.value) & {"j", "k"}:
                shapes, cells = _cells(fixed)
                terms = [("*", x, unit) for x, unit in zip(cells, _BASIS, strict=False) if exact(x) != 0]
                vector = len(cells) <= 3 and any(1 in shape for shape in shapes)
                return vector and self.identical(("+", *terms), other.value)
        if "matrix" in kinds and kinds <= {"matrix", "tuple", "expression"}:
            (shapes, left), (others, right) = map(_cells, (gold, answer))
            return bool(shapes & others) and all_of(map(self.entries, left, right))
        if "intervals" in kinds:
            left, right = to_intervals(gold), to_intervals(answer)
            return left is not None and right is not None and self.intervals(left, right)
        if kinds <= {"list", "set"}:
            return self.collections(gold, answer)
        if gold.kind in ("expression", "quantity") and answer.kind == "list" and {*answer.links} == {"or"}:
            same = len({x.name for x in answer.items}) == 1
            return same and all_of(self.equal(gold, x) for x in answer.items)  # 1/2 or 0.5
        if kinds == {"list", "tuple"}:
            listed, fixed = (gold, answer) if gold.kind == "list" else (answer, gold)
            if fixed.marks != "()" or not _names_differ(listed):
                return False
            values = [[x.items[-1] for x in side.items] if side is listed else side.items for side in (gold, answer)]
            return self.in_order(*values)
        if kinds & {"letters", "choice"}:
            texts = [*filter(None, map(read, gold.words + answer.words))] if kinds == {"choice"} else []
            if len(texts) == 2 and self.equal(*texts) is False:
                return False
            letters, others = (_letters(x) or _run_of_letters(x) for x in (gold, answer))
            return letters is not None and letters == others
        if gold.kind != answer.kind:
            return False
        match gold.kind:
            case "tuple":
                return gold.marks == answer.marks and self.in_order(gold.items, answer.items)
            case "cases":
                return self.matched(gold.items, answer.items, self.equal)
            case "equation":
                return self.equations(gold.value, answer.value)
            case "inequality":
                return self.inequalities(gold.value, answer.value)
            case "congruence":
                return self.families(gold, answer)
        return gold.value == answer.value

    # Values.
    def identical(self, gold: Node, answer: Node) -> bool | None:
        return identical(gold, answer, self.budget)

    def expressions(self, gold: Node, answer: Node) -> bool | None:
        decimal = self.rounded and numeral(gold) in ("dec", "sci")
        if decimal and not symbols(answer) | operations(answer) & _HEAVY and abs(self.error(answer, gold)[0]) <= 0.5:
            return True
        return _form_allowed(gold, answer) and self.identical(gold, answer)

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
                return self.identical(*(("deg", x) if unit == DEGREE else x for x, unit in ((g, left), (a, right))))
            if left != right:  # cm² in place of square units
                squared = {"U", "L"} == {left[0][0], right[0][0]} and left[0][1] == right[0][1] > 1
                return squared and len(left) == len(right) == 1 and self.expressions(g, a)
            if factor == other:
                return self.expressions(g, a)
            worked_out = _form_allowed(g, a) or (numeral(a) and (exact(a) or 1) % 1)
            return bool(worked_out) and self.identical(("*", ("n", factor, ""), g), ("*", ("n", other, ""), a))
        if left is None and right == () and other != 1:  # mm per m
            return _form_allowed(g, a) and self.identical(g, ("*", ("n", other, ""), a))
        if PERCENT in (left, right):
            share = ("/", (g if left else a), _HUNDRED)
            plain = left is not None or (value := exact(g)) is None or abs(value) >= 1 or value == 0
            loose = _form_allowed(g, a) or bool(numeral(g) and numeral(a))
            same = loose and self.identical(*((share, a) if left else (g, share)))
            return any_of([plain and self.expressions(g, a), same])
        if DEGREE in (left, right) and contains_pi(a if left else g):
            return self.identical(*((("deg", g), a) if left else (g, ("deg", a))))
        return self.expressions(g, a)

    def entries(self, gold: Node, answer: Node) -> bool | None:
        if any(holds(cell, "rel", "unit", "seq", "text", "set", "pm") for cell in (gold, answer)):
            return canonical(gold) == canonical(answer)
        scalar = not symbols(gold) and not operations(answer)  # a scalar may be drawn out of the matrix
        return any_of([self.expressions(gold, answer), scalar and self.identical(gold, answer)])

    def ratios(self, gold: Answer, answer: Answer) -> bool | None:
        if gold.kind == answer.kind:
            left, right = gold.value, answer.value
            if len(left) != len(right) or any(exact(term) == 0 for term in (*left, *right)) or _is_clock(left):
                return len(left) == len(right) and all_of(map(self.identical, left, right))
            pairs = zip(left[1:], right[1:], strict=True)
            return all_of(self.identical(("*", x, right[0]), ("*", y, left[0])) for x, y in pairs)
        terms, other = (gold.value, answer) if gold.kind == "ratio" else (answer.value, gold)
        if other.kind == "time":  # 16:30 is one of the 24-hour clock
            return _is_clock(terms) and (*map(exact, terms), *[0] * (3 - len(terms))) == other.value
        quotient = len(terms) == 2 and other.kind == "expression" and numeral(other.value) == "frac"
        return quotient and self.identical(("/", *terms), other.value)

    # Lists and sets.
    def in_order(self, gold: Sequence[Answer], answer: Sequence[Answer]) -> bool | None:
        return len(gold) == len(answer) and all_of(map(self.equal, gold, answer))

    def matched(self, gold: Sequence[Any], answer: Sequence[Any], equal: Callable[..., bool | None]) -> bool | None:
        """Whether the elements pair off; equality is taken as transitive."""
        left, unknown = [*answer], False
        for x in gold if len(gold) == len(answer) else ():
            results = [equal(x, y) for y in left]
            if True in results:
                left.pop(results.index(True))
            elif None in results:
                unknown = True
            else:
                return False
        return len(gold) == len(answer) and (None if unknown else True)

    def collections(self, gold: Answer, answer: Answer) -> bool | None:
        """Lists and sets up to order; names that differ pair the values."""
        left, right = gold.items, answer.items
        if max(len(left), len(right)) > _LONGEST_LIST:
            return None
        if _names_differ(gold):
            if _names_differ(answer):
                if "or" in {*answer.links} ^ {*gold.links}:
                    return False
                by_name = {repr(x.name): x for x in right}
                return len(left) == len(right) and all_of(
                    repr(x.name) in by_name and self.equal(x, by_name[repr(x.name)]) for x in left
                )
            alike = gold.kind == answer.kind and not any(x.name for x in right)
            return alike and self.in_order([x.items[-1] for x in left], right)
        if _names_differ(answer):
            alike = gold.kind == answer.kind and "assigned" not in {x.kind for x in left}
            return alike and self.in_order(left, [x.items[-1] for x in right])
        links = {*gold.links} ^ {*answer.links}
        both = "and" in links
        things = [
            x.words or (x.kind == "expression" and (x.value[0] == "s" or (both and symbols(x.value)))) for x in left
        ]
        things = [True] if both and len({x.unit for x in left}) > 1 else things  # 2 hours and 5 minutes
        if ("or" in links and all(things)) or "equation" in {x.kind for x in right} - {x.kind for x in left}:
            return False
        names = [{x.name for x in items if x.name} for items in (left, right)]
        stems = [{str(n[1]).split("_")[0] for n in x} for x in names]
        if len(stems[0]) != len(stems[1]) and all(x.name for x in (*left, *right)):
            return False
        if all(len(x) == 1 for x in names) and not _same_name(*names[0], *names[1]):
            return False
        single = "assigned" if max(map(len, stems)) < 2 else ""
        left, right = (
            [x.items[0] if x.kind == single and len(x.items) == 1 else x for x in items] for items in (left, right)
        )
        if "set" in (gold.kind, answer.kind):
            found = [[(x.kind == "set") == (y.kind == "set") and self.equal(x, y) for y in right] for x in left]
            return all_of(map(any_of, [*found, *zip(*found, strict=True)])) if left and right else left == right
        return self.matched(left, right, self.equal)

    # Names and chains.
    def named(self, gold: Answer, answer: Answer) -> bool | None:
        """x = 5, f(x) = …, x ∈ S, and chains a = b = c."""
        kinds = {gold.kind, answer.kind}
        if kinds == {"member", "inequality"} and gold.value and answer.value and len(symbols(gold.value)) > 1:
            return self.inequalities(gold.value, answer.value)
        if "member" in kinds:
            sets = [x.items[0] if x.kind == "member" else x for x in (gold, answer)]
            return not kinds & {"assigned", "inequality"} and _same_name(gold.name, answer.name) and self.equal(*sets)
        if "equation" in kinds:
            sides = answer.value if gold.kind == "equation" else gold.value
            curve = bool(sides) and len(sides) == 2 and symbols(sides[1]) != set() and sides[0][0] in ("s", "call")
            return curve and self.equations(gold.value, answer.value)
        if kinds == {"assigned"}:
            pairs = [(x, y) for x in gold.items for y in answer.items if x.kind == y.kind == "quantity"]
            if pairs and not any(x.unit == y.unit or self.equal(x, y) for x, y in pairs):
                return False  # though members without units are equal
            answer = _with_arguments_of(gold, answer) or answer
            if _same_name(gold.name, answer.name):
                if len(gold.items) > 1 and any(str(x.value).startswith("('s'") for x in gold.items):  # a = b = 0
                    return self.in_order(gold.items, answer.items)
                return any_of(self.chain(member, answer) for member in _exact_members(gold))
            curves = [x.value for x in (gold, answer) if x.value and len(x.value) == 2 and symbols(x.value[1])]
            return len(curves) == 2 and self.equations(*curves)
        if gold.kind == "assigned":
            return any_of(self.equal(member, answer) for member in _exact_members(gold))
        name = answer.name
        if name is not None and gold.kind in ("text", "choice", "letters", "time", "date", "inequality"):
            return False
        if gold.kind == "expression" and name == gold.value and {*answer.links} == {"~"}:
            return all_of(self.approximates(gold, x) for x in answer.items)
        if name and name[0] == "s" and gold.kind in ("expression", "quantity") and symbols(name) & symbols(gold.value):
            return False
        if gold.kind in ("list", "set") and not (len(answer.items) == 1 and answer.items[0].kind in ("list", "set")):
            return False
        return self.chain(gold, answer)

    def chain(self, gold: Answer, answer: Answer) -> bool | None:
        """Every member of the answer's chain must be right; after an approximation sign, to its last digit."""
        exactly = _exact_members(answer)
        equal = [self.equal(gold, x) for x in exactly]
        if len(answer.items) == 1:
            return equal[0]
        right = [any_of([same, self.same_value(gold, x)]) for same, x in zip(equal, exactly, strict=True)]
        rounded = [self.approximates(gold, x) for x in answer.items if x not in exactly]
        return all_of([*right, *rounded, any_of(equal)])

    def same_value(self, gold: Answer, answer: Answer) -> bool | None:
        """Equality of value, whatever the form."""
        if gold.kind != "expression" or answer.kind != "expression" or operations(answer.value) & _HEAVY:
            return False
        return self.identical(gold.value, answer.value)

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
    def equations(self, gold: Any, answer: Any) -> bool | None:
        left, right = (("+", sides[0], ("-", sides[1])) for sides in (gold, answer))
        heavy = (operations(right) - operations(left)) & _HEAVY
        return not heavy and proportional(left, right, self.budget, positive=False)

    def inequalities(self, gold: Any, answer: Any) -> bool | None:
        (left, operators), (right, others) = gold, answer
        if operators != others or len(left) != len(right):
            return False
        pairs = zip(left, right, strict=True)
        same = all_of(any_of([canonical(x) == canonical(y), self.identical(x, y)]) for x, y in pairs)
        if same or len(left) != 2:
            return same
        left, right = (("+", sides[0], ("-", sides[1])) for sides in (left, right))
        return proportional(left, right, self.budget, positive=True)

    def progressions(self, answer: Answer, modular: bool) -> list[tuple[Any, Any]] | None:
        """(offset, period) of each a + b k; None for another kind of answer. modular: k, n or m is the integer."""
        match answer:
            case Answer("assigned", items=(inner,)):
                return self.progressions(inner, modular)
            case Answer("congruence", (value, modulus)):
                offset, period = numeric(value, self.budget), numeric(modulus, self.budget)
                return [(offset, abs(period))] if isinstance(offset, mp.mpf) and period else None
            case Answer("list"):
                parts = [self.progressions(x, modular) for x in answer.items]
                return None if None in parts else [x for part in parts for x in part or ()]
            case Answer("family", values, name=("s", index)):
                pass
            case Answer("expression", value) if symbols(value) in ({"k"}, {"n"}, {"m"}) and (
                modular or contains_pi(value) or holds(value, "deg")
            ):
                values, [index] = (value,), symbols(value)
            case _:
                return None
        found = []
        for value in values:
            steps = []
            for k in range(4):
                at = Numeric(self.budget)
                at.bound[index] = mp.mpf(k)
                try:
                    steps.append(at(value) if symbols(value) <= {index} else mp.inf)
                except Unevaluable:
                    return None
            period = steps[1] - steps[0]
            linear = all(isinstance(x, mp.mpf) and mp.isfinite(x) for x in steps) and all(
                _close(steps[k + 1] - steps[k], period) for k in (1, 2)
            )
            if not linear or period == 0:
                return None
            found.append((steps[0], abs(period)))
        return found

    def families(self, gold: Answer, answer: Answer) -> bool | None:
        with digits(40):
            modular = "congruence" in (gold.kind, answer.kind)
            left, right = self.progressions(gold, modular), self.progressions(answer, modular)
            if not left or not right:
                return False if left or right else None
            names = [x.words if x.kind == "family" else (x.name or ())[1:] for x in (gold, answer)]
            if all(names) and names[0] != names[1]:
                return False
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
    texts = [re.sub(r"\w{4,}|\b\w[a-z]*\b", lambda word: word[0].lower(), " ".join(x)) for x in (left, right)]
    first, second = (re.sub(r"[.,]|s\b", "", text.replace("/", " per ")).split() for text in texts)  # GB is not Gb
    things = {str(" ".join(words).partition(" of")[0].split()[-1:]) for words in (first, second)}
    extra = {*first} ^ {*second}
    if "more" in extra or ("of" in extra and len(things) > 1):
        return False
    return first == second or ("per" not in first + second and ({*first} <= {*second} or {*second} <= {*first}))


def _letters(answer: Answer) -> frozenset[str] | None:
    """The letters of a choice, or of a set of choices."""
    match answer:
        case Answer("letters"):
            return answer.value
        case Answer("choice", letter) | Answer("expression", ("s", letter)):
            return frozenset({letter})
        case Answer("list" | "set") if "or" not in answer.links:
            parts = [*map(_letters, answer.items)]
            return None if None in parts else frozenset(letter for part in parts for letter in part or ())
    return None


def _run_of_letters(answer: Answer) -> frozenset[str] | None:
    r"""The letters of the choices AC or \text{AC}: in order, each once."""
    match answer:
        case Answer("text", run) if run.isalpha():
            run = run.upper()
        case Answer("expression", ("*", *factors)) if all(factor[0] == "s" for factor in factors):
            run = "".join(factor[1] for factor in factors)
        case _:
            return None
    in_order = len(run) > 1 and run in ("".join(letters) for letters in combinations("ABCDEFGH", len(run)))
    return frozenset(run) if in_order else None


def _names_differ(answer: Answer) -> bool:
    """Whether the elements of a list have different names, which pair the values; x_1, x_2 only count them."""
    names = [x.name for x in answer.items if x.kind == "assigned" and x.name]
    if answer.kind != "list" or len(names) < max(2, len(answer.items)) or len({*map(repr, names)}) < len(names):
        return False
    stems = {name[1].split("_")[0] if name[0] == "s" and "_" in name[1] else None for name in names}
    return None in stems or len(stems) > 1


def _cells(answer: Answer) -> tuple[set[tuple[int, int]], Sequence[Node]]:
    """The shapes and entries of a matrix, a list of rows, a binomial (a column), or a tuple (a row or a column)."""
    match answer:
        case Answer("matrix", rows):
            return {(len(rows), len(rows[0]))}, [cell for row in rows for cell in row]
        case Answer("tuple", marks="[]", items=rows) if len({len(row.items) for row in rows} | {0}) == 2:
            return {(len(rows), len(rows[0].items))}, [cell for row in rows for cell in row.value]
        case Answer("expression", ("f", "binom", *column)):
            return {(2, 1)}, column
    size = len(answer.items)
    return ({(1, size), (size, 1)} if answer.marks == "()" else set()), answer.value


def _same_name(left: Node | None, right: Node | None) -> bool:
    """Whether two names may be of one thing: y may be f(x), and each of them has no name."""
    if left is None or right is None or left == right or "text" in (left[0], right[0]):
        words = [x[1].split() for x in (left, right) if x and x[0] == "text"]
        return [*map(len, words)] != [1, 1] or words[0] == words[1]
    if re.fullmatch("fracdyd. y'", " ".join(sorted(str(name[1]) for name in (left, right)))):
        return True
    if "call" in (left[0], right[0]):
        call, other = (left, right) if left[0] == "call" else (right, left)
        return other[0] == "s" and other[1] in ("y" if len(call) == 3 else "z", call[1].rstrip("'"))
    return canonical(left) == canonical(right)


def _with_arguments_of(gold: Answer, answer: Answer) -> Answer | None:
    """f(t) = t² with the argument of f(x) = x²; None if the two are not calls of one function with other arguments."""
    left, right = gold.name, answer.name
    if not left or not right or left[0] != right[0] or left[0] != "call" or left == right or len(left) != len(right):
        return None
    taken = {*map(str, left[2:])} & {str(("s", name)) for x in answer.items for name in symbols(x.value)}
    if taken or any(x[0] != "s" or x[1][0].isupper() for x in (*left[2:], *right[2:])):
        return None
    if {x[1] for x in right[2:]} & {name for x in gold.items for name in symbols(x.value)}:
        return None
    renamed = dict(zip(right[2:], left[2:], strict=True))
    items = tuple(replace(x, value=replaced(x.value, renamed)) for x in answer.items)
    return replace(answer, items=items, name=left)


def _exact_members(answer: Answer) -> list[Answer]:
    """The members of a chain that are said to be equal; approximations follow the first."""
    return [x for n, (link, x) in enumerate(zip(answer.links, answer.items, strict=True)) if n == 0 or link == "="]
