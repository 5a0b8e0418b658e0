"""Attention over packed rows by FlexAttention of torch: a kernel that is compiled for a mask and skips the empty blocks
of the mask.

A token attends to two intervals of packed indices: its own sequence up to itself, and its prefix.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from dph.models.packing import PrefixLayout, Spans

_NARROWEST_HEAD = 16
"""The compiled kernel takes heads of at least this width. Narrower heads are padded with zeros."""


def attend(q: Tensor, k: Tensor, v: Tensor, layout: PrefixLayout, scale: float) -> Tensor:
    """Attention over N packed tokens. Arguments and result as in `dph.models.attention.split_cpu.attend`."""
    width = q.shape[-1]
    if width < _NARROWEST_HEAD:
        q, k, v = (pad(x, (0, _NARROWEST_HEAD - width)) for x in (q, k, v))
    if "block mask" not in layout.derived:
        with torch.inference_mode(False):  # a training step may use this mask after inference has made it
            layout.derived["block mask"] = block_mask(layout)
    by_heads = (x.transpose(0, 1)[None] for x in (q, k, v))
    out = _kernel(q.device.type)(
        *by_heads, block_mask=layout.derived["block mask"], scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    return out[0].transpose(0, 1)[..., :width]


@cache
def _kernel(device: str) -> Callable[..., Any]:
    """FlexAttention, compiled for a GPU. A CPU has no backward kernel, so there the same function runs uncompiled."""
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention if device == "cpu" else torch.compile(flex_attention, dynamic=True)


def block_mask(layout: PrefixLayout) -> Any:
    """For each block of queries, the blocks of keys to which it attends not at all, in part, or as a whole."""
    from torch.nn.attention.flex_attention import create_block_mask

    start, prefix, prefix_end = _intervals(layout)

    def mask(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        in_own = (key >= start[query]) & (key <= query)
        return in_own | ((key >= prefix[query]) & (key < prefix_end[query]))

    return create_block_mask(mask, None, None, len(start), len(start), device=str(start.device))


def _intervals(layout: PrefixLayout) -> tuple[Tensor, Tensor, Tensor]:
    """For each packed token, the start of its sequence, and the start and the end of its prefix (both 0 without a
    prefix)."""
    start = _spread(layout.sequences, layout.sequences.starts[:-1])
    prefix, prefix_end = torch.zeros_like(start), torch.zeros_like(start)
    starts = layout.prefixes.starts + layout.prefixes.first
    prefix[layout.queries.place] = _spread(layout.queries, starts[:-1])
    prefix_end[layout.queries.place] = _spread(layout.queries, starts[1:])
    return start, prefix, prefix_end


def _spread(spans: Spans, values: Tensor) -> Tensor:
    """The value of each sequence, repeated for each of the tokens of the sequence."""
    return values.repeat_interleave(spans.starts.diff(), output_size=spans.tokens)
