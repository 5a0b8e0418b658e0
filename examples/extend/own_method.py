"""A method of one's own: an advantage and a policy loss, chosen by own_method.toml.

python -m dph train --plugin own_method.py --config own_method.toml --model.path MODEL --out RUN
"""

import torch
from torch import Tensor

from dph.objective import GroupView, per_token, register_advantage, register_policy_loss, sequence_ratio


@register_advantage("by_success")
def by_success(group: GroupView, *, floor: float = 0.05) -> Tensor:
    """(r − p)/max(p, floor) with p the group's mean reward: rare successes weigh more than in GRPO."""
    return group.centred / group.rewards[group.valid].mean().clamp(min=floor)


@register_policy_loss("sequence_ratio", needs_advantage=True, clip_ratio=sequence_ratio)
def clipped_above(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, *, clip_high: float
) -> Tensor:
    """−min(s·A, min(s, 1 + clip_high)·A) per token, with s the geometric mean of a response's ratios."""
    s, advantages = sequence_ratio(logprobs, old_logprobs, mask), per_token(advantages)
    return -torch.minimum(s * advantages, s.clamp(max=1 + clip_high) * advantages) * mask
