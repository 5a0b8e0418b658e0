"""From token ids to model inputs: rows of different lengths are cut into micro-batches, then padded or packed.

A micro-batch has as many tokens as memory allows, by what the backward pass keeps for each.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from dph.models.packing import Packed, PrefixLayout, Tokens, group_by_prompt, moved, pack, packed_tokens
from dph.process.interrupts import launched_processes
from dph.process.memory import free_memory

if TYPE_CHECKING:
    from dph.models.policy import Policy

KEPT_ON_CPU = 5 << 26
"""Bytes of activations that a micro-batch may keep on a CPU. Larger ones are not faster there: with 135 million
parameters in bf16, 585, 694 and 925 tokens give the same tokens per second, within the differences between runs."""
_SHARE = 0.5
"""Of the memory that is free besides gradients and moments, the share that activations or responses may take."""
MOST_ROWS = {"cpu": 512}
MOST_ROWS_OTHERWISE = 1024
"""More responses at once are hardly faster: a step of decoding then takes time in proportion to its rows."""
_PROBED = (64, 192)  # tokens of the two trials
_FEWEST, _MOST = 256, 16384


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


def padded_length(longest: int, context: int | None = None) -> int:
    """Length to which rows of up to `longest` tokens are padded: a multiple of a sixteenth of the next power of two, at
    most `context`.

    Padding adds 4 % on average, 12.5 % at most. If every micro-batch had a length of its own, none of its tensors would
    fit where one of the last micro-batch was freed, and gaps would pile up in memory.
    """
    step = max(1, (1 << longest.bit_length()) // 16)
    length = -(-longest // step) * step
    return length if context is None else max(longest, min(length, context))


def microbatches(rows: Sequence[R], token_budget: int) -> list[list[R]]:
    """Cut rows into micro-batches of similar lengths and at most `token_budget` input tokens each, padding included. A
    row longer than the budget forms one of its own."""
    batches: list[list[R]] = []
    for row in sorted(rows, key=lambda row: row.length, reverse=True):
        if batches and (len(batches[-1]) + 1) * padded_length(batches[-1][0].length) <= token_budget:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def by_prompt(rows: Sequence[R]) -> list[list[R]]:
    """Rows as groups with one prompt each, in the order of their first rows."""
    return [[rows[index] for index in indices] for indices in group_by_prompt(rows)]


def packed_microbatches(groups: Sequence[Sequence[R]], token_budget: int) -> list[list[R]]:
    """As `microbatches`, for packed rows, given the rows of each prompt, which stay together as far as they fit."""
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
    """Rows of one prompt, cut into pieces if they exceed the budget together; each piece repeats the prompt."""
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
    """Rows of different lengths as one tensor [rows, width], zero-padded on the right."""
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
    """The model inputs for rows: padded to `padded_length`, with `context` the model's context length or, with
    `shared`, packed so that common prefixes are stored once. Raises ValueError if there are no rows."""
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


# The size of a micro-batch -------------------------------------------------------------------------------------------


def fitting_tokens(policy: "Policy") -> int:
    """Tokens of a micro-batch, 256 to 16384, whose activations fit into memory with the gradients and AdamW's moments.
    On a CPU they take at most 320 MiB. Unless memory is short, the model and the type of device alone decide."""
    room = int(_SHARE * (_free(policy.device) - _state(policy)))
    if policy.device.type == "cpu":
        room = min(room, KEPT_ON_CPU)
    return max(_FEWEST, min(_MOST, room // kept_per_token(policy)))


def fitting_rows(policy: "Policy", prompt: int, response: int, *, step: int = 0) -> int:
    """Responses that can be decoded together: as many as fit into memory, if each has a prompt of its own and no end;
    at least 1, at most MOST_ROWS or, if these are more, all responses of a step.

    Each takes keys and values, in buffers of up to twice its length, and logits, of which drawing a token makes copies.

    prompt, response: tokens of the longest of each. step: responses of a step of training, which also needs memory for
    gradients and moments; 0 without training.
    """
    config, narrow = policy.config, policy.precision == "bf16"
    heads, width = (getattr(config, name, None) for name in ("num_key_value_heads", "head_dim"))
    numbers = 2 * config.num_hidden_layers * (heads * width if heads and width else config.hidden_size)
    each = numbers * (2 if narrow else 4) * (prompt + 2 * response) + 16 * config.vocab_size
    taken = sum(2 * p.numel() for p in policy.model.parameters() if narrow and p.dtype.itemsize >= 4)  # casts
    taken += _state(policy) if step else 0
    most = max(step, MOST_ROWS.get(policy.device.type, MOST_ROWS_OTHERWISE))
    return max(1, min(most, int(_SHARE * (_free(policy.device) - taken)) // each))


def _state(policy: "Policy") -> int:
    """Bytes of fp32 gradients and of two moments; the optimizer also keeps fp32 copies of weights of 16 bits."""
    return sum(p.numel() * (12 if p.dtype.itemsize >= 4 else 16) for _, p in policy.trainable())


def kept_per_token(policy: "Policy") -> int:
    """Bytes that the backward pass keeps for each input token, by two forward passes over a few tokens. A model that
    recomputes its layers keeps their inputs, which are counted at four bytes a number."""
    config, context = policy.model.config.get_text_config(), policy.context_length
    inputs = 4 * config.hidden_size * config.num_hidden_layers
    few, many = _PROBED if _PROBED[1] <= context else (max(1, context // 4), context)
    few, many = padded_length(few, context), padded_length(many, context)
    return max(inputs, (_kept(policy, many) - _kept(policy, few)) // max(1, many - few))


def _kept(policy: "Policy", tokens: int) -> int:
    """Bytes that the forward pass over one row keeps for the backward pass, without the weights."""
    vocabulary = policy.model.config.get_text_config().vocab_size
    # Logits are kept in chunks of a constant size, unless the model transforms them.
    predicted = 1 if policy.head is not None else tokens - 1
    ids = [(3 + 5 * step) % vocabulary for step in range(tokens)]
    return kept_bytes(policy, [Tokens(ids[: tokens - predicted], ids[tokens - predicted :])])


def kept_bytes(policy: "Policy", rows: Sequence[Tokens]) -> int:
    """Bytes that the forward pass over rows keeps for the backward pass, without the weights."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in policy.model.parameters()}
    kept: dict[int, Tensor] = {}  # by address; holding them keeps addresses from being used twice

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = alone = tensor.detach()
        return alone  # with its history, a tensor that an operation returned would keep itself alive

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        policy.logprobs(policy.collate(rows))
    return sum(tensor.untyped_storage().nbytes() for address, tensor in kept.items() if address not in weights)


def _free(device: torch.device) -> int:
    """Bytes that this process may still take on a device; very large if the system does not say."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    free = free_memory() if device.type == "cpu" else None
    return 1 << 62 if free is None else free // launched_processes()
