"""Complex values of expressions with many digits, at points that are arbitrary and always the same; bounded work."""

import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import mpmath

from mathequal.budget import Budget, Unevaluable
from mathequal.nodes import (
    Big,
    Call,
    Constant,
    Degrees,
    DoubleFactorial,
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
from mathequal.rational import Exact, Undefined, seed_of
from mathequal.text import word_list
from mathequal.trees import index_of

mp: Any = mpmath.MPContext()
"""The judge's own precision: nobody else sets it."""
_LOCK = threading.Lock()  # the library's constants and `mp` are shared by all threads
os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)
alone = _LOCK  # held by each comparison
MAGNITUDE = 4000  # decimal digits before the point
_TERMS = 300  # of a sum or product
_TABLE: dict[str, Callable[[Any], Any]] = {
    **{name: getattr(mp, name) for name in word_list("sin cos tan cot sec csc sinh cosh tanh coth")},
    **{f"arc{name}": getattr(mp, f"a{name}") for name in word_list("sin cos tan sec csc")},
    "arccot": lambda x: mp.pi / 2 - mp.atan(x), "arsinh": mp.asinh, "sgn": mp.sign, "Re": mp.re, "Im": mp.im,
    "arg": mp.arg, "abs": abs, "sqrt": mp.sqrt, "ln": mp.log,
}  # fmt: skip


@contextmanager
def digits(count: int) -> Iterator[None]:
    """Compute with this many decimal digits."""
    before, mp.dps = mp.dps, count
    try:
        yield
    finally:
        mp.dps = before


class Numeric(Exact):
    """The complex value at a point: positive symbols below 3, of either sign from there, beyond all constants (up to
    `scale`) from 6; whole numbers if the expression counts. big, small: the largest and smallest magnitude on the way;
    real: whether all values were."""

    def __init__(
        self, budget: Budget, at: int = 0, discrete: bool = False, base: int | None = 10, scale: Any = 1
    ) -> None:
        super().__init__(budget)
        self.at, self.discrete, self.base, self.scale = at, discrete, base, scale
        self.big, self.small, self.real, self.bound = mp.one, mp.one, True, dict[str, Any]()

    def __call__(self, node: Node) -> Any:
        self.budget.spend(mp.dps**2 // 10_000)
        try:
            value = mp.convert(super().__call__(node))
        except (ZeroDivisionError, ValueError, mp.NoConvergence):
            raise Undefined(node.sign) from None
        size = abs(value)
        if not mp.isfinite(size):
            raise Undefined("not finite")
        if size > self.big:
            if size > mp.mpf(10) ** MAGNITUDE:
                raise Unevaluable("large")
            self.big = size
        elif 0 < size < self.small:
            self.small = size
        if isinstance(value, mp.mpc):
            if abs(value.imag) <= size * mp.mpf(10) ** (8 - mp.dps):
                return value.real
            self.real = False
        return value

    def number(self, value: Fraction) -> Any:
        return mp.mpf(value.numerator) / value.denominator

    def fit(self, value: Any) -> Any:
        return value

    def power(self, base: Node, exponent: Node) -> Any:
        value, power = self(base), self(exponent)
        if value == 0:
            if isinstance(power, mp.mpc) or power <= 0:
                raise Undefined("0^0")
            return mp.zero
        growth = power * mp.log(value)
        if abs(growth) > 2.3 * MAGNITUDE:
            raise Unevaluable("large")
        whole = not isinstance(power, mp.mpc) and power == int(power)
        return value ** int(power) if whole else mp.exp(growth)

    def special(self, node: Node) -> Any:
        match node:
            case Symbol(name):
                return self.bound[name] if name in self.bound else self.symbol(name)
            case Constant("pi" | "e" as name):
                return +getattr(mp, name)
            case Constant("i"):
                return mp.mpc(0, 1)
            case Degrees(angle):
                return self(angle) * mp.pi / 180
            case Factorial(argument):
                return mp.factorial(self.real_value(argument, 0, 1500))
            case DoubleFactorial(argument):
                return mp.fac2(self.real_value(argument, 0, 1500))
            case Function("log", [argument]):
                return mp.log(self(argument)) / (mp.log(self.base) if self.base else 1)
            case Function("logb", [argument, base]):
                return self.quotient(mp.log(self(argument)), mp.log(self(base)))
            case Function("root", [argument, index]):
                value, degree = self(argument), int(self.real_value(index, 1, 10_000, whole=True))
                odd = isinstance(value, mp.mpf) and value < 0 and degree % 2
                return -mp.root(-value, degree) if odd else mp.root(value, degree)
            case Function("floor" | "ceil" as name, [argument]):
                value = self.real_value(argument)
                near = mp.nint(value)
                return near if abs(value - near) < mp.mpf(10) ** (-mp.dps // 2) else getattr(mp, name)(value)
            case Function("binom", [total, chosen]):
                return mp.binomial(self.real_value(total, -2000, 2000), self.real_value(chosen, -2000, 2000))
            case Function("gcd" | "lcm" as name, arguments):
                return mp.mpf(getattr(math, name)(*(int(self.real_value(x, whole=True)) for x in arguments)))
            case Function("max" | "min" as name, arguments):
                return (max if name == "max" else min)(map(self.real_value, arguments))
            case Function(name, [argument]) if name in _TABLE:
                value = self(argument)
                if abs(value) > mp.mpf(10) ** 12 and name not in ("arctan", "arccot", "abs", "sqrt", "ln"):
                    raise Unevaluable("argument")
                result = _TABLE[name](value)
                near_zero = name in ("sin", "cos") and abs(result) < abs(value) * mp.mpf(10) ** (8 - mp.dps)
                return mp.zero if near_zero else result  # cos(π/2)
            case Call(name, arguments):
                key = ",".join(mp.nstr(self(argument), 18) for argument in arguments)
                return mp.mpf(seed_of(f"{name}({key}", self.at) % 1_000_003) / 1_000_003 + 1
            case Big("sum" | "prod"):
                return self.series(node)
        raise Unevaluable(node.sign)

    def symbol(self, name: str) -> Any:
        seed = seed_of(name, self.at)
        if self.discrete:
            return mp.mpf(1 + self.at if seed % 3 == 0 else 2 + seed % (6 + self.at))
        share = mp.mpf(seed % 1_000_003) / 1_000_003
        if self.at < 3:
            return mp.mpf(1) / 5 + 3 * share if self.at < 2 else mp.mpf(1) / 50 + share
        if self.at >= 6:
            return (share * 4 + 2) * self.number(self.scale) * (-1) ** self.at
        return (share * 4 + mp.mpf(1) / 7) * (-1 if self.at == 3 or seed >> 40 & 1 else 1)

    def real_value(self, node: Node, low: float = -math.inf, high: float = math.inf, *, whole: bool = False) -> Any:
        value = self(node)
        if isinstance(value, mp.mpc) or not low <= value <= high or (whole and value != int(value)):
            raise Unevaluable("argument")
        return value

    def series(self, node: Big) -> Any:
        _, sub, sup, body = node.parts
        name = index_of(node)
        if name is None or name in self.bound or sup is None or sub.operators != ("=",):
            raise Unevaluable(node.kind)
        low, high = (int(self.real_value(end, whole=True)) for end in (sub.sides[1], sup))
        if high - low > _TERMS:
            raise Unevaluable("range")
        value = mp.mpf(node.kind == "prod")
        for self.bound[name] in map(mp.mpf, range(low, high + 1)):
            value = value + self(body) if node.kind == "sum" else value * self(body)
        self.bound.pop(name, None)
        return value


def numeric(node: Node, budget: Budget, count: int = 40) -> Any:
    """The value of a constant expression with `count` digits, or None."""
    try:
        with digits(count):
            return Numeric(budget)(node)
    except Unevaluable:
        return None


def numeric_at(node: Node, budget: Budget, point: int) -> Any:
    """The value of an expression with 30 digits at a point, an arbitrary value of each letter; None if it has none."""
    try:
        with digits(30):
            return mp.mpmathify(Numeric(budget, point)(node))
    except Undefined:
        return None


def approximate(node: Node) -> tuple[float, float] | None:
    """The real value of an expression at an arbitrary point in ordinary precision, and the largest magnitude on the
    way; None for what this cannot compute."""
    magnitudes = [1.0]
    try:
        return _approximate(node, magnitudes), max(magnitudes)
    except (ValueError, ZeroDivisionError, OverflowError, TypeError):
        return None


_OF_FLOATS: dict[str, Callable[[float], float]] = {
    **{name: getattr(math, name) for name in word_list("sin cos tan sinh cosh tanh sqrt")},
    "arctan": math.atan, "arcsin": math.asin, "arccos": math.acos, "abs": abs, "ln": math.log, "log": math.log10,
}  # fmt: skip


def _approximate(node: Node, magnitudes: list[float]) -> float:
    match node:
        case Number(value):
            value = float(value)
        case Symbol(name):
            value = 0.2 + 3 * (seed_of(name, "float") % 1_000_003) / 1_000_003
        case Constant("pi" | "e" as name):
            value = math.pi if name == "pi" else math.e
        case Sum(parts):
            value = sum(_approximate(part, magnitudes) for part in parts)
        case Product(parts):
            value = math.prod(_approximate(part, magnitudes) for part in parts)
        case Negative(inner):
            value = -_approximate(inner, magnitudes)
        case Quotient(top, bottom):
            value = _approximate(top, magnitudes) / _approximate(bottom, magnitudes)
        case Percent(inner):
            value = _approximate(inner, magnitudes) / 100
        case Degrees(inner):
            value = math.radians(_approximate(inner, magnitudes))
        case Power(base, exponent):
            value = math.pow(_approximate(base, magnitudes), _approximate(exponent, magnitudes))
        case Function(name, [argument]) if name in _OF_FLOATS:
            value = _OF_FLOATS[name](_approximate(argument, magnitudes))
        case Function("logb", [argument, base]):
            value = math.log(_approximate(argument, magnitudes)) / math.log(_approximate(base, magnitudes))
        case Function("root", [argument, index]):
            value = math.pow(_approximate(argument, magnitudes), 1 / _approximate(index, magnitudes))
        case _:
            raise ValueError(node.sign)
    magnitudes.append(abs(value))
    return value


def is_undefined(node: Node, budget: Budget) -> bool:
    """Whether a constant expression has no value, because it divides by zero or the like."""
    try:
        with digits(40):
            Numeric(budget)(node)
    except Undefined:
        return True
    except Unevaluable:
        pass
    return False
