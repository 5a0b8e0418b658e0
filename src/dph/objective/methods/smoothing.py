"""Differential smoothing (arXiv 2511.19942): likely correct responses gain less, likely wrong ones lose less."""

import torch
from torch import Tensor

from dph.objective.advantages import GroupView, group, register_advantage


@register_advantage("diff_smoothing", logprobs=True)
def diff_smoothing(view: GroupView, *, correct: float = 0.01, wrong: float = 0.01) -> Tensor:
    """A = Â − `correct`·log π_old(y) for correct y, Â + `wrong`·log π_old(y) for wrong y, [G].

    log π_old(y) is the sum over the response's tokens, in nats. The paper's analysis has the base model's probability
    where its algorithm has the old policy's; this is the algorithm. Groups of equal rewards train too.
    """
    logprobs = torch.stack([values.sum() for values in view.old_logprobs]).to(view.rewards.dtype)
    return group(view) + view.rewards.new_tensor([wrong, -correct])[view.correct.long()] * logprobs
