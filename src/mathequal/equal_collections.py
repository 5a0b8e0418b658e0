"""Equality of lists, sets, points, matrices and chosen letters."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

from mathequal.answers import (
    VALUES,
    Answer,
    Chain,
    Equation,
    Expression,
    Letters,
    Members,
    Row,
    Several,
    Table,
    Text,
    unit_in,
    words_in,
)
from mathequal.asked import has_options, keeps_order
from mathequal.comparison import Comparison, all_of, any_of, same_name
from mathequal.nodes import Constant, Function, Node, Product, Sum, Symbol
from mathequal.rational import exact
from mathequal.reading import read
from mathequal.trees import numeral, operations, symbols

_LONGEST_LIST = 60
_BASIS = (Constant("i"), Symbol("j"), Symbol("k"))  # 2i + 3j is (2, 3)


def matched(c: Comparison, gold: Answer, answer: Answer) -> bool | None:
    """Whether the elements pair off; equality is taken as transitive."""
    left, unknown = [*answer.items], False
    if len(gold.items) != len(left):
        return False
    for x in gold.items:
        results = [c.equal(x, y) for y in left]
        if True in results:
            left.pop(results.index(True))
        elif None in results:
            unknown = True
        else:
            return False
    return None if unknown else True


def collections(c: Comparison, gold: Answer, answer: Answer) -> bool | None:
    """Lists and sets up to order, sets without repetition. Names that differ pair the values; if only one side has
    them, the order does."""
    if max(len(x.items) for x in (gold, answer)) > _LONGEST_LIST:
        return _same_numbers(gold, answer)
    by_name = [_names_differ(x) for x in (gold, answer)]
    if all(by_name):
        named = {x.name: x for x in answer.items}
        pairs = [(x, named.get(x.name)) for x in gold.items]
        alike = ("or" in _links(gold)) == ("or" in _links(answer)) and len(gold.items) == len(answer.items)
        return alike and all_of(y is not None and c.equal(x, y) for x, y in pairs)
    if any(by_name):
        return _with_order_of_names(c, gold, answer, answer if by_name[0] else gold)
    are_rows = [isinstance(x, Row) for x in (gold, answer)]
    if c.order == "members" and any(are_rows) and any(isinstance(x, Several) for x in (gold, answer)):
        return c.in_order(gold.items, answer.items)
    if any(are_rows) or not _alternatives_agree(gold, answer):
        return False
    if any(isinstance(x, Equation) for x in answer.items) and not any(isinstance(x, Equation) for x in gold.items):
        return False
    return _without_order(c, gold, answer)


def _with_order_of_names(c: Comparison, gold: Answer, answer: Answer, plain: Answer) -> bool | None:
    """Equality of values with different names and of plain ones in the same order."""
    in_order = isinstance(plain, Several) or (isinstance(plain, Row) and plain.brackets == "()")
    in_order = in_order and "or" not in {*_links(gold)} ^ {*_links(answer)}
    values = [x.items if x is plain else [y.items[-1] for y in x.items] for x in (gold, answer)]
    return in_order and not any(isinstance(x, Chain) for x in plain.items) and c.in_order(*values)


def _without_order(c: Comparison, gold: Answer, answer: Answer) -> bool | None:
    """Equality of lists and sets in any order, unless the question asks for one."""
    sides = (gold, answer)
    names = [{x.name for x in side.items if x.name} for side in sides]
    if all(len(x) == 1 for x in names) and not same_name(*names[0], *names[1]):
        return False
    if all(len({_stem(name) for name in x}) < 2 for x in names):  # x_1 and x_2 only count
        sides = gold, answer = tuple(replace(x, items=(*map(_value_of, x.items),)) for x in sides)  # type: ignore[call-arg]
    values = [exact(x.value) if isinstance(x, VALUES) else None for x in gold.items]
    if c.order and keeps_order(c.order, values):
        return c.in_order(gold.items, answer.items)
    if not any(isinstance(x, Members) for x in sides):
        return matched(c, gold, answer)
    found = [
        [isinstance(x, Members) == isinstance(y, Members) and c.equal(x, y) for y in answer.items] for x in gold.items
    ]
    return all_of(map(any_of, [*found, *zip(*found, strict=True)])) if found and found[0] else gold == answer


def _links(answer: Answer) -> tuple[str, ...]:
    return answer.links if isinstance(answer, (Several, Chain)) else ()


def _stem(name: Node) -> str:
    """A name without its subscript."""
    return str(name.parts[0]).split("_")[0]


def _same_numbers(gold: Answer, answer: Answer) -> bool | None:
    """Equality of long lists and sets of numbers; None if there are other members."""
    if isinstance(gold, Row) or isinstance(answer, Row):
        return None
    found = list[list[Fraction]]()
    for side in (gold, answer):
        values = [exact(x.value) for x in side.items if isinstance(x, Expression) and numeral(x.value)]
        if None in values or len(values) < len(side.items):
            return None
        found.append([value for value in values if value is not None])
    as_set = isinstance(gold, Members) or isinstance(answer, Members)
    left, right = (sorted({*side} if as_set else side) for side in found)
    return left == right


def _value_of(answer: Answer) -> Answer:
    """A value without its name."""
    return answer.items[0] if isinstance(answer, Chain) and len(answer.items) == 1 else answer


def _alternatives_agree(gold: Answer, answer: Answer) -> bool:
    """Whether both say "or", or neither does; it makes no difference between values that solve something."""
    links = {*_links(gold)} ^ {*_links(answer)}
    if "or" not in links:
        return True
    both = "and" in links
    several = both and len({unit_in(x) for x in gold.items}) > 1  # 2 hours and 5 minutes
    return not several and not all(_is_thing(x, both) for x in gold.items)


def _is_thing(answer: Answer, both: bool) -> bool:
    """Whether an answer names something of which one or all may be asked for."""
    if not isinstance(answer, Expression):
        return bool(words_in(answer))
    return isinstance(answer.value, Symbol) or (both and bool(symbols(answer.value)))


def _names_differ(answer: Answer) -> bool:
    """Whether the elements of a list have different names, which pair the values; x_1, x_2 only count them."""
    names = [x.name for x in answer.items if isinstance(x, Chain) and x.name]
    if not isinstance(answer, Several) or len(names) < max(2, len(answer.items)) or len({*names}) < len(names):
        return False
    stems = {name.name.split("_")[0] if isinstance(name, Symbol) and "_" in name.name else None for name in names}
    return None in stems or len(stems) > 1


def sets_of_one(c: Comparison, gold: Answer, answer: Answer) -> bool | None:
    """{5} for 5."""
    single = [x.items[0] if isinstance(x, Members) and len(x.items) == 1 else x for x in (gold, answer)]
    return not any(isinstance(x, Members) for x in single) and c.equal(*single)


def all_alternatives(c: Comparison, gold: Answer, answer: Answer) -> bool | None:
    """1/2 or 0.5 for 1/2; and the same in two boxes, which a comma joins."""
    if not isinstance(answer, Several):
        return False
    forms = {numeral(x.value) for x in answer.items if isinstance(x, Expression)} - {"", "int"}
    apart = {*answer.links} == {","} and len(forms) == len(answer.items)
    several = ({*answer.links} == {"or"} or apart) and len({x.name for x in answer.items}) == 1
    return several and all_of(c.equal(gold, x) for x in answer.items)


def letters(c: Comparison, gold: Answer, answer: Answer) -> bool | None:
    """Choices; the texts of two are compared if both can be read."""
    texts = [read(x.text) if isinstance(x, Letters) and x.text else None for x in (gold, answer)]
    if texts[0] and texts[1] and c.equal(texts[0], texts[1]) is False:
        return False
    chosen, others = _chosen(gold), _chosen(answer)
    if chosen and isinstance(answer, Expression) and has_options(c.question):  # (b) for B
        others = others and frozenset(letter.upper() for letter in others)
    return chosen is not None and chosen == others


def _chosen(answer: Answer) -> frozenset[str] | None:
    r"""The letters of a choice, of a list of choices, or of a run such as \text{AC}: in order, each once."""
    run = ""
    match answer:
        case Letters(chosen):
            return chosen
        case Expression(Symbol(letter)):
            return frozenset({letter})
        case Several() | Members() if "or" not in _links(answer):
            parts = [*map(_chosen, answer.items)]
            return None if None in parts else frozenset(letter for part in parts for letter in part or ())
        case Text(words) if words.isalpha():
            run = words.upper()
        case Expression(Product(factors)) if all(isinstance(factor, Symbol) for factor in factors):
            run = "".join(factor.name for factor in factors)
    in_order = len(run) > 1 and run in ("".join(row) for row in combinations("ABCDEFGH", len(run)))
    return frozenset(run) if in_order else None


def tables(c: Comparison, gold: Answer, answer: Answer) -> bool | None:
    """Matrices, vectors, lists of rows, and sums of i, j and k."""
    if isinstance(gold, Row) and isinstance(answer, Row):
        return gold.brackets == answer.brackets and c.in_order(gold.items, answer.items)
    fixed, other = (answer, gold) if isinstance(gold, Expression) else (gold, answer)
    (shapes, left), (others, right) = map(_cells, (fixed, other))
    if isinstance(other, Expression) and symbols(other.value) & {"j", "k"}:
        terms = [Product(x, unit) for x, unit in zip(left, _BASIS, strict=False) if exact(x) != 0]
        vector = len(left) <= 3 and any(1 in shape for shape in shapes)
        return vector and c.identical(Sum(*terms), other.value)
    if not shapes & others or not any(isinstance(x, Table) for x in (gold, answer)):
        return False
    return all_of(
        _entries(c, *pair) for pair in zip(*((left, right) if fixed is gold else (right, left)), strict=False)
    )


def _entries(c: Comparison, gold: Node, answer: Node) -> bool | None:
    """Equality of two entries; of what is no number, a factor may have been drawn out."""
    scalar = exact(answer) is None and not symbols(gold) and not operations(answer)
    return any_of([c.expressions(gold, answer), scalar and c.identical(gold, answer)])


def _cells(answer: Answer) -> tuple[set[tuple[int, int]], Sequence[Node]]:
    """The shapes and entries of a matrix, a list of rows, a binomial (a column), or a tuple (a row or a column)."""
    match answer:
        case Table(rows):
            return {(len(rows), len(rows[0]))}, [cell for row in rows for cell in row]
        case Row(items, _, "[]") if len({len(row.items) for row in items} | {0}) == 2:
            return {(len(items), len(items[0].items))}, [x for row in items if isinstance(row, Row) for x in row.nodes]
        case Row(items, nodes):
            return {(1, len(items)), (len(items), 1)}, nodes
        case Expression(Function("binom", column)):
            return {(2, 1)}, column
    return set(), ()
