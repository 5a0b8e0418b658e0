"""Adaptive rehearsal: stored responses to the prompts that need them now, instead of a fixed set.

A near-perfect prompt needs rehearsal as long as training does not sample it. A prompt that training samples needs it
while its pass rate lies below the reference policy's (`Falling`): it joins when it falls and leaves when it recovers.
Where training samples few of its prompts, or each once, those that it has not sampled can join by their class.
What is rehearsed depends on the steps so far alone, so a resumed run replays them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dph.rehearsal.store import Rehearsal
from dph.sampling.seeding import derive_key


class Falling(Protocol):
    """What training knows of its prompts (`dph.runs.coverage.Ledger`)."""

    def visited(self, id: str) -> bool:
        """Whether training has sampled the prompt and judged a response."""
        ...

    def is_falling(self, id: str) -> bool:
        """Whether the pass rate at the last visit lies below the reference policy's."""
        ...

    def class_is_falling(self, id: str) -> bool:
        """Whether prompts of the same difficulty fall more often than chance explains."""
        ...


@dataclass(slots=True)
class _Prompt:
    """One prompt with its stored responses."""

    responses: list[Rehearsal]
    perfect: bool
    order: int
    """Decides between prompts that were rehearsed at the same time."""
    taken: int = 0
    """How often it was rehearsed."""
    last: int = -1
    """The number of the response, in the order of the whole run, with which it was rehearsed last."""


@dataclass(slots=True)
class AdaptiveSet:
    """Stored responses to the prompts that need them, those that were rehearsed longest ago first."""

    perfect: Sequence[Rehearsal]
    candidates: Sequence[Rehearsal]
    """Responses to prompts to explore."""
    seed: int
    falling: Falling
    by_class: bool = False
    """Whether a prompt to explore that training has not sampled needs rehearsal while its class is falling."""
    _prompts: dict[str, _Prompt] = field(init=False, default_factory=dict)
    _given: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        for rows, perfect in ((self.perfect, True), (self.candidates, False)):
            for row in rows:
                order = derive_key(self.seed, "adaptive", row.problem_id)
                prompt = self._prompts.setdefault(row.problem_id, _Prompt([], perfect, order))
                prompt.responses.append(row)

    def needed(self) -> list[str]:
        """The prompts that need rehearsal now."""
        return [id for id, prompt in self._prompts.items() if self._needs(id, prompt)]

    def take(self, cursor: int, count: int) -> list[Rehearsal]:
        """The next responses: of each prompt in need one, the one rehearsed longest ago first, and again from the
        first if there are fewer than `count`; none if no prompt is in need.

        Raises ValueError if `cursor` is not the number of responses taken so far.
        """
        if cursor != self._given:
            raise ValueError(f"{self._given} responses were taken before, not {cursor}")
        waiting = [self._prompts[id] for id in self.needed()]
        found: list[Rehearsal] = []
        while waiting and len(found) < count:
            prompt = min(waiting, key=lambda one: (one.last, one.order))
            found.append(prompt.responses[prompt.taken % len(prompt.responses)])
            prompt.taken += 1
            prompt.last = self._given
            self._given += 1
        return found

    def _needs(self, id: str, prompt: _Prompt) -> bool:
        if self.falling.visited(id):
            return self.falling.is_falling(id)
        return prompt.perfect or (self.by_class and self.falling.class_is_falling(id))
