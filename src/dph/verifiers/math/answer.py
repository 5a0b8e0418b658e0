"""Finds the answer in a mathematical response, and compares answers that need no algebra."""

import re
from fractions import Fraction
from typing import Literal

Fallback = Literal["none", "phrase", "last_number", "library"]

_BOXED = re.compile(r"\\f?box(?:ed)?\s*(?=\{)|\\boxed\s+(?!\\f?box)(?P<bare>[^\s{}$]+)")
_PHRASE = re.compile(r"answer\s{0,3}(?:is|:)|####", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+)?")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_INTEGER = re.compile(r"[-+]?\d{1,200}")
_DECIMAL = re.compile(r"[-+]?(?:\d{1,200}\.\d{0,200}|\.\d{1,200})")
_RATIO = re.compile(r"(?P<sign>[-+]?)(?:\\frac\{(\d{1,200})\}\{(\d{1,200})\}|(\d{1,200})/(\d{1,200}))")
_WRAPPED = re.compile(r"\\(?:text|mathrm|textbf|mathbf|mbox)\{([^{}]*)\}")
_NOISE = re.compile(r"\\left(?![a-z])|\\right(?![a-z])|(?<!\\)\\[!,;: ]|\\?\$")


def extract_answer(response: str, fallback: Fallback = "none") -> str | None:
    r"""The content of the last \boxed{…} (braces balanced; \fbox and `\boxed 5` count too), stripped.

    None if there is no box, the box is empty, or the last box was never closed: a truncated response has no answer.
    fallback: where the answer of a response without a box comes from: "phrase" takes the words after the last "answer
    is" or GSM8K's "####"; "last_number" takes these, else the last number.
    """
    boxes = list(_BOXED.finditer(response))
    if not boxes:
        return _answer_without_box(response, fallback)
    last = boxes[-1]
    if last["bare"] is not None:
        return last["bare"]
    depth = 0
    start = last.end()
    for index in range(start, len(response)):
        if response[index] in "{}" and response[index - 1] != "\\":
            depth += 1 if response[index] == "{" else -1
            if depth == 0:
                return response[start + 1 : index].strip() or None
    return None


def _answer_without_box(response: str, fallback: Fallback) -> str | None:
    if fallback == "none":
        return None
    phrases = list(_PHRASE.finditer(response))
    if phrases:
        rest = response[phrases[-1].end() :].lstrip(" :*")
        line = rest.split("\n", 1)[0].split("$. I hope", 1)[0].strip()
        return line.removesuffix(".").strip(" $*") or None
    numbers = _NUMBER.findall(response) if fallback == "last_number" else []
    return numbers[-1] if numbers else None


def strip_dollars(text: str) -> str:
    r"""A text without spaces and dollar signs around it; \$, the currency, stays."""
    return re.sub(r"^\$+|(?<!\\)\$+$", "", text.strip()).strip()


def normalize(answer: str) -> str:
    r"""Strip what never changes the meaning: spaces, $ and \$, \left, \right, \text{…}, a closing full stop, \dfrac."""
    text = _NOISE.sub("", answer.strip().removesuffix("."))
    text = _WRAPPED.sub(r"\1", text)
    text = re.sub(r"\\[dt]frac", r"\\frac", text)
    text = re.sub(r"\\frac(\d)(\d)", r"\\frac{\1}{\2}", text)
    text = "".join(text.split())  # for comparison only: "\\cup B" is no longer LaTeX
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    return re.sub(r"^\(([A-Za-z])\)$", r"\1", text)


def _as_number(text: str) -> tuple[Fraction, str] | None:
    """The value of an integer, a decimal or a ratio, and the name of its form."""
    if _INTEGER.fullmatch(text):
        return Fraction(int(text)), "decimal"
    if _DECIMAL.fullmatch(text):
        return Fraction(text), "decimal"
    ratio = _RATIO.fullmatch(text)
    if ratio is None:
        return None
    sign, top, bottom = ratio["sign"], ratio[2] or ratio[4], ratio[3] or ratio[5]
    return (Fraction(int(sign + top), int(bottom)), "ratio") if int(bottom) else None


def equal_at_sight(gold: str, given: str) -> bool | None:
    """Whether two normalized answers are equal; None if that takes algebra.

    Equal text and equal numbers are equal; two integers or decimals of different value are not. A ratio and a decimal
    that differ may still be equal after rounding, which the library decides.
    """
    if gold == given:
        return True
    left, right = _as_number(gold), _as_number(given)
    if left is None or right is None:
        return None
    if left[0] == right[0]:
        return True
    return False if left[1] == right[1] else None
