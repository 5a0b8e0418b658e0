"""Decides whether a model can compute a shared prefix once: reads its settings and runs a small test."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dph.models.batch import Tokens
from dph.models.traits import rotary_limits

_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}
"""Largest allowed difference between packed and plain outputs, relative to the largest output; rounding causes 1e-6."""
_COARSE_TOLERANCE = 0.05
"""The same for computation in 16 bits."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """Whether, and for which rows, a model can share prefixes."""

    failure: str | None
    """Why no rows can share prefixes; None if some can."""
    window: int
    """Longest row, in tokens, that can share: the model's smallest attention window."""
    switch: int
    """Longest row, in tokens, whose rotary embedding is that of shorter rows."""

    def obstacle(self, longest: int) -> str | None:
        """Why rows of up to this many tokens cannot share prefixes; None if they can."""
        if self.failure is not None:
            return self.failure
        if longest > self.window:
            return f"its attention window of {self.window} tokens is shorter than the sequences"
        if longest > self.switch:
            return f"its rotary embedding is another for sequences of more than {self.switch} tokens"
        return None


def attention_window(config: Any) -> int:
    """Size, in tokens, of the smallest attention window or chunk of any layer, from the model's text config."""
    sizes = [1 << 40]
    if getattr(config, "use_sliding_window", True) and getattr(config, "sliding_window", None):
        sizes.append(int(config.sliding_window))
    if getattr(config, "attention_chunk_size", None):
        sizes.append(int(config.attention_chunk_size))
    return min(sizes)


def has_noise(model: torch.nn.Module) -> bool:
    """Whether dropout (as a layer, or as a rate that the model's code reads) or NEFTune is active in any part."""
    for part in model.modules():
        if part.training:
            layer = isinstance(part, torch.nn.modules.dropout._DropoutNd)
            names = (name for name in vars(part) if "drop" in name or "neftune" in name or (layer and name == "p"))
            if any(isinstance(rate := getattr(part, name), float) and rate > 0 for name in names):
                return True
    return False


@torch.no_grad()
def examine(compute: Callable[[Sequence[Tokens], bool], Tensor], config: Any, dtype: torch.dtype) -> Sharing:
    """Compare packed with plain outputs on a few tokens.

    The outputs differ, or the run fails, for models whose layers carry a state along the sequence, bias scores by
    distance or bypass transformers' attention interface. So no list of model names is needed.

    Args:
        compute: returns the model's outputs for every response token of rows, row by row; the flag says whether to pack
            the rows.
        config: the model's text config.
        dtype: the type in which it computes, which sets the tolerance.
    """
    window, switch = attention_window(config), min(rotary_limits(config))
    lengths = [(5, 3), (5, 4), (3, 2)]
    rows = []
    for index, (prompt, response) in enumerate(lengths):
        first = 0 if index < 2 else 7  # the first two rows share a prompt
        ids = [(3 + 5 * step) % config.vocab_size for step in range(first, first + prompt)]
        more = [(4 + index + 7 * step) % config.vocab_size for step in range(response)]
        rows.append(Tokens(ids, more))
    if max(row.length for row in rows) > window:
        return Sharing(f"its attention window has only {window} tokens", window, switch)
    try:
        plain, packed = (compute(rows, shared).double() for shared in (False, True))
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        return Sharing(str(error).strip().split("\n")[0] or type(error).__name__, window, switch)
    difference = float((packed - plain).abs().max() / plain.abs().max())
    if difference > _TOLERANCE.get(dtype, _COARSE_TOLERANCE):
        return Sharing("its layers mix tokens in other ways than causal attention", window, switch)
    return Sharing(None, window, switch)
