"""How often Theorem 1 holds, and by how much: random Markov decision processes, with and without rehearsal.

python examples/theorem1/run.py --trials 2000 --out docs/figures/theorem1.png
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from theory import DIVERGENCES, Bound, improved_policy, random_mdp, random_policy, rehearse, theorem_1

DISCOUNTS = (0.0, 0.02, 0.05, 0.1, 0.3, 0.6, 0.9)
COVERAGES = {"every state in D_pef": 1.0, "half of the states in D_pef": 0.5}


def bounds(
    rng: np.random.Generator, trials: int, discount: float, coverage: float, pull: float, divergence: str
) -> Iterator[Bound]:
    """One bound per trial: a small policy-improvement step from π_old, pulled towards π_pef in the states of D_pef."""
    states, actions = 6, 4
    for _ in range(trials):
        mdp = random_mdp(rng, states=states, actions=actions, discount=discount)
        old = random_policy(rng, states=states, actions=actions)
        rehearsed = rng.permutation(states) < round(coverage * states)
        step = improved_policy(mdp, old, temperature=2.0)
        expert = improved_policy(mdp, old, temperature=0.2)
        policy = rehearse(step, expert, pull, rehearsed)
        # Outside D_pef the paper sets π_pef to the policy itself.
        pef = np.where(rehearsed[:, None], expert, policy)
        yield theorem_1(mdp, policy, old, pef, divergence)


def drawn(out: Path, lines: list[tuple[str, str, str, list[float], list[float]]]) -> None:
    """Left: how often the bound holds. Right: how often it is tighter than the bound that it extends."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    places = range(len(DISCOUNTS))
    for label, color, marker, holds, bonus in lines:
        for ax, shares in ((left, holds), (right, bonus)):
            ax.plot(places, shares, marker=marker, color=color, label=label, alpha=0.8)
    left.set_title("the bound holds", fontsize=10)
    right.set_title("ε_f > 0: it promises more than TRPO's bound", fontsize=10)
    left.set_ylabel("trials (%)")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    for ax in (left, right):
        ax.set_xticks(places, [f"{d:g}" for d in DISCOUNTS])
        ax.set_xlabel("discount γ")
        ax.grid(alpha=0.3)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--divergence", choices=DIVERGENCES, default="forward_kl")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("theorem1.png"))
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    print("| D_pef | pull | γ | holds | δ > 0 | ε_f > 0 | of these it holds | median slack | TRPO's median slack |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    lines: list[tuple[str, str, str, list[float], list[float]]] = []
    for (name, coverage), color in zip(COVERAGES.items(), ("#0072B2", "#D55E00"), strict=True):
        for pull in (0.0, 0.5):
            shares: list[tuple[float, float]] = []
            for discount in DISCOUNTS:
                found = list(bounds(rng, args.trials, discount, coverage, pull, args.divergence))
                holds = np.array([b.slack >= -1e-12 for b in found])
                bonus = np.array([b.bonus > 1e-12 for b in found])
                delta = np.mean([b.delta > 1e-12 for b in found])
                among = f"{holds[bonus].mean():.1%}" if bonus.any() else "none"
                slack, classic = (np.median([getattr(b, part) for b in found]) for part in ("slack", "classic_slack"))
                print(
                    f"| {name} | {pull} | {discount} | {holds.mean():.1%} | {delta:.1%} | {bonus.mean():.1%} | {among} "
                    f"| {slack:.2g} | {classic:.2g} |"
                )
                shares.append((100 * float(holds.mean()), 100 * float(bonus.mean())))
            label = f"{name}, {'with' if pull else 'without'} rehearsal"
            lines.append((label, color, "o" if pull else "s", [h for h, _ in shares], [b for _, b in shares]))
    drawn(args.out, lines)


if __name__ == "__main__":
    main()
