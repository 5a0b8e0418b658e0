"""From rollouts to tensors: ragged rows, cut into micro-batches by a token budget, padded or packed, and collated."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from dph.models.packing import Packed, PrefixLayout, group_by_prompt, pack, packed_tokens


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
    sampled_logprobs: Sequence[float] | None = None
    """Log-probabilities that the sampler reported, where `old_logprobs` are to be the trainer's own."""

    @property
    def length(self) -> int:
        return len(self.prompt_ids) + len(self.response_ids)


@dataclass(frozen=True, slots=True)
class Batch:
    """B rows with up to T response tokens each, K response tokens in all.

    The model's inputs are either padded, one row each, [B, L], or packed, [1, N] (see `dph.models.packing`); U of
    their tokens predict the K response tokens.
    """

    input_ids: Tensor
    """int64 [B, L], padding on the right, or [1, N]"""
    position_ids: Tensor | None
    """int64 [1, N]; None where rows are padded."""
    layout: PrefixLayout | None
    """Which packed tokens attend to which; None where rows are padded."""
    sources: Tensor
    """int64 [U]: places in the flattened inputs of the tokens that something is predicted from."""
    states: Tensor
    """int64 [K]: by which of these each response token is predicted, row by row."""
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
    sampled_logprobs: Tensor | None = None
    """float [B, T]: the sampler's own log-probabilities, where any row has them apart from `old_logprobs`."""


def microbatches(rows: Sequence[Row], token_budget: int, *, shared: bool = False) -> list[list[Row]]:
    """Cut rows into micro-batches of at most `token_budget` tokens each, as the model sees them.

    Padded, rows of like length go together, so that little is padded; packed (`shared`), rows of one prompt go
    together as far as the budget allows. A row longer than the budget goes alone. Which rows share a micro-batch has
    no influence on the loss (its denominators are those of the whole mini-batch).
    """
    if shared:
        return _packed_microbatches(rows, token_budget)
    batches: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: row.length, reverse=True):
        if batches and (len(batches[-1]) + 1) * batches[-1][0].length <= token_budget:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def _packed_microbatches(rows: Sequence[Row], token_budget: int) -> list[list[Row]]:
    sized = []
    for indices in group_by_prompt(rows):
        group = [rows[index] for index in indices]
        sized += [(packed_tokens(part), part) for part in _pieces(group, token_budget)]
    batches: list[list[Row]] = []
    room = 0
    for tokens, part in sorted(sized, key=lambda pair: pair[0], reverse=True):
        if tokens <= room:
            batches[-1] += part
            room -= tokens
        else:
            batches.append(list(part))
            room = token_budget - tokens
    return batches


def _pieces(group: list[Row], token_budget: int) -> list[list[Row]]:
    """Rows of one prompt whole, or cut into pieces within the budget, which each hold the prompt again."""
    if packed_tokens(group) <= token_budget:
        return [group]
    pieces: list[list[Row]] = []
    room = 0
    for row in group:
        if not pieces or len(row.response_ids) > room:
            pieces.append([])
            room = token_budget - len(row.prompt_ids)
        pieces[-1].append(row)
        room -= len(row.response_ids)
    return pieces


def _padded(values: Sequence[Sequence[float]], width: int, dtype: torch.dtype) -> Tensor:
    out = torch.zeros(len(values), width, dtype=dtype)
    for index, row in enumerate(values):
        out[index, : len(row)] = torch.tensor(row, dtype=dtype)
    return out


def _padded_inputs(rows: Sequence[Row], present: Tensor) -> dict[str, Any]:
    width = max(row.length for row in rows)
    index, steps = present.nonzero(as_tuple=True)
    prompt_lengths = torch.tensor([len(row.prompt_ids) for row in rows])
    return {
        "input_ids": _padded([[*row.prompt_ids, *row.response_ids] for row in rows], width, torch.long),
        "position_ids": None,
        "layout": None,
        "sources": index * width + prompt_lengths[index] - 1 + steps,
        "states": torch.arange(len(index)),
    }


def _packed_inputs(rows: Sequence[Row]) -> dict[str, Any]:
    packed = pack(rows)
    return {item.name: getattr(packed, item.name) for item in fields(Packed)}


def collate(rows: Sequence[Row], device: torch.device | str = "cpu", *, shared: bool = False) -> Batch:
    """Turn rows into tensors, padded or (`shared`) packed so that common beginnings stand once."""
    if not rows:
        raise ValueError("cannot collate an empty batch")
    steps = max(len(row.response_ids) for row in rows)
    response_lengths = torch.tensor([len(row.response_ids) for row in rows])
    present = torch.arange(steps)[None] < response_lengths[:, None]
    has_ref = any(row.ref_logprobs is not None for row in rows)
    has_sampled = any(row.sampled_logprobs is not None for row in rows)
    sampled = [row.old_logprobs if row.sampled_logprobs is None else row.sampled_logprobs for row in rows]
    batch = Batch(
        **(_packed_inputs(rows) if shared else _padded_inputs(rows, present)),
        response_ids=_padded([row.response_ids for row in rows], steps, torch.long),
        present=present,
        response_mask=present * torch.tensor([row.weight for row in rows])[:, None],
        old_logprobs=_padded([row.old_logprobs for row in rows], steps, torch.float32),
        ref_logprobs=_padded([row.ref_logprobs or () for row in rows], steps, torch.float32) if has_ref else None,
        advantages=torch.tensor([row.advantage for row in rows]),
        is_rehearsal=torch.tensor([row.is_rehearsal for row in rows]),
        sampled_logprobs=_padded(sampled, steps, torch.float32) if has_sampled else None,
    )
    return batch if str(device) == "cpu" else _moved(batch, device)


def _moved(batch: Batch, device: torch.device | str) -> Batch:
    moved: dict[str, Any] = {}
    for item in fields(Batch):
        value = getattr(batch, item.name)
        moved[item.name] = None if value is None else value.to(device)
    return Batch(**moved)
