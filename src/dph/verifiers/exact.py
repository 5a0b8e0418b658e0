"""The exact verifier: the answer is the last line of the response, or the whole response."""

from collections.abc import Sequence
from typing import Literal

from dph.errors import UserError
from dph.types import Outcome, Problem, Verdict
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
        """Problems that no response could solve because their answer is empty: id → reason."""
        return {p.id: "the answer is empty" for p in problems if not any(text.strip() for text in _answers(p))}

    def close(self) -> None:
        """Does nothing: this verifier holds no resources."""

    def _judge(self, problem: Problem, text: str) -> Verdict:
        if not text:
            return Verdict(Outcome.NO_ANSWER, 0.0, "empty response")
        given = text if self._part == "whole" else text.splitlines()[-1].strip()
        if given in {answer.strip() for answer in _answers(problem)}:
            return Verdict(Outcome.CORRECT, 1.0)
        return Verdict(Outcome.WRONG, 0.0)


def _answers(problem: Problem) -> list[str]:
    answers = problem.answer if isinstance(problem.answer, list | tuple) else [problem.answer]
    return [str(answer) for answer in answers]


register_verifier("exact")(ExactVerifier)
