"""The paper's mathematics as pure functions on tensors: divergences, advantages, losses (arXiv 2509.07430).

`Objective` is all of eq. 7, for any training loop: it takes log-probabilities, a batch and the mini-batch's counts.
"""

from dph.objective.advantages import (
    ADVANTAGES as ADVANTAGES,
    Advantage as Advantage,
    GroupView as GroupView,
    group_advantages as group_advantages,
    register_advantage as register_advantage,
)
from dph.objective.divergences import (
    DIVERGENCES as DIVERGENCES,
    Divergence as Divergence,
    get_divergence as get_divergence,
    register_divergence as register_divergence,
)
from dph.objective.objective import (
    LossCounts as LossCounts,
    Objective as Objective,
    TokenBatch as TokenBatch,
    mean_metrics as mean_metrics,
    rehearsal_diagnostics as rehearsal_diagnostics,
    sampler_correction as sampler_correction,
)
from dph.objective.policy_losses import (
    POLICY_LOSSES as POLICY_LOSSES,
    importance_ratio as importance_ratio,
    masked_log_ratio as masked_log_ratio,
    per_token as per_token,
    ppo_clip as ppo_clip,
    register_policy_loss as register_policy_loss,
    sequence_ratio as sequence_ratio,
)
