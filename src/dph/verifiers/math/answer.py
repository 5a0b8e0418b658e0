"""Finds the answer in a mathematical response."""

import re
from typing import Literal

Decimals = Literal["exact", "rounded"]
Fallback = Literal["none", "phrase", "last_number", "library"]

_BOX = re.compile(r"\\f?box(?:ed)?\s*(?=\{)|\\boxed\s+(?!\\f?box)(?P<bare>[^\s{}$]+)")
_BEFORE = re.compile(r"(?:[=$(&]|\\[(\[])\s*(-?\d{1,9}|-)\s*$")
_AFTER = re.compile(r"\^(?:\{[^{}]*\}|\w)|\\%|\d{1,9}|(?:!|[-+]\d{1,9})(?=\s*(?:\$|\\[)\]]))")
_MOST_BOXES = 20
_SAME_LINE = re.compile(
    r"(?:[ $,;]|\\[()]|\\q?quad|\\\\|\\lor|\\land|\\(?:text|mathrm|mbox)\s*\{[ ,]*(?:and|or)?[ ,]*\}|"
    r"\b(?:and|or|maybe|perhaps)\b)*",
    re.I,
)
_PHRASE = re.compile(r"answer\s{0,3}(?:is|:)|####", re.I)
FORMULA = re.compile(r"\s*(?:\$\$?([^$]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\])", re.S)
_CLAUSE = re.compile(
    r"\.(?=\s|$)|\n|[,;]?\s(?:because|since|which|as|so|where|thus|hence|by)\b|[,;]\s(?:and|but)\s(?=[a-z])"
)
_LAST_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+)?")


def find_answer(response: str, fallback: Fallback = "none") -> str | None:
    r"""The answer of a response: the content of its last \boxed{…}, braces balanced, or of several boxes in one line.

    None if there is no box, or the last one is empty or never closed. fallback: what is read without a box.
    "phrase": what follows the last "answer is", "answer:" or "####": the formula that follows at once, or else the
    words up to the end of the clause; "last_number": this, or else the last number.
    """
    boxes, parts = [*_BOX.finditer(response)], list[str | None]()
    end = len(response)
    for box in boxes[: -1 - _MOST_BOXES : -1]:
        content, close = (box["bare"], box.end()) if box["bare"] else _braced(response[:end], box.end())
        if parts and not (content and end - close <= 40 and _SAME_LINE.fullmatch(response, close, end)):
            break
        parts.insert(0, content)
        end = box.start()
    if len(parts) == 1 and parts[0]:
        before = _BEFORE.search(response, max(0, end - 20), end)
        after = _AFTER.match(response, boxes[-1].end() if boxes[-1]["bare"] else _braced(response, boxes[-1].end())[1])
        around = before[1] if before else "", after[0] if after else ""
        return f"({parts[0]})".join(around) if any(around) else parts[0]
    if parts:
        return parts[-1] if len({*parts}) == 1 or None in parts else ", ".join(map(str, parts))
    phrases = [*_PHRASE.finditer(response)] if fallback != "none" else []
    if phrases:
        rest = response[phrases[-1].end() :].lstrip(" :*")
        if formula := FORMULA.match(rest):
            return next(filter(None, formula.groups())).strip() or None
        return _CLAUSE.split(rest, maxsplit=1)[0].strip(" $*") or None
    numbers = _LAST_NUMBER.findall(response) if fallback == "last_number" else []
    return numbers[-1] if numbers else None


def _braced(text: str, start: int) -> tuple[str | None, int]:
    r"""The content of the braces that open at a place, and their end. In `\\}` the brace closes: `\\` ends a line."""
    depth = 0
    for mark in re.compile(r"\\.|[{}]", re.S).finditer(text, start):
        depth += (mark[0] == "{") - (mark[0] == "}")
        if depth == 0 and mark[0] == "}":
            return text[start + 1 : mark.start()].strip() or None, mark.end()
    return None, len(text)


def strip_dollars(text: str) -> str:
    r"""A text without spaces and dollar signs around it; \$, the currency, stays."""
    return re.sub(r"^\$+|(?<!\\)\$+$", "", text.strip()).strip()
