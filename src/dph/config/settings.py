"""What every settings class is made of: bounds and marks of fields, and `Settings`, which checks an object once.

An object of a settings class is valid as soon as it exists: who is given one believes it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, get_type_hints

from dph.errors import SettingsError

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
Level = Annotated[float, Bounds(1e-12, "at least 1e-12, and below 1", 1 - 1e-12)]
Decay = Annotated[float, Bounds(0, "0 or more and below 1", 1 - 1e-12)]


class FieldError(SettingsError):
    """A field of a settings object that cannot be as it is. Whoever knows where the object stands in a stage's settings
    adds that place to the field's name."""

    def __init__(self, name: str, fault: str) -> None:
        super().__init__(f"{name} {fault}")
        self.name, self.fault = name, fault

    def below(self, prefix: str) -> "FieldError":
        """The same of an object that stands below `prefix`, such as "loss."."""
        return FieldError(prefix + self.name, self.fault)


class Settings:
    """Base of every settings class, a frozen dataclass. Its objects are checked when they are made, `replace` included:
    each field lies within its bounds, each part is of the class that the field declares, and `check` is content.

    Several stages share a part, and not each of them reads all of it. Such parts are families of classes, of which a
    wider one adds fields to a narrower one (`SamplingConfig`, `RolloutConfig`), and a stage declares the class whose
    fields it reads. A part of another class of the family is converted: fields that the stage does not read must have
    their defaults.
    """

    def __post_init__(self) -> None:
        for name, hint, marks in hints_of(type(self)):
            value = getattr(self, name)
            for mark in marks:
                if isinstance(mark, Bounds) and not (isinstance(value, int | float) and mark.low <= value <= mark.high):
                    raise FieldError(name, f"is {value!r}; it must be {mark.words}")
            if isinstance(hint, type) and issubclass(hint, Settings) and type(value) is not hint:
                object.__setattr__(self, name, _converted(hint, value, name))
        self.check()

    def check(self) -> None:
        """Raises SettingsError for fields that contradict each other. A subclass says which."""


@cache
def hints_of(cls: type[Any]) -> tuple[tuple[str, Any, tuple[Any, ...]], ...]:
    """The fields of a settings class: name, type, and the marks of the type, such as its bounds."""
    kinds, hints = get_type_hints(cls), get_type_hints(cls, include_extras=True)
    return tuple((f.name, kinds[f.name], getattr(hints[f.name], "__metadata__", ())) for f in fields(cls))


def _converted(cls: type["Settings"], part: Any, name: str) -> Any:
    """A part as another class of its family. Raises FieldError for a field that is set and that this class lacks."""
    if not isinstance(part, Settings) or not (isinstance(part, cls) or issubclass(cls, type(part))):
        raise FieldError(name, f"is {part!r:.200}; it must be of the class {cls.__name__}")
    names, default = [key for key, _, _ in hints_of(cls)], type(part)()
    there = [key for key, _, _ in hints_of(type(part))]
    for key in there:
        if key not in names and getattr(part, key) != getattr(default, key):
            raise FieldError(f"{name}.{key}", "is set, but this stage does not read it; leave it out")
    return cls(**{key: getattr(part, key) for key in there if key in names})


def is_unread(cls: type[Any], key: str) -> bool:
    """Whether a key is no field of a part's class, but of a wider class of its family: other stages read it."""
    return any(key in wider.__dataclass_fields__ for wider in _wider(cls))


def _wider(cls: type[Any]) -> Iterator[type[Any]]:
    for below in cls.__subclasses__():
        yield below
        yield from _wider(below)
