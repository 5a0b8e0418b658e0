"""Decoding with the model's own attention. Each response has a copy of its prompt's keys and values.

This works for models whose layers keep keys and values, and which honour positions and masks that are given to them.
Where `shared_decode` applies, it is several times faster.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from dph.models.policy import Policy

_GROW_TOKENS = 64
"""Key/value buffers grow by this many positions at a time."""


class BufferedLayer(DynamicLayer):
    """A key/value cache layer that appends to a preallocated buffer instead of copying the cache at every token."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Append states [B, heads, new, dim]. Return all keys and values so far, as views of the buffers."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._used, self._buffers = 0, [key_states[..., :0, :], value_states[..., :0, :]]
        end = self._used + key_states.shape[-2]
        if end > self._buffers[0].shape[-2]:
            self._buffers = [self._grown(buffer, end) for buffer in self._buffers]
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[..., self._used : end, :] = states
        self._used = end
        return self._show()

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._buffers = [buffer.repeat_interleave(repeats, dim=0) for buffer in self._buffers]
        self._show()

    def batch_select_indices(self, indices: Tensor) -> None:
        self._buffers = [buffer[indices] for buffer in self._buffers]
        self._show()

    def _grown(self, buffer: Tensor, end: int) -> Tensor:
        batch, heads, _, dim = buffer.shape
        larger = buffer.new_empty(batch, heads, end + _GROW_TOKENS, dim)
        larger[..., : self._used, :] = buffer[..., : self._used, :]
        return larger

    def _show(self) -> tuple[Tensor, Tensor]:
        keys, values = (buffer[..., : self._used, :] for buffer in self._buffers)
        self.keys, self.values = keys, values
        return keys, values


class PlainDecoder:
    """Decodes the responses of a few prompts together; see `Decoder` in `dph.sampling.decoders`."""

    def __init__(self, policy: Policy, prompts: Sequence[Sequence[int]], repeats: int) -> None:
        """Run the left-padded prompts once, then repeat the cache for each response of a group."""
        self._policy = policy
        device, width = policy.device, max(map(len, prompts))
        ids = torch.zeros(len(prompts), width, dtype=torch.long)
        mask = torch.zeros(len(prompts), width, dtype=torch.long)
        for index, prompt in enumerate(prompts):
            ids[index, width - len(prompt) :] = torch.tensor(prompt)
            mask[index, width - len(prompt) :] = 1
        ids, mask = ids.to(device), mask.to(device)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        self._cache = Cache(layer_class_to_replicate=BufferedLayer)
        with policy.autocast():
            last = policy.arguments.taken(logits_to_keep=1)
            logits = policy.model(input_ids=ids, use_cache=True, **self._taken(mask, positions), **last).logits[:, -1]
        self._cache.batch_repeat_interleave(repeats)
        self.logits = logits.float().repeat_interleave(repeats, dim=0)
        self._positions = (positions[:, -1] + 1).repeat_interleave(repeats)
        self._mask = mask.repeat_interleave(repeats, dim=0)

    def step(self, tokens: Tensor) -> None:
        """Append one token to each row; tokens: int64 [R]."""
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(tokens), 1)], dim=1)
        with self._policy.autocast():
            output = self._policy.model(
                input_ids=tokens[:, None], use_cache=True, **self._taken(self._mask, self._positions[:, None])
            )
        self.logits = output.logits[:, -1].float()
        self._positions = self._positions + 1

    def _taken(self, mask: Tensor, positions: Tensor) -> dict[str, Any]:
        return self._policy.arguments.taken(cache=self._cache, attention_mask=mask, position_ids=positions)

    def select(self, keep: Tensor) -> None:
        """Keep only these rows; keep: int64 indices in ascending order."""
        self._cache.batch_select_indices(keep)
        self.logits, self._positions, self._mask = self.logits[keep], self._positions[keep], self._mask[keep]
