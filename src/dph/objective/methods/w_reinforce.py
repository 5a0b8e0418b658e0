"""W-REINFORCE (arXiv 2506.01347): REINFORCE on ±1 rewards in which correct responses weigh little."""

from torch import Tensor

from dph.objective.advantages import GroupView, register_advantage


@register_advantage("w_reinforce")
def w_reinforce(group: GroupView, *, positive: float = 0.1) -> Tensor:
    """A = `positive` for correct responses and −1 for wrong ones, [G]; neither baseline nor standard deviation.

    Groups of equal rewards train too. positive = 0 is the paper's negative sample reinforcement, 1 plain REINFORCE.
    """
    return group.rewards.new_tensor([-1.0, positive])[group.correct.long()]
