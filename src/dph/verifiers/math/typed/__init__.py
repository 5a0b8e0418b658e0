"""The judge of mathematical answers by their types (docs/concepts/verifiers.md)."""

from dph.verifiers.math.typed.judge import compare, is_copied
from dph.verifiers.math.typed.read import read

__all__ = ["compare", "is_copied", "read"]
