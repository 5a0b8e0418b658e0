"""Bounds and marks of the fields of settings classes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

LARGEST = 1.7e308
SMALLEST = 5e-324


@dataclass(frozen=True)
class Bounds:
    """Smallest and largest allowed value of a field. NaN lies outside of all bounds, infinity too."""

    low: float
    words: str
    """The same in words, after "it must be"."""
    high: float = LARGEST


@dataclass(frozen=True)
class Usual:
    """Marks the usual values of a setting. Others, but 0, are allowed and reported, because most are slips."""

    low: float = 0.0
    high: float = LARGEST

    @property
    def words(self) -> str:
        if self.high == LARGEST:
            return f"usually at least {self.low:g}"
        return f"usually {self.low:g} to {self.high:g}" if self.low else f"usually at most {self.high:g}"


@dataclass(frozen=True)
class Code:
    """Marks a setting that names code of others. It runs only if the call itself names it (`dph.config.permitted`)."""

    flag: str
    """The flag with which a command line names it."""
    runs: Callable[[Any], bool] = bool
    """Whether a value of the setting names code."""
    which: str = ""
    """Which values do, in words, if not all."""

    @property
    def words(self) -> str:
        return f"{self.which}{' ' if self.which else ''}in a file only if the call has {self.flag} too"


PositiveInt = Annotated[int, Bounds(1, "at least 1")]
NonNegativeInt = Annotated[int, Bounds(0, "0 or more, and finite")]
NonNegative = Annotated[float, Bounds(0, "0 or more, and finite")]
Positive = Annotated[float, Bounds(SMALLEST, "above 0, and finite")]
Seed = Annotated[int, Bounds(-(2**63), "a whole number of 64 bits", 2**63 - 1)]
Finite = Annotated[float, Bounds(-LARGEST, "finite")]
Share = Annotated[float, Bounds(0, "between 0 and 1", 1)]
PositiveShare = Annotated[float, Bounds(SMALLEST, "above 0 and at most 1", 1)]
Level = Annotated[float, Bounds(1e-12, "above 0 and below 1", 1 - 1e-12)]
Decay = Annotated[float, Bounds(0, "0 or more and below 1", 1 - 1e-12)]
