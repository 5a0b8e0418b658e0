r"""The tree of an answer's mathematics, and what one can ask of it.

Nodes are tuples: ("n", Fraction, form) a number, a decimal one with the exponent of its last digit (and, for a × 10^n,
with n), a fraction with what it can be reduced by;
("s", name) a symbol; ("c", "pi" | "e" | "i" | "inf") a constant;
("+", a, b, …) ("*", a, b, …) ("/", a, b) ("^", a, b) ("-", a) ("pm", a, sign) ("!", a) ("%", a) ("deg", a)
("f", name, args …) ("call", name, args …) ("seq", open, items, close) ("set", items) ("matrix", rows) ("cases", rows)
("where", item, conditions, links) ("rel", sides, operators) ("mod", a, modulus) ("setop", operator, a, b)
("named", set) ("ratio", terms) ("text", words) ("unit", value, words) ("units", quantities …)
("big", kind, sub, sup, body).
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from math import gcd
from typing import Any

from mathequal.text import word_list

Node = tuple[Any, ...]
_LARGEST = 4000  # decimal exponent


class ParseError(ValueError):
    """The text is not an answer that the grammar knows."""


PI, INFINITY = ("c", "pi"), ("c", "inf")


def integer_node(number: int) -> Node:
    return ("n", Fraction(number), "int")


def _decimal(digits: str) -> Fraction:
    if not 0 < len(digits.rstrip(".")) <= 1500:
        raise ParseError("long number")
    whole, _, places = digits.partition(".")
    return Fraction(int(whole + places), 10 ** len(places)) if places else Fraction(int(whole))


def decimal_node(text: str) -> Node:
    """The number that digits write, with a decimal point or an exponent."""
    digits, _, exponent = text.lower().partition("e")
    places = len(digits.partition(".")[2])
    if not exponent:
        return ("n", _decimal(digits), "dec", -places) if places else ("n", _decimal(digits), "int")
    if abs(int(exponent)) > _LARGEST:
        raise ParseError("exponent")
    return ("n", _decimal(digits) * Fraction(10) ** int(exponent), "sci", int(exponent) - places, int(exponent))


def repeating(text: str) -> Node:
    r"""0.1\overline{6}, 0.1(6) and 0.\dot{1}4\dot{2}."""
    whole, _, rest = re.sub(r"[\s{})]", "", text).partition(".")
    before, _, period = re.sub(r"\\(?:overline|bar|dot)|\(", "|", rest, count=1).partition("|")
    period = period.replace(r"\dot", "")
    if len(before) + len(period) > 300:
        raise ParseError("long number")
    tail = Fraction(int(before or 0)) + Fraction(int(period), 10 ** len(period) - 1)
    return ("n", int(whole or 0) + tail / 10 ** len(before), "rep")


def fraction(top: Node, bottom: Node) -> Node:
    """A quotient; a number if both are written as one."""
    if top[0] == bottom[0] == "n" and {top[2], bottom[2]} <= {"int", "dec"} and bottom[1]:
        common = gcd(int(top[1]), int(bottom[1])) if top[2] == bottom[2] == "int" else 2
        return top if bottom[1] == 1 else ("n", top[1] / bottom[1], "frac", common)
    return ("/", top, bottom)


def ten_power(exponent: Node) -> Node:
    """A power of ten; a number if the exponent is a whole one."""
    if exponent[0] == "n" and exponent[1].denominator == 1 and abs(exponent[1]) <= _LARGEST:
        return ("n", Fraction(10) ** int(exponent[1]), "ten", int(exponent[1]))
    return ("^", integer_node(10), exponent)


def times(left: Node, right: Node) -> Node:
    """A product; a number for 4.5 × 10^33."""
    if left[0] == right[0] == "n" and left[2] == "ten":
        left, right = right, left
    if left[0] == right[0] == "n" and right[2] == "ten" and left[2] in ("int", "dec"):
        return ("n", left[1] * right[1], "sci", right[3] + (left[3] if len(left) > 3 else 0), right[3])
    return ("*", *(left[1:] if left[0] == "*" else (left,)), right)


def signed(signs: str, node: Node) -> Node:
    if signs in ("p", "m"):
        return ("pm", node, signs)
    if signs.count("-") % 2 == 0:
        return node
    return ("n", -node[1], *node[2:]) if node[0] == "n" and node[2] != "frac" else ("-", node)


def holds(node: Any, *kinds: str) -> bool:
    """Whether a node of one of these kinds is in a tree."""
    if not isinstance(node, tuple) or not node:
        return False
    # k = 1 below a sum is not a relation of the answer, and words after a value are not nodes
    parts = node[3:] if node[0] == "big" else node[:2] if node[0] == "unit" else node
    return node[0] in kinds or any(holds(part, *kinds) for part in parts if isinstance(part, tuple))


def replaced(node: Any, new: Mapping[Node, Node]) -> Any:
    """A tree in which some nodes are others."""
    if not isinstance(node, tuple):
        return node
    return new[node] if node in new else tuple(replaced(part, new) for part in node)


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


def canonical(node: Any, free: str = "+*") -> str:
    """A text in which sums and products (free: the operators) are sorted, to compare what cannot be evaluated."""
    if not isinstance(node, tuple) or not node:
        return repr(node)
    if node[0] == "n":
        return str(node[1])
    parts = [canonical(part, free) for part in node[1:]]
    return f"{node[0]}({','.join(sorted(parts) if node[0] in [*free] else parts)})"


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


def contains_pi(node: Node) -> bool:
    return repr(PI) in repr(node)


_NOT_IN_EXPRESSIONS = {*word_list("text rel seq set named ratio where setop unit units pm mod cases matrix")}


def rational_node(value: Fraction) -> Node:
    return ("n", value, "int") if value.denominator == 1 else ("n", value, "frac", 1)


def with_sign(node: Any, sign: str) -> Any:
    """The expression with its plus-minus signs read as "p" or "m"."""
    if not isinstance(node, tuple):
        return node
    if node and node[0] == "pm" and len(node) == 3:
        inner = with_sign(node[1], sign)
        return inner if node[2] == sign else ("-", inner)
    return tuple(with_sign(part, sign) for part in node)


def are_expressions(*nodes: Node) -> bool:
    """Whether nodes are expressions only."""
    return not any(holds(node, *_NOT_IN_EXPRESSIONS) for node in nodes)
