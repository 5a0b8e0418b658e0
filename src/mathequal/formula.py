"""What expressions share that differ in order and in rational arithmetic: the products of a sum, collected."""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from mathequal.budget import Unevaluable
from mathequal.nodes import Node, integer_node
from mathequal.rational import BITS, fitted

Product = frozenset[tuple[Any, int]]
"""Factors and their powers; a factor is a `Formula`, for a sum, or else a tuple."""
Formula = frozenset[tuple[Product, Fraction]]


def formula_of(node: Node) -> Formula:
    """What expressions share that differ in order, in factors and terms without effect, and in rational arithmetic:
    the products of a sum with their coefficients. Like terms are collected, and nothing is multiplied out. Raises
    Unevaluable for a coefficient that is too large."""
    match node:
        case ("n", value, *_):
            return _sum([(frozenset(), value)])
        case ("%", inner):
            return _product([(inner, 1), (integer_node(100), -1)])
        case ("-", inner):
            return negative(formula_of(inner))
        case ("+", *parts):
            found = [*map(formula_of, parts)]
            products = [product for formula in found for product, _ in formula]
            brackets = {factor for product in products if len(product) == 1 for factor, power in product if power == 1}
            terms = list[tuple[Product, Fraction]]()
            for formula in found:  # 2(a + b) − (a + b): a sum that another part multiplies stays one
                one, other = formula, negative(formula)
                sign = 0 if len(formula) == 1 else 1 if one in brackets else -(other in brackets)
                terms += [(frozenset([(one if sign > 0 else other, 1)]), Fraction(sign))] if sign else formula
            return _opened(_sum(terms))
        case ("*", *factors):
            return _product([(factor, 1) for factor in factors])
        case ("/", top, bottom):
            return _product([(top, 1), (bottom, -1)])
        case ("^", base, ("n", power, "int")) if abs(power) < 1000:
            return _product([(base, int(power))])
        case ("^", ("c", "e"), ("f", "ln", inner)):
            return formula_of(inner)
    parts = [formula_of(part) if isinstance(part, tuple) and part else part for part in node[1:]]
    return _sum([(frozenset([((node[0], *parts), 1)]), Fraction(1))])


def _sum(terms: Sequence[tuple[Product, Fraction]]) -> Formula:
    total: dict[Product, Fraction] = {}
    for product, value in terms:
        total[product] = fitted(total.get(product, Fraction(0)) + value)
    return frozenset((product, value) for product, value in total.items() if value)


def negative(formula: Formula) -> Formula:
    """The formula of the expression with the other sign."""
    return frozenset((product, -value) for product, value in formula)


def _opened(formula: Formula) -> Formula:
    """A sum in brackets, without them."""
    match [(*product, value) for product, value in formula]:
        case [((frozenset() as inner, 1), value)] if abs(value) == 1:
            return inner if value == 1 else negative(inner)
    return formula


def _product(factors: Sequence[tuple[Node, int]]) -> Formula:
    coefficient, powers = Fraction(1), Counter[Any]()
    for factor, power in factors:
        formula = formula_of(factor)
        if not formula and power > 0:
            return formula  # 0
        if len(formula) != 1:
            one = min(formula, negative(formula), key=hash)  # of two signs always the same one
            powers[one] += power
            coefficient *= -1 if power % 2 and one is not formula else 1
            continue
        [(product, value)] = formula
        if abs(power) * (value.numerator.bit_length() + value.denominator.bit_length()) > BITS:
            raise Unevaluable("large")
        coefficient = fitted(coefficient * value**power)
        for name, exponent in product:
            powers[name] += exponent * power
    return _opened(_sum([(frozenset((name, power) for name, power in powers.items() if power), coefficient)]))


def is_unfinished(node: Any) -> bool:
    """Whether an expression, or its numerator, has like terms to add, numbers or powers of one letter to multiply, or
    powers and products of complex numbers. Raises Unevaluable as `formula_of` does."""
    if not isinstance(node, tuple) or not node:
        return False
    match node:
        case ("+", *parts):
            terms = [term for part in parts for term in (part[1:] if part[0] == "+" else (part,))]
            unfinished = len(formula_of(node)) < sum(term[:2] != ("n", 0) for term in terms)
        case ("*", *factors):
            complex_ones = sum("('c', 'i')" in repr(x) for x in factors)
            letters = [x[1] if x[0] == "^" and x[2][0] == "n" else x for x in factors]
            several = len(letters) > len({*letters}) and any(letters.count(x) > 1 for x in letters if x[0] == "s")
            unfinished = complex_ones > 1 or sum(x[0] == "n" and x[2] in ("int", "dec") for x in factors) > 1 or several
        case ("^", base, ("n", power, "int")):
            unfinished = "('c', 'i')" in repr(base) and power != 1
        case _:
            unfinished = False
    parts = node[1:2] if node[0] == "/" else node[1:] if node[0] in ("+", "-", "*") else ()
    return unfinished or any(map(is_unfinished, parts))
