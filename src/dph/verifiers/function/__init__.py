"""A Python function of the user's that rewards responses, in place of a verifier."""

from dph.verifiers.function.call import RewardFunction
from dph.verifiers.function.verifier import FunctionVerifier

__all__ = ["FunctionVerifier", "RewardFunction"]
