"""What one comparison may cost: the same on every machine and under any load."""


class Unevaluable(Exception):
    """An expression has no value that the judge can compute within its limits."""


class Budget:
    """Steps of work that are left; reading an answer has one, and comparing two has another."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.known: dict[object, object] = {}
        """Values that were computed."""

    def spend(self, steps: int = 1) -> None:
        """Raises Unevaluable if nothing is left."""
        self.steps -= steps
        if self.steps < 0:
            raise Unevaluable("budget")
