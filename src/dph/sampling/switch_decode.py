"""Decoding across the length at which a model's rotary embedding changes.

Longer rows rotate all keys by other frequencies, those of the prompt included (see `dph.models.policy.Policy`). A cache
from before holds keys of the old frequencies, so it is computed anew when rows get longer than this.
"""

from collections.abc import Sequence

from torch import Tensor

from dph.models.policy import Policy
from dph.sampling.decoders import Decoder, Start


class SwitchDecoder:
    """Decodes the responses of prompts of equal length; see `Decoder` in `dph.sampling.decoders`."""

    def __init__(self, start: Start, policy: Policy, prompts: Sequence[Sequence[int]], repeats: int) -> None:
        """start: starts the decoder that is used before and after the change."""
        self._start, self._policy = start, policy
        self._rows = [list(prompt) for prompt in prompts for _ in range(repeats)]
        self._follow(start(policy, prompts, repeats))

    def step(self, tokens: Tensor) -> None:
        """Append one token to each row; tokens: int64 [R]."""
        for row, token in zip(self._rows, tokens.tolist(), strict=True):
            row.append(token)
        if len(self._rows[0]) == self._policy.traits.switch + 1:
            self._follow(self._start(self._policy, self._rows, 1))
        else:
            self._decoder.step(tokens)
            self._follow(self._decoder)

    def select(self, keep: Tensor) -> None:
        """Keep only these rows; keep: int64 indices in ascending order."""
        self._rows = [self._rows[row] for row in keep.tolist()]
        self._decoder.select(keep)
        self._follow(self._decoder)

    def _follow(self, decoder: Decoder) -> None:
        self._decoder, self.logits = decoder, decoder.logits
