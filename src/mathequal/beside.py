r"""What stands beside a box and belongs to the answer: a relation, sign or word before it, as in $x\ge\boxed{5}$ and
"at least \boxed{5}", and a scale, unit or word after it, as in "\boxed{5} million" and $\boxed{94}$ km/s.

All of it is joined to the answer as it would be written in the box, so that one set of rules judges both.
"""

import re

from mathequal.languages import scale_of
from mathequal.text import word_list
from mathequal.units import adds_a_name, counts_things, read_unit

_SPACING = r"(?:[\s~*_]|\\[,;:! ]|\$|\\[)\]]|&nbsp;|</?\w{1,6}>)*"  # and the end of the box's formula
_POWER = r"(?:\s*(?:\$\s*)?\^\s*(?:\{\s*-?\d\s*\}|\d)|[²³]|<sup>\d</sup>)?"
_MARKED = rf"\\(?:text|mathrm|textrm|mbox|rm)\s*\{{[^{{}}]*\}}{_POWER}"
_BY = r"\s*(?:[/~·*]|\\cdot(?![a-z])|\\times(?![a-z]))?\s*"
_WORD = rf"[A-Za-zµ°]{{2,}}{_POWER}"
_LETTER = rf"(?:[msghLlNJKWVA]|(?<![\d}}])t){_POWER}(?=[\s$]*(?:$|[.,;:!)\]*<_]|\s[a-z])|$)"
_UNIT = re.compile(
    rf"{_SPACING}(?:,\s*(?=in\s))?(?:[(\[]?\$?\s*(?:in\s+(?:[*_$]+)?)?|-(?=[A-Za-z]{{2}}))(?:(?P<marked>{_MARKED}(?:{_BY}{_MARKED})*)"
    r"(?=\s*(?:$|[.,;:)\]$]|\\[)\]\\]|[A-Za-z]))"
    r"|(?P<degrees>(?:°|\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-z])))[\s$]*(?:\\(?:text|mathrm|rm)\s*\{\s*)?"
    r"(?P<scale>[CF](?![A-Za-z]))?)"
    rf"|(?P<plain>[A-Za-z]\s?/\s?[A-Za-z]{{1,3}}{_POWER}\b|{_WORD}(?:(?:\s?/\s?|\s){_WORD}|\s?/\s?[A-Za-z]\b){{0,3}}"
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


_ASKS_FOR_BOUND = re.compile(
    r"\b(?:least|most|min|max|minim\w*|maxim\w*|m[ií]nim\w*|m[aá]xim\w*|small\w*|larg\w*|great(?:est)?|fewest|bounds?|"
    r"lowest|highest|inf|sup|infimum|supremum|best|optimal|shortest|longest|must|kleinst\w*|gr[oö](?:ß|ss)t\w*|menor|"
    r"mayor|maior)\b|最[大小少多低高优]|至[少多]|наим|наиб",
    re.I,
)
"""Questions that $S\\ge\\boxed{5}$ and "at least 5" answer by 5: those for an extreme value."""

_RELATIONS = dict(
    zip(
        word_list("ge geq geqslant geqq gt gg le leq leqslant leqq lt ll ne neq nless ngtr"),
        word_list(r"\ge \ge \ge \ge > > \le \le \le \le < < \ne \ne \ge \le"),
        strict=True,
    )
) | {">": ">", "<": "<", "≥": r"\ge", "≤": r"\le", "≠": r"\ne", "⩾": r"\ge", "⩽": r"\le", ">=": r"\ge", "<=": r"\le"}
_LAST_WORD = re.compile(r"(\\?)([^\W\d_]+)$")
_SILENT = {*word_list("left big Big bigl text textbf textrm mathrm mathbf displaystyle quad qquad mbox boldsymbol bf")}
_SIGNS = {"-": "-", "−": "-", "√": r"\sqrt", "±": r"\pm", "^": "2^", "/": "1/", "×": r"2\cdot", "·": r"2\cdot"}
_OPENING = {"overline", "bar", "underline", "sqrt", "surd", "cdot", "times", "pm", "mp", "div", "frac", "log", "ln", 
            "lfloor", "lceil", "sin", "cos", "tan", "exp"}  # fmt: skip
ABOUT = r"\text{about }"
"""A hedge before a box."""
_COMPARED = r"more|greater|bigger|larger|higher|longer|older|better"
_BELOW = r"less|fewer|smaller|lower|shorter|younger|worse"
_COUNT = r"\d+|two|three|four|five|six|seven|eight|nine|ten|a hundred|a thousand"
_LEFT_WORDS = [(re.compile(rf"(?<![^\W\d_])(?:{words})$", re.I), joined) for words, joined in (
    (rf"at least|(?:no|not) (?:{_BELOW}) than|minimum of|mindestens|au moins|al menos|por lo menos|almeno|не менее|"
     r"至少|不少于|不小于", r"\ge "),
    (rf"at most|(?:no|not) (?:{_COMPARED}) than|up to|maximum of|höchstens|au plus|a lo sumo|как максимум|не более|"
     r"至多|最多|不超过|不多于|不大于", r"\le "),
    (rf"(?:{_COMPARED}|mehr|más|plus|più) (?:than|als|de|di)|above|exceed(?:s|ing)?|over|beyond|mayor que|"
     "超过|大于|多于", "> "),
    (rf"(?:{_BELOW}|weniger|menos|moins) (?:than|als|de)|below|under|menor que|小于|少于", "< "),
    (r"minus|negative|menos|moins|负", "-"), ("plus or minus", r"\pm "),
    (r"about|around|approximately|approx|roughly|nearly|almost|circa|ungefähr|etwa|environ|aproximadamente|约|大约",
     ABOUT),
    (r"twice|thrice|double|triple|half|doppelt so viel wie|"
     r"(?:halves|half|thirds?|quarters?|square|cube|root|reciprocal|inverse|opposite|negative|multiples?|factorial|"
     r"percent|per cent|%|log|logarithm|tenths?|hundreds|thousands|millions|dozens|double|triple|instead|powers?|"
     r"doble|mitad|moitié) (?:of|de)|(?:other|rather) than|[\d}%]\$? of|between [^ ]{1,14} and|"
     rf"(?:any(?:thing)?|every(?:thing)?|all) (?:but|except)|except|(?:{_COUNT})[- ]times|二分之一|两倍",
     r"\text{not }"),
)]  # fmt: skip
"""Words before a box, and what stands for them in it; what only changes the value in another way makes it another."""
_LAST_WORDS = {
    *word_list("""least than most of mindestens moins menos almeno to höchstens plus sumo более менее максимум als de di
    above exceed exceeds exceeding over beyond que below under minus negative about around approximately approx roughly
    nearly almost circa ungefähr etwa environ aproximadamente and or but except
    twice thrice double triple half wie times""")
}


_OTHER_VALUE = re.compile(r"(?<![\w.])(-?\d[\d.]*)\$?,? or$")


def before_it(before: str, question: str) -> str:
    r"""What the end of the text before a box makes of its value, as it is written in the box: "\ge ", "-" or ""."""
    word = before[-20:].rstrip("$ *{(").rpartition(" ")[2]
    if word.isascii() and word.isalpha() and word.lower() not in _LAST_WORDS:  # "is", and most others
        return ""
    text, direct = _without_end(before)
    if not text or text[-2:] == " =":
        return ""
    last = text[-1]
    if last.isalpha():
        word = _LAST_WORD.search(text[-16:])
        assert word is not None  # its last character is a letter
        if word[1]:
            joined = _RELATIONS.get(word[2], "") or (r"\text{not }" if word[2] in _OPENING else "")
            return "" if not joined or _excused(joined, question) else f"{joined} "
        if word[2].isascii() and word[2].lower() not in _LAST_WORDS:
            return ""
        tail = " ".join(text[-40:].replace("*", "").split())
        if other := _OTHER_VALUE.search(tail):
            return rf"{other[1]}\text{{ or }}"
        for pattern, joined in _LEFT_WORDS:
            if pattern.search(tail):
                bound = joined in (r"\ge ", r"\le ")
                return "" if bound and _excused(joined, question) else joined
        return ""
    if last in "<>≥≤≠⩾⩽=":
        sign = text[-2:] if text[-2:] in (">=", "<=") else last
        arrow = last == ">" and text[-2:-1] in ("=", "-", "\n", "") and sign == ">"
        denied = r"\ne" if text.endswith("\\not=") or text[-2:] == "!=" else ""
        joined = denied if arrow or sign == "=" else _RELATIONS[sign]
        return "" if not joined or _excused(joined, question) else f"{joined} "
    if last in _SIGNS and direct and not (last == "-" and text[-2:-1] in ("-", "—")):
        return _SIGNS[last] if last != "/" or text[-2:-1].isdigit() else ""
    digits = before.rstrip("$*_{\\(")[-2:]  # 1\boxed{5}, 0.\boxed{5} and 1,\boxed{500}
    if digits[-1:] == "." or (digits[-1:] == "," and digits[:1].isdigit()):
        digits = digits[:-1].strip() or "0"
    return r"\text{not }" if digits[-1:].isdigit() else ""


def _excused(joined: str, question: str) -> bool:
    """Whether a relation only says that the value is the extreme one, for which the question asks."""
    return joined.strip() != r"\ne" and _ASKS_FOR_BOUND.search(question) is not None


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
    r"[A-Za-z](?![A-Za-z.])|[²³⁴-⁹½¼¾⅓⅔]|e\d|x\s*10|万|亿|千|百|以[上下内外]|左右|多(?!少|项)|余(?!数)|至\d|到\d|及以[上下]"
)
"""Signs that change a value which they touch."""
_SPACED_SIGNS = re.compile(
    r"[+/×÷·±]\s*[\d$\\(]|\\(?:times|cdot|pm|div|pi|[dt]?frac(?=\s*\{?\s*-?\d))(?![a-z])|\\?%|[²³½¼¾π^]|10\s*\^|"
    r"[-−]\s*\$?\d[\d.]*\$?\s*(?:$|[.,=])|‰|\+(?=[\s.$]|$)|万|亿|千|百|以[上下内外]|左右|[–—]\s*\$?\d"
)
_VALUE = (
    r"[\s$]*(?:\\\(\s*)?(?:[-+]?\d|\\[dt]?frac|\\sqrt|\\pi|"
    r"(?:one|two|three|four|five|six|seven|eight|nine|ten|half|a)\b)"
)
_RIGHT_WORDS = re.compile(
    r"""(?:(?:or|and)\s(?:more|less|fewer|greater|higher|above|over|larger|bigger|smaller|lower|below|under|older|younger|
        better|worse|so|thereabouts|later|earlier|longer|shorter|up|beyond|something|counting)
    |(?:o|ou|oder|или)\s(?:m[aá]s|menos|plus|moins|mehr|weniger|более|менее)
    |and\s(?:an?|one|two|three|\d)[\s-](?:half|third|quarter|thirds|quarters|fourths?|fifths?)
    |squared|cubed|factorial|halves|thirds|quarters|fourths|fifths|sixths|sevenths|eighths|ninths|tenths|hundredths|
     thousandths|percent|per\scent|percentage|hundreds|thousands|millions|dozens|tens|
     gross|(?:minimum|maximum)(?=[\s.)]*$)|and[\s$]+\\[dt]?frac
    |approximately|approx|roughly|ungefähr|aproximadamente|environ
    |at\s(?:least|most|minimum|maximum)
    |wrong|incorrect|rejected|invalid|extraneous)(?![^\W\d_])""",
    re.I | re.X,
)
_RIGHT_SUMS = re.compile(
    rf"(?:times(?={_VALUE})(?!\s*an?\b)|(?:plus|minus)(?!\s(?:points|sign|side))|over(?=[\s$]*\d)|divided\sby|multiplied\sby|raised\sto|to\sthe\s(?:power|\w+\spower)|"
    r"to(?=[\s$]*\d)(?!\s*\d+\s*(?:decimal|d\.?p|significant|s\.?f|places|digits)))(?![^\W\d_])",
    re.I | re.X,
)
_LONE = re.compile(r"(?:(?:i|pi|π)(?=[\s$]*(?:$|[,;]|\.(?![a-z])))|x\s*10\b|[a-z](?=\$\s*\.?\s*$))")
"""A factor after a blank: 5 i, 5 $x$ and 5 x 10^3."""
_FIRST_WORDS = {
    *word_list("""or and o ou oder или squared cubed factorial halves thirds quarters fourths fifths sixths sevenths
    eighths ninths tenths hundredths thousandths percent per percentage tens gross minimum
    maximum hundreds thousands millions dozens approximately
    approx roughly ungefähr aproximadamente environ at wrong incorrect rejected invalid extraneous times plus minus over
    divided multiplied raised to""")
}
_AT_WORD = re.compile(r"[-(\[]?[\s$*_]*(?:\\(?:text|mathrm|textbf|mbox|rm)\s*\{\s*)?(?=([^\W\d_]+))")
_HEDGES = {*word_list("approximately approx roughly ungefähr aproximadamente environ")}


def after_it(after: str, question: str) -> tuple[str, str]:
    r"""What the beginning of the text after a box makes of its value, as it is written in the box: " \text{million}";
    and the text that follows."""
    start = _AFTER_IT.match(after)
    assert start is not None  # it may be empty
    at, rest = start.end(), after[start.end() :]
    if not rest or (rest[0] in ".。;" and not rest[1:2].isdigit()):
        return "", ""
    touches = not any(blank in after[:at] for blank in " \n\t~\\&")
    subscript = re.compile(r"_\s*\{?\d").match(after) if after[:1] == "_" else None
    if subscript:
        return r"\text{ subscript}", ""
    if touches and (signs := _JOINED_SIGNS.match(rest)):
        if not (signs[0].isascii() and signs[0].isalpha() and _LETTER_UNIT.match(rest)):
            return _sign(signs[0]), rest[signs.end() :]
    elif (signs := (_LONE if rest[0].isalpha() else _SPACED_SIGNS).match(rest)) and not _LETTER_UNIT.match(rest):
        return _sign(signs[0]), rest[signs.end() :]
    word = _AT_WORD.match(rest)
    return _word_after(rest, word, question) if word else ("", rest)


_LETTER_UNIT = re.compile(_LETTER)


def _sign(sign: str) -> str:
    """What a sign after a value is in the box: a percentage, a factor that is a letter, or another value."""
    if sign in ("%", r"\%"):
        return r"\%"
    return f" {sign}" if sign in ("i", "π") else r"\text{ and further}"


def _word_after(rest: str, word: re.Match[str], question: str) -> tuple[str, str]:
    """What a word after a box makes of its value, and the text that follows it."""
    first, low = word[1], word[1].lower()
    if len(first) > 1 and (scale := scale_of(first)) and not scale[1] and low not in ("cento", "cem", "par"):
        return rf"\text{{ {first}}}", rest[word.end() + len(first) :]
    if first == "k":
        return r"\text{ thousand}", rest[word.end() + 1 :]
    if low not in _FIRST_WORDS:
        return "", rest
    words = _RIGHT_WORDS.match(rest, word.end()) or _RIGHT_SUMS.match(rest, word.end())
    if words is None:
        return "", rest
    if low in _HEDGES:
        return ABOUT, rest[words.end() :]
    if low == "at" and _excused("", question):
        return "", rest[words.end() :]
    return rf"\text{{ {' '.join(words[0].split())}}}", rest[words.end() :]
