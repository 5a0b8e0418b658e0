"""A place in the tokens of an answer, with what every part of the parser asks of it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from mathequal.budget import Budget
from mathequal.nodes import Node
from mathequal.tokens import Token
from mathequal.trees import ParseError

_DEEPEST = 32  # brackets within brackets


class Cursor(ABC):
    """A place in tokens. tight: a/bc is a/(bc).

    The parts of the parser ask each other for what the abstract methods read; the class that joins them has them all.
    """

    def __init__(self, found: Sequence[Token], budget: Budget, *, tight: bool = False) -> None:
        self.tokens, self.budget, self.tight = found, budget, tight
        self.place = self.depth = self.bars = 0
        self.ambiguous, self.colon = False, True

    def peek(self, ahead: int = 0) -> Token:
        return self.tokens[min(self.place + ahead, len(self.tokens) - 1)]

    def take(self) -> Token:
        self.budget.spend()
        self.place += 1
        return self.tokens[self.place - 1]

    def at(self, *operators: str) -> bool:
        kind, value = self.peek()
        return kind == "op" and value in operators

    def accept(self, *operators: str) -> str:
        return self.take()[1] if self.at(*operators) else ""

    def expect(self, *operators: str) -> str:
        return self.accept(*operators) or self.fail()

    def fail(self) -> Any:
        raise ParseError(f"unexpected {self.peek()[1]!r}")

    def deeper(self, step: int) -> None:
        self.depth += step
        if self.depth > _DEEPEST:
            raise ParseError("too deep")

    @abstractmethod
    def link(self) -> str:
        """The connector before the next item: ",", ";", "and" or "or"; "" if there is none."""

    @abstractmethod
    def item(self) -> Node:
        """A relation chain, or an expression; with its modulus."""

    @abstractmethod
    def union(self) -> Node:
        """A set operation, or an expression."""

    @abstractmethod
    def sum(self) -> Node:
        """An expression."""

    @abstractmethod
    def product(self) -> Node:
        """A product with its units."""

    @abstractmethod
    def power(self) -> Node:
        """A factor with its exponents."""

    @abstractmethod
    def sign(self) -> str:
        """A run of signs: "+", "-", "p" and "m" for plus-minus and minus-plus."""

    @abstractmethod
    def starts(self) -> bool:
        """Whether the next token begins a factor."""

    @abstractmethod
    def argument(self, *, whole: bool = False) -> Node:
        r"""The argument of \frac, \sqrt and ^: a group, or one digit (whole: one number), letter or command."""

    @abstractmethod
    def group(self) -> Node:
        """What is in braces."""
