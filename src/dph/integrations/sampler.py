"""The gate on another trainer's sampler: one that computes with other weights is refused before it trains anything."""

from torch import Tensor

from dph.errors import UserError


def check_sampler(sampled: Tensor, trained: Tensor, explained: float) -> str:
    """Compare the log-probabilities of sampled tokens under the sampler with the trainer's, both [K], in nats; returns
    the numbers as a line. Raises UserError for a mean difference above `explained`, that which rounding and truncation
    explain, in nats per token."""
    gap = trained - sampled
    mean = float(gap.abs().mean())
    line = (
        f"the sampler is {mean:.4f} nats from the trainer (largest {gap.abs().max():.3f}, largest importance ratio "
        f"{gap.exp().max():.3f}); rounding explains {explained:.4f}"
    )
    if not mean <= explained:
        raise UserError(f"{line}; the sampler has other weights: check that it is given the trained adapters")
    return line
