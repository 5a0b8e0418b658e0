"""Log-probabilities and entropies of tokens, from logits or from hidden states and the output embedding.

**Logits** are read a block of rows at a time. On a CPU a block stays in the cache, whereas a tensor of all
probabilities would be written to memory and read again by each operation. On a GPU two compiled kernels read each block
once. Only the logits, in their own type, and a few numbers for each row are kept for the backward pass. With logits z,
the largest logit m, temperature T, p = softmax(z/T), entropy H, and gradients g of log-probabilities and h of
entropies,

    log p = (z − m)/T − log Σ exp((z − m)/T),
    ∂/∂z (Σ_k g_k log p_{y_k} + h H) = (Σ_k g_k onehot(y_k) − p · (Σ_k g_k + h · (log p + H))) / T.

**Hidden states**: if not all logits fit into memory, one chunk of them is in memory at a time. The forward pass keeps
none of the logits of a chunk. The backward pass computes them again, chunk by chunk.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from dph.models.capability import attempt, plainly, relative_error
from dph.process.progress import say

Entropy = Literal["none", "value", "gradient"]

ELEMENTS_ON_CPU = 1 << 18
"""The number of logits in a block, for each thread. Two blocks in fp32 take 2 MiB."""
ELEMENTS_ON_A_GPU = 1 << 27
_LEAST = -1000.0
"""The number that stands for smaller log-probabilities, such as −∞ of masked tokens. The product of −∞ and its
probability, 0, would be nan."""
LOGITS_AT_ONCE = 1 << 25
"""The largest number of logits in memory at once. For more logits, hidden states are processed in chunks, and the
logits of a chunk are recomputed in the backward pass."""
_LOGITS_OF_A_CHUNK = 1 << 24
"""The number of logits in a chunk on a CPU. The gradient of a chunk takes as much memory again."""
_LOGITS_ON_A_GPU = 1 << 27
"""The value of both limits on a GPU. There each chunk also costs a pass over the gradient of the output embedding."""
_HEAD_ROWS_ON_CPU = 1 << 13
"""The rows of the gradient of the output embedding that are computed at once on a CPU, which saves memory. A GPU
computes all rows at once."""
_FEWEST_TO_COMPILE = 1 << 24
"""The smallest number of logits for which kernels are compiled. Reading fewer logits takes less time than compiling."""
_COMPILED_TOLERANCE = 1e-5
"""The largest difference between the results of a compiled function and of the same function uncompiled, in fp32,
relative to the largest value."""


def normalize(numbers: Tensor, logits: Tensor, temperature: float) -> None:
    """Compute the numbers that log-probabilities need from each row of logits [U, V], and write them into `numbers`.

    numbers: [3, U] or, without entropies, [2, U], as `numbers_like` makes it. The rows become the largest logit m, log
    Σ exp((z − m)/T), and the entropy H in nats.
    """
    size = _rows_at_once(logits)
    sums = compiled(softmax_sums, logits) or partial(softmax_sums, entropy=len(numbers) == 3)
    for start in range(0, len(logits), size):
        rows = slice(start, start + size)
        for out, values in zip(numbers, sums(logits[rows], temperature), strict=False):  # compiled sums have entropies
            out[rows] = values


def numbers_like(x: Tensor, entropy: Entropy) -> Tensor:
    """An empty tensor for the results of `normalize`, [2, U] or, with entropies, [3, U], for as many rows U as `x` has.
    The type is fp32, or fp64 for x in fp64."""
    return x.new_empty(2 if entropy == "none" else 3, len(x), dtype=_wide(x))


def softmax_sums(logits: Tensor, temperature: float, entropy: bool = True) -> tuple[Tensor, ...]:
    """The results of `normalize` for a few rows of logits, with the entropy only if `entropy` is set. Compiled for a
    GPU."""
    z = logits.to(_wide(logits), copy=True)
    top = z.amax(-1)
    z.sub_(top[:, None]).div_(temperature)
    if entropy:
        z.clamp_(min=_LEAST)
    weights = z.exp()
    total = weights.sum(-1)
    logarithm = total.log()
    return (top, logarithm, logarithm - weights.mul_(z).sum(-1) / total) if entropy else (top, logarithm)


def weighted_softmax(
    logits: Tensor,
    temperature: float,
    largest: Tensor,
    log_sum: Tensor,
    factor: Tensor,
    entropies: Tensor | None = None,
    of_entropy: Tensor | None = None,
) -> Tensor:
    """p · (factor − of_entropy · (log p + entropies)) for a few rows of logits [u, V], or p · factor if `of_entropy` or
    `entropies` is None. Compiled for a GPU.

    temperature: divides the logits. largest, log_sum, entropies: the results of `normalize`, [u]. factor, of_entropy:
    [u].
    """
    z = logits.to(_wide(logits), copy=True)  # holds in turn log p, p, and the result
    z.sub_(largest[:, None])  # subtracted first, because large logits have no digits left for the logarithm
    z.div_(temperature).sub_(log_sum[:, None])
    factor = factor[:, None]
    if of_entropy is not None and entropies is not None:
        z.clamp_(min=_LEAST)
        factor = factor - (z + entropies[:, None]).mul_(of_entropy[:, None])
    return z.exp_().mul_(factor)


def logprobs_of(logits: Tensor, numbers: Tensor, states: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Log-probabilities [K] in nats of the tokens `targets` [K]. Token k is predicted by row `states[k]` of the logits
    [U, V].

    numbers: the results of `normalize` for these logits.
    """
    largest, log_sum, *_ = numbers
    shifted = logits[states, targets].to(numbers.dtype) - largest[states]
    return shifted.div_(temperature).sub_(log_sum[states])


def logit_gradient(
    logits: Tensor,
    numbers: Tensor,
    states: Tensor,
    targets: Tensor,
    temperature: float,
    grad: Tensor | None,
    grad_entropy: Tensor | None,
) -> Tensor:
    """The gradient of logits [U, V], in their type, from the gradients of log-probabilities [K] and of entropies [U].

    Either of `grad` and `grad_entropy` may be None. The sums are computed in fp32 and rounded once. Other arguments as
    in `logprobs_of`.
    """
    gradient = torch.empty_like(logits)
    slopes = numbers.new_zeros(len(states)) if grad is None else grad.to(numbers.dtype) / temperature
    totals = slopes.new_zeros(len(logits)).index_add_(0, states, slopes).neg_()
    by_row = [*numbers[:2], totals]
    if grad_entropy is not None:
        by_row += [numbers[2], grad_entropy / temperature]
    weighted = (compiled(weighted_softmax, logits, 3) if grad_entropy is None else None) or weighted_softmax
    for rows, inside in chunks(states, len(logits), _rows_at_once(logits)):
        change = weighted(logits[rows], temperature, *(x[rows] for x in by_row))
        change.index_put_((states[inside] - rows.start, targets[inside]), slopes[inside], accumulate=True)
        gradient[rows] = change
    return gradient


def chunks(states: Tensor, number: int, size: int) -> Iterator[tuple[slice, Tensor]]:
    """Slices that cut `number` rows into pieces of `size` rows. Each slice comes with the indices into `states` [K] of
    the states that lie in it."""
    if number <= size:
        yield slice(0, number), torch.arange(len(states), device=states.device)
        return
    order = states.argsort(stable=True)
    firsts = torch.arange(0, number + size, size, device=states.device)
    bounds = torch.searchsorted(states[order], firsts).tolist()
    for index, start in enumerate(range(0, number, size)):
        yield slice(start, min(start + size, number)), order[bounds[index] : bounds[index + 1]]


def _wide(logits: Tensor) -> torch.dtype:
    return torch.promote_types(logits.dtype, torch.float32)


def _rows_at_once(logits: Tensor) -> int:
    on_cpu = logits.device.type == "cpu"
    elements = ELEMENTS_ON_CPU * torch.get_num_threads() if on_cpu else ELEMENTS_ON_A_GPU
    return max(1, elements // logits.shape[1])


# Compiled for a GPU ---------------------------------------------------------------------------------------------------


def compiled(function: Callable[..., Any], logits: Tensor, per_row: int = 0) -> Callable[..., Any] | None:
    """The function compiled for logits [U, V] like these. None on a CPU, for few logits, or if the check of the
    compiled function fails.

    function: takes logits, a temperature, and as many tensors [U] as `per_row` says, and returns one or several
    tensors.
    """
    if logits.device.type != "cuda" or logits.numel() < _FEWEST_TO_COMPILE:
        return None
    works = compiles(function, per_row, logits.device, logits.dtype, logits.shape[1])
    return kernel(function) if works else None


@cache
def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function, compiled by the compiler of torch."""
    return torch.compile(function, dynamic=True)


@cache
def compiles(
    function: Callable[..., Any], per_row: int, device: torch.device, dtype: torch.dtype, vocabulary: int
) -> bool:
    """Whether the compiled function gives the results of the function itself. The first call makes a check, and a
    failure is said once."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(64, vocabulary, generator=generator).to(device, dtype)
    logits[:, ::7] = -torch.inf

    def check() -> str:
        numbers = [torch.full((len(logits),), 5.0, device=device) for _ in range(per_row)]
        results, expected = (compute(logits, 0.7, *numbers) for compute in (kernel(function), function))
        pairs = zip(results, expected, strict=True) if isinstance(expected, tuple) else [(results, expected)]
        errors = (relative_error(*pair) for pair in pairs)
        return "" if all(error <= _COMPILED_TOLERANCE for error in errors) else "their results differ"

    with plainly(device), torch.no_grad():
        reason = attempt(check, of_kernels=True)
    if reason:
        say(f"logits are not read by compiled kernels on {device}: {reason}")
    return not reason


# From logits ----------------------------------------------------------------------------------------------------------


class _TokenLogprobs(torch.autograd.Function):
    """Log-probabilities [K], and entropies [U] or None, of logits [U, V], as an operation that autograd can
    differentiate."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, states: Tensor, targets: Tensor, temperature: float, entropy: Entropy
    ) -> tuple[Tensor, Tensor | None]:
        numbers = numbers_like(logits, entropy)
        normalize(numbers, logits, temperature)
        ctx.save_for_backward(logits, states, targets, numbers)
        ctx.temperature = temperature
        return logprobs_of(logits, numbers, states, targets, temperature), _entropies(ctx, numbers, entropy)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, grad_entropy: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        logits, states, targets, numbers = ctx.saved_tensors
        of_logits = logit_gradient(logits, numbers, states, targets, ctx.temperature, grad, grad_entropy)
        return of_logits, None, None, None, None


def _entropies(ctx: Any, numbers: Tensor, entropy: Entropy) -> Tensor | None:
    """The entropies [U] that a forward pass returns. They have a gradient only if `entropy` is "gradient"."""
    ctx.set_materialize_grads(False)
    if entropy == "none":
        return None
    entropies = numbers[2].clone()
    if entropy == "value":
        ctx.mark_non_differentiable(entropies)
    return entropies


def token_logprobs(
    logits: Tensor, states: Tensor, targets: Tensor, temperature: float, entropy: Entropy
) -> tuple[Tensor, Tensor | None]:
    """Log-probabilities of K tokens from the logits of U states, computed in fp32, or in fp64 for logits in fp64.

    Args:
        logits: [U, V], V tokens in the vocabulary.
        states: int64 [K], the state that predicts each token. Several tokens may share a state.
        targets: int64 [K], the tokens.
        temperature: divides the logits.
        entropy: whether to return also the entropy, in nats, of the distribution of each token: "none", "value"
            (without gradient) or "gradient".
    Returns:
        Log-probabilities [K] in nats, and entropies [K] in nats or None.
    """
    with torch.autocast(logits.device.type, enabled=False):
        logprobs, entropies = _TokenLogprobs.apply(logits, states, targets, temperature, entropy)
    return logprobs, None if entropies is None else entropies[states]


# From hidden states ---------------------------------------------------------------------------------------------------


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

    A head that is not a plain linear layer, for example a head with adapters, is called for each chunk, and called
    again in the backward pass.
    """
    on_gpu = hidden.device.type == "cuda"
    at_once = _LOGITS_ON_A_GPU if on_gpu else LOGITS_AT_ONCE
    size = max(1, (at_once if on_gpu else min(at_once, _LOGITS_OF_A_CHUNK)) // vocabulary)
    if hidden.shape[0] * vocabulary <= at_once:
        return token_logprobs(head(hidden), states, targets, temperature, entropy)
    plain: Any = head if type(head) is torch.nn.Linear else None  # a subclass may compute something else
    if plain is not None:
        return linear_logprobs(hidden, plain.weight, plain.bias, states, targets, temperature, entropy, size)

    def piece(part: Tensor, local: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor | None]:
        return token_logprobs(head(part), local, chosen, temperature, entropy)

    order, pieces = [], []
    for chunk, inside in chunks(states, len(hidden), size):
        order.append(inside)
        part = (hidden[chunk], states[inside] - chunk.start, targets[inside])
        pieces.append(checkpoint(piece, *part, use_reentrant=False))
    back = torch.cat(order).argsort()
    logprobs, entropies = zip(*pieces, strict=True)
    return torch.cat(logprobs)[back], torch.cat(entropies)[back] if entropy != "none" else None


def linear_logprobs(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    states: Tensor,
    targets: Tensor,
    temperature: float,
    entropy: Entropy,
    size: int,
) -> tuple[Tensor, Tensor | None]:
    """As `token_logprobs`, from hidden states [U, H] and a linear head with the weight [V, H] and the bias [V] or None.

    Under autocast, casts of all three are multiplied, as in any linear layer. The gradients of weight and bias are not
    rounded to the type of the casts, and are summed over chunks in fp32.

    size: the number of hidden states whose logits are in memory at once.
    """
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    with torch.autocast(device, enabled=False):
        tensors = (hidden.to(dtype or hidden.dtype), weight, bias, states, targets)
        logprobs, entropies = _LinearLogprobs.apply(*tensors, temperature, entropy, size, dtype)
    return logprobs, None if entropies is None else entropies[states]


class _LinearLogprobs(torch.autograd.Function):
    """Log-probabilities [K], and entropies [U] or None, of hidden states and a linear head, as an operation that
    autograd can differentiate."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        states: Tensor,
        targets: Tensor,
        temperature: float,
        entropy: Entropy,
        size: int,
        dtype: torch.dtype | None,
    ) -> tuple[Tensor, Tensor | None]:
        ctx.types = [None if x is None else x.dtype for x in (weight, bias)]
        weight = weight.to(dtype or weight.dtype)
        bias = None if bias is None else bias.to(dtype or bias.dtype)
        numbers = numbers_like(hidden, entropy)
        logprobs = numbers.new_empty(len(states))
        for chunk, inside in chunks(states, len(hidden), size):
            logits, local = linear(hidden[chunk], weight, bias), states[inside] - chunk.start
            normalize(numbers[:, chunk], logits, temperature)
            logprobs[inside] = logprobs_of(logits, numbers[:, chunk], local, targets[inside], temperature)
        ctx.save_for_backward(hidden, weight, bias, states, targets, numbers)
        ctx.temperature, ctx.size = temperature, size
        return logprobs, _entropies(ctx, numbers, entropy)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, grad_entropy: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        hidden, weight, bias, states, targets, numbers = ctx.saved_tensors
        wants, wide = ctx.needs_input_grad, numbers.dtype
        of_hidden = torch.empty_like(hidden) if wants[0] else None
        of_weight = torch.zeros_like(weight, dtype=wide) if wants[1] else None
        of_bias = torch.zeros_like(bias, dtype=wide) if wants[2] else None
        at_once = _HEAD_ROWS_ON_CPU if weight.device.type == "cpu" else len(weight)
        for chunk, inside in chunks(states, len(hidden), ctx.size):
            logits, local = linear(hidden[chunk], weight, bias), states[inside] - chunk.start
            slopes = None if grad is None else grad[inside]
            of_entropy = None if grad_entropy is None else grad_entropy[chunk]
            of_chunk = (numbers[:, chunk], local, targets[inside], ctx.temperature, slopes, of_entropy)
            change = logit_gradient(logits, *of_chunk)
            if of_hidden is not None:
                of_hidden[chunk] = change @ weight
            if of_weight is not None:
                # A product has the type of the logits. It cannot be added in place, so it takes memory of its own.
                for start in range(0, len(of_weight), at_once):
                    rows = slice(start, start + at_once)
                    of_weight[rows] += change[:, rows].T @ hidden[chunk]
            if of_bias is not None:
                of_bias += change.sum(0, dtype=wide)
        head = (None if x is None else x.to(dtype) for x, dtype in zip((of_weight, of_bias), ctx.types, strict=True))
        return of_hidden, *head, None, None, None, None, None, None
