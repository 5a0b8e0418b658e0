"""Verifiers judge responses by execution, by mathematical equivalence or by equality of text.

The module of a verifier is imported when the verifier is first used.
"""

from dph.verifiers.protocol import VERIFIERS, Verifier, Verifiers, register_verifier
from dph.verifiers.sql.rules import rule_versions

__all__ = ["Verifier", "Verifiers", "judging_versions", "register_verifier"]

VERIFIERS.declare("dph.verifiers.countdown", "countdown")
VERIFIERS.declare("dph.verifiers.exact", "exact")
VERIFIERS.declare("dph.verifiers.function", "function")
VERIFIERS.declare("dph.verifiers.math.verifier", "math")
VERIFIERS.declare("dph.verifiers.sql.verifier", "sql")


def judging_versions() -> dict[str, str]:
    """Versions of the rules that verdicts depend on, for a run's manifest."""
    return {"sql rules": rule_versions()}
