"""Attention over packed rows on a CPU. The part of a sequence over itself and the part over its prefix are joined by
log-sum-exp.

With scores s, the outputs of attention over one set of keys are o = softmax(s)·v, and λ = log Σ exp s. For two sets of
keys together (FlashAttention, arXiv 2205.14135),

    λ = log(exp λ₁ + exp λ₂),   o = exp(λ₁ − λ)·o₁ + exp(λ₂ − λ)·o₂.

The backward pass of such kernels recomputes the probabilities as exp(s − λ). Given the joint o and λ, it therefore
returns the part of the gradient that belongs to each set. No score matrix, mask or copy of the keys of the prefix is
needed. In bf16, where the kernel of torch is slow, `dph.models.attention.blocks_cpu` computes the gradients.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dph.models.attention import blocks_cpu
from dph.models.packing import Bucket, PrefixLayout

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def attend(q: Tensor, k: Tensor, v: Tensor, layout: PrefixLayout, scale: float) -> Tensor:
    """Attention over N packed tokens, by the kernel of torch for CPUs.

    Args:
        q: queries, [N, H, D].
        k, v: keys and values, [N, G, D], H a multiple of G.
        layout: which tokens attend to which.
        scale: multiplies the scores.
    Returns:
        Outputs, [N, H, D].
    """
    return _SplitAttention.apply(q, k, v, layout, scale)


# One set of keys: queries [B, L, H, D], keys and values [B, S, G, D], H a multiple of G ------------------------------


def _attend(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """Outputs [B, L, H, D] and λ [B, L, H]."""
    out, lse = _forward(*(x.transpose(1, 2) for x in (q, k, v)), 0.0, causal, scale=scale)
    return out.transpose(1, 2), lse.transpose(1, 2)


def _attend_backward(inputs: tuple[Tensor, ...], causal: bool, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of queries, keys and values. inputs: the gradient of the outputs, queries, keys, values, and the
    outputs and λ over all keys that the queries see."""
    grad, q, k, v, out, lse = inputs
    if blocks_cpu.usable(q):
        return blocks_cpu.backward(grad, q, k, v, out, lse, causal, scale)
    return kernel_backward(inputs, causal, scale)


def kernel_backward(inputs: tuple[Tensor, ...], causal: bool, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """As `_attend_backward`, by the kernel of torch."""
    of_q, of_k, of_v = _backward(*(x.transpose(1, 2) for x in inputs), 0.0, causal, scale=scale)
    return of_q.transpose(1, 2), of_k.transpose(1, 2), of_v.transpose(1, 2)


# All sets of keys: flat tensors [N, heads, D] ------------------------------------------------------------------------


def take_zeroed(x: Tensor, bucket: Bucket) -> Tensor:
    """The sequences of a bucket, [N, …] → [B, L, …], with zeros in the padding."""
    if len(bucket.present) == len(bucket.index):
        return bucket.take(x)
    out = x.new_zeros(len(bucket.index), *x.shape[1:])
    return out.index_copy_(0, bucket.present, x.index_select(0, bucket.places)).unflatten(0, bucket.shape)


class _SplitAttention(torch.autograd.Function):
    """Attention over packed rows on a CPU."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, layout: PrefixLayout, scale: float) -> Tensor:
        out, lse = torch.empty_like(q), q.new_empty(q.shape[:2], dtype=torch.promote_types(q.dtype, torch.float32))
        for bucket in layout.buckets:
            results = _attend(bucket.take(q), bucket.take(k), bucket.take(v), True, scale)
            for x, values in zip((out, lse), results, strict=True):
                x.index_copy_(0, bucket.places, bucket.kept(values))
        for group in layout.suffixes:
            prefix, tail = slice(group.prefix[0], sum(group.prefix)), slice(group.tokens[0], sum(group.tokens))
            over_prefix, prefix_lse = (
                x[0] for x in _attend(q[None, tail], k[None, prefix], v[None, prefix], False, scale)
            )
            gap = prefix_lse - lse[tail]
            out[tail] = torch.lerp(out[tail], over_prefix, gap.sigmoid().to(out.dtype)[..., None])
            lse[tail] += torch.nn.functional.softplus(gap)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.layout, ctx.scale = layout, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, k, v, out, lse = ctx.saved_tensors
        grad = grad.contiguous()
        gradients = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        for bucket in ctx.layout.buckets:
            inputs = (take_zeroed(grad, bucket), *(bucket.take(x) for x in (q, k, v, out, lse)))
            results = _attend_backward(inputs, True, ctx.scale)
            for gradient, value in zip(gradients, results, strict=True):
                gradient.index_copy_(0, bucket.places, bucket.kept(value))
        for group in ctx.layout.suffixes:
            prefix, tail = slice(group.prefix[0], sum(group.prefix)), slice(group.tokens[0], sum(group.tokens))
            inputs = tuple(x[None] for x in (grad[tail], q[tail], k[prefix], v[prefix], out[tail], lse[tail]))
            results = _attend_backward(inputs, False, ctx.scale)
            for gradient, value, place in zip(gradients, results, (tail, prefix, prefix), strict=True):
                gradient[place] += value[0]
        return *gradients, None, None
