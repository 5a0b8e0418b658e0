"""KL-Cov and Clip-Cov (arXiv 2505.22617): restrain the few tokens that make the entropy fall.

Entropy falls where advantage and log-probability rise together. Each token's part in their covariance is
(A − mean A)·(log π_old − mean log π_old), with means over all rollout tokens of the mini-batch. The authors' code
takes the current policy's log-probability within a micro-batch; ours is the one at the start of the step, so that the
choice is the same for every way of cutting the mini-batch.
"""

import torch
from torch import Tensor

from dph.objective.policy_losses import ppo_clip, register_policy_loss
from dph.objective.token_losses import importance_ratio, masked_log_ratio, per_token


def _parts(old_logprobs: Tensor, advantages: Tensor) -> Tensor:
    return (advantages - advantages.mean()) * (old_logprobs - old_logprobs.mean())


def largest(old_logprobs: Tensor, advantages: Tensor, uniform: Tensor, *, share: float = 2e-4) -> Tensor:
    """The `share` of tokens with the largest part in the covariance, at least one; all arguments [K], result bool."""
    count = max(1, int(len(old_logprobs) * share))
    chosen = torch.zeros(len(old_logprobs), dtype=torch.bool)
    chosen[_parts(old_logprobs, advantages).topk(min(count, len(old_logprobs))).indices] = True
    return chosen


def random_within(
    old_logprobs: Tensor,
    advantages: Tensor,
    uniform: Tensor,
    *,
    share: float = 2e-4,
    low: float = 1.0,
    high: float = 5.0,
) -> Tensor:
    """`share` of all tokens (at least one), drawn from those whose part lies between low and high; [K] → bool [K].

    uniform: a random number in [0, 1) for each token.
    """
    parts = _parts(old_logprobs, advantages)
    candidates = ((parts > low) & (parts < high)).nonzero().flatten()
    chosen = torch.zeros(len(old_logprobs), dtype=torch.bool)
    count = max(1, int(len(old_logprobs) * share))
    chosen[candidates[uniform[candidates].argsort()[:count]]] = True
    return chosen


@register_policy_loss("kl_cov", select=largest)
def kl_cov(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    selected: Tensor,
    kl_coef: float = 1.0,
) -> Tensor:
    """−ρ·A without clipping, plus kl_coef·|log π_θ − log π_old| on selected tokens, [B, T].

    The penalty has no gradient where π_θ = π_old: it does nothing in the first update on a batch of rollouts.
    """
    loss = -importance_ratio(logprobs, old_logprobs, mask) * per_token(advantages)
    penalty = masked_log_ratio(logprobs, old_logprobs, mask).abs()
    return (loss + kl_coef * selected * penalty) * mask


@register_policy_loss("clip_cov", select=random_within)
def clip_cov(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    selected: Tensor,
    clip_low: float,
    clip_high: float,
) -> Tensor:
    """PPO-clip; selected tokens have no gradient, [B, T]."""
    loss = ppo_clip(logprobs, old_logprobs, advantages, mask, clip_low=clip_low, clip_high=clip_high)
    return torch.where(selected.bool(), loss.detach(), loss)
