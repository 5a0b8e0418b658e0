"""Judging that never works: a trainer that gets no reward at all trains on nothing, to the end, without an error."""

from collections.abc import Sequence

from dph.errors import JudgeError, counted
from dph.types import Verdict

FIRST_BATCHES, FIRST_RESPONSES, LATER_BATCHES = 2, 8, 10
"""A trainer is stopped after this many batches in a row without a verdict: after FIRST_BATCHES with together at least
FIRST_RESPONSES responses if nothing was ever judged, and after LATER_BATCHES otherwise, since single gold answers and
single problems may fail."""


class UnjudgedWatch:
    """Counts the batches of a reward function in which nothing could be judged."""

    def __init__(self) -> None:
        self._judged = False
        self._batches = self._responses = 0

    def note(self, verdicts: Sequence[Verdict]) -> None:
        """Take a batch into account. Raises JudgeError if it is time to stop."""
        if any(verdict.scored for verdict in verdicts):
            self._judged, self._batches, self._responses = True, 0, 0
            return
        self._batches += bool(verdicts)
        self._responses += len(verdicts)
        limit = LATER_BATCHES if self._judged else FIRST_BATCHES
        if self._batches >= limit and self._responses >= FIRST_RESPONSES:
            batches = f"{counted(self._batches, 'batch')} with together {counted(self._responses, 'response')}"
            raise JudgeError(f"no response of {batches} could be judged, so nothing is learned ({_reason(verdicts)})")


def refuse_unjudgeable(verdicts: Sequence[Verdict]) -> None:
    """Raises JudgeError if none of some rows of a data set could be judged; nothing for no row."""
    if verdicts and not any(verdict.scored for verdict in verdicts):
        rows = "the first row" if len(verdicts) == 1 else f"none of the first {len(verdicts)} rows"
        cannot = "cannot be judged" if len(verdicts) == 1 else "can be judged"
        raise JudgeError(f"{rows} of the data set {cannot} ({_reason(verdicts)})")


def _reason(verdicts: Sequence[Verdict]) -> str:
    """The first failure, and what to do."""
    first, remedy = verdicts[0], "correct the gold answers, their databases, or the reward function's options"
    return f"{first.outcome}: {first.detail}; {remedy}"
