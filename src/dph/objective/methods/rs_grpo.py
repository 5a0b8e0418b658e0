"""RS-GRPO (arXiv 2509.24261): the risk-seeking objective (1/β)·log E[exp(β·r)] instead of the mean reward."""

import torch
from torch import Tensor

from dph.errors import UserError
from dph.objective.advantages import GroupView, register_advantage


@register_advantage("rs_grpo")
def rs_grpo(group: GroupView, *, beta: float = 2.0) -> Tensor:
    """A = (exp(β(r − V)) − 1)/β with V = (1/β)·log mean exp(β·r) over the group, [G]; from −1/β to (G − 1)/β.

    β → 0 is r − mean, large β looks at the best response alone. Raises UserError for β ≤ 0
    and an infinite one.
    """
    if not 0 < beta < torch.inf:
        raise UserError(f"advantage.options beta must be above 0, and finite, but is {beta}")
    valid, rewards = group.valid, group.rewards.double()
    if not bool(valid.any()):
        return torch.zeros_like(group.rewards)
    # With x = exp(β(r − max r)) − 1 it is (x − mean x)/(1 + mean x)/β: nothing overflows, and equal rewards give 0.
    x = (beta * (rewards - rewards[valid].max())).expm1()
    mean = x[valid].mean()
    return ((x - mean) / (1 + mean) / beta).to(group.rewards.dtype)
