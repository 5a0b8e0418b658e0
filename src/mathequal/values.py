"""Values of expressions, with bounded work: exact rationals, and complex numbers of many digits."""

import math
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fractions import Fraction
from functools import lru_cache, reduce
from hashlib import blake2b
from typing import Any

import mpmath

from mathequal.grammar import PI, Budget, Node, Unevaluable, integer_node, replaced
from mathequal.text import word_list

mp: Any = mpmath.MPContext()
"""The judge's own precision: nobody else sets it."""
_LOCK = threading.Lock()  # the library's constants and `mp` are shared by all threads
os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)
alone = _LOCK  # held by each comparison

_BITS = 60_000  # of an exact number
_MAGNITUDE = 4000  # decimal digits before the point
_TERMS = 300  # of a sum or product
_TABLE: dict[str, Callable[[Any], Any]] = {
    **{name: getattr(mp, name) for name in word_list("sin cos tan cot sec csc sinh cosh tanh coth")},
    **{f"arc{name}": getattr(mp, f"a{name}") for name in word_list("sin cos tan sec csc")},
    "arccot": lambda x: mp.pi / 2 - mp.atan(x), "arsinh": mp.asinh, "sgn": mp.sign, "Re": mp.re, "Im": mp.im,
    "arg": mp.arg, "abs": abs, "sqrt": mp.sqrt, "ln": mp.log,
}  # fmt: skip
_OF_MATRICES = re.compile(r"'\^\W+(?:s\W+[A-SU-Z]|\*\W+s\W+[A-Z]'.*)\W+(?:s\W+T'|n\W+Fraction\(-1, 1\))")
_DISCRETE = {"floor", "ceil", "!", "binom", "gcd", "lcm", "det", "mod", "sum", "prod"}


class Undefined(Unevaluable):
    """The expression has no value at this point."""


@contextmanager
def digits(count: int) -> Iterator[None]:
    """Compute with this many decimal digits."""
    before, mp.dps = mp.dps, count
    try:
        yield
    finally:
        mp.dps = before


def symbols(node: Any) -> set[str]:
    """Names of the free symbols and functions."""
    if not isinstance(node, tuple) or not node:
        return set()
    if node[0] == "s":
        return {*node[1:]}
    free: set[str] = set().union(*map(symbols, node))
    if node[0] == "call":
        free.add(node[1].rstrip("'") + "()")
    return free - {index_of(node)} if node[0] == "big" else free


def index_of(node: Node) -> str | None:
    r"""The variable that \sum_{k=1} binds."""
    sub = node[2]
    return sub[1][0][1] if sub and sub[0] == "rel" and sub[1][0] and sub[1][0][0] == "s" else None


def operations(node: Any) -> set[str]:
    """Operators beyond arithmetic, roots, powers and absolute values."""
    if not isinstance(node, tuple):
        return set()
    own = {"f": {*node[1:2]} - {"sqrt", "root", "abs"}, "!": {"!"}, "!!": {"!"}, "big": {*node[1:2]}, "call": {"call"}}
    here = own.get(node[0], set()) if node and isinstance(node[0], str) else set()
    return here.union(*map(operations, node))


class Exact:
    """The Fraction that a rational expression is at a point, an arbitrary value of each symbol; a constant expression
    needs no point. Calls raise Unevaluable for other expressions and large numbers."""

    def __init__(self, budget: Budget, point: int | None = None) -> None:
        self.budget, self.point = budget, point

    def __call__(self, node: Node) -> Any:
        self.budget.spend()
        match node[0]:
            case "n":
                return self.number(node[1])
            case "+":
                return self.fit(sum(map(self, node[1:])))
            case "*":
                return reduce(lambda value, factor: self.fit(value * self(factor)), node[2:], self(node[1]))
            case "-":
                return -self(node[1])
            case "/":
                return self.quotient(self(node[1]), self(node[2]))
            case "^":
                return self.power(node[1], node[2])
            case "%":
                return self.quotient(self(node[1]), self.number(Fraction(100)))
        return self.fit(self.special(node))

    def number(self, value: Fraction) -> Any:
        return value

    def fit(self, value: Any) -> Any:
        if value.numerator.bit_length() + value.denominator.bit_length() > _BITS:
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
        if abs(power) * max(value.numerator.bit_length(), value.denominator.bit_length()) > _BITS:
            raise Unevaluable("large")
        return value ** int(power)

    def special(self, node: Node) -> Any:
        match node:
            case ("s", name) if self.point is not None:
                return Fraction(1 + _seed(name, f"r{self.point}") % 2**24, 97)
            case ("!", argument):
                return Fraction(math.factorial(self.whole(argument)))
            case ("f", "binom", total, chosen):
                return Fraction(math.comb(self.whole(total), self.whole(chosen)))
        raise Unevaluable(node[0])

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
        if node[0] == "s":
            return _seed(node[1], self.prime)
        raise Unevaluable(node[0])


_PRIMES = (2**127 - 1, 2**107 - 1)
_fit = Exact(Budget(0)).fit


def exact(node: Node, budget: Budget | None = None) -> Fraction | None:
    """The Fraction that a constant expression is, or None."""
    try:
        return Exact(budget or Budget(400))(node)
    except Unevaluable:
        return None


@lru_cache(maxsize=4096)
def _seed(name: str, point: object) -> int:
    return int.from_bytes(blake2b(f"{name}|{point}".encode(), digest_size=16).digest(), "big")


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
            raise Undefined(node[0]) from None
        size = abs(value)
        if not mp.isfinite(size):
            raise Undefined("not finite")
        if size > self.big:
            if size > mp.mpf(10) ** _MAGNITUDE:
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
        if abs(growth) > 2.3 * _MAGNITUDE:
            raise Unevaluable("large")
        whole = not isinstance(power, mp.mpc) and power == int(power)
        return value ** int(power) if whole else mp.exp(growth)

    def special(self, node: Node) -> Any:
        match node:
            case ("s", name):
                return self.bound[name] if name in self.bound else self.symbol(name)
            case ("c", "pi" | "e" as name):
                return +getattr(mp, name)
            case ("c", "i"):
                return mp.mpc(0, 1)
            case ("deg", angle):
                return self(angle) * mp.pi / 180
            case ("!" | "!!" as name, argument):
                value = self.real_value(argument, 0, 1500)
                return mp.factorial(value) if name == "!" else mp.fac2(value)
            case ("f", "log", argument):
                return mp.log(self(argument)) / (mp.log(self.base) if self.base else 1)
            case ("f", "logb", argument, base):
                return self.quotient(mp.log(self(argument)), mp.log(self(base)))
            case ("f", "root", argument, index):
                value, degree = self(argument), int(self.real_value(index, 1, 10_000, whole=True))
                odd = isinstance(value, mp.mpf) and value < 0 and degree % 2
                return -mp.root(-value, degree) if odd else mp.root(value, degree)
            case ("f", "floor" | "ceil" as name, argument):
                value = self.real_value(argument)
                near = mp.nint(value)
                return near if abs(value - near) < mp.mpf(10) ** (-mp.dps // 2) else getattr(mp, name)(value)
            case ("f", "binom", total, chosen):
                return mp.binomial(self.real_value(total, -2000, 2000), self.real_value(chosen, -2000, 2000))
            case ("f", "gcd" | "lcm" as name, *arguments):
                return mp.mpf(getattr(math, name)(*(int(self.real_value(x, whole=True)) for x in arguments)))
            case ("f", "max" | "min" as name, *arguments):
                return (max if name == "max" else min)(map(self.real_value, arguments))
            case ("f", name, argument) if name in _TABLE:
                value = self(argument)
                if abs(value) > mp.mpf(10) ** 12 and name not in ("arctan", "arccot", "abs", "sqrt", "ln"):
                    raise Unevaluable("argument")
                result = _TABLE[name](value)
                near_zero = name in ("sin", "cos") and abs(result) < abs(value) * mp.mpf(10) ** (8 - mp.dps)
                return mp.zero if near_zero else result  # cos(π/2)
            case ("call", name, *arguments):
                key = ",".join(mp.nstr(self(argument), 18) for argument in arguments)
                return mp.mpf(_seed(f"{name}({key}", self.at) % 1_000_003) / 1_000_003 + 1
            case ("big", "sum" | "prod" as kind, _, _, _):
                return self.series(node, kind)
        raise Unevaluable(node[0])

    def symbol(self, name: str) -> Any:
        seed = _seed(name, self.at)
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

    def series(self, node: Node, kind: str) -> Any:
        _, _, sub, sup, body = node
        name = index_of(node)
        if name is None or name in self.bound or sup is None or sub[2] != ("=",):
            raise Unevaluable(kind)
        low, high = (int(self.real_value(end, whole=True)) for end in (sub[1][1], sup))
        if high - low > _TERMS:
            raise Unevaluable("range")
        value = mp.mpf(kind == "prod")
        for self.bound[name] in map(mp.mpf, range(low, high + 1)):
            value = value + self(body) if kind == "sum" else value * self(body)
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
        case ("n", value, *_):
            value = float(value)
        case ("s", name):
            value = 0.2 + 3 * (_seed(name, "float") % 1_000_003) / 1_000_003
        case ("c", "pi" | "e" as name):
            value = math.pi if name == "pi" else math.e
        case ("+", *parts):
            value = sum(_approximate(part, magnitudes) for part in parts)
        case ("*", *parts):
            value = math.prod(_approximate(part, magnitudes) for part in parts)
        case ("-", inner):
            value = -_approximate(inner, magnitudes)
        case ("/", top, bottom):
            value = _approximate(top, magnitudes) / _approximate(bottom, magnitudes)
        case ("%", inner):
            value = _approximate(inner, magnitudes) / 100
        case ("deg", inner):
            value = math.radians(_approximate(inner, magnitudes))
        case ("^", base, exponent):
            value = math.pow(_approximate(base, magnitudes), _approximate(exponent, magnitudes))
        case ("f", name, argument) if name in _OF_FLOATS:
            value = _OF_FLOATS[name](_approximate(argument, magnitudes))
        case ("f", "logb", argument, base):
            value = math.log(_approximate(argument, magnitudes)) / math.log(_approximate(base, magnitudes))
        case ("f", "root", argument, index):
            value = math.pow(_approximate(argument, magnitudes), 1 / _approximate(index, magnitudes))
        case _:
            raise ValueError(node[0])
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


def _value(node: Node, budget: Budget, count: int, at: tuple[Any, ...]) -> tuple[Any, Any, bool]:
    """The value at a point (None: undefined; text: unevaluable), its magnitudes' digits, and whether all was real."""
    key = (node, count, at)
    if key not in budget.known:
        with digits(count):
            numeric = Numeric(budget, *at)
            try:
                value = numeric(node)
            except Unevaluable as error:
                value = None if isinstance(error, Undefined) else str(error)
            budget.known[key] = value, (mp.log10(numeric.big), -mp.log10(numeric.small)), numeric.real
    return budget.known[key]  # type: ignore[return-value]


def _agree(left: Node, right: Node, budget: Budget, count: int, *at: Any) -> bool | None:
    """Whether two expressions have one value at a point, with as many digits as the largest intermediate value costs;
    None if either has none. at: point, discrete and base."""
    for _ in range(3):
        (u, first, real), (v, second, also) = (_value(node, budget, count, at) for node in (left, right))
        if v is None and not isinstance(u, str | None) and not at[0]:
            return False  # undefined at the first point, unlike the gold answer
        if isinstance(u, str | None) or isinstance(v, str | None) or (at[0] > 2 and not at[1] and not (real and also)):
            lost_sign = real != also and ("'abs'" in repr(left)) != ("'abs'" in repr(right))  # ln x for ln |x|
            return False if lost_sign else None
        with digits(count):
            lost, small = (int(max(pair)) + 1 for pair in zip(first, second, strict=True))
            need = 25 + lost + small
            if need <= count:
                return bool(abs(u - v) <= mp.mpf(10) ** (lost - count + 8))
        if need > _MAGNITUDE:
            return None
        count = need + 15
    return None


def _largest(node: Any) -> Fraction:
    """The largest constant of a tree, between 1 and 10,000."""
    if not isinstance(node, tuple):
        return Fraction(1)
    if node and node[0] == "n":
        return min(max(abs(node[1]), Fraction(1)), Fraction(10_000))
    return max(map(_largest, node), default=Fraction(1))


def _same_values(left: Node, right: Node, budget: Budget, base: int | None) -> bool | None:
    """Whether the values agree at several points and precisions; None if the values decide nothing. Expressions that
    count are compared at whole numbers, with floors of other letters than i to n also in between."""
    counts, free = (operations(left) | operations(right)) & _DISCRETE, symbols(left) | symbols(right)
    scale = max(map(_largest, (left, right)))
    between = free and counts and counts <= {"floor", "ceil"} and not free <= set("ijklmnN")
    for discrete in [True, False] if between else [bool(counts)]:
        agreed = 0
        for point in range(1 if not free else 30 if discrete else 8):
            same = _agree(left, right, budget, 35, point, discrete, base, scale)
            if same is False:
                return False
            agreed += same is True
        if agreed < (8 if discrete and free else 1):
            return None
    return _agree(left, right, budget, 110, 3 * bool(free), bool(counts), base) is not False


def _on_the_plane(*sides: Node) -> Sequence[Node]:
    """Expressions of z or w with complex values of them, if their magnitude, argument or parts are taken."""
    plane = symbols(sides) <= {"z", "w"} and re.search("'f', '(?:Re|Im|arg|abs)'", repr(sides))
    moved = {("s", name): ("+", ("s", name), ("*", ("c", "i"), ("f", "sqrt", ("s", name)))) for name in "zw"}
    return replaced(sides, moved) if plane else sides


def _divides(node: Any) -> bool:
    """Whether an expression divides by a letter, which is then no matrix."""
    if not isinstance(node, tuple) or not node:
        return False
    return (node[0] == "/" and symbols(node[2]) != set()) or any(map(_divides, node))


def _of_inverses(node: Any) -> Any:
    """An expression of matrices with inverses in place of divisions, and numbers before the letters of a product."""
    if not isinstance(node, tuple) or not node or not symbols(node):
        return node
    parts = [_of_inverses(part) for part in node[1:]]
    if node[0] == "/" and symbols(node[2]):
        parts[1] = ("^", parts[1], ("n", Fraction(-1), "int"))
    elif node[0] != "*":
        return (node[0], *parts)
    factors = [factor for part in parts for factor in (part[1:] if part[0] == "*" else (part,))]
    numbers = [factor for factor in factors if not symbols(factor) and factor[:2] != ("n", 1)]
    whole = [*numbers, *(factor for factor in factors if symbols(factor))]
    return ("*", *whole) if len(whole) > 1 else whole[0]


def identical(left: Node, right: Node, budget: Budget) -> bool | None:
    """Whether two expressions are the same function of the same symbols; None if that cannot be decided."""
    if left == right:
        return True
    free = symbols(left)
    if free != symbols(right):
        return False
    if (
        free <= {*"ABCDMPQXT"}
        and len(free) > 1
        and _OF_MATRICES.search(repr((left, right)))
        and budget.matrices
        and not _divides(left)
    ):
        return canonical(_of_inverses(left), "+") == canonical(_of_inverses(right), "+")
    left, right = _on_the_plane(left, right)
    try:
        return all(Exact(budget, point)(left) == Exact(budget, point)(right) for point in range(3 if free else 1))
    except Unevaluable as error:
        if free and str(error) == "large":  # (a − b)^6000
            with suppress(Unevaluable):
                return all(Residue(budget, p)(left) == Residue(budget, p)(right) for p in _PRIMES)
    with_log = "log" in operations(left) | operations(right)
    decided = [_same_values(left, right, budget, base) for base in ((10, None) if with_log else (10,))]
    if True in decided or False in decided:
        return True in decided
    return canonical(left) == canonical(right) or None


def canonical(node: Any, free: str = "+*") -> str:
    """A text in which sums and products (free: the operators) are sorted, to compare what cannot be evaluated."""
    if not isinstance(node, tuple) or not node:
        return repr(node)
    if node[0] == "n":
        return str(node[1])
    parts = [canonical(part, free) for part in node[1:]]
    return f"{node[0]}({','.join(sorted(parts) if node[0] in [*free] else parts)})"


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
        total[product] = _fit(total.get(product, Fraction(0)) + value)
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
        if abs(power) * (value.numerator.bit_length() + value.denominator.bit_length()) > _BITS:
            raise Unevaluable("large")
        coefficient = _fit(coefficient * value**power)
        for name, exponent in product:
            powers[name] += exponent * power
    return _opened(_sum([(frozenset((name, power) for name, power in powers.items() if power), coefficient)]))


def numeral(node: Any) -> str:
    """int, dec, frac, mixed, rep, sci or ten (a power) for a number written as a result; "" if yet to be computed."""
    if not isinstance(node, tuple):
        return ""
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


def leaves(node: Any) -> int:
    """Numbers, symbols and constants of a tree."""
    if not isinstance(node, tuple) or not node:
        return 0
    return 1 if node[0] in ("n", "s", "c") else sum(map(leaves, node))


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


def proportional(left: Node, right: Node, budget: Budget, *, positive: bool) -> bool | None:
    """Whether left = c · right for a constant c, positive if asked: left · right(p) = left(p) · right at a point p."""
    free = symbols(left)
    if free != symbols(right):
        return False
    for point in range(3):  # one at which both have a value other than 0
        at = {("s", name): ("n", Fraction(101 + _seed(name, point) % 307, 103), "frac") for name in free}
        first, second = replaced(left, at), replaced(right, at)
        u, v = numeric(first, budget), numeric(second, budget)
        if u and v and min(abs(u), abs(v)) > mp.mpf(10) ** -12:
            same = identical(("*", left, second), ("*", first, right), budget)
            return same and (not positive or bool((u / v).real > 0))
    return canonical(left) == canonical(right) or None


def contains_pi(node: Node) -> bool:
    return repr(PI) in repr(node)
