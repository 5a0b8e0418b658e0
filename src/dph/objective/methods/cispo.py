"""CISPO (MiniMax-M1, arXiv 2506.13585): REINFORCE with clipped importance weights; no token loses its gradient."""

from torch import Tensor

from dph.objective.policy_losses import register_policy_loss
from dph.objective.token_losses import importance_ratio, masked_log_ratio, per_token


@register_policy_loss("cispo", needs_advantage=True, clip_ratio=None)
def cispo(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, *, clip_high: float) -> Tensor:
    """−sg[min(ρ, 1 + clip_high)]·A·log π_θ per token, [B, T]; sg stops the gradient. There is no lower clip.

    Its value is taken relative to log π_old, which changes no gradient and keeps masked tokens finite.
    """
    weight = importance_ratio(logprobs, old_logprobs, mask).detach().clamp(max=1 + clip_high)
    return -weight * per_token(advantages) * masked_log_ratio(logprobs, old_logprobs, mask) * mask
