"""GSPO (arXiv 2507.18071): importance ratios of whole responses, normalised by length, instead of tokens."""

import torch
from torch import Tensor

from dph.objective.policy_losses import register_policy_loss
from dph.objective.token_losses import per_token, sequence_ratio


@register_policy_loss("gspo", needs_advantage=True, clip_ratio=sequence_ratio)
def gspo(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, *, clip_low: float, clip_high: float
) -> Tensor:
    """−min(s·A, clip(s, 1 − clip_low, 1 + clip_high)·A) at every token, [B, T], with s the geometric mean of the
    response's token ratios. With `loss.aggregation = "sequence"` a response counts once, as in the paper."""
    s = sequence_ratio(logprobs, old_logprobs, mask)
    advantages = per_token(advantages)
    return torch.maximum(-s * advantages, -s.clamp(1 - clip_low, 1 + clip_high) * advantages) * mask
