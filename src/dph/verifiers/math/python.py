"""Parses expressions in Python notation into sympy without evaluating them as Python.

sympy's own `parse_expr` passes the text to `eval`, including attribute access and calls. Here sympy's tokenizer only
rewrites the text. The result is parsed to a syntax tree, and only numbers, names, operators, sets and the calls listed
below are built from it.
"""

import ast
import operator
from collections.abc import Callable
from typing import Any

import sympy
from sympy.parsing import sympy_parser

_CONSTANTS: dict[str, Any] = {"pi": sympy.pi, "E": sympy.E, "I": sympy.I, "oo": sympy.oo}
_FUNCTIONS: dict[str, Any] = {
    name: getattr(sympy, name)
    for name in (
        "sqrt", "cbrt", "root", "Abs", "sin", "cos", "tan", "sec", "csc", "cot", "asin", "acos", "atan", "sinh", "cosh",
        "tanh", "log", "ln", "exp", "factorial", "Rational", "Max", "Min",
    )
}  # fmt: skip
_MADE_BY_TOKENIZER: dict[str, Any] = {name: getattr(sympy, name) for name in ("Symbol", "Integer", "Float")}
_KNOWN = _CONSTANTS | _FUNCTIONS | _MADE_BY_TOKENIZER
_OPERATIONS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_COLLECTIONS: dict[type[ast.AST], Callable[..., Any]] = {ast.Tuple: tuple, ast.List: list, ast.Set: set}


def read_python(text: str) -> Any:
    """A sympy object, or a tuple, list or set of them.

    Raises any error of the tokenizer, the Python parser or sympy, and ValueError for anything but numbers, names and
    known functions.
    """
    code = sympy_parser.stringify_expr(text.strip(), {}, dict(_KNOWN), sympy_parser.standard_transformations)
    return _build(ast.parse(code, mode="eval").body)


def _build(node: ast.AST) -> Any:
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return sympy.Integer(value)
        case ast.Name(id=name):
            return _CONSTANTS[name]
        case ast.BinOp(left=left, op=operation, right=right):
            return _OPERATIONS[type(operation)](_build(left), _build(right))
        case ast.UnaryOp(op=operation, operand=operand):
            return _OPERATIONS[type(operation)](_build(operand))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _call(name, arguments)
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            return _COLLECTIONS[type(node)](map(_build, elements))
    raise ValueError(f"not read: {type(node).__name__}")


def _call(name: str, arguments: list[ast.expr]) -> Any:
    if name in _MADE_BY_TOKENIZER:  # Symbol('x'), Integer(2), Float('1.5'): plain values, which sympy does not evaluate
        return _MADE_BY_TOKENIZER[name](*(ast.literal_eval(argument) for argument in arguments))
    return _FUNCTIONS[name](*map(_build, arguments))
