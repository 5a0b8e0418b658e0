"""Log-probabilities of tokens from hidden states and a linear head, without the logits of all tokens in memory.

The forward pass keeps nothing of a chunk's logits; the backward pass computes them again, chunk by chunk. With
p = softmax(z), H the entropy and gradients g of log-probabilities and h of entropies,

    ∂/∂z (Σ_k g_k log p_{y_k} + h H) = Σ_k g_k onehot(y_k) − p · (Σ_k g_k + h · (log p + H)).
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear


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
        weight, bias: of the head, [V, H] and [V]. Under autocast both and `hidden` are cast as for any linear layer.
        states: int64 [K], the state that predicts each token.
        targets: int64 [K], the tokens.
        temperature: divides the logits.
        entropy: "none", "value" or "gradient".
        size: hidden states whose logits are in memory at once. The head's gradient is summed over chunks in fp32.
    Returns:
        Log-probabilities [K] in nats, and entropies [K] or None.
    """
    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        hidden, weight, bias = hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    with torch.autocast(device, enabled=False):
        logprobs, entropies = _LinearLogprobs.apply(hidden, weight, bias, states, targets, temperature, entropy, size)
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
    ) -> tuple[Tensor, Tensor | None]:
        wide = torch.promote_types(hidden.dtype, torch.float32)
        logprobs = hidden.new_empty(len(states), dtype=wide)
        entropies = None if entropy == "none" else hidden.new_empty(len(hidden), dtype=wide)
        for chunk, inside in _chunks(states, len(hidden), size):
            every = _log_softmax(hidden[chunk], weight, bias, temperature)
            logprobs[inside] = every[states[inside] - chunk.start, targets[inside]]
            if entropies is not None:
                entropies[chunk] = torch.linalg.vecdot(every.exp(), every).neg_()
        ctx.save_for_backward(hidden, weight, bias, states, targets, entropies)
        ctx.temperature, ctx.size = temperature, size
        ctx.set_materialize_grads(False)
        if entropies is not None and entropy == "value":
            ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, grad_entropy: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        hidden, weight, bias, states, targets, entropies = ctx.saved_tensors
        wants = ctx.needs_input_grad
        wide = torch.promote_types(hidden.dtype, torch.float32)
        slopes: Tensor = hidden.new_zeros(len(states), dtype=wide) if grad is None else grad
        totals = hidden.new_zeros(len(hidden), dtype=wide).index_add_(0, states, slopes)
        of_hidden = torch.empty_like(hidden) if wants[0] else None
        of_weight = torch.zeros_like(weight, dtype=wide) if wants[1] else None
        of_bias = torch.zeros_like(bias, dtype=wide) if wants[2] else None
        for chunk, inside in _chunks(states, len(hidden), ctx.size):
            every = _log_softmax(hidden[chunk], weight, bias, ctx.temperature)
            slope = totals[chunk][:, None]
            if grad_entropy is not None and entropies is not None:
                slope = (every + entropies[chunk][:, None]).mul_(grad_entropy[chunk][:, None]).add_(slope)
            change = every.exp_().mul_(slope).neg_()
            change.index_put_((states[inside] - chunk.start, targets[inside]), slopes[inside], accumulate=True)
            change = change.div_(ctx.temperature).to(hidden.dtype)
            if of_hidden is not None:
                of_hidden[chunk] = change @ weight
            if of_weight is not None:
                of_weight += change.T @ hidden[chunk]
            if of_bias is not None:
                of_bias += change.sum(0, dtype=wide)
        head = (None if x is None else x.to(weight.dtype) for x in (of_weight, of_bias))
        return of_hidden, *head, None, None, None, None, None


def _chunks(states: Tensor, count: int, size: int) -> Iterator[tuple[slice, Tensor]]:
    """Slices of `count` states, each with the indices into `states` of the tokens that they predict."""
    order = states.argsort(stable=True)
    firsts = torch.arange(0, count + size, size, device=states.device)
    bounds = torch.searchsorted(states[order], firsts).tolist()
    for number, start in enumerate(range(0, count, size)):
        yield slice(start, min(start + size, count)), order[bounds[number] : bounds[number + 1]]


def _log_softmax(hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float) -> Tensor:
    logits = linear(hidden, weight, bias)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return (logits if temperature == 1.0 else logits.div_(temperature)).log_softmax(-1)
