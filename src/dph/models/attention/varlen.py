"""Attention over packed rows by the kernel of torch for sequences of variable length (CUDA, 16-bit types).

Attention is split as in `dph.models.attention.split_cpu`, but in two calls of the kernel for all groups. In the first
call every sequence attends to itself. In the second call the suffixes of each group attend to their prefix. There is no
padding and no copy of keys: the kernel reads the packed tensors in place, also if several query heads share a key head.
Only torch is needed.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad, softplus

from dph.models.packing import PrefixLayout, Spans

_HEAD_MULTIPLE = 8
"""The kernel takes heads whose width is a multiple of this number."""
_LEAST_BOUND = 2
"""The smallest bound of lengths that is given to the kernel, which may be any upper bound. If no sequence has more than
one query, the kernel arranges λ differently."""


def attend(q: Tensor, k: Tensor, v: Tensor, layout: PrefixLayout, scale: float) -> Tensor:
    """Attention over N packed tokens. Arguments and result as in `dph.models.attention.split_cpu.attend`.

    Heads of a width that the kernel does not take are padded with zeros, which change no score and no output.
    """
    width = q.shape[-1]
    if missing := -width % _HEAD_MULTIPLE:
        q, k, v = (pad(x, (0, missing)) for x in (q, k, v))
    return _VarlenAttention.apply(q, k, v, layout, scale)[..., :width]


def _bounds(queries: Spans, keys: Spans) -> tuple[Tensor, Tensor, int, int]:
    """The description of sequences that the kernel reads: the starts of queries and of keys, and upper bounds of their
    lengths."""
    return queries.starts, keys.starts, max(_LEAST_BOUND, queries.longest), max(_LEAST_BOUND, keys.longest)


class _VarlenAttention(torch.autograd.Function):
    """Attention by the kernels behind `torch.nn.attention.varlen`. The public function of that module has no backward
    pass for a given λ."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, layout: PrefixLayout, scale: float) -> Tensor:
        forward = torch.ops.aten._flash_attention_forward
        sequences, queries, prefixes = layout.sequences, layout.queries, layout.prefixes
        # λ is float32 [H, N]; the last two results serve dropout and debugging, but the backward pass takes them
        out, lse, state, unused, _ = forward(q, k, v, *_bounds(sequences, sequences), 0.0, True, False, scale=scale)
        if queries.tokens:
            tail, head = queries.place, prefixes.place
            outputs, prefix_lse, *_ = forward(
                q[tail], k[head], v[head], *_bounds(queries, prefixes), 0.0, False, False, scale=scale
            )
            gap = prefix_lse - lse[:, tail]
            wide = torch.promote_types(out.dtype, torch.float32)  # so that the sum is rounded once
            weight = gap.sigmoid().T[..., None].to(wide)
            out[tail] = torch.lerp(out[tail].to(wide), outputs.to(wide), weight).to(out.dtype)
            lse[:, tail] += softplus(gap)
        ctx.save_for_backward(q, k, v, out, lse, state, unused)
        ctx.layout, ctx.scale = layout, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        backward = torch.ops.aten._flash_attention_backward
        q, k, v, out, lse, state, unused = ctx.saved_tensors
        sequences, queries, prefixes = ctx.layout.sequences, ctx.layout.queries, ctx.layout.prefixes
        grad = grad.contiguous()
        inputs = (grad, q, k, v, out, lse)
        gradients = backward(*inputs, *_bounds(sequences, sequences), 0.0, True, state, unused, scale=ctx.scale)
        if queries.tokens:
            tail, head = queries.place, prefixes.place
            inputs = (grad[tail], q[tail], k[head], v[head], out[tail], lse[:, tail].contiguous())
            over_prefixes = backward(*inputs, *_bounds(queries, prefixes), 0.0, False, state, unused, scale=ctx.scale)
            for gradient, addend, place in zip(gradients, over_prefixes, (tail, head, head), strict=True):
                gradient[place] += addend
        return *gradients, None, None
