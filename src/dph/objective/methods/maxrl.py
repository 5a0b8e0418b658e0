"""MaxRL (arXiv 2602.02710): the gradient of log p instead of p, up to the order that a group can estimate."""

import torch
from torch import Tensor

from dph.objective.advantages import GroupView, register_advantage


@register_advantage("maxrl")
def maxrl(group: GroupView) -> Tensor:
    """A = (r − m)/m̄ with m the mean reward of the group and m̄ that of |r|, [G]; 0 if no reward is above 0.

    With binary rewards (1/G)·Σ A·∇log π is an unbiased estimate of ∇E[Σ_{k<G} −(1 − p)^k/k], the expansion of log p
    that G samples reach: the rarer success is, the more it weighs (1/p against GRPO's 1/√p).

    The paper divides by m, which is the same if no reward is negative. With negative ones (a length penalty, say) m may
    be as good as 0; divided by m̄, advantages lie between −(G − 1) and G − 1 for any rewards.
    """
    judged = group.rewards[group.valid].double()
    if not bool((judged > 0).any()):
        return torch.zeros_like(group.rewards)
    return (group.centred / judged.abs().mean()).to(group.rewards.dtype)
