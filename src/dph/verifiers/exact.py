"""The exact verifier, which compares texts; and the built-in verifiers' gold answers: text, numbers, lists of these."""

from collections.abc import Callable, Iterable, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from math import isfinite
from numbers import Complex, Integral, Number, Real
from typing import Any, Literal

from dph.errors import UserError
from dph.types import Outcome, Problem, Verdict
from dph.verifiers.protocol import register_verifier
from dph.verifiers.thoughts import without_thoughts

_MOST_DIGITS = 4000  # of a whole number that Python writes


def gold_list(answer: Any) -> list[Any]:
    """The accepted answers of a problem: the items of a list, an array or a tensor, or its only answer.

    >>> gold_list(["4", "four"]), gold_list(4)
    (['4', 'four'], [4])
    """
    answer = plain(answer)
    several = isinstance(answer, list) or getattr(answer, "shape", ())
    return [plain(item) for item in answer] if several else [answer]


def plain(value: Any) -> Any:
    """A value without the types of torch and Arrow, and without an array around one item; a complex number, and one
    that Python does not write, as verifiers take it.

    >>> import numpy
    >>> plain(numpy.array("4")), plain((1, 2))
    (np.str_('4'), [1, 2])
    """
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "as_py") or hasattr(value, "to_pylist"):  # of Arrow
        return plain(value.as_py() if hasattr(value, "as_py") else value.to_pylist())
    if hasattr(value, "detach"):  # of torch; numpy has no bfloat16
        value = (value.float() if "bfloat16" in str(value.dtype) else value).numpy(force=True)
    if not isinstance(value, str | Number) and getattr(value, "shape", None) == ():
        value = value[()]  # numpy's own number, which is written as it was meant
    if isinstance(value, int) and abs(value) > 10**_MOST_DIGITS:
        return Decimal(value)
    return complex(value) if isinstance(value, Complex) and not isinstance(value, Real) else value


def gold_fault(answer: Any) -> str:
    """Why no response can be compared with a gold answer; "" if one can. JSON's NaN, Infinity and true are faults.

    >>> gold_fault(0.5), gold_fault(["4", "four"])
    ('', '')
    >>> gold_fault(True)
    'the answer must be text, a finite number, or a list of these, not True'
    """
    if all(isinstance(item, str) or _is_finite(item) for item in gold_list(answer)):
        return ""
    return f"the answer must be text, a finite number, or a list of these, not {shown_value(answer)}"


def shown_value(value: Any) -> str:
    """A value of a file in a message: as JSON's are written, another one by its kind and its text.

    >>> from datetime import date
    >>> shown_value([True, None]), shown_value(date(2020, 1, 2))
    ('[True, None]', 'a date (2020-01-02)')
    """
    if isinstance(value, date | time | timedelta):
        kind = "time" if isinstance(value, time) else "duration" if isinstance(value, timedelta) else "date"
        return f"a {kind} ({value!s:.200})"
    return f"bytes, {value!r:.200}" if isinstance(value, bytes) else f"{value!r:.200}"


def _is_finite(item: Any) -> bool:
    """Whether an item is a finite number, of whatever type."""
    if isinstance(item, bool) or not isinstance(item, Number):
        return False
    try:
        return isinstance(item, Integral) or isfinite(item)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):  # a complex number, a signalling NaN, a fraction of huge numbers
        return False


def gold_faults(problems: Sequence[Problem], texts: Callable[[Problem], Iterable[str]]) -> dict[str, str]:
    """The problems that no response can solve, because their answer has a fault or is empty: id → reason.

    texts: the accepted answers of a problem, as a verifier compares them.
    """
    faults = {p.id: gold_fault(p.answer) or ("" if any(texts(p)) else "the answer is empty") for p in problems}
    return {id: fault for id, fault in faults.items() if fault}


def gold_text(gold: Any) -> str:
    """An accepted answer as text. A number is written in digits only: in 1e-05, the e would be Euler's number.

    >>> gold_text(1e-05), gold_text("1e-05")
    ('0.00001', '1e-05')
    """
    written = str(gold)
    return f"{Decimal(written):f}" if isinstance(gold, Number) and "/" not in written else written


def plain_gold(answer: Any) -> Any:
    """A gold answer of a file as JSON has it: decimal numbers, which it lacks, as text.

    >>> from fractions import Fraction
    >>> plain_gold(["4", Fraction(1, 2)])
    ['4', '1/2']
    """
    items = [item if isinstance(item, str | int | float) else gold_text(item) for item in gold_list(answer)]
    return items if isinstance(answer, list | tuple) else items[0]


class ExactVerifier:
    """Correct iff the stripped text equals `Problem.answer`, or one of its items if it is a list. A number that is not
    an integer may also be written in digits only, without zeros at its end: 42 for 42.0."""

    def __init__(self, *, part: Literal["last_line", "whole"] = "last_line") -> None:
        """part: what is compared, the last non-blank line (of a gold with several lines, as many) or the whole
        response."""
        if part not in ("last_line", "whole"):
            raise UserError(f"the exact verifier's option part must be last_line or whole, not {part!r}")
        self._part = part

    def verify(self, items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        return [self._judge(problem, response) for problem, response in items]

    def check(self, problems: Sequence[Problem]) -> dict[str, str]:
        """Problems whose answer is empty, or neither text nor a number: id → reason."""
        return gold_faults(problems, _answers)

    def close(self) -> None:
        """Does nothing: this verifier holds no resources."""

    def _judge(self, problem: Problem, response: str) -> Verdict:
        if fault := gold_faults([problem], _answers).get(problem.id):
            return Verdict(Outcome.GOLD_ERROR, 0.0, fault)
        tagged = any(answer != without_thoughts(answer) for answer in _answers(problem))
        text = (response if tagged else without_thoughts(response, problem.prompt)).strip()
        if not text:
            return Verdict(Outcome.NO_ANSWER, 0.0, "empty response")
        if any(answer and self._matches(text, answer) for answer in _answers(problem)):
            return Verdict(Outcome.CORRECT, 1.0)
        return Verdict(Outcome.WRONG, 0.0)

    def _matches(self, text: str, answer: str) -> bool:
        if self._part == "whole":
            return text == answer
        lines = answer.splitlines()
        return _joined(text.splitlines()[-len(lines) :]) == _joined(lines)


def _joined(lines: Sequence[str]) -> str:
    return "\n".join(line.rstrip() for line in lines).strip()


def _answers(problem: Problem) -> set[str]:
    """What a response may say."""
    golds = gold_list(problem.answer)
    digits = {gold_text(gold) for gold in golds if isinstance(gold, Number)}
    short = {text.rstrip("0").rstrip(".") for text in digits if "." in text}
    return {str(gold).strip() for gold in golds} | digits | short


register_verifier("exact")(ExactVerifier)
