"""What a sampler is."""

from collections.abc import Sequence
from typing import Protocol

from dph.types import Completion, SamplingParams


class Sampler(Protocol):
    """Generates responses of the current policy."""

    def sample(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[int]
    ) -> list[list[Completion]]:
        """Draw `params.n` responses for each prompt.

        Args:
            prompts: token ids.
            params: temperature 0 decodes greedily.
            keys: one random key per prompt (see dph.seeding.derive_key); the i-th response of a prompt depends on its
                key, i and the policy only.
        Returns:
            For each prompt its responses, in the order of the prompts.
        """
        ...
