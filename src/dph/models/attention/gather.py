"""Attention over packed rows by torch's public attention, on any device: the reference for the other ways.

Every branch gets a copy of its stem's keys. The copies exist only within attention; all other layers still process each
packed token once.
"""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from dph.models.packing import Bucket, PrefixLayout


def take(x: Tensor, bucket: Bucket) -> Tensor:
    """Gather the bucket's sequences, [N, …] → [B, L, …]; padding repeats a sequence's last token."""
    count, width = bucket.shape
    if bucket.index is None:
        return x[bucket.start : bucket.start + count * width].unflatten(0, bucket.shape)
    return x.index_select(0, bucket.index).unflatten(0, bucket.shape)


def attend(q: Tensor, k: Tensor, v: Tensor, layout: PrefixLayout, scale: float) -> Tensor:
    """Attention over N packed tokens. Arguments and result are those of `dph.models.attention.split_cpu.attend`."""
    repeats = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(repeats, dim=1) if repeats > 1 else x for x in (k, v))
    out = torch.zeros_like(q)
    for bucket in layout.buckets:
        queries, keys, values = (take(x, bucket).transpose(1, 2) for x in (q, k, v))
        outputs = scaled_dot_product_attention(queries, keys, values, is_causal=True, scale=scale)
        out = _with(out, bucket, outputs)
    for group in layout.branches:
        stem = slice(group.stem[0], sum(group.stem))
        count, width = group.bucket.shape
        keys, values = (
            torch.cat([x[stem].expand(count, -1, -1, -1), take(x, group.bucket)], dim=1).transpose(1, 2) for x in (k, v)
        )
        mask = torch.ones(width, group.stem[1] + width, dtype=torch.bool, device=q.device).tril(group.stem[1])
        queries = take(q, group.bucket).transpose(1, 2)
        outputs = scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=scale)
        out = _with(out, group.bucket, outputs)
    return out


def _with(x: Tensor, bucket: Bucket, found: Tensor) -> Tensor:
    """Copy of flat [N, H, D] with the bucket's sequences [B, H, L, D] written into it, differentiable by autograd."""
    flat = found.transpose(1, 2).flatten(0, 1)
    if bucket.present is None or bucket.places is None:
        return torch.cat([x[: bucket.start], flat, x[bucket.start + len(flat) :]])
    return x.index_copy(0, bucket.places, flat.index_select(0, bucket.present))
