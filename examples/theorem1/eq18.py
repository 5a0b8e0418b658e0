"""Where the proof of Theorem 1 (eq. 18) breaks, by the smallest example; what holds in its place.

    python examples/theorem1/eq18.py

One state, two actions of which the first is rewarded, and every action leads back to the state. π = π_old takes the
first action half of the time, π_pef a little more often. So α₁ = 0, L_old(π) = J(π), and eq. 8 claims
J(π) ≥ J(π) + ε_f.
"""

import numpy as np
from theory import DIVERGENCES, MDP, Bound, FloatArray, evaluate, reference_floor, theorem_1

DISCOUNTS = (0.0, 0.3, 0.6, 0.9, 0.99)


def example(discount: float, shift: float) -> tuple[MDP, FloatArray, FloatArray]:
    """The process, π = π_old, and π_pef, which takes the rewarded action more often by `shift`."""
    mdp = MDP(np.ones((1, 2, 1)), np.array([[1.0, 0.0]]), np.ones(1), discount)
    return mdp, np.array([[0.5, 0.5]]), np.array([[0.5 + shift, 0.5 - shift]])


def broken(discount: float, divergence: str) -> tuple[float, Bound]:
    """The largest shift of a halving sequence at which eq. 8 promises more than there is, and both of its sides. There
    is one for every γ < 1: δ falls with the shift, and a divergence with its square."""
    shift = 0.25
    while True:
        mdp, policy, pef = example(discount, shift)
        bound = theorem_1(mdp, policy, policy, pef, divergence)
        if bound.bonus > 0:
            return shift, bound
        shift /= 2


def main() -> None:
    print("| divergence | γ | shift of π_pef | J(π) = L_old(π) | δ | ε_f | J(π) is at least (reference) |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for divergence in ("forward_kl", "js", "alpha_0.5"):
        assert divergence in DIVERGENCES
        for discount in DISCOUNTS:
            shift, bound = broken(discount, divergence)
            mdp, policy, pef = example(discount, shift)
            floor = reference_floor(mdp, policy, pef, divergence)
            assert abs(evaluate(mdp, policy).expected_return - bound.surrogate) < 1e-9 * bound.surrogate
            numbers = (bound.expected_return, bound.delta, bound.bonus, floor)
            cells = " | ".join(f"{number:.4g}" for number in numbers)
            print(f"| {divergence} | {discount:g} | {shift:.4g} | {cells} |")


if __name__ == "__main__":
    main()
