r"""Do two mathematical answers say the same? ½ and 0.5 do; (1, 2) and (2, 1) do not.

    from mathequal import compare

    compare(r"\frac{1}{2}", "0.5")    # Judgement(equal=True, rule="values and units", detail="")
    compare("(1, 2)", "(2, 1)")       # Judgement(equal=False, rule="matrices and tuples", detail="")

Each answer is read as a value of a type: a number, an expression, a quantity, a list, an interval, and so on. The type
of the gold answer decides what is compared, and how. Neither answer is ever executed, and the work is bounded, so that
text by a language model is safe to judge. Importing this package loads none of the modules; a name loads its own.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mathequal.answers import Answer
    from mathequal.copied import is_copied
    from mathequal.explanation import Explanation, explain
    from mathequal.extract import find_answer
    from mathequal.judge import UNPARSED, Judgement, answer_key, compare
    from mathequal.rational import exact
    from mathequal.reading import read
    from mathequal.responses import Statement, statement

RULES_VERSION = 4
"""The version of the rules of judging: it is raised with every change that could change a verdict."""

_HOMES = {
    "Answer": "answers",
    "Explanation": "explanation",
    "Judgement": "judge",
    "Statement": "responses",
    "UNPARSED": "judge",
    "answer_key": "judge",
    "compare": "judge",
    "exact": "rational",
    "explain": "explanation",
    "find_answer": "extract",
    "is_copied": "copied",
    "read": "reading",
    "statement": "responses",
}
"""The module of each name."""

__all__ = [
    "RULES_VERSION",
    "UNPARSED",
    "Answer",
    "Explanation",
    "Judgement",
    "Statement",
    "answer_key",
    "compare",
    "exact",
    "explain",
    "find_answer",
    "is_copied",
    "read",
    "statement",
]


def __getattr__(name: str) -> Any:
    """Load a public name at its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'mathequal' has no attribute {name!r}")
    value = getattr(import_module(f"mathequal.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
