"""Unlikeliness reward (arXiv 2506.02355): correct responses that the policy finds likely are rewarded less."""

import torch
from torch import Tensor

from dph.objective.advantages import GroupView, group_advantages, register_advantage


@register_advantage("unlikeliness", logprobs=True)
def unlikeliness(group: GroupView, *, beta: float = 0.25) -> Tensor:
    """GRPO's advantage of the rewards r·(1 − β·rank/G), [G].

    rank orders the group's G responses by mean log π_old per token: 0 is the least likely one, G − 1 the most likely.
    Equal ones have the mean of their ranks. The authors train with a KL penalty of 0.1 and two epochs per batch.
    """
    means = torch.stack([values.mean() if len(values) else torch.tensor(0.0) for values in group.old_logprobs])
    valid = group.valid
    below = ((means[None] < means[:, None]) & valid[None]).sum(-1)
    equal = ((means[None] == means[:, None]) & valid[None]).sum(-1)
    rank = below + (equal - 1) / 2
    rewards = group.rewards * (1 - beta * rank / valid.sum().clamp(min=1))
    return group_advantages(rewards[None], valid[None])[0]
