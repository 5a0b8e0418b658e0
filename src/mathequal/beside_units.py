r"""The unit or currency that stands beside a box: $\boxed{94}$ km/s, €$\boxed{5}$."""

import re

from mathequal.text import word_list
from mathequal.units import adds_a_name, counts_things, read_unit

_SPACING = r"(?:[\s~*_]|\\[,;:! ]|\$|\\[)\]]|&nbsp;|</?\w{1,6}>)*"  # and the end of the box's formula
_POWER = r"(?:\s*(?:\$\s*)?\^\s*(?:\{\s*-?\d\s*\}|\d)|[²³]|<sup>\d</sup>)?"
_MARKED = rf"\\(?:text|mathrm|textrm|mbox|rm)\s*\{{[^{{}}]*\}}{_POWER}"
_BY = r"\s*(?:[/~·*]|\\cdot(?![a-z])|\\times(?![a-z]))?\s*"
_WORD = rf"(?:[A-Za-zµ°]|[^\W\d_\u2e80-\uffff]){{2,}}{_POWER}"
_LETTER = rf"(?:[msghLlNJKWVA]|(?<![\d}}])t){_POWER}(?=[\s$]*(?:$|[.,;:!)\]*<_]|\s[a-z])|$)"
_UNIT = re.compile(
    rf"{_SPACING}(?:,\s*(?=in\s))?(?:[(\[]?\$?\s*(?:in\s+(?:[*_$]+)?)?|-(?=[A-Za-z]{{2}}))(?:(?P<marked>{_MARKED}(?:{_BY}{_MARKED})*)"
    r"(?=\s*(?:$|[.,;:)\]$]|\\[)\]\\]|[A-Za-z]))"
    r"|(?P<degrees>(?:°|\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-z])))[\s$]*(?:\\(?:text|mathrm|rm)\s*\{\s*)?"
    r"(?P<scale>[CF](?![A-Za-z]))?)"
    rf"|(?P<plain>[A-Za-z]\s?/\s?[A-Za-z]{{1,3}}{_POWER}\b|{_WORD}(?:(?:\s?/\s?|\s){_WORD}|\s?/\s?[A-Za-z](?![A-Za-z]){_POWER}){{0,3}}"
    rf"|{_LETTER}))"
)
_FRACTION = re.compile(rf"^({_SPACING})\\[dt]?frac\s*\{{\s*({_MARKED})\s*\}}\s*\{{\s*({_MARKED})\s*\}}")
_CURRENCY = re.compile(r"(?P<sign>[€£¥₹]|\\(?:euro|pounds)(?![a-z])|\b(?:EUR|GBP|USD|INR)\b)[\s~}]*(?:\$|\\\()?\s*$")
_SPEAKS_ON = {*word_list("in second minute degree units unit percent au")}  # what follows a box may be no unit of it
_DEGREES = {"C": "celsius", "F": "fahrenheit", None: "degrees"}


def unit_beside(after: str, *, things: bool = False) -> str:
    """The unit at the beginning of what follows a box; "" if there is none. things: also things that are counted, of
    \\boxed{5}\\text{ pears}."""
    found = _UNIT.match(_FRACTION.sub(r"\1\2/\3", after) if "frac" in after else after)
    if not found:
        return ""
    if found["degrees"]:
        return _DEGREES[found["scale"]]
    words = re.sub(r"\\(?:text|mathrm|textrm|mbox|rm)\s*\{([^{}]*)\}", r" \1", found["marked"] or found["plain"])
    words = re.sub(r"\\cdot|\\times|[~·*]", " ", words).replace("²", "^2").replace("³", "^3")
    words = re.sub(r"<sup>(\d)</sup>", r"^\1", words).replace("$", "")
    parts = re.sub(r"[{}]|\s+(?=\^)|(?<=\^)\s+", "", words).strip(" .,;").split()
    if found["plain"]:  # 25 square feet in all
        parts = parts[: parts.index("in")] if "in" in parts else parts
    for most in range(len(parts), 0, -1) if found["plain"] else (len(parts),):
        if (found["marked"] or parts[most - 1].lower() not in _SPEAKS_ON or most > 1) and read_unit(parts[:most]):
            return " ".join(parts[:most])
    counted = things and found["marked"] and parts and counts_things(parts) and adds_a_name(parts, None)
    return " ".join(parts) if counted else ""


def currency_beside(before: str) -> str:
    """The sign or code of a currency at the end of what precedes a box; "" if there is none."""
    found = _CURRENCY.search(before)
    return found["sign"] if found else ""


LETTER_UNIT = re.compile(_LETTER)
"""A unit of one letter, with its power."""
