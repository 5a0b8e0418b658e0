"""MARA, mode-anchored reward augmentation (arXiv 2510.20817): all good responses become equally good under KL."""

import torch
from torch import Tensor

from dph.objective.advantages import GroupView, group_advantages, register_advantage


@register_advantage("mara", reference=True)
def mara(group: GroupView, *, beta: float, threshold: float = 1.0) -> Tensor:
    """Centred advantages of augmented rewards, [G]. For a good response y (r ≥ threshold) the reward becomes

        r(z) + β·(log π_ref(z) − log π_ref(y)),

    z the group's good response of highest log π_ref; others keep theirs. The optimum under KL(π‖π_ref) at the same β
    (`loss.kl_coef`) then gives all good responses the same probability. The rewards are centred and not divided by
    their standard deviation, which would change their weight against the KL term.
    """
    assert group.ref_logprobs is not None, "registered with reference=True"
    good = (group.rewards >= threshold) & group.valid
    rewards = group.rewards
    if good.any():
        reference = torch.stack([values.sum() for values in group.ref_logprobs]).to(rewards.dtype)
        anchor = int(torch.where(good, reference, -torch.inf).argmax())
        rewards = torch.where(good, rewards[anchor] + beta * (reference[anchor] - reference), rewards)
    return group_advantages(rewards[None], group.valid[None], normalize_std=False)[0]
