"""torch's kernels for sequences of variable length, in plain mathematics on a CPU.

They are registered under the kernels' own names, so that torch checks arguments and results against their schemas. What
the CUDA kernels refuse, or answer in another way, fails here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


def _sequences(query: Tensor, key: Tensor, cum_q: Tensor, cum_k: Tensor, max_q: int, max_k: int) -> Any:
    """Pairs of slices: the queries and the keys of each sequence."""
    assert query.shape[-1] % 8 == 0 and query.shape[1] % key.shape[1] == 0
    assert query.stride(-1) == key.stride(-1) == 1
    assert cum_q.dtype == cum_k.dtype == torch.int32 and cum_q[0] == cum_k[0] == 0
    assert cum_q[-1] == len(query) and cum_k[-1] == len(key)
    assert max_q >= max(2, int(cum_q.diff().max())) and max_k >= int(cum_k.diff().max())
    assert cum_q.diff().min() > 0 and cum_k.diff().min() > 0
    starts, key_starts = cum_q.tolist(), cum_k.tolist()
    for index in range(len(starts) - 1):
        yield slice(*starts[index : index + 2]), slice(*key_starts[index : index + 2])


def _scores(query: Tensor, key: Tensor, causal: bool, scale: float) -> Tensor:
    """Scores [H, L, S] of one sequence, -inf where a query does not see a key."""
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    scores = torch.einsum("lhd,shd->hls", query, key) * scale
    length, keys = scores.shape[1:]
    hidden = torch.ones(length, keys, dtype=torch.bool).triu(1 + keys - length)
    return scores.masked_fill(hidden, -torch.inf) if causal else scores


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cum_seq_q: Tensor,
    cum_seq_k: Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float,
    **more: Any,
) -> tuple[Tensor, ...]:
    """Outputs like the queries, λ as float32 [H, queries], and three results that are not used."""
    assert dropout_p == 0 and not return_debug_mask and all(x is None for x in more.values())
    out, lse = torch.empty_like(query), query.new_empty(query.shape[1], len(query), dtype=torch.float32)
    for own, seen in _sequences(query, key, cum_seq_q, cum_seq_k, max_q, max_k):
        scores = _scores(query[own].float(), key[seen].float(), is_causal, scale)
        values = value[seen].float().repeat_interleave(query.shape[1] // key.shape[1], dim=1)
        out[own] = torch.einsum("hls,shd->lhd", scores.softmax(-1), values).to(out.dtype)
        lse[:, own] = scores.logsumexp(-1)
    return out, lse, torch.zeros(2, dtype=torch.uint64), torch.empty(0), torch.empty(0)


def backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor,
    cum_seq_k: Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    rng_state: Tensor,
    unused: Tensor,
    *,
    scale: float,
    **more: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients, from probabilities exp(s − λ) with the λ that is passed, as the kernel computes them."""
    assert dropout_p == 0 and rng_state.dtype == torch.uint64 and all(x is None for x in more.values())
    assert logsumexp.is_contiguous() and logsumexp.shape == query.shape[1::-1] and grad_out.stride(-1) == 1
    gradients = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
    shared, repeats = key.shape[1], query.shape[1] // key.shape[1]
    for own, seen in _sequences(query, key, cum_seq_q, cum_seq_k, max_q, max_k):
        q, grad, keys, values = query[own].float(), grad_out[own].float(), key[seen].float(), value[seen].float()
        wide_keys, wide_values = (x.repeat_interleave(repeats, dim=1) for x in (keys, values))
        probs = (_scores(q, keys, is_causal, scale) - logsumexp[:, own, None]).exp()
        inner = (grad * out[own].float()).sum(-1).T[..., None]
        change = probs * (torch.einsum("lhd,shd->hls", grad, wide_values) - inner) * scale
        gradients[0][own] = torch.einsum("hls,shd->lhd", change, wide_keys).to(query.dtype)
        for gradient, weights, x in ((gradients[1], change, q), (gradients[2], probs, grad)):
            by_head = torch.einsum("hls,lhd->shd", weights, x)
            gradient[seen] = by_head.unflatten(1, (shared, repeats)).sum(2).to(gradient.dtype)
    return gradients


@contextmanager
def installed(forward: Callable[..., Any] = forward, backward: Callable[..., Any] = backward) -> Iterator[None]:
    """Context in which torch has these kernels on a CPU."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("_flash_attention_forward", forward, "CPU")
    library.impl("_flash_attention_backward", backward, "CPU")
    try:
        yield
    finally:
        library._destroy()
