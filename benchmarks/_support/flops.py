"""Floating-point operations of training a Llama-type model, and how fast this machine computes its matrix products.

A product of [a, b] and [b, c] counts 2·a·b·c operations. Everything else (norms, rotations, softmax, optimizer) counts
zero. The backward pass counts twice the forward pass, without recomputation. The count is a lower bound of the work.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dph.training.rows import Batch


@dataclass(frozen=True, slots=True)
class Work:
    """Amount of work in a pass through a model."""

    tokens: int
    """Number of tokens, padding included."""
    pairs: int
    """Pairs of a token and a token that it attends to."""
    predicted: int
    """Tokens whose logits are computed."""

    def __add__(self, other: "Work") -> "Work":
        return Work(self.tokens + other.tokens, self.pairs + other.pairs, self.predicted + other.predicted)

    @classmethod
    def of(cls, batch: Batch) -> "Work":
        """The work of a batch; a token attends to itself and to all tokens before it in its row."""
        tokens, width = batch.input_ids.numel(), batch.input_ids.shape[1]
        if batch.position_ids is None:
            pairs = batch.input_ids.shape[0] * width * (width + 1) // 2
        else:
            pairs = int(batch.position_ids.sum()) + tokens
        return cls(tokens, pairs, len(batch.sources))


def linear_shapes(config: Any) -> list[tuple[int, int]]:
    """(outputs, inputs) of each matrix in a layer."""
    hidden, inner = config.hidden_size, config.intermediate_size
    size = getattr(config, "head_dim", None) or hidden // config.num_attention_heads
    queries, keys = config.num_attention_heads * size, config.num_key_value_heads * size
    return [
        *((queries, hidden), (keys, hidden), (keys, hidden), (hidden, queries)),
        *((inner, hidden), (inner, hidden), (hidden, inner)),
    ]


def forward_flops(config: Any, work: Work) -> float:
    """Operations of one forward pass."""
    queries = linear_shapes(config)[0][0]
    matrices = 2 * work.tokens * sum(rows * columns for rows, columns in linear_shapes(config))
    scores = 4 * work.pairs * queries  # products with the keys and with the values
    return config.num_hidden_layers * (matrices + scores) + 2 * work.predicted * config.hidden_size * config.vocab_size


def training_flops(config: Any, work: Work) -> float:
    """Operations of a forward and a backward pass."""
    return 3 * forward_flops(config, work)


def matmul_rate(
    config: Any,
    tokens: int,
    clock: Callable[[], float] = time.perf_counter,
    repeats: int = 5,
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> float:
    """Operations per second in the matrix products of a layer's forward and backward passes."""
    operands = []
    for rows, columns in linear_shapes(config):
        sizes = ((tokens, columns), (rows, columns), (tokens, rows))
        x, weight, gradient = (torch.randn(size, device=device, dtype=dtype) for size in sizes)
        operands += [(x, weight.t()), (gradient, weight), (gradient.t(), x)]
    return _rate(operands, clock, repeats)


def square_rate(size: int, clock: Callable[[], float], *, device: str, dtype: torch.dtype) -> float:
    """Operations per second in products of two square matrices: the most that a model's step could reach."""
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return _rate([(a, b)], clock, repeats=10)


def _rate(operands: Sequence[tuple[torch.Tensor, torch.Tensor]], clock: Callable[[], float], repeats: int) -> float:
    total = sum(2 * a.shape[0] * a.shape[1] * b.shape[1] for a, b in operands)
    seconds = []
    for _ in range(repeats + 1):
        started = clock()
        for a, b in operands:
            torch.mm(a, b)
        seconds.append(clock() - started)
    return total / statistics.median(seconds[1:])  # the first warms up
