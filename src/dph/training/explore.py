"""The exploration side of a step: draw prompts, sample and judge them, refill constant groups (DAPO), shape rewards."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from dph.config.schema import OverlongConfig, TrainConfig
from dph.models.batch import Row
from dph.models.policy import Policy
from dph.objective.advantages import group_advantages
from dph.process.distributed import World
from dph.sampling.protocol import Sampler
from dph.sampling.rollouts import Prompted, sample_groups
from dph.sampling.seeding import EpochOrder
from dph.types import Group, Outcome, SamplingParams
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
    """Position in the endless order after this step."""
    sampled: int = 0
    """This process's responses, those of dropped groups included."""
    lost: int = 0
    """Those among them whose judging failed."""
    outcomes: Mapping[Outcome, int] = field(default_factory=dict)
    """Number of them by outcome."""
    rewarded: int = 0
    """Those among them with a positive reward."""


class Explorer:
    """Draws groups for D_exp (or, for baselines, for the whole training set)."""

    def __init__(
        self,
        policy: Policy,
        sampler: Sampler,
        verifiers: Verifiers,
        items: Sequence[Prompted],
        config: TrainConfig,
        world: World,
    ) -> None:
        self._policy, self._sampler, self._verifiers = policy, sampler, verifiers
        self._items, self._config, self._world = items, config, world
        self._order = EpochOrder(len(items), config.seed, "explore")
        rollout = config.rollout
        self._params = SamplingParams(rollout.n, rollout.temperature, rollout.top_p, rollout.max_tokens)

    def draw(self, cursor: int) -> Drawn:
        """Groups for one step from a position of the endless order.

        With dynamic sampling, groups that are all correct or all wrong are replaced by the next prompts, for at most
        `max_attempts` rounds; the step then goes on with those it has.
        """
        wanted = self._config.rollout.prompts
        dynamic = self._config.dynamic_sampling
        kept: list[tuple[int, Group]] = []
        total, start, rewarded = 0, cursor, 0
        outcomes: Counter[Outcome] = Counter()
        for _ in range(dynamic.max_attempts if dynamic.enabled else 1):
            count = wanted - total
            groups = self._world.together(partial(self._sample, cursor, count))
            cursor += count
            rollouts = [rollout for group in groups for rollout in group.rollouts]
            outcomes.update(rollout.verdict.outcome for rollout in rollouts)
            rewarded += sum(rollout.reward > 0 for rollout in rollouts)
            useful = [not dynamic.enabled or is_informative(group) for group in groups]
            flags = [False] * count
            for rank, own in enumerate(self._world.gather(useful)):
                flags[rank :: self._world.size] = own
            places = {place: total + sum(flags[:place]) for place in range(count) if flags[place]}
            own_places = self._world.share(count)
            kept += [(places[p], group) for p, group in zip(own_places, groups, strict=True) if p in places]
            total += len(places)
            if total == wanted:
                break
        own, ranks = [group for _, group in kept], [place for place, _ in kept]
        sampled, lost = outcomes.total(), outcomes[Outcome.INFRA_ERROR]
        return Drawn(own, ranks, total, cursor - start, cursor, sampled, lost, dict(outcomes), rewarded)

    def _sample(self, cursor: int, count: int) -> list[Group]:
        positions = [cursor + offset for offset in self._world.share(count)]
        items = [replace(self._items[self._order.item(position)], draw=position) for position in positions]
        if not items:
            return []
        return sample_groups(
            self._policy, self._sampler, self._verifiers, items, self._params, self._config.seed, "train"
        )


def is_informative(group: Group) -> bool:
    """Whether a group holds both correct and incorrect responses; shaped rewards do not count."""
    outcomes = {rollout.verdict.correct for rollout in group.rollouts if rollout.verdict.scored}
    return len(outcomes) == 2


def overlong_penalty(length: int, max_tokens: int, config: OverlongConfig) -> float:
    """DAPO's soft length penalty: 0 up to max_tokens − buffer, then linear to −penalty at max_tokens."""
    if config.buffer <= 0:
        return 0.0
    excess = length - (max_tokens - config.buffer)
    return -config.penalty * min(1.0, max(0.0, excess / config.buffer))


def group_rows(group: Group, config: TrainConfig) -> list[Row]:
    """A group's responses as rows with advantages; responses whose judging failed are left out."""
    limit = config.rollout.max_tokens
    rewards = [r.reward + overlong_penalty(len(r.completion.token_ids), limit, config.overlong) for r in group.rollouts]
    scored = torch.tensor([[rollout.verdict.scored for rollout in group.rollouts]])
    advantages = group_advantages(torch.tensor([rewards]), scored)[0].tolist()
    rows = []
    for rollout, advantage in zip(group.rollouts, advantages, strict=True):
        cut = config.rollout.mask_truncated and rollout.completion.finish_reason == "length"
        if rollout.verdict.scored and not cut:
            completion = rollout.completion
            rows.append(Row(group.prompt_ids, completion.token_ids, completion.logprobs, advantage=advantage))
    return rows
