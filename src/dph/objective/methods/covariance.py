"""KL-Cov and Clip-Cov (arXiv 2505.22617): restrain the few tokens that make the entropy fall.

Entropy falls where advantage and log-probability rise together. Each token's part in their covariance is
(A − mean A)·(log π_θ − mean log π_θ), with means over all rollout tokens of the mini-batch. The authors' code takes the
tokens of a micro-batch; ours are those of the whole mini-batch, so that the choice is the same for every way of cutting
it. log π_θ is the policy's before the update: log π_old in the first one of a step.
"""

import torch
from torch import Tensor

from dph.objective.policy_losses import ppo_clip, register_policy_loss
from dph.objective.token_losses import importance_ratio, masked_log_ratio, per_token


def _parts(logprobs: Tensor, advantages: Tensor) -> Tensor:
    return (advantages - advantages.mean()) * (logprobs - logprobs.mean())


def largest(
    old_logprobs: Tensor,
    advantages: Tensor,
    uniform: Tensor,
    *,
    logprobs: Tensor | None = None,
    share: float = 2e-4,
) -> Tensor:
    """The `share` of tokens with the largest part in the covariance, at least one; all arguments [K], result bool.

    logprobs: log π_θ; None if it is log π_old.
    """
    count = max(1, int(len(old_logprobs) * share))
    chosen = torch.zeros(len(old_logprobs), dtype=torch.bool)
    parts = _parts(old_logprobs if logprobs is None else logprobs, advantages)
    chosen[parts.topk(min(count, len(old_logprobs))).indices] = True
    return chosen


def random_within(
    old_logprobs: Tensor,
    advantages: Tensor,
    uniform: Tensor,
    *,
    logprobs: Tensor | None = None,
    share: float = 2e-4,
    low: float = 1.0,
    high: float = 5.0,
    clip_low: float = 1.0,
    clip_high: float = torch.inf,
) -> Tensor:
    """`share` of all tokens (at least one), drawn from those whose part lies between low and high; [K] → bool [K].

    Tokens that PPO clips are left out: they have no gradient as it is.

    uniform: a random number in [0, 1) for each token. logprobs: log π_θ; None if it is log π_old.
    """
    logprobs = old_logprobs if logprobs is None else logprobs
    parts = _parts(logprobs, advantages)
    ratio = importance_ratio(logprobs, old_logprobs, torch.ones_like(logprobs))
    clipped = ((ratio > 1 + clip_high) & (advantages > 0)) | ((ratio < 1 - clip_low) & (advantages < 0))
    candidates = ((parts > low) & (parts < high) & ~clipped).nonzero().flatten()
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
    penalty = kl_coef * masked_log_ratio(logprobs, old_logprobs, mask).abs()
    return (loss + torch.where(selected.bool(), penalty, 0.0)) * mask


@register_policy_loss("clip_cov", select=random_within, needs_advantage=True)
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
