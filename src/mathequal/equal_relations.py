"""Equality of equations, inequalities, and families of values over the integers."""

from typing import Any

from mathequal.answers import Answer, Chain, Congruence, Equation, Expression, Family, Inequality, Several
from mathequal.asked import has_modulus
from mathequal.comparison import HEAVY, Comparison, all_of, any_of, same_name
from mathequal.equal_reals import is_close
from mathequal.identity import proportional
from mathequal.nodes import PI, Big, Degrees, Negative, Node, Sum, Symbol
from mathequal.numeric import digits, mp, numeric
from mathequal.rational import exact
from mathequal.trees import canonical, contains, holds, integer_node, operations, replaced, symbols


def sides_of(answer: Answer) -> tuple[Node, ...]:
    """The sides of an equation; none for an answer that is none."""
    return answer.sides if isinstance(answer, (Equation, Chain)) else ()


def equations(c: Comparison, gold: Answer, answer: Answer) -> bool | None:
    """The same curve: one is a multiple of the other."""
    sides = [sides_of(x) for x in (gold, answer)]
    left, right = (Sum(x[0], Negative(x[1])) for x in sides)
    if not all(rule.allows(x, y) for rule in c.rules for x, y in zip(*sides, strict=False)):
        return False
    heavy = (operations(right) - operations(left)) & HEAVY
    return not heavy and proportional(left, right, c.budget, positive=False)


def identities(c: Comparison, gold: Answer, answer: Answer) -> bool | None:
    """(x − 1)(x + 1) = x² − 1 for one of its sides."""
    if not isinstance(gold, Expression) or not isinstance(answer, Equation) or not symbols(gold.value):
        return False
    sides = [side for side in answer.sides if not isinstance(side, Big)] or answer.sides  # ∫ x dx = x²/2 + C
    allowed = any(c.form_allowed(gold.value, side) for side in sides)
    return allowed and all_of(c.identical(gold.value, side) for side in sides)


def inequalities(c: Comparison, gold: Inequality, answer: Inequality) -> bool | None:
    """The same sides in the same order, or a positive multiple."""
    left, right = gold.sides, answer.sides
    if gold.operators != answer.operators or len(left) != len(right):
        return False
    pairs = zip(left, right, strict=True)
    same = all_of(any_of([canonical(x) == canonical(y), c.identical(x, y)]) for x, y in pairs)
    if same or len(left) != 2:
        return same
    first, second = (Sum(sides[0], Negative(sides[1])) for sides in (left, right))
    return proportional(first, second, c.budget, positive=True)


def in_a_chain(c: Comparison, gold: Answer, answer: Answer) -> bool | None:
    """A list in the order that the question asks for, as inequalities: −2 < 0 < 4."""
    if not isinstance(gold, Several) or not isinstance(answer, Inequality) or c.order not in ("up", "down"):
        return False
    values = [*map(Expression, answer.sides)]
    ordered = c.in_order(gold.items, values if c.order == "up" else values[::-1])
    return {*answer.operators} == {"<"} and ordered


def families(c: Comparison, gold: Answer, answer: Answer) -> bool | None:
    """The same values over the integers, from whichever of them they are counted; 9 (mod 13) for the remainder 9."""
    if isinstance(gold, Expression) and isinstance(answer, Congruence) and _is_remainder(c, gold, answer):
        return True
    with digits(40):
        if not same_name(gold.name, answer.name):
            return False
        given = any(isinstance(x, (Family, Congruence)) for x in (gold, answer))
        left, right = _progressions(c, gold, given), _progressions(c, answer, given)
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
            values.append([x for n, x in enumerate(every) if n == 0 or not is_close(x, every[n - 1])])
        return len(values[0]) == len(values[1]) and all(map(is_close, *values))


def _is_remainder(c: Comparison, gold: Expression, answer: Congruence) -> bool:
    """Whether an answer is a remainder with its modulus, and the question asks for this remainder."""
    value, modulus = exact(answer.residue), exact(answer.modulus)
    if value is None or modulus is None or not 0 <= value < modulus:
        return False
    return value == exact(gold.value) and has_modulus(c.question, modulus)


def _progressions(c: Comparison, answer: Answer, given: bool) -> list[tuple[Any, Any]] | None:
    """(offset, period) of each a + b k; None for another kind of answer. given: the other side is a family, so that k,
    n or m is the integer."""
    match answer:
        case Chain([inner]):
            return _progressions(c, inner, given)
        case Several(items):
            parts = [_progressions(c, x, given) for x in items]
            return None if None in parts else [x for part in parts for x in part or ()]
        case Family() | Congruence():
            values, index = answer.values, answer.index
        case Expression(value) if symbols(value) in ({"k"}, {"n"}, {"m"}) and (
            given or contains(value, PI) or holds(value, Degrees)
        ):
            values, [index] = (value,), symbols(value)
        case _:
            return None
    found = []
    for value in values:
        terms = [replaced(value, {Symbol(index): integer_node(k)}) for k in range(4)]
        steps: list[Any] = [None if symbols(term) else numeric(term, c.budget) for term in terms]
        if not all(isinstance(x, mp.mpf) for x in steps):
            return None
        period = steps[1] - steps[0]
        if period == 0 or not all(is_close(steps[k + 1] - steps[k], period) for k in (1, 2)):
            return None
        found.append((steps[0], abs(period)))
    return found
