"""What the objective reads of a mini-batch: its tensors, and its global counts."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class LossBatch(Protocol):
    """What the loss reads of a batch; B rows, T response positions."""

    @property
    def old_logprobs(self) -> Tensor:
        """[B, T] under the policy that generated the rollouts; not read on D_pef rows."""
        ...

    @property
    def ref_logprobs(self) -> Tensor | None:
        """[B, T] under π_ref; on D_exp rows read only if `Objective.needs_reference`."""
        ...

    @property
    def response_mask(self) -> Tensor:
        """[B, T], nonzero on response tokens that count."""
        ...

    @property
    def advantages(self) -> Tensor:
        """[B], or [B, T] where they differ by token; finite; without effect on D_pef rows."""
        ...

    @property
    def is_rehearsal(self) -> Tensor:
        """bool [B]: True for D_pef rows."""
        ...

    @property
    def selected(self) -> Tensor | None:
        """bool [B, T]: what `Objective.select` chose among the D_exp tokens of the mini-batch; None where there is no
        such choice."""
        ...


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """The simplest `LossBatch`, for training loops that do not use `dph.training.rows.Batch`."""

    old_logprobs: Tensor
    ref_logprobs: Tensor | None
    response_mask: Tensor
    advantages: Tensor
    is_rehearsal: Tensor
    selected: Tensor | None = None


@dataclass(frozen=True, slots=True)
class LossCounts:
    """Denominators of a mini-batch: add them over its micro-batches and ranks before the first loss."""

    exp_tokens: float = 0.0
    pef_tokens: float = 0.0
    exp_sequences: float = 0.0
    """Rows of D_exp with at least one token in the mask."""
    pef_sequences: float = 0.0

    @classmethod
    def of(cls, batch: LossBatch) -> "LossCounts":
        """Count one batch."""
        mask = batch.response_mask.bool()
        pef = batch.is_rehearsal.bool()
        tokens, rows = mask.sum(-1), mask.any(-1)
        counts = [tokens[~pef].sum(), tokens[pef].sum(), rows[~pef].sum(), rows[pef].sum()]
        return cls(*torch.stack(counts).tolist())

    def __add__(self, other: "LossCounts") -> "LossCounts":
        return LossCounts(
            self.exp_tokens + other.exp_tokens,
            self.pef_tokens + other.pef_tokens,
            self.exp_sequences + other.exp_sequences,
            self.pef_sequences + other.pef_sequences,
        )
