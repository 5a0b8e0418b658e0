"""The words after a value: a unit with its exponents and quotients, or what is counted."""

from mathequal.cursor import Cursor
from mathequal.nodes import Measured, Node, Number
from mathequal.text import word_list
from mathequal.tokens import LINKS, Token
from mathequal.trees import signed
from mathequal.units import unit_of

AFTER_CASE = {*word_list("if for when otherwise else")}
"""Words that begin a condition."""


class UnitParser(Cursor):
    """Reads units."""

    def unit_fraction(self) -> bool:
        r"""Whether \frac{m}{s} of words follows."""
        return self.at(r"\frac") and self.peek(1) == ("op", "{") and self.is_word(self.peek(2))

    @staticmethod
    def is_word(token: Token) -> bool:
        return token[0] == "text" and token[1] not in LINKS and token[1] not in AFTER_CASE

    def unit(self, value: Node) -> Node:
        """A value and the words after it."""
        return Measured(value, (*(self.words() or self.fail()).split(),))

    def words(self) -> str:
        """Words with their exponents and quotients."""
        spec = ""
        while True:
            if self.is_word(self.peek()):
                spec += f" {self.take()[1]}"
            elif self.unit_fraction():
                self.take()
                parts = []
                for _ in range(2):
                    self.expect("{")
                    parts.append(self.words())
                    self.expect("}")
                spec += " " + "/".join(parts)
            elif spec and self.accept("^"):
                exponent = signed(self.sign(), self.argument(whole=True))
                if not isinstance(exponent, Number) or exponent.value.denominator != 1 or abs(exponent.value) > 9:
                    return self.fail()
                spec += f"^{exponent.value}"
            elif (self.at("/") or (spec and self.at("*"))) and self.names_unit(self.peek(1), spec):
                spec += ("/" if self.take()[1] == "/" else " ") + self.take()[1]
            else:
                return spec

    def names_unit(self, token: Token, before: str) -> bool:
        return self.is_word(token) or bool(before and token[0] in ("id", "fn") and unit_of(token[1]))
