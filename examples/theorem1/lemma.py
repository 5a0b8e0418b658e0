"""Lemma 1, checked: how small each divergence is at a given total variation, over many pairs of distributions.

python examples/theorem1/lemma.py
"""

from collections.abc import Callable, Iterator

import numpy as np
from theory import DIVERGENCES, FloatArray, alpha_constant, alpha_divergence, js_floor, total_variation

PAIRS = 200_000
ALPHAS = (-2.0, -1.0, 0.2, 0.5, 0.8, 2.0, 3.0, 5.0)


def pairs(seed: int = 0) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Pairs of distributions: on two outcomes over a grid, and at random on more."""
    grid = np.linspace(0.001, 0.999, 700)
    one, two = (axis.ravel() for axis in np.meshgrid(grid, grid))
    yield np.stack([one, 1 - one], -1), np.stack([two, 1 - two], -1)
    rng = np.random.default_rng(seed)
    for outcomes, concentration in ((3, 1.0), (5, 0.5), (20, 1.0)):
        yield tuple(rng.dirichlet(np.full(outcomes, concentration), PAIRS) for _ in range(2))  # type: ignore[misc]


def least_ratio(divergence: Callable[[FloatArray, FloatArray], FloatArray], floor: Callable[..., FloatArray]) -> float:
    """The smallest ratio of a divergence to what the lemma says that it is at least; below 1 the lemma is wrong."""
    ratios = []
    for p, q in pairs():
        variation = total_variation(p, q)
        # Closer, both sides round to 0.
        kept = (variation > 3e-3) & (p > 1e-12).all(-1) & (q > 1e-12).all(-1)
        ratios.append(float((divergence(p[kept], q[kept]) / floor(variation[kept])).min()))
    return min(ratios)


def main() -> None:
    print("| divergence | at least | smallest ratio |")
    print("|---|---|---:|")
    for name, measure in DIVERGENCES.items():
        if not name.startswith("alpha"):
            ratio = least_ratio(measure.by_state, lambda v, c=measure.constant: 4 * v**2 / c)
            print(f"| {name} | {4 / measure.constant:g} V² | {ratio:.4f} |")
    print(f"| js | (1+V) log(1+V) + (1−V) log(1−V) | {least_ratio(DIVERGENCES['js'].by_state, js_floor):.4f} |")
    for alpha in ALPHAS:
        for constant in dict.fromkeys((2.0, alpha_constant(alpha))):
            ratio = least_ratio(lambda p, q, a=alpha: alpha_divergence(p, q, a), lambda v, c=constant: 4 * v**2 / c)
            print(f"| α = {alpha:g} | {4 / constant:.3g} V² | {ratio:.4f} |")


if __name__ == "__main__":
    main()
