"""What an equation gives: which left sides only name the right one, as x = 5, P(A) = 1/2 and m + n = 7 do."""

import re

from mathequal.nodes import Node, symbols
from mathequal.tokens import FUNCTIONS
from mathequal.units import introduces


def is_name(node: Node | None) -> bool:
    """Whether the left side of an equation only names the right side."""
    match node:
        case ("s" | "call", *_) | ("c", "e" | "i"):
            return True
        case ("text", words):
            return introduces(words.split())
        case ("setop", _, *sides):
            return all(side[0] == "s" for side in sides)
        case ("^", ("s", name), ("s", "c" | "C")):  # the complement of A
            return name.isupper()
        case ("ratio", parts):
            return all(map(is_name, parts))
        case ("/", *parts):
            return all(is_name(part) and (part[0] == "*" or part[1][0].isupper()) for part in parts)
        case ("*", *parts):
            return len(parts) < 6 and all(part[0] == "s" and len(part[1]) == 1 and part[1].isupper() for part in parts)
        case ("seq", _, parts, _):
            return all(part[0] in ("s", "c") and is_name(part) for part in parts)
        case ("^", ("s", name), ("n", power, _)):
            return power == -1 and name[0].isupper()
        case ("f", "abs", inner):
            return is_name(inner) and not re.fullmatch("[a-y]", str(inner[1]))
        case ("f", "norm" | "gcd" | "lcm" | "max" | "min" | "det", *inner):
            return all(map(is_name, inner))
    return False


def is_of_capitals(node: Node) -> bool:
    """Whether powers and products of capital letters name a matrix: M^T, A^2 and (AB)^{-1}, but no sum and no 2A."""
    match node:
        case ("s", name):
            return re.fullmatch(r"[A-Z](?:_\w+)?", name) is not None
        case ("^", base, ("n", *_) | ("s", *_) | ("text", "T")):
            return is_of_capitals(base)
        case ("*", *factors):
            return all(map(is_of_capitals, factors))
    return False


def gives_value(node: Node) -> bool:
    """Whether an equation gives a value, as m + n = 5: no number but exponents, no power or function of one symbol."""
    match node:
        case ("big", *_) | ("f", "norm" | "gcd" | "lcm" | "max" | "min" | "det" | "binom", *_):
            return True
        case ("^", ("f", name, _), ("n", *_)) | ("f", name, _) if name in FUNCTIONS:
            return name in ("sin", "cos", "tan", "cot", "sec", "csc")
        case ("^", base, ("n", *_)):
            return base[0] == "*" and gives_value(base)
        case ("+" | "*" | "/", *parts):
            terms = [x[1] if x[0] == "-" else x for x in parts]
            return all(gives_value(x) or is_name(x) or (x[0] == "^" and is_name(x[1])) for x in terms)
    return is_name(node)


def is_to_be_solved(node: Node) -> bool:
    """Whether an expression has one unknown, not only as the argument of a function: x² + x = 5."""
    known = [part for part in node[1:] if isinstance(part, tuple)] if node[0] not in ("f", "big", "call") else []
    return len(symbols(node)) == 1 and (node[0] == "s" or any(map(is_to_be_solved, known)))
