"""The backward pass of attention on a CPU in bf16, by matrix products over blocks of scores that stay in the cache.

The kernel of torch does the same work in fp32, or in small products of 16 bits. At the lengths of responses, it reaches
a tenth of the rate of the processor. With scores s = scale·q·kᵀ, probabilities P = exp(s − λ) and gradient g of the
outputs o,

    ∂v = Pᵀ·g,   ∂s = P ∘ (g·vᵀ − δ),   δ = Σ g·o,   ∂q = scale·∂s·k,   ∂k = scale·∂sᵀ·q.

Both differences, s − λ and g·vᵀ − δ, are taken within the matrix products, whose sums are in fp32. For this, queries
get −λ, and gradients get −δ, as three more columns: three terms of 16 bits whose sum is the number. Keys and values get
three columns of ones. So the difference is rounded to 16 bits, and not the score. A second product computes the part
that this rounding took from s − λ.
"""

import torch
from torch import Tensor

BLOCK_SCORES = 1 << 19
"""The number of scores in a block, for each thread. Four tensors of that many scores in 16 bits take 4 MiB."""
FEWEST_QUERIES = 64
_TERMS = 3
"""The count of numbers of 16 bits whose sum has the 24 bits of fp32."""


def usable(q: Tensor) -> bool:
    """Whether `q` is in bf16, and oneDNN multiplies matrices of this type on this processor."""
    # the operation exists only if torch is built with oneDNN
    return (
        q.dtype == torch.bfloat16
        and torch.backends.mkldnn.is_available()
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


def backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of queries [B, L, H, D], and of keys and values [B, S, G, D].

    Args:
        grad, q, out: the gradient of the outputs, the queries, and the outputs, [B, L, H, D].
        k, v: keys and values, [B, S, G, D], H a multiple of G.
        lse: λ = log Σ exp s over all keys that a query sees, [B, L, H] in fp32. `k` may be a part of these keys.
        causal: whether query i sees keys 0 … i only; then L = S.
        scale: multiplies the products of queries and keys.
    """
    batch, length, heads, width = q.shape
    keys, shared = k.shape[1:3]
    ratio, number = heads // shared, batch * shared
    delta = torch.linalg.vecdot(grad.float(), out.float())
    queries, grads = _with_terms(q, -lse / scale, shared), _with_terms(grad, -delta, shared)
    keyed, valued = _with_ones(k), _with_ones(v)
    found_q = q.new_empty(number, ratio, length, width)
    found_k, found_v = (torch.zeros(number, keys, width, dtype=torch.float32) for _ in range(2))
    at_once, span = block_of(number, ratio, length, keys)
    for first in range(0, number, at_once):
        block = slice(first, first + at_once)
        for start in range(0, length, span):
            queried = slice(start, min(start + span, length))
            seen = slice(queried.stop if causal else keys)
            block_q, block_g = (x[block, :, queried].flatten(1, 2) for x in (queries, grads))
            block_k, block_v = keyed[block, seen], valued[block, seen]
            p = _probabilities(block_q, block_k, scale)
            if causal:
                p.unflatten(1, (ratio, -1)).tril_(start)
            slope = torch.bmm(block_g, block_v.mT).mul_(p)
            found_v[block, seen] += torch.bmm(p.mT, block_g[..., :width])
            found_k[block, seen] += torch.bmm(slope.mT, block_q[..., :width])
            found_q[block, :, queried] = torch.bmm(slope, block_k[..., :width]).unflatten(1, (ratio, -1))
    by_rows = found_q.mul_(scale).unflatten(0, (batch, shared)).permute(0, 3, 1, 2, 4).flatten(2, 3)
    return by_rows, _keys_back(found_k.mul_(scale), k), _keys_back(found_v, v)


def block_of(number: int, ratio: int, length: int, keys: int) -> tuple[int, int]:
    """The number of key heads, and the number of queries, in a block.

    number: the key heads of all sequences. ratio: query heads per key head. length, keys: the numbers of queries and of
    keys.
    """
    scores = BLOCK_SCORES * torch.get_num_threads()
    at_once = max(1, min(number, scores // (ratio * length * keys)))
    span = max(FEWEST_QUERIES, min(length, scores // (at_once * ratio * keys)))
    return at_once, span


def _probabilities(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """exp(scale·q·kᵀ); the product includes −λ/scale."""
    rounded = torch.baddbmm(q.new_empty(()), q, k.mT, beta=0, alpha=scale)
    rounding = torch.baddbmm(rounded, q, k.mT, beta=-1, alpha=scale)
    p = rounded.exp_()
    return p.addcmul_(p, rounding)  # e^(x + y) ≈ e^x·(1 + y) for a small y


def _with_terms(x: Tensor, number: Tensor, shared: int) -> Tensor:
    """Values [B, L, H, D] and numbers [B, L, H] as one tensor [B·G, H/G, L, D + 3]. The last three columns add up to
    the numbers."""
    batch, length, heads, width = x.shape
    widened = x.new_empty(batch, shared, heads // shared, length, width + _TERMS)
    by_rows = widened.permute(0, 3, 1, 2, 4)
    by_rows[..., :width] = x.unflatten(2, (shared, -1))
    remainder = number.unflatten(2, (shared, -1))
    for term in range(width, width + _TERMS):
        by_rows[..., term] = remainder
        remainder = remainder - by_rows[..., term].float()
    return widened.flatten(0, 1)


def _with_ones(x: Tensor) -> Tensor:
    """Values [B, S, G, D] as [B·G, S, D + 3], with ones in the last three columns."""
    batch, keys, shared, width = x.shape
    widened = x.new_ones(batch, shared, keys, width + _TERMS)
    widened[..., :width] = x.transpose(1, 2)
    return widened.flatten(0, 1)


def _keys_back(gradient: Tensor, like: Tensor) -> Tensor:
    """[B·G, S, D] as [B, S, G, D]."""
    return gradient.unflatten(0, (like.shape[0], like.shape[2])).transpose(1, 2).to(like.dtype)
