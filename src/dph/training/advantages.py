"""From judged groups to rows with advantages: rewards are penalised for their length and compared within the group."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from dph.config import OverlongConfig
from dph.measure.metrics import answer_of
from dph.models.packing import Tokens
from dph.objective.advantages import Advantage, GroupView
from dph.training.rows import Row
from dph.types import Completion, Group, Problem, of_policy, on_all


def overlong_penalty(length: int, max_tokens: int, config: OverlongConfig) -> float:
    """DAPO's soft length penalty of a response, which is added to its reward.

    The penalty is 0 up to max_tokens − buffer tokens, and then falls linearly to −penalty at max_tokens. length,
    max_tokens: in tokens.

    >>> config = OverlongConfig(buffer=4, penalty=1.0)
    >>> [overlong_penalty(length, 12, config) for length in (8, 9, 12)]
    [-0.0, -0.25, -1.0]
    """
    if config.buffer <= 0:
        return 0.0
    excess = length - (max_tokens - config.buffer)
    return -config.penalty * min(1.0, max(0.0, excess / config.buffer))


@dataclass(frozen=True, slots=True)
class AdvantageEstimator:
    """Makes the responses of judged groups rows of a mini-batch, each with its advantage."""

    advantage: Advantage
    overlong: OverlongConfig
    max_tokens: int
    """The length of the longest response, in tokens."""
    mask_truncated: bool
    """Whether responses that were cut off at max_tokens are left out of the loss."""
    style: Callable[[Problem, str], str | None]
    """The solution style of a response (`Task.style`)."""
    reference_logprobs: Callable[[Sequence[Tokens]], list[list[float]]] | None = None
    """Computes log π_ref of every response token of every row, in nats; needed if the advantage reads it."""

    def rows(self, groups: Sequence[Group]) -> list[list[Row | None]]:
        """A row for each rollout of each group. It is None for a rollout that could not be judged and, with
        `mask_truncated`, for a rollout that was cut off."""
        references: list[list[list[float]] | None] = [None] * len(groups)
        if self.advantage.needs_reference:
            assert self.reference_logprobs is not None, "an advantage that reads π_ref is given one"
            tokens = [Tokens(group.prompt_ids, r.completion.token_ids) for group in groups for r in group.rollouts]
            logprobs = iter(self.reference_logprobs(tokens))
            references = [[next(logprobs) for _ in group.rollouts] for group in groups]
        return [self._rows(group, reference) for group, reference in zip(groups, references, strict=True)]

    def _rows(self, group: Group, reference: Sequence[Sequence[float]] | None) -> list[Row | None]:
        """Advantages see the tokens that the policy wrote, and no others."""
        drawn_G = [rollout.completion for rollout in group.rollouts]
        rewards_G = [
            rollout.reward + overlong_penalty(rollout.completion.length, self.max_tokens, self.overlong)
            for rollout in group.rollouts
        ]
        view = GroupView(
            rewards=torch.tensor(rewards_G),
            verdicts=[rollout.verdict for rollout in group.rollouts],
            old_logprobs=[torch.tensor(drawn.own_logprobs) for drawn in drawn_G],
            texts=[rollout.text for rollout in group.rollouts],
            style_of=lambda text: self.style(group.problem, text),
            answer_of=lambda text: answer_of(group.problem, text),
            ref_logprobs=None
            if reference is None
            else [torch.tensor(of_policy(v, drawn.written)) for v, drawn in zip(reference, drawn_G, strict=True)],
        )
        return [
            Row(
                group.prompt_ids,
                rollout.completion.token_ids,
                rollout.completion.logprobs,
                ref_logprobs=None if reference is None else reference[index],
                advantage=_on_tokens(advantage, rollout.completion),
                written=rollout.completion.written,
            )
            if rollout.verdict.scored and not (self.mask_truncated and rollout.completion.finish_reason == "length")
            else None
            for index, (rollout, advantage) in enumerate(zip(group.rollouts, self.advantage(view), strict=True))
        ]


def _on_tokens(advantage: torch.Tensor, completion: Completion) -> float | Sequence[float]:
    """The advantage of a response or, if they differ, of each of its tokens; 0 for those that a tool wrote."""
    if not advantage.ndim:
        return advantage.tolist()
    return on_all(advantage[: completion.length].tolist(), completion.written, 0.0)
