"""The typed value of a tree (long: relations, sets, tables and quantities hold each other)."""

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor
from typing import Any

from mathequal.answers import MINUS_INFINITY, NO_NAME, REALS, Answer
from mathequal.languages import scale_of
from mathequal.names import gives_value, is_name, is_of_capitals, is_to_be_solved
from mathequal.nodes import (
    INFINITY,
    Brackets,
    Call,
    Cases,
    Degrees,
    Function,
    Matrix,
    Measured,
    Measures,
    Modulo,
    NamedSet,
    Negative,
    Node,
    Number,
    Percent,
    PlusMinus,
    Power,
    Product,
    Quotient,
    Ratio,
    Relation,
    SetOf,
    SetOperation,
    Sum,
    Symbol,
    Where,
    Words,
)
from mathequal.rational import exact, worked_out
from mathequal.real_sets import combined, ends_of_distance, image_of, linear, sign_of_infinity, to_intervals
from mathequal.text import plain_words, word_list
from mathequal.trees import (
    are_expressions,
    canonical,
    fraction,
    holds,
    integer_node,
    rational_node,
    replaced,
    scaled_node,
    symbols,
    times,
    walk,
    with_sign,
)
from mathequal.units import DEGREE, Unit, counts_things, read_unit

_MEASURED = {*word_list("old long tall wide high deep")}
_DEGREES = {"C": "celsius", "F": "fahrenheit", "CELSIUS": "celsius", "FAHRENHEIT": "fahrenheit", "K": "kelvin"}
_POUND_STERLING: Unit = ((("GBP", 1),), Fraction(1))
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


def _all(nodes: Sequence[Node]) -> tuple[Answer, ...] | None:
    """The typed values of several items, or None."""
    answers = [*map(_typed, nodes)]
    return None if None in answers else tuple(filter(None, answers))


def _flat(answers: Sequence[Answer]) -> tuple[Answer, ...]:
    """Answers, with the items of lists in their place."""
    return tuple(item for x in answers for item in (x.items if x.kind == "list" else (x,)))


def _typed(node: Node) -> Answer | None:
    """The typed value of one item, or None."""
    if isinstance(node, Negative) and isinstance(node[1], (Measured, Percent, Degrees)):
        inner, *rest = node.inner.parts
        node = node.inner.with_parts((Negative(inner), *rest))
    several = isinstance(node, Brackets) and sum(isinstance(part, PlusMinus) for part in walk(node)) > 1
    if isinstance(node, Sum) and sum(isinstance(part, PlusMinus) and part.which == "p" for part in walk(node)) > 1:
        return None  # whether the signs go together is not said
    if holds(node, PlusMinus) and not (several or isinstance(node, (SetOf, Cases)) or node[2:] == (("!=",),)):
        both = _all([with_sign(node, "p"), with_sign(node, "m")])
        return Answer("list", items=both) if both else None
    match node:
        case Relation(sides, operators):
            return _relation(sides, operators)
        case Modulo(inner, modulus):
            named = isinstance(inner, Relation) and len(inner[1]) == 2 and inner[2][0] in (r"\equiv", "=")
            name, value = inner[1] if named else (None, inner)
            every = Sum(value, Product(modulus, Symbol("mod")))
            return Answer("family", (every,), name=name, marks="mod") if value and are_expressions(every) else None
        case Measured(value, words):
            return quantity_of(value, words)
        case Percent(value):
            return quantity_of(value, ("%",))
        case Measures(parts):
            quantities = _all(parts)
            return _compound(quantities) if quantities else None
        case Quotient(Measured(top, words), Measured(bottom, others)) if are_expressions(top, bottom):
            unit = read_unit((*words, "/", *others))
            return unit and Answer("quantity", fraction(top, bottom), unit=unit)
        case Degrees(value) if are_expressions(value):
            return Answer("quantity", value, unit=(DEGREE, Fraction(1)))
        case NamedSet("R" | "0" as name):
            return Answer("intervals", REALS if name == "R" else ())
        case NamedSet("R>0" | "R<0" | "R>=0" | "R<=0" as name):
            member = _relation((None, integer_node(0)), (name[1:-1],))
            return member and replace(member, name=None)
        case NamedSet(name):
            return Answer("named set", name)
        case Product(factors) if ("named", "Z") in factors:
            value = replaced(node, {NamedSet("Z"): Symbol("k")})
            return Answer("family", (value,), marks="k") if are_expressions(value) else None
        case SetOperation(operator, left, right):
            return _set_operation(operator, _typed(left), _typed(right))
        case SetOf(nodes):
            items = _all(nodes) or ()
            if len({x.name for x in items if x.kind == "assigned"}) == len(items) > 1:  # {x = 1, y = 2}
                return Answer("list", items=items, links=(",",) * (len(items) - 1))
            return Answer("set", items=_flat(items)) if items else None
        case Where(item, conditions, links):
            return _set_builder(item, conditions, links)
        case Brackets("[", nodes, "]") if all(isinstance(x, Relation) and x[2] == ("=",) for x in nodes):
            return typed_values(nodes, (",",) * (len(nodes) - 1))
        case Brackets(opens, nodes, closes):
            return _sequence(opens, nodes, closes)
        case Power(Brackets(_, nodes, _), Symbol("T") | Words("T")):
            return _sequence("(", nodes, ")")
        case Product([Symbol(name), Brackets("(", nodes, ")")]) if len(name) == 1 and name.isupper():
            items = _all(nodes)
            point = Answer("tuple", nodes, items, marks="()") if items else None
            chosen = [Answer("expression", Function("binom", *nodes))] if name == "C" and len(nodes) == 2 else []
            return point and Answer("assigned", node[1:], (point,), Symbol(name), links=("=",), others=(*chosen,))
        case Cases(rows):
            return _cases(rows)
        case Ratio(terms):
            return Answer("ratio", terms) if are_expressions(*terms) else None
        case Words(words):
            return Answer("text", plain_words(words).lower())
    if rows := _matrix(node) if holds(node, Matrix, Brackets) else None:
        if holds(node, Matrix):
            return Answer("matrix", rows)
        known = [(exact(cell), cell) for cell in rows[0]]
        cells = tuple(cell if value is None else rational_node(value) for value, cell in known)
        items = _all(cells)
        return Answer("tuple", cells, items, marks="()") if items else None
    return Answer("expression", node) if are_expressions(node) else None


def quantity_of(value: Node, words: tuple[str, ...]) -> Answer | None:
    if isinstance(value, Measured) and re.match("per$|an?$|/", value[2][0]):  # $5 per hour
        value, words = value[1], (*words, *re.sub("^an? ", "per ", " ".join(value[2])).split())
    if (
        isinstance(value, Measured) and (inner := quantity_of(value[1], value[2])) and inner.kind == "expression"
    ):  # $5 million
        value = inner.value
    if isinstance(value, Negative) and isinstance(value[1], Degrees):
        value = Degrees(Negative(value[1][1]))
    if isinstance(value, Degrees):
        if words[0].upper() not in _DEGREES:
            return None
        value, words = value[1], (_DEGREES[words[0].upper()], *words[1:])
    while words and (scale := scale_of(words[0])):  # 5 million
        size, rest = scale
        value = scaled_node(value, size) if isinstance(value, Number) else times(value, integer_node(size))
        words = (rest, *words[1:]) if rest else words[1:]
    if not are_expressions(value) or holds(value, Percent):
        return None
    if not words:
        return Answer("expression", value)
    if unit := read_unit(words[:-1] if words[1:] and words[-1] in _MEASURED else words):
        money = (Answer("quantity", value, unit=_POUND_STERLING),) if words in (("pound",), ("pounds",)) else ()
        return Answer("quantity", value, unit=unit, others=money)
    return Answer("quantity", value, words=words) if counts_things(words) else None


def _compound(parts: Sequence[Answer]) -> Answer | None:
    """5 ft 6 in: quantities of one dimension, the units ever smaller."""
    read = [(*x.unit, value) for x in parts if x.unit and (value := exact(x.value)) is not None]
    factors = [factor for _, factor, _ in read]
    if len(read) < len(parts) or len({name for name, _, _ in read}) > 1 or factors != sorted({*factors}, reverse=True):
        return None
    total = sum((factor * value for _, factor, value in read), Fraction(0))
    return Answer("quantity", Number(total, "int"), unit=(read[0][0], Fraction(1)))


def _sequence(opens: str, nodes: tuple[Node, ...], closes: str) -> Answer | None:
    items = _all(nodes)
    if items is None:
        return None
    if opens + closes in ("(]", "[)") or any(map(sign_of_infinity, nodes)):
        piece = (nodes[0], opens == "[", nodes[-1], closes == "]")
        return Answer("intervals", (piece,)) if len(nodes) == 2 and are_expressions(*nodes) else None
    return Answer("tuple", nodes, items=items, marks="()" if opens == "<" else opens + closes)


def _cases(rows: tuple[tuple[Node, ...], ...]) -> Answer | None:
    """Values with their conditions; or a system of relations."""
    if len(rows[0]) == 1:
        items = _all([row[0] for row in rows])
        rest = (",",) * (len(rows) - 1)
        return items[0] if items and not rest else Answer("list", items=items, links=rest) if items else None
    answers = [_all(row) for row in rows if len(row) == 2]
    if None in answers or len(answers) < len(rows):
        return None
    known, last = [pair[1] for pair in answers[:-1] if pair], answers[-1]
    if last and last[1] == Answer("text", "otherwise") and len({(x.name, x.kind) for x in known}) == 1:
        pieces = [to_intervals(x) for x in known]
        rest = None if None in pieces else (("minus", REALS, tuple(piece for part in pieces for piece in part)),)
        answers[-1] = (last[0], Answer("intervals", rest, name=known[0].name)) if rest else last
    return Answer("cases", items=tuple(Answer("tuple", items=pair, marks="()") for pair in answers if pair))


def _matrix(node: Node) -> tuple[tuple[Node, ...], ...] | None:
    """The rows of a matrix times scalars."""
    match node:
        case Matrix(rows):
            return rows
        case Brackets("(" | "<", cells, ")" | r"\rangle"):
            return (cells,)
        case Sum(terms):
            tables = [*map(_matrix, terms)]
            if (
                not symbols(node)
                or None in tables
                or len({(len(rows), *map(len, rows)) for rows in tables if rows}) > 1
            ):
                return None  # a sum yet to be done
            return tuple(tuple(Sum(*x) for x in zip(*rows, strict=True)) for rows in zip(*tables, strict=True))
        case Negative(inner) if rows := _matrix(inner):
            return tuple(tuple(Negative(cell) for cell in row) for row in rows)
        case Quotient(inner, scalar) if not holds(scalar, Matrix, Brackets) and (rows := _matrix(inner)):
            return tuple(tuple(worked_out(Quotient(cell, scalar)) for cell in row) for row in rows)
        case Power(inner, Symbol("T") | Words("T")) if rows := _matrix(inner):
            return tuple(zip(*rows, strict=True))
        case Product(factors):
            [*matrices] = [factor for factor in factors if holds(factor, Matrix, Brackets)]
            scalars = [factor for factor in factors if factor not in matrices]
            if len(matrices) == 1 and len(scalars) < 4 and (rows := _matrix(matrices[0])):
                return tuple(tuple(worked_out(Product(*scalars, cell)) for cell in row) for row in rows)
    return None


def _relation(sides: tuple[Any, ...], operators: tuple[str, ...]) -> Answer | None:
    if sides[0] == NamedSet("R"):  # all real numbers greater than 3
        sides = (None, *sides[1:])
    left, right = sides[0], sides[-1]
    operators = tuple("=" if operator == r"\equiv" else operator for operator in operators)
    if {*operators} <= {"=", "~"}:
        return _equation(sides, operators)
    if operators == (r"\in",):
        answer = _typed(right) if left is not None and is_name(left) else None
        if answer and answer.kind == "set" and len(answer.items) == 1:
            return Answer("assigned", items=answer.items, name=left, links=("=",))
        return answer and replace(answer, name=left)
    if operators in (("!=",), (r"\notin",)) and (left is None or isinstance(left, Symbol)):
        answer = _typed(right)
        answer = Answer("set", items=_flat((answer,))) if answer and operators == ("!=",) else answer
        pieces = to_intervals(answer)
        return pieces and Answer("intervals", (("minus", REALS, pieces),), name=left or NO_NAME)
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
        return Answer("intervals", pieces, name=Symbol(*symbols(sides)))
    unknown = [n for n, side in enumerate(sides) if side is None or isinstance(side, (Symbol, Call))]
    if len(unknown) == 1 and (len(sides) == 2 or (len(sides) == 3 and unknown == [1])):
        [at] = unknown
        name, others = sides[at], [*sides[:at], *sides[at + 1 :]]
        if not any(symbols(name) & symbols(other) for other in others):
            low = (sides[at - 1], operators[at - 1] == "<=") if at else (MINUS_INFINITY, False)
            high = (sides[at + 1], operators[at] == "<=") if at + 1 < len(sides) else (INFINITY, False)
            others = (Answer("inequality", (sides, operators)),) if any(map(symbols, others)) else ()
            return Answer("intervals", ((*low, *high),), name=name or NO_NAME, others=others)
    return Answer("inequality", (sides, operators)) if left is not None else None


def _equation(sides: tuple[Any, ...], operators: tuple[str, ...]) -> Answer | None:
    left, right = sides[0], sides[-1]
    if left is None:
        return _typed(right) if len(sides) == 2 else None
    named_last = len(sides) == 2 and operators == ("=",) and isinstance(right, (Symbol, Call))
    if named_last and not is_name(left) and not symbols(left):
        sides, left, right = (right, left), right, left
    if is_name(left) or (len(sides) == 2 and holds(right, Matrix) and is_of_capitals(left)):
        values = _all(sides[1:])
        return Answer("assigned", sides, values, left, links=operators) if values else None
    if len(sides) == 2 and operators == ("=",) and (symbols(left) | symbols(right)):
        named = gives_value(left) and not symbols(right) and not is_to_be_solved(left)
        value = _typed(right) if named else None
        is_value = value is not None and value.kind in ("expression", "quantity")
        others = (Answer("assigned", sides, (value,), left, links=operators),) if value and is_value else ()
        return Answer("equation", sides, others=others) if others or are_expressions(*sides) else None
    if len(sides) > 2 and symbols(left) and not symbols(sides[1:]) and gives_value(left) and not is_to_be_solved(left):
        values = _all(sides[1:])  # m + n = 256 + 37 = 293
        return Answer("assigned", sides, values, left, links=operators) if values else None
    values = _all(sides)
    return Answer("assigned", items=values, links=("=", *operators)) if values else None


def _set_operation(operator: str, left: Answer | None, right: Answer | None) -> Answer | None:
    if operator == "minus" and right and right.kind in ("expression", "list"):  # all reals except 2
        right = Answer("set", items=right.items or (right,))
    if left and right and operator == "cup" and left.kind == right.kind == "set":
        return Answer("set", items=left.items + right.items)
    pieces, others = to_intervals(left), to_intervals(right)
    if pieces is None or others is None:
        return None
    return Answer("intervals", (*pieces, *others) if operator == "cup" else ((operator, pieces, others),))


def _set_builder(item: Node, conditions: tuple[Node, ...], links: tuple[str, ...]) -> Answer | None:
    """Sets of reals and families over the integers."""
    conditions = (*_shared(conditions, links),)
    if any(not isinstance(condition, Relation) for condition in conditions):
        return None
    domain = "R"
    if isinstance(item, Relation) and item[2] == (r"\in",):
        (item, (_, domain)) = item[1] if isinstance(item[1][1], NamedSet) else (item, (None, ""))
        if domain not in ("R", "Z", "N") or not isinstance(item, Symbol):
            return None
    parameters, rest = set[str](), list[tuple[Node, str]]()
    for (_, sides, operators), link in zip(conditions, ("and", *links), strict=True):
        if operators != (r"\in",) or not isinstance(sides[1], NamedSet):
            rest.append((Relation(sides, operators), link))
        elif sides[1] == NamedSet("Z") and sides[0] != item and isinstance(sides[0], Symbol):
            parameters.add(sides[0][1])
        elif sides != (item, NamedSet("R")):
            return None
    if parameters:
        named = [c[1][1] for c, _ in rest if c[2] == ("=",) and c[1][0] == item]
        values = named if isinstance(item, Symbol) else item[1] if isinstance(item, SetOf) else [item]
        whole = len(parameters) == 1 and values and len(rest) == len(named if isinstance(item, Symbol) else ())
        return Answer("family", tuple(values), marks=parameters.pop()) if whole else None
    if not rest:
        return Answer("intervals", REALS) if domain == "R" else None
    image = None if isinstance(item, Symbol) else linear(item)
    if not isinstance(item, Symbol) and image is None:  # {x² | x ≥ 1} is not the set of its x
        return None
    answers = [_relation(*condition[1:]) for condition, _ in rest]
    if any(to_intervals(x) is None or symbols(x and x.name) != symbols(item) for x in answers):
        return None
    whole = combined([x for x in answers if x], ["or" if link == "or" else "and" for _, link in rest[1:]])
    if image and whole:
        return replace(whole, value=tuple(image_of(piece, *image) for piece in whole.value), name=None)
    if domain == "R" or whole is None:
        return whole
    piece: Any = whole.value[0] if len(whole.value) == 1 and len(whole.value[0]) == 4 else None
    low, high = (exact(piece[0]), exact(piece[2])) if piece else (None, None)
    if low is None or high is None or high - low > 60:
        return None
    low, high = ceil(low) + (not piece[1] and low == int(low)), floor(high) - (not piece[3] and high == int(high))
    return Answer("set", items=tuple(Answer("expression", integer_node(n)) for n in range(low, high + 1)))


def _shared(items: Sequence[Node], links: Sequence[str]) -> Sequence[Node]:
    """What x ≠ 1, 2 and "all except 1 and 2" exclude, together."""
    rest = items[1:]
    if rest and "or" not in links and are_expressions(*rest):
        match items[0]:
            case Relation((left, _), ("!=",)):
                return [items[0], *(Relation((left, item), ("!=",)) for item in rest)]
            case SetOperation("minus", whole, first) if are_expressions(first):
                return [SetOperation("minus", whole, SetOf((first, *rest)))]
    return items


def _restricted(items: Sequence[Node], links: Sequence[str]) -> Answer | None:
    """An expression, or f(x) = …, and values that its letter may not have: (x + 6)/(x − 4), x ≠ 5; else None."""
    if (
        len(items) < 2
        or "or" in links
        or not isinstance(items[1], Relation)
        or items[1][2] not in (("!=",), (r"\notin",))
    ):
        return None
    first, *conditions = items[0], *_shared(items[1:], links[1:])
    value = first[1][-1] if isinstance(first, Relation) and first[2] == ("=",) and first[1][0] else first
    letters = symbols(value) if are_expressions(value) else set()
    excluded = list[Node]()
    for condition in conditions:
        if (
            not isinstance(condition, Relation)
            or condition[2] not in (("!=",), (r"\notin",))
            or condition[1][0] is None
        ):
            return None
        name, point = condition[1]
        if not isinstance(name, Symbol) or name[1] not in letters or symbols(point):
            return None
        points = point[1] if isinstance(point, SetOf) else (point,)
        signs = dict.fromkeys(with_sign(x, sign) for x in points for sign in "pm")
        excluded += [Relation((name, x), ("!=",)) for x in signs]
    whole = _typed(first)
    return whole and replace(whole, excluded=tuple(excluded))


def typed_values(items: Sequence[Node], links: Sequence[str]) -> Answer | None:
    """The typed value of all items of a text."""
    items = _shared(items, links)
    if restricted := _restricted(items, links):
        return restricted
    if len(items) == 1:
        match items[0]:
            case Relation((Brackets("(", names, ")"), Brackets("(", values, ")")), ("=",)) if len(names) == len(values):
                return typed_values(
                    [Relation(pair, ("=",)) for pair in zip(names, values, strict=True)], (",",) * len(names)
                )
        return _typed(items[0])
    integers = [n for n in items if isinstance(n, Relation) and n[2] == (r"\in",) and n[1][1] == NamedSet("Z")]
    if integers:  # x = 2πk, k ∈ ℤ
        rest = [n for n in items if n not in integers]
        named = [
            n for n in rest if isinstance(n, Relation) and n[2] == ("=",) and n[1][0] and isinstance(n[1][0], Symbol)
        ]
        names, rest = tuple({n[1][0][1] for n in named}), [n[1][-1] if n in named else n for n in rest]
        values = [value for n in rest for value in dict.fromkeys((with_sign(n, "p"), with_sign(n, "m")))]
        whole = (
            len(integers) == 1
            and isinstance(integers[0][1][0], Symbol)
            and values
            and not any(isinstance(n, Relation) for n in rest)
        )
        name = Symbol(*names) if len(names) == 1 else Brackets(*sorted(names)) if names else None
        return Answer("family", tuple(values), name=name, marks=integers[0][1][0][1]) if whole else None
    if isinstance(items[-1], Modulo) and all(not isinstance(x, Modulo) for x in items[:-1]):  # x = 1, 4 (mod 5)
        items = [*(Modulo(x, items[-1][2]) for x in items[:-1]), items[-1]]
    answers = _all(items)
    if answers is None:
        return None
    if any(x.kind == "intervals" for x in answers) and all(
        x.name and x.name == answers[0].name and to_intervals(x) is not None for x in answers
    ):
        whole = combined(answers, links)
        return whole and replace(whole, name=answers[0].name)
    if "or" in links and {*links} != {"or"} and all(x.kind == "assigned" and x.value for x in answers):
        at = [0, *(n for n, link in enumerate(links, 1) if link == "or"), len(items)]
        groups = [sorted(answers[i:j], key=lambda x: canonical(x.name)) for i, j in pairwise(at)]
        if len({tuple(x.name for x in group) for group in groups}) == 1 < len(groups[0]):  # x=1, y=2 or x=3, y=4
            points = [Answer("tuple", tuple(x.value[-1] for x in g), tuple(g), marks="()") for g in groups]
            return Answer("list", items=tuple(points), links=("or",) * (len(points) - 1))
    flat = _flat(answers)
    names = [str(x.name[1]) if x.name and isinstance(x.name, Symbol) else "" for x in flat]
    if "" not in names and "".join(sorted(names)) in "abcdefghijklmnopqrstuvwxyz":  # y = 2, x = 1
        flat = tuple(sorted(flat, key=lambda x: canonical(x.name)))
    compound = _compound(answers) if {*links} <= {"and", ","} else None  # 2 hours and 30 minutes
    match items, links:
        case [Number(whole, "int"), (Number() | Quotient()) as part], ["and"] if 0 < (exact(part) or 0) < 1 <= whole:
            compound = Answer("expression", Number(whole + (exact(part) or 0), "mixed"))
    return Answer("list", items=flat, links=tuple(links), others=(compound,) if compound else ())
