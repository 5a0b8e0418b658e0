"""The judge of mathematical answers by their types (docs/concepts/verifiers.md)."""

from dph.verifiers.math.typed.copied import is_copied
from dph.verifiers.math.typed.judge import answer_key, compare
from dph.verifiers.math.typed.read import read
from dph.verifiers.math.typed.values import exact

__all__ = ["answer_key", "compare", "exact", "is_copied", "read"]
