"""RS-GRPO (arXiv 2509.24261): the risk-seeking objective (1/β)·log E[exp(β·r)] instead of the mean reward."""

import math

from torch import Tensor

from dph.errors import UserError
from dph.objective.advantages import GroupView, register_advantage


@register_advantage("rs_grpo")
def rs_grpo(group: GroupView, *, beta: float = 2.0) -> Tensor:
    """A = (exp(β(r − V)) − 1)/β with V = (1/β)·log mean exp(β·r) over the group, [G].

    β → 0 is r − mean, large β looks at the best response alone. Raises UserError for β ≤ 0.
    """
    if beta <= 0:
        raise UserError(f"advantage.options beta must be above 0, but is {beta}")
    judged = group.rewards[group.valid]
    value = ((beta * judged).logsumexp(0) - math.log(max(1, len(judged)))) / beta
    return (beta * (group.rewards - value)).expm1() / beta
