"""What a decoder does, and the test of whether a decoder reproduces a model's own logits."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from dph.models.policy import Policy
from dph.models.traits import agree

_PROMPTS = {True: [[[3, 4, 5, 6, 7], [5, 3]]], False: [[[3, 4, 5, 6, 7], [5, 3, 4, 4, 6]], [[5, 3], [4, 6]]]}
"""Prompts that the test decodes together: of different lengths, or of equal length."""
_TOKENS = ((6, 3, 5, 4), (4, 7, 3), (3, 6, 4))
"""Tokens that the test appends to its rows at each step. In place of the last one of the first step comes the padding
token, which some models treat in a special way."""
_KEPT = (0, 2, 3)  # the rows that are left after the test's first step
PROBED = 5 + len(_TOKENS)
"""Longest row of the test, in tokens."""


class Decoder(Protocol):
    """R rows in generation: `repeats` responses for each of a few prompts, grouped by prompt."""

    logits: Tensor
    """float32 [R, V]: logits of each row's next token."""

    def step(self, tokens: Tensor) -> None:
        """Append one token to each row; tokens: int64 [R]."""
        ...

    def select(self, keep: Tensor) -> None:
        """Keep only these rows; keep: int64 indices in ascending order."""
        ...


Start = Callable[[Policy, Sequence[Sequence[int]], int], Decoder]
"""Starts a decoder with a policy, prompts and the number of responses to each prompt."""


@torch.inference_mode()
def why_not(start: Start, policy: Policy, *, ragged: bool) -> str:
    """Why a model cannot be decoded in a way; empty if it can.

    The test decodes a few tokens of two responses to each of two prompts, drops a row on the way, and compares all
    logits with those of the plain forward pass over each row alone. So nothing needs to be known about the model's
    cache, masks and positions.

    Args:
        start: starts the decoder.
        ragged: whether prompts of different length are decoded together.
    """
    config, device = policy.model.config.get_text_config(), policy.device
    vocabulary, padding = config.vocab_size, getattr(config, "pad_token_id", None)
    steps = [_TOKENS[0] if padding is None else (*_TOKENS[0][:-1], padding), *_TOKENS[1:]]
    try:
        for prompts in _PROMPTS[ragged]:
            rows = [[token % vocabulary for token in prompt] for prompt in prompts]
            decoder = start(policy, rows, 2)
            rows = [row for row in rows for _ in range(2)]
            for number, tokens in enumerate([(), *steps]):
                if tokens:
                    decoder.step(torch.tensor(tokens, device=device) % vocabulary)
                    rows = [[*row, token % vocabulary] for row, token in zip(rows, tokens, strict=True)]
                if not _correct(policy, decoder, rows):
                    return "its logits differ from those of its plain forward pass"
                if number == 1:
                    decoder.select(torch.tensor(_KEPT, device=device))
                    rows = [rows[row] for row in _KEPT]
    except Exception as error:  # the model's code may raise anything; there is always another decoder
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def _correct(policy: Policy, decoder: Decoder, rows: Sequence[Sequence[int]]) -> bool:
    """Whether the decoder's logits are those of the model's plain forward pass over each row."""
    with policy.autocast():
        own = [
            policy.model(input_ids=torch.tensor([row], device=policy.device), use_cache=False).logits[0, -1]
            for row in rows
        ]
    return agree(decoder.logits, torch.stack(own).float(), policy.precision)
