"""From rollouts to tensors: ragged rows, cut into micro-batches by a token budget, padded and collated."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Row:
    """One response with all that the loss needs of it."""

    prompt_ids: Sequence[int]
    response_ids: Sequence[int]
    old_logprobs: Sequence[float]
    """Log-probabilities under the policy that made the response (for rehearsal rows: unused)."""
    ref_logprobs: Sequence[float] | None = None
    """Log-probabilities under the reference policy, where they are stored."""
    advantage: float = 0.0
    is_rehearsal: bool = False
    """Which set the row belongs to; a property of the row, whatever micro-batch it lands in."""
    weight: float = 1.0
    """0 leaves the row out of the loss (its judging failed, or it was cut off and is masked)."""

    @property
    def length(self) -> int:
        return len(self.prompt_ids) + len(self.response_ids)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows padded to a common length: prompt and response together, padding on the right.

    B rows, L tokens in the longest row, T tokens in the longest response.
    """

    input_ids: Tensor
    """int64 [B, L]"""
    lengths: Tensor
    """int64 [B]: tokens of each row that are not padding."""
    prompt_lengths: Tensor
    """int64 [B]"""
    response_ids: Tensor
    """int64 [B, T]; padding is 0."""
    present: Tensor
    """bool [B, T]: where a response has a token."""
    response_mask: Tensor
    """float [B, T]: 1 on response tokens that count in the loss."""
    old_logprobs: Tensor
    """float [B, T]"""
    ref_logprobs: Tensor | None
    """float [B, T], or None where no row has them stored."""
    advantages: Tensor
    """float [B]"""
    is_rehearsal: Tensor
    """bool [B]"""


def microbatches(rows: Sequence[Row], token_budget: int) -> list[list[Row]]:
    """Cut rows into micro-batches of at most `token_budget` padded tokens each.

    Rows of like length go together, so that little is padded; a row longer than the budget goes alone. Which rows
    share a micro-batch has no influence on the loss (its denominators are those of the whole mini-batch).
    """
    batches: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: row.length, reverse=True):
        if batches and (len(batches[-1]) + 1) * batches[-1][0].length <= token_budget:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def _padded(values: Sequence[Sequence[float]], width: int, dtype: torch.dtype) -> Tensor:
    out = torch.zeros(len(values), width, dtype=dtype)
    for index, row in enumerate(values):
        out[index, : len(row)] = torch.tensor(row, dtype=dtype)
    return out


def collate(rows: Sequence[Row], device: torch.device | str = "cpu") -> Batch:
    """Pad rows and turn them into tensors."""
    if not rows:
        raise ValueError("cannot collate an empty batch")
    width = max(row.length for row in rows)
    steps = max(len(row.response_ids) for row in rows)
    response_lengths = torch.tensor([len(row.response_ids) for row in rows])
    present = torch.arange(steps)[None] < response_lengths[:, None]
    has_ref = any(row.ref_logprobs is not None for row in rows)
    batch = Batch(
        input_ids=_padded([[*row.prompt_ids, *row.response_ids] for row in rows], width, torch.long),
        lengths=torch.tensor([row.length for row in rows]),
        prompt_lengths=torch.tensor([len(row.prompt_ids) for row in rows]),
        response_ids=_padded([row.response_ids for row in rows], steps, torch.long),
        present=present,
        response_mask=present * torch.tensor([row.weight for row in rows])[:, None],
        old_logprobs=_padded([row.old_logprobs for row in rows], steps, torch.float32),
        ref_logprobs=_padded([row.ref_logprobs or () for row in rows], steps, torch.float32) if has_ref else None,
        advantages=torch.tensor([row.advantage for row in rows]),
        is_rehearsal=torch.tensor([row.is_rehearsal for row in rows]),
    )
    return batch if str(device) == "cpu" else _moved(batch, device)


def _moved(batch: Batch, device: torch.device | str) -> Batch:
    moved: dict[str, Any] = {}
    for item in fields(Batch):
        value = getattr(batch, item.name)
        moved[item.name] = None if value is None else value.to(device)
    return Batch(**moved)
