r"""What stands beside a box and belongs to the answer: a relation, sign or word before it, as in $x\ge\boxed{5}$ and
"at least \boxed{5}", and a scale, sign, word, condition or further value after it, as in "\boxed{5} million".

All of it is joined to the answer as it would be written in the box, so that one set of rules judges both.
"""

import re
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from mathequal.answers import Answer
from mathequal.beside_units import LETTER_UNIT
from mathequal.beside_words import ABOUT, BOUND, NOT, may_begin_with, may_end_with, rule_after, rule_before
from mathequal.languages import LINK_WORDS, scale_of
from mathequal.reading import read
from mathequal.text import word_list


class Joined(NamedTuple):
    """What stands beside a box, as it is written in the box, the rule that found it, and the text that follows it."""

    text: str
    rule: str
    rest: str = ""


class Around:
    """What is known of an answer whose surroundings are read."""

    def __init__(self, answer: str, golds: Sequence[str], question: str, before: str) -> None:
        """before: the text before the box."""
        self.answer, self.gold_texts, self.question, self._before = answer, golds, question, before

    @cached_property
    def typed(self) -> Answer | None:
        """The value of the answer."""
        return read(self.answer)

    @property
    def kind(self) -> str:
        """The kind of the answer."""
        return self.typed.kind if self.typed else ""

    @cached_property
    def golds(self) -> list[Answer]:
        """The values of the gold answers."""
        return [gold for gold in map(read, self.gold_texts) if gold]

    def asks_for(self, *kinds: str) -> bool:
        """Whether a gold answer is of one of the kinds."""
        return any(gold.kind in kinds for gold in self.golds)

    @cached_property
    def name(self) -> str:
        """The letter that is equal to the box."""
        named = _NAMED.search(self._before[-12:])
        return named[1] if named else ""


NOTHING = Joined("", "")
_NAMED = re.compile(r"(?<![A-Za-z\\])([A-Za-z](?:_\{?\w\}?)?)\s*&?\s*=[\s$&]*$")
_RELATIONS = dict(
    zip(
        word_list("ge geq geqslant geqq gt gg le leq leqslant leqq lt ll ne neq nless ngtr"),
        word_list(r"\ge \ge \ge \ge > > \le \le \le \le < < \ne \ne \ge \le"),
        strict=True,
    )
) | {">": ">", "<": "<", "≥": r"\ge", "≤": r"\le", "≠": r"\ne", "⩾": r"\ge", "⩽": r"\le", ">=": r"\ge", "<=": r"\le"}
_NEGATED = {*word_list("nequiv ncong nsim napprox notin nsubseteq nparallel nmid neg lnot cancel bcancel xcancel sout")}
_LAST_WORD = re.compile(r"(\\?)([^\W\d_]+(?:['’][^\W\d_]+)?)$")
_SILENT = {*word_list("left big Big bigl text textbf textrm mathrm mathbf displaystyle quad qquad mbox boldsymbol bf")}
_SIGNS = {"-": "-", "−": "-", "√": r"\sqrt", "±": r"\pm", "^": "2^", "/": "1/", "×": r"2\cdot", "·": r"2\cdot"}
_OPENING = {"overline", "bar", "underline", "sqrt", "surd", "cdot", "times", "pm", "mp", "div", "frac", "log", "ln", 
            "lfloor", "lceil", "sin", "cos", "tan", "exp"}  # fmt: skip
_OTHER_VALUE = re.compile(r"(?<![\w.])(-?\d[\d.]*)\$?,? or$")
_RANGE = re.compile(r"(?<![\w.])\d[\d.]*\$?[–—]\$?$")  # 10–\boxed{12}
_STRUCK = re.compile(r"~~$|<(?:s|del|strike)>$")


def before_it(before: str, around: Around) -> Joined:
    r"""What the end of the text before a box makes of its value: "\ge ", "-" or nothing."""
    word = before[-20:].rstrip("$ *{(").rpartition(" ")[2]
    if word.isascii() and word.isalpha() and not may_end_with(word.lower()):  # "is", and most others
        return NOTHING
    if _STRUCK.search(before[-12:].rstrip("$ \\([")):
        return Joined(NOT, "before.struck-out")
    text, direct = _without_end(before)
    if not text or text[-2:] == " =":
        return NOTHING
    last = text[-1]
    if last.isalpha() or last == "%":
        return _word_before(text, around)
    if last in "<>≥≤≠⩾⩽=":
        sign = text[-2:] if text[-2:] in (">=", "<=") else last
        arrow = last == ">" and text[-2:-1] in ("=", "-", "\n", "") and sign == ">"
        denied = r"\ne" if text.endswith("\\not=") or text[-2:] == "!=" else ""
        return _relation(denied if arrow or sign == "=" else _RELATIONS[sign], around)
    if last in _SIGNS and direct and not (last == "-" and text[-2:-1] in ("-", "—")):
        return Joined(_SIGNS[last], "before.sign") if last != "/" or text[-2:-1].isdigit() else NOTHING
    if last == "¬" or (last in "–—" and _RANGE.search(before[-12:])):
        return Joined(NOT, "before.sign")
    digits = before.rstrip("$*_{\\(")[-2:]  # 1\boxed{5}, 0.\boxed{5} and 1,\boxed{500}
    if digits[-1:] == "." or (digits[-1:] == "," and digits[:1].isdigit()):
        digits = digits[:-1].strip() or "0"
    return Joined(NOT, "before.digit") if digits[-1:].isdigit() else NOTHING


def _relation(joined: str, around: Around) -> Joined:
    """A relation before a box, unless it only says that the value is the extreme one, for which the question asks."""
    excused = joined != r"\ne" and BOUND.search(around.question) is not None
    return Joined(f"{joined} ", "before.relation") if joined and not excused else NOTHING


def _word_before(text: str, around: Around) -> Joined:
    """What the words at the end of a text make of the value after it."""
    word = _LAST_WORD.search(text[-16:])
    if word and word[1]:
        if word[2] in _NEGATED or text[: -len(word[0])].rstrip().endswith("\\not"):
            return Joined(NOT, "before.relation")
        if word[2] in _OPENING:
            return Joined(NOT, "before.function")
        return _relation(_RELATIONS.get(word[2], ""), around)
    if word and word[2].isascii() and not may_end_with(word[2].lower()):
        return NOTHING
    if word and word[2] == "or" and (other := _OTHER_VALUE.search(" ".join(text[-40:].replace("*", "").split()))):
        return Joined(rf"{other[1]}\text{{ or }}", "before.or")
    rule = rule_before(text, around)
    return Joined(rule.joined, rule.id) if rule else NOTHING


def _without_end(text: str) -> tuple[str, str]:
    r"""A text without the blanks, marks and commands at its end, and whether it then touches the box: "box" if only
    marks are between, "sign" if a sign there is one of a value, as in x = - \boxed{5} but not in a list's "- "."""
    blanks = False
    while True:
        left = text.rstrip("$*_~{}([&")
        bare = left.rstrip(" \t\n")
        blanks |= len(bare) < len(left)
        if bare[-1:] == "\\" and bare[-2:-1] != "\\":
            bare = bare[:-1]
        elif bare[-2:-1] == "\\" and bare[-1] in ",;:!":
            bare = bare[:-2]
        elif bare[-1:] == ">" and (tag := re.search(r"<[\w|/][^<>]{0,40}>$", bare)):
            bare = bare[: tag.start()]
        elif bare[-1:].isalpha() and (command := bare[-14:].rpartition("\\"))[1] and command[2] in _SILENT:
            bare = bare[: -len(command[2]) - 1]
        if bare == text:
            break
        text = bare
    if not blanks:
        return text, "box"
    return text, "sign" if text[-1:] in ("-", "−") and text[:-1].rstrip()[-1:] == "=" else ""


_AFTER_IT = re.compile(r"(?:[\s$*_~})\]]|\\[,;:! )\]]|\\(?:q?quad|right)(?![a-z])|&nbsp;|</?\w{1,6}>)*")
_JOINED_SIGNS = re.compile(
    r"%|\\%|‰|\{[.,]\}\s*\d+|,\d{3}(?!\d)|\.\d+|[-–—:/^_]\s?[\d(]\d*|_?\{\d+\}|[·×÷±π√]|"
    r"\\(?:times|cdot|pm|div|[dt]?frac(?=\s*\{?\s*-?\d)|sqrt|pi|mp|over)(?![a-z])|"
    r"[A-Za-z](?![A-Za-z.])|[²³⁴-⁹½¼¾⅓⅔]|e\d|x\s*10|万|亿|千|百|多(?!少|项)|余(?!数)|至\d|到\d"
)
"""Signs that change a value which they touch."""
_SPACED_SIGNS = re.compile(
    r"[+/×÷·±]\s*[\d$\\(]|\\(?:times|cdot|pm|div|pi|[dt]?frac(?=\s*\{?\s*-?\d))(?![a-z])|\\?%|[²³½¼¾π^]|10\s*\^|"
    r"[-−]\s*\$?\d[\d.]*\$?\s*(?:$|[.,=])|‰|\+(?=[\s.$]|$)|万|亿|千|百|[–—]\s*\$?\d"
)
_LONE = re.compile(r"(?:(?:i|pi|π)(?=[\s$]*(?:$|[,;]|\.(?![a-z])))|x\s*10\b|[a-z](?=\$\s*\.?\s*$))")
"""A factor after a blank: 5 i, 5 $x$ and 5 x 10^3."""
_AT_WORD = re.compile(r"[-(\[?]?[\s$*_]*(?:\\(?:text|mathrm|textbf|mbox|rm)\s*\{\s*)?(?=([^\W\d_]+))")
_HEDGES = {*word_list("approximately approx roughly ungefähr aproximadamente environ")}
_NO_SCALES = ("cento", "cem", "par")
_THOUSANDS = {"k": "thousand", "K": "thousand", "M": "million", "bn": "billion", "mn": "million", "tn": "trillion"}
_VALUE = (
    r"(?:[-+]?\\?\$?\d[\d,]*(?:\.\d+)?(?:/\d+)?|[-+]?\\[dt]?frac\s*\{\s*\d+\s*\}\s*\{\s*\d+\s*\}|[-+]?\d*\\sqrt\s*\{?\d+\}?)"
)
_LETTER = r"[A-Za-z](?:_\{?\w\}?)?"
_FURTHER = re.compile(
    rf"[\s$*]*(?:,\s*)?(?:\\(?:text|mathrm|mbox)\s*\{{\s*)?(?:(?:and|or|plus|&|as well as|along with|{LINK_WORDS}|"
    rf"\\land|\\lor|\\wedge|\\vee)(?:\s+(?:also|possibly|maybe|perhaps|even))*[\s}}]*|,\s*)\$?\s*"
    rf"(?:(?P<name>{_LETTER})\s*=)?\s*(?P<value>{_VALUE})(?P<percent>\s*\\?%)?(?=[\s$]*(?:$|[.!?;,)]|\\\]))",
)
r"""A further value: \boxed{9} and $x=2$, \boxed{9}, 5."""
_SETS = ("intervals", "tuple", "set")
_STATES = re.compile(r"[\s$*~]*(?:[,(&]|\\[a-z,;(]|[A-Za-z\u0400-\uffff])")
"""Only such signs begin what states something about an answer."""
_FURTHER_WORD = re.compile(r"[\s$*]*(?:,\s*)?(?:and|or|und|oder|et|ou|y|e|или|и)\s+\$?(?P<word>[A-Z]\w*)\$?(?=\s*(?:$|[.!?;,]))")
_MODULUS = re.compile(r"[\s$,(~]*(?:\\[,;: ])*(?:\\[pb]?mod|\(?\s*\\(?:text|mathrm)\s*\{\s*\(?mod|\(?mod(?:ulo)?)[^\d\n.]{0,6}(\d+)")
_BASE = re.compile(
    r"[\s$]*\(?(?:\\text\s*\{\s*\(?)?(?:(?:in |written in )?base[- ]?\s?(?P<base>\d{1,2}|two|eight|ten|sixteen)|(?:in )?"
    r"(?P<word>binary|octal|decimal|hexadecimal))\b"
)
_BASES = {"two": 2, "eight": 8, "ten": 10, "sixteen": 16, "binary": 2, "octal": 8, "decimal": 10, "hexadecimal": 16}
_HALF_OF_DAY = re.compile(r"[\s$]*(?:\\(?:text|mathrm)\s*\{\s*)?(?P<half>[AaPp])\.?\s?[Mm]\b")
_INDEX = re.compile(
    r"[\s$]*[,(]?\s*(?:where|for(?: all| any| every)?|with|if|when|and)?\s*\$?\s*(?P<letter>[a-z])\$?\s*"
    r"(?P<said>(?:is|are|be|runs|ranges|\\in|∈|>|<|≥|≤|≠|\\(?:ge|le|ne|geq|leq|neq|notin|geqslant|leqslant)(?![a-z])).{0,60})"
)
_RESTRICTS = re.compile(
    r"\b(?:odd|even|positive|negative|non-?negative|natural|prime|whole|real|divisible|multiple)\b|"
    r"[<>≥≤≠ℕℝℚ]|\\(?:ge|le|ne|geq|leq|neq|gt|lt|notin|NN|RR|QQ)(?![a-z])|"
    r"(?:\\mathbb\s*\{?\s*[NRQ]|\\mathbf\s*\{?\s*[NRQ]|\\mathbb\s*\{?\s*Z\s*\}?\s*[_^\\])|\\in\s*[NRQ]\b"
)
"""What makes the index of a family more, or less, than an integer."""
_ON_SET = re.compile(
    r"[\s$]*[,(]?\s*(?:where|for|with|if|but|and|provided)?\s*\$?\s*(?P<letter>[a-z])\$?\s*"
    r"(?:(?:is |be )?(?:an?|not an?) (?:\w+ )?(?:integer|number)|\\ne(?:q)?(?![a-z])|≠|\\notin|\\in\s*\\mathbb\s*\{?[ZNQ])"
)
"""A condition on the numbers of a set: [-3, 5], x ≠ 0."""


def after_it(after: str, around: Around) -> Joined:
    r"""What the beginning of the text after a box makes of its value: " \text{million}"."""
    if found := _stated_after(after, around):
        return found
    start = _AFTER_IT.match(after)
    assert start is not None  # it may be empty
    at, rest = start.end(), after[start.end() :]
    if not rest or (rest[0] in ".。;" and not rest[1:2].isdigit()):
        return NOTHING
    touches = not any(blank in after[:at] for blank in " \n\t~\\&")
    subscript = re.compile(r"_\s*\{?\d").match(after) if after[:1] == "_" else None
    if subscript:
        return Joined(r"\text{ subscript}", "after.subscript")
    if touches and (signs := _JOINED_SIGNS.match(rest)):
        letter = signs[0].isascii() and signs[0].isalpha() and LETTER_UNIT.match(rest)
    else:
        signs = (_LONE if rest[0].isalpha() else _SPACED_SIGNS).match(rest)
        letter = signs and LETTER_UNIT.match(rest)
    if signs and not letter and around.kind not in ("letters", "text"):
        return _sign(signs[0], rest[signs.end() :])
    word = _AT_WORD.match(rest)
    return _word_after(rest, word, around) if word else Joined("", "", rest)


def _sign(sign: str, rest: str) -> Joined:
    """What a sign after a value is in the box: a percentage, a factor that is a letter, or another value."""
    if sign in ("%", r"\%"):
        return Joined(r"\%", "after.percent", rest)
    factor = sign in ("i", "π")
    return Joined(f" {sign}" if factor else r"\text{ and further}", "after.factor" if factor else "after.sign", rest)


def _stated_after(after: str, around: Around) -> Joined | None:
    """What a further value, a modulus, a base, half of a day or a condition after a box makes of its value."""
    first = _STATES.match(after)
    if not first:
        return None
    if "mod" in after and (modulus := _MODULUS.match(after)):
        asked = not around.asks_for("family") and re.search(rf"(?<!\d){modulus[1]}(?!\d)", around.question)
        return None if asked else Joined(rf"\pmod{{{modulus[1]}}}", "after.modulus")
    if (base := _BASE.match(after)) and around.asks_for("base") and around.kind == "expression":
        written = base["base"] or base["word"]
        return Joined(f"_{{{_BASES.get(written, written)}}}", "after.base")
    if (half := _HALF_OF_DAY.match(after)) and around.kind in ("time", "ratio"):
        return Joined(rf"\text{{ {half['half']}.m.}}", "after.half-of-day")
    if (index := _INDEX.match(after)) and _RESTRICTS.search(index["said"]) and around.asks_for("family"):
        return Joined(r"\text{ and further}", "after.index")
    if _ON_SET.match(after) and around.kind in _SETS and around.asks_for(*_SETS):
        return Joined(r"\text{ and further}", "after.condition")
    if further := _FURTHER.match(after):
        if further["name"] in (None, around.name, around.name or further["name"]):
            value = further["value"] + (further["percent"] or "")
            return Joined(rf"\text{{ and }}{value}", "after.further") if around.kind not in ("text", "letters") else None
    elif _FURTHER_WORD.match(after) and around.kind in ("text", "letters"):
        return Joined(NOT, "after.further")
    return None


def _word_after(rest: str, word: re.Match[str], around: Around) -> Joined:
    """What a word after a box makes of its value."""
    first, low = word[1], word[1].lower()
    following = rest[word.end() + len(first) :]
    if len(first) > 1 and (scale := scale_of(first)) and not scale[1] and low not in _NO_SCALES:
        return Joined(rf"\text{{ {first}}}", "after.scale", following)
    if first in _THOUSANDS and not (first in "KM" and LETTER_UNIT.match(rest)):
        return Joined(rf"\text{{ {_THOUSANDS[first]}}}", "after.scale", following)
    if not may_begin_with(low):
        return Joined("", "", rest)
    found = rule_after(rest[word.end() :] if rest[0] != "?" else rest, around)
    if found is None:
        return Joined("", "", rest)
    rule, words = found
    return Joined(rule.joined or rf"\text{{ {words}}}", rule.id)
