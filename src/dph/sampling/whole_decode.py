"""Decoding without a cache: every step runs the forward pass of training over all tokens of each row.

This works for every model that training accepts, and is slow: the time for a response grows with the square of its
length.
"""

from collections.abc import Sequence

from torch import Tensor

from dph.models.policy import Policy

_TOKENS = 16384
"""Most tokens, padding included, in one forward pass."""


class WholeDecoder:
    """Decodes the responses of a few prompts together; see `Decoder` in `dph.sampling.decoders`."""

    def __init__(self, policy: Policy, prompts: Sequence[Sequence[int]], repeats: int) -> None:
        self._policy = policy
        self._rows = [list(prompt) for prompt in prompts]
        logits = policy.next_logits(self._rows, _TOKENS)
        self._rows = [list(row) for row in self._rows for _ in range(repeats)]
        self.logits = logits.repeat_interleave(repeats, dim=0)

    def step(self, tokens: Tensor) -> None:
        """Append one token to each row; tokens: int64 [R]."""
        for row, token in zip(self._rows, tokens.tolist(), strict=True):
            row.append(token)
        self.logits = self._policy.next_logits(self._rows, _TOKENS)

    def select(self, keep: Tensor) -> None:
        """Keep only these rows; keep: int64 indices in ascending order."""
        self._rows = [self._rows[row] for row in keep.tolist()]
        self.logits = self.logits[keep]
