"""Metrics of repeated sampling: pass@k, mean@k, keep and exploration rate (arXiv 2509.07430, Tables 1–4 and 8, Fig. 4).

A problem was sampled n times, c of them correct. Only numpy; intervals are in `dph.metrics.bootstrap`.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dph.errors import UserError

FloatArray = NDArray[np.float64]


def _counts(n: ArrayLike, c: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    samples, correct = np.broadcast_arrays(np.asarray(n, dtype=np.int64), np.asarray(c, dtype=np.int64))
    if np.any(samples < 1) or np.any(correct < 0) or np.any(correct > samples):
        raise ValueError("counts must satisfy 0 ≤ c ≤ n and n ≥ 1")
    return samples, correct


def pass_at_k(n: ArrayLike, c: ArrayLike, k: int) -> FloatArray:
    """Unbiased pass@k of each problem: 1 − C(n−c, k) / C(n, k) (arXiv 2107.03374), in the broadcast shape of n and c.

    It is the probability that k of the n samples, drawn without replacement, hold a correct one. "Any of the first k"
    has the same mean and more variance; drawing with replacement is biased downwards. Its standard error is large for
    n < 2k. Raises UserError if k < 1 or a problem has fewer than k samples.
    """
    samples, correct = _counts(n, c)
    if k < 1:
        raise UserError(f"pass@k needs k of at least 1, but k is {k}")
    if np.any(samples < k):
        raise UserError(
            f"pass@{k} needs at least {k} samples of every problem, but one has {samples.min()}; "
            "draw more samples or lower k"
        )
    all_wrong = np.ones(samples.shape)
    for i in range(k):
        # Passes through exactly 0 once the wrong samples are used up, and stays there.
        all_wrong *= (samples - correct - i) / (samples - i)
    return 1.0 - all_wrong


def mean_at_k(n: ArrayLike, c: ArrayLike) -> FloatArray:
    """mean@k of each problem, k = n: the share c/n of correct samples (Table 8); the same as pass@1."""
    samples, correct = _counts(n, c)
    return correct / samples


def pass_curve(n: ArrayLike, c: ArrayLike, ks: Sequence[int]) -> dict[int, float]:
    """pass@k averaged over problems, by k."""
    return {k: float(np.mean(pass_at_k(n, c, k))) for k in ks}


def pass_at_powers(n: ArrayLike, c: ArrayLike) -> dict[int, float]:
    """Mean pass@k for k = 2, 4, … up to the largest n, each over the problems with at least k responses.

    Args:
        n, c: [problems] numbers of responses and of correct ones.
    """
    total, correct = np.asarray(n), np.asarray(c)  # where a problem may have no response
    found: dict[int, float] = {}
    k = 2
    while (enough := total >= k).any():
        found[k] = float(pass_at_k(total[enough], correct[enough], k).mean())
        k *= 2
    return found


def keep_rate(ref: ArrayLike, trained: ArrayLike) -> FloatArray:
    """Of the problems that π_ref solves within k, the share that the trained policy solves within k (§6, Fig. 4).

    Σ ref·trained / Σ ref over problems; both [..., problems], the result [...]. They have one of two forms:

    * booleans, "solved by one of k samples": the paper's count, which depends on the particular k samples;
    * pass@k estimates: the ratio of the expected counts, with k samples of π_ref and k others of the trained policy.
      It uses all n samples and so varies less.

    A policy compared with itself does not keep everything: resample π_ref for the noise floor.
    NaN if π_ref solves none.
    """
    weight, solved = _aligned(ref, trained)
    return ratio_of_sums(weight * solved, weight)


def exploration_rate(ref: ArrayLike, trained: ArrayLike) -> FloatArray:
    """Of the problems that π_ref does not solve within k, the share that the trained policy solves within k.

    Σ (1 − ref)·trained / Σ (1 − ref), with the two forms of arguments of `keep_rate`. NaN if π_ref solves all.
    """
    weight, solved = _aligned(ref, trained)
    return keep_rate(1.0 - weight, solved)


def ratio_of_sums(above: FloatArray, below: FloatArray) -> FloatArray:
    """Σ above / Σ below over the last axis; NaN where Σ below is not positive."""
    numerator, denominator = above.sum(-1), below.sum(-1)
    return np.divide(numerator, denominator, out=np.full_like(denominator, np.nan), where=denominator > 0)[()]


def _aligned(ref: ArrayLike, trained: ArrayLike) -> tuple[FloatArray, FloatArray]:
    left, right = np.asarray(ref, dtype=np.float64), np.asarray(trained, dtype=np.float64)
    if left.shape != right.shape:
        raise ValueError(
            f"ref and trained must cover the same problems, but have shapes {left.shape} and {right.shape}"
        )
    return left, right
