"""A divergence: squared Hellinger, f(u) = (√u − 1)², centred: f(1) = f′(1) = 0."""

import torch
from torch import Tensor

from dph.objective.divergences import Divergence, register_divergence


@register_divergence("hellinger")
def hellinger() -> Divergence:
    def f(log_ratio: Tensor) -> Tensor:
        return torch.expm1(log_ratio / 2).square()

    def pull_weight(log_ratio: Tensor) -> Tensor:  # u·f′(u) = u − √u = √u·(√u − 1)
        return torch.exp(log_ratio / 2) * torch.expm1(log_ratio / 2)

    return Divergence("hellinger", f, pull_weight)
