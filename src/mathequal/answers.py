"""What an answer says: one class for each kind of answer, with the fields that this kind has."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from mathequal.nodes import INFINITY, MINUS_INFINITY, Node, Product, Sum, Symbol, Words
from mathequal.trees import symbols
from mathequal.units import Unit

NO_NAME = Words("")  # of the set that > 3 says
REALS = ((MINUS_INFINITY, False, INFINITY, False),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What answers of every kind can say beside their value."""

    kind: ClassVar[str]
    """The name of the class, for people."""
    name: Node | None = None
    """What is said to be the value, or to be a member of it: the x of x = 5 and of x ∈ S."""
    others: tuple["Answer", ...] = field(default=(), compare=False)
    """Further readings of the text."""
    said: frozenset[str] = field(default=frozenset(), compare=False)
    """The words that name it before it."""
    hedged: bool = field(default=False, compare=False)
    """Whether it is about this value."""
    over_reals: bool = field(default=False, compare=False)
    """Whether its index is real: n ∈ ℝ."""
    excluded: tuple[Node, ...] = field(default=(), compare=False)
    """Values that its letters may not have."""

    items: tuple["Answer", ...] = ()
    """The answers that it consists of; none for most kinds."""

    def says(self, other: "Answer") -> bool:
        """Whether an answer of the same kind has the same fields, whatever its name."""
        return type(self) is type(other) and self == replace(other, name=self.name)


@dataclass(frozen=True, slots=True)
class Expression(Answer):
    """A number, or an expression of letters."""

    kind = "expression"
    value: Node


@dataclass(frozen=True, slots=True)
class Quantity(Answer):
    """A number with a unit, or with the words for what is counted."""

    kind = "quantity"
    value: Node
    unit: Unit | None = None
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Several(Answer):
    """Answers beside each other: 1, 2 and 3."""

    kind = "list"
    items: tuple[Answer, ...] = ()
    links: tuple[str, ...] = ()
    """What connects them: a comma, "and" or "or"."""


@dataclass(frozen=True, slots=True)
class Members(Answer):
    """A set by its members."""

    kind = "set"
    items: tuple[Answer, ...] = ()


@dataclass(frozen=True, slots=True)
class Row(Answer):
    """A point, a vector or another tuple."""

    kind = "tuple"
    items: tuple[Answer, ...] = ()
    nodes: tuple[Node, ...] = ()
    """The same as trees."""
    brackets: str = "()"


@dataclass(frozen=True, slots=True)
class Intervals(Answer):
    """A set of real numbers."""

    kind = "intervals"
    pieces: tuple[Any, ...]
    """Each is (low, closed, high, closed), or an operation on two sets of reals."""


@dataclass(frozen=True, slots=True)
class Numbers(Answer):
    """ℤ, ℚ, ℂ or ℕ, or a part of it."""

    kind = "named set"
    letter: str


@dataclass(frozen=True, slots=True)
class Table(Answer):
    """A matrix."""

    kind = "matrix"
    rows: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True, slots=True)
class Piecewise(Answer):
    """Values with their conditions."""

    kind = "cases"
    items: tuple[Answer, ...] = ()


@dataclass(frozen=True, slots=True)
class Chain(Answer):
    """A value with its name, x = 5, and a chain of values that are said to be equal, x = 2 + 3 = 5."""

    kind = "assigned"
    items: tuple[Answer, ...] = ()
    links: tuple[str, ...] = ("=",)
    """The sign before each of them: = or ~."""
    sides: tuple[Node, ...] = ()
    """The sides of the equation as trees, if it has a left side."""


@dataclass(frozen=True, slots=True)
class Equation(Answer):
    """An equation that does not only give a name."""

    kind = "equation"
    sides: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Inequality(Answer):
    """A chain of inequalities that says no set of reals."""

    kind = "inequality"
    sides: tuple[Node, ...]
    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Family(Answer):
    """Values for each integer, 2πk."""

    kind = "family"
    values: tuple[Node, ...]
    index: str


@dataclass(frozen=True, slots=True)
class Congruence(Answer):
    """A residue class, 9 (mod 13): a family too."""

    kind = "family"
    residue: Node
    modulus: Node
    index: ClassVar[str] = "mod"

    @property
    def values(self) -> tuple[Node, ...]:
        """The residue and whole multiples of the modulus."""
        return (Sum(self.residue, Product(self.modulus, Symbol(self.index))),)


@dataclass(frozen=True, slots=True)
class Letters(Answer):
    """The letters of chosen options."""

    kind = "letters"
    letters: frozenset[str]
    text: str = ""
    """What the option says, if it is written too."""


@dataclass(frozen=True, slots=True)
class Text(Answer):
    """Words."""

    kind = "text"
    words: str


@dataclass(frozen=True, slots=True)
class Time(Answer):
    """A time of day."""

    kind = "time"
    hour: int
    minute: int
    second: int


@dataclass(frozen=True, slots=True)
class Date(Answer):
    """A day, with or without its year."""

    kind = "date"
    year: int | None
    month: int
    day: int


@dataclass(frozen=True, slots=True)
class Code(Answer):
    """Signs that stand for themselves, as a telephone number or a date in digits."""

    kind = "date"
    text: str


@dataclass(frozen=True, slots=True)
class Digits(Answer):
    """A number by its digits in a base."""

    kind = "base"
    sign: str
    digits: str
    radix: int


@dataclass(frozen=True, slots=True)
class Proportion(Answer):
    """a : b."""

    kind = "ratio"
    terms: tuple[Node, ...]


Value = Expression | Quantity
"""An answer whose value can be computed."""
VALUES = (Expression, Quantity)
"""The same, for isinstance."""


def unit_in(answer: Answer) -> Unit | None:
    """The unit of a quantity."""
    return answer.unit if isinstance(answer, Quantity) else None


def words_in(answer: Answer) -> tuple[str, ...]:
    """The words of a quantity that counts something."""
    return answer.words if isinstance(answer, Quantity) else ()


def letters_of(answer: Answer) -> set[str]:
    """The letters of the expressions of an answer, without those of the answers that it consists of."""
    match answer:
        case Expression(value) | Quantity(value):
            return symbols(value)
        case Equation(sides) | Inequality(sides) | Family(sides) | Proportion(sides) | Table(sides) | Intervals(sides):
            return symbols(sides)
        case Row(_, nodes):
            return symbols(nodes)
    return symbols(answer.values) if isinstance(answer, Congruence) else set()
