"""What expressions share that differ in order and in rational arithmetic: the products of a sum, collected."""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from mathequal.budget import Unevaluable
from mathequal.nodes import (
    IMAGINARY,
    Constant,
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
from mathequal.rational import BITS, fitted
from mathequal.trees import contains, integer_node, is_number, parts_of

Monomial = frozenset[tuple[Any, int]]
"""Factors and their powers; a factor is a `Formula`, for a sum, or else a tuple."""
Formula = frozenset[tuple[Monomial, Fraction]]


def formula_of(node: Any) -> Formula:
    """What expressions share that differ in order, in factors and terms without effect, and in rational arithmetic:
    the products of a sum with their coefficients. Like terms are collected, and nothing is multiplied out. Raises
    Unevaluable for a coefficient that is too large."""
    match node:
        case Number(value):
            return _sum([(frozenset(), value)])
        case Percent(inner):
            return _product([(inner, 1), (integer_node(100), -1)])
        case Negative(inner):
            return negative(formula_of(inner))
        case Sum(parts):
            found = [*map(formula_of, parts)]
            products = [product for formula in found for product, _ in formula]
            brackets = {factor for product in products if len(product) == 1 for factor, power in product if power == 1}
            terms = list[tuple[Monomial, Fraction]]()
            for formula in found:  # 2(a + b) − (a + b): a sum that another part multiplies stays one
                one, other = formula, negative(formula)
                sign = 0 if len(formula) == 1 else 1 if one in brackets else -(other in brackets)
                terms += [(frozenset([(one if sign > 0 else other, 1)]), Fraction(sign))] if sign else formula
            return _opened(_sum(terms))
        case Product(factors):
            return _product([(factor, 1) for factor in factors])
        case Quotient(top, bottom):
            return _product([(top, 1), (bottom, -1)])
        case Power(base, Number(power, "int")) if abs(power) < 1000:
            return _product([(base, int(power))])
        case Power(Constant("e"), Function("ln", [inner])):
            return formula_of(inner)
    parts = [formula_of(part) if isinstance(part, tuple) and part else part for part in parts_of(node)]
    return _sum([(frozenset([((node.sign if isinstance(node, Node) else "", *parts), 1)]), Fraction(1))])


def _sum(terms: Sequence[tuple[Monomial, Fraction]]) -> Formula:
    total: dict[Monomial, Fraction] = {}
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
        case Sum(parts):
            terms = [term for part in parts for term in (part.terms if isinstance(part, Sum) else (part,))]
            unfinished = len(formula_of(node)) < sum(not is_number(term, 0) for term in terms)
        case Product(factors):
            complex_ones = sum(contains(x, IMAGINARY) for x in factors)
            letters = [x.base if isinstance(x, Power) and isinstance(x.exponent, Number) else x for x in factors]
            several = len(letters) > len({*letters}) and any(
                letters.count(x) > 1 for x in letters if isinstance(x, Symbol)
            )
            unfinished = (
                complex_ones > 1
                or sum(isinstance(x, Number) and x.form in ("int", "dec") for x in factors) > 1
                or several
            )
        case Power(base, Number(power, "int")):
            unfinished = contains(base, IMAGINARY) and power != 1
        case _:
            unfinished = False
    parts = node.parts if isinstance(node, (Sum, Negative, Product)) else ()
    return unfinished or any(map(is_unfinished, (node.top,) if isinstance(node, Quotient) else parts))
