r"""The math verifier: the last \boxed{…} answer must be equivalent to the gold answer, or to one of several."""

import sys
from collections.abc import Sequence

from dph.errors import UserError
from dph.types import Outcome, Problem, Verdict
from dph.verifiers.lru import LRU
from dph.verifiers.math_answer import Fallback, equal_at_sight, extract_answer, normalize
from dph.verifiers.protocol import register_verifier
from dph.verifiers.sandbox import Request, WorkerPool, read_reply

_GRACE = 0.5  # seconds beyond the limit, for the pipe
_LONGEST = 2000  # characters; a longer "answer" is no answer to compare
_Question = tuple[tuple[str, ...], str]


class MathVerifier:
    """Judges mathematical answers; `Problem.answer` is one answer or a list of which any will do.

    Equal text and numbers are settled at once; the rest goes to math-verify in killable worker processes, so that
    9^{9^{9}} costs the time limit and nothing else. Verdicts are remembered.
    """

    def __init__(
        self,
        *,
        workers: int = 1,
        timeout: float = 5.0,
        memory_mb: int = 2048,
        fallback: Fallback = "none",
        cache_size: int = 65_536,
    ) -> None:
        r"""workers: processes; timeout: seconds for one comparison; memory_mb: of a worker; fallback: what answers a
        response without a \boxed, "none" or "last_number"; cache_size: verdicts remembered. Raises UserError for an
        impossible value."""
        if fallback not in ("none", "last_number"):
            raise UserError(f"the math verifier's option fallback must be none or last_number, not {fallback!r}")
        for name, value in {"workers": workers, "timeout": timeout, "memory_mb": memory_mb}.items():
            if value <= 0:
                raise UserError(f"the math verifier's option {name} must be positive, not {value}")
        self._fallback: Fallback = fallback
        self._timeout = timeout
        self._verdicts = LRU(cache_size)
        self._pool = WorkerPool("dph.verifiers.math_worker", {"memory_mb": memory_mb}, workers, sys.path)

    def verify(self, items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        """Judge (problem, response) pairs; equal comparisons run once.

        Outcomes: no_answer without a box; error where the algebra fails; timeout; infra_error where two workers were
        lost.
        """
        verdicts: list[Verdict | None] = []
        waiting: dict[_Question, list[int]] = {}
        for index, (problem, response) in enumerate(items):
            answer = extract_answer(response, self._fallback)
            if answer is None:
                verdicts.append(Verdict(Outcome.NO_ANSWER, 0.0, "no boxed answer"))
                continue
            question = (tuple(_answers(problem)), answer)
            verdicts.append(_at_sight(question) or self._verdicts.get(question))
            if verdicts[-1] is None:
                waiting.setdefault(question, []).append(index)
        for question, verdict in self._judge(list(waiting)):
            if verdict.outcome is not Outcome.INFRA_ERROR:
                self._verdicts.put(question, verdict)
            for index in waiting[question]:
                verdicts[index] = verdict
        return [verdict for verdict in verdicts if verdict is not None]

    def check(self, problems: Sequence[Problem]) -> dict[str, str]:
        """Ids of problems that no response could solve: those with an empty answer."""
        return {p.id: "the answer is empty" for p in problems if not any(text.strip() for text in _answers(p))}

    def close(self) -> None:
        self._pool.close()

    def _judge(self, questions: Sequence[_Question]) -> list[tuple[_Question, Verdict]]:
        payloads = [{"golds": golds, "given": given, "timeout": self._timeout} for golds, given in questions]
        replies = self._pool.run([[Request(payload, self._timeout + _GRACE)] for payload in payloads])
        results = []
        for question, [reply] in zip(questions, replies, strict=True):
            outcome, detail = read_reply(reply)
            results.append((question, Verdict(outcome, float(outcome is Outcome.CORRECT), detail)))
        return results


def _answers(problem: Problem) -> list[str]:
    answers = problem.answer if isinstance(problem.answer, list | tuple) else [problem.answer]
    return ["" if answer is None else str(answer).strip().strip("$") for answer in answers]


def _at_sight(question: _Question) -> Verdict | None:
    golds, given = question
    if len(given) > _LONGEST:
        return Verdict(Outcome.WRONG, 0.0, f"an answer of {len(given)} characters")
    seen = [equal_at_sight(normalize(gold), normalize(given)) for gold in golds]
    if True in seen:
        return Verdict(Outcome.CORRECT, 1.0)
    return None if None in seen else Verdict(Outcome.WRONG, 0.0)


register_verifier("math")(MathVerifier)
