"""The formulas of a question: those between dollar signs, or, without any, what looks like mathematics."""

import re
from functools import lru_cache

from mathequal.answers import Answer
from mathequal.extract import FORMULA
from mathequal.reading import read
from mathequal.text import bare_text, word_list

_MOST_FORMULAS = 20
_FORMULA_WORD = re.compile(
    r"(?:\\[A-Za-z]+|(?<![A-Za-z])(?:a?(?:sin|cos|tan|cot|sec|csc)h?|arc(?:sin|cos|tan)|log|ln|sqrt|lim|exp|pi|abs|[A-Za-z]{1,2})"
    r"(?![A-Za-z])|[^A-Za-z])+"
)
_OPERATION = re.compile(r"[-+*/^=<>|()\\\u00d7\u00f7\u221a]|\d[A-Za-z]|\u00b2|\u00b3")
_PROSE = {*word_list("a I is of to in at by it an as or on if be we do so no my he me us am up A")}


@lru_cache(maxsize=256)
def formulas_of(question: str) -> tuple[tuple[str, Answer], ...]:
    """The formulas of a question, as text and as typed values."""
    texts = ["".join(found.groups("")) for found in FORMULA.finditer(question)] or _plain_formulas(question)
    texts = texts[:_MOST_FORMULAS]
    return tuple((bare_text(text), typed) for text in texts if (typed := read(text)))


def _plain_formulas(question: str) -> list[str]:
    """The formulas of a question that stand without dollar signs: runs of signs, numbers, letters and functions."""
    found, run = list[str](), list[str]()
    for word in [*question.split(), "."]:
        whole = _FORMULA_WORD.fullmatch(word) is not None
        if whole and word not in _PROSE:
            run.append(word)
        if not whole or word in _PROSE or word[-1] in ".,:;?":
            text = " ".join(run).rstrip(".,:;?")
            if len(text) > 2 and _OPERATION.search(text):
                found.append(text)
            run = []
    return found
