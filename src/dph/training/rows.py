"""The rows of a training step: responses with all that the loss needs, and batches of them as tensors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from dph.models.batch import Inputs, Tokens, collate_tokens, moved, padded
from dph.models.policy import Policy
from dph.rehearsal.store import Rehearsal


@dataclass(frozen=True, slots=True)
class Row(Tokens):
    """One response with all that the loss needs of it."""

    old_logprobs: Sequence[float] = ()
    """Log-probabilities under the policy that generated the response. Rehearsal rows do not use them."""
    ref_logprobs: Sequence[float] | None = None
    """Log-probabilities under the reference policy, where they are stored."""
    advantage: float | Sequence[float] = 0.0
    """One value for the response, or one for each of its tokens."""
    is_rehearsal: bool = False
    """Which set the row belongs to: a property of the row, whatever micro-batch it is in."""
    weight: float = 1.0
    """0 excludes the row from the loss: its judging failed, or it was truncated and is masked."""
    sampled_logprobs: Sequence[float] | None = None
    """Log-probabilities that the sampler reported, where `old_logprobs` are the trainer's own."""
    selected: Sequence[bool] | None = None
    """Tokens that the policy loss treats differently, where it selects any."""

    @property
    def advances(self) -> bool:
        """Whether the advantage is nonzero anywhere."""
        return self.advantage != 0 if isinstance(self.advantage, int | float) else any(self.advantage)


@dataclass(frozen=True, slots=True)
class Batch(Inputs):
    """B rows as the model's inputs and the loss's tensors; see `Inputs` for the shapes."""

    response_mask: Tensor
    """float [B, T]: 1 on response tokens that count in the loss."""
    old_logprobs: Tensor
    """float [B, T]"""
    ref_logprobs: Tensor | None
    """float [B, T], or None where no row has them stored."""
    advantages: Tensor
    """float [B], or [B, T] where a row has one for each token."""
    is_rehearsal: Tensor
    """bool [B]"""
    sampled_logprobs: Tensor | None = None
    """float [B, T]: the sampler's own log-probabilities, where any row has them apart from `old_logprobs`."""
    selected: Tensor | None = None
    """bool [B, T]: tokens that the policy loss treats differently, where it selects any."""


def collate(
    rows: Sequence[Row], device: torch.device | str = "cpu", *, shared: bool = False, context: int | None = None
) -> Batch:
    """Rows as tensors: padded or, with `shared`, packed so that common beginnings are stored once.

    Padding is that of `collate_tokens`; `context` is the model's context length. Raises ValueError for no rows.
    """
    inputs = collate_tokens(rows, shared=shared, context=context)
    steps = inputs.present.shape[1]
    has_ref = any(row.ref_logprobs is not None for row in rows)
    has_sampled = any(row.sampled_logprobs is not None for row in rows)
    has_selected = any(row.selected is not None for row in rows)
    sampled = [row.old_logprobs if row.sampled_logprobs is None else row.sampled_logprobs for row in rows]
    batch = Batch(
        **{item.name: getattr(inputs, item.name) for item in fields(Inputs)},
        response_mask=inputs.present * torch.tensor([row.weight for row in rows])[:, None],
        old_logprobs=padded([row.old_logprobs for row in rows], steps, torch.float32),
        ref_logprobs=padded([row.ref_logprobs or () for row in rows], steps, torch.float32) if has_ref else None,
        advantages=_advantages(rows, steps),
        is_rehearsal=torch.tensor([row.is_rehearsal for row in rows]),
        sampled_logprobs=padded(sampled, steps, torch.float32) if has_sampled else None,
        selected=padded([row.selected or () for row in rows], steps, torch.bool) if has_selected else None,
    )
    return moved(batch, device)


def _advantages(rows: Sequence[Row], steps: int) -> Tensor:
    values = [row.advantage for row in rows]
    if all(isinstance(value, int | float) for value in values):
        return torch.tensor(values)
    return padded([advantage_by_token(row) for row in rows], steps, torch.float32)


def advantage_by_token(row: Row) -> Sequence[float]:
    """The advantage of each token of a response."""
    value = row.advantage
    return [value] * len(row.response_ids) if isinstance(value, int | float) else value


def batches(policy: Policy, rows: Sequence[Row], token_budget: int) -> Iterator[tuple[list[Row], Batch]]:
    """Rows in micro-batches of at most `token_budget` tokens, each with its tensors on the policy's device."""
    parts, shared = policy.cut(rows, token_budget)
    for part in parts:
        yield part, collate(part, policy.device, shared=shared, context=policy.context_length)


def rehearsal_row(stored: Rehearsal) -> Row:
    """A stored response as a row of a mixed mini-batch."""
    return Row(
        stored.prompt_ids,
        stored.response_ids,
        old_logprobs=stored.ref_logprobs,
        ref_logprobs=stored.ref_logprobs,
        is_rehearsal=True,
    )
