"""Decoding with the cache that the model makes for itself, for prompts of equal length.

A layer with a recurrent or convolutional state keeps this state instead of keys and values, and some models count
positions in a way of their own. Each model's code fills and reads its own cache, and rows of equal length need neither
padding nor masks nor positions.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dph.models.policy import Policy
from dph.models.trial import Unsupported


class StateDecoder:
    """Decodes the responses of prompts of equal length; see `Decoder` in `dph.sampling.decoders`."""

    def __init__(self, policy: Policy, prompts: Sequence[Sequence[int]], repeats: int) -> None:
        """Run the prompts once, then repeat their state for each response of a group."""
        self._policy, self._cache = policy, {}
        self._run(torch.tensor(prompts, device=policy.device))
        self._take(torch.arange(len(prompts), device=policy.device).repeat_interleave(repeats))

    def step(self, tokens: Tensor) -> None:
        """Append one token to each row; tokens: int64 [R]."""
        self._run(tokens[:, None])

    def select(self, keep: Tensor) -> None:
        """Keep only these rows; keep: int64 indices in ascending order."""
        self._take(keep)

    def _take(self, rows: Tensor) -> None:
        """Continue with these rows, some of which may be equal."""
        for cache in self._cache.values():
            cache.reorder_cache(rows)
        self.logits = self.logits[rows]

    def _run(self, ids: Tensor) -> None:
        with self._policy.autocast():
            output = self._policy.model(input_ids=ids, use_cache=True, **self._cache)
        self.logits: Tensor = output.logits[:, -1].float()
        name = self._policy.arguments.cache
        if name is None:
            raise Unsupported("its forward pass takes no cache")
        self._cache: dict[str, Any] = {name: output[name]}
