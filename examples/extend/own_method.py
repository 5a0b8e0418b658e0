"""A method of one's own: an advantage and a policy loss, chosen by own_method.toml.

python -m dph train --plugin own_method.py --config own_method.toml --model.path MODEL --out RUN
"""

from torch import Tensor

from dph.objective import GroupView, importance_ratio, per_token, register_advantage, register_policy_loss


@register_advantage("by_success")
def by_success(group: GroupView, *, floor: float = 0.05) -> Tensor:
    """(r − p)/max(p, floor) with p the group's mean reward: rare successes weigh more than in GRPO."""
    p = group.rewards[group.valid].mean()
    return (group.rewards - p) / p.clamp(min=floor)


@register_policy_loss("sequence_ratio")
def sequence_ratio(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, *, clip_high: float
) -> Tensor:
    """−min(s, 1 + clip_high)·A per token, with s the geometric mean of a response's ratios."""
    log_ratio = importance_ratio(logprobs, old_logprobs, mask).log()
    s = (log_ratio.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)).exp()
    return -s.clamp(max=1 + clip_high) * per_token(advantages) * mask
