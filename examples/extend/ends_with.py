"""A verifier: a response is correct when it ends with the answer."""

from dph.types import Outcome, Verdict
from dph.verifiers import register_verifier


@register_verifier("ends_with")
class EndsWith:
    def verify(self, items):
        return [self._judge(problem, text) for problem, text in items]

    def _judge(self, problem, text):
        right = text.strip().endswith(str(problem.answer))
        return Verdict(Outcome.CORRECT if right else Outcome.WRONG, reward=float(right))

    def check(self, problems):
        return {}

    def close(self):
        pass
