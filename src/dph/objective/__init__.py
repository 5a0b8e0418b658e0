"""The paper's mathematics as pure functions on tensors: divergences, advantages, losses (arXiv 2509.07430).

`Objective` is all of eq. 7, for any training loop: it takes log-probabilities, a batch and the mini-batch's counts.
"""

from dph.objective.advantages import ADVANTAGES, Advantage, GroupView, group_advantages, register_advantage
from dph.objective.divergences import DIVERGENCES, Divergence, get_divergence, register_divergence
from dph.objective.objective import (
    LossCounts,
    Objective,
    TokenBatch,
    mean_metrics,
    rehearsal_diagnostics,
    sampler_correction,
)
from dph.objective.policy_losses import (
    POLICY_LOSSES,
    importance_ratio,
    masked_log_ratio,
    per_token,
    ppo_clip,
    register_policy_loss,
    sequence_ratio,
)

__all__ = [
    "ADVANTAGES",
    "DIVERGENCES",
    "POLICY_LOSSES",
    "Advantage",
    "Divergence",
    "GroupView",
    "LossCounts",
    "Objective",
    "TokenBatch",
    "get_divergence",
    "group_advantages",
    "importance_ratio",
    "masked_log_ratio",
    "mean_metrics",
    "per_token",
    "ppo_clip",
    "register_advantage",
    "register_divergence",
    "register_policy_loss",
    "rehearsal_diagnostics",
    "sampler_correction",
    "sequence_ratio",
]
