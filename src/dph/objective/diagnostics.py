"""Metrics from the objective's sums, and how far the policy has moved from the reference on D_pef."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from dph.objective.divergences import Divergence

FORGOTTEN_BELOW = 0.1
"""A rehearsal token counts as forgotten when u = π_θ/π_ref is below this."""


def mean_metrics(sums: Mapping[str, Tensor]) -> dict[str, float]:
    """Means per token from added-up sums of an `Objective`; token counts and "loss" are left unchanged.

    A set without tokens yields no means.
    """
    values = {name: float(value) for name, value in sums.items()}
    means: dict[str, float] = {}
    for name, value in values.items():
        if name == "loss" or name.endswith("/tokens"):
            means[name] = value
        elif tokens := values[name.split("/")[0] + "/tokens"]:
            means[name] = value / tokens
    return means


@torch.no_grad()
def rehearsal_diagnostics(
    log_ratios: Tensor, divergence: Divergence, quantiles: Sequence[float] = (0.01, 0.1, 0.5, 0.9, 0.99)
) -> dict[str, float]:
    """How far the policy is from π_ref on D_pef.

    Args:
        log_ratios: [K] log π_θ − log π_ref of every rehearsal token that counts, in nats.
        divergence: the one that training uses.
    Returns:
        Quantiles of log u (log_ratio_q01 … log_ratio_q99), the share of forgotten tokens (u < 0.1), and the mean pull
        weight u·f′(u). js and alpha lose their pull on tokens that are already forgotten; these numbers show it. Empty
        where there are no tokens.
    """
    if log_ratios.numel() == 0:
        return {}
    levels = torch.tensor(quantiles, dtype=log_ratios.dtype, device=log_ratios.device)
    out = {
        f"log_ratio_q{round(100 * level):02d}": value
        for level, value in zip(quantiles, torch.quantile(log_ratios, levels).tolist(), strict=True)
    }
    out["forgotten"] = float((log_ratios.exp() < FORGOTTEN_BELOW).to(log_ratios.dtype).mean())
    out["pull_weight"] = float(divergence.pull_weight(log_ratios).mean())
    return out
