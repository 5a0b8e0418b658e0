r"""The units that a question asks for or speaks of, so that an answer to a gold answer without a unit has one of them.

What is its average speed in km/h?          80 km/h, not 80 m/s, 80 km or 80 kg
Convert 72 km/h to m/s.                     20 m/s, not 20 km/h
How many minutes does it take?              12 minutes, not 12 hours
A car drives 240 km in 3 hours. How fast?   80 km/h, not 80 m/s and not 80 kg
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

from mathequal.beside_units import unit_beside
from mathequal.text import word_list
from mathequal.units import DEGREE, PERCENT, UNITS, Unit, is_spelled_unit, read_unit, unit_of

_SENTENCES = re.compile(r"(?<=[.?!])(?<!\bsq\.)(?<!\bcu\.)\s+(?=[A-Z$\\])|\n+")
_ASKS = re.compile(
    r"\b(?:what|how|which|find|determine|calculate|compute|evaluate|give|express|write|convert|change|rewrite|report|"
    r"state|round|leave|answers?|estimate|solve|measure)\b",
    re.I,
)
"""Words with which a sentence asks. What precedes them tells what is given: "If its height in feet is …, when …?"."""
_NAMES_UNIT = re.compile(
    r"\bhow many (?=[A-Za-z$\\])|[\s(](?:in|as) (?:units of )?(?:the nearest )?(?=[A-Za-z$\\%])|"
    r"\b(?:nearest|number of) (?:(?:whole|tenth|hundredth|thousandth) (?:of an? )?)?(?=[A-Za-z$\\])|"
    r"\b(?:what|which) (?=percent)",
    re.I,
)
_CONVERTS_TO = re.compile(
    r"(?:^|[.:;,(\d]\s*|\band |\bplease |\b(?:can|should|must) you )"
    r"(?:convert|change|rewrite|express|transform)\w*\b[^?!]{1,80}?\b(?:in)?to (?=[A-Za-z$\\%])",
    re.I,
)
_TELLS = re.compile(r"\s*(?:is|was|are|were|equals|has|have|varies|after|when given)\b", re.I)
"""What follows the unit of a quantity that is given: the height in feet is 16t."""
_NUMBERED = re.compile(r"\d\s*$")
_PERCENT_WORDS = re.compile(r"\s*\\?(?:%|per ?cent(?:age)?s?\b)", re.I)
_TEMPERATURES = ((("TC", 1),), (("TF", 1),))
_MONEY = {"USD", "EUR", "GBP", "INR", "CNY"}
_FREE = {*_MONEY, "U", "A", "R", "T", "TC", "TF", "K"}
"""Dimensions that an answer may have though no unit of the question has them: money, angles, ages and dates."""


@lru_cache(maxsize=1024)
def units_asked(question: str) -> frozenset[Unit]:
    """The units in which a question asks for its answer; none if it does not say."""
    return frozenset(_asked(question)) if " " in question else frozenset()


def _asked(question: str) -> Iterator[Unit]:
    plain = question.replace("~", " ")
    for sentence in _SENTENCES.split(plain):
        asks = _ASKS.search(sentence)
        if not asks:
            continue
        for pattern, since in ((_NAMES_UNIT, max(0, asks.start() - 1)), (_CONVERTS_TO, 0)):
            for place in pattern.finditer(sentence, since):
                after = sentence[place.end() : place.end() + 60]
                if _PERCENT_WORDS.match(after):
                    yield (PERCENT, Fraction(1))
                    continue
                words = unit_beside(after)
                if not words:
                    continue
                given = place[0].strip(" (").lower().startswith("in") and _tells(after, words)
                unit = None if given or _NUMBERED.search(sentence[: place.start()]) else read_unit(words.split())
                if unit and unit[0] and unit[0][0][0] != "U":  # square units are of any size
                    yield unit


def _tells(after: str, words: str) -> bool:
    """Whether what follows a unit says that the quantity in this unit is given."""
    last = re.split(r"[\s/]", words)[-1].partition("^")[0]
    return _TELLS.match(after.rpartition(last)[2].lstrip("}$^0123456789{ ")) is not None


_IN_QUESTION = re.compile(
    r" ?(\d|\bin (?=[A-Za-z]{1,2}\b)|\\(?:text|mathrm|mbox|rm) ?\{)?(?: |\\(?:text|mathrm|mbox|rm) ?\{)*"
    r"\\?(%|\$|[^\W\d_]+)"
)  # words, and what before one says that it is a unit
_OTHER_MEANINGS = {*word_list("in second degree degrees unit units")}


@lru_cache(maxsize=1024)
def _units_named(question: str) -> frozenset[Unit]:
    """The units that a question has anywhere."""
    plain = " ".join(re.sub(r"~|\\[,;]", " ", question).split())
    return frozenset(
        unit
        for mark, word in _IN_QUESTION.findall(plain)
        if (mark or word in "%$" or (is_spelled_unit(word) and word.lower() not in _OTHER_MEANINGS))
        and (unit := unit_of("dollar" if word == "$" else word))
    )


def _is_rate(unit: Unit, asked: Unit) -> bool:
    """Whether a unit is a currency that is asked for, per something: dollars per month."""
    rest = [(dimension, power) for dimension, power in unit[0] if (dimension, power) not in asked[0]]
    per = {factor for powers, factor in UNITS.values() if rest == [(powers[0][0], -1)] and len(powers) == 1}
    return asked[0][0][0] in _MONEY and len(rest) < len(unit[0]) and asked[1] / unit[1] in per


@lru_cache(maxsize=1024)
def fits_question(unit: Unit, question: str) -> bool:
    """Whether a number of the question may have a unit that the gold answer leaves out: one of those that the question
    asks for, or else one of its own; a percentage is asked for by name. True if there is no question."""
    powers, factor = unit
    if not re.search(r"[^\W\d_]{2}", question):
        return True
    if asked := units_asked(question):
        degrees = powers in _TEMPERATURES and (DEGREE, Fraction(1)) in asked
        return unit in asked or degrees or any(_is_rate(unit, own) for own in asked)
    named = _units_named(question)
    dimensions = {dimension for own, _ in named for dimension, _ in own}
    if dimensions - {"PCT"} and not {dimension for dimension, _ in powers} <= dimensions | _FREE | {"PCT"}:
        return False
    if len(powers) != 1:
        return True
    [(dimension, power)] = powers
    ways: dict[object, int] = {powers: 1, ((dimension, 1),): power}  # an area is measured in m² or in m
    sizes = {own[1] ** ways[own[0]] for own in named if own[0] in ways}
    return factor in sizes or not (sizes or powers == PERCENT)
