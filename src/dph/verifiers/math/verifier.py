r"""The math verifier: a response is correct iff its answer equals the gold answer, or one of several."""

import re
import sys
from collections.abc import Sequence

from dph.errors import UserError
from dph.types import Outcome, Problem, Verdict
from dph.verifiers.exact import gold_faults
from dph.verifiers.lru import LRU
from dph.verifiers.math.policy import PolicyName, gold_texts, is_cleaned, is_words, judge_at_sight, make_policy, noted
from dph.verifiers.protocol import judge_once, register_verifier, require_positive
from dph.verifiers.sandbox.pool import UsesWorkers, WorkerPool, read_reply
from dph.verifiers.sandbox.worker import GRACE, Request
from mathequal import answer_key
from mathequal.extract import Decimals, Fallback

_MAY_BE_DECIMAL = re.compile(r"(?:[A-Za-z]\w{0,3}(?:\(\w{1,3}\))? ?= ?)?[-+−]?\d{1,9},(?!\d{3}$)\d{1,9}")
_FALLBACKS = (None, "none", "phrase", "last_number", "library")
_Question = tuple[tuple[str, ...], str]


class MathVerifier(UsesWorkers):
    """Judges mathematical answers; `Problem.answer` is one answer or a list of accepted answers.

    The policy `typed` compares at once, and so do the others if that takes no algebra. The rest runs in killable
    worker processes, so that 9^{9^{9}} costs at most the time limit. Verdicts are cached.

    >>> verifier = MathVerifier()
    >>> asked = Problem("a", "What is half of one?", "0.5", "math")
    >>> [verdict.correct for verdict in verifier.verify([(asked, r"\\boxed{\\frac{1}{2}}"), (asked, r"\\boxed{2}")])]
    [True, False]
    >>> verifier.check([Problem("b", "1 + 1?", "see above", "math")])
    {'b': "the answer is 'see above', which says that it is missing"}
    """

    def __init__(
        self,
        *,
        policy: PolicyName = "typed",
        workers: int = 1,
        timeout: float = 5.0,
        memory_mb: int = 2048,
        fallback: Fallback | None = None,
        decimals: Decimals = "exact",
        cache_size: int = 65_536,
    ) -> None:
        r"""policy: typed, math_verify or qwen (see `dph.verifiers.math.policy`); workers: number of processes;
        timeout: seconds per comparison; memory_mb: of each worker; fallback: where the answer of a response without a
        \boxed comes from: "none", "phrase" (the words after "answer is" or GSM8K's ####), "last_number" (these, else
        the last number) or "library" (whatever math-verify finds in the whole response, boxed or not); by default the
        policy decides; decimals: "exact", or "rounded" if `typed` takes what rounds to a gold decimal number for it;
        cache_size: number of cached verdicts. Raises UserError for a value out of range."""
        if fallback not in _FALLBACKS:
            raise UserError(
                f"the math verifier's option fallback must be none, phrase, last_number or library, not {fallback!r}"
            )
        require_positive("math verifier", workers=workers, timeout=timeout, memory_mb=memory_mb)
        self._policy = make_policy(policy, fallback, decimals)
        self._timeout = timeout
        self._verdicts = LRU(cache_size)
        options = {"memory_mb": memory_mb, "algebra": self._policy.algebra}
        self._pool = WorkerPool(f"{__package__}.worker", options, workers, sys.path)

    def verify(self, items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        """Judge (problem, response) pairs; repeated comparisons run once.

        Outcomes besides correct and wrong: no_answer if none is found; error if the algebra fails; timeout; infra_error
        if something outside ended every worker that had it.
        """
        return judge_once([self._asked(*item) for item in items], self._verdicts, self._judge)

    def check(self, problems: Sequence[Problem]) -> dict[str, str]:
        """Problems whose answer is empty, neither text nor a number, or not readable by the policy: id → reason."""
        faults = gold_faults(problems, gold_texts)
        unread = {p.id: self._policy.gold_fault(p) for p in problems if p.id not in faults}
        return faults | {id: fault for id, fault in unread.items() if fault}

    def flags(self, problems: Sequence[Problem]) -> dict[str, list[str]]:
        """Problems with an answer that is two numbers, or one with a decimal comma, 4,5; of which `typed` takes a label
        or a remark off; that is a code or a name; or that is words where others are values: id → its flags."""
        flags = {p.id: ["decimal_comma"] for p in problems if any(map(_MAY_BE_DECIMAL.fullmatch, gold_texts(p)))}
        if self._policy.judge is None:
            return flags
        words = [p.id for p in problems if is_words(p)]
        for problem in problems:
            for flag in [*["cleaned"] * is_cleaned(problem), *noted(problem)]:
                flags.setdefault(problem.id, []).append(flag)
        for id in words if len(words) < len(problems) else ():
            flags.setdefault(id, []).append("words")
        return flags

    def readings(self, problems: Sequence[Problem]) -> list[str]:
        """The accepted answers of each problem as the policy reads them."""
        return [" or ".join(map(self._policy.reading, gold_texts(problem))) for problem in problems]

    def judged(self, items: Sequence[tuple[Problem, str]]) -> list[str | None]:
        """The answer of each response that is compared with the gold answers, in a form that equal numbers share; None
        for a response without one."""
        answers = [self._policy.extract(problem, response) for problem, response in items]
        longest = self._policy.longest
        return [None if answer is None else answer_key(answer[: longest + 1]) for answer in answers]

    def explained(self, items: Sequence[tuple[Problem, str]]) -> list[str | None]:
        """How the verdict on each response came about, in lines for people; None with a policy that cannot tell."""
        explain = self._policy.explain
        return [explain(problem, response) if explain else None for problem, response in items]

    def _asked(self, problem: Problem, response: str) -> Verdict | _Question:
        """The verdict on a response, or the question that takes algebra."""
        [*faults] = gold_faults([problem], gold_texts).values()
        if fault := next(iter(faults), "") or self._policy.gold_fault(problem):
            return Verdict(Outcome.GOLD_ERROR, 0.0, fault)
        answer = self._policy.extract(problem, response)
        if answer is None:
            return Verdict(Outcome.NO_ANSWER, 0.0, "no answer found")
        if len(answer) > self._policy.longest:
            return Verdict(Outcome.WRONG, 0.0, f"an answer of {len(answer)} characters")
        if self._policy.judge:
            return self._policy.judge(problem, answer)
        golds = self._policy.golds(problem)
        equal = judge_at_sight(self._policy, golds, answer)
        if isinstance(equal, tuple):
            return equal, answer
        return Verdict(Outcome.CORRECT if equal else Outcome.WRONG, float(equal))

    def _judge(self, questions: Sequence[_Question]) -> list[tuple[_Question, Verdict]]:
        payloads = [{"golds": golds, "given": given, "timeout": self._timeout} for golds, given in questions]
        replies = self._pool.run([[Request(payload, self._timeout + GRACE)] for payload in payloads])
        results = []
        for question, [reply] in zip(questions, replies, strict=True):
            outcome, detail = read_reply(reply)
            results.append((question, Verdict(outcome, float(outcome is Outcome.CORRECT), detail)))
        return results


register_verifier("math")(MathVerifier)
