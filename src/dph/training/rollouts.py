"""The rollouts of a step: draw, sample and judge prompts, refill constant groups (DAPO), shape rows with advantages."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch

from dph.config import DynamicSamplingConfig, OverlongConfig, RolloutConfig
from dph.measure.metrics import answer_of
from dph.models.batch import Tokens
from dph.models.policy import Policy
from dph.objective.advantages import Advantage, GroupView
from dph.process.distributed import World
from dph.sampling.protocol import Sampler
from dph.sampling.rollouts import Prompted, sample_groups
from dph.sampling.seeding import EpochOrder
from dph.training.rows import Row
from dph.types import Group, Problem
from dph.verifiers import Verifiers


@dataclass(frozen=True, slots=True)
class Drawn:
    """This process's share of a step's groups."""

    groups: list[Group]
    places: list[int]
    """Place of each group among the step's groups over all processes."""
    total: int
    """The step's groups over all processes."""
    attempted: int
    """Prompts drawn over all processes, also for dropped groups."""
    cursor: int
    """Position in the endless order of prompts after this step."""
    dropped: Sequence[Group] | None = None
    """This process's groups that dynamic sampling dropped; None if it is off."""

    @property
    def sampled(self) -> list[Group]:
        """This process's groups, those that were dropped included."""
        return [*self.groups, *(self.dropped or ())]


@dataclass(frozen=True)
class RolloutCollector:
    """Draws groups for D_exp (or, for baselines, for the whole training set)."""

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
        """Groups for one step, from a position of the endless order on. With dynamic sampling, groups that are all
        correct or all wrong are replaced by the next prompts, for at most `max_attempts` rounds."""
        wanted, dynamic = self.rollout.prompts, self.dynamic
        kept: list[tuple[int, Group]] = []
        dropped: list[Group] = []
        total, start = 0, cursor
        for _ in range(dynamic.max_attempts if dynamic.enabled else 1):
            count = wanted - total
            groups = self.world.together(partial(self._sample, cursor, count))
            cursor += count
            drawn = dict(zip(self.world.share(count), groups, strict=True))
            useful = [number for number, group in drawn.items() if not dynamic.enabled or is_informative(group)]
            numbers = sorted(number for numbers in self.world.gather(useful) for number in numbers)
            places = {number: place for place, number in enumerate(numbers, total)}
            for number, group in drawn.items():
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
        )

    def _sample(self, cursor: int, count: int) -> list[Group]:
        positions = [cursor + offset for offset in self.world.share(count)]
        items = [replace(self.items[self._order.item(position)], draw=position) for position in positions]
        if not items:
            return []
        params = self.rollout.params()
        return sample_groups(self.policy, self.sampler, self.verifiers, items, params, self.seed, "train")


def is_informative(group: Group) -> bool:
    """Whether a group holds both correct and incorrect responses; shaping of rewards does not matter."""
    outcomes = {rollout.verdict.correct for rollout in group.rollouts if rollout.verdict.scored}
    return len(outcomes) == 2


def overlong_penalty(length: int, max_tokens: int, config: OverlongConfig) -> float:
    """DAPO's soft length penalty: 0 up to max_tokens − buffer, then linear to −penalty at max_tokens."""
    if config.buffer <= 0:
        return 0.0
    excess = length - (max_tokens - config.buffer)
    return -config.penalty * min(1.0, max(0.0, excess / config.buffer))


@dataclass(frozen=True, slots=True)
class Shaping:
    """How the responses of a group become rows of a mini-batch."""

    advantage: Advantage
    overlong: OverlongConfig
    max_tokens: int
    """Longest response, in tokens."""
    mask_truncated: bool
    """Leave responses cut off at max_tokens out of the loss."""
    style: Callable[[Problem, str], str | None]
    """Solution style of a response; see `Task.style`."""
    reference_logprobs: Callable[[Sequence[Tokens]], list[list[float]]] | None = None
    """log π_ref of every response token of every row; needed if the advantage reads it."""

    def rows(self, groups: Sequence[Group]) -> list[list[Row | None]]:
        """A row for each rollout of each group; None for one not judged, or cut off if `mask_truncated` is set."""
        references: list[list[list[float]] | None] = [None] * len(groups)
        if self.advantage.needs_reference:
            assert self.reference_logprobs is not None, "an advantage that reads π_ref is given one"
            tokens = [Tokens(group.prompt_ids, r.completion.token_ids) for group in groups for r in group.rollouts]
            logprobs = iter(self.reference_logprobs(tokens))
            references = [[next(logprobs) for _ in group.rollouts] for group in groups]
        return [self._rows(group, reference) for group, reference in zip(groups, references, strict=True)]

    def _rows(self, group: Group, reference: Sequence[Sequence[float]] | None) -> list[Row | None]:
        rewards_G = [
            rollout.reward + overlong_penalty(len(rollout.completion.token_ids), self.max_tokens, self.overlong)
            for rollout in group.rollouts
        ]
        view = GroupView(
            rewards=torch.tensor(rewards_G),
            verdicts=[rollout.verdict for rollout in group.rollouts],
            old_logprobs=[torch.tensor(rollout.completion.logprobs) for rollout in group.rollouts],
            texts=[rollout.text for rollout in group.rollouts],
            style_of=lambda text: self.style(group.problem, text),
            answer_of=lambda text: answer_of(group.problem, text),
            ref_logprobs=None if reference is None else [torch.tensor(values) for values in reference],
        )
        return [
            Row(
                group.prompt_ids,
                rollout.completion.token_ids,
                rollout.completion.logprobs,
                ref_logprobs=None if reference is None else reference[index],
                advantage=(advantage[: len(rollout.completion.token_ids)] if advantage.ndim else advantage).tolist(),
            )
            if rollout.verdict.scored and not (self.mask_truncated and rollout.completion.finish_reason == "length")
            else None
            for index, (rollout, advantage) in enumerate(zip(group.rollouts, self.advantage(view), strict=True))
        ]
