"""Sources of stored responses for experiment E, a plug-in of `dph train`.

`recent` rehearses correct rollouts of the last steps. It is our reading of DyJR (arXiv 2603.16157), of which only the
abstract was read, and no code was found: a buffer of recent trajectories, first in, first out, with adaptive size,
gives the reference distribution of a Jensen-Shannon divergence, in place of the base model. Read so:

* u = π_θ/π_old, with log π_old as the sampler reported it when it drew the response. The reference is therefore the
  policy of up to `age` steps ago, not the base model.
* The size adapts by the age limit: the buffer holds what was correct in the last `age` steps, at most `size` responses.
* A response is rehearsed from the step after its own on; in its own step u is 1 and the divergence has no gradient.

    dph train … --plugin experiments/anchor/recent.py --rehearsal.source recent \\
                --rehearsal.source-options size 512 age 8 share 0.5 --rehearsal.rows 64 --loss.eta 1

`distinct` is the set of `rehearsal.path` with equal responses to a problem stored once.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from dph.errors import SettingsError
from dph.process.distributed import World
from dph.rehearsal.store import Rehearsal, RehearsalSet, register_source
from dph.sampling.seeding import EpochOrder
from dph.types import Group


@register_source("recent")
class Recent(RehearsalSet):
    """Correct rollouts of recent steps, beside the fixed set or without it.

    Their `ref_logprobs` are those of the policy that drew them, untruncated, at the sampling temperature, in nats.
    """

    def __init__(
        self,
        stored: Sequence[Rehearsal],
        seed: int,
        state: Any = None,
        *,
        size: int = 512,
        age: int = 8,
        share: float = 1.0,
    ) -> None:
        """
        Args:
            stored: the fixed set; may be empty.
            seed: of the choice of rows.
            state: what `after` returned when the run was saved; None at its start.
            size: the most responses that are kept; the oldest leave first.
            age: the most steps between the draw of a response and its rehearsal.
            share: of the rows of a step that come from recent rollouts; the others come from the fixed set.
        Raises:
            SettingsError: size or age is below 1, the share is not above 0 and at most 1, or a fixed set is missing.
        """
        if min(size, age) < 1 or not 0 < share <= 1:
            raise SettingsError(
                f"the rehearsal source 'recent' has size {size}, age {age} and share {share}; size and age must be at "
                "least 1, and share above 0 and at most 1"
            )
        if share < 1:
            _refuse_none(stored, "recent with a share below 1")
        super().__init__(stored, seed)
        self._seed, self._kept, self._age, self._share = seed, size, age, share
        self._step: int = state["step"] if state else 0
        rows = state["rows"] if state else []
        self._rows = [(drawn, Rehearsal(prompt, answer, *rest)) for drawn, prompt, answer, *rest in rows]

    def take(self, cursor: int, count: int) -> list[Rehearsal]:
        """Rows of the next step: of the fixed set in its order, then recent ones, chosen at random without repetition,
        all of them if there are fewer than the share asks for. The state says which; the cursor is not read."""
        wanted = round(self._share * count)
        fixed = super().take(self._step * (count - wanted), count - wanted)
        if not self._rows or not wanted:
            return fixed
        order = EpochOrder(len(self._rows), self._seed, f"recent {self._step}")
        places = sorted(order.take(0, min(wanted, len(self._rows))))  # so that rows of one prompt follow each other
        return fixed + [self._rows[place][1] for place in places]

    def after(self, step: int, groups: Sequence[Group], world: World) -> dict[str, Any]:
        """Take in a step's correct, finished rollouts, of all processes, and let go of the oldest."""
        drawn = [
            Rehearsal.drawn(group, rollout)
            for group in groups
            for rollout in group.rollouts
            if rollout.verdict.correct and rollout.completion.finish_reason == "stop"
        ]
        new = sorted(chain(*world.gather(drawn)), key=lambda row: row.problem_id)
        young = [(old, row) for old, row in self._rows if old > step - self._age]
        self._rows = [*young, *((step, row) for row in new)][-self._kept :]
        self._step = step
        rows = [[old, r.prompt_ids, r.response_ids, r.problem_id, r.ref_logprobs, r.text] for old, r in self._rows]
        return {"step": step, "rows": rows}


@register_source("distinct")
class Distinct(RehearsalSet):
    """The fixed set without repetitions: a likely response to a problem weighs as much as an unlikely one."""

    def __init__(self, stored: Sequence[Rehearsal], seed: int, state: Any = None) -> None:
        _refuse_none(stored, "distinct")
        once = {(row.problem_id, *row.response_ids): row for row in stored}
        super().__init__(list(once.values()), seed)


def _refuse_none(stored: Sequence[Rehearsal], source: str) -> None:
    if not stored:
        raise SettingsError(f"the rehearsal source {source} needs a fixed set; add --rehearsal.path RUN")
