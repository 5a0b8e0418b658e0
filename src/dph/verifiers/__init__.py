"""Verifiers judge responses by execution, by mathematical equivalence or by equality of text.

The module of a verifier is imported when the verifier is first used.
"""

from collections.abc import Collection, Mapping
from typing import Any

from dph.verifiers.protocol import VERIFIERS, Verifier, Verifiers, register_verifier
from dph.verifiers.sql.rules import rule_versions
from mathequal import RULES_VERSION

__all__ = ["NOT_RECORDED", "RULES", "Verifier", "Verifiers", "judging_versions", "other_rules", "register_verifier"]

VERIFIERS.declare("dph.verifiers.countdown", "countdown")
VERIFIERS.declare("dph.verifiers.exact", "exact")
VERIFIERS.declare("dph.verifiers.function", "function")
VERIFIERS.declare("dph.verifiers.math.verifier", "math")
VERIFIERS.declare("dph.verifiers.sql.verifier", "sql")

RULES: Mapping[str, str] = {"sql": "sql rules", "math": "mathequal rules"}
"""What the rules of a verifier are called in the manifest of a run."""
NOT_RECORDED = "not recorded"


def judging_versions() -> dict[str, str]:
    """Versions of the rules that verdicts depend on, for a run's manifest."""
    return {RULES["sql"]: rule_versions(), RULES["math"]: str(RULES_VERSION)}


def other_rules(versions: Any, verifiers: Collection[str] = RULES.keys()) -> list[str]:
    """The rules of some verifiers that differ from those here, as "mathequal rules 1 → 2".

    versions: of a run's manifest. A rule whose version it lacks is `NOT_RECORDED` there.
    """
    here, there = judging_versions(), versions if isinstance(versions, dict) else {}
    names = [name for verifier, name in RULES.items() if verifier in verifiers and there.get(name) != here[name]]
    return [f"{name} {there.get(name, NOT_RECORDED)} → {here[name]}" for name in names]
