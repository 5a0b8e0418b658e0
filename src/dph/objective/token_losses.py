"""Per-token losses on rollouts besides the policy loss: KL estimators, the policy half of JS (eqs. 13–17).

Every function takes log-probabilities and a mask [B, T] and returns [B, T] with zeros outside the mask;
`objective` sums them. Log-probabilities are at the sampling temperature; arithmetic is in fp32 at least.
"""

from typing import Literal

import torch
from torch import Tensor

from dph.objective.divergences import get_divergence, log_ratio_to_mixture

JS_BASELINE = 0.25
"""Baseline of the policy half of JS: the constant for which its gradient vanishes at π_θ = π_ref sample by sample."""

MAX_LOG_RATIO = 20.0
"""Log-ratios of rollouts are clamped to ± this before exp, as in verl: a step beyond e^20 is lost, but not NaN."""


def masked_log_ratio(logprobs: Tensor, other: Tensor, mask: Tensor) -> Tensor:
    """log π_θ − log π_other, 0 outside the mask, in fp32 or better. All [B, T].

    The difference is replaced before anything is applied to it: log-probabilities of masked positions may be −inf or
    NaN, and 0 · exp(inf) in a backward pass is NaN.
    """
    dtype = torch.promote_types(logprobs.dtype, torch.float32)
    return torch.where(mask.bool(), logprobs.to(dtype) - other.to(dtype), 0.0)


def per_token(advantages: Tensor) -> Tensor:
    """Advantages [B] or [B, T] as [B, 1] or [B, T]."""
    return advantages if advantages.ndim == 2 else advantages[:, None]


def importance_ratio(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor) -> Tensor:
    """ρ = π_θ/π_old, 1 outside the mask. All [B, T]."""
    return masked_log_ratio(logprobs, old_logprobs, mask).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def sequence_ratio(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor) -> Tensor:
    """s = (Π_t ρ_t)^(1/T): the geometric mean of a response's token ratios (GSPO), [B, 1]; 1 for one without tokens."""
    log_ratio = masked_log_ratio(logprobs, old_logprobs, mask).sum(-1, keepdim=True)
    return (log_ratio / mask.sum(-1, keepdim=True).clamp(min=1)).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def kl_loss(
    logprobs: Tensor,
    ref_logprobs: Tensor,
    mask: Tensor,
    kind: Literal["k1", "k2", "k3", "k3_is"],
    old_logprobs: Tensor | None = None,
) -> Tensor:
    """Estimators of KL(π_θ‖π_ref) per token on rollouts, [B, T] (eq. 13). With ℓ = log π_θ − log π_ref, on-policy:

        kind    loss                 its expected gradient
        k1      ℓ                    zero
        k2      ½ℓ²                  ∇KL(π_θ‖π_ref)
        k3      expm1(−ℓ) + ℓ        ∇KL(π_ref‖π_θ): forward KL's, though the value estimates reverse KL
        k3_is   ρ·(expm1(−ℓ) + ℓ)    ∇KL(π_θ‖π_ref), also for rollouts of an older policy (needs old_logprobs)

    GRPO implementations and the paper's RKL runs use k3.
    """
    log_ratio = masked_log_ratio(logprobs, ref_logprobs, mask)
    if kind == "k1":
        return log_ratio * mask
    if kind == "k2":
        return 0.5 * log_ratio.square() * mask
    log_ratio = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    loss = (torch.expm1(-log_ratio) + log_ratio) * mask
    if kind == "k3":
        return loss
    if old_logprobs is None:
        raise ValueError("kl_loss of kind 'k3_is' needs old_logprobs")
    return importance_ratio(logprobs, old_logprobs, mask) * loss


def js_definition_policy_term(
    logprobs: Tensor,
    old_logprobs: Tensor,
    ref_logprobs: Tensor,
    mask: Tensor,
    *,
    scale: float = 1.0,
    baseline: float = JS_BASELINE,
    official: bool = False,
) -> Tensor:
    """Second half of JS by its definition, ½·KL(π_θ‖m), m = (π_θ + π_ref)/2, on rollouts (eqs. 14, 17), [B, T].

    With g = ½·log(π_θ/m) and ρ = π_θ/π_old the term is scale·[ρ·(g − b) + b]: its expectation under π_old is the
    half's value, and its gradient, through ρ *and* g, is on average ∇E_{π_θ}[g] = E_{π_θ}[g·∇log π_θ + ∇g].
    Differentiating g alone would give minus the gradient of the first half. The baseline b changes no expectation.

    official: the authors' k3 estimate of KL(π_θ‖m), differentiated through m, with its clamps; biased as a gradient.
    """
    to_mixture = log_ratio_to_mixture(masked_log_ratio(logprobs, ref_logprobs, mask))
    if official:
        k3 = get_divergence("forward_kl", official=True).f(-to_mixture)
        return 0.5 * scale * k3 * mask
    ratio = importance_ratio(logprobs, old_logprobs, mask)
    return scale * (ratio * (0.5 * to_mixture - baseline) + baseline) * mask
