r"""Trees of mathematics: numbers and products as they are written, and what one can ask of a tree.

A tree is a node, or a tuple of trees such as the sides of an equation.
"""

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import gcd
from typing import Any

from mathequal.nodes import (
    Big,
    Brackets,
    Call,
    Cases,
    Constant,
    DoubleFactorial,
    Factorial,
    Function,
    Matrix,
    Measured,
    Measures,
    Modulo,
    NamedSet,
    Negative,
    Node,
    Number,
    PlusMinus,
    Power,
    Product,
    Quotient,
    Ratio,
    Relation,
    SetOf,
    SetOperation,
    Symbol,
    Where,
    Words,
)

_LARGEST = 4000  # decimal exponent
_NOT_IN_EXPRESSIONS = (
    Words,
    Relation,
    Brackets,
    SetOf,
    NamedSet,
    Ratio,
    Where,
    SetOperation,
    Measured,
    Measures,
    PlusMinus,
    Modulo,
    Cases,
    Matrix,
)


class ParseError(ValueError):
    """The text is not an answer that the grammar knows."""


def integer_node(number: int) -> Number:
    """A whole number."""
    return Number(Fraction(number), "int")


def rational_node(value: Fraction) -> Number:
    """A number as an integer or as a fraction in lowest terms."""
    return Number(value, "int") if value.denominator == 1 else Number(value, "frac", 1)


def scaled_node(number: Number, size: int) -> Number:
    """A number with a scale in words, 6.03 million; written in another way than in digits or as a fraction."""
    value = number.value * size
    return Number(value, "scaled") if value.denominator == 1 else rational_node(value)


def _decimal(digits: str) -> Fraction:
    if not 0 < len(digits.rstrip(".")) <= 1500:
        raise ParseError("long number")
    whole, _, places = digits.partition(".")
    return Fraction(int(whole + places), 10 ** len(places)) if places else Fraction(int(whole))


def decimal_node(text: str) -> Number:
    """The number that digits write, with a decimal point or an exponent."""
    digits, _, exponent = text.lower().partition("e")
    places = len(digits.partition(".")[2])
    if not exponent:
        return Number(_decimal(digits), "dec", -places) if places else Number(_decimal(digits), "int")
    if abs(int(exponent)) > _LARGEST:
        raise ParseError("exponent")
    return Number(_decimal(digits) * Fraction(10) ** int(exponent), "sci", int(exponent) - places, int(exponent))


def repeating(text: str) -> Number:
    r"""0.1\overline{6}, 0.1(6) and 0.\dot{1}4\dot{2}."""
    whole, _, rest = re.sub(r"[\s{})]", "", text).partition(".")
    before, _, period = re.sub(r"\\(?:overline|bar|dot)|\(", "|", rest, count=1).partition("|")
    period = period.replace(r"\dot", "")
    if len(before) + len(period) > 300:
        raise ParseError("long number")
    tail = Fraction(int(before or 0)) + Fraction(int(period), 10 ** len(period) - 1)
    return Number(int(whole or 0) + tail / 10 ** len(before), "rep")


def fraction(top: Node, bottom: Node) -> Node:
    """A quotient; a number if both are written as one."""
    match top, bottom:
        case Number(above, "int" | "dec"), Number(below, "int" | "dec") if below:
            common = gcd(int(above), int(below)) if top.form == bottom.form == "int" else 2
            return top if below == 1 else Number(above / below, "frac", common)
    return Quotient(top, bottom)


def mixed_number(whole: Node, part: Node) -> Number | None:
    """1½: a whole number and a proper fraction beside it; None for other factors."""
    match whole, part:
        case Number(value, "int"), Number(share, "frac") if 0 < share < 1:
            return Number(value + share, "mixed", part.detail)
    return None


def ten_power(exponent: Node) -> Node:
    """A power of ten; a number if the exponent is a whole one."""
    if isinstance(exponent, Number) and exponent.value.denominator == 1 and abs(exponent.value) <= _LARGEST:
        return Number(Fraction(10) ** int(exponent.value), "ten", int(exponent.value))
    return Power(integer_node(10), exponent)


def times(left: Node, right: Node) -> Node:
    """A product; a number for 4.5 × 10^33."""
    if isinstance(left, Number) and isinstance(right, Number):
        if left.form == "ten":
            left, right = right, left
        if right.form == "ten" and left.form in ("int", "dec"):
            exponent = right.detail or 0
            return Number(left.value * right.value, "sci", exponent + (left.detail or 0), exponent)
    return Product(*(left.factors if isinstance(left, Product) else (left,)), right)


def signed(signs: str, node: Node) -> Node:
    """An expression after a run of signs: "+", "-", or one of "p" and "m" for plus-minus and minus-plus."""
    if signs in ("p", "m"):
        return PlusMinus(node, signs)
    if signs.count("-") % 2 == 0:
        return node
    if isinstance(node, Number) and node.form != "frac":
        _, *written = node.parts
        return Number(-node.value, *written)
    return Negative(node)


def is_number(node: Any, value: int) -> bool:
    """Whether a node is this number, in whatever form."""
    return isinstance(node, Number) and node.value == value


def walk(tree: Any) -> Iterator[Node]:
    """All nodes of a tree, each one before its parts."""
    if isinstance(tree, Node):
        yield tree
    for part in tree if isinstance(tree, tuple) else ():
        if isinstance(part, tuple):
            yield from walk(part)


def contains(tree: Any, wanted: Node) -> bool:
    """Whether a node is in a tree."""
    return wanted in walk(tree)


def functions(tree: Any) -> set[str]:
    """The names of the functions of a tree that the judge knows."""
    return {node.name for node in walk(tree) if isinstance(node, Function)}


def holds(node: Any, *kinds: type[Node]) -> bool:
    """Whether a node of one of these kinds is in a tree."""
    if not isinstance(node, tuple) or not node:
        return False
    if isinstance(node, kinds):
        return True
    # k = 1 below a sum is not a relation of the answer, and words after a value are not nodes
    parts = (node.sup, node.body) if isinstance(node, Big) else (node.value,) if isinstance(node, Measured) else node
    return any(holds(part, *kinds) for part in parts if isinstance(part, tuple))


def are_expressions(*nodes: Node) -> bool:
    """Whether nodes are expressions only."""
    return not any(holds(node, *_NOT_IN_EXPRESSIONS) for node in nodes)


def parts_of(tree: tuple[Any, ...]) -> tuple[Any, ...]:
    """The parts of a node, or the members of a tuple of trees."""
    return tree.parts if isinstance(tree, Node) else tree


def rebuilt(tree: tuple[Any, ...], parts: Any) -> Any:
    """A tree of the same kind with other parts: a node of its class, or a tuple."""
    return tree.with_parts(parts) if isinstance(tree, Node) else tuple(parts)


def replaced(node: Any, new: Mapping[Any, Node]) -> Any:
    """A tree in which some nodes are others."""
    if not isinstance(node, tuple):
        return node
    if node in new:
        return new[node]
    return rebuilt(node, (replaced(part, new) for part in parts_of(node)))


def with_sign(node: Any, sign: str) -> Any:
    """The expression with its plus-minus signs read as "p" or "m"."""
    if not isinstance(node, tuple):
        return node
    if isinstance(node, PlusMinus):
        inner = with_sign(node.inner, sign)
        return inner if node.which == sign else Negative(inner)
    return rebuilt(node, (with_sign(part, sign) for part in parts_of(node)))


def symbols(node: Any) -> set[str]:
    """Names of the free symbols and functions."""
    if not isinstance(node, tuple) or not node:
        return set()
    if isinstance(node, Symbol):
        return {node.name}
    free: set[str] = set().union(*map(symbols, node))
    if isinstance(node, Call):
        free.add(node.name.rstrip("'") + "()")
    return free - {index_of(node)} if isinstance(node, Big) else free


def index_of(node: Node) -> str | None:
    r"""The variable that \sum_{k=1} binds."""
    match node:
        case Big(_, Relation((Symbol(name), *_))):
            return name
    return None


def operations(node: Any) -> set[str]:
    """Operators beyond arithmetic, roots, powers and absolute values."""
    if not isinstance(node, tuple):
        return set()
    here = set[str]()
    match node:
        case Function(name):
            here = {name} - {"sqrt", "root", "abs"}
        case Factorial() | DoubleFactorial():
            here = {"!"}
        case Big(kind):
            here = {kind}
        case Call():
            here = {"call"}
    return here.union(*map(operations, node))


def canonical(node: Any, free: str = "+*") -> str:
    """A text in which sums and products (free: the operators) are sorted, to compare what cannot be evaluated."""
    if not isinstance(node, tuple):
        return repr(node)
    if not isinstance(node, Node):
        return f"({','.join(canonical(part, free) for part in node)})"
    if isinstance(node, Number):
        return str(node.value)
    parts = [canonical(part, free) for part in node.parts]
    return f"{node.sign}({','.join(sorted(parts) if node.sign in free else parts)})"


def numeral(node: Any) -> str:
    """int, dec, frac, mixed, rep, sci, scaled or ten (a power) for a number written as a result; "" if yet to be
    computed."""
    match node:
        case Number(_, form):
            return form
        case Negative(inner):
            return numeral(inner)
        case Quotient(top, Number(bottom, "int")) if bottom == 1:
            return numeral(top)
        case Quotient(top, bottom) if {numeral(top), numeral(bottom)} <= {"int", "dec", "frac"}:
            return "frac"
    return ""


def leaves(node: Any) -> int:
    """Numbers, symbols and constants of a tree."""
    if not isinstance(node, tuple) or not node:
        return 0
    return 1 if isinstance(node, (Number, Symbol, Constant)) else sum(map(leaves, node))
