"""Rows of token ids as verl's nested tensors hold them, and micro-batches of rows that share prompts."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dph.models.batch import Tokens
from dph.models.packing import packed_tokens


@dataclass(frozen=True, slots=True)
class IndexedTokens(Tokens):
    """A row with its place in the batch."""

    index: int


def rows_of(data: Any) -> list[IndexedTokens] | None:
    """The rows of a batch, or None if it does not hold each row as a prompt and then a response, without padding."""
    names = ("prompts", "responses", "input_ids", "position_ids")
    if not all(name in data and data[name].is_nested and data[name].dim() == 2 for name in names):
        return None
    prompts, responses, ids, positions = (data[name] for name in names)
    lengths = prompts.offsets().diff() + responses.offsets().diff()
    starts = ids.offsets()[:-1]
    if not ids.offsets().diff().equal(lengths):
        return None
    counted = torch.arange(len(ids.values()), device=starts.device) - starts.repeat_interleave(lengths)
    if not positions.values().equal(counted.to(positions.dtype)):
        return None
    known: dict[tuple[int, ...], tuple[int, ...]] = {}  # one object for each prompt, so that equal ones are found fast
    pairs = zip(_pieces(prompts), _pieces(responses), strict=True)
    return [IndexedTokens(known.setdefault(prompt, prompt), response, i) for i, (prompt, response) in enumerate(pairs)]


def _pieces(nested: Any) -> list[tuple[int, ...]]:
    values, offsets = nested.values().tolist(), nested.offsets().tolist()
    return [tuple(values[start:end]) for start, end in itertools.pairwise(offsets)]


def in_parts(parts: Sequence[list[IndexedTokens]], count: int) -> list[list[IndexedTokens]]:
    """The same rows in `count` micro-batches: the largest of several rows are halved.

    `count` is at least the number of parts and at most that of rows. FSDP's ranks wait for each other in every forward
    pass, so all of them need the same number.
    """
    out = list(parts)
    while len(out) < count:
        out.sort(key=lambda part: packed_tokens(part) if len(part) > 1 else 0)
        largest = out.pop()
        half = len(largest) // 2
        out += [largest[:half], largest[half:]]
    return out


def whole_sequences(values: Tensor, rows: Sequence[Tokens], ids: Any) -> Tensor:
    """Values of all response tokens as verl keeps them: at the token that predicts each, and 0 elsewhere.

    Args:
        values: [K], row by row.
        ids: the nested token ids of the rows.
    Returns:
        Nested, as long as the rows.
    """
    starts = ids.offsets()[:-1].tolist()
    places = [
        start + len(row.prompt_ids) - 1 + step
        for start, row in zip(starts, rows, strict=True)
        for step in range(len(row.response_ids))
    ]
    flat = values.new_zeros(len(ids.values())).index_copy(0, torch.tensor(places, device=values.device), values)
    return torch.nested.nested_tensor_from_jagged(flat, ids.offsets())
