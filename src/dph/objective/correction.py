"""Truncated importance sampling, for rollouts of an engine whose probabilities differ from the trainer's by rounding.

It weights each token of a rollout by min(π_old / π_sampler, cap). Up to the cap, the mean of
a term over tokens of the sampler is then its expectation under π_old at the same prefix: that of the policy loss, the
KL penalty and the policy half of JS. (How often a prefix occurs is not corrected.)
"""

import torch
from torch import Tensor


@torch.no_grad()
def sampler_correction(
    old_logprobs: Tensor, sampled_logprobs: Tensor, mask: Tensor, cap: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Importance weights of tokens, and sums for metrics.

    old_logprobs, sampled_logprobs: [B, T], of the sampled tokens under the policy that trains, as it was when they were
    sampled, and under the sampler, in nats. mask: [B, T], nonzero on the tokens that count. cap: the largest weight; 0
    leaves all at 1.
    Returns weights [B, T], and sums over the tokens of: |log π_old − log π_sampler| ("exp/sampler_gap"), the unbiased
    and never negative estimate of KL(π_sampler‖π_old) ("exp/sampler_kl"), and the weights ("exp/importance").
    """
    counts = mask.bool()
    gap = torch.where(counts, old_logprobs - sampled_logprobs, 0.0)
    ratio = gap.exp()
    weights = ratio.clamp(max=cap) if cap else torch.ones_like(ratio)
    sums = {
        "exp/sampler_gap": gap.abs().sum(),
        "exp/sampler_kl": (ratio - 1 - gap).sum(),
        "exp/importance": torch.where(counts, weights, 0.0).sum(),
    }
    return weights, sums
