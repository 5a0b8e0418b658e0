"""Equality of sets of real numbers: of the places where they begin and end."""

import operator
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mathequal.answers import Answer
from mathequal.budget import Unevaluable
from mathequal.comparison import Comparison, is_result
from mathequal.nodes import Node
from mathequal.numeric import digits, mp, numeric
from mathequal.real_sets import sign_of_infinity, to_intervals
from mathequal.trees import canonical, symbols

_SET_RULES: dict[Any, Callable[[int, int], int]] = {"cap": operator.and_, ",": operator.and_, "minus": operator.gt}


def sets_of_reals(c: Comparison, gold: Answer, answer: Answer) -> bool | None:
    """The same set, with ends that are results."""
    left, right = to_intervals(gold), to_intervals(answer)
    if left is None or right is None:
        return False
    return _same_pieces(c, left, right) and _are_results(left, right)


def _are_results(gold: Sequence[Any], answer: Sequence[Any]) -> bool:
    """Whether the ends of an answer's intervals are results, as the gold answer's are: x > 3, not x > 6/2."""
    known = [*_ends(gold)]
    return all(any(is_result(x, end) for x in known) for end in _ends(answer) if end not in known and not symbols(end))


def _ends(pieces: Sequence[Any]) -> Iterator[Node]:
    """The finite ends of intervals and of their unions, intersections and differences."""
    for piece in pieces:
        if piece[0] in _SET_RULES:
            yield from (end for part in piece[1:] for end in _ends(part))
        else:
            yield from (end for end in (piece[0], piece[2]) if not sign_of_infinity(end))


def _same_pieces(c: Comparison, gold: Sequence[Any], answer: Sequence[Any]) -> bool | None:
    with digits(40):
        try:
            left, right = _cuts(c, gold), _cuts(c, answer)
        except Unevaluable:
            return False
    if left is not None or right is not None:
        return left == right
    ends = [sorted(canonical(("", *piece)) for piece in side) for side in (gold, answer)]
    return ends[0] == ends[1] or None  # they hold symbols


def _number(c: Comparison, node: Node) -> Any:
    """A real number, an infinity, or None; of numbers that agree to 25 digits, the first."""
    if sign := sign_of_infinity(node):
        return mp.inf * sign
    value = None if symbols(node) else numeric(node, c.budget)
    if not isinstance(value, mp.mpf):
        return None
    c.ends.append(value)
    return next(end for end in c.ends if is_close(end, value))


def _cuts(c: Comparison, intervals: Sequence[Any]) -> list[Any] | None:
    """Where a union of intervals begins and ends, in turn: a number, and whether the cut is after it; None if an
    end has no value. Raises Unevaluable for an empty interval."""
    union: list[Any] = []
    for piece in intervals:
        if rule := _SET_RULES.get(piece[0]):
            left, right = _cuts(c, piece[1]), _cuts(c, piece[2])
            if left is None or right is None:
                return None
            cuts = _merged(left, right, rule) or (_merged(left, right, operator.or_) if piece[0] == "," else [])
        else:
            low, high = _number(c, piece[0]), _number(c, piece[2])
            if low is None or high is None:
                return None
            cuts = [(low, not piece[1]), (high, piece[3])]
            if cuts[0] >= cuts[1]:
                raise Unevaluable("empty interval")
        union = _merged(union, cuts, operator.or_)
    return union


def _merged(left: Sequence[Any], right: Sequence[Any], rule: Callable[[int, int], int]) -> list[Any]:
    """The cuts of the set of numbers that are in two sets by a rule."""
    found = []
    for cut in sorted({*left, *right}):
        inside = rule(bisect_right(left, cut) % 2, bisect_right(right, cut) % 2)
        if inside != len(found) % 2:
            found.append(cut)
    return found


def is_close(x: Any, y: Any) -> bool:
    """Whether two numbers agree to 25 digits."""
    return x == y or (mp.isfinite(x) and mp.isfinite(y) and abs(x - y) <= mp.mpf(10) ** -25 * max(1, abs(x)))
