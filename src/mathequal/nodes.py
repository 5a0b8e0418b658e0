r"""The tree of an answer's mathematics: one class for each construct of the grammar, and what one can ask of a tree.

A node is a tuple of its class's sign and its parts, so that nodes are built, compared and hashed at the speed of
tuples, and nodes of two classes are never equal. Code asks for classes and fields.
"""

from fractions import Fraction
from operator import itemgetter
from typing import Any, ClassVar, Self


class Node(tuple[Any, ...]):
    """A construct of mathematics. A subclass names its sign, which no other class has, and its fields, of which the
    last one holds all further parts if the class is variadic."""

    __slots__ = ()
    sign: ClassVar[str] = ""
    __match_args__: tuple[str, ...] = ()

    def __init_subclass__(cls, sign: str, variadic: bool = False) -> None:
        cls.sign = sign
        for place, name in enumerate(cls.__match_args__, 1):
            rest = variadic and place == len(cls.__match_args__)
            setattr(cls, name, property(itemgetter(slice(place, None) if rest else place)))

    def __new__(cls, *parts: Any) -> Self:
        return tuple.__new__(cls, (cls.sign, *parts))

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.parts

    @property
    def parts(self) -> tuple[Any, ...]:
        """Everything but the sign."""
        return self[1:]

    def with_parts(self, parts: Any) -> Self:
        """A node of this class with other parts."""
        return tuple.__new__(type(self), (self[0], *parts))


class Number(Node, sign="n"):
    """A number as it is written."""

    __slots__ = ()
    __match_args__ = ("value", "form")
    value: Fraction
    form: str
    """int, dec, frac, mixed, rep, sci (a × 10^n), ten (a power of ten), scaled (6 million), or "" for one that nobody
    wrote."""

    @property
    def detail(self) -> int | None:
        """The exponent of the last digit of a decimal number, or what a fraction can be reduced by, if it is known."""
        return self[3] if len(self) > 3 else None

    @property
    def power(self) -> int | None:
        """The n of a × 10^n."""
        return self[4] if len(self) > 4 else None


class Symbol(Node, sign="s"):
    """A letter or a name, with its subscript and primes."""

    __slots__ = ()
    __match_args__ = ("name",)
    name: str


class Constant(Node, sign="c"):
    """One of pi, e, i and inf."""

    __slots__ = ()
    __match_args__ = ("name",)
    name: str


class Sum(Node, sign="+", variadic=True):
    """The sum of two or more terms."""

    __slots__ = ()
    __match_args__ = ("terms",)
    terms: tuple[Any, ...]


class Product(Node, sign="*", variadic=True):
    """The product of two or more factors."""

    __slots__ = ()
    __match_args__ = ("factors",)
    factors: tuple[Any, ...]


class Quotient(Node, sign="/"):
    """A quotient that is not a number written as a fraction."""

    __slots__ = ()
    __match_args__ = ("top", "bottom")
    top: Any
    bottom: Any


class Power(Node, sign="^"):
    """A power."""

    __slots__ = ()
    __match_args__ = ("base", "exponent")
    base: Any
    exponent: Any


class Negative(Node, sign="-"):
    """The opposite of an expression."""

    __slots__ = ()
    __match_args__ = ("inner",)
    inner: Any


class PlusMinus(Node, sign="pm"):
    """An expression after ± (p) or ∓ (m)."""

    __slots__ = ()
    __match_args__ = ("inner", "which")
    inner: Any
    which: str


class Factorial(Node, sign="!"):
    """n!."""

    __slots__ = ()
    __match_args__ = ("inner",)
    inner: Any


class DoubleFactorial(Node, sign="!!"):
    """n!!."""

    __slots__ = ()
    __match_args__ = ("inner",)
    inner: Any


class Percent(Node, sign="%"):
    """A number of hundredths."""

    __slots__ = ()
    __match_args__ = ("inner",)
    inner: Any


class Degrees(Node, sign="deg"):
    """A number of degrees of angle."""

    __slots__ = ()
    __match_args__ = ("inner",)
    inner: Any


class Function(Node, sign="f", variadic=True):
    """A function that the judge knows: sqrt, sin, log, abs, binom."""

    __slots__ = ()
    __match_args__ = ("name", "arguments")
    name: str
    arguments: tuple[Any, ...]


class Call(Node, sign="call", variadic=True):
    """A function that the question names: f(x)."""

    __slots__ = ()
    __match_args__ = ("name", "arguments")
    name: str
    arguments: tuple[Any, ...]


class Brackets(Node, sign="seq"):
    """Items in brackets: a point, a vector, an interval."""

    __slots__ = ()
    __match_args__ = ("opens", "items", "closes")
    opens: str
    items: tuple[Any, ...]
    closes: str


class SetOf(Node, sign="set"):
    """A set by its members."""

    __slots__ = ()
    __match_args__ = ("items",)
    items: tuple[Any, ...]


class Matrix(Node, sign="matrix"):
    """The rows of a matrix."""

    __slots__ = ()
    __match_args__ = ("rows",)
    rows: tuple[Any, ...]


class Cases(Node, sign="cases"):
    """The rows of a piecewise function or of a system."""

    __slots__ = ()
    __match_args__ = ("rows",)
    rows: tuple[Any, ...]


class Where(Node, sign="where"):
    """A set by a condition, with what connects the conditions."""

    __slots__ = ()
    __match_args__ = ("item", "conditions", "links")
    item: Any
    conditions: tuple[Any, ...]
    links: tuple[Any, ...]


class Relation(Node, sign="rel"):
    """A chain of equations or inequalities; the first side may be None."""

    __slots__ = ()
    __match_args__ = ("sides", "operators")
    sides: tuple[Any, ...]
    operators: tuple[str, ...]


class Modulo(Node, sign="mod"):
    """An expression or a congruence with its modulus."""

    __slots__ = ()
    __match_args__ = ("inner", "modulus")
    inner: Any
    modulus: Any


class SetOperation(Node, sign="setop"):
    """A union (cup), an intersection (cap) or a difference (minus) of sets."""

    __slots__ = ()
    __match_args__ = ("operator", "left", "right")
    operator: str
    left: Any
    right: Any


class NamedSet(Node, sign="named"):
    """R, Z, Q, C or N, with its sign as R>0; 0 is the empty set."""

    __slots__ = ()
    __match_args__ = ("name",)
    name: str


class Ratio(Node, sign="ratio"):
    """a : b."""

    __slots__ = ()
    __match_args__ = ("terms",)
    terms: tuple[Any, ...]


class Words(Node, sign="text"):
    """Words in place of mathematics."""

    __slots__ = ()
    __match_args__ = ("words",)
    words: str


class Measured(Node, sign="unit"):
    """A value with the words after it: a unit, or what is counted."""

    __slots__ = ()
    __match_args__ = ("value", "words")
    value: Any
    words: tuple[str, ...]


class Measures(Node, sign="units", variadic=True):
    """Values with units that are one quantity: 5 ft 6 in."""

    __slots__ = ()
    __match_args__ = ("quantities",)
    quantities: tuple[Any, ...]


class Big(Node, sign="big"):
    """A sum, product, integral or limit (sum, prod, int, lim) with what is below and above its sign."""

    __slots__ = ()
    __match_args__ = ("kind", "sub", "sup", "body")
    kind: str
    sub: Any
    sup: Any
    body: Any


class Event(Node, sign="event"):
    """What a probability or an expected value is of: the name of P(A) = 1/2."""

    __slots__ = ()
    __match_args__ = ("text",)
    text: str


PI, INFINITY, IMAGINARY = Constant("pi"), Constant("inf"), Constant("i")
MINUS_INFINITY = Negative(INFINITY)
