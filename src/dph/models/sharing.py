"""Whether a model's common beginnings may be computed once: its settings are read, and it is tried out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dph.models.batch import Inputs, Tokens, collate_tokens

_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}
"""Largest difference of packed from plain outputs, relative to the largest output; rounding makes 1e-6 of it."""
_COARSE_TOLERANCE = 0.05
"""The same for weights of 16 bits."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """What was found about a model."""

    obstacle: str | None
    """Why its rows cannot share beginnings; None where they can."""
    window: int
    """Longest row, in tokens, that may share: the model's smallest attention window."""


def attention_window(config: Any) -> int:
    """Tokens of the smallest window or chunk that any layer attends to, by the model's text settings."""
    sizes = [1 << 40]
    if getattr(config, "use_sliding_window", True) and getattr(config, "sliding_window", None):
        sizes.append(int(config.sliding_window))
    if getattr(config, "attention_chunk_size", None):
        sizes.append(int(config.attention_chunk_size))
    return min(sizes)


@torch.no_grad()
def examine(predict: Callable[[Inputs], Tensor], config: Any, device: torch.device, dtype: torch.dtype) -> Sharing:
    """Compare packed with plain outputs on a few tokens.

    Models whose layers carry a state along the sequence, bias scores by distance or hide their attention from
    transformers' interface differ, or fail, and are so found whatever their name.

    Args:
        predict: outputs [U, width] of the model at the sources of a batch.
        config: the model's text settings.
    """
    window = attention_window(config)
    lengths = [(5, 3), (5, 4), (3, 2)]
    rows = []
    for index, (prompt, response) in enumerate(lengths):
        first = 0 if index < 2 else 7  # the first two have one prompt
        ids = [(3 + 5 * step) % config.vocab_size for step in range(first, first + prompt)]
        more = [(4 + index + 7 * step) % config.vocab_size for step in range(response)]
        rows.append(Tokens(ids, more))
    if max(row.length for row in rows) > window:
        return Sharing(f"its attention window has only {window} tokens", window)
    try:
        outputs = []
        for shared in (False, True):
            batch = collate_tokens(rows, device, shared=shared)
            outputs.append(predict(batch)[batch.states].double())
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        return Sharing(str(error).strip().split("\n")[0] or type(error).__name__, window)
    plain, packed = outputs
    difference = float((packed - plain).abs().max() / plain.abs().max())
    if difference > _TOLERANCE.get(dtype, _COARSE_TOLERANCE):
        return Sharing("its layers join tokens by other means than causal attention", window)
    return Sharing(None, window)
