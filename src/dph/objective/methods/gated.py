"""GRPO that leaves solved prompts alone, after the view of collapse as overtraining of arXiv 2606.15455."""

import torch
from torch import Tensor

from dph.objective.advantages import GroupView, group, register_advantage


@register_advantage("gated")
def gated(view: GroupView, *, above: float = 0.75) -> Tensor:
    """Â, GRPO's advantage, where at most the share `above` of the group is correct; else 0, [G]. 1 is GRPO.

    The paper's own gate weighs a prompt by a posterior of its pass rate over many steps; this one sees the group alone.
    """
    solved = view.correct[view.valid].to(view.rewards.dtype).mean() > above
    return torch.where(solved, 0.0, group(view))
