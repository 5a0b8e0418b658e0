r"""The equality of the Qwen2.5-Math evaluation, on normalized answers (see `dph.verifiers.math.qwen_text`).

Two answers are equal if one of these rules says so: equal text; a choice letter; numbers to a relative 1e-4, including
a hundredth and a hundred times the gold answer (percentages); text without its brackets; tuples, intervals and matrices
element by element; an equation and a value; algebra last. Re-implemented from the grader's behaviour, oddities
included.
"""

import re
from collections.abc import Callable, Sequence
from math import isclose

from dph.verifiers.math.qwen_text import CHOICE_LETTERS, choice_letter

Algebra = Callable[[str, str], bool]
"""(given, gold) → whether algebra finds them equal."""

_TOLERANCE = 1e-4
_BRACKETED = re.compile(r"[(\[].+[)\]]")
_WITHOUT_BRACES = str.maketrans("", "", "{}()")
_OPENINGS = (r"\begin{pmatrix}", r"\begin{bmatrix}")
_CLOSINGS = (r"\end{pmatrix}", r"\end{bmatrix}")


def qwen_equal(given: str, gold: str, algebra: Algebra) -> bool:
    """Whether a normalized answer equals a normalized gold answer.

    The relation is not symmetric: the gold answer decides how choice letters, percentages and sets in braces are read.
    algebra: called if no other rule decides; its exceptions propagate.
    """
    if given.strip().lower() == gold.strip().lower():
        return True
    if gold in CHOICE_LETTERS and choice_letter(given) == gold:
        return True
    numbers = as_number(given), as_number(gold)
    if numbers[0] is not None and numbers[1] is not None:
        return _numbers_equal(numbers[0], numbers[1])
    given, gold = given.strip(), gold.strip()
    if not given:
        return False
    if "pmatrix" in given and "pmatrix" not in gold:
        gold = _braces_to_matrix(gold)
    return (
        _equal_but_for_brackets(given, gold)
        or _elements_equal(given, gold, algebra)
        or _matrices_equal(given, gold, algebra)
        or _equations_equal(given, gold, algebra)
        or algebra(given, gold)
    )


def as_number(text: str) -> float | None:
    r"""The value of a decimal number (thousands commas, exponents and a closing % or \% are read), or None."""
    text = text.replace(",", "")
    try:
        return float(text)
    except ValueError:
        if not text.endswith("%"):
            return None
    try:
        return float(text[:-1].removesuffix("\\")) / 100
    except ValueError:
        return None


def _numbers_equal(given: float, gold: float) -> bool:
    return any(isclose(value, given, rel_tol=_TOLERANCE) for value in (gold / 100, gold, gold * 100))


def _equal_but_for_brackets(given: str, gold: str) -> bool:
    square = given.startswith("[") and given.endswith("]") and not gold.startswith("(")
    round_ = given.startswith("(") and given.endswith(")") and not gold.startswith("[")
    if square or round_:
        given, gold = given.strip("[]()"), gold.strip("[]()")
    return given.translate(_WITHOUT_BRACES).lower() == gold.translate(_WITHOUT_BRACES).lower()


def _elements_equal(given: str, gold: str, algebra: Algebra) -> bool:
    """Tuples and intervals: open and closed ends count as equal, and a comma inside an element splits it too."""
    if not (_BRACKETED.match(given) and _BRACKETED.match(gold)):
        return False
    return _all_equal(given[1:-1].split(","), gold[1:-1].split(","), algebra)


def _matrices_equal(given: str, gold: str, algebra: Algebra) -> bool:
    if not all(text.startswith(_OPENINGS) and text.endswith(_CLOSINGS) for text in (given, gold)):
        return False
    left, right = _matrix_rows(given), _matrix_rows(gold)
    return len(left) == len(right) and all(_all_equal(a, b, algebra) for a, b in zip(left, right, strict=True))


def _matrix_rows(text: str) -> list[list[str]]:
    body = text[len(_OPENINGS[0]) : -len(_CLOSINGS[0])]
    return [row.strip().split("&") for row in body.split(r"\\") if row.strip()]


def _all_equal(given: Sequence[str], gold: Sequence[str], algebra: Algebra) -> bool:
    if len(given) != len(gold):
        return False
    return all([qwen_equal(a, b, algebra) for a, b in zip(given, gold, strict=True)])


def _equations_equal(given: str, gold: str, algebra: Algebra) -> bool:
    """Compares two equations by the difference of their sides, up to sign; reads "x=5" (a name of up to two characters)
    as 5."""
    left, right = given.split("="), gold.split("=")
    if len(left) == len(right) == 2:
        first, second = (f"{a.strip()} - ({b.strip()})" for a, b in (left, right))
        return algebra(first, second) or algebra(f"-({first})", second)
    if len(left) == 2 and len(right) == 1 and len(left[0].strip()) <= 2:
        return qwen_equal(left[1], gold, algebra)
    if len(right) == 2 and len(left) == 1 and len(right[0].strip()) <= 2:
        return qwen_equal(given, right[1], algebra)
    return False


def _braces_to_matrix(gold: str) -> str:
    r"""Rewrite {1,2} as a column vector, its meaning if the answer is a matrix."""
    bodies = (found.strip("{}").replace(",", "\\") for found in re.findall(r"\{.*,.*\}", gold.strip()))
    return ", ".join(f"{_OPENINGS[0]}{body}{_CLOSINGS[0]}" for body in bodies)
