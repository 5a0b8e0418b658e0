"""Verifiers judge responses by execution, by mathematical equivalence or by equality of text."""

import dph.verifiers.exact
import dph.verifiers.function
import dph.verifiers.math.verifier
import dph.verifiers.sql.verifier  # noqa: F401 (importing them registers them)
from dph.verifiers.protocol import Verifier, Verifiers, register_verifier
from dph.verifiers.sql.rules import rule_versions

__all__ = ["Verifier", "Verifiers", "judging_versions", "register_verifier"]


def judging_versions() -> dict[str, str]:
    """Versions of the rules that verdicts depend on, for a run's manifest."""
    return {"sql rules": rule_versions()}
