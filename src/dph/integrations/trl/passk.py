# pyright: reportMissingImports=false
"""Unbiased pass@k of a step's rollouts in TRL's logs."""

from typing import TYPE_CHECKING, Any

from torch import Tensor

from dph.evaluation.passk import pass_at_powers

if TYPE_CHECKING:
    from trl import GRPOTrainer as _Trainer
else:
    _Trainer = object


class PassAtKMixin(_Trainer):
    """Logs `rewards/NAME/pass@K` for K = 2, 4, … up to the size of a group, beside TRL's `rewards/NAME/mean` (pass@1).

    It does so for every reward function that gave only 0 and 1. A group counts if at least K of its responses were
    scored (None is no score).
    """

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Tensor:
        rewards = super()._calculate_rewards(*args, **kwargs)
        mode = "train" if self.model.training else "eval"
        size = self.num_generations if mode == "train" else self.num_generations_eval
        for name, column in zip(self.reward_func_names, rewards.detach().cpu().unbind(1), strict=True):
            for k, value in passes(column.view(-1, size)).items():
                self._metrics[mode][f"rewards/{name}/pass@{k}"].append(value)
        return rewards


def passes(rewards: Tensor) -> dict[int, float]:
    """Mean pass@k over groups, for k = 2, 4, …; empty if a reward is neither 0 nor 1.

    Args:
        rewards: [groups, responses], NaN where a response was not scored.
    """
    scored = ~rewards.isnan()
    if not ((rewards == 0) | (rewards == 1) | ~scored).all():
        return {}
    return pass_at_powers(scored.sum(1).numpy(), (rewards == 1).sum(1).numpy())
