"""GSPO (arXiv 2507.18071): importance ratios of whole responses, normalised by length, instead of tokens."""

import torch
from torch import Tensor

from dph.objective.policy_losses import register_policy_loss
from dph.objective.token_losses import masked_log_ratio, per_token


@register_policy_loss("gspo")
def gspo(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, *, clip_low: float, clip_high: float
) -> Tensor:
    """−min(s·A, clip(s, 1 − clip_low, 1 + clip_high)·A) at every token, [B, T], with s the geometric mean of the
    response's token ratios. With `loss.aggregation = "sequence"` a response counts once, as in the paper."""
    tokens = mask.sum(-1, keepdim=True).clamp(min=1)
    s = (masked_log_ratio(logprobs, old_logprobs, mask).sum(-1, keepdim=True) / tokens).exp()
    advantages = per_token(advantages)
    return torch.maximum(-s * advantages, -s.clamp(1 - clip_low, 1 + clip_high) * advantages) * mask
