"""The exact verifier: the answer is the last line of the response, or the whole response."""

from collections.abc import Sequence
from typing import Literal

from dph.errors import UserError
from dph.types import Outcome, Problem, Verdict
from dph.verifiers.golds import gold_fault, gold_faults, gold_list
from dph.verifiers.protocol import register_verifier


class ExactVerifier:
    """Correct iff the stripped text equals `Problem.answer`, or one of its items if it is a list."""

    def __init__(self, *, part: Literal["last_line", "whole"] = "last_line") -> None:
        """part: what is compared, the last non-blank line or the whole response."""
        if part not in ("last_line", "whole"):
            raise UserError(f"the exact verifier's option part must be last_line or whole, not {part!r}")
        self._part = part

    def verify(self, items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        return [self._judge(problem, response.strip()) for problem, response in items]

    def check(self, problems: Sequence[Problem]) -> dict[str, str]:
        """Problems whose answer is empty, or neither text nor a number: id → reason."""
        return gold_faults(problems, _answers)

    def close(self) -> None:
        """Does nothing: this verifier holds no resources."""

    def _judge(self, problem: Problem, text: str) -> Verdict:
        if not text:
            return Verdict(Outcome.NO_ANSWER, 0.0, "empty response")
        if fault := gold_fault(problem.answer):
            return Verdict(Outcome.GOLD_ERROR, 0.0, fault)
        given = text if self._part == "whole" else text.splitlines()[-1].strip()
        if given in _answers(problem):
            return Verdict(Outcome.CORRECT, 1.0)
        return Verdict(Outcome.WRONG, 0.0)


def _answers(problem: Problem) -> list[str]:
    return [str(gold).strip() for gold in gold_list(problem.answer)]


register_verifier("exact")(ExactVerifier)
