"""Theorem 1 of arXiv 2509.07430 (eq. 8), evaluated exactly on finite Markov decision processes.

    J(π) ≥ L_old(π) − 2γ α₁ ε / (1−γ)² + ε_f,      ε_f = δ/(1−γ) − C_f γ α₂ ε_pef / (1−γ)²

    L_old(π) = J(π_old) + 1/(1−γ) · E_{s ~ d_old, a ~ π}[ A_old(s, a) ]
    α₁ = max_s KL(π ‖ π_old),   ε = max |A_old|,   α₂ = max_s D_f(π ‖ π_pef),   ε_pef = max |A_pef|
    δ: the largest constant that Assumption 1 allows, min_s E_{a ~ π_pef}[ A_π(s, a) ]

The first two terms are the bound of Schulman et al. (2015). At γ = 0 they equal J(π) itself, so whenever δ > 0 the
right-hand side exceeds J(π): the statement cannot hold there. It is a hypothesis to be measured, never a guarantee.
Only numpy; docs/concepts/theory.md has the result.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MDP:
    """A finite Markov decision process with expected rewards and discounted return."""

    transition: FloatArray
    """P(s′ | s, a), [S, A, S]."""
    reward: FloatArray
    """E[r | s, a], [S, A]."""
    start: FloatArray
    """Distribution of the first state, [S]."""
    discount: float
    """γ in [0, 1)."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A policy's exact values in an MDP."""

    expected_return: float
    """J(π), the expected discounted sum of rewards."""
    advantage: FloatArray
    """A_π(s, a) = Q_π − V_π, [S, A]."""
    occupancy: FloatArray
    """Discounted distribution of states, normalised to sum to 1, [S]."""


def evaluate(mdp: MDP, policy: FloatArray) -> Evaluation:
    """Values of a policy [S, A] by solving Bellman's linear equations."""
    states = len(mdp.start)
    step = np.einsum("sa,sat->st", policy, mdp.transition)
    system = np.eye(states) - mdp.discount * step
    value = np.linalg.solve(system, (policy * mdp.reward).sum(1))
    action_value = mdp.reward + mdp.discount * mdp.transition @ value
    occupancy = (1 - mdp.discount) * np.linalg.solve(system.T, mdp.start)
    return Evaluation(float(mdp.start @ value), action_value - value[:, None], occupancy)


def surrogate(mdp: MDP, policy: FloatArray, old: Evaluation) -> float:
    """L_old(π): the return of π if it were judged on π_old's states and advantages."""
    gain = (old.occupancy[:, None] * policy * old.advantage).sum()
    return old.expected_return + float(gain) / (1 - mdp.discount)


@dataclass(frozen=True, slots=True)
class StateDivergence:
    """A divergence of two policies by state, and the constant with 4·TV² ≤ constant · D."""

    by_state: Callable[[FloatArray, FloatArray], FloatArray]
    constant: float


def _kl(p: FloatArray, q: FloatArray) -> FloatArray:
    return (p * (np.log(p) - np.log(q))).sum(1)


def _js(p: FloatArray, q: FloatArray) -> FloatArray:
    middle = (p + q) / 2
    return _kl(p, middle) + _kl(q, middle)


def alpha_divergence(policy: FloatArray, reference: FloatArray, alpha: float) -> FloatArray:
    """D_α(π_ref, π) with the paper's generator (Table 5), by state: (Σ π_ref^α π^(1−α) − 1) / (α (α − 1))."""
    return ((reference**alpha * policy ** (1 - alpha)).sum(-1) - 1) / (alpha * (alpha - 1))


def alpha_constant(alpha: float) -> float:
    """The constant of Lemma 1 for D_α. 2 is the best for −1 ≤ α ≤ 2 (Gilardoni, 2010), where it is KL's own. Beyond it
    is too small; D_α = (exp((α−1) R_α) − 1) / (α (α−1)) ≥ R_α/α ≥ KL/α with Rényi's R_α then gives 2α for α > 2, and
    2(1−α) for α < −1, because D_α(p, q) = D_{1−α}(q, p)."""
    return 2.0 if -1 <= alpha <= 2 else 2 * max(alpha, 1 - alpha)


def js_floor(variation: FloatArray) -> FloatArray:
    """The smallest D_JS (twice the textbook JSD, nats) of two distributions with total variation V in [0, 1):
    (1+V) log(1+V) + (1−V) log(1−V), which is at least V². Met by (½ + V/2, ½ − V/2) and its mirror image."""
    return (1 + variation) * np.log1p(variation) + (1 - variation) * np.log1p(-variation)


def total_variation(p: FloatArray, q: FloatArray) -> FloatArray:
    """Half the sum of absolute differences, by state."""
    return np.abs(p - q).sum(-1) / 2


DIVERGENCES = {
    # Pinsker: TV² ≤ KL/2, in both directions.
    "forward_kl": StateDivergence(lambda p, pef: _kl(pef, p), 2.0),
    "reverse_kl": StateDivergence(_kl, 2.0),
    # Each half of twice the textbook JSD is a KL to the middle, where TV is half as large: TV² ≤ D.
    "js": StateDivergence(_js, 4.0),
    **{
        f"alpha_{alpha}": StateDivergence(partial(alpha_divergence, alpha=alpha), alpha_constant(alpha))
        for alpha in (0.2, 0.5, 0.8)
    },
}
"""C_f by divergence: the smallest constant that the proof's Pinsker-type inequality (Lemma 1) gives."""


def success_floor(reference: FloatArray, policy: FloatArray, correct: NDArray[np.bool_]) -> FloatArray:
    """What π's success is at least, by state [S]: a_ref · exp(−K), with K = E_{y ~ π_ref | correct}[log π_ref/π].

    Proof: a = Σ_{correct} π = a_ref · E_{π_ref | correct}[π/π_ref] ≥ a_ref · exp(E[log π/π_ref]), by Jensen. With
    equality if π/π_ref is constant on the correct responses. reference, policy, correct: [S, responses].
    """
    success = (reference * correct).sum(-1)
    given = reference * correct / success[:, None]
    return success * np.exp((given * (np.log(policy) - np.log(reference))).sum(-1))


@dataclass(frozen=True, slots=True)
class Bound:
    """Both sides of eq. 8 and its parts."""

    expected_return: float
    surrogate: float
    old_penalty: float
    """2γ α₁ ε / (1−γ)²."""
    delta: float
    bonus: float
    """ε_f, the term that the theorem adds to the bound of Schulman et al."""

    @property
    def classic_slack(self) -> float:
        """J(π) minus the bound of Schulman et al.; never negative."""
        return self.expected_return - (self.surrogate - self.old_penalty)

    @property
    def slack(self) -> float:
        """J(π) minus the bound of Theorem 1; negative where the theorem fails."""
        return self.classic_slack - self.bonus


def theorem_1(mdp: MDP, policy: FloatArray, old_policy: FloatArray, pef_policy: FloatArray, divergence: str) -> Bound:
    """Both sides of Theorem 1 for policies [S, A] with full support."""
    new, old, pef = (evaluate(mdp, p) for p in (policy, old_policy, pef_policy))
    gamma = mdp.discount
    horizon = 1 / (1 - gamma)
    measure = DIVERGENCES[divergence]
    old_penalty = 2 * gamma * _kl(policy, old_policy).max() * np.abs(old.advantage).max() * horizon**2
    pef_gap = float(measure.by_state(policy, pef_policy).max())
    delta = float((pef_policy * new.advantage).sum(1).min())
    bonus = delta * horizon - measure.constant * gamma * pef_gap * np.abs(pef.advantage).max() * horizon**2
    return Bound(new.expected_return, surrogate(mdp, policy, old), float(old_penalty), delta, float(bonus))


def reference_floor(mdp: MDP, policy: FloatArray, reference: FloatArray, divergence: str) -> float:
    """What J(π) is at least because π is close to π_pef, for every γ in [0, 1): J(π_pef) − √(C_f α₂) ε_pef / (1−γ).

    Proof: J(π) = J(π_pef) + 1/(1−γ) · E_{s ~ d_π}[ Σ_a π(a|s) A_pef(s, a) ] (Lemma 2). As Σ_a π_pef A_pef = 0, the sum
    is Σ_a (π − π_pef) A_pef ≥ −2 TV ε_pef, and 2 TV ≤ √(C_f D_f) by Lemma 1. Where π_pef is π, TV is 0.
    """
    pef, measure = evaluate(mdp, reference), DIVERGENCES[divergence]
    gap = measure.constant * float(measure.by_state(policy, reference).max())
    return pef.expected_return - np.sqrt(max(gap, 0.0)) * float(np.abs(pef.advantage).max()) / (1 - mdp.discount)


def state_gap(mdp: MDP, policy: FloatArray, other: FloatArray, values: FloatArray, steps: int) -> float:
    """E[f(s_t)] under π minus that under another policy, with f = values [S] and t = steps: what Lemma 3 bounds by
    2 (1 − (1 − α)^t) max |f| for α-coupled policies, that is, of a total variation of at most α in every state."""
    visited = [mdp.start, mdp.start]
    moves = [np.einsum("sa,sat->st", taken, mdp.transition) for taken in (policy, other)]
    for _ in range(steps):
        visited = [states @ move for states, move in zip(visited, moves, strict=True)]
    return float((visited[0] - visited[1]) @ values)


def random_mdp(rng: np.random.Generator, *, states: int, actions: int, discount: float) -> MDP:
    """Transitions from a flat Dirichlet, rewards uniform in [0, 1], every state equally likely at the start."""
    return MDP(
        rng.dirichlet(np.ones(states), size=(states, actions)),
        rng.uniform(size=(states, actions)),
        np.full(states, 1 / states),
        discount,
    )


def random_policy(rng: np.random.Generator, *, states: int, actions: int) -> FloatArray:
    """Softmax of standard normal logits, [states, actions]."""
    return softmax(rng.normal(size=(states, actions)))


def softmax(logits: FloatArray) -> FloatArray:
    """Along the last axis."""
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def improved_policy(mdp: MDP, policy: FloatArray, temperature: float) -> FloatArray:
    """π · exp(A_π / temperature), normalised: better than π in every state, and nearly greedy at a low temperature."""
    return softmax(np.log(policy) + evaluate(mdp, policy).advantage / temperature)


def rehearse(policy: FloatArray, pef_policy: FloatArray, weight: float, rehearsed: NDArray[np.bool_]) -> FloatArray:
    """The update pulled towards π_pef in the states of D_pef [S]: their geometric mean, with a weight in [0, 1]."""
    pull = weight * rehearsed[:, None]
    return softmax((1 - pull) * np.log(policy) + pull * np.log(pef_policy))
