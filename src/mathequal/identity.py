"""Whether two expressions are the same function of the same symbols."""

from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any

from mathequal.budget import Budget, Unevaluable
from mathequal.matrices import equal_as_matrices
from mathequal.nodes import Constant, Function, Node, Number, Product, Sum, Symbol
from mathequal.numeric import MAGNITUDE, Numeric, digits, mp, numeric
from mathequal.rational import PRIMES, Exact, Formal, Residue, Undefined, seed_of
from mathequal.trees import canonical, functions, operations, replaced, symbols

_DISCRETE = {"floor", "ceil", "!", "binom", "gcd", "lcm", "det", "mod", "sum", "prod"}


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
            lost_sign = real != also and ("abs" in functions(left)) != ("abs" in functions(right))  # ln x for ln |x|
            return False if lost_sign else None
        with digits(count):
            lost, small = (int(max(pair)) + 1 for pair in zip(first, second, strict=True))
            need = 25 + lost + small
            if need <= count:
                return bool(abs(u - v) <= mp.mpf(10) ** (lost - count + 8))
        if need > MAGNITUDE:
            return None
        count = need + 15
    return None


def _largest(node: Any) -> Fraction:
    """The largest constant of a tree, between 1 and 10,000."""
    if not isinstance(node, tuple):
        return Fraction(1)
    if node and isinstance(node, Number):
        return min(max(abs(node.value), Fraction(1)), Fraction(10_000))
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
    plane = symbols(sides) <= {"z", "w"} and functions(sides) & {"Re", "Im", "arg", "abs"}
    moved = {Symbol(name): Sum(Symbol(name), Product(Constant("i"), Function("sqrt", Symbol(name)))) for name in "zw"}
    return replaced(sides, moved) if plane else sides


def _formally_equal(left: Node, right: Node, budget: Budget) -> bool:
    """Whether two expressions are equal if their functions and roots are letters: x(x+2)e^x and (x²+2x)e^x."""
    with suppress(Unevaluable):
        points = (Formal(budget, point) for point in range(3))
        return all(formal(left) == formal(right) for formal in points)
    return False


def identical(left: Node, right: Node, budget: Budget) -> bool | None:
    """Whether two expressions are the same function of the same symbols; None if that cannot be decided."""
    if left == right:
        return True
    free = symbols(left)
    if free != symbols(right):
        return False
    if budget.matrices and len(free) > 1:
        same = equal_as_matrices(left, right, budget.matrices, budget)
        if same is not None:
            return same
    left, right = _on_the_plane(left, right)
    try:
        return all(Exact(budget, point)(left) == Exact(budget, point)(right) for point in range(3 if free else 1))
    except Unevaluable as error:
        if free and str(error) == "large":  # (a − b)^6000
            with suppress(Unevaluable):
                return all(Residue(budget, p)(left) == Residue(budget, p)(right) for p in PRIMES)
    if _formally_equal(left, right, budget):
        return True
    with_log = "log" in operations(left) | operations(right)
    decided = [_same_values(left, right, budget, base) for base in ((10, None) if with_log else (10,))]
    if True in decided or False in decided:
        return True in decided
    return canonical(left) == canonical(right) or None


def proportional(left: Node, right: Node, budget: Budget, *, positive: bool) -> bool | None:
    """Whether left = c · right for a constant c, positive if asked: left · right(p) = left(p) · right at a point p."""
    free = symbols(left)
    if free != symbols(right):
        return False
    for point in range(3):  # one at which both have a value other than 0
        at = {Symbol(name): Number(Fraction(101 + seed_of(name, point) % 307, 103), "frac") for name in free}
        first, second = replaced(left, at), replaced(right, at)
        u, v = numeric(first, budget), numeric(second, budget)
        if u and v and min(abs(u), abs(v)) > mp.mpf(10) ** -12:
            same = identical(Product(left, second), Product(first, right), budget)
            return same and (not positive or bool((u / v).real > 0))
    return canonical(left) == canonical(right) or None
