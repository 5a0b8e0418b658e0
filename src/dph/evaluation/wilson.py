"""The interval of a share. Without numpy, so that `dph verify` starts in an instant."""

import math
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval."""

    estimate: float
    low: float
    high: float
    level: float


def wilson_interval(successes: int, count: int, *, level: float = 0.95) -> Interval:
    """Wilson's score interval of a share of successes (Wilson 1927), which has a width at 0 and at 1 too.

    Raises ValueError unless 0 ≤ successes ≤ count and count ≥ 1.
    """
    if not 0 <= successes <= count or count < 1:
        raise ValueError(f"a share needs 0 ≤ successes ≤ count and count ≥ 1, but they are {successes} and {count}")
    share, z = successes / count, NormalDist().inv_cdf((1.0 + level) / 2.0)
    width = z * math.sqrt(share * (1.0 - share) / count + z * z / (4 * count * count))
    centre, scale = share + z * z / (2 * count), 1.0 + z * z / count
    # Rounding must not push the bounds past the share itself, at 0 or 1.
    low, high = min(share, (centre - width) / scale), max(share, (centre + width) / scale)
    return Interval(share, low, high, level)
