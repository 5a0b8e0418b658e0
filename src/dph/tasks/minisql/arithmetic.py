"""The out-of-domain task: a two-digit number plus one digit, without a carry.

Reinforcement learning never sees it, so a loss of accuracy there measures forgetting.
"""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sum:
    """One sum, with its prompt and its response."""

    left: int
    right: int

    @property
    def prompt(self) -> str:
        return f"math | {self.left} + {self.right} ="

    @property
    def answer(self) -> str:
        return str(self.left + self.right)

    @property
    def response(self) -> str:
        return rf"\boxed{{{self.answer}}}"


def divide(seed: int, held_out: int) -> tuple[list[Sum], list[Sum]]:
    """All sums in random order, divided into (held out, for demonstrations)."""
    sums = [Sum(left, right) for left in range(10, 100) for right in range(1, 6) if left % 10 + right < 10]
    random.Random(f"minisql/{seed}/math").shuffle(sums)
    return sums[:held_out], sums[held_out:]
