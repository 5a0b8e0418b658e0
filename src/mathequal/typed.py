"""The typed value of a tree: what one item is, and what several items are together."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

from mathequal.answers import (
    REALS,
    Answer,
    Chain,
    Congruence,
    Expression,
    Family,
    Intervals,
    Members,
    Numbers,
    Piecewise,
    Proportion,
    Quantity,
    Row,
    Several,
    Table,
    Text,
)
from mathequal.nodes import (
    Brackets,
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
from mathequal.quantities import compound, quantity_of
from mathequal.rational import exact, worked_out
from mathequal.real_sets import combined, sign_of_infinity, to_intervals
from mathequal.text import plain_words
from mathequal.trees import (
    are_expressions,
    canonical,
    fraction,
    holds,
    integer_node,
    rational_node,
    replaced,
    symbols,
    walk,
    with_sign,
)
from mathequal.typed_relations import all_typed, flat, relation, restricted, set_builder, set_operation, shared
from mathequal.units import DEGREE, read_unit


def _all(nodes: Sequence[Node]) -> tuple[Answer, ...] | None:
    """The typed values of several items, or None."""
    return all_typed(nodes, _typed)


def _is_unequal(node: Node) -> bool:
    return isinstance(node, Relation) and node.operators == ("!=",)


def _typed(node: Node) -> Answer | None:
    """The typed value of one item, or None."""
    if isinstance(node, Negative) and isinstance(node.inner, (Measured, Percent, Degrees)):
        inner, *rest = node.inner.parts
        node = node.inner.with_parts((Negative(inner), *rest))
    several = isinstance(node, Brackets) and sum(isinstance(part, PlusMinus) for part in walk(node)) > 1
    if isinstance(node, Sum) and sum(isinstance(part, PlusMinus) and part.which == "p" for part in walk(node)) > 1:
        return None  # whether the signs go together is not said
    if holds(node, PlusMinus) and not (several or isinstance(node, (SetOf, Cases)) or _is_unequal(node)):
        both = _all([with_sign(node, "p"), with_sign(node, "m")])
        return Several(both) if both else None
    match node:
        case Relation(sides, operators):
            return relation(sides, operators, _typed)
        case Modulo(inner, modulus):
            named = isinstance(inner, Relation) and len(inner.sides) == 2 and inner.operators[0] in (r"\equiv", "=")
            name, value = inner.sides if named else (None, inner)
            return Congruence(value, modulus, name=name) if value and are_expressions(value, modulus) else None
        case Measured(value, words):
            return quantity_of(value, words)
        case Percent(value):
            return quantity_of(value, ("%",))
        case Measures(parts):
            quantities = _all(parts)
            return compound(quantities) if quantities else None
        case Quotient(Measured(top, words), Measured(bottom, others)) if are_expressions(top, bottom):
            unit = read_unit((*words, "/", *others))
            return unit and Quantity(fraction(top, bottom), unit)
        case Degrees(value) if are_expressions(value):
            return Quantity(value, (DEGREE, Fraction(1)))
        case NamedSet("R" | "0" as name):
            return Intervals(REALS if name == "R" else ())
        case NamedSet("R>0" | "R<0" | "R>=0" | "R<=0" as name):
            member = relation((None, integer_node(0)), (name[1:-1],), _typed)
            return member and replace(member, name=None)
        case NamedSet(name):
            return Numbers(name)
        case Product(factors) if NamedSet("Z") in factors:
            value = replaced(node, {NamedSet("Z"): Symbol("k")})
            return Family((value,), "k") if are_expressions(value) else None
        case SetOperation(operator, left, right):
            return set_operation(operator, _typed(left), _typed(right))
        case SetOf(nodes):
            items = _all(nodes) or ()
            if len({x.name for x in items if isinstance(x, Chain)}) == len(items) > 1:  # {x = 1, y = 2}
                return Several(items, (",",) * (len(items) - 1))
            return Members(flat(items)) if items else None
        case Where(item, conditions, links):
            return set_builder(item, conditions, links, _typed)
        case Brackets("[", nodes, "]") if all(isinstance(x, Relation) and x.operators == ("=",) for x in nodes):
            return typed_values(nodes, (",",) * (len(nodes) - 1))
        case Brackets(opens, nodes, closes):
            return _sequence(opens, nodes, closes)
        case Power(Brackets(_, nodes, _), Symbol("T") | Words("T")):
            return _sequence("(", nodes, ")")
        case Product([Symbol(name), Brackets("(", nodes, ")")]) if len(name) == 1 and name.isupper():
            items = _all(nodes)
            point = Row(items, nodes) if items else None
            chosen = [Expression(Function("binom", *nodes))] if name == "C" and len(nodes) == 2 else []
            return point and Chain((point,), sides=node.parts, name=Symbol(name), others=(*chosen,))
        case Cases(rows):
            return _cases(rows)
        case Ratio(terms):
            return Proportion(terms) if are_expressions(*terms) else None
        case Words(words):
            return Text(plain_words(words).lower())
    if rows := _matrix(node) if holds(node, Matrix, Brackets) else None:
        if holds(node, Matrix):
            return Table(rows)
        known = [(exact(cell), cell) for cell in rows[0]]
        cells = tuple(cell if value is None else rational_node(value) for value, cell in known)
        items = _all(cells)
        return Row(items, cells) if items else None
    return Expression(node) if are_expressions(node) else None


def _sequence(opens: str, nodes: tuple[Node, ...], closes: str) -> Answer | None:
    items = _all(nodes)
    if items is None:
        return None
    if opens + closes in ("(]", "[)") or any(map(sign_of_infinity, nodes)):
        piece = (nodes[0], opens == "[", nodes[-1], closes == "]")
        return Intervals((piece,)) if len(nodes) == 2 and are_expressions(*nodes) else None
    return Row(items, nodes, "()" if opens == "<" else opens + closes)


def _cases(rows: tuple[tuple[Node, ...], ...]) -> Answer | None:
    """Values with their conditions; or a system of relations."""
    if len(rows[0]) == 1:
        items = _all([row[0] for row in rows])
        rest = (",",) * (len(rows) - 1)
        return items[0] if items and not rest else Several(items, rest) if items else None
    answers = [_all(row) for row in rows if len(row) == 2]
    if None in answers or len(answers) < len(rows):
        return None
    known, last = [pair[1] for pair in answers[:-1] if pair], answers[-1]
    if last and last[1] == Text("otherwise") and len({(x.name, x.kind) for x in known}) == 1:
        pieces = [to_intervals(x) for x in known]
        rest = None if None in pieces else (("minus", REALS, tuple(piece for part in pieces for piece in part)),)
        answers[-1] = (last[0], Intervals(rest, name=known[0].name)) if rest else last
    return Piecewise(tuple(Row(pair) for pair in answers if pair))


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


def _family(items: Sequence[Node], integers: Sequence[Relation]) -> Answer | None:
    """x = 2πk, k ∈ ℤ."""
    rest = [n for n in items if n not in integers]
    named = [n for n in rest if isinstance(n, Relation) and n.operators == ("=",) and isinstance(n.sides[0], Symbol)]
    names, rest = (
        {n.sides[0] for n in named},
        [n.sides[-1] if isinstance(n, Relation) and n in named else n for n in rest],
    )
    values = [value for n in rest for value in dict.fromkeys((with_sign(n, "p"), with_sign(n, "m")))]
    index = integers[0].sides[0]
    if len(integers) > 1 or not isinstance(index, Symbol) or not values or any(isinstance(n, Relation) for n in rest):
        return None
    several = Brackets("(", tuple(sorted(names)), ")") if names else None
    name = names.pop() if len(names) == 1 else several
    return Family(tuple(values), index.name, name=name)


def _points(answers: Sequence[Answer], links: Sequence[str]) -> Answer | None:
    """The points of x = 1, y = 2 or x = 3, y = 4; None for other answers."""
    chains = [x for x in answers if isinstance(x, Chain) and x.sides]
    if "or" not in links or {*links} == {"or"} or len(chains) < len(answers):
        return None
    at = [0, *(n for n, link in enumerate(links, 1) if link == "or"), len(answers)]
    groups = [sorted(chains[i:j], key=lambda x: canonical(x.name)) for i, j in pairwise(at)]
    if not len({tuple(x.name for x in group) for group in groups}) == 1 < len(groups[0]):
        return None
    points = [Row(tuple(group), tuple(x.sides[-1] for x in group)) for group in groups]
    return Several(tuple(points), ("or",) * (len(points) - 1))


def typed_values(items: Sequence[Node], links: Sequence[str]) -> Answer | None:
    """The typed value of all items of a text."""
    items = shared(items, links)
    if answer := restricted(items, links, _typed):
        return answer
    if len(items) == 1:
        match items[0]:
            case Relation((Brackets("(", names, ")"), Brackets("(", values, ")")), ("=",)) if len(names) == len(values):
                return typed_values(
                    [Relation(pair, ("=",)) for pair in zip(names, values, strict=True)], (",",) * len(names)
                )
        return _typed(items[0])
    integers = [
        n for n in items if isinstance(n, Relation) and n.operators == (r"\in",) and n.sides[1] == NamedSet("Z")
    ]
    if integers:
        return _family(items, integers)
    if isinstance(items[-1], Modulo) and all(not isinstance(x, Modulo) for x in items[:-1]):  # x = 1, 4 (mod 5)
        items = [*(Modulo(x, items[-1].modulus) for x in items[:-1]), items[-1]]
    answers = _all(items)
    if answers is None:
        return None
    if any(isinstance(x, Intervals) for x in answers) and all(
        x.name and x.name == answers[0].name and to_intervals(x) is not None for x in answers
    ):
        whole = combined(answers, links)
        return whole and replace(whole, name=answers[0].name)
    if points := _points(answers, links):
        return points
    every = flat(answers)
    names = [x.name.name if isinstance(x.name, Symbol) else "" for x in every]
    if "" not in names and "".join(sorted(names)) in "abcdefghijklmnopqrstuvwxyz":  # y = 2, x = 1
        every = tuple(sorted(every, key=lambda x: canonical(x.name)))
    whole = compound(answers) if {*links} <= {"and", ","} else None  # 2 hours and 30 minutes
    match items, links:
        case [Number(integer, "int"), (Number() | Quotient()) as part], ["and"] if (
            0 < (exact(part) or 0) < 1 <= integer
        ):
            whole = Expression(Number(integer + (exact(part) or 0), "mixed"))
    return Several(every, tuple(links), others=(whole,) if whole else ())
