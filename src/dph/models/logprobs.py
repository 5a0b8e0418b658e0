"""Token log-probabilities and entropies from hidden states; only one chunk of logits is in memory at a time."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from dph.models.linear_logprobs import linear_logprobs
from dph.models.softmax import Normalized, logit_gradient, logprobs_of

Entropy = Literal["none", "value", "gradient"]

_LOGIT_ELEMENTS_AT_ONCE = 1 << 25
"""Most logits in memory at once. Beyond it, hidden states are processed in chunks, recomputed in the backward pass."""
_CHUNK = 1 << 24
"""Logits of a chunk; its gradient takes as much."""
_LOGIT_ELEMENTS_ON_A_GPU = 1 << 27
"""Both on a GPU, where each chunk also costs a pass over the gradient of the output embedding."""


class _TokenLogprobs(torch.autograd.Function):
    """Log-probabilities [K], and entropies [U] or None, of logits [U, V]."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, states: Tensor, targets: Tensor, temperature: float, entropy: Entropy
    ) -> tuple[Tensor, Tensor | None]:
        known = Normalized.empty(logits, entropy != "none")
        known.fill(logits, temperature)
        ctx.save_for_backward(logits, states, targets, known.largest, known.log_sum, known.entropies)
        ctx.temperature = temperature
        ctx.set_materialize_grads(False)
        if known.entropies is not None and entropy == "value":
            ctx.mark_non_differentiable(known.entropies)
        return logprobs_of(logits, known, states, targets, temperature), known.entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, grad_entropy: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        logits, states, targets, *known = ctx.saved_tensors
        found = logit_gradient(logits, Normalized(*known), states, targets, ctx.temperature, grad, grad_entropy)
        return found, None, None, None, None


def token_logprobs(
    logits: Tensor, states: Tensor, targets: Tensor, temperature: float, entropy: Entropy
) -> tuple[Tensor, Tensor | None]:
    """Log-probabilities of K tokens from the logits of U states, computed in fp32, or fp64 for logits of this type.

    Args:
        logits: [U, V], V tokens in the vocabulary.
        states: int64 [K], the state that predicts each token; several tokens may share a state.
        targets: int64 [K], the tokens.
        temperature: divides the logits.
        entropy: whether to also return the entropy, in nats, of each token's distribution: "none", "value" (without
            gradient) or "gradient".
    Returns:
        Log-probabilities [K] in nats, and entropies [K] or None.
    """
    with torch.autocast(logits.device.type, enabled=False):
        logprobs, entropies = _TokenLogprobs.apply(logits, states, targets, temperature, entropy)
    return logprobs, None if entropies is None else entropies[states]


def chunked_logprobs(
    head: Callable[[Tensor], Tensor],
    vocabulary: int,
    hidden: Tensor,
    states: Tensor,
    targets: Tensor,
    temperature: float,
    entropy: Entropy,
) -> tuple[Tensor, Tensor | None]:
    """As `token_logprobs`, from hidden states [U, H] and the output embedding `head`: [u, H] → [u, vocabulary].

    A head that is no plain linear layer, for example one with adapters, is called and recomputed for each chunk.
    """
    on_gpu = hidden.device.type == "cuda"
    at_once = _LOGIT_ELEMENTS_ON_A_GPU if on_gpu else _LOGIT_ELEMENTS_AT_ONCE
    size = max(1, (at_once if on_gpu else min(at_once, _CHUNK)) // vocabulary)
    linear: Any = head if type(head) is torch.nn.Linear else None  # a subclass may compute something else
    if hidden.shape[0] * vocabulary <= at_once:
        return token_logprobs(head(hidden), states, targets, temperature, entropy)
    if linear is not None:
        return linear_logprobs(hidden, linear.weight, linear.bias, states, targets, temperature, entropy, size)

    def piece(part: Tensor, local: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor | None]:
        return token_logprobs(head(part), local, chosen, temperature, entropy)

    order, pieces = [], []
    for start in range(0, hidden.shape[0], size):
        inside = ((states >= start) & (states < start + size)).nonzero().squeeze(1)
        order.append(inside)
        part = (hidden[start : start + size], states[inside] - start, targets[inside])
        pieces.append(checkpoint(piece, *part, use_reentrant=False))
    back = torch.empty_like(states)
    back[torch.cat(order)] = torch.arange(len(states), device=states.device)
    logprobs, entropies = zip(*pieces, strict=True)
    return torch.cat(logprobs)[back], torch.cat(entropies)[back] if entropy != "none" else None
