r"""What stands beside a box (long: before and after a box are read by one grammar).

What belongs to the answer is a relation, sign or word before it, as in $x\ge\boxed{5}$ and "at
least \boxed{5}", and a scale, sign, word, condition or further value after it, as in "\boxed{5} million".

All of it is joined to the answer as it would be written in the box, so that one set of rules judges both.
"""

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

from mathequal.answers import Answer
from mathequal.beside_units import LETTER_UNIT
from mathequal.beside_words import ABOUT, BOUND, NOT, may_begin_with, may_end_with, rule_after, rule_before
from mathequal.languages import LINK_WORDS, fold, scale_of
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
        self.answer, self.gold_texts, self.question, self.before = answer, golds, question, before

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
        named = _NAMED.search(self.before[-12:])
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
_THREE_DIGITS = re.compile(r"\d{3}(?!\d)")
_OTHER_CHOICE = re.compile(r"(?:^|[\s($])\(?[A-J]\)?\$?\s*,?\s*(?:or|and)$")
_ABOUT = {*word_list("approx simeq sim thickapprox approxeq doteq")}
_COMMANDS = _RELATIONS.keys() | _NEGATED | _OPENING | _ABOUT
_NUMBER_BEFORE = re.compile(
    r"(?:^|\b(?:is|are|was|be|equals|gives?|get|got|answer|total|makes?):?)[\s$]*\d[\d,]*(?:\.\d+)?\$?\s+$", re.I
)
_FUNCTION_BEFORE = re.compile(
    r"(?<![A-Za-z])\\?(?:log|ln|lg|sin|cos|tan|exp|sqrt)\s*(?:_\s*\{?\w+\}?|\^\s*\{?-?\w+\}?)\s*$"
)
_OTHER_VALUE = re.compile(r"(?<![\w.])(-?\d[\d.]*)\$?,? or$")
_RANGE = re.compile(r"(?<![\w.])\d[\d.]*%?\$?(?:[–—]|\s*[+−×÷·*]\s*)\$?$")  # 10–\boxed{12} and 10 + \boxed{12}
_STRUCK = re.compile(r"~~$|<(?:s|del|strike)>$")


def before_it(before: str, around: Around) -> Joined:
    r"""What the end of the text before a box makes of its value: "\ge ", "-" or nothing."""
    word = before[-20:].rstrip("$ *{(").rpartition(" ")[2]
    if word.isascii() and word.isalpha() and not may_end_with(word.lower()):  # "is", and most others
        return NOTHING
    text, direct = _without_end(before)
    if text[-2:] == " =":
        return NOTHING
    end = End(before, text, direct, _LAST_WORD.search(text[-16:]), around)
    if not (end.word and end.word[1]) or end.word[2] in _COMMANDS or "\\not" in text[-16:]:
        for rule in SIGNS:
            if joined := rule.joined(end):
                excused = rule.is_bound and joined.strip() != r"\ne" and BOUND.search(around.question)
                return NOTHING if excused else Joined(joined, rule.id)
    if not end.word or end.word[1] or (end.word[2].isascii() and not may_end_with(end.word[2].lower())):
        return NOTHING
    found = rule_before(text, around)
    return Joined(found.joined, found.id) if found else NOTHING


class End(NamedTuple):
    """The end of what precedes a box."""

    before: str
    text: str
    """Without the blanks, marks and commands at its end."""
    direct: str
    """Whether it touches the box: see `_without_end`."""
    word: re.Match[str] | None
    """The word or command at the end of `text`."""
    around: Around


class Sign(NamedTuple):
    """A rule for signs and commands before a box."""

    id: str
    joined: Callable[[End], str]
    """What stands for them before the answer in the box; "" if they are not there."""
    is_bound: bool = False
    """Whether questions for an extreme value are answered by them."""


def _struck_out(end: End) -> str:
    return NOT if _STRUCK.search(end.before[-12:].rstrip("$ \\([")) else ""


def _sign_of_relation(end: End) -> str:
    last = end.text[-1:]
    if not last or last not in "<>≥≤≠⩾⩽=":
        return ""
    sign = end.text[-2:] if end.text[-2:] in (">=", "<=") else last
    arrow = last == ">" and end.text[-2:-1] in ("=", "-", "\n", "") and sign == ">"
    if arrow or sign == "=":
        return r"\ne " if end.text.endswith("\\not=") or end.text[-2:] == "!=" else ""
    return f"{_RELATIONS[sign]} "


def _command_of_relation(end: End) -> str:
    joined = _RELATIONS.get(end.word[2], "") if end.word and end.word[1] else ""
    return f"{joined} " if joined else ""


def _negated_relation(end: End) -> str:
    if not end.word or not end.word[1]:
        return NOT if end.text[-1:] == "¬" else ""
    negated = end.word[2] in _NEGATED or end.text[: -len(end.word[0])].rstrip().endswith("\\not")
    return NOT if negated else ""


def _function(end: End) -> str:
    return NOT if end.word and end.word[1] and end.word[2] in _OPENING else ""


def _about(end: End) -> str:
    sign = end.text[-1:] in ("≈", "≃", "≅") or (end.word and end.word[1] and end.word[2] in _ABOUT)
    return ABOUT if sign and not end.text[: -len(end.word[0]) if end.word else -1].rstrip().endswith("\\not") else ""


def _number(end: End) -> str:
    return NOT if end.text[-1:].isdigit() and _NUMBER_BEFORE.search(end.before[-30:].rstrip("$*({\\")) else ""


def _function_with_index(end: End) -> str:
    return NOT if _FUNCTION_BEFORE.search(end.text[-16:]) else ""


def _sign(end: End) -> str:
    last = end.text[-1:]
    if last not in _SIGNS or not end.direct or (last == "-" and end.text[-2:-1] in ("-", "—")):
        return ""
    return _SIGNS[last] if last != "/" or end.text[-2:-1].isdigit() else ""


def _range(end: End) -> str:
    return NOT if end.text[-1:] in {*"–—+−×÷·"} and _RANGE.search(end.before[-16:].rstrip("$ ")) else ""


def _digits(end: End) -> str:
    digits = end.before.rstrip("$*_{\\(")[-2:]  # 1\boxed{5}, 0.\boxed{5} and 1,\boxed{500}
    if digits[-1:] == "." or (digits[-1:] == "," and digits[:1].isdigit() and _THREE_DIGITS.match(end.around.answer)):
        digits = digits[:-1].strip() or "0"
    return NOT if digits[-1:].isdigit() and not end.text[-1:].isalpha() else ""


def _other_value(end: End) -> str:
    if end.around.kind == "letters":
        return NOT if _OTHER_CHOICE.search(end.text[-12:]) else ""
    if not end.word or end.word[2] != "or":
        return ""
    other = _OTHER_VALUE.search(" ".join(end.text[-40:].replace("*", "").split()))
    return rf"{other[1]}\text{{ or }}" if other else ""


SIGNS = [
    Sign("before.struck-out", _struck_out),
    Sign("before.negated-relation", _negated_relation),
    Sign("before.relation-sign", _sign_of_relation, True),
    Sign("before.relation", _command_of_relation, True),
    Sign("before.function-sign", _function),
    Sign("before.function-with-index", _function_with_index),
    Sign("before.about-sign", _about),
    Sign("before.number", _number),
    Sign("before.sign", _sign),
    Sign("before.operation-sign", _range),
    Sign("before.digit", _digits),
    Sign("before.or", _other_value),
]
"""The first of these rules that finds something decides."""


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
    r"[²³⁴-⁹½¼¾⅓⅔]|e\d|x\s*10|万|亿|千|百|多(?!少|项)|余(?!数)|至\d|到\d"
)
"""Signs that change a value which they touch."""
_SPACED_SIGNS = re.compile(
    r"[+/×÷·±]\s*[\d$\\(]|\\(?:times|cdot|pm|div|pi|[dt]?frac(?=\s*\{?\s*-?\d))(?![a-z])|\\?%|[²³½¼¾π^]|10\s*\^|"
    r"[-−]\s*\$?\d[\d.]*\$?\s*(?:$|[.,=])|‰|\+(?=[\s.$]|$)|万|亿|千|百|[–—]\s*\$?\d"
)
_LONE = r"(?:(?:i|pi|π)(?=[\s$]*(?:$|[,;]|\.(?![a-z])))|x\s*10\b|[a-z](?=\$\s*\.?\s*$))"
"""A factor after a blank: 5 i, 5 $x$ and 5 x 10^3."""
_OF_KELVIN = re.compile(r"kelvin|temperat|molar|concentrat|\b[KM]\b")
"""Questions whose answers have the units K or M."""
_AT_WORD = re.compile(r"[-(\[?]?[\s$*_]*(?:\\(?:text|mathrm|textbf|mbox|rm)\s*\{\s*)?(?=([^\W\d_]+(?:['’][^\W\d_]+)*))")
_HEDGES = {*word_list("approximately approx roughly ungefähr aproximadamente environ")}
_NO_SCALES = ("cento", "cem", "par")
_THOUSANDS = {"k": "thousand", "K": "thousand", "M": "million", "bn": "billion", "mn": "million", "tn": "trillion"}
_VALUE = (
    r"(?:[-+]?\\?\$?\d[\d,]*(?:\.\d+)?(?:/\d+)?|[-+]?\\[dt]?frac\s*\{\s*\d+\s*\}\s*\{\s*\d+\s*\}|"
    r"[-+]?\d*\\sqrt\s*\{?\d+\}?)"
)
_LETTER = r"[A-Za-z](?:_\{?\w\}?)?"
_FURTHER = re.compile(
    rf"[\s$*]*(?:,\s*)?(?:\\(?:text|mathrm|mbox)\s*\{{\s*)?(?:(?:and|or|plus|&|as well as|along with|{LINK_WORDS}|"
    rf"\\land|\\lor|\\wedge|\\vee)(?:\s+(?:also|possibly|maybe|perhaps|even))*[\s}}]*|,\s*)\$?\s*"
    rf"(?:(?P<name>{_LETTER})\s*=)?\s*(?P<value>{_VALUE})(?P<percent>\s*\\?%)?(?=[\s$]*(?:$|[.!?;,)]|\\[\])}}]))",
)
r"""A further value: \boxed{9} and $x=2$, \boxed{9}, 5."""
_SETS, _WORDS = ("intervals", "tuple", "set"), ("text", "letters")
FURTHER = r"\text{ and further}"
"""After an answer that goes on to say something which makes it another one."""
_STATES = re.compile(r"[\s$*~]*(?:[,(&]|\\[a-z,;(]|[A-Za-z\u0400-\uffff])")
"""Only such signs begin what states something about an answer."""
_CHANGED_BY = re.compile(
    r"[\s$*]*by (?:a factor of )?\$?(?:\d|\\frac|two|three|four|five|six|seven|eight|nine|ten|half|another|itself|"
    r"(?:an?|one|two) (?:half|third|quarter|fifth|tenth))"
)
_CHANGES = re.compile(
    r"\b(?:(?:in|de)creas(?:e|ing)|multipl(?:y|ying)|divid(?:e|ing)|rais(?:e|ing)|reduc(?:e|ing)|"
    r"lower(?:ing)?|scal(?:e|ing)|"
    r"shift(?:ing)?|chang(?:e|ing)|adjust(?:ing)?)(?: (?:it|this|that|the (?:number|value|result|"
    r"answer)))?[\s$*({\\]*$",
    re.I,
)
_ORDINAL = re.compile(r"(?:\$?\s*\^\s*\{?\s*(?:\\text\s*\{\s*)?)?[$*]*-?(?:st|nd|rd|th)\b[\s}$*]*(?=[A-Za-z])")
_ASKS_FOR_PLACE = re.compile(
    r"\bwhich|\bplace\b|\bposition|\brank|\bordinal|\dth\b|\bterm\b|\b(?:what|the) (?:day|floor|grade|row|"
    r"year|century|date)|"
    r"\bwhen\b|\bindex\b|\bdigit\b|\bbirthday|\bin line\b|\bpercentile|\bhow old|\broot\b|\bpower\b",
    re.I,
)
_GROUP = re.compile(
    r"[\s$*}]*(?:\\text\s*\{\s*)?(?:(?P<group>(?P<several>(?:pair|couple|trio|triplet|quartet|quintet|duo|twin)s?\b)|"
    r"(?:box|pack|bag|packet|crate|carton|bundle|case|stack|batch|team|group|row|basket|deck|set|package|bunch|jar|"
    r"tray|bottle|sheet|roll|page|shelf|shel[fv]e|class|bus|tank|container|handful|bucket|column|layer|"
    r"tin|can)(?:e?s)?\b))"
    r"(?:\s+(?:of|with|full of)\s+(?P<members>[a-z]+))?\b"
)
_ASKED_THINGS = re.compile(
    r"\b(?:how many|(?:the )?(?:total )?number of)\s+(?P<things>(?:(?!(?:do|does|did|are|is|was|were|will|"
    r"can|could|would|"
    r"should|have|has|had|in|of|that|to|for|on|at|must|may|there|it|he|she|they|we|left|remain)\b)[a-z-]+\s*){1,4})",
    re.I,
)
_COUNTABLE = {
    *word_list(
        "solu way ways inte numb valu poin poss choi comb elem root tupl arra outc prim sets subs func line "
        "tria diff dist orde pair coup case perm grou part grap"
    )
}
"""The first letters of things of which pairs and groups are counted."""
_FURTHER_WORD = re.compile(
    rf"[\s$*]*(?:,\s*)?(?:and|or|y|e|{LINK_WORDS})\s+\$?(?P<word>[A-Z]\w*)\$?(?=\s*(?:$|[.!?;,]))"
)
_MODULUS = re.compile(
    r"[\s$,(~]*(?:\\[,;: ])*(?:\\[pb]?mod|\(?\s*\\(?:text|mathrm)\s*\{\s*\(?mod|\(?mod(?:ulo)?)[^\d\n.]{0,6}(\d+)"
)
_BASE = re.compile(
    r"[\s$]*\(?(?:\\text\s*\{\s*\(?)?(?:(?:in |written in )?base[- ]?\s?(?P<base>\d{1,2}|two|eight|ten|sixteen)|"
    r"(?:in )?(?P<word>binary|octal|decimal|hexadecimal))\b"
)
_BASES = {"two": 2, "eight": 8, "ten": 10, "sixteen": 16, "binary": 2, "octal": 8, "decimal": 10, "hexadecimal": 16}
_HALF_OF_DAY = re.compile(r"[\s$]*(?:\\(?:text|mathrm)\s*\{\s*)?(?P<half>[AaPp])\.?\s?[Mm]\b")
_BLANKS = r"(?:[\s$]|\\[,;:! ]|\\q?quad(?![a-z]))*"
_INDEX = re.compile(
    rf"{_BLANKS}[,(]?{_BLANKS}(?:for|where|with|and)\s+(?:all\s+|any\s+)?"
    r"(?P<which>odd|even|positive|negative|natural|prime|"
    r"non-?negative|non-?zero)\s+(?:integers?\s+|numbers?\s+|values of\s+)?\$?[a-z](?![a-z])|"
    rf"{_BLANKS}[,(]?{_BLANKS}(?:where|for(?: all| any| every)?|with|if|when|and)?\s*\$?\s*(?P<letter>[a-z])\$?\s*"
    r"(?P<said>(?:is|are|be|runs|ranges|\\in|∈|>|<|≥|≤|≠|\\(?:ge|le|ne|geq|leq|neq|notin|geqslant|"
    r"leqslant)(?![a-z])).{0,60})"
)
_RESTRICTS = re.compile(
    r"\b(?:odd|even|positive|negative|non-?negative|natural|prime|whole|real|divisible|multiple)\b|"
    r"[<>≥≤≠ℕℝℚ]|\\(?:ge|le|ne|geq|leq|neq|gt|lt|notin|NN|RR|QQ)(?![a-z])|"
    r"(?:\\mathbb\s*\{?\s*[NRQ]|\\mathbf\s*\{?\s*[NRQ]|\\mathbb\s*\{?\s*Z\s*\}?\s*[_^\\])|\\in\s*[NRQ]\b"
)
"""What makes the index of a family more, or less, than an integer."""
_ON_SET = re.compile(
    r"[\s$]*[,(]?\s*(?:where|for|with|if|but|and|provided)?\s*\$?\s*(?P<letter>[a-z])\$?\s*"
    r"(?:(?:is |be )?(?:an?|not an?) (?:\w+ )?(?:integer|number)|\\neq?(?![a-z])|≠|\\notin|\\in\s*\\mathbb\s*\{?[ZNQ])"
)
"""A condition on the numbers of a set: [-3, 5], x ≠ 0."""


def after_it(after: str, around: Around) -> Joined:
    r"""What the beginning of the text after a box makes of its value: " \text{million}"."""
    if _STATES.match(after):
        for rule in STATED:
            if (found := rule.pattern.match(after)) and (joined := rule.joined(found, around)):
                return Joined(joined, rule.id)
    start = _AFTER_IT.match(after)
    assert start is not None  # it may be empty
    at, rest = start.end(), after[start.end() :]
    if not rest or (rest[0] in ".。;" and not rest[1:2].isdigit()):
        return NOTHING
    touches = not any(blank in after[:at] for blank in " \n\t~\\&")
    for rule in TOUCHING if touches else APART:
        found = rule.pattern.match(rest) if rule.id != "after.subscript" else rule.pattern.match(after)
        if found and (joined := rule.joined(found, around)) and not _is_unit(found, rest):
            return Joined(joined, rule.id, rest[found.end() :])
    word = _AT_WORD.match(rest)
    return _word_after(rest, word, around) if word else Joined("", "", rest)


def _is_unit(found: re.Match[str], rest: str) -> bool:
    """Whether a letter after a value is its unit: 5 m."""
    return found[0].isascii() and found[0].isalpha() and LETTER_UNIT.match(rest) is not None


class Stated(NamedTuple):
    """A rule for what a box is followed by."""

    id: str
    pattern: re.Pattern[str]
    joined: Callable[[re.Match[str], Around], str]
    """What stands for it beside the answer in the box; "" if it changes nothing."""


def _modulus(found: re.Match[str], around: Around) -> str:
    divisor = rf"(?:\bmod\w*|divi\w+ by|/\s*\\?m?a?t?h?b?b?)\W*{found[1]}(?!\d)"
    asked = not around.asks_for("family") and re.search(divisor, around.question)
    return "" if asked else rf"\pmod{{{found[1]}}}"


def _base(found: re.Match[str], around: Around) -> str:
    radix = str(_BASES.get(found["word"] or found["base"], found["base"]))
    known = radix == "10" or (found["word"] or f"base {radix}") in around.question.lower()
    wanted = around.kind == "expression" and (around.asks_for("base") or not known)
    return f"_{{{radix}}}" if wanted else ""


def _half_of_day(found: re.Match[str], around: Around) -> str:
    return rf"\text{{ {found['half']}.m.}}" if around.kind in ("time", "ratio") else ""


def _index(found: re.Match[str], around: Around) -> str:
    restricted = found["which"] or _RESTRICTS.search(found["said"])
    return FURTHER if restricted and around.asks_for("family") else ""


def _on_set(found: re.Match[str], around: Around) -> str:
    return FURTHER if around.kind in _SETS and around.asks_for(*_SETS) else ""


def _further(found: re.Match[str], around: Around) -> str:
    if found["name"] not in (None, around.name, around.name or found["name"]) or around.kind in _WORDS:
        return ""
    return rf"\text{{ and }}{found['value']}{found['percent'] or ''}"


def _changed_by(found: re.Match[str], around: Around) -> str:
    return NOT if _CHANGES.search(around.before[-30:]) else ""


def _ordinal(found: re.Match[str], around: Around) -> str:
    return "" if _ASKS_FOR_PLACE.search(around.question) else FURTHER


def _group(found: re.Match[str], around: Around) -> str:
    asked = _ASKED_THINGS.search(around.question)
    things = [word[:4] for word in asked["things"].lower().split()] if asked else []
    group, members = (word and word.lower()[:4] for word in found.group("group", "members"))
    if not things or group in things or any(word in _COUNTABLE for word in things):
        return ""
    return FURTHER if members in things or (not members and found["several"]) else ""


def _further_word(found: re.Match[str], around: Around) -> str:
    return NOT if around.kind in _WORDS else ""


def _joined_sign(found: re.Match[str], around: Around) -> str:
    if found[0] in ("%", r"\%"):
        return r"\%"
    return "" if around.kind in _WORDS else FURTHER


def _factor(found: re.Match[str], around: Around) -> str:
    return "" if around.kind in _WORDS else f" {found[0]}" if found[0] in ("i", "π") else FURTHER


def _subscript(found: re.Match[str], around: Around) -> str:
    return r"\text{ subscript}"


STATED = [
    Stated("after.changed-by", _CHANGED_BY, _changed_by),
    Stated("after.ordinal", _ORDINAL, _ordinal),
    Stated("after.group", _GROUP, _group),
    Stated("after.modulus", _MODULUS, _modulus),
    Stated("after.base", _BASE, _base),
    Stated("after.half-of-day", _HALF_OF_DAY, _half_of_day),
    Stated("after.index", _INDEX, _index),
    Stated("after.condition", _ON_SET, _on_set),
    Stated("after.further", _FURTHER, _further),
    Stated("after.further-word", _FURTHER_WORD, _further_word),
]
"""What a formula or sentence goes on to say after a box."""
TOUCHING = [
    Stated("after.subscript", re.compile(r"_\s*\{?\d"), _subscript),
    Stated("after.letter", re.compile(r"[A-Za-zπ](?![A-Za-z.])"), _factor),
    Stated("after.sign", _JOINED_SIGNS, _joined_sign),
]
"""Signs that touch a box."""
APART = [
    Stated("after.factor", re.compile(_LONE), _factor),
    Stated("after.sign-apart", _SPACED_SIGNS, _joined_sign),
]
"""Signs that blanks part from a box."""


def _scale(word: re.Match[str], _around: Around) -> str:
    scale = scale_of(word[1]) if len(word[1]) > 1 and word[1].lower() not in _NO_SCALES else None
    return rf"\text{{ {word[1]}}}" if scale and not scale[1] else ""


def _letter_of_scale(word: re.Match[str], around: Around) -> str:
    if word[1] not in _THOUSANDS or "(" in word[0] or (word[1] in "KM" and _OF_KELVIN.search(around.question)):
        return ""
    return rf"\text{{ {_THOUSANDS[word[1]]}}}"


SCALES = [Stated("after.scale", _AT_WORD, _scale), Stated("after.letter-of-scale", _AT_WORD, _letter_of_scale)]
"""Words and letters that multiply the value before them."""


def _word_after(rest: str, word: re.Match[str], around: Around) -> Joined:
    """What a word after a box makes of its value."""
    low = word[1].lower().replace("’", "'")
    for rule in SCALES:
        if joined := rule.joined(word, around):
            return Joined(joined, rule.id, rest[word.end() + len(word[1]) :])
    if not may_begin_with(low if low.isascii() else fold(low)):
        return Joined("", "", rest)
    found = rule_after(rest[word.end() :] if rest[0] != "?" else rest, around)
    if found is None:
        return Joined("", "", rest)
    rule, words = found
    return Joined(rule.joined or rf"\text{{ {words}}}", rule.id)
