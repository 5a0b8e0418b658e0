# pyright: reportMissingImports=false
"""Rows of token ids as TRL's tensors hold them: prompts padded on the left, responses padded on the right."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from trl.trainer.utils import split_tensor_dict

from dph.models.batch import Tokens, padded
from dph.models.packing import group_by_prompt


def padded_rows(rows: Sequence[Tokens], pad: int, device: torch.device) -> tuple[Tensor, Tensor, int]:
    """Token ids [B, L], attention mask [B, L], and the number of last columns that hold responses."""
    width, steps = (max(len(getattr(row, name)) for row in rows) for name in ("prompt_ids", "response_ids"))
    ids, mask = [], []
    for row in rows:
        left, right = [0] * (width - len(row.prompt_ids)), [0] * (steps - len(row.response_ids))
        ids.append([*left, *row.prompt_ids, *row.response_ids, *right])
        mask.append([*left, *[1] * row.length, *right])
    filled, present = (padded(values, width + steps, torch.long).to(device) for values in (ids, mask))
    return filled.masked_fill(present == 0, pad), present, steps


def rows_of(ids: Tensor, mask: Tensor, steps: int) -> list[Tokens] | None:
    """The rows of padded tensors, as `padded_rows` returns them; None if the mask has another shape than padding.

    Padding leaves one piece of each row, with the last token of its prompt.
    """
    seen = mask.bool().cpu()
    width = seen.shape[1] - steps
    pieces = (seen[:, 1:] & ~seen[:, :-1]).sum(1) + seen[:, 0]
    if width == 0 or not bool(seen[:, width - 1].all() and (pieces == 1).all()):
        return None
    columns = (slice(None, width), slice(width, None))
    return [
        Tokens(*(row[part][present[part]].tolist() for part in columns))
        for row, present in zip(ids.cpu(), seen, strict=True)
    ]


def group_rows(parts: Sequence[Mapping[str, Tensor | None]]) -> list[dict[str, Any]]:
    """The rows of TRL's micro-batches in as many of the same size, those with the same prompt next to each other."""

    def joined(values: Sequence[Tensor | None]) -> Tensor | None:
        first = values[0]
        return first if first is None or first.ndim == 0 else torch.cat([one for one in values if one is not None])

    every = {name: joined([part[name] for part in parts]) for name in parts[0]}
    ids, mask = every["prompt_ids"], every["prompt_mask"]
    assert ids is not None and mask is not None
    prompts = [Tokens(row[seen].tolist(), []) for row, seen in zip(ids.cpu(), mask.bool().cpu(), strict=True)]
    order = torch.tensor([index for group in group_by_prompt(prompts) for index in group], device=ids.device)
    ordered: dict[str, Any] = {
        name: value if value is None or value.ndim == 0 else value[order] for name, value in every.items()
    }
    return split_tensor_dict(ordered, len(parts))
