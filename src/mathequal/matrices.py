r"""Whether expressions of letters that do not commute are equal: of matrices, vectors and elements of a group.

Each matrix is one of 3 × 3 random numbers modulo a prime, and each vector a column of three, so that A^{-1}b is not
bA^{-1}, and (AB)^{-1} is B^{-1}A^{-1}, whatever the letters.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from mathequal.budget import Budget, Unevaluable
from mathequal.nodes import Constant, Function, Negative, Node, Number, Power, Product, Quotient, Sum, Symbol
from mathequal.rational import exact, seed_of
from mathequal.trees import canonical, replaced, symbols, walk

_PRIME = 2**61 - 1
_SIZE = 3
_LARGEST_POWER = 200
_TRANSPOSES = {"T", "H"}
_GREEK = {"Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Upsilon", "Phi", "Psi", "Omega"}
_SCALAR, _VECTOR, _MATRIX, _IDENTITY = "scalar", "vector", "matrix", "identity"

_STATED = re.compile(
    r"\bmatri(?:x|ces|zen|z|ks)\b|матриц|矩阵|行列|\b(?:linear|bounded|self-adjoint|unitary) operators?\b",
    re.I,
)
_GROUP = re.compile(
    r"\b(?:in|of|on|be|is|for) (?:a|an|any|the|some|every|this)? ?(?:[\w-]+ )?(?:group|monoid)s?\b(?! of\b)|"
    r"\bgroup \$?[A-Z]\b|\bgroup (?:element|operation)s?\b"
)
_HINTED = re.compile(r"operator|transpos|invertible|inverse|\bgroup", re.I)
_COMMUTE = re.compile(r"(?i:\bcommut\w+|\babelian\b|\bdiagonal matrices\b)|\b([A-Za-z])([A-Za-z])\s*=\s*\2\1\b")
_DENIED = re.compile(r"\bnon-?\s?(?:commut|abelian)|\b(?:not|n't|never|necessarily) (?:\w+ )?commut", re.I)
_ENTRIES = re.compile(r"\\begin\{[pbBvV]?(?:matrix|array)\}.*?\\end\{[pbBvV]?(?:matrix|array)\}", re.S)
_SIZES = re.compile(
    r"([A-Z])\$?\s*(?:\\times|×|-?by-?|\bx\b)\s*\$?([A-Z])\$?(?=[\s-]+(?:[\w-]+ )?matri)|"
    r"(?:size|dimensions?|order)s? (?:is |are |of )?\$?([A-Z])\s*(?:\\times|×|by|x)\s*([A-Z])"
)
_NUMBERS = re.compile(
    r"\b(?:scalars?|constants?|numbers?|integers?|reals?) \$?([A-Z](?:\$?(?:,| and) \$?[A-Z])*)(?![A-Za-z])"
)
_BOLD = re.compile(r"\\(?:mathbf|boldsymbol|bm|pmb|bold)\s*\{?\s*([A-Za-z])(?![A-Za-z])")
_ARROW = re.compile(r"\\(?:vec|overrightarrow)\s*\{?\s*([a-z])(?![A-Za-z])|\bvectors? \$?\\?([a-z])(?![A-Za-z])")


class Matrices(NamedTuple):
    """What a question and a gold answer say of letters that may not commute."""

    stated: bool
    """Whether they say that there are matrices; else only an inverse or a transpose shows them."""
    group: bool = False
    """Whether small letters are elements of a group."""
    numbers: frozenset[str] = frozenset()
    """Capital letters that are numbers: the entries of a matrix, or its size."""
    vectors: frozenset[str] = frozenset()
    identity: bool = False
    """Whether I is the identity."""


@lru_cache(maxsize=1024)
def matrices_of(question: str, gold: str) -> Matrices | None:
    """What is said of letters that may be matrices; None if they are none."""
    bold = {*_BOLD.findall(gold)} if "\\b" in gold or "\\mathbf" in gold or "\\pmb" in gold else set[str]()
    words = question.strip(" ?")
    if words and _COMMUTE.search(words) and not _DENIED.search(words):
        return None
    stated = any(map(str.isupper, bold)) or (words != "" and _STATED.search(words) is not None)
    group = words != "" and "matri" not in words and _GROUP.search(words) is not None
    if words and not stated and not group and not _HINTED.search(words):
        return None
    numbers = {letter for found in _SIZES.findall(words) for letter in found}
    for found in (*_ENTRIES.findall(words), *_NUMBERS.findall(words)):
        numbers |= {*re.findall(r"(?<![\\A-Za-z])[A-Z]", found)}
    arrows = {letter for found in _ARROW.findall(words) for letter in found if letter}
    vectors = {letter for letter in bold | {*_BOLD.findall(words)} if letter.islower()} | arrows
    return Matrices(stated or group, group, frozenset(numbers), frozenset(vectors), "identity" in words)


def _is_capital(name: str) -> bool:
    return name[0].isupper() and (len(name) == 1 or name[1] in "_'" or name in _GREEK)


def _is_transpose(exponent: Node) -> bool:
    inner = exponent.inner if isinstance(exponent, Negative) else exponent
    return isinstance(inner, Symbol) and inner.name in _TRANSPOSES


def _begins_with_capital(base: Node) -> bool:
    first = base.factors[0] if isinstance(base, Product) else base
    return isinstance(first, Symbol) and _is_capital(first.name)


def _shows_a_matrix(node: Node) -> bool:
    """Whether a power is the inverse or the transpose of a capital letter or of a product that begins with one."""
    if not isinstance(node, Power):
        return False
    inverse = isinstance(node.exponent, Number) and node.exponent.value == -1
    return (inverse or _is_transpose(node.exponent)) and _begins_with_capital(node.base)


def _bases(node: Any) -> Iterator[str]:
    """The letters of an expression that are no sign of a transpose."""
    if isinstance(node, Symbol):
        yield node.name
    elif isinstance(node, Power) and _is_transpose(node.exponent):
        yield from _bases(node.base)
    elif isinstance(node, tuple):
        for part in node:
            yield from _bases(part)


def _vectors(node: Node) -> Iterator[str]:
    """Small letters that stand after a capital letter in a product, or are transposed."""
    for part in walk((node,)):
        if isinstance(part, Power) and isinstance(part.base, Symbol) and _is_transpose(part.exponent):
            yield part.base.name
        elif isinstance(part, Product):
            after = transposed = False
            for factor in part.factors:
                base = factor.base if isinstance(factor, Power) else factor
                if isinstance(factor, Symbol) and (after or transposed):
                    yield factor.name
                capital = isinstance(base, Symbol) and _is_capital(base.name)
                after |= capital or (isinstance(base, (Product, Sum)) and any(map(_is_capital, symbols(base))))
                transposed |= isinstance(factor, Power) and _is_transpose(factor.exponent)


def _has_identity(node: Node) -> bool:
    """Whether I is a term of a sum, as in I − A."""
    for part in walk((node,)):
        if isinstance(part, Sum):
            for term in part.terms:
                inner = term.inner if isinstance(term, Negative) else term
                last = inner.factors[-1] if isinstance(inner, Product) else inner
                if last == Symbol("I"):
                    return True
    return False


def _divides_by_a_matrix(node: Node, kinds: Mapping[str, str]) -> bool:
    return any(
        isinstance(part, Quotient) and any(kinds.get(name) == _MATRIX for name in symbols(part.bottom))
        for part in walk((node,))
    )


def _kinds(gold: Node, answer: Node, said: Matrices) -> dict[str, str] | None:
    """What each letter is; None if all of them commute."""
    letters = {*_bases(gold)}
    if not said.group and not any(map(_is_capital, letters)):
        return None
    small = said.vectors | ({*_vectors(gold)} if not said.group else set[str]())
    kinds = dict[str, str]()
    for name in letters | {*_bases(answer)}:
        capital = _is_capital(name) and name not in said.numbers
        if capital or (said.group and len(name) == 1 and name not in "nmk"):
            kinds[name] = _MATRIX
        else:
            kinds[name] = _VECTOR if name in small and name[0].islower() else _SCALAR
    apart = [name for name, kind in kinds.items() if kind != _SCALAR]
    transposed = any(isinstance(part, Power) and _is_transpose(part.exponent) for part in walk((gold, answer)))
    if not any(kind == _MATRIX for kind in kinds.values()) or len(apart) + transposed < 2:
        return None
    if _divides_by_a_matrix(gold, kinds):
        return None
    if not said.stated and (len(apart) < len(kinds) or not any(map(_shows_a_matrix, walk((gold, answer))))):
        return None
    if "I" in kinds and (said.identity or (said.stated and _has_identity(gold))):
        kinds["I"] = _IDENTITY
    return kinds


def equal_as_matrices(gold: Node, answer: Node, said: Matrices, budget: Budget) -> bool | None:
    """Whether two expressions are equal although their letters may not commute; None if their letters commute."""
    kinds = _kinds(gold, answer, said)
    if kinds is None:
        return None
    for known in (kinds, {name: _MATRIX if kind == _VECTOR else kind for name, kind in kinds.items()}):
        values = [_Values(known, point, budget) for point in range(2)]
        with suppress(Unevaluable):
            golds = [value(gold) for value in values]
            try:
                equal = golds == [value(answer) for value in values]
            except _NoProduct:
                equal = False
            return True if equal else None if any(value.opaque for value in values) else False
    return canonical(gold, "+") == canonical(answer, "+")


class _NoProduct(Unevaluable):
    """A product or a sum of matrices whose sizes do not fit, or the inverse of one that has none."""


_Rows = tuple[tuple[int, ...], ...]
_UNIT: _Rows = tuple(tuple(int(row == column) for column in range(_SIZE)) for row in range(_SIZE))


class _Values:
    """The value of an expression at a random point, modulo a prime: a number or the rows of a matrix."""

    def __init__(self, kinds: Mapping[str, str], point: int, budget: Budget) -> None:
        self.kinds, self.point, self.budget = kinds, point, budget
        self.opaque = False
        """Whether a part was a letter of its own, so that equal expressions may have different values."""

    def __call__(self, node: Any) -> Any:
        self.budget.spend()
        match node:
            case Number(value):
                return value.numerator * pow(value.denominator, -1, _PRIME) % _PRIME
            case Symbol(name):
                return self.letter(name)
            case Negative(inner):
                return _times(_PRIME - 1, self(inner))
            case Sum(terms):
                total = self(terms[0])
                for term in terms[1:]:
                    total = _plus(total, self(term))
                return total
            case Product(factors):
                value: Any = 1
                for factor in factors:
                    value = _times(value, self(factor))
                return value
            case Quotient(top, bottom):
                return _times(self(top), _inverse(self(bottom)))
            case Power(base, exponent):
                return self.power(base, exponent)
            case Function("det" | "abs", [inner]) if isinstance(rows := self(inner), tuple):
                return _determinant(rows)
        return self.part(node)

    def letter(self, name: str) -> Any:
        kind = self.kinds.get(name, _SCALAR)
        if kind == _IDENTITY:
            return _UNIT
        if kind == _SCALAR:
            return 3 + seed_of(name, self.point) % 7
        columns = _SIZE if kind == _MATRIX else 1
        return tuple(
            tuple(seed_of(name, (self.point, row, column)) % _PRIME for column in range(columns))
            for row in range(_SIZE)
        )

    def power(self, base: Node, exponent: Node) -> Any:
        value = self(base)
        if _is_transpose(exponent):
            value = tuple(zip(*value, strict=True)) if isinstance(value, tuple) else value
            return _inverse(value) if isinstance(exponent, Negative) else value
        if any(self.kinds.get(name, _SCALAR) != _SCALAR for name in symbols(exponent)):
            raise Unevaluable("a power with a matrix")
        at = {Symbol(name): Number(3 + seed_of(name, self.point) % 7, "int") for name in symbols(exponent)}
        power = exact(replaced(exponent, at) if at else exponent)
        if power is None or power.denominator != 1 or abs(power) > _LARGEST_POWER:
            return self.part(Power(base, exponent))
        if isinstance(value, int):
            return pow(value, int(power), _PRIME) if value else 0
        value = _inverse(value) if power < 0 else value
        result: Any = 1
        for _ in range(abs(int(power))):
            result = _times(result, value)
        return result if power else _UNIT

    def part(self, node: Any) -> int:
        """A part without matrices as a letter of its own."""
        if any(self.kinds.get(name, _SCALAR) != _SCALAR for name in symbols(node)) or not isinstance(node, Node):
            raise Unevaluable("matrices")
        self.opaque |= not isinstance(node, Constant) or node.name == "i"
        return seed_of(canonical(node), self.point) % _PRIME


def _plus(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        return (left + right) % _PRIME
    left, right = (_times(value, _UNIT) if isinstance(value, int) else value for value in (left, right))
    if (len(left), len(left[0])) != (len(right), len(right[0])):
        raise _NoProduct("sizes")
    return tuple(tuple((x + y) % _PRIME for x, y in zip(*rows, strict=True)) for rows in zip(left, right, strict=True))


def _times(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        return left * right % _PRIME
    if isinstance(left, int):
        return _scaled(left, right)
    if isinstance(right, int):
        return _scaled(right, left)
    if len(left[0]) != len(right):
        raise _NoProduct("sizes")
    columns = [*zip(*right, strict=True)]
    rows = tuple(
        tuple(sum(x * y for x, y in zip(row, column, strict=True)) % _PRIME for column in columns) for row in left
    )
    return rows[0][0] if len(rows) == len(rows[0]) == 1 else rows


def _scaled(factor: int, rows: _Rows) -> _Rows:
    return tuple(tuple(factor * x % _PRIME for x in row) for row in rows)


def _determinant(rows: _Rows) -> int:
    if len(rows) != _SIZE or len(rows[0]) != _SIZE:
        raise _NoProduct("sizes")
    (a, b, c), (d, e, f), (g, h, i) = rows
    return (a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)) % _PRIME


def _inverse(value: Any) -> Any:
    if isinstance(value, int):
        if value % _PRIME == 0:
            raise _NoProduct("division by zero")
        return pow(value, -1, _PRIME)
    scale = _inverse(_determinant(value))
    (a, b, c), (d, e, f), (g, h, i) = value
    adjugate = (
        (e * i - f * h, c * h - b * i, b * f - c * e),
        (f * g - d * i, a * i - c * g, c * d - a * f),
        (d * h - e * g, b * g - a * h, a * e - b * d),
    )
    return _scaled(scale, adjugate)
