r"""Golds that say something else to the judge than to a reader: words read as products of letters, one value in two
writings, choices whose list is nowhere.
"""

import re
from functools import lru_cache

from mathequal.answers import Answer, Chain, Code, Letters, Text, letters_of
from mathequal.judge import compare
from mathequal.reading import read
from mathequal.trees import symbols

_IN_TEXT = re.compile(r"\\(?:text\w*|mathrm|mbox|rm|hbox|mathbf|operatorname)\s*\{[^{}]*\}|\\[A-Za-z]+")
_WORD = re.compile(
    r"(?<![A-Za-z])(?:[A-Za-z]?[a-z]{4,}|[A-Z][a-z]{3}|(?i:and|any|are|but|for|has|let|not|the|two|was|when|with|"
    r"than|that|then|this|yes|none|both|only))(?![A-Za-z])|"
    r"(?<![A-Za-z\d])(?:[Aa][st]|[Ii][st]|[Nn][or]|[Oo][efr]|so|to)(?![A-Za-z])"
)
"""Words: four letters of xyzw are as many factors, and of most words a fifth letter or a list makes sure."""
_AMBIGUOUS = re.compile(
    r"-?\d[\d.,]*\s+\((?:\d{1,2}|[A-H])\)|"  # times 2, or a remark
    r"\d+(?:\.\d+)?\s?[-\u2013]\s?\d+(?:\.\d+)?|"  # a range, a score or a difference
    r"\d+-\d+/\d+|"  # a mixed number, or a difference
    r".*~~.*"  # struck out
)
_OF_SHEETS = re.compile(
    r"-?\d\.\d{5}E\+\d\d|"  # of which digits are lost
    r"\d{1,2}-(?:M)(?:-\d{2,4})?|(?:M)-\d{2,4}|0\d:\d\d:\d\d|\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d.*)?".replace(
        "M", "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
    )
)
_BETWEEN = re.compile(r",\s+(?=[a-z]{3})|\s+[/|]\s+|\s*;\s*|\s+(?:or|aka|i\.e\.|meaning)\s+|\s*\n\s*|\s*=\s*")
_NUMBER = re.compile(r"-?\$?\d")
_ABOVE = re.compile(
    r"(?:none|all|any|some|both|neither|each|either|two|one)(?: of)?(?: the)? "
    r"(?:above|these|those|choices|options|others?)\W*",
    re.I,
)
_CHOICES = re.compile(r"(?<![A-Za-z])\(?B\s*\\?[).:\]}]")
_DECIMAL = re.compile(r"(?:[A-Za-z]\w{0,3} ?= ?)?[-+−]?(?:0,\d{1,9}|\d{0,8}[1-9],\d0)")
_ASKS_FOR_ONE = re.compile(
    r"\b(?:how (?:much|long|far|old|tall|fast|large|wide|deep|high|heavy)|what is|calculate|compute|evaluate|"
    r"find the|determine the|work out|convert|write|express|berechne|wie (?:viel|lang|weit|gro(?:ß|ss)|hoch|schwer)|"
    r"combien|calcule|cu[aá]nto|quanto|calcola|oblicz|ile|hur|hoeveel|bereken|spočítej|kolik|számítsd)\b|сколько|вычисл|найдите",
    re.I,
)
_ASKS_FOR_SEVERAL = re.compile(
    r"\b(?:all|both|values|solutions?|solve|roots?|zeros?|numbers|pairs?|list|integers|intercepts?|which|two|three|points?|"
    r"coordinates?|and|"
    r"endpoints|respectively|interval|range|domain|vector|set|tuple|factors|lösung\w*|alle|löse)\b",
    re.I,
)
_LETTERED = re.compile(r"[A-Z]\s*[.:)]\s*(?P<answer>\S.*)", re.S)
_COUNTED = re.compile(r"(-?\d[\d.,/]*) \(([a-z]{3,}(?: [a-z]+){0,3})\)")
_NAME = re.compile(r"[A-Z][a-z]+ #?\d+[A-Za-z]?(?: [a-z]+)?\.?")


@lru_cache(maxsize=4096)
def split_words(gold: str) -> str:
    """The first word of a gold whose letters are factors to the judge, as in "15 because it is"; "" without one."""
    words = _WORD.findall(_IN_TEXT.sub(" ", gold))
    letters = _letters(read(gold)) if words else set()
    constants = {"e", "i", "d"} if letters else set()
    return next((word for word in words if set(word) - constants <= letters and set(word) & letters), "")


def _letters(answer: Answer | None) -> set[str]:
    """The names of all symbols in an answer."""
    if answer is None or isinstance(answer, (Text, Letters)):
        return set()
    sides = answer.sides if isinstance(answer, Chain) else ()
    own = letters_of(answer) | symbols(sides) | symbols(answer.name)
    return own.union(*map(_letters, (*answer.items, *answer.others)))


@lru_cache(maxsize=4096)
def written_twice(gold: str) -> str:
    """The first of several writings of one value, as in "15 / fifteen" and "1/2 or 0.5"; "" for another gold."""
    first, *copies = [part.strip() for part in _BETWEEN.split(gold)]
    if not copies or len(copies) > 3 or not all((first, *copies)) or not _NUMBER.match(first + copies[0]):
        return ""
    return first if all(compare(first, copy).equal and compare(copy, first).equal for copy in copies) else ""


@lru_cache(maxsize=4096)
def counted_in_brackets(gold: str) -> str:
    """The number of "7 (apples)", where the words behind it do not change its value; "" for another gold."""
    found = _COUNTED.fullmatch(gold.strip())
    return found[1] if found and compare(found[1], f"{found[1]} {found[2]}").equal else ""


def is_name(gold: str) -> bool:
    """Whether a gold is a name with a number, as "Team 2" or "Player 2 wins", which only the same text equals."""
    return _NAME.fullmatch(gold.strip()) is not None and split_words(gold) != ""


def is_ambiguous(gold: str) -> bool:
    """Whether a gold may mean several values: "15 (2)", a product or a remark; "14-16", a range or a difference."""
    return _AMBIGUOUS.fullmatch(gold.strip()) is not None and not is_code(gold)


def is_of_a_sheet(gold: str) -> bool:
    """Whether a gold is a date, a time or a long number as spreadsheets write them: 2-Jan, perhaps 1/2; 1.23457E+11."""
    return _OF_SHEETS.fullmatch(gold.strip()) is not None


def is_code(gold: str) -> bool:
    """Whether the judge reads a gold as a code: a telephone number, or a date whose order of day and month is
    unknown."""
    answer = read(gold)
    return isinstance(answer, Code)


def is_decimal_comma(gold: str, question: str) -> bool:
    """Whether a gold is rather a number with a decimal comma than two numbers, as 0,5 and 3,50 are, and the question
    asks for one value."""
    if not _DECIMAL.fullmatch(gold.strip(" $.")):
        return False
    return _ASKS_FOR_ONE.search(question) is not None and not _ASKS_FOR_SEVERAL.search(question)


def lists_choices(question: str) -> bool:
    """Whether a question lists choices with letters."""
    return _CHOICES.search(question) is not None


def is_unlisted_choice(gold: str, question: str) -> bool:
    """Whether a gold refers to choices, "none of the above", that the question does not list."""
    return _ABOVE.fullmatch(gold.strip(" .")) is not None and not lists_choices(question)


def of_lettered(gold: str, question: str) -> str:
    """The value of "B. 15", where the question lists no choices: a response cannot know the letter; "" otherwise."""
    lettered = _LETTERED.fullmatch(gold.strip())
    return lettered["answer"] if lettered and not lists_choices(question) else ""
