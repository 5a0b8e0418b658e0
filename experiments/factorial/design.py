"""The arms of experiment D1, as its protocol (experiments/results/factorial.md) has them, and the rule that sets their
strengths.

Two factors are crossed: the problems that GRPO explores (all of them, or those that the base model does not master) and
the rehearsal of stored responses (none, or a divergence on rows of the mastered problems).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from experiments.anchor.counts import Evaluated
from experiments.anchor.design import NEAR, RARE, SEEN, Arm
from experiments.mixing import mean_of

DEVELOPMENT = (51, 52, 53)
"""Seeds of the worlds whose runs set the learning rate and the weights of the rehearsal terms."""
STARTS = tuple(range(61, 77))
"""Seeds of the worlds that are analysed. None was used before."""
OPTIONS = ("test_problems", "400")
PRESAMPLES = (NEAR, SEEN)
STEPS = 375
TRAINED = STEPS * 8 * 16
"""Responses that a training run draws."""
RATES = ("2.5e-5", "5e-5", "1e-4", "2e-4")
JS_ETAS, KL_ETAS = ("1", "3", "10"), ("0.3", "1", "3")
"""Weights of the rehearsal term that the development starts try: for JS, and for −log u."""
ROOM = 0.005
"""How far below that of D_exp alone the mean of samples may lie with the chosen weight."""
LENGTH = ("--steps", str(STEPS))


@dataclass(frozen=True, slots=True)
class Choice:
    """What the development starts decide."""

    rate: str
    """Learning rate of every arm."""
    js: str
    """Weight η of the JS term."""
    kl: str
    """Weight η of the term −log u."""

    @property
    def grpo(self) -> str:
        """Name of the arm G."""
        return f"g-{self.rate}"


def grpo(rate: str, *, free: bool = False, again: bool = False) -> Arm:
    """GRPO on all problems. free: also its models after a third and two thirds of the training, and halfway weights.
    again: with the second training seed."""
    name = f"g-{rate}" + ("-again" if again else "")
    flags = ("--preset", "grpo", "--optim.lr", rate, *LENGTH)
    stops, shares = ((125, 250), (0.5,)) if free else ((), ())
    seed = 2 if again else 1
    return Arm(name, "g", flags, None, seed=seed, stops=stops, shares=shares, trained=TRAINED, steps=STEPS)


def explored(
    name: str, rate: str, rows: str = NEAR, divergence: str = "", eta: str = "", *, every: bool = False
) -> Arm:
    """An arm that reads a pre-sampling: it explores D_exp (with `every`: all problems), and with a divergence it
    rehearses 64 stored rows a step, with weight η."""
    flags = ("--preset", "grpo" if every else "exp_only", "--optim.lr", rate, *LENGTH)
    if divergence:
        flags += ("--loss.divergence", divergence, "--loss.eta", eta, "--rehearsal.rows", "64")
    seed = 2 if name.endswith("-again") else 1
    return Arm(name, name.split("-")[0], flags, rows, seed=seed, trained=TRAINED, steps=STEPS)


def rates() -> tuple[Arm, ...]:
    """The first runs of a development start: GRPO at each learning rate."""
    return tuple(grpo(rate) for rate in RATES)


def strengths(rate: str) -> tuple[Arm, ...]:
    """The other runs of a development start, at the chosen rate: D_exp alone, and with each weight of both terms."""
    js = [explored(f"xr-{eta}", rate, NEAR, "js", eta) for eta in JS_ETAS]
    kl = [explored(f"xf-{eta}", rate, NEAR, "forward_kl_raw", eta) for eta in KL_ETAS]
    return (explored("x", rate), *js, *kl)


def primary(choice: Choice) -> tuple[Arm, ...]:
    """The runs of a start that the primary comparisons and the free baselines need, in their order."""
    rate, near = choice.rate, (NEAR, "js", choice.js)
    anchored = ("--loss.kl", "k3", "--loss.kl-coef", "0.1")
    plain = grpo(rate, free=True)
    return (
        plain,
        explored("x", rate),
        explored(f"xr-{choice.js}", rate, *near),
        explored(f"gr-{choice.js}", rate, *near, every=True),
        grpo(rate, again=True),
        explored("x-again", rate),
        explored(f"xr-{choice.js}-again", rate, *near),
        Arm("k-0.1", "k", (*plain.flags, *anchored), None, trained=TRAINED, steps=STEPS),
    )


def secondary(choice: Choice) -> tuple[Arm, ...]:
    """The runs of a start that only secondary comparisons need: other rows, another divergence, GRPO's other rates."""
    others = tuple(grpo(rate) for rate in RATES if rate != choice.rate)
    rare = explored(f"xs-{choice.js}", choice.rate, RARE, "js", choice.js)
    kl = explored(f"xf-{choice.kl}", choice.rate, NEAR, "forward_kl_raw", choice.kl)
    return (rare, kl, *others)


def chosen_rate(starts: Sequence[Mapping[str, Evaluated]]) -> str | None:
    """The learning rate at which GRPO's mean of samples, over the development starts, is highest; None while one of
    their runs is missing."""
    if any(f"g-{rate}" not in start for start in starts for rate in RATES):
        return None
    return max(RATES, key=lambda rate: _mean(starts, f"g-{rate}"))


def choice_of(starts: Sequence[Mapping[str, Evaluated]]) -> Choice | None:
    """What the development starts decide; None while one of their runs is missing.

    The weight of a rehearsal term is the largest of those tried whose mean of samples, over the starts, is at most
    `ROOM` below that of D_exp alone; the smallest one if none is.
    """
    rate = chosen_rate(starts)
    if rate is None or any(arm.name not in start for start in starts for arm in strengths(rate)):
        return None
    least = _mean(starts, "x") - ROOM

    def largest(name: str, etas: Sequence[str]) -> str:
        return [etas[0], *(eta for eta in etas if _mean(starts, f"{name}-{eta}") >= least)][-1]

    return Choice(rate, largest("xr", JS_ETAS), largest("xf", KL_ETAS))


def _mean(starts: Sequence[Mapping[str, Evaluated]], name: str) -> float:
    return fmean(mean_of(start[name].counts) for start in starts)
