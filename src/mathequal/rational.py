"""Exact values of rational expressions, with bounded work."""

import math
from fractions import Fraction
from functools import lru_cache, reduce
from hashlib import blake2b
from typing import Any

from mathequal.budget import Budget, Unevaluable
from mathequal.nodes import (
    Constant,
    Factorial,
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
from mathequal.trees import canonical, rational_node, symbols

BITS = 60_000  # of an exact number


class Undefined(Unevaluable):
    """The expression has no value at this point."""


class Exact:
    """The Fraction that a rational expression is at a point, an arbitrary value of each symbol; a constant expression
    needs no point. Calls raise Unevaluable for other expressions and large numbers."""

    def __init__(self, budget: Budget, point: int | None = None) -> None:
        self.budget, self.point = budget, point

    def __call__(self, node: Node) -> Any:
        self.budget.spend()
        if isinstance(node, Number):
            return self.number(node.value)
        if isinstance(node, Sum):
            return self.fit(sum(map(self, node.terms)))
        if isinstance(node, Product):
            first, *others = node.factors
            return reduce(lambda value, factor: self.fit(value * self(factor)), others, self(first))
        if isinstance(node, Negative):
            return -self(node.inner)
        if isinstance(node, Quotient):
            return self.quotient(self(node.top), self(node.bottom))
        if isinstance(node, Power):
            return self.power(node.base, node.exponent)
        if isinstance(node, Percent):
            return self.quotient(self(node.inner), self.number(Fraction(100)))
        return self.fit(self.special(node))

    def number(self, value: Fraction) -> Any:
        return value

    def fit(self, value: Any) -> Any:
        if value.numerator.bit_length() + value.denominator.bit_length() > BITS:
            raise Unevaluable("large")
        return value

    def quotient(self, top: Any, bottom: Any) -> Any:
        if bottom == 0:
            raise Undefined("division by zero")
        return self.fit(top / bottom)

    def power(self, base: Node, exponent: Node) -> Any:
        value, power = self(base), self(exponent)
        if power.denominator != 1 or (value == 0 and power <= 0):
            raise Unevaluable("power")
        if abs(value) in (0, 1):
            return value ** (int(power) % 2 or 2)
        if abs(power) * max(value.numerator.bit_length(), value.denominator.bit_length()) > BITS:
            raise Unevaluable("large")
        return value ** int(power)

    def special(self, node: Node) -> Any:
        match node:
            case Symbol(name) if self.point is not None:
                return Fraction(1 + seed_of(name, f"r{self.point}") % 2**24, 97)
            case Factorial(argument):
                return Fraction(math.factorial(self.whole(argument)))
            case Function("binom", [total, chosen]):
                return Fraction(math.comb(self.whole(total), self.whole(chosen)))
        raise Unevaluable(node.sign)

    def whole(self, node: Node) -> int:
        value = self(node)
        if value.denominator != 1 or not 0 <= value <= 3000:
            raise Unevaluable("not a small whole number")
        return int(value)


class Residue(Exact):
    """What a rational function of any degree is at a point, modulo a prime."""

    def __init__(self, budget: Budget, prime: int) -> None:
        super().__init__(budget, 0)
        self.prime = prime

    def number(self, value: Fraction) -> Any:
        return self.quotient(value.numerator, value.denominator)

    def fit(self, value: Any) -> Any:
        return value % self.prime

    def quotient(self, top: Any, bottom: Any) -> Any:
        if bottom % self.prime == 0:
            raise Undefined("division by zero")
        return top * pow(bottom, -1, self.prime) % self.prime

    def power(self, base: Node, exponent: Node) -> Any:
        value, power = self(base), exact(exponent)
        if power is None or power.denominator != 1 or (value % self.prime == 0 and power <= 0):
            raise Unevaluable("power")
        return pow(value, int(power), self.prime)

    def special(self, node: Node) -> Any:
        if isinstance(node, Symbol):
            return seed_of(node.name, self.prime)
        raise Unevaluable(node.sign)


class Formal(Exact):
    """The Fraction that an expression is at a point if its functions, roots, powers with symbols and constants such as
    π are letters of their own. Expressions that are equal so are equal; others may be equal too."""

    def __init__(self, budget: Budget, point: int) -> None:
        super().__init__(budget, point)
        self.letters = dict[Any, Fraction]()

    def power(self, base: Node, exponent: Node) -> Any:
        if not symbols(exponent) and isinstance(power := self(exponent), Fraction) and power.denominator == 1:
            return super().power(base, exponent)
        return self.letter(Power(base, exponent))

    def special(self, node: Node) -> Any:
        if isinstance(node, (Constant, Function)) and node.name != "binom":
            return self.letter(node)
        return super().special(node)

    def letter(self, node: Node) -> Fraction:
        """The value of a part that is a letter of its own: one for all that are alike."""
        key = canonical(node)
        if key not in self.letters:
            seed = seed_of(f"part {len(self.letters)}", self.point)
            self.letters[key] = Fraction(1 + seed % 2**24, 89)
        return self.letters[key]


PRIMES = (2**127 - 1, 2**107 - 1)
fitted = Exact(Budget(0)).fit


def exact(node: Node, budget: Budget | None = None) -> Fraction | None:
    """The Fraction that a constant expression is, or None."""
    try:
        return Exact(budget or Budget(400))(node)
    except Unevaluable:
        return None


@lru_cache(maxsize=4096)
def seed_of(name: str, point: object) -> int:
    return int.from_bytes(blake2b(f"{name}|{point}".encode(), digest_size=16).digest(), "big")


def worked_out(node: Node) -> Node:
    """A constant as a number."""
    value = exact(node)
    return node if value is None else rational_node(value)
