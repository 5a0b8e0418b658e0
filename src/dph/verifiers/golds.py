"""Gold answers of the built-in verifiers: text or a finite number, or a list of these, each of which is accepted."""

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from math import isfinite
from typing import Any

from dph.types import Problem


def gold_list(answer: Any) -> list[Any]:
    """The accepted answers of a problem: the items of a list, or its only answer."""
    return [*answer] if isinstance(answer, list | tuple) else [answer]


def gold_fault(answer: Any) -> str:
    """Why no response can be compared with a gold answer; "" if one can. JSON's NaN, Infinity and true are faults."""
    if all(_is_gold(item) for item in gold_list(answer)):
        return ""
    return f"the answer must be text, a finite number, or a list of these, not {answer!r:.200}"


def gold_faults(problems: Sequence[Problem], texts: Callable[[Problem], Iterable[str]]) -> dict[str, str]:
    """The problems that no response can solve, because their answer has a fault or is empty: id → reason.

    texts: the accepted answers of a problem, as a verifier compares them.
    """
    faults = {p.id: gold_fault(p.answer) or ("" if any(texts(p)) else "the answer is empty") for p in problems}
    return {id: fault for id, fault in faults.items() if fault}


def _is_gold(value: Any) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, str | int) and not isinstance(value, bool)


def gold_text(gold: Any) -> str:
    """An accepted answer as text. A float is written in digits only: in 1e-05, the e would be Euler's number."""
    return f"{Decimal(str(gold)):f}" if isinstance(gold, float) else str(gold)
