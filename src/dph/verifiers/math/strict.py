r"""What the policy `strict` asks of an answer besides math-verify's verdict: that it be of the gold answer's kind.

math-verify compares values. It passes over units, bases, the kind of a bracket, words, and all sides of an equation but
the last; and it evaluates what an answer only restates (\binom{5}{2} for 10). Training finds such gaps. The rules here
read both answers as text, and each can only refuse. docs/concepts/verifiers.md lists them.
"""

import re
from collections.abc import Callable, Mapping

from dph.verifiers.math.strict_text import AnswerText, read_answer

_PERCENT = ("percent", 1)
_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)"
_TEN = r"10\^(?:\d|\{-?\d{1,3}\})"
_INTEGER = re.compile(r"[-+]?\d+(?:\.0*)?")
_DECIMAL = re.compile(rf"[-+]?(?:{_NUMBER}(?:\\overline\{{\d+\}})?(?:(?:\\times|\\cdot){_TEN})?|{_TEN}|\\infty)")
_RATIO = re.compile(rf"[-+]?\d*\\frac(?:\{{-?{_NUMBER}\}}|\d)(?:\{{-?{_NUMBER}\}}|\d)|[-+]?{_NUMBER}[/:]{_NUMBER}")
_VARIABLE = re.compile(r"(?<![\\A-Za-z])[A-Za-z](?![A-Za-z])")
_FUNCTION = re.compile(r"(?:sin|cos|tan|cot|sec|csc|log|ln)(?![a-z])")
_OPERATION = re.compile(
    r"\\(?:sum|prod|i*nt|lim|[td]?binom|gcd|lcm|max|min|[bp]?mod|det|[lr]floor|[lr]ceil|[lcv]?dots)(?![A-Za-z])|[!']"
)
_WITH_INFINITY = re.compile(r"\\infty ?(?:[-+*/^\d(]|\\(?:cdot|times|d?frac))|[\d)}] ?[-+*/^]? ?\\infty")


def _intervals(answer: AnswerText) -> dict[str, int]:
    return {kind: number for kind, number in answer.brackets.items() if kind != "{}"}


def _is_inequality(answer: AnswerText) -> bool:
    return "<" in answer.relations and not answer.brackets


def _same_brackets(given: AnswerText, gold: AnswerText) -> bool:
    several_names = len(gold.values) == gold.relations["="] > 1  # x = 1, y = 2 may be written (1, 2)
    return _intervals(given) == _intervals(gold) or not given.brackets or several_names


_RULES: Mapping[str, Callable[[AnswerText, AnswerText], bool]] = {
    "unit": lambda given, gold: not (given.units and gold.units) or given.units == gold.units,
    "words": lambda given, gold: not (given.words and gold.words) or bool(given.words & gold.words),
    "number in words": lambda given, gold: given.asides <= gold.asides,
    "base": lambda given, gold: given.bases == gold.bases,
    "operation": lambda given, gold: given.found(_OPERATION) <= gold.found(_OPERATION),
    "brackets": _same_brackets,
    "number of answers": lambda given, gold: given.count == gold.count,
    "relation": lambda given, gold: given.relations == gold.relations or given.unnamed == gold.unnamed,
    "function": lambda given, gold: bool(gold.found(_FUNCTION)) or not given.found(_FUNCTION),
    "variable": lambda given, gold: bool(given.found(_VARIABLE)) == bool(gold.found(_VARIABLE)),
    "number": lambda given, gold: not gold.numbers(_DECIMAL, _RATIO) or given.numbers(_DECIMAL, _RATIO),
    "arithmetic with infinity": lambda given, gold: given.found(_WITH_INFINITY) <= gold.found(_WITH_INFINITY),
    "whole number": lambda given, gold: _PERCENT in gold.units or not gold.numbers(_INTEGER) or given.numbers(_DECIMAL),
}
_NOT_FOR_INTERVALS = ("brackets", "number of answers", "relation", "variable")  # x < 1 is (-∞, 1)


def strict_fault(given: str, gold: str) -> str:
    """The name of the first rule by which an answer differs in kind from the gold answer; "" if it does not."""
    left, right = read_answer(given), read_answer(gold)
    alike = _is_inequality(left) == _is_inequality(right) or not (_intervals(left) or _intervals(right))
    rules = [name for name in _RULES if alike or name not in _NOT_FOR_INTERVALS]
    return next((name for name in rules if not _RULES[name](left, right)), "")
