"""Test support: a reward function of verl that does not know this package."""

from typing import Any


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any) -> float:
    """1 iff the number of letters "a" is even."""
    return float(solution_str.count("a") % 2 == 0)
