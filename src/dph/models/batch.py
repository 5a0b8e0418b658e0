"""From token ids to model inputs: rows of different lengths are cut into micro-batches, and then padded or packed.

`dph.models.fitting` says how many tokens a micro-batch may have.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import torch
from torch import Tensor

from dph.models.packing import Packed, PrefixLayout, Tokens, group_by_prompt, moved, pack, packed_tokens
from dph.shapes import check_tensor

R = TypeVar("R", bound=Tokens)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Model inputs for B rows of up to T response tokens, K response tokens in total.

    The inputs are either padded, with one sequence per row [B, L], or packed into one sequence [1, N] (see
    `dph.models.packing`). U input tokens predict the K response tokens.
    """

    input_ids: Tensor
    """int64: [B, L], padded on the right, or [1, N]."""
    position_ids: Tensor | None
    """int64 [1, N]; None for padded rows."""
    layout: PrefixLayout | None
    """Which packed tokens attend to which; None for padded rows."""
    sources: Tensor
    """int64 [U]: indices, into the flattened inputs, of the tokens that predict a response token."""
    states: Tensor
    """int64 [K]: index into `sources` for each response token, row by row."""
    response_ids: Tensor
    """int64 [B, T], padded with 0."""
    present: Tensor
    """bool [B, T]: True if a response has a token there."""

    def targets(self) -> Tensor:
        """int64 [K]: the response tokens, row by row. Raises ValueError if a tensor has another shape or type than this
        class documents."""
        if self.present.ndim != 2:
            raise ValueError(f"present must be a bool tensor [B, T], but has the shape {list(self.present.shape)}")
        rows, steps = self.present.shape
        sizes = {"B": rows, "T": steps, "L": self.input_ids.shape[-1], "U": self.sources.numel(), "1": 1}
        check_tensor("present", self.present, "bool", sizes, "BT")
        check_tensor("response_ids", self.response_ids, "int", sizes, "BT")
        check_tensor("input_ids", self.input_ids, "int", sizes, "BL" if self.layout is None else "1L")
        check_tensor("sources", self.sources, "int", sizes, "U")
        if self.position_ids is not None:
            check_tensor("position_ids", self.position_ids, "int", sizes, "1L")
        targets = self.response_ids[self.present]
        check_tensor("states", self.states, "int", {"K": len(targets)}, "K")
        return targets


def padded_length(longest: int, context: int | None = None) -> int:
    """The length to which rows of up to `longest` tokens are padded: a multiple of a sixteenth of the next power of
    two, at most `context`.

    Padding adds 4 % on average, and 12.5 % at most. If every micro-batch had a length of its own, no tensor would fit
    where a tensor of the last micro-batch was freed, and gaps would pile up in memory.

    >>> padded_length(100), padded_length(100, context=102)  # multiples of 128/16 = 8
    (104, 102)
    """
    step = max(1, (1 << longest.bit_length()) // 16)
    length = -(-longest // step) * step
    return length if context is None else max(longest, min(length, context))


def microbatches(rows: Sequence[R], token_budget: int) -> list[list[R]]:
    """Cut rows into micro-batches of rows of similar lengths. Each has at most `token_budget` input tokens, with
    padding. A row that is longer than the budget forms a micro-batch of its own.

    >>> rows = [Tokens([1], [2] * length) for length in (3, 7, 3)]
    >>> [[row.length for row in batch] for batch in microbatches(rows, token_budget=8)]
    [[8], [4, 4]]
    """
    batches: list[list[R]] = []
    for row in sorted(rows, key=lambda row: row.length, reverse=True):
        if batches and (len(batches[-1]) + 1) * padded_length(batches[-1][0].length) <= token_budget:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def by_prompt(rows: Sequence[R]) -> list[list[R]]:
    """The rows as groups, each with the rows of one prompt. The groups are in the order of the first rows of the
    prompts."""
    return [[rows[index] for index in indices] for indices in group_by_prompt(rows)]


def packed_microbatches(groups: Sequence[Sequence[R]], token_budget: int) -> list[list[R]]:
    """Cut groups, each the rows of one prompt, into micro-batches of at most `token_budget` tokens when packed. The
    rows of a prompt stay together as far as the budget allows."""
    sized = [(packed_tokens(piece), piece) for group in groups for piece in _pieces(group, token_budget)]
    batches: list[list[R]] = []
    room = 0
    for tokens, piece in sorted(sized, key=lambda pair: pair[0], reverse=True):
        if tokens <= room:
            batches[-1] += piece
            room -= tokens
        else:
            batches.append(list(piece))
            room = token_budget - tokens
    return batches


def _pieces(group: Sequence[R], token_budget: int) -> list[list[R]]:
    """The rows of one prompt, cut into pieces if they exceed the budget together. Each piece repeats the prompt."""
    if packed_tokens(group) <= token_budget:
        return [list(group)]
    pieces: list[list[R]] = []
    room = 0
    for row in group:
        if not pieces or len(row.response_ids) > room:
            pieces.append([])
            room = token_budget - len(row.prompt_ids)
        pieces[-1].append(row)
        room -= len(row.response_ids)
    return pieces


def padded(values: Sequence[Sequence[float]], width: int, dtype: torch.dtype) -> Tensor:
    """Rows of different lengths as one tensor [rows, width], padded with zeros on the right.

    >>> padded([[1, 2], [3]], width=3, dtype=torch.long)
    tensor([[1, 2, 0],
            [3, 0, 0]])
    """
    out = torch.zeros(len(values), width, dtype=dtype)
    for index, row in enumerate(values):
        out[index, : len(row)] = torch.tensor(row, dtype=dtype)
    return out


def _padded_inputs(rows: Sequence[Tokens], present: Tensor, context: int | None) -> dict[str, Any]:
    width = padded_length(max(row.length for row in rows), context)
    index, steps = present.nonzero(as_tuple=True)
    prompt_lengths = torch.tensor([len(row.prompt_ids) for row in rows])
    return {
        "input_ids": padded([[*row.prompt_ids, *row.response_ids] for row in rows], width, torch.long),
        "position_ids": None,
        "layout": None,
        "sources": index * width + prompt_lengths[index] - 1 + steps,
        "states": torch.arange(len(index)),
    }


def _packed_inputs(rows: Sequence[Tokens]) -> dict[str, Any]:
    packed = pack(rows)
    return {item.name: getattr(packed, item.name) for item in fields(Packed)}


def collate_tokens(
    rows: Sequence[Tokens],
    device: torch.device | str = "cpu",
    *,
    shared: bool = False,
    context: int | None = None,
) -> Inputs:
    """The model inputs for rows, padded or packed.

    Args:
        rows: prompts and responses.
        device: on which the inputs are.
        shared: whether rows are packed, so that common prefixes are stored once. Otherwise they are padded to
            `padded_length`.
        context: the context length of the model, which limits the padding.
    Raises:
        ValueError: there are no rows.
    """
    if not rows:
        raise ValueError("cannot collate an empty batch")
    steps = max(len(row.response_ids) for row in rows)
    response_lengths = torch.tensor([len(row.response_ids) for row in rows])
    present = torch.arange(steps)[None] < response_lengths[:, None]
    inputs = Inputs(
        **(_packed_inputs(rows) if shared else _padded_inputs(rows, present, context)),
        response_ids=padded([row.response_ids for row in rows], steps, torch.long),
        present=present,
    )
    return inputs if str(device) == "cpu" else moved(inputs, device)
