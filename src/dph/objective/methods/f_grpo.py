"""F-GRPO (arXiv 2602.06717): GRPO with a focal weight, so that groups which mostly succeed move the policy less."""

from torch import Tensor

from dph.errors import UserError
from dph.objective.advantages import GroupView, group, register_advantage


@register_advantage("f_grpo")
def f_grpo(view: GroupView, *, gamma: float = 1.0) -> Tensor:
    """A = (1 − p)^gamma · Â, [G]; gamma = 0 is GRPO. Raises UserError for a negative gamma."""
    if not gamma >= 0:
        raise UserError(f"advantage.options gamma must not be negative, but is {gamma}")
    p = view.correct[view.valid].to(view.rewards.dtype).mean()
    return (1 - p) ** gamma * group(view)
