"""The verifier `countdown`: one expression of given numbers, each used at most once, that equals the target.

A response is correct if it is an expression of whole numbers, + - * / and brackets, and nothing else, that uses only
numbers of `Problem.meta["numbers"]` (or "nums") and has exactly the value `Problem.answer`, or one of its items.
Python's parser reads it, if it has no other characters; no text is executed.
"""

import ast
import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from numbers import Number
from typing import Any

from dph.types import Outcome, Problem, Verdict
from dph.verifiers.exact import gold_list
from dph.verifiers.protocol import register_verifier
from dph.verifiers.thoughts import without_thoughts

Tree = int | tuple[str, "Tree", "Tree"]
"""A number, or (operator, left, right)."""
Body = int | tuple[str, tuple[tuple[int, "Body"], ...]]
"""A number; ("+", terms with their signs); or ("*", factors with their powers, 1 or -1)."""
Form = tuple[int, Body]
"""A sign and a body: what all ways to write one solution share."""

LONGEST = 200
"""Longer responses, in characters, are not read. This bounds the size of trees and numbers too."""
_UNREADABLE = "not an expression"
_TOKENS = re.compile(r"(?: |(?<![0-9])(?:0|[1-9][0-9]*)(?![0-9])|[-+*/()])+")
_OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+|/0*[1-9][0-9]*)?")


def parse(text: str) -> Tree | None:
    """The tree of an expression, grouped from the left; None if the text is not one, or is too long.

    >>> parse("(3 + 4) * 5") is not None, parse("3 +") is None
    (True, True)
    """
    text = text.strip()
    if len(text) > LONGEST or not _TOKENS.fullmatch(text):
        return None
    try:
        return _tree(ast.parse(text, mode="eval").body)
    except SyntaxError:
        return None


def _tree(node: ast.expr) -> Tree | None:
    """The tree of a parsed text; None if it has more than numbers and binary operators, such as a sign or a power."""
    if isinstance(node, ast.Constant):
        return int(node.value)  # type: ignore[arg-type]
    if not isinstance(node, ast.BinOp) or type(node.op) not in _OPERATORS:
        return None
    left, right = _tree(node.left), _tree(node.right)
    return None if left is None or right is None else (_OPERATORS[type(node.op)], left, right)


def value(tree: Tree) -> Fraction | None:
    """The exact value; None if a division by zero occurs.

    >>> value(parse("(3 + 4) * 5"))
    Fraction(35, 1)
    """
    if isinstance(tree, int):
        return Fraction(tree)
    operator, left, right = tree[0], value(tree[1]), value(tree[2])
    if left is None or right is None or (operator == "/" and right == 0):
        return None
    if operator in "+-":
        return left + right if operator == "+" else left - right
    return left * right if operator == "*" else left / right


def numbers(tree: Tree) -> list[int]:
    """The numbers that an expression uses, from left to right.

    >>> numbers(parse("(3 + 4) * 5"))
    [3, 4, 5]
    """
    return [tree] if isinstance(tree, int) else numbers(tree[1]) + numbers(tree[2])


def write(tree: Tree) -> str:
    """The expression with the brackets that it needs, and no others.

    >>> write(parse("((3)+4)*5"))
    '(3+4)*5'
    """
    if isinstance(tree, int):
        return str(tree)
    operator, left, right = tree
    before, after = write(left), write(right)
    if operator in "*/" and isinstance(left, tuple) and left[0] in "+-":
        before = f"({before})"
    if isinstance(right, tuple) and (operator == "/" or (operator in "*-" and right[0] in "+-")):
        after = f"({after})"
    return before + operator + after


def canonical(tree: Tree) -> str:
    """A text that two expressions share if they are one solution: they differ in the order of terms or factors, in
    brackets, as a-(b-c) and a-b+c do, in two changes of sign, as (a-b)*(c-d) and (b-a)*(d-c) do, or as x*1 and x/1.

    >>> canonical(parse("4 + 3")) == canonical(parse("3 + 4"))
    True
    """
    return form_text(form_of(tree))


def form_of(tree: Tree) -> Form:
    """The form of an expression."""
    return (1, tree) if isinstance(tree, int) else joined(tree[0], form_of(tree[1]), form_of(tree[2]))


def joined(operator: str, left: Form, right: Form) -> Form:
    """The form of two expressions that an operator joins."""
    kind, place = ("+" if operator in "+-" else "*"), (-1 if operator in "-/" else 1)
    parts: list[tuple[int, Body]] = []
    for exponent, (sign, body) in ((1, left), (place, right)):
        inner = body[1] if isinstance(body, tuple) and body[0] == kind else ((1, body),)
        factor = exponent * sign if kind == "+" else exponent
        parts += [(1 if kind == "*" and part == 1 else factor * mark, part) for mark, part in inner]
    if kind == "*":
        return left[0] * right[0], (kind, _ordered(parts))
    # Of a sum and its negative, the one whose text comes first is the body.
    ways = [(sign, (kind, _ordered([(sign * mark, part) for mark, part in parts]))) for sign in (1, -1)]
    return min(ways, key=lambda way: _text(way[1]))


def _ordered(parts: list[tuple[int, Body]]) -> tuple[tuple[int, Body], ...]:
    return tuple(sorted(parts, key=lambda part: (_text(part[1]), -part[0])))


def form_text(form: Form) -> str:
    """A form as text."""
    return ("-" if form[0] < 0 else "") + _text(form[1])


@lru_cache(maxsize=1 << 18)
def _text(body: Body) -> str:
    if isinstance(body, int):
        return str(body)
    marks = {1: body[0], -1: {"+": "-", "*": "/"}[body[0]]}
    return "(" + "".join(marks[mark] + _text(part) for mark, part in body[1]) + ")"


def read(problem: Problem, response: str) -> tuple[Tree | None, str]:
    """The tree of a response that uses only given numbers, each at most once, and ""; or None and the reason."""
    tree = parse(without_thoughts(response, problem.prompt))
    if tree is None:
        return None, _UNREADABLE
    if Counter[Any](numbers(tree)) - Counter(_given(problem)):
        return None, "uses a number that is not given, or too often"
    return tree, ""


class CountdownVerifier:
    """Correct iff the response is an expression of given numbers, each at most once, that equals the target."""

    def verify(self, items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        return [self._judge(problem, response) for problem, response in items]

    def solutions(self, items: Sequence[tuple[Problem, str]]) -> list[str | None]:
        """The canonical form of each response, and None for one that breaks a rule: see `Verifiers.tell`."""
        trees = [None if _fault(problem) else read(problem, response)[0] for problem, response in items]
        return [None if tree is None else canonical(tree) for tree in trees]

    def check(self, problems: Sequence[Problem]) -> dict[str, str]:
        """Problems without numbers or a target to compare with: id → reason."""
        return {problem.id: fault for problem in problems if (fault := _fault(problem))}

    def close(self) -> None:
        """Does nothing: this verifier holds no resources."""

    def _judge(self, problem: Problem, response: str) -> Verdict:
        if fault := _fault(problem):
            return Verdict(Outcome.GOLD_ERROR, 0.0, fault)
        tree, reason = read(problem, response)
        if tree is None:
            return Verdict(Outcome.NO_ANSWER if reason == _UNREADABLE else Outcome.WRONG, 0.0, reason)
        result = value(tree)
        if result in map(_exact, gold_list(problem.answer)):
            return Verdict(Outcome.CORRECT, 1.0)
        return Verdict(Outcome.WRONG, 0.0, "divides by zero" if result is None else f"equals {result}")


def _fault(problem: Problem) -> str:
    """Why no response can be judged; "" if one can."""
    given = _given(problem)
    if not given or any(n is None or n < 0 or n.denominator != 1 for n in given):
        found = problem.meta.get("numbers", problem.meta.get("nums"))
        return f"meta needs 'numbers', a list of whole numbers that are not negative, not {found!r:.100}"
    if None in map(_exact, gold_list(problem.answer) or [None]):
        return f"the answer must be a whole number or a fraction such as 7/2, not {problem.answer!r:.100}"
    return ""


def _given(problem: Problem) -> list[Fraction | None]:
    """The given numbers, None for what is not a number: a list, an array, or the text of one, as in a CSV file."""
    given: Any = problem.meta.get("numbers", problem.meta.get("nums"))
    if isinstance(given, str):
        words = re.sub(r"[\[\](),]", " ", given).split()
        given = words if len(words) > 1 or given.lstrip().startswith("[") else None
    return [] if given is None or isinstance(given, Number) else [_exact(number) for number in gold_list(given)]


def _exact(number: Any) -> Fraction | None:
    """The value of a number of whatever type, or of its text; None for anything else."""
    if type(number) is int:
        return Fraction(number)
    written = str(number).strip() if isinstance(number, str | Number) else ""
    return Fraction(written) if len(written) <= LONGEST and _NUMBER.fullmatch(written) else None


register_verifier("countdown")(CountdownVerifier)
