"""Work is bounded in steps, so that neither the machine nor its load can change a verdict."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mathequal.matrices import Matrices


class Unevaluable(Exception):
    """An expression has no value that the judge can compute within its limits."""


class Budget:
    """Steps of work that are left, whatever the machine and its load: one for reading, one for comparing."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.known: dict[object, object] = {}  # values that were computed
        self.matrices: Matrices | None = None  # what is said of letters that may be matrices

    def spend(self, steps: int = 1) -> None:
        """Raises Unevaluable if nothing is left."""
        self.steps -= steps
        if self.steps < 0:
            raise Unevaluable("budget")
