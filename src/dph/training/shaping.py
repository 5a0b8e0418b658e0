"""From judged groups to rows with advantages: length penalty, advantages, and what is left out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from dph.config import OverlongConfig
from dph.evaluation.measures import answer_of
from dph.objective.advantages import Advantage, GroupView
from dph.training.reference import Reference
from dph.training.rows import Row
from dph.types import Group, Problem, Rollout


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
    reference: Reference | None = None
    """π_ref, needed where the advantage reads it."""

    def rows(self, groups: Sequence[Group]) -> list[list[Row]]:
        """The rows of each group. Responses whose judging failed are left out."""
        references = self._reference_logprobs(groups) if self.advantage.needs_reference else [None] * len(groups)
        return [self._rows(group, reference) for group, reference in zip(groups, references, strict=True)]

    def _rows(self, group: Group, reference: Sequence[Sequence[float]] | None) -> list[Row]:
        rewards = [
            rollout.reward + overlong_penalty(len(rollout.completion.token_ids), self.max_tokens, self.overlong)
            for rollout in group.rollouts
        ]
        view = GroupView(
            rewards=torch.tensor(rewards),
            verdicts=[rollout.verdict for rollout in group.rollouts],
            old_logprobs=[torch.tensor(rollout.completion.logprobs) for rollout in group.rollouts],
            texts=[rollout.text for rollout in group.rollouts],
            style_of=lambda text: self.style(group.problem, text),
            answer_of=lambda text: answer_of(group.problem, text),
            ref_logprobs=None if reference is None else [torch.tensor(values) for values in reference],
        )
        rows = []
        for index, (rollout, advantage) in enumerate(zip(group.rollouts, self.advantage(view), strict=True)):
            completion = rollout.completion
            if self._enters(rollout):
                rows.append(
                    Row(
                        group.prompt_ids,
                        completion.token_ids,
                        completion.logprobs,
                        ref_logprobs=None if reference is None else reference[index],
                        advantage=_values(advantage, len(completion.token_ids)),
                    )
                )
        return rows

    def _enters(self, rollout: Rollout) -> bool:
        return rollout.verdict.scored and not (self.mask_truncated and rollout.completion.finish_reason == "length")

    def advantages(self, group: Group, rows: Sequence[Row]) -> list[float | None]:
        """The advantage of each response of a group, given the group's rows: the mean over its tokens where they
        differ, None where the response became no row."""
        own = iter(rows)
        found = [next(own).advantage if self._enters(rollout) else None for rollout in group.rollouts]
        return [fmean(value) if isinstance(value, Sequence) else value for value in found]

    def _reference_logprobs(self, groups: Sequence[Group]) -> list[list[list[float]]]:
        """log π_ref of every response token, group by group."""
        assert self.reference is not None, "an advantage that reads π_ref is given one"
        rows = [Row(group.prompt_ids, r.completion.token_ids) for group in groups for r in group.rollouts]
        found = iter(self.reference.logprobs(rows))
        return [[next(found) for _ in group.rollouts] for group in groups]


def _values(advantage: Tensor, tokens: int) -> float | list[float]:
    """A response's advantage as a row keeps it: one number, or one for each of its tokens."""
    return advantage.item() if advantage.ndim == 0 else advantage[:tokens].tolist()
