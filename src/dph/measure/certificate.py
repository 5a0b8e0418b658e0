"""A certificate: with confidence 1 − α, a checkpoint solves at most ε less than the base model, on problems like these.

The d of a problem is unbiased pass@k of the base model minus the checkpoint's. It lies in [−1, 1] for any number
of samples, and its mean over new problems is the loss L. `upper_bound` bounds L from N problems. The assumptions are in
docs/concepts/certificate.md. Only numpy.
"""

import hashlib
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dph.errors import DataError, counted, one_line
from dph.measure.intervals import FloatArray
from dph.measure.passk import pass_at_k

_BOLDEST = 0.9
"""A bet may lose at most this share of its capital. The bound is valid for any share below 1."""
MOST_PROBLEMS = 1_000_000
"""Larger sets are not looked for: their bounds would take much memory, and nobody has one."""
_HALVINGS = 20  # of the interval [−1, 1], so that the bound is at most 2e-6 larger than necessary

Counts = Mapping[str, tuple[int, int]]
"""By the id of a problem, its correct and all samples."""


def upper_bound(d: ArrayLike, alpha: float = 0.05) -> FloatArray:
    """Upper confidence bound for the mean of independent values with a common mean, d [..., problems] → [...].

    Values lie in [−1, 1]. The probability that the bound lies below the mean is at most alpha for every number of
    problems and every distribution (Waudby-Smith and Ramdas, arXiv 2010.09686: the upper half of the hedged capital,
    with predictable plug-in bets for a fixed number of problems). In x = (d + 1)/2, one bets against "the mean is at
    least m": each factor 1 + λ(m − x) of the capital has a mean of at most 1 if m is at most the mean, and is positive
    if λ < 1/(1 − m). By Ville's inequality the capital then reaches 1/alpha with a probability of at most alpha. λ
    depends on earlier values only, so their order must not depend on them.
    """
    x = (np.asarray(d, dtype=np.float64) + 1) / 2
    count = np.arange(1, x.shape[-1] + 1)
    mean = (0.5 + x.cumsum(-1)) / (count + 1)
    variance = (0.25 + ((x - mean) ** 2).cumsum(-1)) / (count + 1)
    before = np.concatenate([np.full((*x.shape[:-1], 1), 0.25), variance[..., :-1]], -1)
    wanted = np.sqrt(2 * math.log(1 / alpha) / (before * x.shape[-1]))
    low, high = np.zeros(x.shape[:-1]), np.ones(x.shape[:-1])
    # Every factor grows with m, also with the largest bet, c(m − x)/(1 − m): the refuted means are those above a bound.
    for _ in range(_HALVINGS):
        m = (low + high) / 2
        bets = np.minimum(wanted, (_BOLDEST / (1 - m))[..., None])
        refuted = np.log1p(bets * (m[..., None] - x)).cumsum(-1).max(-1) >= math.log(1 / alpha)
        low, high = np.where(refuted, low, m), np.where(refuted, m, high)
    return 2 * high - 1


def smallest_set(epsilon: float, alpha: float = 0.05) -> int | None:
    """The number of problems from which a loss of at most epsilon can be certified if d is 0 for all of them; None if
    it is above `MOST_PROBLEMS`."""

    def certifies(n: int) -> bool:
        return bool(upper_bound(np.zeros(n), alpha) <= epsilon)

    most = min(math.ceil(20 / epsilon), MOST_PROBLEMS)
    return bisect_left(range(most), True, lo=1, key=certifies) if certifies(most) else None


@dataclass(frozen=True, slots=True)
class Judged:
    """Judged samples of problems."""

    samples: Mapping[str, Mapping[int, int]]
    """By the id of a problem and the number of a sample, counted from the lowest of all: 1 if it is correct, else 0."""
    numbered: bool
    """Whether a sample has a number of its own. Otherwise the order of rows would be all that tells samples apart, and
    nobody knows what it depends on: the correct samples of a problem come first."""

    def without_numbers(self) -> "Judged":
        """The same, by what is known without numbers: how many samples of a problem are correct."""
        counts = {id: sorted(each.values(), reverse=True) for id, each in self.samples.items()}
        return Judged({id: dict(enumerate(each)) for id, each in counts.items()}, False)


class Choice:
    """Problems that some samples of the base model choose, because enough of them are correct, and what measures it.

    With `for_k` they are the problems that can lose pass@k: at least 1/k, and less than 4/k, of these samples are
    correct, as in `dph presample --for-k`.

    A hash of the problem's id and a sample's number says which n samples choose. The others measure the base model,
    and a checkpoint is measured without those of the same numbers: sampled with one seed, they resemble the samples
    that chose. The order of rows has no part in it. docs/concepts/certificate.md says why the bound then holds.
    """

    def __init__(self, base: Judged, n: int, mastered: float, name: str = "the base model", for_k: int = 0) -> None:
        """n: how many samples choose; 0: every problem counts. mastered: the share of them that must be correct; for_k:
        the k of problems that can lose pass@k, in place of mastered ones; 0: none. Raises DataError for a problem that
        would have no sample left; name: of its file."""
        if n and (few := [id for id, each in base.samples.items() if len(each) <= n]):
            has = f"{name}: problem {one_line(few[0], 60)!r} has {counted(len(base.samples[few[0]]), 'sample')}"
            raise DataError(f"{has}, so that none is left to measure it with if {n} choose; let fewer choose")
        self._chosen = {id: _choosing(id, each, n) for id, each in base.samples.items()}
        self.problems = len(base.samples)
        self._two_ways = bool(for_k) and not base.numbered
        least = mastered * n - 1e-9  # 0.55 · 20 is above 11 in floats

        def counts(correct: int) -> bool:
            return n <= correct * for_k < 4 * n if for_k else correct >= least

        self.base = {
            id: self._left(id, each)
            for id, each in base.samples.items()
            if counts(sum(each[number] for number in self._chosen[id]))
        }
        """Correct and all samples of the chosen problems that did not choose them."""

    def counts(self, checkpoint: Judged, seed: str = "") -> dict[str, tuple[int, int]]:
        """The same of a checkpoint, with problems that the base model does not have. seed: "" leaves out the samples of
        the same places as of the base model, another text those of other places."""
        wanted = [id for id in checkpoint.samples if id in self.base or id not in self._chosen]
        return {id: self._left(id, checkpoint.samples[id], seed) for id in wanted}

    def ways(self, checkpoint: Judged) -> list[dict[str, tuple[int, int]]]:
        """The counts of a checkpoint in each way to leave samples out of which one is right: the larger bound holds.

        With numbers, or if many of the samples had to be correct, it is the same places. If few had to be, and nothing
        but counts is known, a hash that deals few correct ones to the base model's choice would leave the checkpoint
        too many of its own: this is right for sides sampled with one seed. For sides sampled apart, other places are.
        """
        return [self.counts(checkpoint, seed) for seed in (("", "checkpoint") if self._two_ways else ("",))]

    def others(self, base: Judged, checkpoint: Judged) -> tuple[int, int]:
        """How many problems were not chosen, and how many of these the base model solves in a sample and the checkpoint
        in none: a certificate is silent about them."""
        left = [id for id in self._chosen if id not in self.base]
        lost = [
            id for id in left if any(base.samples[id].values()) and not any(checkpoint.samples.get(id, {}).values())
        ]
        return len(left), len(lost)

    def _left(self, id: str, samples: Mapping[int, int], seed: str = "") -> tuple[int, int]:
        chosen = self._chosen.get(id, frozenset())
        if seed and chosen:
            chosen = _choosing(f"{id} of the {seed}", samples, len(chosen))
        left = [correct for number, correct in samples.items() if number not in chosen]
        return sum(left), len(left)


def _choosing(problem: str, numbers: Iterable[int], n: int) -> frozenset[int]:
    """The n numbers of samples that decide whether a problem is certified: those whose hash with the problem's id is
    lowest. It depends on nothing that was sampled."""

    def place(number: int) -> bytes:
        return hashlib.sha256(f"{number} of {problem}".encode()).digest()

    return frozenset(sorted(numbers, key=place)[:n])


def losses(base: Counts, checkpoint: Counts, k: int = 1, remedy: str = "") -> dict[str, float]:
    """The d of each problem, in an order that depends on ids alone: sorted ids could be sorted by difficulty. Raises
    UserError for different problems, none, or fewer than k samples of one; remedy: what else helps against this."""
    if base.keys() != checkpoint.keys() or not base:
        other = min(base.keys() ^ checkpoint.keys(), default="")
        fault = f"only one side has {other!r}" if other else "there are none"
        raise DataError(f"a certificate needs samples of the same problems, but {fault}; sample both on the same data")
    if short := [id for id in base if min(base[id][1], checkpoint[id][1]) < k]:
        has = min(base[short[0]][1], checkpoint[short[0]][1])
        fewest = f"pass@{k} needs at least {counted(k, 'sample')} of each problem, but {short[0]!r} has {has}"
        raise DataError(f"{fewest}; draw more, or lower --certify.k{remedy}")
    ids = sorted(base, key=lambda id: hashlib.sha256(id.encode()).digest())
    before, now = (pass_at_k([s[id][1] for id in ids], [s[id][0] for id in ids], k) for s in (base, checkpoint))
    return dict(zip(ids, (before - now).tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class Certificate:
    """The result of one check of a checkpoint."""

    loss: float
    """Mean d of the problems, the estimate of L."""
    bound: float
    """L is at most this, with confidence 1 − alpha."""
    epsilon: float
    alpha: float
    k: int
    problems: int
    lost: tuple[str, ...]
    """Problems that the base model solved in a sample and the checkpoint in none."""
    others: int = 0
    """Further problems of the same samples, which were not chosen: the certificate is silent about them."""
    others_lost: int = 0
    """Those of them that the base model solved in a sample and the checkpoint in none."""

    @property
    def certified(self) -> bool:
        return self.bound <= self.epsilon

    def sentence(self) -> str:
        """The result in words."""
        words, level = "certified" if self.certified else "not certified", _confidence(self.alpha)
        bound, loss = round(100 * self.bound, 1), round(100 * self.loss, 1)
        most = f"at least {-bound:.1f} points above" if bound < 0 else f"at most {abs(bound):.1f} points below"
        measured = f"{-loss:.1f} points above it were measured" if loss < 0 else f"{abs(loss):.1f} were measured"
        these = "this one" if self.problems == 1 else f"these {self.problems}"
        return (
            f"{words}: with {level} % confidence pass@{self.k} on problems like {these} is {most} "
            f"the base model's ({100 * self.epsilon:.4g} are allowed, {measured}, "
            f"{counted(len(self.lost), 'problem')} lost)"
        ) + (f"; it is silent about the other {self.others}, {self.others_lost} of them lost" if self.others else "")


def _confidence(alpha: float) -> str:
    """1 − alpha in percent, with as many digits as tell it from 100."""
    digits = max(2, 1 - math.floor(math.log10(100 * alpha)))
    return f"{100 - 100 * alpha:.{digits}f}".rstrip("0").rstrip(".")


def certificate(
    base: Counts, checkpoint: Counts, epsilon: float, alpha: float = 0.05, k: int = 1, remedy: str = ""
) -> Certificate:
    """Check one checkpoint, by samples of the base that did not choose the problems. Raises UserError as `losses`."""
    by_id = losses(base, checkpoint, k, remedy)
    d = np.array(list(by_id.values()))
    return Certificate(
        loss=float(d.mean()),
        bound=float(upper_bound(d, alpha)),
        epsilon=epsilon,
        alpha=alpha,
        k=k,
        problems=len(d),
        lost=tuple(id for id in by_id if base[id][0] and not checkpoint[id][0]),
    )


def fixed_sequence(checks: Iterable[Certificate]) -> Iterator[Certificate]:
    """The checks in their order, up to the first that fails: no further one is asked for. If the order is fixed before
    the samples are seen, the probability that any certified checkpoint lost more than epsilon is at most alpha (Learn
    then Test, arXiv 2110.01052): it would have to certify the first that did."""
    for check in checks:
        yield check
        if not check.certified:
            return


def untested(names: Sequence[str], checks: Sequence[Certificate]) -> str:
    """Which checkpoints are not tested, because an earlier one failed, in words; "" if all are. names: those of the
    checkpoints, in the order of the tests."""
    left = names[len(checks) :]
    return f"not tested, because {names[len(checks) - 1]} is not certified: {', '.join(left)}" if left else ""
