"""Log-probabilities and entropies from logits, and the gradient of the logits, a block of rows at a time.

On a CPU a block stays in the cache, where a tensor of all probabilities would be written to memory and read again by
each operation. On a GPU two compiled kernels read a block once (`dph.models.compiled`). Only the logits, in their own
type, and a few numbers a row are kept for the backward pass. With logits z, largest m, temperature T, p = softmax(z/T),
entropy H, and gradients g of log-probabilities and h of entropies,

    log p = (z − m)/T − log Σ exp((z − m)/T),
    ∂/∂z (Σ_k g_k log p_{y_k} + h H) = (Σ_k g_k onehot(y_k) − p · (Σ_k g_k + h · (log p + H))) / T.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from dph.models.compiled import compiled

_ELEMENTS_ON_CPU = 1 << 18
"""Logits in a block, for each thread: two blocks in fp32 take 2 MiB."""
_ELEMENTS_ON_A_GPU = 1 << 27
_LEAST = -1000.0
"""Stands for log-probabilities below it, such as −∞ of tokens that are masked: a probability this small is 0 in fp32
and in fp64, and so is its product with this number; with −∞ it would be nan."""


@dataclass(frozen=True, slots=True)
class Normalized:
    """What log-probabilities need of each row of logits: tensors [U] in fp32, or in fp64 for logits of this type."""

    largest: Tensor
    """m."""
    log_sum: Tensor
    """log Σ exp((z − m)/T)."""
    entropies: Tensor | None
    """H in nats."""

    @classmethod
    def empty(cls, like: Tensor, entropy: bool) -> "Normalized":
        """Of as many rows as `like` has, to be filled."""
        largest, log_sum, entropies = (like.new_empty(len(like), dtype=_wide(like)) for _ in range(3))
        return cls(largest, log_sum, entropies if entropy else None)

    def __getitem__(self, rows: slice) -> "Normalized":
        """Of some rows; a view."""
        return Normalized(
            self.largest[rows], self.log_sum[rows], None if self.entropies is None else self.entropies[rows]
        )

    def fill(self, logits: Tensor, temperature: float) -> None:
        """Compute the numbers for each row of logits [U, V]."""
        wide, size, sums = _wide(logits), _rows_at_once(logits), compiled(_sums, logits)
        for start in range(0, len(logits), size):
            rows = slice(start, start + size)
            if sums:
                self.largest[rows], self.log_sum[rows], entropies = sums(logits[rows], temperature)
                if self.entropies is not None:
                    self.entropies[rows] = entropies
                continue
            z = logits[rows].to(wide, copy=True)
            self.largest[rows] = top = z.amax(-1)
            z.sub_(top[:, None])
            if temperature != 1.0:
                z.div_(temperature)
            if self.entropies is not None:
                z.clamp_(min=_LEAST)
            weights = z.exp()
            total = weights.sum(-1)
            self.log_sum[rows] = logarithm = total.log()
            if self.entropies is not None:
                self.entropies[rows] = logarithm - weights.mul_(z).sum(-1) / total


def _sums(logits: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """As `Normalized.fill`, with entropies, for all rows; to be compiled."""
    z = logits.to(_wide(logits))
    top = z.amax(-1)
    z = ((z - top[:, None]) / temperature).clamp(min=_LEAST)
    weights = z.exp()
    total = weights.sum(-1)
    return top, total.log(), total.log() - (weights * z).sum(-1) / total


def _weighted(logits: Tensor, temperature: float, largest: Tensor, log_sum: Tensor, factor: Tensor) -> Tensor:
    """p · factor for each row; to be compiled."""
    z = (logits.to(_wide(logits)) - largest[:, None]) / temperature
    return (z - log_sum[:, None]).exp() * factor[:, None]


def logprobs_of(logits: Tensor, known: Normalized, states: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Log-probabilities [K] in nats of the tokens `targets` [K] that the rows `states` [K] of the logits predict."""
    shifted = logits[states, targets].to(known.largest.dtype) - known.largest[states]
    return shifted.div_(temperature).sub_(known.log_sum[states])


def logit_gradient(
    logits: Tensor,
    known: Normalized,
    states: Tensor,
    targets: Tensor,
    temperature: float,
    grad: Tensor | None,
    grad_entropy: Tensor | None,
) -> Tensor:
    """The gradient of logits [U, V], in their type, from those of log-probabilities [K] and of entropies [U].

    Either may be None. Its sums are in fp32 and rounded once.
    """
    wide = _wide(logits)
    found = torch.empty_like(logits)
    slopes = known.largest.new_zeros(len(states)) if grad is None else grad.to(wide) / temperature
    totals = slopes.new_zeros(len(logits)).index_add_(0, states, slopes).neg_()
    weighted = compiled(_weighted, logits, 3) if grad_entropy is None or known.entropies is None else None
    for rows, inside in chunks(states, len(logits), _rows_at_once(logits)):
        if weighted:
            change = weighted(logits[rows], temperature, known.largest[rows], known.log_sum[rows], totals[rows])
        else:
            change = logits[rows].to(wide, copy=True)  # becomes log p, p, and the gradient
            change.sub_(known.largest[rows, None])  # first: large logits have no digits left for the logarithm
            if temperature != 1.0:
                change.div_(temperature)
            change.sub_(known.log_sum[rows, None])
            factor = totals[rows, None]
            if grad_entropy is not None and known.entropies is not None:
                of_entropy = grad_entropy[rows, None] / temperature
                change.clamp_(min=_LEAST)
                factor = factor - (change + known.entropies[rows, None]).mul_(of_entropy)
            change.exp_().mul_(factor)
        change.index_put_((states[inside] - rows.start, targets[inside]), slopes[inside], accumulate=True)
        found[rows] = change
    return found


def chunks(states: Tensor, number: int, size: int) -> Iterator[tuple[slice, Tensor]]:
    """Slices of `number` rows, `size` at a time, each with the indices into `states` [K] of those that lie in it."""
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
    elements = _ELEMENTS_ON_CPU * torch.get_num_threads() if on_cpu else _ELEMENTS_ON_A_GPU
    return max(1, elements // logits.shape[1])
