"""Group-relative advantages (GRPO; arXiv 2509.07430, eq. 9)."""

import torch
from torch import Tensor


def group_advantages(
    rewards: Tensor, valid: Tensor | None = None, *, normalize_std: bool = True, eps: float = 1e-6
) -> Tensor:
    """A = (r − mean) / (std + eps) over the rollouts of each prompt; std is the unbiased one (n − 1).

    rewards: float [P, G], P prompts with G rollouts each.
    valid: bool [P, G]; False where judging failed. Such a rollout leaves its group: it enters neither mean nor std, its
        reward may be anything, NaN included, and its advantage is 0 (the trainer also masks it out of the loss).
    normalize_std: False leaves the division out (Dr. GRPO).
    Returns [P, G] in the dtype of `rewards`. A group with fewer than two valid rollouts, or with equal rewards, gets 0.
    """
    if valid is None:
        valid = torch.ones_like(rewards, dtype=torch.bool)
    count = valid.sum(-1, keepdim=True)
    # Relative to the group's smallest reward, so that equal rewards give exactly 0: the rounding error of a mean
    # (6e-8 in fp32) divided by eps would otherwise be an advantage of a few hundredths.
    lowest = rewards.masked_fill(~valid, torch.inf).amin(-1, keepdim=True)
    shifted = (rewards - lowest).masked_fill(~valid, 0.0)
    mean = shifted.sum(-1, keepdim=True) / count.clamp(min=1)
    centred = (shifted - mean).masked_fill(~valid, 0.0)
    if not normalize_std:
        return centred
    variance = centred.square().sum(-1, keepdim=True) / (count - 1).clamp(min=1)
    return centred / (variance.sqrt() + eps)
