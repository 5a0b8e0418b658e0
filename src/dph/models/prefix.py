"""Attention over packed rows, where every common prefix is stored once (see `dph.models.packing`).

A token of a branch attends to the whole stem and to its own branch up to itself. Attention over two sets of keys, with
scores s, outputs o = softmax(s)·v and λ = log Σ exp s of each set, is (FlashAttention, arXiv 2205.14135)

    λ = log(exp λ₁ + exp λ₂),   o = exp(λ₁ − λ)·o₁ + exp(λ₂ − λ)·o₂.

The backward pass of such kernels recomputes the probabilities as exp(s − λ). Given the joint o and λ, it therefore
returns each set's part of the gradient. No score matrix, mask or copy of the stem's keys is needed.

The function is registered with transformers' attention interface under `NAME`. A model uses it inside the context
`shared_attention` and receives the layout as the keyword argument `prefix_layout`.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from dph.models.packing import Bucket, PrefixLayout

NAME = "dph_shared_prefix"

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class NotShareable(ValueError):
    """The model's attention cannot be split into stem and branches; the message is the reason."""


# One set of keys: queries [B, L, H, D], keys and values [B, S, G, D], H a multiple of G ------------------------------


def _by_heads(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rearrange the tensors for the kernel: [batch, heads, tokens, D], with as many key heads as query heads.

    If there are fewer key heads than query heads: for a single sequence, the key heads become the batch and the queries
    of each become its heads, which read the same keys without a copy. For several sequences, the keys are repeated.
    """
    heads, shared = q.shape[2], k.shape[2]
    if heads == shared:
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    if q.shape[0] == 1:
        q = q[0].unflatten(1, (shared, heads // shared)).permute(1, 2, 0, 3)
        k, v = (x[0].transpose(0, 1)[:, None].expand(-1, heads // shared, -1, -1) for x in (k, v))
        return q, k, v
    k, v = (x.repeat_interleave(heads // shared, dim=2) for x in (k, v))
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


def _queries_back(x: Tensor, batch: int) -> Tensor:
    """Undo `_by_heads` for a tensor shaped like the queries: [batch, heads, tokens, …] → [B, L, H, …]."""
    if x.shape[0] == batch:
        return x.transpose(1, 2)
    return x.movedim(2, 0).flatten(1, 2)[None]


def _keys_back(x: Tensor, batch: int, shared: int) -> Tensor:
    """Undo `_by_heads` for a key gradient: [batch, heads, tokens, D] → [B, S, G, D], summed over the query heads."""
    if x.shape[0] != batch:
        return x.sum(1).transpose(0, 1)[None]
    x = x.transpose(1, 2)
    return x if x.shape[2] == shared else x.unflatten(2, (shared, -1)).sum(3)


def _like_output(x: Tensor, q: Tensor, by_heads: Tensor) -> Tensor:
    """Arrange a tensor [B, L, H, …] as `_by_heads` arranged the queries."""
    if by_heads.shape[0] == q.shape[0]:
        return x.transpose(1, 2)
    return x[0].unflatten(1, tuple(by_heads.shape[:2])).movedim(0, 2)


def _attend(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """Outputs [B, L, H, D] and λ [B, L, H]."""
    out, lse = _forward(*_by_heads(q, k, v), 0.0, causal, scale=scale)
    return _queries_back(out, q.shape[0]), _queries_back(lse, q.shape[0])


def _attend_backward(inputs: tuple[Tensor, ...], causal: bool, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of queries, keys and values.

    Args:
        inputs: gradient of the outputs, queries, keys, values, and outputs and λ over all keys that the queries see.
    """
    grad, q, k, v, out, lse = inputs
    by_heads = _by_heads(q, k, v)
    joint = [_like_output(x, q, by_heads[0]) for x in (grad, out, lse)]
    found = _backward(joint[0], *by_heads, joint[1], joint[2], 0.0, causal, scale=scale)
    batch, shared = k.shape[0], k.shape[2]
    return _queries_back(found[0], batch), _keys_back(found[1], batch, shared), _keys_back(found[2], batch, shared)


# All sets of keys: flat tensors [N, heads, D] ------------------------------------------------------------------------


def _take(x: Tensor, bucket: Bucket) -> Tensor:
    """Gather the bucket's sequences, [N, …] → [B, L, …]; padding repeats a sequence's last token."""
    count, width = bucket.shape
    if bucket.index is None:
        return x[bucket.start : bucket.start + count * width].unflatten(0, bucket.shape)
    return x.index_select(0, bucket.index).unflatten(0, bucket.shape)


def _take_zeroed(x: Tensor, bucket: Bucket) -> Tensor:
    """As `_take`, with zeros in the padding."""
    if bucket.index is None:
        return _take(x, bucket)
    count, width = bucket.shape
    out = x.new_zeros(count * width, *x.shape[1:])
    assert bucket.present is not None and bucket.places is not None
    return out.index_copy_(0, bucket.present, x.index_select(0, bucket.places)).unflatten(0, bucket.shape)


def _put(x: Tensor, bucket: Bucket, values: Tensor) -> None:
    """Write the bucket's sequences [B, L, …] into flat [N, …], leaving padding out."""
    count, width = bucket.shape
    if bucket.index is None:
        x[bucket.start : bucket.start + count * width].unflatten(0, bucket.shape).copy_(values)
        return
    assert bucket.present is not None and bucket.places is not None
    x.index_copy_(0, bucket.places, values.flatten(0, 1).index_select(0, bucket.present))


class _SplitAttention(torch.autograd.Function):
    """Attention over packed rows on a CPU."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, layout: PrefixLayout, scale: float) -> Tensor:
        out, lse = torch.empty_like(q), q.new_empty(q.shape[:2], dtype=torch.float32)
        for bucket in layout.buckets:
            found, found_lse = _attend(_take(q, bucket), _take(k, bucket), _take(v, bucket), True, scale)
            _put(out, bucket, found)
            _put(lse, bucket, found_lse)
        for group in layout.branches:
            stem, own = slice(group.stem[0], sum(group.stem)), slice(group.tokens[0], sum(group.tokens))
            found, found_lse = (x[0] for x in _attend(q[None, own], k[None, stem], v[None, stem], False, scale))
            gap = found_lse - lse[own]
            out[own] = torch.lerp(out[own], found, gap.sigmoid().to(out.dtype)[..., None])
            lse[own] += torch.nn.functional.softplus(gap)
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
            inputs = (_take_zeroed(grad, bucket), *(_take(x, bucket) for x in (q, k, v, out, lse)))
            found = _attend_backward(inputs, True, ctx.scale)
            for gradient, value in zip(gradients, found, strict=True):
                _put(gradient, bucket, value)
        for group in ctx.layout.branches:
            stem, own = slice(group.stem[0], sum(group.stem)), slice(group.tokens[0], sum(group.tokens))
            inputs = tuple(x[None] for x in (grad[own], q[own], k[stem], v[stem], out[own], lse[own]))
            found = _attend_backward(inputs, False, ctx.scale)
            for gradient, value, place in zip(gradients, found, (own, stem, stem), strict=True):
                gradient[place] += value[0]
        return *gradients, None, None


def _gathered_attention(q: Tensor, k: Tensor, v: Tensor, layout: PrefixLayout, scale: float) -> Tensor:
    """The same from torch's public attention, for any device. Every branch gets a copy of its stem's keys.

    The copies exist only within attention. All other layers still process each packed token once.
    """
    repeats = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(repeats, dim=1) if repeats > 1 else x for x in (k, v))
    out = torch.zeros_like(q)
    for bucket in layout.buckets:
        queries, keys, values = (_take(x, bucket).transpose(1, 2) for x in (q, k, v))
        found = scaled_dot_product_attention(queries, keys, values, is_causal=True, scale=scale)
        out = _with(out, bucket, found)
    for group in layout.branches:
        stem = slice(group.stem[0], sum(group.stem))
        count, width = group.bucket.shape
        keys, values = (
            torch.cat([x[stem].expand(count, -1, -1, -1), _take(x, group.bucket)], dim=1).transpose(1, 2)
            for x in (k, v)
        )
        mask = torch.ones(width, group.stem[1] + width, dtype=torch.bool, device=q.device).tril(group.stem[1])
        queries = _take(q, group.bucket).transpose(1, 2)
        found = scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=scale)
        out = _with(out, group.bucket, found)
    return out


def _with(x: Tensor, bucket: Bucket, found: Tensor) -> Tensor:
    """Copy of flat [N, H, D] with the bucket's sequences [B, H, L, D] written into it, differentiable by autograd."""
    flat = found.transpose(1, 2).flatten(0, 1)
    if bucket.present is None or bucket.places is None:
        return torch.cat([x[: bucket.start], flat, x[bucket.start + len(flat) :]])
    return x.index_copy(0, bucket.places, flat.index_select(0, bucket.present))


# In a model ----------------------------------------------------------------------------------------------------------


def shared_prefix_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    prefix_layout: PrefixLayout | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """Attention over N packed tokens, with the signature of transformers' attention interface.

    Args:
        query: [1, H, N, D].
        key, value: [1, G, N, D].
        prefix_layout: which tokens attend to which.
        scaling: multiplies the scores; 1/√D if None.
    Returns:
        Outputs [1, N, H, D]; None for the attention weights, which are not computed.
    Raises:
        NotShareable: the model needs anything but causal softmax attention.
    """
    if prefix_layout is None or query.shape[0] != 1:
        raise NotShareable("its layers do not pass their keyword arguments on to attention")
    changes = sorted(name for name in ("softcap", "s_aux", "position_bias") if more.get(name) is not None)
    if dropout or attention_mask is not None or changes or query.shape[-1] != value.shape[-1]:
        raise NotShareable(
            f"its attention uses {changes[0] if changes else 'dropout, a mask or values of another width'}"
        )
    if sliding_window is not None and prefix_layout.longest > sliding_window:
        raise NotShareable(f"its attention window has only {sliding_window} tokens")
    if torch.is_autocast_enabled(query.device.type):
        dtype = torch.get_autocast_dtype(query.device.type)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if query.device.type == "cpu":
        out = _SplitAttention.apply(q, k, v, prefix_layout, scale)
    else:
        out = _gathered_attention(q, k, v, prefix_layout, scale)
    return out[None], None


AttentionInterface.register(NAME, shared_prefix_attention)


@contextmanager
def _implementation(configs: list[Any]) -> Iterator[None]:
    """Context in which the models with these configs use this file's attention."""
    before = [config._attn_implementation for config in configs]
    try:
        for config in configs:
            config._attn_implementation = NAME
        yield
    finally:
        for config, name in zip(configs, before, strict=True):
            config._attn_implementation = name


@contextmanager
def shared_attention(decoder: torch.nn.Module) -> Iterator[None]:
    """Context in which a transformers decoder uses `shared_prefix_attention`.

    Layers with gradient checkpointing also use it when they recompute in the backward pass, after the context ended.
    """
    modules: list[Any] = list(decoder.modules())
    configs = list({id(part.config): part.config for part in modules if hasattr(part, "config")}.values())
    recomputing = [part for part in modules if getattr(part, "gradient_checkpointing", False)]
    before = [part._gradient_checkpointing_func for part in recomputing]
    try:
        for part, function in zip(recomputing, before, strict=True):
            part._gradient_checkpointing_func = partial(
                function, context_fn=lambda: (nullcontext(), _implementation(configs))
            )
        with _implementation(configs):
            yield
    finally:
        for part, function in zip(recomputing, before, strict=True):
            part._gradient_checkpointing_func = function
