"""Verifiers: they judge responses by execution, by mathematical equivalence or by equality of text."""

from dph.verifiers import exact, math, sql
from dph.verifiers.protocol import Verifier, Verifiers, register_verifier

__all__ = ["Verifier", "Verifiers", "exact", "math", "register_verifier", "sql"]
