"""What relations say: equations, inequalities, sets by a condition, and the values that a letter may not have."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil, floor
from typing import Any, TypeGuard

from mathequal.answers import (
    MINUS_INFINITY,
    NO_NAME,
    REALS,
    VALUES,
    Answer,
    Chain,
    Equation,
    Expression,
    Family,
    Inequality,
    Intervals,
    Members,
    Several,
)
from mathequal.names import gives_value, is_name, is_of_capitals, is_to_be_solved
from mathequal.nodes import INFINITY, Call, Function, Matrix, NamedSet, Node, Relation, SetOf, SetOperation, Symbol
from mathequal.rational import exact
from mathequal.real_sets import combined, ends_of_distance, image_of, linear, to_intervals
from mathequal.trees import are_expressions, holds, integer_node, symbols, with_sign

_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
Typed = Callable[[Node], Answer | None]
"""What reads one item; it is handed to these functions, which it calls itself."""


def all_typed(nodes: Sequence[Node], typed: Typed) -> tuple[Answer, ...] | None:
    """The typed values of several items, or None."""
    answers = [*map(typed, nodes)]
    return None if None in answers else tuple(filter(None, answers))


def flat(answers: Sequence[Answer]) -> tuple[Answer, ...]:
    """Answers, with the items of lists in their place."""
    return tuple(item for x in answers for item in (x.items if isinstance(x, Several) else (x,)))


def relation(sides: tuple[Any, ...], operators: tuple[str, ...], typed: Typed) -> Answer | None:
    """What a chain of equations or inequalities says. The first side may be None."""
    if sides[0] == NamedSet("R"):  # all real numbers greater than 3
        sides = (None, *sides[1:])
    left, right = sides[0], sides[-1]
    operators = tuple("=" if operator == r"\equiv" else operator for operator in operators)
    if {*operators} <= {"=", "~"}:
        return _equation(sides, operators, typed)
    if operators == (r"\in",):
        answer = typed(right) if left is not None and is_name(left) else None
        if isinstance(answer, Members) and len(answer.items) == 1:
            return Chain(answer.items, name=left)
        return answer and replace(answer, name=left)
    if operators in (("!=",), (r"\notin",)) and (left is None or isinstance(left, Symbol)):
        answer = typed(right)
        answer = Members(flat((answer,))) if answer and operators == ("!=",) else answer
        pieces = to_intervals(answer)
        return pieces and Intervals((("minus", REALS, pieces),), name=left or NO_NAME)
    one_way = {*operators} <= {*_FLIPPED} and len({operator[0] for operator in operators}) == 1
    if not one_way or not are_expressions(*sides[left is None :]):
        return None
    if operators[0][0] == ">":
        sides, operators = sides[::-1], tuple(_FLIPPED[operator] for operator in operators[::-1])
    if len(sides) == 2 and (ends := ends_of_distance(*sides)):
        (low, high), strict = ends, operators == ("<",)
        pieces = ((low, not strict, high, not strict),)
        if not (isinstance(sides[0], Function) and sides[0].name == "abs"):  # farther than
            pieces = (("minus", REALS, ((low, strict, high, strict),)),)
        return Intervals(pieces, name=Symbol(*symbols(sides)))
    unknown = [n for n, side in enumerate(sides) if side is None or isinstance(side, (Symbol, Call))]
    if len(unknown) == 1 and (len(sides) == 2 or (len(sides) == 3 and unknown == [1])):
        [at] = unknown
        name, others = sides[at], [*sides[:at], *sides[at + 1 :]]
        if not any(symbols(name) & symbols(other) for other in others):
            low = (sides[at - 1], operators[at - 1] == "<=") if at else (MINUS_INFINITY, False)
            high = (sides[at + 1], operators[at] == "<=") if at + 1 < len(sides) else (INFINITY, False)
            others = (Inequality(sides, operators),) if any(map(symbols, others)) else ()
            return Intervals(((*low, *high),), name=name or NO_NAME, others=others)
    return Inequality(sides, operators) if left is not None else None


def _equation(sides: tuple[Any, ...], operators: tuple[str, ...], typed: Typed) -> Answer | None:
    left, right = sides[0], sides[-1]
    if left is None:
        return typed(right) if len(sides) == 2 else None
    named_last = len(sides) == 2 and operators == ("=",) and isinstance(right, (Symbol, Call))
    if named_last and not is_name(left) and not symbols(left):
        sides, left, right = (right, left), right, left
    if is_name(left) or (len(sides) == 2 and holds(right, Matrix) and is_of_capitals(left)):
        values = all_typed(sides[1:], typed)
        return Chain(values, operators, sides, name=left) if values else None
    if len(sides) == 2 and operators == ("=",) and (symbols(left) | symbols(right)):
        named = gives_value(left) and not symbols(right) and not is_to_be_solved(left)
        value = typed(right) if named else None
        others = (Chain((value,), operators, sides, name=left),) if isinstance(value, VALUES) else ()
        return Equation(sides, others=others) if others or are_expressions(*sides) else None
    if len(sides) > 2 and symbols(left) and not symbols(sides[1:]) and gives_value(left) and not is_to_be_solved(left):
        values = all_typed(sides[1:], typed)  # m + n = 256 + 37 = 293
        return Chain(values, operators, sides, name=left) if values else None
    values = all_typed(sides, typed)
    return Chain(values, ("=", *operators)) if values else None


def set_operation(operator: str, left: Answer | None, right: Answer | None) -> Answer | None:
    """The union, intersection or difference of two sets."""
    if operator == "minus" and isinstance(right, (Expression, Several)):  # all reals except 2
        right = Members(right.items or (right,))
    if operator == "cup" and isinstance(left, Members) and isinstance(right, Members):
        return Members(left.items + right.items)
    pieces, others = to_intervals(left), to_intervals(right)
    if pieces is None or others is None:
        return None
    return Intervals((*pieces, *others) if operator == "cup" else ((operator, pieces, others),))


def set_builder(item: Node, conditions: tuple[Node, ...], links: tuple[str, ...], typed: Typed) -> Answer | None:
    """Sets of reals and families over the integers."""
    conditions = (*shared(conditions, links),)
    if any(not isinstance(condition, Relation) for condition in conditions):
        return None
    domain = "R"
    if isinstance(item, Relation) and item.operators == (r"\in",):
        item, of = item.sides
        domain = of.name if isinstance(of, NamedSet) else ""
        if domain not in ("R", "Z", "N") or not isinstance(item, Symbol):
            return None
    parameters, rest = set[str](), list[tuple[Any, str]]()
    relations = [(condition.sides, condition.operators) for condition in conditions if isinstance(condition, Relation)]
    for (sides, operators), link in zip(relations, ("and", *links), strict=True):
        if operators != (r"\in",) or not isinstance(sides[1], NamedSet):
            rest.append(((sides, operators), link))
        elif sides[1] == NamedSet("Z") and sides[0] != item and isinstance(sides[0], Symbol):
            parameters.add(sides[0].name)
        elif sides != (item, NamedSet("R")):
            return None
    if parameters:
        named = [sides[1] for (sides, operators), _ in rest if operators == ("=",) and sides[0] == item]
        values = named if isinstance(item, Symbol) else item.items if isinstance(item, SetOf) else [item]
        whole = len(parameters) == 1 and values and len(rest) == len(named if isinstance(item, Symbol) else ())
        return Family(tuple(values), parameters.pop()) if whole else None
    if not rest:
        return Intervals(REALS) if domain == "R" else None
    image = None if isinstance(item, Symbol) else linear(item)
    if not isinstance(item, Symbol) and image is None:  # {x² | x ≥ 1} is not the set of its x
        return None
    answers = [relation(sides, operators, typed) for (sides, operators), _ in rest]
    if any(to_intervals(x) is None or symbols(x and x.name) != symbols(item) for x in answers):
        return None
    whole = combined([x for x in answers if x], ["or" if link == "or" else "and" for _, link in rest[1:]])
    if image and whole:
        return replace(whole, pieces=tuple(image_of(piece, *image) for piece in whole.pieces), name=None)
    if domain == "R" or whole is None:
        return whole
    piece: Any = whole.pieces[0] if len(whole.pieces) == 1 and len(whole.pieces[0]) == 4 else None
    low, high = (exact(piece[0]), exact(piece[2])) if piece else (None, None)
    if low is None or high is None or high - low > 60:
        return None
    low, high = ceil(low) + (not piece[1] and low == int(low)), floor(high) - (not piece[3] and high == int(high))
    return Members(tuple(Expression(integer_node(n)) for n in range(low, high + 1)))


def shared(items: Sequence[Node], links: Sequence[str]) -> Sequence[Node]:
    """What x ≠ 1, 2 and "all except 1 and 2" exclude, together."""
    rest = items[1:]
    if rest and "or" not in links and are_expressions(*rest):
        match items[0]:
            case Relation((left, _), ("!=",)):
                return [items[0], *(Relation((left, item), ("!=",)) for item in rest)]
            case SetOperation("minus", whole, first) if are_expressions(first):
                return [SetOperation("minus", whole, SetOf((first, *rest)))]
    return items


def restricted(items: Sequence[Node], links: Sequence[str], typed: Typed) -> Answer | None:
    """An expression, or f(x) = …, and values that its letter may not have: (x + 6)/(x − 4), x ≠ 5; else None."""
    if len(items) < 2 or "or" in links or not _excludes(items[1]):
        return None
    first, *conditions = items[0], *shared(items[1:], links[1:])
    value = first.sides[-1] if isinstance(first, Relation) and first.operators == ("=",) and first.sides[0] else first
    letters = symbols(value) if are_expressions(value) else set()
    excluded = list[Node]()
    for condition in conditions:
        if not _excludes(condition):
            return None
        name, point = condition.sides
        if not isinstance(name, Symbol) or name.name not in letters or symbols(point):
            return None
        points = point.items if isinstance(point, SetOf) else (point,)
        signs = dict.fromkeys(with_sign(x, sign) for x in points for sign in "pm")
        excluded += [Relation((name, x), ("!=",)) for x in signs]
    whole = typed(first)
    return whole and replace(whole, excluded=tuple(excluded))


def _excludes(condition: Any) -> TypeGuard[Relation]:
    """Whether a condition says which values a letter may not have."""
    return isinstance(condition, Relation) and condition.operators in (("!=",), (r"\notin",))
