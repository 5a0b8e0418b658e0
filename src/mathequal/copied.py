r"""Whether an answer is the question's own formula, so that the work which the question asks for is not done.

An answer is copied if it has the value of the gold answer and is, up to what takes no work, a formula of the question
that the gold answer is not:

    Simplify √245.            √245, 1·√245, √245 + ln 1, (√245)^{2−1}, √((√245)²), e^{ln √245}
    Find 64/7 ÷ 8/3.          64/7 ÷ 8/3
    Reduce 25/20.             25/20
    Convert 7 mi to yards.    7 mi
    Write 45 % as a decimal.  45 %

What takes no work: the order of terms and factors, brackets, rational arithmetic, constants, powers of powers,
functions and their inverses, terms and factors that are the same everywhere (x/x, sin²x + cos²x).
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from mathequal.answers import (
    VALUES,
    Answer,
    Chain,
    Equation,
    Expression,
    Intervals,
    Letters,
    Members,
    Quantity,
    Several,
    Text,
    Value,
    unit_in,
)
from mathequal.asked_formulas import formulas_of
from mathequal.beside_units import unit_beside
from mathequal.budget import Budget, Unevaluable
from mathequal.formula import Formula, formula_of
from mathequal.identity import identical
from mathequal.nodes import (
    Big,
    Call,
    Constant,
    Degrees,
    Function,
    Negative,
    Node,
    Number,
    Percent,
    Power,
    Product,
    Quotient,
    Sum,
    Symbol,
)
from mathequal.numeric import alone, approximate, numeric_at
from mathequal.rational import exact
from mathequal.reading import read
from mathequal.text import bare_text, stands_in
from mathequal.trees import canonical, holds, integer_node, leaves, numeral, parts_of, rebuilt, symbols
from mathequal.units import DEGREE, PERCENT, Unit, read_unit

_DISTANCE = re.compile(r"\||vert|abs")
_STEPS = 4000
_LARGEST = 10**6
_NUMBER = re.compile(r"(?<![\w.,])-?\d[\d,]*(?:\.\d+)?")
_CONVERTS = re.compile(
    r"\b(?:convert|rewrite|rename|transform)|\b(?:as|in|to|into) (?:an? )?(?:\w+ )?(?:decimal|fraction|percent|mixed|"
    r"(?:standard|scientific|decimal|interval|set|set-builder) (?:notation|form)|radians?|degrees?)\b",
    re.I,
)
"""Words that ask for the same value in another form."""


def is_copied(answer: str, golds: Sequence[str], question: str) -> bool:
    """Whether an answer that is right in value is a formula of the question; never a gold answer's own text, a choice,
    text, or a number that is worked out (unless the question asks to convert it)."""
    if not question or answer in golds or (typed := read(answer)) is None:
        return False
    own_text = bare_text(answer)
    if any(bare_text(gold) == own_text for gold in golds):
        return False
    known = [x for x in map(read, golds) if x]
    if isinstance(typed, Quantity) and typed.unit and typed.unit[0] == PERCENT and symbols(typed.value):
        typed = Expression(Quotient(typed.value, integer_node(100)))  # a formula · 100 %
    if any(isinstance(x, Quantity) for x in (typed, *known)):  # 20 m/s, and not 20 m divided by s
        typed, known = _measured(answer) or typed, [x for x in map(_measured, golds) if x]
    value = _without_name(typed)
    converted = _CONVERTS.search(question) and not any(isinstance(x, (Letters, Text)) for x in (value, *known))
    if not converted and isinstance(value, Expression) and numeral(value.value) and _work(value.value) == 1:
        return False  # the usual case: a number that is worked out
    asked = formulas_of(question)
    if isinstance(value, Intervals) and not _DISTANCE.search(own_text):  # |x − 1| ≤ 4 is solved by its reading
        asked = tuple((text, x) for text, x in asked if not _DISTANCE.search(text))
    same = any(text == own_text or _same(value, x) for text, x in asked)
    as_gold = isinstance(value, VALUES) and any(_same(value, x) for x in known)
    if converted and ((same and not as_gold) or _in_other_unit(value, known)):
        return True
    if isinstance(value, (Letters, Text)) or value in map(_without_name, known):
        return False
    with alone:
        if isinstance(value, Quantity) and value.unit and _is_unit_kept(value, known, question):
            return True
        number = isinstance(value, VALUES) and numeral(value.value) != ""
        if isinstance(value, VALUES) and number and (isinstance(value, Quantity) or _work(value.value) == 1):
            return False
        if not number and stands_in(answer, question):
            return True
        if not isinstance(value, (Expression, Equation)) and any(_same(value, x) for _, x in asked):
            return True
        return _is_work_left(typed, known, [x for _, x in asked])


def _measured(text: str) -> Answer | None:
    """A typed value with letters after its number as a unit, if they can be one."""
    typed = read(text, units=True)
    return typed if isinstance(typed, Quantity) else read(text)


def _without_name(answer: Answer) -> Answer:
    """The last value of a chain, or of a name."""
    value = answer.items[-1] if isinstance(answer, Chain) else answer
    return replace(value, name=None)


def _in_other_unit(answer: Answer, golds: Sequence[Answer]) -> bool:
    """Whether an answer is in degrees, in percent or another unit, and the gold answer is not."""
    others = [gold for gold in golds if isinstance(gold, VALUES)]
    if isinstance(answer, Expression) and holds(answer.value, Degrees, Percent):
        return not any(holds(gold.value, Degrees, Percent) or unit_in(gold) for gold in others)
    unit = unit_in(answer)
    if not others or unit is None:
        return False
    written = unit[0] in (DEGREE, PERCENT)  # and not only left out in the gold answer
    return all(unit_in(gold) != unit and (unit_in(gold) is not None or written) for gold in others)


def _same(one: Answer, other: Answer) -> bool:
    """Whether two values are written in the same way."""
    other = _without_name(other)
    if isinstance(one, VALUES) and isinstance(other, VALUES) and _is_of_one_unit(one, other):
        left, right = (numeral(x.value).replace("scaled", "int") for x in (one, other))
        same = left == right != "" and exact(one.value) == exact(other.value)
        return same and _work(one.value) == _work(other.value)
    return one == other


def _is_of_one_unit(one: Value, other: Value) -> bool:
    return type(one) is type(other) and unit_in(one) == unit_in(other)


def _is_unit_kept(answer: Quantity, golds: Sequence[Answer], question: str) -> bool:
    """Whether the question has a quantity, and the gold answer has it in another unit."""
    if any(unit_in(gold) in (None, answer.unit) for gold in golds):
        return False
    value = exact(answer.value)
    return any((value, answer.unit) == quantity for quantity in _quantities(question))


def _quantities(question: str) -> Iterator[tuple[Any, Unit | None]]:
    """The numbers with units of a question."""
    for number in _NUMBER.finditer(question):
        if unit := unit_beside(question[number.end() : number.end() + 60]):
            typed = read(number[0])
            if isinstance(typed, Expression):
                yield exact(typed.value), read_unit(unit.split())


def _work(node: Any) -> int:
    """How much of an expression is there to work out: its numbers, letters and constants; more for a fraction that can
    be reduced, like terms, a power of a product or a sum, and a function."""
    if not isinstance(node, tuple) or not node:
        return 0
    if form := numeral(node):
        return 1 + (form in ("frac", "mixed") and _is_unreduced(node))
    if isinstance(node, (Symbol, Constant)):
        return 1
    own = sum(map(_work, parts_of(node)))
    match node:
        case Power(base, Number(power)) if _work(base) > 1:
            return _work(base) * max(2, min(abs(int(power)), 9))
        case Power(_, Number(power)) if power < 0:
            return own + 2
        case Function():
            return own + 1
        case Sum(parts):
            return own + (len(formula_of(node)) < len(parts)) * len(parts)
        case Product(parts):
            return own + (len({*parts}) < len(parts))
    return own


def _is_unreduced(node: Any) -> bool:
    """Whether a fraction can be reduced, or is one of fractions."""
    match node:
        case Negative(inner):
            return _is_unreduced(inner)
        case Number():
            return (node.detail or 0) > 1
        case Quotient(Number(top, "int"), Number(bottom, "int")):
            return (top / bottom).denominator != bottom
    return True


_Formula = tuple[frozenset[Formula], int, frozenset[str]]
_NONE: _Formula = frozenset(), 0, frozenset()


@lru_cache(maxsize=256)
def _sides(*nodes: Node) -> _Formula:
    """Expressions without what takes no work: as formulas, how long they are, and as they are written."""
    with suppress(Unevaluable):
        budget = Budget(_STEPS)
        simple = [_simple(node, budget) for node in nodes]
        return frozenset(map(formula_of, simple)), sum(map(_work, nodes)), frozenset(map(canonical, simple))
    return _NONE


def _parts(answer: Answer) -> list[tuple[Node, ...]]:
    """An expression, the sides of an equation, or those of each item of a list or set; nothing for other answers."""
    while isinstance(answer, Chain) or (isinstance(answer, Members) and len(answer.items) == 1):
        answer = answer.items[-1]
    if isinstance(answer, (Several, Members)):
        return [part for item in answer.items for part in _parts(item) or [()]]
    if isinstance(answer, Equation):
        return [answer.sides]
    return [(answer.value,)] if isinstance(answer, VALUES) else []


def _is_work_left(answer: Answer, golds: Sequence[Answer], asked: Sequence[Answer]) -> bool:
    """Whether each part of an answer is a formula of the question, and not a part of the gold answer, or has as much of
    it yet to do; or a formula of the question that is the gold answer in value is left in it as it is."""
    if isinstance(answer, Equation) and all(isinstance(x, Expression) for x in golds):  # x² − 1 = (x + 1)(x − 1)
        own = [(side,) for side in answer.sides]
    else:
        own = _parts(answer)
    formulas = [part for x in asked for part in _parts(x) if part]
    alike = [[formula for formula in formulas if _may_be_equal(part, formula)] for part in own]
    if own and all(alike):
        wanted = [_sides(*part) for x in golds for part in _parts(x)]
        if all(
            any(_is_left(_sides(*part), _sides(*x), wanted) for x in some)
            for part, some in zip(own, alike, strict=True)
        ):
            return True
    value, results = _value(answer), [x for x in map(_value, golds) if x]
    return value is not None and any(
        _is_held(x, value, results) for x in map(_value, asked) if x and _may_be_equal((x,), (value,))
    )


def _may_be_equal(some: Sequence[Node], others: Sequence[Node]) -> bool:
    """Whether the sides of an equation, or expressions, can have the same values: a quick look at one point."""
    left, right = ([approximate(node) for node in nodes] for nodes in (some, others))
    if len(left) != len(right):
        return False
    return all(any(_is_near(x, y) for y in right) for x in left)


def _is_near(left: tuple[float, float] | None, right: tuple[float, float] | None) -> bool:
    """Whether two approximate values can be of one number; True if one of them is not known."""
    if left is None or right is None:
        return True
    return abs(left[0] - right[0]) <= 1e-9 * max(left[1], right[1])


def _is_left(answer: _Formula, asked: _Formula, golds: Sequence[_Formula]) -> bool:
    if not asked[0] or answer[0] != asked[0]:
        return False
    if answer[2] == asked[2] and all(answer[2] != gold[2] for gold in golds):
        return True
    return all(answer[1] >= asked[1] > gold[1] for gold in golds if gold[0] == answer[0])


def _value(answer: Answer) -> Node | None:
    """The expression of an answer without its name."""
    value = _without_name(answer)
    return value.value if isinstance(value, VALUES) else None


def _is_held(asked: Node, answer: Node, golds: Sequence[Node]) -> bool:
    """Whether a formula is a part of an answer, is no part of a gold answer, and has its value."""
    if leaves(asked) < 2 or numeral(asked):
        return False
    with suppress(Unevaluable):
        text, formula = canonical(asked), formula_of(_simple(asked, Budget(_STEPS)))

        def has(node: Any) -> bool:
            """Whether a part of an expression is the formula: as it is written, or a sum up to what takes no work."""
            if not isinstance(node, tuple) or not node or leaves(node) < 2:
                return False
            own = isinstance(node, Node) and (
                canonical(node) == text or (len(formula) > 1 and formula_of(node) == formula)
            )
            return own or any(map(has, node))

        held = has(answer) and not any(map(has, golds))
        return held and any(identical(gold, asked, Budget(_STEPS)) for gold in golds)
    return False


_ONE = integer_node(1)


def _simple(node: Any, budget: Budget) -> Any:
    """An expression without what takes no work: a constant that is a whole number is that number, and functions meet
    their inverses."""
    if not isinstance(node, tuple) or not node or isinstance(node, (Number, Symbol, Constant)):
        return node
    budget.spend()
    if (without := _without_wrapper(node)) is not node:
        return _simple(without, budget)
    if (constant := _constant(node, budget)) is not None:
        return constant
    simple = rebuilt(node, (_simple(part, budget) if isinstance(part, tuple) else part for part in parts_of(node)))
    return simple if simple == node or (without := _without_wrapper(simple)) is simple else _simple(without, budget)


def _without_wrapper(node: Any) -> Any:
    """What a function and its inverse enclose; a root as a power; a power of a power as one power."""
    match node:
        case Function("sqrt", [inner]):
            return Power(inner, Quotient(_ONE, integer_node(2)))
        case Function("root", [inner, index]):
            return Power(inner, Quotient(_ONE, index))
        case Function("abs", [inner]):
            return inner
        case Function("max" | "min" | "gcd" | "lcm", [inner, *others]) if {*others} <= {inner}:
            return inner
        case Function("ln", [Power(Constant("e"), inner)]) | Power(Constant("e"), Function("ln", [inner])):
            return inner
        case Function("logb", [Power(base, inner), other]) | Power(base, Function("logb", [inner, other])) if (
            base == other
        ):
            return inner
        case Function("log", [Power(Number(value), inner)]) | Power(Number(value), Function("log", [inner])) if (
            value == 10
        ):
            return inner
        case Power(Power(base, power), exponent) if not symbols(power) | symbols(exponent):
            value = exact(Product(power, exponent))
            return node if value is None else Power(base, _number(value))
        case Power(base, exponent) if not isinstance(exponent, Number) and (value := exact(exponent)) is not None:
            return Power(base, _number(value))
        case Power(base, Number(value)) if value == 1:
            return base
        case Power(Quotient(Number(value), bottom), exponent) if value == 1:
            return Quotient(_ONE, Power(bottom, exponent))
        case Power(base, Number(value)) if value < 0 and value.denominator > 1:
            return Quotient(_ONE, Power(base, _number(-value)))
        case Quotient(top, Power(base, Number(value))) if value < 0:
            return Product(top, Power(base, _number(-value)))
    return node


def _number(value: Fraction) -> Node:
    return Number(value, "int" if value.denominator == 1 else "frac")


def _constant(node: Any, budget: Budget) -> Node | None:
    """The whole number that an expression is everywhere; None if it is none."""
    if (
        isinstance(node, Product) or leaves(node) > 12 or holds(node, Big, Call, Degrees)
    ):  # the factors of a product are tried
        return None
    if (quick := approximate(node)) and abs(quick[0] - round(quick[0])) > 1e-9 * quick[1]:
        return None
    budget.spend(leaves(node))
    values = [numeric_at(node, budget, point) for point in range(2 if symbols(node) else 1)]
    if None in values or not abs(values[0]) < _LARGEST:
        return None
    whole = round(values[0].real)
    if whole == 0 and isinstance(node, (Power, Quotient)):  # small
        return None
    return integer_node(whole) if all(abs(value - whole) < 1e-20 for value in values) else None
