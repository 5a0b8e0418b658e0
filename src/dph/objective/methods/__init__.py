"""Published alternatives to GRPO's advantage and to PPO-clip: one file each, with formula, source and settings.

In all of them a group's rollouts that could not be judged are left out. r is the reward, p the share of correct
responses in the group, G the number of judged ones, and Â GRPO's advantage (r − mean)/std.
"""

from dph.objective.methods import (
    cispo,
    covariance,
    f_grpo,
    gated,
    gspo,
    mara,
    maxrl,
    passk,
    rs_grpo,
    smoothing,
    uniqueness,
    unlikeliness,
    w_reinforce,
)

__all__ = [
    "cispo",
    "covariance",
    "f_grpo",
    "gated",
    "gspo",
    "mara",
    "maxrl",
    "passk",
    "rs_grpo",
    "smoothing",
    "uniqueness",
    "unlikeliness",
    "w_reinforce",
]
