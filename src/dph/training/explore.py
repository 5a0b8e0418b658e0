"""The exploration side of a step: draw prompts, sample and judge them, refill constant groups (DAPO)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from dph.config import DynamicSamplingConfig
from dph.models.policy import Policy
from dph.process.distributed import World
from dph.runs.coverage import Visit
from dph.sampling.protocol import Sampler
from dph.sampling.rollouts import Prompted, sample_groups
from dph.sampling.seeding import EpochOrder
from dph.types import Group, SamplingParams
from dph.verifiers import Verifiers


@dataclass(frozen=True, slots=True)
class Drawn:
    """This process's share of a step's groups."""

    groups: list[Group]
    ranks: list[int]
    """Place of each group among the step's groups over all processes."""
    total: int
    """The step's groups over all processes."""
    attempted: int
    """Prompts drawn over all processes, those of dropped groups included."""
    cursor: int
    """Position in the endless order of prompts after this step."""
    dropped: Sequence[Group] | None = None
    """This process's groups that dynamic sampling dropped; None where it is off."""

    @property
    def sampled(self) -> list[Group]:
        """This process's groups, those that were dropped included."""
        return [*self.groups, *(self.dropped or ())]


def visits_of(drawn: Drawn, world: World) -> list[Visit]:
    """The visits of a step over all processes, those of groups that dynamic sampling dropped included, by id."""
    own = [
        (
            group.problem.id,
            sum(rollout.verdict.correct for rollout in group.rollouts),
            sum(rollout.verdict.scored for rollout in group.rollouts),
        )
        for group in drawn.sampled
    ]
    return sorted(visit for part in world.gather(own) for visit in part)


class Explorer:
    """Draws groups for D_exp (or, for baselines, for the whole training set)."""

    def __init__(
        self,
        policy: Policy,
        sampler: Sampler,
        verifiers: Verifiers,
        items: Sequence[Prompted],
        *,
        prompts: int,
        params: SamplingParams,
        dynamic: DynamicSamplingConfig,
        seed: int,
        world: World,
    ) -> None:
        """
        Args:
            items: the prompts to draw from.
            prompts: how many are drawn for a step, over all processes.
            params: how responses are sampled; `n` is the size of a group.
            seed: of the prompts' order and of the responses.
        """
        self._policy, self._sampler, self._verifiers, self._items = policy, sampler, verifiers, items
        self._prompts, self._params, self._dynamic = prompts, params, dynamic
        self._seed, self._world = seed, world
        self._order = EpochOrder(len(items), seed, "explore")

    def draw(self, cursor: int) -> Drawn:
        """Groups for one step, starting at a position of the endless order.

        With dynamic sampling, groups that are all correct or all wrong are replaced by the next prompts, for at most
        `max_attempts` rounds; then the step continues with those it has.
        """
        wanted, dynamic = self._prompts, self._dynamic
        kept: list[tuple[int, Group]] = []
        dropped: list[Group] = []
        total, start = 0, cursor
        for _ in range(dynamic.max_attempts if dynamic.enabled else 1):
            count = wanted - total
            groups = self._world.together(partial(self._sample, cursor, count))
            cursor += count
            useful = [not dynamic.enabled or is_informative(group) for group in groups]
            flags = [False] * count
            for rank, own in enumerate(self._world.gather(useful)):
                flags[rank :: self._world.size] = own
            places = {place: total + sum(flags[:place]) for place in range(count) if flags[place]}
            own_places = self._world.share(count)
            kept += [(places[p], group) for p, group in zip(own_places, groups, strict=True) if p in places]
            dropped += [group for group, kept_too in zip(groups, useful, strict=True) if not kept_too]
            total += len(places)
            if total == wanted:
                break
        own, ranks = [group for _, group in kept], [place for place, _ in kept]
        return Drawn(own, ranks, total, cursor - start, cursor, dropped if dynamic.enabled else None)

    def _sample(self, cursor: int, count: int) -> list[Group]:
        positions = [cursor + offset for offset in self._world.share(count)]
        items = [replace(self._items[self._order.item(position)], draw=position) for position in positions]
        if not items:
            return []
        return sample_groups(self._policy, self._sampler, self._verifiers, items, self._params, self._seed, "train")


def is_informative(group: Group) -> bool:
    """Whether a group holds both correct and incorrect responses; shaping of rewards does not matter."""
    outcomes = {rollout.verdict.correct for rollout in group.rollouts if rollout.verdict.scored}
    return len(outcomes) == 2
