"""How many tokens may pass through a model at once, from what the backward pass keeps for each."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dph.models.batch import Tokens, padded_length
from dph.process.memory import FreedMemory, free_memory

if TYPE_CHECKING:
    from dph.models.policy import Policy

_KEPT_ON_CPU = 5 << 26
"""Bytes of activations that a micro-batch may keep on a CPU. Larger micro-batches are no faster there: with 135 million
parameters in bf16, 585, 694 and 925 tokens give the same tokens per second, within the differences between runs."""
_SHARE = 0.5
"""Of the memory that is free beside gradients and moments, the share that activations may take."""
_PROBED = (64, 192)  # tokens of the two trials
_FEWEST, _MOST = 256, 16384


def fitting_tokens(policy: "Policy") -> int:
    """Tokens of a micro-batch whose activations fit into memory beside the gradients and AdamW's moments.

    On a CPU they are also limited to 320 MiB. The result is between 256 and 16384 and depends, unless memory is
    short, on the model and the kind of device only.
    """
    # fp32 gradients and two moments; the optimizer also keeps fp32 copies of weights of 16 bits
    state = sum(p.numel() * (12 if p.dtype.itemsize >= 4 else 16) for _, p in policy.trainable())
    room = int(_SHARE * (_free(policy.device) - state))
    if policy.device.type == "cpu":
        room = min(room, _KEPT_ON_CPU)
    return max(_FEWEST, min(_MOST, room // kept_per_token(policy)))


def freed_memory(policy: "Policy", tokens: int) -> FreedMemory:
    """What returns freed memory while a policy is trained with micro-batches of this many tokens."""
    return FreedMemory(host_bytes(policy), activation_bytes(policy, tokens))


def host_bytes(policy: "Policy") -> int:
    """Bytes of the weights in the memory of this process; 0 if they are on a GPU."""
    return sum(p.numel() * p.element_size() for p in policy.model.parameters() if p.device.type == "cpu")


def activation_bytes(policy: "Policy", tokens: int) -> int:
    """Bytes of the largest tensor that each layer makes for a micro-batch: hidden states, or a feed-forward's inside.

    Hidden states are in fp32 unless the weights are not. Logits are larger, and made in chunks.
    """
    config = policy.model.config.get_text_config()
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    kept = next(policy.model.parameters()).element_size()
    return tokens * max(kept * config.hidden_size, (2 if policy.precision == "bf16" else 4) * inner)


def kept_per_token(policy: "Policy") -> int:
    """Bytes that the backward pass keeps for each input token, beside what it keeps for any number of tokens.

    Measured by two forward passes over a few tokens. A model that recomputes its layers keeps their inputs, which are
    counted at four bytes a number.
    """
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
        kept[tensor.untyped_storage().data_ptr()] = found = tensor.detach()
        return found  # with its history, a tensor that an operation returned would keep itself alive

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        policy.logprobs(policy.collate(rows))
    return sum(tensor.untyped_storage().nbytes() for address, tensor in kept.items() if address not in weights)


def _free(device: torch.device) -> int:
    """Bytes that this process may still take on a device; very large where the system does not say."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    free = free_memory() if device.type == "cpu" else None
    return 1 << 62 if free is None else free
