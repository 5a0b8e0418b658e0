r"""A Pratt parser for the mathematics of answers, LaTeX and plain notation.

A construct that is not understood is an error; it is never skipped.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from math import gcd
from typing import Any

from mathequal.budget import Budget, Unevaluable
from mathequal.grammar_constructs import BIG, ConstructParser
from mathequal.grammar_units import AFTER_CASE
from mathequal.nodes import (
    Brackets,
    Degrees,
    DoubleFactorial,
    Factorial,
    Function,
    Measured,
    Measures,
    Modulo,
    NamedSet,
    Negative,
    Node,
    Number,
    Percent,
    Power,
    Quotient,
    Ratio,
    Relation,
    SetOf,
    SetOperation,
    Sum,
    Symbol,
    Words,
)
from mathequal.text import word_list
from mathequal.tokens import CURRENCIES, LINKS, SETS, tokens
from mathequal.trees import (
    ParseError,
    decimal_node,
    fraction,
    holds,
    integer_node,
    mixed_number,
    repeating,
    signed,
    ten_power,
    times,
)

LONGEST = 2000
_DEEPEST_TREE = 128
_RELATIONS = {*word_list(r"= < > <= >= != ~ \equiv \in \notin \sim \to \subset \perp \parallel")}
_WITHOUT_LEFT = {*word_list("= ~ < > <= >= !=")}


class Parser(ConstructParser):
    """Parses tokens."""

    # Lists and relations.
    def answer(self) -> tuple[list[Node], list[str]]:
        """The whole text: items and the connectors between them."""
        items, links = [self.item()], []
        while self.peek()[0] != "eof":
            apart = isinstance(items[-1], Number) and self.peek()[0] == "num"  # 5 6
            links.append(" " if apart else self.link() or self.fail())
            items.append(self.item())
        if " " in links and {*links} != {" "}:  # (1) 3, (2) 4
            self.fail()
        return items, [link.replace(" ", ",") for link in links]

    def link(self) -> str:
        """The connector before the next item: ",", ";", "and" or "or"; "" if there is none."""
        link = ""
        while (token := self.peek())[0] == "break" or (token[0] in ("op", "text") and token[1] in LINKS):
            self.take()
            link = link if link in ("and", "or") else LINKS.get(token[1], ",")
        return link

    def item(self) -> Node:
        """A relation chain, or an expression; with its modulus."""
        sides: list[Node | None] = [None if self.at(*_WITHOUT_LEFT) else self.union()]
        operators = []
        while operator := self.accept(*_RELATIONS):
            operators.append(operator)
            sides.append(self.union())
        whole: Any = Relation((*sides,), (*operators,)) if operators else sides[0]
        bracket = self.at("(") and self.peek(1) == ("op", r"\mod")
        if bracket or self.at(r"\mod"):
            self.place += 1 + bracket
            whole = Modulo(whole, self.group() if self.at("{") else self.sum())
            if bracket:
                self.expect(")")
        return whole

    def union(self) -> Node:
        left = self.setminus()
        while self.at(r"\cup", r"\cap") or (
            self.peek() == ("id", "U") and isinstance(left, (Brackets, SetOf, SetOperation, NamedSet))
        ):
            left = SetOperation("cap" if self.take()[1] == r"\cap" else "cup", left, self.setminus())
        return left

    def setminus(self) -> Node:
        left = self.sum()
        while self.accept(r"\setminus"):
            left = SetOperation("minus", left, self.sum())
        return left

    # Arithmetic.
    def sum(self) -> Node:
        parts = [signed(self.sign(), self.product())]
        while self.at("+", "-", r"\pm", r"\mp"):
            parts.append(signed(self.sign(), self.product()))
        match parts:
            case [only]:
                return only
            case [*others, Measured(value, words)] if not any(
                holds(x, Measured, Measures, Percent, Words) for x in (*others, value)
            ):
                return Measured(Sum(*others, value), words)  # 22 + 12√2 cm
            case [(SetOf() | NamedSet() | Brackets()) as left, Negative(SetOf() as right)]:
                return SetOperation("minus", left, right)
        return Sum(*parts)

    def sign(self) -> str:
        """A run of signs: "+", "-", "p" and "m" for plus-minus and minus-plus."""
        signs = ""
        while found := self.accept("+", "-", r"\pm", r"\mp"):
            signs += {r"\pm": "p", r"\mp": "m"}.get(found, found)
        if len(signs) > (1 if set(signs) & {"p", "m"} else 4):
            raise ParseError("signs")
        return signs

    def starts(self) -> bool:
        """Whether the next token begins a factor."""
        kind, value = self.peek()
        if kind != "op":
            return kind in ("num", "rep", "id", "fn", "node", "begin")
        if value == "(" and self.peek(1) == ("op", r"\mod"):
            return False
        if value == "[":  # [a, b[ ends with it
            after = self.peek(1)
            return after[0] not in ("eof", "text") and after not in (("op", x) for x in (r"\cup", r"\}", ",", ")", ";"))
        opens = (r"\frac", r"\binom", r"\{", r"\lfloor", r"\lceil", r"\langle", r"\boxed")
        return value in ("(", "{", *opens, *BIG, *SETS) or (value in ("|", r"\|") and not self.bars)

    def product(self) -> Node:
        left, slash = self.power(), False
        while True:
            kind, value = self.peek()
            if self.accept("*"):
                left, slash = times(left, signed(self.sign(), self.power())), False
            elif not (self.at("/") and self.is_word(self.peek(1))) and self.accept("/"):
                right = signed(self.sign(), self.power())
                while self.tight and self.starts():
                    right = times(right, self.power())
                left, slash = Quotient(left, right), True
            elif self.accept("%"):
                left = Percent(left)
            elif self.at(*CURRENCIES):
                left = Measured(left, (self.take()[1].lstrip("\\"),))
            elif self.colon and self.at(":"):
                return self.ratio(left)
            elif self.is_word((kind, value)) or self.unit_fraction() or self.at("/"):
                left = self.unit(left)
            elif not self.starts() or ((kind, value) == ("id", "U") and isinstance(left, (Brackets, SetOf, NamedSet))):
                return left
            elif isinstance(left, (Measured, Measures, Percent)) and kind in ("num", "rep"):  # 5 ft 6 in
                left = Measures(*(left.quantities if isinstance(left, Measures) else (left,)), self.unit(self.power()))
            elif kind in ("num", "rep") and (
                isinstance(left, Number) or self.tokens[self.place - 1][0] in ("num", "rep")
            ):
                if (mixed := self.mixed(left)) is None:
                    return left
                left = mixed
            else:
                self.ambiguous |= slash
                bracketed = self.at("(") or self.tokens[self.place - 1] == ("op", ")")  # 2(1/2) is 1
                right = self.power()
                whole = None if bracketed else mixed_number(left, right)
                left = whole or times(left, right)

    def mixed(self, whole: Node) -> Node | None:
        """`1 1/2`: an integer, a blank and a proper fraction of digits; None if something else follows."""
        (_, top), slash, (kind, bottom) = self.peek(), self.peek(1), self.peek(2)
        if not isinstance(whole, Number) or whole.form != "int":
            return None
        if slash == ("op", "/") and kind == "num" and top.isdigit() and bottom.isdigit():
            self.place += 3
            if len(bottom) < 20 and int(bottom) > int(top) > 0 and not self.starts() and not self.at("^", "!"):
                return Number(whole.value + Fraction(int(top), int(bottom)), "mixed", gcd(int(top), int(bottom)))
            self.place -= 3
        return None

    def ratio(self, first: Node) -> Node:
        terms = [first]
        while self.accept(":"):
            term = signed(self.sign(), self.power())
            while self.starts():
                term = times(term, self.power())
            terms.append(term)
        return Ratio((*terms,))

    def power(self) -> Node:
        base = self.postfix(self.atom())
        while self.accept("^"):
            if self.accept(r"\circ"):
                base = Degrees(base)
            else:
                exponent = signed(self.sign(), self.argument(whole=True))
                if isinstance(base, Symbol) and re.fullmatch(r"C_\w+", base.name):  # C_n^k
                    total = base.name[2:]
                    return Function("binom", integer_node(int(total)) if total.isdigit() else Symbol(total), exponent)
                base = ten_power(exponent) if base == integer_node(10) else Power(base, exponent)
                if self.at("^"):
                    raise ParseError("x^a^b")
            base = self.postfix(base)
        return base

    def postfix(self, base: Node) -> Node:
        while True:
            if self.accept("!"):
                base = DoubleFactorial(base) if self.accept("!") else Factorial(base)
            elif self.accept(r"\circ"):
                base = Degrees(base)
            else:
                return base

    def argument(self, *, whole: bool = False) -> Node:
        r"""The argument of \frac, \sqrt and ^: a group, or one digit (whole: one number), letter or command."""
        kind, value = self.peek()
        if self.at("{"):
            return self.group()
        if kind == "num" and not whole and len(value) > 1 and value[0].isdigit():
            digits = [("num", value[0]), ("num", value[1:])]
            self.tokens = [*self.tokens[: self.place], *digits, *self.tokens[self.place + 1 :]]
        if kind in ("num", "rep", "id", "node", "begin", "op"):
            return self.atom()
        return self.fail()

    def group(self) -> Node:
        self.expect("{")
        self.deeper(1)
        bars, self.bars = self.bars, 0
        items = self.items(",")
        whole = items[0] if len(items) == 1 else SetOf(items)
        if self.accept(r"\over"):
            whole = fraction(whole, self.item())
        elif self.accept(r"\choose"):
            whole = Function("binom", whole, self.item())
        self.expect("}")
        self.depth, self.bars = self.depth - 1, bars
        return whole

    def atom(self) -> Node:
        self.deeper(1)
        kind, value = self.take()
        match kind:
            case "num":
                node = decimal_node(value)
            case "rep":
                node = repeating(value)
            case "node":
                node = value
            case "id":
                node = self.symbol(value)
            case "fn":
                node = self.function(value)
            case "begin":
                node = self.matrix(value)
            case "text" if value not in LINKS and value not in AFTER_CASE:
                node = Words(value)
            case "op":
                node = self.construct(value)
            case _:
                node = self.fail()
        self.depth -= 1
        return node


def _is_shallow(nodes: list[Any]) -> bool:
    """Whether trees are at most `_DEEPEST_TREE` nodes deep, so that functions of trees may call themselves."""
    for _ in range(_DEEPEST_TREE):
        nodes = [part for node in nodes if isinstance(node, tuple) for part in node]
    return not nodes


def readings(text: str, *, units: bool = False) -> Iterator[list[tuple[list[Node], list[str]]]]:
    """The ways to read plain LaTeX as items and their connectors: words before products of letters. A way has a second
    reading if a/bc can be (a/b)c or a/(bc)."""
    for letters in (False, True):
        budget, found = Budget(12_000), []
        try:
            tokenized = tokens(text, letters, units)
            for tight in (False, True):
                parser = Parser(tokenized, budget, tight=tight)
                found.append(parser.answer())
                if not _is_shallow(found[-1][0]):
                    return
                if not parser.ambiguous:
                    break
        except (ParseError, Unevaluable, RecursionError, OverflowError):
            pass
        yield found
