"""Bounds of numbers, declared on the fields that they bound: `n: Annotated[int, Bounds(1)]`."""

import dataclasses
import typing
from dataclasses import dataclass
from typing import Annotated, Any

from dph.errors import UserError

_LARGEST = 1.7e308
_SMALLEST = 5e-324


@dataclass(frozen=True, slots=True)
class Bounds:
    """Smallest and largest allowed value of a field. NaN lies outside of all bounds, infinity too."""

    low: float
    words: str
    """The same in words, after "it must be"."""
    high: float = _LARGEST

    def __str__(self) -> str:
        return self.words


PositiveInt = Annotated[int, Bounds(1, "at least 1")]
NonNegativeInt = Annotated[int, Bounds(0, "0 or more, and finite")]
NonNegative = Annotated[float, Bounds(0, "0 or more, and finite")]
Positive = Annotated[float, Bounds(_SMALLEST, "above 0, and finite")]
Finite = Annotated[float, Bounds(-_LARGEST, "finite")]
Share = Annotated[float, Bounds(0, "between 0 and 1", 1)]
PositiveShare = Annotated[float, Bounds(_SMALLEST, "above 0 and at most 1", 1)]
Decay = Annotated[float, Bounds(0, "0 or more and below 1", 1 - 1e-12)]


def check_bounds(config: Any, prefix: str = "") -> None:
    """Raises UserError that names the first field of a config, or of the configs in it, that is out of its bounds."""
    hints = typing.get_type_hints(type(config), include_extras=True)
    for item in dataclasses.fields(config):
        name, value = f"{prefix}{item.name}", getattr(config, item.name)
        for bounds in getattr(hints[item.name], "__metadata__", ()):
            if not isinstance(bounds, Bounds):
                continue
            if not isinstance(value, int | float) or not bounds.low <= value <= bounds.high:
                raise UserError(f"{name} is {value!r}; it must be {bounds.words}")
        if dataclasses.is_dataclass(value):
            check_bounds(value, f"{name}.")
