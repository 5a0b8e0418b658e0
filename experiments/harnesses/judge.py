"""Countdown's rule for the harnesses: an expression of the given numbers, each used at most once, with the target."""

import ast
import operator
from collections import Counter
from fractions import Fraction
from typing import Any

_OPERATORS: dict[type[ast.operator], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def right(text: str, numbers: list[int], target: int) -> bool:
    """Whether the text is such an expression. Nothing is executed."""
    used = Counter[int]()

    def value(node: ast.expr) -> Fraction:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            used[node.value] += 1
            return Fraction(node.value)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        raise ValueError(text)

    try:
        reached = value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError):
        return False
    return reached == target and not used - Counter(numbers)


def graded(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """The verdict of a document, as lm-eval's `process_results`."""
    return {"acc": float(right(results[0], doc["numbers"], int(doc["answer"])))}
