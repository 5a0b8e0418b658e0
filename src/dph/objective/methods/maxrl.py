"""MaxRL (arXiv 2602.02710): the gradient of log p instead of p, up to the order that a group can estimate."""

import torch
from torch import Tensor

from dph.objective.advantages import GroupView, register_advantage


@register_advantage("maxrl")
def maxrl(group: GroupView) -> Tensor:
    """A = (r − m)/m with m the mean reward of the group, [G]; 0 where m ≤ 0.

    With binary rewards (1/G)·Σ A·∇log π is an unbiased estimate of ∇E[Σ_{k<G} −(1 − p)^k/k], the expansion of log p
    that G samples reach: the rarer success is, the more it weighs (1/p against GRPO's 1/√p).
    """
    mean = group.rewards[group.valid].mean()
    if not mean > 0:  # no success, or no rollout at all
        return torch.zeros_like(group.rewards)
    return (group.rewards - mean) / mean
