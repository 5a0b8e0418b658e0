"""The judge of mathematical answers by their types (docs/concepts/verifiers.md)."""

from dph.verifiers.math.typed.judge import compare, is_copied
from dph.verifiers.math.typed.read import read
from dph.verifiers.math.typed.text import find_answer

__all__ = ["compare", "find_answer", "is_copied", "read"]
