"""What an equation gives: which left sides only name the right one, as x = 5, P(A) = 1/2 and m + n = 7 do."""

import re
from typing import Any

from mathequal.nodes import (
    Big,
    Brackets,
    Call,
    Constant,
    Function,
    Negative,
    Node,
    Number,
    Power,
    Product,
    Quotient,
    Ratio,
    SetOperation,
    Sum,
    Symbol,
    Words,
)
from mathequal.tokens import FUNCTIONS
from mathequal.trees import parts_of, symbols
from mathequal.units import introduces

DERIVATIVE = re.compile(r"\\?frac(?:d|\\?partial)(?:\^\d)?(?:d|\\?partial)[a-z]")
"""The name of d/dx, without a function in it."""


def is_name(node: Any) -> bool:
    """Whether the left side of an equation only names the right side."""
    match node:
        case Symbol() | Call() | Constant("e" | "i"):
            return True
        case Words(words):
            return introduces(words.split())
        case SetOperation(_, left, right):
            return isinstance(left, Symbol) and isinstance(right, Symbol)
        case Power(Symbol(name), Symbol("c" | "C")):  # the complement of A
            return name.isupper()
        case Ratio(parts):
            return all(map(is_name, parts))
        case Quotient(parts=parts):
            return all(
                is_name(part) and (isinstance(part, Product) or str(part.parts[0])[0].isupper()) for part in parts
            )
        case Product([Symbol(name), *_]) if DERIVATIVE.match(name):  # the derivative of what follows
            return True
        case Product(parts):
            return len(parts) < 6 and all(
                isinstance(part, Symbol) and len(part.name) == 1 and part.name.isupper() for part in parts
            )
        case Brackets(_, parts, _):
            return all(isinstance(part, (Symbol, Constant)) and is_name(part) for part in parts)
        case Power(Symbol(name), Number(power, detail=None)):
            return power == -1 and name[0].isupper()
        case Function("abs", [inner]):
            return is_name(inner) and not re.fullmatch("[a-y]", str(inner.parts[0]))
        case Function("norm" | "gcd" | "lcm" | "max" | "min" | "det", inner):
            return all(map(is_name, inner))
    return False


def names_are_reversed(name: Node | None, question: str) -> bool:
    """Whether the name of a ratio, girls : boys, has the terms of the question's ratio in the other order."""
    match name:
        case Ratio([Words(first), Words(second)]):
            first, second = (re.escape(word.strip().lower()) for word in (first, second))
            between = r"(?:\w+ ){0,2}(?:to|:|and)(?: the)? (?:\w+ )?"
            asked = question.lower()
            return bool(re.search(rf"\b{second}\w* {between}{first}", asked)) and not re.search(
                rf"\b{first}\w* {between}{second}", asked
            )
    return False


def is_of_capitals(node: Node) -> bool:
    """Whether powers and products of capital letters name a matrix: M^T, A^2 and (AB)^{-1}, but no sum and no 2A."""
    match node:
        case Symbol(name):
            return re.fullmatch(r"[A-Z](?:_\w+)?", name) is not None
        case Power(base, Number() | Symbol() | Words("T")):
            return is_of_capitals(base)
        case Product(factors):
            return all(map(is_of_capitals, factors))
    return False


def gives_value(node: Any) -> bool:
    """Whether an equation gives a value, as m + n = 5: no number but exponents, no power or function of one symbol."""
    match node:
        case Big() | Function("norm" | "gcd" | "lcm" | "max" | "min" | "det" | "binom"):
            return True
        case Power(Function(name, [_]), Number()) | Function(name, [_]) if name in FUNCTIONS:
            return name in ("sin", "cos", "tan", "cot", "sec", "csc")
        case Power(base, Number()):
            return isinstance(base, Product) and gives_value(base)
        case Sum(parts) | Product(parts) | Quotient(parts=parts):
            terms = [x.inner if isinstance(x, Negative) else x for x in parts]
            return all(gives_value(x) or is_name(x) or (isinstance(x, Power) and is_name(x.base)) for x in terms)
    return is_name(node)


def is_to_be_solved(node: Any) -> bool:
    """Whether an expression has one unknown, not only as the argument of a function: x² + x = 5."""
    known = (
        [part for part in parts_of(node) if isinstance(part, tuple)]
        if not isinstance(node, (Function, Big, Call))
        else []
    )
    return len(symbols(node)) == 1 and (isinstance(node, Symbol) or any(map(is_to_be_solved, known)))
