"""A user's Python function that rewards responses instead of a verifier."""

from dph.verifiers.function.call import RewardFunction
from dph.verifiers.function.verifier import FunctionVerifier

__all__ = ["FunctionVerifier", "RewardFunction"]
