"""Quantities: a number with its unit, its scale, or the words for what it counts."""

import re
from collections.abc import Sequence
from fractions import Fraction

from mathequal.answers import Answer, Expression, Quantity, Value
from mathequal.languages import scale_of
from mathequal.nodes import Degrees, Measured, Negative, Node, Number, Percent
from mathequal.rational import exact
from mathequal.text import word_list
from mathequal.trees import are_expressions, holds, integer_node, scaled_node, times
from mathequal.units import Unit, counts_things, read_unit

_MEASURED = {*word_list("old long tall wide high deep")}
_DEGREES = {"C": "celsius", "F": "fahrenheit", "CELSIUS": "celsius", "FAHRENHEIT": "fahrenheit", "K": "kelvin"}
_POUND_STERLING: Unit = ((("GBP", 1),), Fraction(1))


def quantity_of(value: Node, words: tuple[str, ...]) -> Value | None:
    """A value with the words after it, as a quantity or as a number with a scale; None if the words are neither."""
    if isinstance(value, Measured) and re.match("per$|an?$|/", value.words[0]):  # $5 per hour
        value, words = value.value, (*words, *re.sub("^an? ", "per ", " ".join(value.words)).split())
    if isinstance(value, Measured) and isinstance(inner := quantity_of(value.value, value.words), Expression):
        value = inner.value  # $5 million
    if isinstance(value, Negative) and isinstance(value.inner, Degrees):
        value = Degrees(Negative(value.inner.inner))
    if isinstance(value, Degrees):
        if words[0].upper() not in _DEGREES:
            return None
        value, words = value.inner, (_DEGREES[words[0].upper()], *words[1:])
    while words and (scale := scale_of(words[0])):  # 5 million
        size, rest = scale
        value = scaled_node(value, size) if isinstance(value, Number) else times(value, integer_node(size))
        words = (rest, *words[1:]) if rest else words[1:]
    if not are_expressions(value) or holds(value, Percent):
        return None
    if not words:
        return Expression(value)
    if unit := read_unit(words[:-1] if words[1:] and words[-1] in _MEASURED else words):
        money = (Quantity(value, _POUND_STERLING),) if words in (("pound",), ("pounds",)) else ()
        return Quantity(value, unit, others=money)
    return Quantity(value, words=words) if counts_things(words) else None


def compound(parts: Sequence[Answer]) -> Quantity | None:
    """5 ft 6 in: quantities of one dimension, the units ever smaller."""
    known = [(x.unit, exact(x.value)) for x in parts if isinstance(x, Quantity) and x.unit]
    read = [(*unit, value) for unit, value in known if value is not None]
    factors = [factor for _, factor, _ in read]
    if len(read) < len(parts) or len({name for name, _, _ in read}) > 1 or factors != sorted({*factors}, reverse=True):
        return None
    total = sum((factor * value for _, factor, value in read), Fraction(0))
    return Quantity(Number(total, "int"), (read[0][0], Fraction(1)))
