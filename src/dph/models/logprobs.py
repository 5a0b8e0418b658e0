"""Token log-probabilities and entropies from hidden states; only one chunk of logits is in memory at a time."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from dph.models.linear_logprobs import linear_logprobs
from dph.models.logprob_kernels import fused, fused_logprobs

Entropy = Literal["none", "value", "gradient"]

_LOGIT_ELEMENTS_AT_ONCE = 1 << 25
"""Most logits in memory at once. Beyond it, hidden states are processed in chunks, recomputed in the backward pass."""
_LOGIT_ELEMENTS_ON_A_GPU = 1 << 27
"""The same on a GPU, where each chunk also costs a pass over the gradient of the output embedding."""


class _TokenLogprobs(torch.autograd.Function):
    """log softmax(logits)[states, targets], and each row's entropy without gradient.

    The backward pass needs only the probabilities: ∂ log p_t/∂ logits = onehot(t) − p.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, states: Tensor, targets: Tensor, entropy: bool
    ) -> tuple[Tensor, Tensor | None]:
        every = logits.log_softmax(-1)
        logprobs = every[states, targets]
        probs = every.exp() if entropy else every.exp_()
        entropies = torch.linalg.vecdot(probs, every).neg_() if entropy else None
        ctx.save_for_backward(probs, states, targets)
        if entropies is not None:
            ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        probs, states, targets = ctx.saved_tensors
        total = grad.new_zeros(probs.shape[0]).index_add_(0, states, grad)
        gradient = probs * total.neg()[:, None]
        return gradient.index_put_((states, targets), grad, accumulate=True), None, None, None


def token_logprobs(
    logits: Tensor, states: Tensor, targets: Tensor, temperature: float, entropy: Entropy
) -> tuple[Tensor, Tensor | None]:
    """Log-probabilities of K tokens, computed in fp32 from the logits of U states.

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
    logits = logits.float()
    if temperature != 1.0:
        logits = logits / temperature
    if entropy != "gradient":
        logprobs, entropies = _TokenLogprobs.apply(logits, states, targets, entropy == "value")
    else:
        every = logits.log_softmax(-1)
        logprobs, entropies = every[states, targets], -(every.exp() * every).sum(-1)
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
    at_once = _LOGIT_ELEMENTS_ON_A_GPU if hidden.device.type == "cuda" else _LOGIT_ELEMENTS_AT_ONCE
    size = max(1, at_once // vocabulary)
    linear: Any = head if type(head) is torch.nn.Linear else None  # a subclass may compute something else
    if linear is not None and entropy == "none" and linear.bias is None:
        dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else hidden.dtype
        if fused(hidden.device, dtype):
            return fused_logprobs(hidden.to(dtype), linear.weight.to(dtype), states, targets, temperature), None
    if hidden.shape[0] <= size:
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
