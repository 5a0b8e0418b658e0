"""η that adapts itself, so that the divergence on the stored responses stays near a target (beyond the paper).

The rule is that of the adaptive penalty of Ziegler et al. (2019, arXiv 1909.08593, §2.2): proportional in η, with a
bounded error, so that one noisy step moves η by a tenth at most.
"""

import math

LARGEST_ERROR = 0.2
GAIN = 0.5


def adapted_eta(eta: float, divergence: float, target: float) -> float:
    """η for the next step: η · (1 + ½ · clip(divergence/target − 1, ± 0.2)).

    Args:
        eta: that of the last step.
        divergence: mean f(u) per token of D_pef in the last step; NaN, where none was rehearsed, leaves η as it is.
        target: where the divergence is to stay, above 0.
    """
    if not math.isfinite(divergence):
        return eta
    error = max(-LARGEST_ERROR, min(LARGEST_ERROR, divergence / target - 1.0))
    return eta * (1.0 + GAIN * error)
