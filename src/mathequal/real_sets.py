"""Sets of real numbers as pieces (low, closed, high, closed), and what joins them."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from mathequal.answers import MINUS_INFINITY, NO_NAME, Answer, Chain, Expression, Intervals, Members, Row, Several
from mathequal.nodes import INFINITY, Function, Node, Product, Sum, Symbol
from mathequal.rational import exact, worked_out
from mathequal.trees import are_expressions, integer_node, rational_node, replaced, symbols


def sign_of_infinity(node: Any) -> int:
    """1 for ∞, -1 for -∞, else 0."""
    return (node == INFINITY) - (node == MINUS_INFINITY)


def ends_of_distance(left: Node | None, right: Node | None) -> list[Node] | None:
    """The two numbers at which |a x + b| is the other side, a positive number."""
    match left, right:
        case (Function("abs", [inner]), radius) | (radius, Function("abs", [inner])) if (
            radius and len(symbols(inner)) == 1
        ):
            name, reach = Symbol(*symbols(inner)), exact(radius)
            at = [x for n in range(3) if (x := exact(replaced(inner, {name: integer_node(n)}))) is not None]
            if reach and reach > 0 and len(at) == 3 and at[0] + at[2] == 2 * at[1] != 2 * at[0]:
                return [rational_node(end) for end in sorted((x - at[0]) / (at[1] - at[0]) for x in (reach, -reach))]
    return None


def to_intervals(answer: Answer | None) -> Any:
    """The pieces (low, closed, high, closed) of a set of reals, or None."""
    match answer:
        case Intervals(pieces):
            return pieces
        case Row(items, (low, high), "()" | "[]" as brackets) if all(isinstance(x, Expression) for x in items):
            return ((low, brackets == "[]", high, brackets == "[]"),)
        case Members(items) | Chain(items, ("=",)) if expressions := _expressions(items):
            return tuple((x.value, True, x.value, True) for x in expressions)
        case Several(items, links) if {*links} == {"or"} and len({x.name for x in items} - {None, NO_NAME}) < 2:
            pieces = [None if isinstance(x, Expression) else to_intervals(x) for x in items]
            return None if None in pieces else tuple(piece for part in pieces for piece in part or ())
    return None


def _expressions(items: Sequence[Answer]) -> list[Expression]:
    """Answers that are all expressions; none if one is not."""
    found = [x for x in items if isinstance(x, Expression)]
    return found if len(found) == len(items) else []


def linear(node: Node) -> tuple[Fraction, Fraction] | None:
    """The a and b of an expression a x + b of one letter, with a other than 0."""
    letters = symbols(node)
    if len(letters) != 1 or not are_expressions(node):
        return None
    name = Symbol(*letters)
    at = [exact(replaced(node, {name: integer_node(n)})) for n in range(4)]
    steps = {y - x for x, y in pairwise(at) if x is not None and y is not None}
    if at[0] is None or None in at or len(steps) != 1 or steps == {0}:
        return None
    return steps.pop(), at[0]


def image_of(piece: Any, factor: Fraction, shift: Fraction) -> Any:
    """A piece of a set of reals under x ↦ factor · x + shift."""
    if isinstance(piece[0], str):
        return (piece[0], *(tuple(image_of(part, factor, shift) for part in side) for side in piece[1:]))
    low, closed, high, also = piece
    ends = [
        end if sign_of_infinity(end) else worked_out(Sum(Product(rational_node(factor), end), rational_node(shift)))
        for end in (low, high)
    ]
    if factor > 0:
        return (ends[0], closed, ends[1], also)
    flipped = [{1: MINUS_INFINITY, -1: INFINITY}.get(sign_of_infinity(end), end) for end in ends]
    return (flipped[1], also, flipped[0], closed)


def combined(answers: Sequence[Answer], links: Sequence[str]) -> Intervals | None:
    """Sets of reals joined by "and" or by "or"."""
    pieces = [to_intervals(answer) for answer in answers]
    if {*links} == {"or"}:
        return Intervals(tuple(piece for part in pieces for piece in part))
    if "or" in links or None in pieces:
        return None
    whole = pieces[0]
    for part, link in zip(pieces[1:], links, strict=True):
        whole = (("," if link == "," else "cap", whole, part),)
    return Intervals(whole)
