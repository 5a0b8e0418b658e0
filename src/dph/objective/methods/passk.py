"""Pass@k training (arXiv 2508.10751, analytical form): the reward of a response is the success of random k-subsets."""

from math import comb, sqrt

import torch
from torch import Tensor

from dph.errors import UserError
from dph.objective.advantages import GroupView, register_advantage


@register_advantage("passk")
def passk(group: GroupView, *, k: int = 4) -> Tensor:
    """Advantages for pass@k, [G]: a subset of k responses has reward 1 if any is correct. With w wrong ones of G,

        R̄ = 1 − C(w, k)/C(G, k),  σ = √(R̄·(1 − R̄)),
        correct: (1 − R̄)/σ,       wrong: (1 − C(w − 1, k − 1)/C(G − 1, k − 1) − R̄)/σ,

    the mean of (R − R̄)/σ over the subsets that contain the response; all 0 where σ = 0.

    Raises UserError for k < 1. In a group of fewer than k judged responses, k is their number.
    """
    if k < 1:
        raise UserError(f"advantage.options k must be at least 1, but is {k}")
    correct = group.correct
    count = int(group.valid.sum())
    k, wrong = min(k, count), count - int(correct.sum())
    if k == 0:
        return torch.zeros_like(group.rewards)
    mean = 1 - comb(wrong, k) / comb(count, k)
    spread = sqrt(mean * (1 - mean))
    if spread == 0:
        return torch.zeros_like(group.rewards)
    with_wrong = 1 - comb(wrong - 1, k - 1) / comb(count - 1, k - 1)
    values = group.rewards.new_tensor([(with_wrong - mean) / spread, (1 - mean) / spread])
    return values[correct.long()]
