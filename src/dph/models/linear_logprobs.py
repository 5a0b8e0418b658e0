"""Log-probabilities of tokens from hidden states and a linear head, without the logits of all tokens in memory.

The forward pass keeps nothing of a chunk's logits; the backward pass computes them again, chunk by chunk.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from dph.models.softmax import Normalized, chunks, logit_gradient, logprobs_of

_ROWS_ON_CPU = 1 << 13
"""Rows of the head's gradient that are computed at once on a CPU, which saves memory; a GPU computes all of them."""


def linear_logprobs(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    states: Tensor,
    targets: Tensor,
    temperature: float,
    entropy: str,
    size: int,
) -> tuple[Tensor, Tensor | None]:
    """As `dph.models.logprobs.token_logprobs`, from hidden states and a linear head.

    Args:
        hidden: [U, H].
        weight, bias: of the head, [V, H] and [V]. Under autocast, casts of both and of `hidden` are multiplied, as in
            any linear layer; the gradients of weight and bias are not rounded to that type.
        states: int64 [K], the state that predicts each token.
        targets: int64 [K], the tokens.
        temperature: divides the logits.
        entropy: "none", "value" or "gradient".
        size: hidden states whose logits are in memory at once. The head's gradient is summed over chunks in fp32.
    Returns:
        Log-probabilities [K] in nats, and entropies [K] or None.
    """
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    with torch.autocast(device, enabled=False):
        given = (hidden.to(dtype or hidden.dtype), weight, bias, states, targets)
        logprobs, entropies = _LinearLogprobs.apply(*given, temperature, entropy, size, dtype)
    return logprobs, None if entropies is None else entropies[states]


class _LinearLogprobs(torch.autograd.Function):
    """Log-probabilities [K], and entropies [U] or None."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        states: Tensor,
        targets: Tensor,
        temperature: float,
        entropy: str,
        size: int,
        dtype: torch.dtype | None,
    ) -> tuple[Tensor, Tensor | None]:
        ctx.types = [None if x is None else x.dtype for x in (weight, bias)]
        weight = weight.to(dtype or weight.dtype)
        bias = None if bias is None else bias.to(dtype or bias.dtype)
        known = Normalized.empty(hidden, entropy != "none")
        logprobs = known.largest.new_empty(len(states))
        for chunk, inside in chunks(states, len(hidden), size):
            logits, local = linear(hidden[chunk], weight, bias), states[inside] - chunk.start
            known[chunk].fill(logits, temperature)
            logprobs[inside] = logprobs_of(logits, known[chunk], local, targets[inside], temperature)
        ctx.save_for_backward(hidden, weight, bias, states, targets, known.largest, known.log_sum, known.entropies)
        ctx.temperature, ctx.size = temperature, size
        ctx.set_materialize_grads(False)
        if known.entropies is not None and entropy == "value":
            ctx.mark_non_differentiable(known.entropies)
        return logprobs, known.entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, grad_entropy: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        hidden, weight, bias, states, targets, *numbers = ctx.saved_tensors
        known = Normalized(*numbers)
        wants, wide = ctx.needs_input_grad, known.largest.dtype
        of_hidden = torch.empty_like(hidden) if wants[0] else None
        of_weight = torch.zeros_like(weight, dtype=wide) if wants[1] else None
        of_bias = torch.zeros_like(bias, dtype=wide) if wants[2] else None
        at_once = _ROWS_ON_CPU if weight.device.type == "cpu" else len(weight)
        for chunk, inside in chunks(states, len(hidden), ctx.size):
            logits, local = linear(hidden[chunk], weight, bias), states[inside] - chunk.start
            slopes = None if grad is None else grad[inside]
            of_entropy = None if grad_entropy is None else grad_entropy[chunk]
            change = logit_gradient(logits, known[chunk], local, targets[inside], ctx.temperature, slopes, of_entropy)
            if of_hidden is not None:
                of_hidden[chunk] = change @ weight
            if of_weight is not None:
                # A product has the type of the logits, so it cannot be added in place: it takes memory of its own.
                for start in range(0, len(of_weight), at_once):
                    rows = slice(start, start + at_once)
                    of_weight[rows] += change[:, rows].T @ hidden[chunk]
            if of_bias is not None:
                of_bias += change.sum(0, dtype=wide)
        head = (None if x is None else x.to(dtype) for x, dtype in zip((of_weight, of_bias), ctx.types, strict=True))
        return of_hidden, *head, None, None, None, None, None, None
