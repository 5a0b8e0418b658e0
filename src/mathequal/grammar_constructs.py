r"""Constructs of LaTeX that begin with a sign or a command: brackets, sets, matrices, functions, sums over an index."""

import re

from mathequal.grammar_units import AFTER_CASE, UnitParser
from mathequal.nodes import (
    Big,
    Brackets,
    Call,
    Cases,
    Constant,
    Function,
    Matrix,
    Measured,
    NamedSet,
    Node,
    Power,
    Relation,
    SetOf,
    Symbol,
    Where,
    Words,
)
from mathequal.text import word_list
from mathequal.tokens import CURRENCIES, SETS
from mathequal.trees import ParseError, fraction, integer_node, replaced, signed, times

_INVERSE = {name: f"arc{name}" for name in word_list("sin cos tan cot sec csc")}
BIG = (r"\sum", r"\prod", r"\int", r"\oint", r"\lim")
_MATRICES = {*word_list("pmatrix bmatrix matrix vmatrix smallmatrix Bmatrix array")}
_SYSTEMS = {*word_list("cases aligned align gathered gather equation split")}


class ConstructParser(UnitParser):
    """Reads constructs."""

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
            case _ if operator in BIG:
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
            arguments = inner.items if isinstance(inner, SetOf) else (inner,)
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
                while self.at(",") or (self.peek()[0] == "text" and self.peek()[1].strip(" ,") in AFTER_CASE):
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
        if sub and isinstance(sub, Relation) and sub.sides[0] == Constant("i"):  # the index i
            sub, body = (replaced(node, {Constant("i"): Symbol("i")}) for node in (sub, body))
        return Big(kind[1:], sub, sup, body)
