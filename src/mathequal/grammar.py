r"""A Pratt parser for the mathematics of answers, LaTeX and plain notation (long: one class).

A construct that is not understood is an error; it is never skipped.
"""

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import gcd
from typing import Any

from mathequal.budget import Budget, Unevaluable
from mathequal.nodes import (
    Big,
    Brackets,
    Call,
    Cases,
    Constant,
    Degrees,
    DoubleFactorial,
    Factorial,
    Function,
    Matrix,
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
    Where,
    Words,
)
from mathequal.text import word_list
from mathequal.tokens import CURRENCIES, LINKS, SETS, Token, tokens
from mathequal.trees import (
    ParseError,
    decimal_node,
    fraction,
    holds,
    integer_node,
    repeating,
    replaced,
    signed,
    ten_power,
    times,
)
from mathequal.units import unit_of

LONGEST = 2000
_DEEPEST = 32  # brackets within brackets
_DEEPEST_TREE = 128
_RELATIONS = {*word_list(r"= < > <= >= != ~ \equiv \in \notin \sim \to \subset \perp \parallel")}
_WITHOUT_LEFT = {*word_list("= ~ < > <= >= !=")}
_INVERSE = {name: f"arc{name}" for name in word_list("sin cos tan cot sec csc")}
_BIG = (r"\sum", r"\prod", r"\int", r"\oint", r"\lim")
_MATRICES = {*word_list("pmatrix bmatrix matrix vmatrix smallmatrix Bmatrix array")}
_SYSTEMS = {*word_list("cases aligned align gathered gather equation split")}
_AFTER_CASE = {*word_list("if for when otherwise else")}


class Parser:
    """Parses tokens. tight: a/bc is a/(bc)."""

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
        """The connector before the next item: ",", ";", "and" or "or"."""
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
        return value in ("(", "{", *opens, *_BIG, *SETS) or (value in ("|", r"\|") and not self.bars)

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
                left = Measures(*(left[1:] if isinstance(left, Measures) else (left,)), self.unit(self.power()))
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
                forms = (left[2], right[2]) if left[0] == right[0] == "n" else ()
                mixed = forms == ("int", "frac") and 0 < right[1] < 1 and not bracketed
                left = Number(left[1] + right[1], "mixed", right[3]) if mixed else times(left, right)

    def mixed(self, whole: Node) -> Node | None:
        """`1 1/2`: an integer, a blank and a proper fraction of digits; None if something else follows."""
        (_, top), slash, (kind, bottom) = self.peek(), self.peek(1), self.peek(2)
        if whole[2:3] == ("int",) and slash == ("op", "/") and kind == "num" and top.isdigit() and bottom.isdigit():
            self.place += 3
            if len(bottom) < 20 and int(bottom) > int(top) > 0 and not self.starts() and not self.at("^", "!"):
                return Number(whole[1] + Fraction(int(top), int(bottom)), "mixed", gcd(int(top), int(bottom)))
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
                if isinstance(base, Symbol) and re.fullmatch(r"C_\w+", base[1]):  # C_n^k
                    total = base[1][2:]
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
            case "text" if value not in LINKS and value not in _AFTER_CASE:
                node = Words(value)
            case "op":
                node = self.construct(value)
            case _:
                node = self.fail()
        self.depth -= 1
        return node

    def construct(self, operator: str) -> Node:
        """A term that begins with an operator or a command."""
        match operator:
            case "(" | "[" | "]":
                return self.bracket(operator)
            case "{":
                self.place -= 1
                return self.group()
            case "|" | r"\|":
                self.bars += 1
                inner = self.union()
                self.bars -= 1
                self.expect(operator)
                return Function("abs" if operator == "|" else "norm", inner)
            case r"\frac":
                return fraction(self.argument(), self.argument())
            case r"\binom":
                return Function("binom", self.argument(), self.argument())
            case r"\{":
                return self.set()
            case r"\lfloor" | r"\lceil":
                inner = self.sum()
                self.expect(operator.replace("l", "r", 1))
                return Function({r"\lfloor": "floor", r"\lceil": "ceil"}[operator], inner)
            case r"\langle":
                return Brackets("<", self.items(","), self.expect(r"\rangle"))
            case _ if operator in CURRENCIES:
                return Measured(signed(self.sign(), self.product()), (operator[1:],))
            case r"\boxed":
                return self.argument()
            case _ if operator in SETS:
                return self.named(SETS[operator])
            case _ if operator in _BIG:
                return self.big(operator)
        raise ParseError(f"unexpected {operator!r}")

    def named(self, name: str) -> Node:
        """ℝ, and ℝ^+ or ℝ_{>0}."""
        rest = "".join(str(self.peek(n)[1]) for n in range(6))
        if sign := re.match(r"[\^_](?:\{([-+]|>0|<0|>=0|<=0)\}|([-+]))", rest):
            self.place += 2 if sign[2] else len(sign[0].replace(">=", ">").replace("<=", "<"))
            name += {"+": ">0", "-": "<0"}.get(sign[1] or sign[2], sign[1])
        return NamedSet(name)

    def symbol(self, name: str) -> Node:
        if name in ("e", "i"):
            return Constant(name)
        if name[-1] == "(":
            arguments = self.items(",")
            self.expect(")", "]")
            return Call(name[:-1], *arguments)
        return Symbol(name)

    def function(self, name: str) -> Node:
        if name in ("sqrt", "cbrt"):
            index = integer_node(3) if name == "cbrt" else None
            if self.accept("["):
                index = self.sum()
                self.expect("]")
            inner = self.argument(whole=True)
            return Function("sqrt", inner) if index is None else Function("root", inner, index)
        base, exponent = self.scripts()
        if self.at("="):  # max = 5
            return Words(name)
        if self.accept("(", "["):
            arguments = self.items(",")
            self.expect(")", "]")
        elif self.accept(r"\{"):  # \max\{x, 5\}
            arguments = self.items(",")
            self.expect(r"\}")
        elif self.at("{"):
            inner = self.group()
            arguments = inner[1] if isinstance(inner, SetOf) else (inner,)
        else:
            inner = signed(self.sign(), self.power())
            while self.starts() and self.peek()[0] != "fn" and not self.at("(", "[", "{", "|"):
                inner = times(inner, self.power())
            arguments = (inner,)
        if name in ("exp", "cis"):
            [argument] = arguments if exponent is None and len(arguments) == 1 else self.fail()
            return Power(Constant("e"), argument if name == "exp" else times(Constant("i"), argument))
        if exponent == integer_node(-1) and name in _INVERSE:
            return Function(_INVERSE[name], *arguments)
        if name in ("log", "lg") and (base is not None or name == "lg"):
            whole = Function("logb", arguments[0], base or integer_node(10))
        else:
            whole = Function(name, *arguments) if base is None else self.fail()
        return whole if exponent is None else Power(whole, exponent)

    def scripts(self) -> tuple[Node | None, Node | None]:
        """The nodes after _ and after ^, in either order."""
        nodes: dict[str, Node] = {}
        while (mark := self.accept("_", "^")) and mark not in nodes:
            nodes[mark] = signed(self.sign(), self.argument(whole=True))
        return nodes.get("_"), nodes.get("^")

    def bracket(self, opens: str) -> Node:
        bars, self.bars = self.bars, 0
        items, closes = self.items(",", ";"), self.expect(")", "]", "[")
        if len(items) == 1 and opens + closes not in ("()", "[]"):
            raise ParseError("half-open group")
        self.bars, opens, closes = bars, opens.replace("]", "("), closes.replace("[", ")")
        group = len(items) == 1 and not (opens == "[" and isinstance(items[0], Brackets) and items[0].opens == "[")
        return items[0] if group else Brackets(opens, items, closes)

    def items(self, *separators: str) -> tuple[Node, ...]:
        items = [self.item()]
        while self.accept(*separators):
            items.append(self.item())
        return (*items,)

    def set(self) -> Node:
        if self.accept(r"\}"):
            return NamedSet("0")
        bars, colon, self.bars, self.colon = self.bars, self.colon, 1, False
        items = self.items(",", ";")
        self.colon = colon
        if self.accept("|", ":"):
            self.bars, conditions, links = 0, [self.item()], []
            while link := self.link():
                links.append(link)
                conditions.append(self.item())
            whole = Where(items[0] if len(items) == 1 else SetOf(items), (*conditions,), (*links,))
        else:
            whole = SetOf(items)
        self.expect(r"\}")
        self.bars = bars
        return whole

    def matrix(self, environment: str) -> Node:
        if environment not in _MATRICES and environment not in _SYSTEMS:
            raise ParseError(environment)
        bars, self.bars, rows, row = self.bars, 0, [], []
        while True:
            if environment not in _MATRICES:  # a condition may follow "if"
                while self.at(",") or (self.peek()[0] == "text" and self.peek()[1].strip(" ,") in _AFTER_CASE):
                    word = self.take()[1].strip(" ,")
                    if word in ("otherwise", "else"):
                        row.append(Words("otherwise"))
            if self.peek()[0] not in ("end", "break") and not (row and isinstance(row[-1], Words)):
                row.append(self.item())
            if environment not in _MATRICES:
                self.accept(",")
            kind, value = self.take()
            if kind in ("break", "end") and row:
                rows.append((*row,))
                row = []
            if kind == "end":
                break
            if kind != "break" and (kind, value) != ("op", "&"):
                raise ParseError("matrix")
        self.bars = bars
        if len({*map(len, rows)}) != 1:
            raise ParseError("rows of different length")
        if len(rows) == len(rows[0]) == 1:
            return rows[0][0]
        if environment in _MATRICES:
            whole = Matrix((*rows,))
            return Function("det", whole) if environment == "vmatrix" else whole
        return Cases((*rows,))

    def big(self, kind: str) -> Node:
        sub, sup = self.scripts()
        body = self.product()
        if sub and isinstance(sub, Relation) and sub[1][0] == Constant("i"):  # the index i
            sub, body = (replaced(node, {Constant("i"): Symbol("i")}) for node in (sub, body))
        return Big(kind[1:], sub, sup, body)

    # Units.
    def unit_fraction(self) -> bool:
        r"""Whether \frac{m}{s} of words follows."""
        return self.at(r"\frac") and self.peek(1) == ("op", "{") and self.is_word(self.peek(2))

    @staticmethod
    def is_word(token: Token) -> bool:
        return token[0] == "text" and token[1] not in LINKS and token[1] not in _AFTER_CASE

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
                if not isinstance(exponent, Number) or exponent[1].denominator != 1 or abs(exponent[1]) > 9:
                    self.fail()
                spec += f"^{exponent[1]}"
            elif (self.at("/") or (spec and self.at("*"))) and self.names_unit(self.peek(1), spec):
                spec += ("/" if self.take()[1] == "/" else " ") + self.take()[1]
            else:
                return spec

    def names_unit(self, token: Token, before: str) -> bool:
        return self.is_word(token) or bool(before and token[0] in ("id", "fn") and unit_of(token[1]))


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
