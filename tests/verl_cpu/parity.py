"""Test support: a verifier whose verdict a random model meets about half the time, and whose judging can fail, and
the same as verl's own kind of reward function."""

from typing import Any

from dph.types import Outcome, Verdict
from dph.verifiers.protocol import register_verifier


class Parity:
    """Correct iff the number of letters "a" is even; a response that starts with "z" cannot be judged."""

    def __init__(self, **_):
        pass

    def verify(self, items):
        return [self._judge(response) for _, response in items]

    def check(self, problems):
        return {}

    def close(self):
        pass

    def _judge(self, response):
        if response.startswith("z"):
            return Verdict(Outcome.INFRA_ERROR, 0.0, "the judge is out")
        even = response.count("a") % 2 == 0
        return Verdict(Outcome.CORRECT if even else Outcome.WRONG, float(even))


register_verifier("parity")(Parity)


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any) -> float:
    """1 iff the number of letters "a" is even."""
    return float(solution_str.count("a") % 2 == 0)
