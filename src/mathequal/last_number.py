"""The last number of a response without a box, with everything that makes it another number."""

import re
from typing import NamedTuple

_BLANK = "[ \u00a0\u2009\u202f]"
_TAG = re.compile(r"</?[A-Za-z]+>")
_FORMULA = re.compile(r"\$\$?([^$]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.S)
_PROSE = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{2,}(?=\s|$)")
_RELATION = re.compile(r"(?<![<>!:\\])=|≈|\\(?:approx|simeq|doteq|equiv)(?![A-Za-z])")
_TOGETHER: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(rf"(?<![\d.,/])(\d{{1,3}})((?:{_BLANK}\d{{3}})+)(?!\d)"), ""),  # 70 000
    (re.compile(rf"(?<=\d){_BLANK}?/{_BLANK}?(?=\d)"), "/"),
    (re.compile(rf"(?<![\d.,/])(\d{{1,9}}){_BLANK}(?=\d{{1,9}}/\d)"), "\\1\0"),  # 1 1/2
    (re.compile(r"(?<=\d) (?=[A-Za-z]{1,3}\^?[23²³](?!\w)|\\?%)|(?<=\d:\d\d) (?=[ap]\.?m\b)"), "\0"),  # 5 cm², 7:30 pm
    (re.compile(r"[-−–]\\?\$(?=[\d.])|\\?\$[-−–](?=[\d.])"), "-"),
    (re.compile(r"\\?\$"), " "),
)
"""Numbers that are written in several pieces, and as one."""
_RUN = re.compile(r"[^\s\u3000-\u9fff\uac00-\ud7af\uff00-\uffef—…]*\d[^\s\u3000-\u9fff\uac00-\ud7af\uff00-\uffef—…]*")
_AROUND = "\"'“”‘’«»`*_#.,;:!?"
_UNIT = re.compile(r"\s{0,2}((?:(?:square|cubic)\s)?[A-Za-z°]+(?:\s?/\s?[A-Za-z]+|\sper\s[A-Za-z]+)?(?:\^?[23²³])?)")
_NO_UNIT = frozenset({"in", "second", "unit", "units", "a", "am", "pm", "d", "m", "h", "s", "l", "t"})


_POINT = re.compile(r"[(\[{]\s*(?:[-+\d][\d./]*\s*[,;]\s*)+$")
_LISTED = re.compile(r"(?:^|[:=\n]\s*|\b(?:is|are)\s+)(?P<listed>(?:[-+]?\d[\d./]*\s*,\s+)+)$")
"""Values before the last one of a point, and of a list."""


class LastNumber(NamedTuple):
    """The last number of a text, and what stands around it."""

    text: str
    before: str
    after: str
    formula: str | None = None
    """What precedes it in its formula; None outside of formulas."""


def last_number(text: str) -> str | None:
    """The formula or word that holds the last digit of a text, with the unit after it; None without a digit.

    Of a formula it is what follows the last sign of equality. A sign, a currency, a decimal point, a denominator, an
    exponent and other coordinates stay: -$20 is not 20, .5 not 5, and (3, 4) not 4.
    """
    found = last_number_in(text)
    return found.text if found else None


def last_number_in(text: str) -> LastNumber | None:
    """The last number of a text with what stands around it."""
    last = next((n for n in range(len(text) - 1, -1, -1) if text[n].isdecimal()), None)
    if last is None:
        return None
    start = max(text.rfind("\n\n", 0, last), 0)
    for formula in _FORMULA.finditer(text, start):
        content = next(filter(None, formula.groups()))
        if formula.start() <= last < formula.end() and not _PROSE.search(content):
            value = _RELATION.split(content)[-1].strip() or content
            unit, before = _unit(text[formula.end() :]), content[: content.rindex(value)]
            after = text[formula.end() + len(unit) : formula.end() + 100]
            return LastNumber(value + unit, f"{text[start : formula.start()][-80:]}${before}", f"${after}", before)
    return _in_words(_TAG.sub(" ", text[max(start, last - 500) : last + 100]))


def _in_words(window: str) -> LastNumber | None:
    """The last number of a text outside of formulas."""
    for pattern, usual in _TOGETHER:
        window = pattern.sub(usual or (lambda found: re.sub(_BLANK, "", found[0])), window)
    runs = [*_RUN.finditer(window)]
    if not runs:
        return None
    run = runs[-1]
    number, before, after = _bare(run[0]), window[: run.start()], window[run.end() :]
    point = _POINT.search(before[-80:])
    if point and ")]}"["([{".index(point[0][0])] in run[0]:
        return LastNumber(point[0] + run[0].rstrip(_AROUND), before[-80:][: point.start()], after)
    if listed := _LISTED.search(before[-80:]):
        number = listed["listed"] + number
    unit = _unit(after) if run[0][-1] not in ".,;:!?" else ""
    inner, _, mark = run[0].partition(_bare(run[0])) if _bare(run[0]) in run[0] else ("", "", "")
    return LastNumber(number.replace("\0", " ") + unit, (before + inner)[-80:], mark + after[len(unit) :][:100])


def _bare(word: str) -> str:
    """A word without the punctuation around it, brackets that do not close, and what follows a hyphen."""
    word = re.sub(r"(?<=\d)-[A-Za-z].*", "", word).rstrip(_AROUND).lstrip(_AROUND.replace(".", ""))
    word = re.sub(r"^[^\d:]*:", "", word)
    while word[:1] in "([{" and word.count(word[0]) > word.count(")]}"["([{".index(word[0])]):
        word = word[1:]
    while word[-1:] in ")]}" and word.count(word[-1]) > word.count("([{"[")]}".index(word[-1])]):
        word = word[:-1]
    return re.sub(r"^[−–](?=[\d.])", "-", word.rstrip(_AROUND))


def _unit(after: str) -> str:
    """The unit at the beginning of a text, with a blank before it; "" if there is none."""
    from mathequal.units import is_spelled_unit, read_unit

    found = _UNIT.match(after)
    if not found or found[1].split()[0].lower() in _NO_UNIT:
        return ""
    words = found[1].split()
    for known in (words, words[:1]):
        if ("/" in known[0] or is_spelled_unit(re.split(r"[\^\d²³]", known[0])[0])) and read_unit(known):
            return " " + " ".join(known)
    return ""
