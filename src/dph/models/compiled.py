"""Functions of many logits, compiled for a GPU, where each operation by itself would read and write all of them."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from dph.errors import is_out_of_memory, reason_of
from dph.process.progress import say

_LEAST_ELEMENTS = 1 << 24
"""Fewer logits take less time by themselves than the compiler."""
_TOLERANCE = 1e-5
"""Largest difference, relative to the largest value, between a compiled function and the same uncompiled, in fp32."""


def compiled(function: Callable[..., Any], logits: Tensor, per_row: int = 0) -> Callable[..., Any] | None:
    """The function compiled for logits [U, V] like these; None on a CPU, for few logits, or if its trial fails.

    function: takes logits, a temperature, and as many tensors [U] as `per_row` says; returns a tensor or several.
    """
    if logits.device.type != "cuda" or logits.numel() < _LEAST_ELEMENTS:
        return None
    works = _works(function, per_row, logits.device, logits.dtype, logits.shape[1])
    return _kernel(function) if works else None


@cache
def _kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=True)


@cache
def _works(
    function: Callable[..., Any], per_row: int, device: torch.device, dtype: torch.dtype, vocabulary: int
) -> bool:
    """Whether the compiled function gives what the function gives. The first call tries it; a failure is said once."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(64, vocabulary, generator=generator).to(device, dtype)
    logits[:, ::7] = -torch.inf
    with torch.inference_mode(False), torch.no_grad(), torch.autocast(device.type, enabled=False):
        more = [torch.full((len(logits),), 5.0, device=device) for _ in range(per_row)]
        try:
            found, expected = (one(logits, 0.7, *more) for one in (_kernel(function), function))
        except Exception as error:  # compilers raise anything
            if is_out_of_memory(error):
                raise
            say(f"logits are not read by compiled kernels on {device}: {reason_of(error)}")
            return False
    pairs = zip(_tensors(found), _tensors(expected), strict=True)
    if all(float((one - other).abs().max()) <= _TOLERANCE * float(other.abs().max()) for one, other in pairs):
        return True
    say(f"logits are not read by compiled kernels on {device}, because their results differ")
    return False


def _tensors(result: Any) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)
