"""Alarms of a training run: signs in its verdicts that judge, prompts or limits are at fault rather than the policy.

Pure: what the verdicts of consecutive steps were goes in, a message or nothing comes out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dph.types import Outcome

_FAILURES = frozenset({Outcome.ERROR, Outcome.TIMEOUT, Outcome.INFRA_ERROR, Outcome.GOLD_ERROR})


@dataclass(frozen=True, slots=True)
class Judged:
    """How all responses of one training step were judged, over all processes."""

    outcomes: Mapping[Outcome, int]
    """Number of responses by outcome."""
    rewarded: int
    """Responses with a positive reward, partial credit included."""

    @property
    def responses(self) -> int:
        return sum(self.outcomes.values())

    @property
    def all_failed(self) -> bool:
        """Whether every verdict is an error or a time-out, of the response or of the judging."""
        return self.responses > 0 and sum(self.outcomes.get(kind, 0) for kind in _FAILURES) == self.responses

    @property
    def all_unrewarded(self) -> bool:
        """Whether every reward is 0."""
        return self.responses > 0 and self.rewarded == 0


def alarm(steps: Sequence[Judged]) -> str | None:
    """What is wrong with the newest of consecutive steps (oldest first), or None.

    A state that lasts is told of in its 1st, 2nd, 4th, 8th, … step. All errors are told of rather than no reward.
    """
    for holds, message in ((_failed, _FAILED), (_unrewarded, _UNREWARDED)):
        lasted = _lasted(steps, holds)
        if lasted:
            if lasted & (lasted - 1):  # no power of two
                return None
            newest = steps[-1]
            since = "this step" if lasted == 1 else f"{lasted} steps in a row"
            counts = ", ".join(f"{n} {kind}" for kind, n in sorted(newest.outcomes.items(), key=_by_count) if n)
            return f"{message} in {since} ({newest.responses} responses: {counts}); {_advice(newest)}"
    return None


_FAILED = "every verdict is an error"
_UNREWARDED = "every reward is 0"


def _failed(judged: Judged) -> bool:
    return judged.all_failed


def _unrewarded(judged: Judged) -> bool:
    return judged.all_unrewarded


def _by_count(item: tuple[Outcome, int]) -> tuple[int, str]:
    return -item[1], item[0]


def _lasted(steps: Sequence[Judged], holds: Callable[[Judged], bool]) -> int:
    """For how many of the newest steps something holds without a gap."""
    for count, judged in enumerate(reversed(steps)):
        if not holds(judged):
            return count
    return len(steps)


def _advice(judged: Judged) -> str:
    kind = max(sorted(judged.outcomes), key=lambda outcome: judged.outcomes[outcome])
    if kind is Outcome.NO_ANSWER:
        return (
            "see whether the prompt asks for the form of answer that the verifier reads, and whether "
            "rollout.max_tokens cuts responses off"
        )
    if kind is Outcome.TIMEOUT:
        return "see whether verifier.timeout is too short for this machine"
    if kind in _FAILURES:
        return "see whether the verifier's databases and the form of the responses are as it needs them"
    return "see whether the gold answers are right, and whether the problems are not too hard for this model"
