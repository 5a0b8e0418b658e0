"""The rollouts of a step: prompts are drawn, responses sampled and judged, and constant groups replaced (DAPO)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from dph.config import DynamicSamplingConfig, RolloutConfig
from dph.models.policy import Policy
from dph.process.distributed import World
from dph.sampling.protocol import Sampler
from dph.sampling.rollouts import Prompted, sample_groups
from dph.sampling.seeding import EpochOrder
from dph.types import Group
from dph.verifiers import Verifiers


@dataclass(frozen=True, slots=True)
class Drawn:
    """The groups of a step that this process drew."""

    groups: list[Group]
    places: list[int]
    """The place of each group among the groups of the step over all processes."""
    total: int
    """The number of groups of the step over all processes."""
    attempted: int
    """The number of prompts that were drawn over all processes, those of dropped groups included."""
    cursor: int
    """The position in the endless order of prompts after this step."""
    dropped: Sequence[Group] | None = None
    """The groups of this process that dynamic sampling dropped; None if dynamic sampling is off."""
    order: Sequence[int] = ()
    """The place of each of `sampled` in the order in which the prompts of the step were drawn, over all processes."""

    @property
    def sampled(self) -> list[Group]:
        """All groups of this process, those that were dropped included."""
        return [*self.groups, *(self.dropped or ())]


@dataclass(frozen=True)
class RolloutCollector:
    """Draws the prompts of a step, from D_exp or, for baselines, from the whole training set; samples and judges
    responses to each."""

    policy: Policy
    sampler: Sampler
    verifiers: Verifiers
    items: Sequence[Prompted]
    """The prompts to draw from."""
    rollout: RolloutConfig
    """How many prompts a step has over all processes, and how responses are sampled."""
    dynamic: DynamicSamplingConfig
    """Which groups are replaced."""
    seed: int
    world: World

    @cached_property
    def _order(self) -> EpochOrder:
        return EpochOrder(len(self.items), self.seed, "explore")

    def draw(self, cursor: int) -> Drawn:
        """The groups of one step, whose prompts begin at a position of the endless order.

        With dynamic sampling, groups that are all correct or all wrong are replaced by groups of the next prompts, for
        at most `max_attempts` rounds.
        """
        wanted, dynamic = self.rollout.prompts, self.dynamic
        kept: list[tuple[int, Group]] = []
        dropped: list[Group] = []
        order: dict[bool, list[int]] = {True: [], False: []}  # of the kept, of the dropped
        total, start = 0, cursor
        for _ in range(dynamic.max_attempts if dynamic.enabled else 1):
            count, before = wanted - total, cursor - start
            groups = self.world.together(partial(self._sample, cursor, count))
            cursor += count
            drawn = dict(zip(self.world.share(count), groups, strict=True))
            useful = [number for number, group in drawn.items() if not dynamic.enabled or is_informative(group)]
            numbers = sorted(number for numbers in self.world.gather(useful) for number in numbers)
            places = {number: place for place, number in enumerate(numbers, total)}
            for number, group in drawn.items():
                order[number in places].append(before + number)
                if number in places:
                    kept.append((places[number], group))
                else:
                    dropped.append(group)
            total += len(places)
            if total == wanted:
                break
        return Drawn(
            [group for _, group in kept],
            [place for place, _ in kept],
            total,
            attempted=cursor - start,
            cursor=cursor,
            dropped=dropped if dynamic.enabled else None,
            order=[*order[True], *order[False]],
        )

    def _sample(self, cursor: int, count: int) -> list[Group]:
        positions = [cursor + offset for offset in self.world.share(count)]
        items = [replace(self.items[self._order.item(position)], draw=position) for position in positions]
        if not items:
            return []
        params = self.rollout.params()
        return sample_groups(self.policy, self.sampler, self.verifiers, items, params, self.seed, "train")


def is_informative(group: Group) -> bool:
    """Whether a group holds both correct and incorrect responses. The rewards, which a length penalty changes, do not
    matter.

    >>> from dph.types import Completion, Outcome, Problem, Rollout, Verdict
    >>> def group(*outcomes):
    ...     problem, completion = Problem("1", "6 × 7?", "42", "math"), Completion([5], [-0.1], "stop")
    ...     rollouts = [Rollout(completion, "", Verdict(outcome, 0.0)) for outcome in outcomes]
    ...     return Group(problem, [1, 2], rollouts)
    >>> is_informative(group(Outcome.CORRECT, Outcome.WRONG)), is_informative(group(Outcome.WRONG, Outcome.INFRA_ERROR))
    (True, False)
    """
    outcomes = {rollout.verdict.correct for rollout in group.rollouts if rollout.verdict.scored}
    return len(outcomes) == 2
