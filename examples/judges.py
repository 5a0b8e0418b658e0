# pyright: reportMissingImports=false
"""Judges of mathematics of other libraries, for `dph judge examples/judges.py:NAME`: each needs its own library.

A function's parameters say how it is called. Whatever a file of yours imports can be named directly too.
"""

from typing import Any


def trl_accuracy(completions: list[Any], solution: list[str], **columns: Any) -> list[float | None]:
    """TRL's reward (pip install trl math-verify)."""
    from trl.rewards import accuracy_reward

    return accuracy_reward(completions, solution, **columns)


def verl_default(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> Any:
    """What verl computes for MATH (pip install verl); --columns data_source math_dapo tries the judge of DAPO."""
    from verl.utils.reward_score import default_compute_score

    return default_compute_score(data_source, solution_str, ground_truth, extra_info)


def verl_math_verify(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> float:
    """verl's own use of Math-Verify, which its defaults do not name (pip install verl math-verify). It starts four
    processes at its first answer: dph judge examples/judges.py:verl_math_verify --timeout 60."""
    from verl.utils.reward_score.math_verify import compute_score

    return compute_score(solution_str, ground_truth)


def math_verify_alone(completion: str, answer: str) -> float:
    """Math-Verify with its own defaults (pip install math-verify)."""
    from math_verify import parse, verify

    return float(verify(parse(answer), parse(completion)))


def ours(completion: str, answer: str, prompt: str) -> float | None:
    """The judge of this package, as other trainers call it."""
    return _judge("typed").score(completion, answer, prompt)


def qwen(completion: str, answer: str, prompt: str) -> float | None:
    """The verdicts of the Qwen2.5-Math evaluation, in a process that starts at the first answer: --timeout 60."""
    return _judge("qwen").score(completion, answer, prompt)


def _judge(policy: str) -> Any:
    from dph.rewards import reward_function

    return reward_function("math", policy=policy)
