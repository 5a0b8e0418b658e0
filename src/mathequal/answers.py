"""What an answer says, as a typed value."""

from dataclasses import dataclass, field
from typing import Any

from mathequal.nodes import INFINITY, MINUS_INFINITY, Node, Words
from mathequal.units import Unit

NO_NAME = Words("")  # of the set that > 3 says
REALS = ((MINUS_INFINITY, False, INFINITY, False),)


@dataclass(frozen=True, slots=True)
class Answer:
    """A typed answer. Its kind is expression, quantity, list, tuple, set, intervals, named set, matrix, cases,
    assigned, equation, inequality, family, letters, text, time, date, base or ratio."""

    kind: str
    value: Any = None
    items: tuple["Answer", ...] = ()
    name: Node | None = None  # the x of x = 5 and x ∈ S
    unit: Unit | None = None
    words: tuple[str, ...] = ()  # the thing that is counted
    marks: str = ""  # brackets of a tuple, integer of a family
    links: tuple[str, ...] = ()  # connectors of a list, relations of a chain
    others: tuple["Answer", ...] = field(default=(), compare=False)  # further readings of the text
    said: frozenset[str] = field(default=frozenset(), compare=False)  # words that name it before it
    hedged: bool = field(default=False, compare=False)  # about 5
    over_reals: bool = field(default=False, compare=False)  # with n ∈ ℝ
    excluded: tuple[Node, ...] = field(default=(), compare=False)  # values that an expression's letter may not have
