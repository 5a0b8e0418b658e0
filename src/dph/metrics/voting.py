"""Majority voting over repeated samples (self-consistency, arXiv 2203.11171): accuracy where no verifier picks one."""

import math
from collections.abc import Hashable, Sequence
from functools import lru_cache

import numpy as np

from dph.errors import UserError
from dph.metrics.passk import FloatArray


def majority_at_k(answers: Sequence[Hashable], correct: Sequence[bool], k: int) -> float:
    """maj@k of a problem: the probability that the most frequent answer of k of its n samples is correct.

    The k samples are drawn without replacement, so that the value uses all n samples and is unbiased, as pass@k is. A
    tie goes to each of the tied answers with equal probability. A sample with the answer None casts no vote; without
    any vote the answer is wrong. If samples with one answer have different verdicts, the answer counts as correct with
    their share of correct ones.

    answers: what each of the n samples answers; correct: whether it is correct. Raises UserError if k is not in 1 … n.
    """
    n = len(answers)
    if not 1 <= k <= n:
        raise UserError(f"maj@{k} needs at least {max(1, k)} samples and a positive k, but the problem has {n} samples")
    counts: dict[Hashable, int] = {}
    right: dict[Hashable, int] = {}
    for answer, good in zip(answers, correct, strict=True):
        counts[answer] = counts.get(answer, 0) + 1
        right[answer] = right.get(answer, 0) + bool(good)
    silent = counts.pop(None, 0)
    value = 0.0
    for answer, count in counts.items():
        if right[answer]:
            others = [number for other, number in counts.items() if other != answer]
            value += right[answer] / count * _wins(count, others, silent, k)
    return min(1.0, value)


def _wins(count: int, others: Sequence[int], silent: int, k: int) -> float:
    """The probability that an answer that `count` samples have wins among k samples of all n.

    Draws without replacement are independent binomial draws with any success probability, given that they add up to k:
    Σ over its votes t of b(t) · P(the others have k − t votes, none more than t) / P(k), with 1/(1 + e) for e ties.
    """
    n = count + sum(others) + silent
    share = k / n
    total = 0.0
    for votes in range(1, min(count, k) + 1):
        rest = k - votes
        fewer = [number for number in others if number < votes]
        start = np.zeros((rest // votes + 1, rest + 1))  # [answers that tie, votes of the others]
        drawn = _binomial(sum(fewer) + silent, share)[: rest + 1]
        start[0, : len(drawn)] = drawn
        for number in others:
            if number >= votes:
                start = _add(start, _binomial(number, share)[: votes + 1])
        ties = 1 / (1 + np.arange(len(start)))
        total += _binomial(count, share)[votes] * float(start[:, rest] @ ties)
    return total / _binomial(n, share)[k]


def _add(table: FloatArray, weights: FloatArray) -> FloatArray:
    """The table after one more answer, which has s votes with probability weights[s]; with the most votes it ties."""
    most = len(weights) - 1
    found = np.zeros_like(table)
    for votes, weight in enumerate(weights[: min(most, table.shape[1])]):
        found[:, votes:] += weight * table[:, : table.shape[1] - votes]
    if table.shape[1] > most:
        found[1:, most:] += weights[most] * table[:-1, : table.shape[1] - most]
    return found


@lru_cache(4096)
def _binomial(n: int, share: float) -> FloatArray:
    """Probabilities of 0 … n successes in n trials."""
    found = np.zeros(n + 1)
    if share == 1:
        found[n] = 1
        return found
    for s in range(n + 1):
        ways = math.lgamma(n + 1) - math.lgamma(s + 1) - math.lgamma(n - s + 1)
        found[s] = math.exp(ways + s * math.log(share) + (n - s) * math.log1p(-share))
    return found
