r"""Remarks on an answer that leave its value as it is: its reason, a number in words, the multiplicity of a root, and
other values that are rejected. 8\text{ since }x>0, 8\text{ (only solution)} and 8\text{ (}-8\text{ is rejected)} are 8.

A remark that denies the value itself, changes it, or is not understood stays, and the answer is another one.
"""

import re
from collections.abc import Callable
from typing import Any

from mathequal.text import word_list

_NEXT = r"(?=\s*(?:$|[,;]|\.$|\x01\s*(?:and|or)\b))"
_BRACKETS = re.compile(rf"(?<=[^\s(=,+*/^\\-])\s*(?:\x01\s*)?\(\s*([^()]*[a-z]{{2}}[^()]*?)\s*\)(?:\s*\x02)?{_NEXT}")
_WORDS = re.compile(
    rf"(?<=[\d)}}\]])\s*,?\s*\x01\s*[,\[]?\s*(?:which is )?([a-z-]+(?: [a-z-]+){{0,3}})\s*\]?\s*\x02{_NEXT}"
)
_MULTIPLICITY = re.compile(rf"(?<=[\d)}}\]])\s*,?\s*\x01[,\s]*(?:with |of )?multiplicity\s*\x02\s*\d{_NEXT}")
_REASON = re.compile(
    r"(?<=[\w)}\]])[\s,;]*\(?\s*\x01\s*\(?[,;\s]*(?:(?:since|because|given)\b|as\s*\x02(?=\s*[^\s\x01])|"
    r"by\s(?:symmetry|induction|inspection|definition|construction|[A-Z][A-Za-z-]+))(?P<why>.*)$",
    re.S,
)
_BEGINS_WITH_REASON = re.compile(r"(?:since|because|given|as|by)\s")
_SAYS_NOTHING = {
    *word_list("""only unique one final exact exactly answer value result solution solutions root roots zero zeros valid
    accepted verified checked confirmed correct distinct real integer double triple simple single repeated repeat twice
    multiplicity mult order required works ok counted""")
}
_FILLERS = {*word_list("a an the of with to as it is this its")}
_NUMBERS = {*word_list("one two three four five six")}
_REJECTS = re.compile(
    r"\b(?:(?:is|are|was|were|be)\s)?(?:not\s(?:valid|allowed|possible|a\ssolution)|reject(?:ed|ing)?|discard(?:ed|ing)?|"
    r"exclud(?:e|ed|ing)|extraneous|invalid|impossible|inadmissible|ignored?|not)\b"
)
_OTHER = re.compile(r"the other (?:root|solution|value|one) (?:is|was) [a-z -]+")
_POSITIVE = re.compile(r"(?:the )?positive(?: root| solution| value| one)?")
_MULTIPLIES = re.compile(r"\b(?:double|triple|twice)\b.*\b(?:answer|value|result)\b")
_AROUND = re.compile(r"\b(?:we|the|solution|root|value|answer|since|it|and)\b|[a-z]\s*=|:")
_VALUE = re.compile(r"[-+]?\s*(?:[\d.,/]+|\\[dt]?frac\s*\{\d+\}\s*\{\d+\}|[\d]*\s*\\sqrt\s*\{?\d+\}?|\\pi)")


def without_remarks(plain: str, number_in_words: Callable[[str], Any]) -> str:
    r"""Plain LaTeX without remarks. number_in_words: the number that words name, as ("n", value, ...), or None."""
    if r"\because" in plain:
        plain = plain.replace(r"\because", "\x01because\x02")
    if "multiplicity" in plain:
        plain = _MULTIPLICITY.sub("", plain)
    if "\x01" in plain and (reason := _REASON.search(plain)) and not re.search(r"\b(?:or|if|not)\b", reason["why"]):
        plain = plain[: reason.start()]

    def keep(remark: re.Match[str]) -> str:
        value = re.split(r"[=,;]|\x01\s*(?:and|or)\b\s*\x02", plain[: remark.start()])[-1].strip(" \x01\x02")
        content = " ".join(re.sub(r"[\x01\x02]", " ", remark[1]).split())
        return "" if _is_empty(content, value, number_in_words) else remark[0]

    if ")" in plain:
        plain = _BRACKETS.sub(keep, plain)
    return _WORDS.sub(keep, plain) if "\x01" in plain else plain


def _is_empty(content: str, value: str, number_in_words: Callable[[str], Any]) -> bool:
    """Whether a remark on a value leaves it as it is."""
    low = content.lower().replace("\\ ", " ")
    words = re.findall(r"[^\s.,:]+", low)
    numbers = [word for word in words if (word.isdecimal() or word in _NUMBERS) and word != value]
    known = sum(word in _SAYS_NOTHING and word not in numbers for word in words)
    if _MULTIPLIES.search(low):
        return False
    if known and known + len(numbers) + sum(word in _FILLERS for word in words) == len(words):
        counted = re.search(r"(?:multiplicity|mult\.?|order)(?: of| is|:| =)? (?:\d|one|two|three|four|five|six)$", low)
        if not numbers or counted:
            return not numbers or value != ""
    if _POSITIVE.fullmatch(low):
        return not value.startswith("-")
    if _OTHER.fullmatch(low):
        return True
    if _BEGINS_WITH_REASON.match(low):
        return not re.search(r"\b(?:or|if|not|a|an|percent\w*|decimal)\b", low)
    if _REJECTS.search(low):
        other = " ".join(_AROUND.sub(" ", _REJECTS.sub(" ", low)).split())
        return bool(_VALUE.fullmatch(other)) and other.replace(" ", "") != value.replace(" ", "")
    if value.isdecimal() and low.replace(" ", "").replace("-", "").isalpha():
        number = number_in_words(low)
        return number is not None and number.value == int(value)
    return False
