"""Drawing the next token from logits, the same one on every machine for the same random key."""

import torch
from torch import Tensor

from dph.sampling.seeding import uniforms
from dph.types import SamplingParams

_BLOCK = 256
"""Tokens are found in two steps, first the block of so many tokens, then the token: running sums over a whole
vocabulary in float64 would take much of the time of a decoding step on a CPU (benchmarks/speed/drawing.py)."""
CANDIDATES = (1024, 8192)
"""On a CPU, sorting a whole vocabulary takes much longer than finding so many most likely tokens."""


def draw(logits: Tensor, params: SamplingParams, keys: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """Choose the next token of each row, and return its log-probability under the untruncated distribution.

    The token is found by inverting the cumulative distribution at a uniform number, which depends only on the row's key
    and the step.

    Args:
        logits: [R, V].
        params: temperature and top-p. Temperature 0 takes the most likely token; log-probabilities are then those at
            temperature 1.
        keys: int64 [R], the rows' random keys.
        step: index of the token within its response.
    Returns:
        Tokens, int64 [R], and their log-probabilities in nats, float32 [R].
    """
    if params.temperature > 0 and params.temperature != 1.0:
        logits = logits / params.temperature
    largest, likeliest = logits.max(-1, keepdim=True)
    weights = (logits - largest).exp_()
    total = weights.sum(-1, keepdim=True)
    if params.temperature == 0:
        chosen = likeliest
    else:
        numbers = uniforms(keys, torch.full((), step, device=keys.device))  # no copy, which would wait for a GPU
        whole = params.top_p >= 1
        chosen = _invert(weights, numbers) if whole else _invert_nucleus(weights / total, numbers, params.top_p)
    return chosen.squeeze(1), (logits.gather(1, chosen) - largest - total.log()).squeeze(1)


def _invert(weights: Tensor, numbers: Tensor) -> Tensor:
    """The first token, [R, 1], at which the running sum of the row's weights [R, V] exceeds its number times the sum of
    all. The numbers [R] lie in [0, 1); a token without weight is never chosen."""
    size = weights.shape[1]
    if size <= 2 * _BLOCK:
        return _inverted(weights.to(numbers.dtype), numbers[:, None])[0]
    whole = size // _BLOCK * _BLOCK
    blocks = weights[:, :whole].unflatten(1, (-1, _BLOCK)).sum(-1)
    blocks = torch.cat([blocks, weights[:, whole:].sum(-1, keepdim=True)], 1).to(numbers.dtype)
    block, fraction = _inverted(blocks, numbers[:, None])
    places = block * _BLOCK + torch.arange(_BLOCK, device=weights.device)
    inside = weights.gather(1, places.clamp(max=size - 1)).to(numbers.dtype).masked_fill(places >= size, 0.0)
    place = block * _BLOCK + _inverted(inside, fraction)[0]
    return place.clamp_(max=size - 1)  # logits of a model that has diverged have no sum


def _inverted(weights: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Invert the running sums of weights [R, N] at numbers [R, 1].

    Returns the places, and the parts of their weights that lie below the numbers, in [0, 1]; both [R, 1].
    """
    sums = weights.cumsum(-1)
    total = sums[:, -1:].contiguous()
    targets = numbers * total
    last = torch.searchsorted(sums, total)  # the last place with a weight: rounding must not lead beyond it
    place = torch.minimum(torch.searchsorted(sums, targets, right=True), last).clamp_(max=weights.shape[1] - 1)
    weight = weights.gather(1, place)
    below = targets - (sums.gather(1, place) - weight)
    return place, (below / weight).clamp_(0, 1)


def _invert_nucleus(probs: Tensor, numbers: Tensor, top_p: float) -> Tensor:
    """As `_invert`, over the smallest set of most likely tokens whose total probability reaches top_p."""
    ordered, tokens = _most_likely(probs.to(numbers.dtype), top_p)
    before = ordered.cumsum(-1) - ordered
    kept = torch.where(before < top_p, ordered, torch.zeros_like(ordered))
    return tokens.gather(1, _invert(kept, numbers))


def _most_likely(probs: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """Probabilities and tokens by falling probability, equal ones by token: all of them, or fewer that hold the set of
    every row."""
    for count in CANDIDATES if probs.device.type == "cpu" else ():
        if probs.shape[1] < 2 * count:
            break
        values, tokens = probs.topk(count, sorted=False)
        certain = torch.where(values > values.amin(-1, keepdim=True), values, torch.zeros_like(values)).sum(-1)
        if bool((certain >= top_p).all()):
            tokens, order = tokens.sort(-1)
            values, order = values.gather(1, order).sort(dim=-1, descending=True, stable=True)
            return values, tokens.gather(1, order)
    return probs.sort(dim=-1, descending=True, stable=True)
