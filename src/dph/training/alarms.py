"""Alarms of a training run: from what consecutive steps show to a message, or None.

Verdicts can show that the verifier, the prompts or a limit is at fault, not the policy. Pass@k on held-out problems can
show that the policy loses solutions that it had.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dph.types import Outcome

_FAILURES = frozenset({Outcome.ERROR, Outcome.TIMEOUT, Outcome.INFRA_ERROR, Outcome.GOLD_ERROR})


@dataclass(frozen=True, slots=True)
class StepVerdicts:
    """How all responses of one training step were judged, over all processes."""

    outcomes: Mapping[Outcome, int]
    """Number of responses by outcome."""
    rewarded: int
    """Responses with a reward other than 0: partial credit, or a penalty by a reward function, included."""

    @property
    def responses(self) -> int:
        return sum(self.outcomes.values())

    @property
    def all_failed(self) -> bool:
        """Whether every verdict is an error or a timeout, of the response or of the judging."""
        return self.responses > 0 and sum(self.outcomes.get(kind, 0) for kind in _FAILURES) == self.responses

    @property
    def all_unrewarded(self) -> bool:
        """Whether every reward is 0."""
        return self.responses > 0 and self.rewarded == 0


def alarm(steps: Sequence[StepVerdicts], *, by_function: bool = False) -> str | None:
    """What is wrong with the newest of consecutive steps (oldest first), or None.

    by_function: a reward function judged, not the verifiers.

    A condition that lasts is reported in its 1st, 2nd, 4th, 8th, … step. If all verdicts are errors, that is reported
    instead of the missing reward.
    """
    for holds, message in ((_failed, _FAILED), (_unrewarded, _UNREWARDED)):
        lasted = _lasted(steps, holds)
        if lasted:
            if lasted & (lasted - 1):  # not a power of two
                return None
            newest = steps[-1]
            since = "this step" if lasted == 1 else f"{lasted} steps in a row"
            counts = ", ".join(f"{n} {kind}" for kind, n in sorted(newest.outcomes.items(), key=_by_count) if n)
            return f"{message} in {since} ({newest.responses} responses: {counts}); {_advice(newest, by_function)}"
    return None


@dataclass(slots=True)
class PassAlarm:
    """Watches pass@k of the monitored problems for a fall below its best that the choice of problems does not explain:
    the best lies above the 95 % interval of the newest value."""

    best: float = -math.inf
    step: int = 0
    """The step of the best value."""
    _lasted: int = 0

    def note(self, step: int, name: str, value: float, high: float = math.inf) -> str | None:
        """Take a measured step into account; high: the upper end of the value's interval. A fall that lasts is
        reported in its 1st, 2nd, 4th, 8th, … measured step."""
        self._lasted = self._lasted + 1 if high < self.best else 0
        if value > self.best:
            self.best, self.step = value, step
        if not self._lasted or self._lasted & (self._lasted - 1):
            return None
        return (
            f"{name} of the monitored problems has fallen from {self.best:.1%} at step {self.step} to {value:.1%} "
            f"(95 % interval up to {high:.1%}): the policy loses solutions that it had; a rehearsal set (preset "
            "dph_js), a larger loss.eta or a smaller optim.lr keeps more of them"
        )


_FAILED = "every verdict is an error"
_UNREWARDED = "every reward is 0"


def _failed(judged: StepVerdicts) -> bool:
    return judged.all_failed


def _unrewarded(judged: StepVerdicts) -> bool:
    return judged.all_unrewarded


def _by_count(item: tuple[Outcome, int]) -> tuple[int, str]:
    return -item[1], item[0]


def _lasted(steps: Sequence[StepVerdicts], holds: Callable[[StepVerdicts], bool]) -> int:
    """The number of newest steps, without a gap, for which a condition holds."""
    for count, judged in enumerate(reversed(steps)):
        if not holds(judged):
            return count
    return len(steps)


def _advice(judged: StepVerdicts, by_function: bool) -> str:
    kind = max(sorted(judged.outcomes), key=lambda outcome: judged.outcomes[outcome])
    if by_function and kind in _FAILURES:
        return "check the reward function: it failed, as messages above say, or returned None"
    if by_function:
        return (
            "check that the reward function gives good responses more than 0 and reads the format that the prompt "
            "asks for, that rollout.max_tokens does not cut responses off, and whether the problems are too hard for "
            "this model"
        )
    if kind is Outcome.NO_ANSWER:
        return (
            "check that the prompt asks for the answer format that the verifier reads, and that "
            "rollout.max_tokens does not cut responses off"
        )
    if kind is Outcome.TIMEOUT:
        return "check whether verifier.timeout is too short for this machine"
    if kind in _FAILURES:
        return "check the verifier's databases and the format of the responses"
    return "check whether the gold answers are right, and whether the problems are too hard for this model"
