"""Reads an answer into a typed value: what the text says, not how it is written."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache, partial
from itertools import pairwise, product
from math import ceil, floor
from typing import Any

from mathequal.grammar import (
    FUNCTIONS,
    INFINITY,
    LONGEST,
    Node,
    decimal_node,
    fraction,
    holds,
    integer_node,
    readings,
    replaced,
    signed,
    times,
)
from mathequal.languages import chinese_number, number_of, scale_of
from mathequal.remarks import without_remarks
from mathequal.text import plain_latex, plain_words, word_list
from mathequal.units import (
    CODES,
    DEGREE,
    SPELLED_UNITS,
    Unit,
    adds_a_name,
    counts_things,
    introduces,
    read_unit,
)
from mathequal.values import exact, symbols

MINUS_INFINITY = ("-", INFINITY)
_NO_NAME = ("text", "")  # of the set that > 3 says
REALS = ((MINUS_INFINITY, False, INFINITY, False),)


@dataclass(frozen=True, slots=True)
class Answer:
    """A typed answer. Its kind is expression, quantity, list, tuple, set, intervals, named set, matrix, cases,
    assigned, equation, inequality, family, letters, text, time, date, base or ratio."""

    kind: str
    value: Any = None
    items: tuple["Answer", ...] = ()
    name: Node | None = None  # the x of x = 5 and x ∈ S
    unit: Unit | None = None
    words: tuple[str, ...] = ()  # the thing that is counted
    marks: str = ""  # brackets of a tuple, integer of a family
    links: tuple[str, ...] = ()  # connectors of a list, relations of a chain
    others: tuple["Answer", ...] = field(default=(), compare=False)  # further readings of the text
    said: frozenset[str] = field(default=frozenset(), compare=False)  # words that name it before it
    hedged: bool = field(default=False, compare=False)  # about 5
    over_reals: bool = field(default=False, compare=False)  # with n ∈ ℝ
    excluded: tuple[Node, ...] = field(default=(), compare=False)  # values that an expression's letter may not have


_MOST_TEXTS = 20
_MEASURED = {*word_list("old long tall wide high deep")}
_DEGREES = {"C": "celsius", "F": "fahrenheit", "CELSIUS": "celsius", "FAHRENHEIT": "fahrenheit", "K": "kelvin"}
_POUND_STERLING: Unit = ((("GBP", 1),), Fraction(1))
_NOT_IN_EXPRESSIONS = {*word_list("text rel seq set named ratio where setop unit units pm mod cases matrix")}
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_MONTHS = word_list("january february march april may june july august september october november december")
_ONES = word_list("""zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen""")
_TENS = word_list("twenty thirty forty fifty sixty seventy eighty ninety")
_SCALES = {"trillion": 10**12, "billion": 10**9, "million": 10**6, "thousand": 10**3, "hundred": 10**2, "dozen": 12}
_NUMBER_WORDS = {word: n for n, word in enumerate(_ONES)} | {
    f"{ten} {one}".removesuffix(" zero"): n for n, (ten, one) in enumerate(product(_TENS, _ONES[:10]), 20)
}
_PARTS = {"half": 2, "halve": 2, "quarter": 4, "hundredth": 100, "thousandth": 1000} | dict(
    zip(word_list("third fourth fifth sixth seventh eighth ninth tenth"), range(3, 11), strict=True)
)
_ORDINALS = dict(first="one", second="two", third="three", fifth="five", eighth="eight", ninth="nine", twelfth="twelve")


def _number_in_words(words: str) -> Any:
    """The number that words name: two thousand and nineteen, minus five, three quarters, two and a half million."""
    words = re.sub("^an? ", "one ", re.sub("[-,] ?", " ", words).removeprefix("and "))
    if len(words) > 150:
        return None
    if negative := re.fullmatch("(?:minus|negative) (.+)", words):
        inner = _number_in_words(negative[1])
        return inner and ("n", -inner[1], inner[2])
    for scale, size in _SCALES.items():
        before, found, after = f"{words} ".partition(f" {scale} ")
        if found:
            high, low = _number_in_words(before), _number_in_words(after.strip() or "zero")
            whole = high and low and 0 < high[1] < 1000 and 0 <= low[1] < size and (high[2] == "int" or not low[1])
            return _number(high[1] * size + low[1]) if whole else None
    if share := re.fullmatch("(.+) (?:out of|in) (.+)", words):
        top, bottom = map(_number_in_words, share.groups())
        return _number(top[1] / bottom[1]) if top and bottom and bottom[1] else None
    count, _, part = words.removesuffix("s").rpartition(" ")
    before, both, after = words.rpartition(" and ")
    number, top = (int(x) if x.isdecimal() else _NUMBER_WORDS.get(x) for x in (words, count))
    if words == "half" or (part in _PARTS and top and (top == 1) != words.endswith("s")):
        number = Fraction(top or 1, _PARTS[part])
    elif both and (whole := _number_in_words(before)) and (low := _number_in_words(after)):
        number = whole[1] + low[1] if whole[2] == "int" and 0 < low[1] < 1 else None
    elif point := re.fullmatch(rf"(.*\w) point((?: (?:{'|'.join(_ONES[:10])}))+)", words):
        whole, places = _number_in_words(point[1]), "".join(str(_ONES.index(word)) for word in point[2].split())
        number = whole and whole[1] + Fraction(int(places), 10 ** len(places))
    return None if number is None else _number(Fraction(number))


def _number(value: Fraction) -> Node:
    return ("n", value, "int") if value.denominator == 1 else ("n", value, "frac", 1)


def _ordinal(words: str) -> Node | None:
    """The number of a place: twenty-first."""
    before, _, last = words.replace("-", " ").rpartition(" ")
    number = _NUMBER_WORDS.get(f"{before} {_ORDINALS.get(last, re.sub('(?<=t)ie(?=th$)', 'y', last)[:-2])}".strip())
    return integer_node(number) if number and last[-2:] in ("th", "st", "nd", "rd") else None


_CALENDAR = (*_MONTHS, *word_list("monday tuesday wednesday thursday friday saturday sunday"))
_USUAL_TEXT = (
    ("^(?:(?:it|they|this|that|the (?!opposite|converse|negation|inverse|contrary|complement|other)[a-z]+) "
     "(?:(?:is|are) |(?=cannot|(?:con|di)verges))|on |in |quadrant )", ""), ("^(?:an?|the|only) | only$", ""),
    ("^infinite(?:ly many)?(?: solutions)?$", "infinitely many"),
    ("^(odd|even|prime|composite|(?:ir)?rational(?! f)) (?:functions?|numbers?|integers?)$", r"\1"),
)  # fmt: skip
_SHORT_WORDS = word_list("""yes no odd one two six ten up on off red all any tie not low day man sun max min dne
    nan inf may mon tue wed thu fri sat""")


_ALL = "(?:the set of )?(?:all |any |the )?"
_SIGNS = {"": "", "positive ": ">0", "negative ": "<0", "non-?negative ": ">=0", "non-?positive ": "<=0"}
_SETS = {"real": "R", "integer": "Z", "rational": "Q", "complex": "C", "natural": "N"}
_QUADRANTS = {
    "I": "first|1st|i|1|one", "II": "second|2nd|ii|2|two", "III": "third|3rd|iii|3|three",
    "IV": "fourth|4th|iv|4|four",
}  # fmt: skip
_WHOLE = [(re.compile(pattern), usual) for pattern, usual in {
    "(?:(?:plus|positive) )?infinity": r"\\infty", "(?:minus|negative) infinity": r"-\\infty",
    "(?:there (?:is|are) |the (?:equation|system|inequality) has )?(?:(?:no|zero) (?:real |such )?(?:solutions?|roots?|"
    "values?(?: of x)?)|none|(?:the )?empty(?: set)?)(?: exists?)?": r"\\emptyset",
    r"(\d\d?:\d\d) in the morning": r"\1 a.m.", r"(\d\d?:\d\d) (?:in the (?:afternoon|evening)|at night)": r"\1 p.m.",
    r"[a-z] ?= ?(\d\d?:\d\d.*)|at (\d\d?:\d\d.*)": r"\1\2", "([a-z]{2,})!": r"\1",
    "(?:(?:(?:the )?limit|it) )?(?:(?:is )?(?:un|not )defined|(?:is )?indeterminate|dne|does ?n[o']t exist|nan)":
    "undefined",
    "(?:12(?::00)? )?(?:noon|midday)(?: [(]?12(?::00)? ?p[.]?m[.]?[)]?)?": "12 p.m.",
    "(?:12(?::00)? )?midnight": "12 a.m.",
    r"(\d\d?:\d\d) ?(?:uhr|h|hrs|hours|o'clock)": r"\1", r"(\d\d?) (?:o'clock|uhr)": r"\1:00",
    **{rf"(?:in )?(?:the )?(?:(?:{place})[ -]quadrant|quadrant (?:{place})|q ?(?:{place}))": f"quadrant {numeral}"
       for numeral, place in _QUADRANTS.items()},
    "on ((?!on ).* \\d.*)": r"\1",
    "(yes|no|true|false)[,.:;]? (?:since|because|as) (?!.*(?:yes|no|not|true|false)\\b).*": r"\1",
    "(yes),? (?:it|they|this|there) (?:is|are|does|do|can)": r"\1",
    "(no),? (?:it|they|this|there) (?:is|are|does|do|can)(?: not|n't)": r"\1",
    **{f"{_ALL}{sign}{kind}(?:s| numbers)": rf"\\mathbb{{{letter}}}_{{{part}}}".removesuffix("_{}")
       for sign, part in _SIGNS.items() for kind, letter in _SETS.items()},
}.items()]  # fmt: skip
"""Whole answers in words, and how else they are written."""


def _operator(latex: str, phrase: re.Match[str]) -> str:
    r"""The operator that a phrase names; it closes and reopens the \text{…} around it."""
    before = phrase.string[: phrase.start()]
    return f"\x02 {latex} \x01" if before.count("\x01") > before.count("\x02") else f" {latex} "


_PHRASES = [(re.compile(rf"(?<!\\)\b(?:{phrase})(?!\w)", re.I), partial(_operator, latex)) for phrase, latex in {
    r"(?:is )?(?:(?:greater|more) than or equal to|at least|(?:no|not) less than)": r"\ge",
    r"(?:is )?(?:less than or equal to|at most|(?:no|not) (?:more|greater) than)": r"\le",
    r"(?:is )?(?:greater|more) than": ">", r"(?:is )?less than": "<", "(?:is )?not equal to": r"\ne",
    r"(?:is )?equal to|equals": "=",
    "plus or minus": r"\pm", "per cent": r"\%", r"(?:out of|(?:(?<=\d )|(?<=\d \x01))in)(?=[ \x02]*\d)": "/",
    r"(?:all )?multiples of(?=[ \x02]*(\d+))": r"\ZZ\cdot",
    r"approximately(?=[ \x02]*[\d\\])": r"\approx",
    r"(?:all(?: real)?(?: numbers| values)?(?: of)?|real|all[ \x02]*[a-z][ \x01]*such that)"
    r"(?=[ \x02]*[a-z0-9-]+ ?(?:[<>]|\\[lgn]))": "",
    r"USD(?=[ \x02]*\d)": r"\dollar", r"EUR(?=[ \x02]*\d)": r"\euro",
    r"GBP(?=[ \x02]*\d)": r"\gbp", r"(?:Rs\.|Rs|INR)(?=[ \x02]*\d)": r"\rupee",
    r"US(?=[ \x02]*(?:dollars?|\\dollar))": "", r"(?:minus|negative)(?=[ \x02]*[\d\\])": "-",
    r"(?:the set of )?(?:(?:all|any|the) )?real(?: numbers?| values?|[ \x02]*x(?![a-z]))|all reals": r"\RR",
    "except(?: for)?|other than|excluding": r"\setminus",
}.items()]  # fmt: skip
_CHOICE = re.compile(
    r"(?:(?i:(?:the )?(?:correct |right )?(?:option|choice|answer)(?: is)?):? )?(?:\( ?([A-Z]) ?\)|([A-Z])\)?[:.]?|"
    r"([A-Z])[:.)] (?P<text>\S.*)|\( ?([A-Z]) ?\)\.? ?(?P<more>\S.*))"
)
_TWO_CHOICES = re.compile(
    r"\( ?[A-Z] ?\)|\b(?:or|and|not|never|wrong|incorrect|maybe|perhaps|could|might|rejected|eliminated|excluded)\b|"
    r"^[A-Z](?:$|[.,:;/)])|[,/;] ?\(?[A-Z]\b|\b(?:see|be|is|but|it's) [A-Z]\b|\b[A-Z] is\b|^(?:no|false)[,;.]"
)
_LETTERS = re.compile(r"\(?[A-Z]\)?(?: ?(?:,|;|&|\band\b|, ?and\b) ?\(?[A-Z]\)?)+")
_TIME = re.compile(r"(\d{1,2})(?:(?: ?: ?(\d\d))?(?: ?: ?(\d\d))? ?([ap])\.? ?m\.?| ?: ?(0\d)(?: ?: ?(\d\d))?)")
_DATE = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)|([a-z]{3,})\.? (\d{1,2})(?:st|nd|rd|th)?(?: ?,? (\d{4}))?|"
    r"(?:the )?(\d{1,2})(?:st|nd|rd|th)?(?: of)? ([a-z]{3,})\.? ?,? ?(\d{4})?"
)
_CODE = re.compile(r"(?:\d\d?/){2}\d{4}|(?:\d{3}-){1,2}\d{4}|\d{4}(?:/\d\d?){2}|0[xbo][\da-f]+|(?:\([\d ]{2,}\) ?){2,}")
_BASE = re.compile(
    r"(-?)\s*[({]?\s*(?=[A-Fa-f]*[0-9]|[A-Fa-f]{2,}[ )}]*_ ?\{? ?16)([0-9A-Fa-f]+(?:\.[0-9A-Fa-f]+)?)\s*[)}]?\s*"
    r"(?:_\s*(?:\{\s*\(?\s*(?:base\s*)?(\d{1,2}|[a-z]+)\s*\)?\s*\}|(\d|[a-z]+))|"
    r"\(?\s*(?:in )?base[- ]?\s*(\d{1,2}|[a-z]+)\s*\)?)"
)
_LEAD = re.compile(
    r"""[\s*]*\x01?\s*(?:(?:(?:so|thus|hence|therefore|finally),?\ )?(?:
    (?:the\ )?(?:(?:final|correct|right)\ )?(?:answer|option|choice)[\s\x02]*(?:is|:)
    |(?:(?:it\ is|there\ are|is|are)\ )?(?:exactly|precisely|(?:a\ )?total\ of|in\ total|just|only|is|are)
     (?=[\s\x02]*(?:[-+]?[\d.]|\\(?:frac|sqrt|dollar|pi)(?![a-z])|\())
    |(?:respuesta|respuesta\ final|antwort|r[eé]ponse|risposta|resposta|ответ|odpowied[zź]|答え|답)\ ?[:：]
    |(?:la\ respuesta\ es|die\ antwort\ (?:ist|lautet)|la\ r[eé]ponse\ est|la\ risposta\ [eè]|a\ resposta\ [eé])
     (?![a-z]):?
    |(?:the\ )?(?:point|vertex|center|centre|midpoint|focus)(?=[\s\x02]*\()|(?:\\ell|L)\s*:(?=\s*[xy]\s*=)
    |(?:(?:so|thus|hence|therefore),?\ )?there\ (?:are|is)(?:\ exactly)?(?=[\s\x02]*\d)
    |(?:so|thus|hence|therefore),?(?=\s*\x02)
    |(?:so,?\ )?we\ (?:get|have|obtain|find)(?!\w)|(?:the\ )?year(?=\W*\d{4}))
    |(?:ans|answer|sol|solution)(?:\ ?[.:]{1,2}(?=\ )|(?=\ [-+]?(?:[\d.(]|\\(?:frac|sqrt|dollar))))
    |答案?\s*[是为:]|答案|选(?=\s*[A-H])|共有?(?=\s*\d)
    |\\(?:Rightarrow|implies|to)(?![A-Za-z])|(?P<said>[A-Za-z](?:[A-Za-z'\ ]|\x02\s*[A-Za-z]\s*\x01)*?
     (?:\b(?:are|was|were|has|have|had|is|equal\ to|point|[A-Za-z]{3,}s)|(?P<colon>:)))\s*
     (?=[\x02\s]*(?:[-+\d$\\(\[.]|[a-z]\ ?[=^]))
    |(?P<event>\\?(?:(?-i:Pr?|E|Var|Cov)|n(?=\s*\([^()]*\\c[au]p))\s*[(\[](?!\s*(?-i:[a-z0-9])\s*[)\]])[^()]{0,80}[)\]]
     |\\\#\s*[A-Z]|\\(?:deg|dim)\s*\(?[A-Za-z]\)?
     |\\(?:min|max)\s*_\s*\{[^{}]*\}\s*[A-Za-z](?:\([^()]*\))?)\s*(?:=|(?=\\approx))(?!.*,\s*\\?[A-Za-z])
    )[\s:*\x02]*""",
    re.I | re.X,
)
"""What names a value before it: "the answer is", "Maria has", "Domain:", P(A | B) =."""
_SAY_NOTHING = {
    *word_list("""the answer value values result final this that these those are was were has have had equal
    point she they there you john""")
}
_HEDGE = re.compile(
    r"^\s*\x01?\s*(?:about|around|roughly|approx\.|(?-i:ca\.?)|circa|environ|aproximadamente|alrededor de|cerca de|"
    r"etwa|ungef(?:a|ä)hr|rund|около|примерно|приблизительно|约为?|大约|約|およそ)(?![A-Za-z])[\s\x02]*"
    r"(?=[-+]?(?:[\d.]|\\(?:dollar|euro|gbp|frac)))",
    re.I,
)
_ROUNDED = re.compile(
    r"\s*,?\s*\(?\s*\x01\s*\(?\s*(?:(?:when )?rounded(?: (?:off|up|down))?(?: to [\w ]+)?|"
    r"to (?:the nearest|\d+) [a-z ]+|approximately|approx\.?)\s*\)?\s*\x02\s*\)?$"
)
"""What says that a value is rounded: before it, and after it."""
_LABEL = re.compile(
    r"[ ,;.\x01\x02]*(?<![^ ,;.\x01\x02])(?:and[ \x02]+)?(?:\(?(?P<part>[a-h])\)[:.]?(?=[ \x02])|"
    r"(?P<thing>[A-Za-z]{3,}) ?:(?=[ \x02]*[-\d\\(\[]))[ \x02]*"
)
_TAIL = re.compile(
    r"""(?<=[\d}])\s*\x01\s*(?:exactly|precisely|in\ total|altogether)\s*\x02$
    |(?<=\d)\s*\x01\s*(?:\w+\ ){0,2}(?:values?|solutions?|choices|integers?|pairs?)\ (?:of|for)\s*\x02
     \s*\(?[a-z](?:\s*,\s*[a-z])*\)?$
    |(?<=\d)\s*\x01\s*(?:\w+\ )?ways\ to(?:\ [a-z]+){1,5}\s*\x02$
    |(?:(?<=%)|(?<=\d))\s*\x01\s*(?:of\ (?:the|all)\ |each)[^\x02\d]*\x02$
    |,?\s*\(?\s*\x01\s*\(?,?\s*(?:as\ (?:required|desired|needed)|(?:because|since)\ [a-z\ ]+|
     (?:in\ interval\ notation|(?:verified|checked|confirmed|rejecting|discarding|using)(?:\ [a-z]+)*))\)?\s*\x02\s*\)?$
    |,?\s*\x01?\s*for\ (?:all|any)\ ?(?:real\ ?)?(?:numbers?\ ?|values\ of\ ?)?\x02?\s*[a-z]\x02?$
    |(?:,\s*(?:\x01\s*where)?|\x01\s*(?:where|for)|\()\s*\x02?\s*[a-z]\s*
     (?:\\in\s*\\RR\ *\)?|\x01\s*is\ (?:any|a)\ real\ number\s*\x02)$""",
    re.X,
)
"""What names it after it: 5 values of x, 5 % of the students, for all real x."""
_ROWS_OF_WORDS = re.compile(r"(?<=\d)\s+((?:[A-Za-z]{2,}\s+)+[A-Za-z]{3,})$")
_THOUSANDS = re.compile(
    r"([-+]?\s*(?:\\(?:dollar|euro|gbp|rupee)\s*)?[-+]?\s*)(\d{1,3}(?:,\d{3})+|(?P<indian>\d{1,2}(?:,\d\d)+,\d{3}))(?![\d,])"
    r"((?:\.\d+)?\s*(?:\\?%|\x01[^\x02]*\x02(?:\s*\^\s*\{?\d\}?)?|\\dollar|\\euro|\^\s*\{?\s*\\circ\s*\}?|"
    r"[A-Za-z ]{2,25})?)"
)
_DECIMAL_COMMA = re.compile(
    r"(?:[A-Za-z]\w{0,3} ?= ?)?[-+]?\s*"
    r"(?P<before>(?:\\(?:dollar|euro|gbp|yen|rupee)|(?:[A-Z]{3}|R|[Kk]r|Fr|z[lł])\.? )\s*)?"
    r"[-+]?\s*\d{1,3}(?P<groups>(?:[. ]\d{3})+|\d*),(?!\d{3}(?!\d))\d+\s*"
    r"(?P<after>\\?%|\\(?:euro|dollar|gbp|cent)|\^\s*\{?\s*\\circ.*|\x01?(?P<words>[^\x02\d]+)\x02?.*)?"
)
_DOLLARS = dict(
    C="CAD", CA="CAD", CDN="CAD", A="AUD", AU="AUD", R="BRL", HK="HKD", NT="TWD", S="SGD", NZ="NZD", MX="MXN"
)
_LONG_WORDS = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
_KNOWN_WORDS = (
    FUNCTIONS
    | SPELLED_UNITS
    | {*word_list("and or per begin end pmatrix bmatrix matrix array vmatrix cases infty if otherwise for")}
)
_INTEGERS = re.compile(
    r",?\s*\x01?\s*\(?(?:where|for (?:all|any|every|some)|any|with)?\s*(?:integers?)?\s*\x02?\s*([a-z])\s*\x01\s*"
    r"(?:is|be|are)?\s*(?:an?|any)?\s*(?:arbitrary )?integers?\)?\s*\x02\s*$|"
    r",?\s*\x01\s*(?:(?:for |where )?(?:any|all|every|some)|for) integers?\s*\x02\s*([a-z])\s*$|"
    r"\(\s*([a-z])\s*\\in\s*\\ZZ\s*\)$"
)


def _unbracketed(found: re.Match[str]) -> str:
    """The unit of 5 (cm) and 5 [N]."""
    unit = read_unit(found[2].split()) and (len(found[2]) > 1 or found[1] == "[" or "\x01" in found[0])
    return f" \x01{found[2]}\x02" if unit else found[0]


def _is_decimal_comma(found: re.Match[str]) -> bool:
    """Whether a comma parts a number's decimals, as in €13,50, 3,5 km and 1.234,50: lists have no unit, no groups."""
    words = (found["words"] or "").split()
    unit = found["before"] or (found["after"] and (not words or read_unit(words) or adds_a_name(words, None)))
    return bool(unit) or found["groups"].startswith((".", " "))


def _ungrouped(found: re.Match[str]) -> str:
    """Numbers without the marks between their thousands."""
    mark = next((x for x in " ." if x in found[0]), ",") if re.fullmatch(r"[-+\d .]+", found[0]) else ","
    return re.sub(rf"(?<=\d)[{mark}](?=\d\d(?:,\d\d)*,\d{{3}}(?!\d)|\d{{3}}(?!\d))", "", found[0])


def _terms(found: re.Match[str]) -> str:
    """All numbers of 1, 2, …, 6; the text itself unless they are in arithmetic progression."""
    first = [int(number) for number in found[1].split(",") if number.strip()]
    step = first[1] - first[0] if len(first) > 1 else 1
    every = range(first[0], int(found[2]) + (step > 0) - (step < 0), step) if step else range(0)
    whole = len(first) < len(every) <= 1000 and [*every][: len(first)] == first and every[-1] == int(found[2])
    return ", ".join(map(str, every)) if whole else found[0]


_AS_FORMULA: list[tuple[re.Pattern[str], Any]] = [(re.compile(pattern), usual) for pattern, usual in (
    (r"\x01\s*\x02", " "), (r"\(\s*\x01(?:where|for|if)\x02\s*(?=[a-z] ?\\ne)", "("),
    (r"^\x01?\s*(?:[Bb]oth(?=.*\band\b)|[Ee]ither(?=.*\bor\b))\s*\x02?\s*", ""),
    (r"^([A-Z]) ?: ?(\([^()]*,[^()]*\))$", r"\1 = \2"), (r"\\in ?([ZRQ])(?![\w'^({]| ?_)", r"\\in \\\1\1 "),
    (r"([a-z]) ?= ?(?:0 ?, ?(?:\\pm ?\d ?, ?)+|\\ldots ?, ?(?:-?\d ?, ?)+)\\ldots", r"\1 \\in \\ZZ "),
    (r"\\setminus( *)[a-z] ?= ?", r"\\setminus\1"),
    (r"((?:^|[,;]|\band\b) ?\x02? ?[A-Za-z] ?)\x01? ?is ?\x02?(?= ?[-\d(\\])", r"\1 = "),  # a is 3
    (r"(?<=[\d}])\s*\x01?\s*([(\[])\s*(?:\x01|in )*\s*([A-Za-z/^\d ]{1,25}?)\s*\x02?\s*[)\]]\s*\x02?$", _unbracketed),
    (r"(?<![\w.,/^)}])((?:-?\d{1,9} ?, ?){1,9})\\ldots ?, ?(-?\d{1,9})(?! ?(?:[\w.^/({!]|\\(?!\})))", _terms),
    (r"(?<=\S) \( ?([a-z] ?(?:[<>]|\\(?:[lg]eq?|neq?|in)(?![a-z]))[^()]*)\)$", r", \1"),  # (x > 0)
    (r"(?<=\S) \( *\x01? ?(?:about|roughly|approx\.?) ?\x02? ?(?=[\d.])", r" ( \\approx "),
    (r"(?<=\S) \( *((?:\x01?or\b|\\approx|=) ?[^()]*)\)$", r" \1"), (r"(?<=\S) \x01?or ?\x02? *(?=\\approx)", " "),
    (r"^\x01?\s*(-?[\d.]+)\s*\x01?\s*or \x01?(?:more|greater|larger)[\s\x02]*$", r"\\ge \1"),
    (r"^\x01?\s*(-?[\d.]+)\s*\x01?\s*or \x01?(?:less|fewer|smaller)[\s\x02]*$", r"\\le \1"),
    (r"^(\d+)\s*(?:\^\s*)?\{?\s*\x01?\s*(?:st|nd|rd|th)\s*\x02?\s*\}?$", "\\1 \x01places\x02"),
    (rf"^\x01?\s*({CODES})\.?\s*\x02?\s*(-?[\d.,]+)$", "\\2 \x01\\1\x02"),
    (r"^\x01?\s*(C|CA|CDN|A|AU|R|HK|NT|S|NZ|MX)\s*\x02?\s*\\dollar\s*([\d.,]+)$",
     lambda found: f"{found[2]} \x01{_DOLLARS[found[1]]}\x02"),
    (r"^[-+]?(?:\\(?:dollar|euro|gbp|rupee|yen) ?)?\d{1,3}(?: \d{3})+(?:\.\d+)? ?"
     r"(?:\x01[^\x02\d]*\x02|[A-Za-z]{2,}|\\[a-z]+)$|"
     r"^[-+]?\\(?:dollar|euro|gbp|rupee|yen) ?\d{1,3}(?: \d{3})+(?:\.\d+)?$",
     lambda found: re.sub(r"(?<=\d) (?=\d{3})", "", found[0])),  # 70 000 km
    (r"^[-+]?\d{1,3}(?: \d{3})+(?:\.\d+)?$|^[-+]?\d{1,3}(?:\.\d{3}){2,}$", _ungrouped),
    (r"^[-+]?\d+\.\d{3}(?: \d{3})* \d{1,3}$", lambda found: found[0].replace(" ", "")),  # 3.141 592 65
    (r"(?<=[\d}])\s*(?:\x01\s*to\s*\x02|\sto\s)\s*(?=[\d\\])", " : "),
    (r"(?<![\d,.(\[{])\d{1,3}(?:,\d{3})+(?![\d,])(?=\s*(?:=|\\approx|\x01))", _ungrouped),
    (r"^(?!.*(?:[(\[]|, |\\\{|,\d{3}(?!\d|,\d{3}| ?(?:[-+*/.]|\\(?:pi|sqrt|cdot)|$)))).*\d ?[-+*/\\].*$", _ungrouped),
)]  # fmt: skip


_REWRITTEN = (*_PHRASES, *_AS_FORMULA)
_ONLY_DIGITS = re.compile(r"-?\d{1,300}(?:\.\d{1,300})?")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2}")


def _by_label(plain: str) -> str:
    """Answers in parts, (a) 3 (b) 4 or apples: 5, pears: 7, as values with names."""
    before, *rest = _LABEL.split(plain)
    labels, parts = [part or thing for part, thing in zip(rest[::3], rest[1::3], strict=True)], rest[2::3]
    in_order = {*labels} == {*"abcdefgh"[: len(labels)]} or None not in rest[1::3]
    whole = not before and 1 < len(labels) == len({*labels}) and in_order and all(map(str.strip, parts))
    return ", ".join(f"\x01{label}\x02 = {part}" for label, part in zip(labels, parts, strict=True)) if whole else plain


def _without_lead(lead: re.Match[str]) -> str:
    """Nothing in place of words that only introduce a value; words that negate, compare or compute stay."""
    words = re.sub("[\x01\x02:]", " ", lead["said"] or "").split()
    of_letter = re.fullmatch("(?!.*value of [a-zA-Z] is$).* [b-zA-Z] .*", " ".join(words))
    whole = len(words) < 8 and len(lead["said"] or "") > 4 and (len(words) > 1 or lead["colon"])
    if words and (of_letter or not whole or not introduces(words)):
        return lead[0]
    return "\x01" * (lead[0].count("\x01") - lead[0].count("\x02"))


@lru_cache(maxsize=8192)
def read(text: str, *, units: bool = False) -> Answer | None:
    """The typed value of a text, or None. units: single letters after numbers may be units."""
    if len(text) > LONGEST:
        return None
    if _ONLY_DIGITS.fullmatch(text):  # most answers are, and need none of what follows
        return Answer("expression", signed("-" * (text[0] == "-"), decimal_node(text.lstrip("-"))))
    plain = _by_label(plain_latex(text))
    if "\x01" in plain or (")" in plain and _WORD.search(plain)) or r"\because" in plain:
        plain = without_remarks(plain, _number_in_words)
    event, said = None, frozenset[str]()
    if lead := _LEAD.match(plain):
        said = frozenset(re.findall("[a-z]{3,}", (lead["said"] or "").lower())) - _SAY_NOTHING
        event = lead["event"] and ("event", re.sub(r"[^\w'|^<>=+-]", "", lead["event"].replace(r"\mid", "|")))
        plain = _without_lead(lead) + plain[lead.end() :]
    exactly, plain = (
        plain,
        _ROUNDED.sub(
            "", _HEDGE.sub(lambda hedge: "\x01" * (hedge[0].count("\x01") - hedge[0].count("\x02")), plain, count=1)
        ),
    )
    hedged = plain != exactly
    over_reals = ("\\RR" in plain or "real" in plain) and _INDEX_IS_REAL.search(plain) is not None
    plain = plain if re.search(r"\\pi.*[kmn] ?\\in ?\\RR", plain) else _TAIL.sub("", plain)
    words = plain_words(plain)
    if not words:
        return None
    if answer := _read_words(words, marked="\x01" in plain):
        return replace(answer, hedged=hedged)
    digits = re.sub(" ?[\x01\x02] ?", "", plain)
    if base := _BASE.fullmatch(digits) or (digits[0] == "{" and _BASE.fullmatch(digits[1:-1])):
        radix = base[3] or base[4] or base[5]
        radix = int(radix) if radix.isdigit() else _NUMBER_WORDS.get(radix, 0)
        digits = base[2].upper().lstrip("0") or "0"
        if 2 <= radix <= 36 and all(int(digit, 36) < radix for digit in digits.replace(".", "")):
            return Answer("base", (base[1], f"0{digits}" if digits[0] == "." else digits, radix))
    for phrase, usual in _REWRITTEN if _WORD.search(plain) else _AS_FORMULA:
        plain = phrase.sub(usual, plain).strip()
    if sum(word.lower() not in _KNOWN_WORDS for word in _LONG_WORDS.findall(plain)) > 4:  # prose
        return None
    others: tuple[Answer | None, ...] = ()
    unbraced = plain[1:-1].strip() if re.fullmatch(r"\{[^{}]*\}", plain) else plain
    if (grouped := _THOUSANDS.fullmatch(unbraced)) and grouped[2][0] != "0":
        is_list = not grouped[1].strip() and not grouped[4].strip() and ",0" not in grouped[2]
        others = (_parsed(plain, units),) if is_list else ()
        plain = _ungrouped(grouped)
    elif (comma := _DECIMAL_COMMA.fullmatch(unbraced)) and _is_decimal_comma(comma):
        return None
    if (count := _ROWS_OF_WORDS.search(plain)) and counts_things(count[1].split()):  # 5 red balls
        plain = f"{plain[: count.start()]} \x01{count[1]}\x02"
    answer = _parsed(plain, units)
    if answer and event:
        return Answer("assigned", items=(answer,), name=event, links=("=",))
    if answer is None:
        return _concluded(plain, units)
    others = (*answer.others, *filter(None, others))
    return replace(answer, others=others, said=said, hedged=hedged, over_reals=over_reals)


_INDEX_IS_REAL = re.compile(
    r"[kmnj]\s*\\in\s*\\RR(?![_^])|\breal(?: numbers?| values? of)?[\s\x01\x02]*[kmnj][\s\x02]*$"
)
_FOLLOWS = re.compile(r"\\(?:Rightarrow|implies|Longrightarrow|iff|Leftrightarrow|to)(?![A-Za-z])")


def _concluded(plain: str, units: bool) -> Answer | None:
    """What conclusions end with, 2x = 6 ⇒ x = 3; None unless all of them are read and each value is named once."""
    parts = [part.strip(" ,;") for part in _FOLLOWS.split(plain)]
    if not 1 < len(parts) <= _MOST_TEXTS:
        return None
    answers = [_parsed(part, units) for part in parts]
    if any(x is None or x.kind not in ("equation", "inequality", "assigned", "intervals") for x in answers):
        return None
    *steps, last = filter(None, answers)
    named = last.kind in ("assigned", "intervals") and not any(x.name == last.name for x in steps)
    return last if named else None


def _parsed(plain: str, units: bool) -> Answer | None:
    plain = _INTEGERS.sub(lambda found: rf", {found[1] or found[2] or found[3]} \in \ZZ ", plain)
    for ways in readings(plain, units=units):
        answers = [_build(items, links) for items, links in ways]
        if answers and answers[0]:
            others = tuple(other for other in answers[1:] if other and other != answers[0])
            return replace(answers[0], others=answers[0].others + others)
    return None


def _read_words(words: str, *, marked: bool) -> Answer | None:
    r"""Answers that are words, letters, times and dates. marked: whether \text{…} or the like was there."""
    if _LETTERS.fullmatch(words):
        return Answer("letters", frozenset(re.findall(r"(?<![A-Za-z])[A-Z](?![A-Za-z])", words)))
    if choice := _CHOICE.fullmatch(words):
        text = choice["text"] or choice["more"] or ""
        if not _TWO_CHOICES.search(text):
            letter = choice[1] or choice[2] or choice[3] or choice[5]
            return Answer("letters", frozenset({letter}), words=(text,) * (text != ""))
        return Answer("text", words.lower())
    if inner := re.fullmatch(r"\( ?([^\W\d_]{2,}) ?\)", words):
        words = inner[1]
    low = words.lower().replace("\\", "")
    for pattern, usual in _WHOLE if ":" in low or re.search("[a-z]{2}", low) else ():
        if (found := pattern.fullmatch(low)) and (written := found.expand(usual)).lower() != low:
            return read(written)
    if time := _TIME.fullmatch(low):
        hour = int(time[1]) % 12 + 12 * (time[4] == "p") if time[4] else int(time[1])
        return Answer("time", (hour, int(time[2] or time[5] or 0), int(time[3] or time[6] or 0)))
    if date := _DATE.fullmatch(low):
        year, named, day = date[1] or date[6] or date[9], date[4] or date[8], date[3] or date[5] or date[7]
        month = [n for n, name in enumerate(_MONTHS, 1) if name.startswith(named)] if named else [int(date[2])]
        if month and int(day) <= 31:
            return Answer("date", (int(year) if year else None, month[0], int(day)))
    if _CODE.fullmatch(low):
        return Answer("date", low)
    if chinese := None if low.isascii() else chinese_number(low):
        number = _number(chinese[0])
        return _quantity(number, (chinese[1],)) if chinese[1] else Answer("expression", number)
    if words == low and len(low) > 2 and (whole := number_of(low)) is not None:  # Nove may be a name
        return Answer("expression", integer_node(whole))
    if re.search("[a-z]{3}", low):
        twice = re.fullmatch(r"(.+?) \( ?(.+?) ?\)", low)  # 84 (eighty-four)
        if number := _number_in_words(twice[1] if twice else low):
            if twice and _number_in_words(twice[2]) != number:
                return None
            return Answer("expression", number)
        if number := _ordinal(low):
            return Answer("quantity", number, words=("place",))
        runs = low.split()[:9]
        for n in range(min(len(runs) - 1, 8), 0, -1):  # two hundred apples
            counted = tuple(re.sub("^(?:of )?an? ", "", " ".join(low.split()[n:])).split())
            number = None if runs[0].isdecimal() else _number_in_words(" ".join(runs[:n]))
            if number and (quantity := _quantity(number, counted)):
                return quantity
    parts = re.split(", and | and |, ", words)
    if 1 < len(parts) <= _MOST_TEXTS and not re.search(r"\bor\b", low):  # Ann and Bob
        items = [_read_words(part, marked=marked) for part in parts]
        if all(x and x.kind in ("text", "letters") for x in items):
            return Answer("list", items=tuple(filter(None, items)), links=(",",) * (len(items) - 1))
    if not re.fullmatch(r"[^\W\d_](?:[^\W\d_]|[ '.\-])*", words) or {*re.findall("[a-z]+", words)} & FUNCTIONS:
        return None
    if re.search(r"\b\w'(?!\w)|''", words):  # A' and A''
        return None
    runs = re.findall(r"[^\W\d_]+", words)
    if re.fullmatch("infty|pi|inf|oo|.", low) or any(phrase.search(words) for phrase, _ in _PHRASES):
        return None
    product = len(runs) == 1 and words.islower() and words.isascii() and len(words) <= 3 and words not in _SHORT_WORDS
    product |= len(runs) == 1 and len(words) < 5 and not (words.islower() or words.isupper() or words.istitle())  # mgH
    if (not marked and (product or (len(runs) > 1 and all(len(run) == 1 for run in runs)))) or len(runs) > 7:
        return None
    text = " ".join(run.lower() for run in re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)*", words))
    for pattern, usual in _USUAL_TEXT:
        text = re.sub(pattern, usual, text)
    named = [name for name in _CALENDAR if len(text) > 2 and name.startswith(text)]
    return Answer("text", named[0] if len(named) == 1 else text)


def sign_of_infinity(node: Any) -> int:
    """1 for ∞, -1 for -∞, else 0."""
    return (node == INFINITY) - (node == MINUS_INFINITY)


def with_sign(node: Any, sign: str) -> Any:
    """The expression with its plus-minus signs read as "p" or "m"."""
    if not isinstance(node, tuple):
        return node
    if node and node[0] == "pm" and len(node) == 3:
        inner = with_sign(node[1], sign)
        return inner if node[2] == sign else ("-", inner)
    return tuple(with_sign(part, sign) for part in node)


def _is_name(node: Node | None) -> bool:
    """Whether the left side of an equation only names the right side."""
    match node:
        case ("s" | "call", *_) | ("c", "e" | "i"):
            return True
        case ("text", words):
            return introduces(words.split())
        case ("setop", _, *sides):
            return all(side[0] == "s" for side in sides)
        case ("^", ("s", name), ("s", "c" | "C")):  # the complement of A
            return name.isupper()
        case ("ratio", parts):
            return all(map(_is_name, parts))
        case ("/", *parts):
            return all(_is_name(part) and (part[0] == "*" or part[1][0].isupper()) for part in parts)
        case ("*", *parts):
            return len(parts) < 6 and all(part[0] == "s" and len(part[1]) == 1 and part[1].isupper() for part in parts)
        case ("seq", _, parts, _):
            return all(part[0] in ("s", "c") and _is_name(part) for part in parts)
        case ("^", ("s", name), ("n", power, _)):
            return power == -1 and name[0].isupper()
        case ("f", "abs", inner):
            return _is_name(inner) and not re.fullmatch("[a-y]", str(inner[1]))
        case ("f", "norm" | "gcd" | "lcm" | "max" | "min" | "det", *inner):
            return all(map(_is_name, inner))
    return False


def _is_of_capitals(node: Node) -> bool:
    """Whether powers and products of capital letters name a matrix: M^T, A^2 and (AB)^{-1}, but no sum and no 2A."""
    match node:
        case ("s", name):
            return re.fullmatch(r"[A-Z](?:_\w+)?", name) is not None
        case ("^", base, ("n", *_) | ("s", *_) | ("text", "T")):
            return _is_of_capitals(base)
        case ("*", *factors):
            return all(map(_is_of_capitals, factors))
    return False


def _is_quantity(node: Node) -> bool:
    """Whether an equation gives a value, as m + n = 5: no number but exponents, no power or function of one symbol."""
    match node:
        case ("big", *_) | ("f", "norm" | "gcd" | "lcm" | "max" | "min" | "det" | "binom", *_):
            return True
        case ("^", ("f", name, _), ("n", *_)) | ("f", name, _) if name in FUNCTIONS:
            return name in ("sin", "cos", "tan", "cot", "sec", "csc")
        case ("^", base, ("n", *_)):
            return base[0] == "*" and _is_quantity(base)
        case ("+" | "*" | "/", *parts):
            terms = [x[1] if x[0] == "-" else x for x in parts]
            return all(_is_quantity(x) or _is_name(x) or (x[0] == "^" and _is_name(x[1])) for x in terms)
    return _is_name(node)


def _is_to_be_solved(node: Node) -> bool:
    """Whether an expression has one unknown, not only as the argument of a function: x² + x = 5."""
    known = [part for part in node[1:] if isinstance(part, tuple)] if node[0] not in ("f", "big", "call") else []
    return len(symbols(node)) == 1 and (node[0] == "s" or any(map(_is_to_be_solved, known)))


def _plain(*nodes: Node) -> bool:
    """Whether nodes are expressions only."""
    return not any(holds(node, *_NOT_IN_EXPRESSIONS) for node in nodes)


def _all(nodes: Sequence[Node]) -> tuple[Answer, ...] | None:
    """The typed values of several items, or None."""
    answers = [*map(_typed, nodes)]
    return None if None in answers else tuple(filter(None, answers))


def _flat(answers: Sequence[Answer]) -> tuple[Answer, ...]:
    """Answers, with the items of lists in their place."""
    return tuple(item for x in answers for item in (x.items if x.kind == "list" else (x,)))


def _typed(node: Node) -> Answer | None:
    """The typed value of one item, or None."""
    if node[0] == "-" and node[1][0] in ("unit", "%", "deg"):
        node = (node[1][0], ("-", node[1][1]), *node[1][2:])
    several = node[0] == "seq" and repr(node).count("'pm'") > 1
    if node[0] == "+" and repr(node).count(", 'p')") - repr(node).count("('s', 'p')") > 1:
        return None  # whether the signs go together is not said
    if holds(node, "pm") and not (several or node[0] in ("set", "cases") or node[2:] == (("!=",),)):
        both = _all([with_sign(node, "p"), with_sign(node, "m")])
        return Answer("list", items=both) if both else None
    match node:
        case ("rel", sides, operators):
            return _relation(sides, operators)
        case ("mod", inner, modulus):
            named = inner[0] == "rel" and len(inner[1]) == 2 and inner[2][0] in (r"\equiv", "=")
            name, value = inner[1] if named else (None, inner)
            every = ("+", value, ("*", modulus, ("s", "mod")))
            return Answer("family", (every,), name=name, marks="mod") if value and _plain(every) else None
        case ("unit", value, words):
            return _quantity(value, words)
        case ("%", value):
            return _quantity(value, ("%",))
        case ("units", *parts):
            quantities = _all(parts)
            return _compound(quantities) if quantities else None
        case ("/", ("unit", top, words), ("unit", bottom, others)) if _plain(top, bottom):
            unit = read_unit((*words, "/", *others))
            return unit and Answer("quantity", fraction(top, bottom), unit=unit)
        case ("deg", value) if _plain(value):
            return Answer("quantity", value, unit=(DEGREE, Fraction(1)))
        case ("named", "R" | "0" as name):
            return Answer("intervals", REALS if name == "R" else ())
        case ("named", "R>0" | "R<0" | "R>=0" | "R<=0" as name):
            member = _relation((None, integer_node(0)), (name[1:-1],))
            return member and replace(member, name=None)
        case ("named", name):
            return Answer("named set", name)
        case ("*", *factors) if ("named", "Z") in factors:
            value = replaced(node, {("named", "Z"): ("s", "k")})
            return Answer("family", (value,), marks="k") if _plain(value) else None
        case ("setop", operator, left, right):
            return _set_operation(operator, _typed(left), _typed(right))
        case ("set", nodes):
            items = _all(nodes) or ()
            if len({x.name for x in items if x.kind == "assigned"}) == len(items) > 1:  # {x = 1, y = 2}
                return Answer("list", items=items, links=(",",) * (len(items) - 1))
            return Answer("set", items=_flat(items)) if items else None
        case ("where", item, conditions, links):
            return _set_builder(item, conditions, links)
        case ("seq", "[", nodes, "]") if all(x[0] == "rel" and x[2] == ("=",) for x in nodes):
            return _build(nodes, (",",) * (len(nodes) - 1))
        case ("seq", opens, nodes, closes):
            return _sequence(opens, nodes, closes)
        case ("^", ("seq", _, nodes, _), ("s" | "text", "T")):
            return _sequence("(", nodes, ")")
        case ("*", ("s", name), ("seq", "(", nodes, ")")) if len(name) == 1 and name.isupper():
            items = _all(nodes)
            point = Answer("tuple", nodes, items, marks="()") if items else None
            chosen = [Answer("expression", ("f", "binom", *nodes))] if name == "C" and len(nodes) == 2 else []
            return point and Answer("assigned", node[1:], (point,), ("s", name), links=("=",), others=(*chosen,))
        case ("cases", rows):
            return _cases(rows)
        case ("ratio", terms):
            return Answer("ratio", terms) if _plain(*terms) else None
        case ("text", words):
            return Answer("text", plain_words(words).lower())
    if rows := _matrix(node) if holds(node, "matrix", "seq") else None:
        if holds(node, "matrix"):
            return Answer("matrix", rows)
        known = [(exact(cell), cell) for cell in rows[0]]
        cells = tuple(cell if value is None else _number(value) for value, cell in known)
        items = _all(cells)
        return Answer("tuple", cells, items, marks="()") if items else None
    return Answer("expression", node) if _plain(node) else None


def _quantity(value: Node, words: tuple[str, ...]) -> Answer | None:
    if value[0] == "unit" and re.match("per$|an?$|/", value[2][0]):  # $5 per hour
        value, words = value[1], (*words, *re.sub("^an? ", "per ", " ".join(value[2])).split())
    if value[0] == "unit" and (inner := _quantity(value[1], value[2])) and inner.kind == "expression":  # $5 million
        value = inner.value
    if value[0] == "-" and value[1][0] == "deg":
        value = ("deg", ("-", value[1][1]))
    if value[0] == "deg":
        if words[0].upper() not in _DEGREES:
            return None
        value, words = value[1], (_DEGREES[words[0].upper()], *words[1:])
    while words and (scale := scale_of(words[0])):  # 5 million
        size, rest = scale
        value = _number(value[1] * size) if value[0] == "n" else times(value, integer_node(size))
        words = (rest, *words[1:]) if rest else words[1:]
    if not _plain(value) or holds(value, "%"):
        return None
    if not words:
        return Answer("expression", value)
    if unit := read_unit(words[:-1] if words[1:] and words[-1] in _MEASURED else words):
        money = (Answer("quantity", value, unit=_POUND_STERLING),) if words in (("pound",), ("pounds",)) else ()
        return Answer("quantity", value, unit=unit, others=money)
    return Answer("quantity", value, words=words) if counts_things(words) else None


def _compound(parts: Sequence[Answer]) -> Answer | None:
    """5 ft 6 in: quantities of one dimension, the units ever smaller."""
    read = [(*x.unit, value) for x in parts if x.unit and (value := exact(x.value)) is not None]
    factors = [factor for _, factor, _ in read]
    if len(read) < len(parts) or len({name for name, _, _ in read}) > 1 or factors != sorted({*factors}, reverse=True):
        return None
    total = sum((factor * value for _, factor, value in read), Fraction(0))
    return Answer("quantity", ("n", total, "int"), unit=(read[0][0], Fraction(1)))


def _sequence(opens: str, nodes: tuple[Node, ...], closes: str) -> Answer | None:
    items = _all(nodes)
    if items is None:
        return None
    if opens + closes in ("(]", "[)") or any(map(sign_of_infinity, nodes)):
        piece = (nodes[0], opens == "[", nodes[-1], closes == "]")
        return Answer("intervals", (piece,)) if len(nodes) == 2 and _plain(*nodes) else None
    return Answer("tuple", nodes, items=items, marks="()" if opens == "<" else opens + closes)


def _cases(rows: tuple[tuple[Node, ...], ...]) -> Answer | None:
    """Values with their conditions; or a system of relations."""
    if len(rows[0]) == 1:
        items = _all([row[0] for row in rows])
        rest = (",",) * (len(rows) - 1)
        return items[0] if items and not rest else Answer("list", items=items, links=rest) if items else None
    answers = [_all(row) for row in rows if len(row) == 2]
    if None in answers or len(answers) < len(rows):
        return None
    known, last = [pair[1] for pair in answers[:-1] if pair], answers[-1]
    if last and last[1] == Answer("text", "otherwise") and len({(x.name, x.kind) for x in known}) == 1:
        pieces = [to_intervals(x) for x in known]
        rest = None if None in pieces else (("minus", REALS, tuple(piece for part in pieces for piece in part)),)
        answers[-1] = (last[0], Answer("intervals", rest, name=known[0].name)) if rest else last
    return Answer("cases", items=tuple(Answer("tuple", items=pair, marks="()") for pair in answers if pair))


def _worked_out(node: Node) -> Node:
    """A constant as a number."""
    value = exact(node)
    return node if value is None else _number(value)


def _matrix(node: Node) -> tuple[tuple[Node, ...], ...] | None:
    """The rows of a matrix times scalars."""
    match node:
        case ("matrix", rows):
            return rows
        case ("seq", "(" | "<", cells, ")" | r"\rangle"):
            return (cells,)
        case ("+", *terms):
            tables = [*map(_matrix, terms)]
            if (
                not symbols(node)
                or None in tables
                or len({(len(rows), *map(len, rows)) for rows in tables if rows}) > 1
            ):
                return None  # a sum yet to be done
            return tuple(tuple(("+", *x) for x in zip(*rows, strict=True)) for rows in zip(*tables, strict=True))
        case ("-", inner) if rows := _matrix(inner):
            return tuple(tuple(("-", cell) for cell in row) for row in rows)
        case ("/", inner, scalar) if not holds(scalar, "matrix", "seq") and (rows := _matrix(inner)):
            return tuple(tuple(_worked_out(("/", cell, scalar)) for cell in row) for row in rows)
        case ("^", inner, ("s", "T") | ("text", "T")) if rows := _matrix(inner):
            return tuple(zip(*rows, strict=True))
        case ("*", *factors):
            [*matrices] = [factor for factor in factors if holds(factor, "matrix", "seq")]
            scalars = [factor for factor in factors if factor not in matrices]
            if len(matrices) == 1 and len(scalars) < 4 and (rows := _matrix(matrices[0])):
                return tuple(tuple(_worked_out(("*", *scalars, cell)) for cell in row) for row in rows)
    return None


def _relation(sides: tuple[Any, ...], operators: tuple[str, ...]) -> Answer | None:
    if sides[0] == ("named", "R"):  # all real numbers greater than 3
        sides = (None, *sides[1:])
    left, right = sides[0], sides[-1]
    operators = tuple("=" if operator == r"\equiv" else operator for operator in operators)
    if {*operators} <= {"=", "~"}:
        return _equation(sides, operators)
    if operators == (r"\in",):
        answer = _typed(right) if left is not None and _is_name(left) else None
        if answer and answer.kind == "set" and len(answer.items) == 1:
            return Answer("assigned", items=answer.items, name=left, links=("=",))
        return answer and replace(answer, name=left)
    if operators in (("!=",), (r"\notin",)) and (left is None or left[0] == "s"):
        answer = _typed(right)
        answer = Answer("set", items=_flat((answer,))) if answer and operators == ("!=",) else answer
        pieces = to_intervals(answer)
        return pieces and Answer("intervals", (("minus", REALS, pieces),), name=left or _NO_NAME)
    one_way = {*operators} <= {*_FLIPPED} and len({operator[0] for operator in operators}) == 1
    if not one_way or not _plain(*sides[left is None :]):
        return None
    if operators[0][0] == ">":
        sides, operators = sides[::-1], tuple(_FLIPPED[operator] for operator in operators[::-1])
    if len(sides) == 2 and (ends := _ends_of_distance(*sides)):
        (low, high), strict = ends, operators == ("<",)
        pieces = ((low, not strict, high, not strict),)
        if sides[0][:2] != ("f", "abs"):  # farther than
            pieces = (("minus", REALS, ((low, strict, high, strict),)),)
        return Answer("intervals", pieces, name=("s", *symbols(sides)))
    unknown = [n for n, side in enumerate(sides) if side is None or side[0] in ("s", "call")]
    if len(unknown) == 1 and (len(sides) == 2 or (len(sides) == 3 and unknown == [1])):
        [at] = unknown
        name, others = sides[at], [*sides[:at], *sides[at + 1 :]]
        if not any(symbols(name) & symbols(other) for other in others):
            low = (sides[at - 1], operators[at - 1] == "<=") if at else (MINUS_INFINITY, False)
            high = (sides[at + 1], operators[at] == "<=") if at + 1 < len(sides) else (INFINITY, False)
            others = (Answer("inequality", (sides, operators)),) if any(map(symbols, others)) else ()
            return Answer("intervals", ((*low, *high),), name=name or _NO_NAME, others=others)
    return Answer("inequality", (sides, operators)) if left is not None else None


def _ends_of_distance(left: Node | None, right: Node | None) -> list[Node] | None:
    """The two numbers at which |a x + b| is the other side, a positive number."""
    match left, right:
        case (("f", "abs", inner), radius) | (radius, ("f", "abs", inner)) if radius and len(symbols(inner)) == 1:
            name, reach = ("s", *symbols(inner)), exact(radius)
            at = [x for n in range(3) if (x := exact(replaced(inner, {name: integer_node(n)}))) is not None]
            if reach and reach > 0 and len(at) == 3 and at[0] + at[2] == 2 * at[1] != 2 * at[0]:
                return [_number(end) for end in sorted((x - at[0]) / (at[1] - at[0]) for x in (reach, -reach))]
    return None


def _equation(sides: tuple[Any, ...], operators: tuple[str, ...]) -> Answer | None:
    left, right = sides[0], sides[-1]
    if left is None:
        return _typed(right) if len(sides) == 2 else None
    named_last = len(sides) == 2 and operators == ("=",) and right[0] in ("s", "call")
    if named_last and not _is_name(left) and not symbols(left):
        sides, left, right = (right, left), right, left
    if _is_name(left) or (len(sides) == 2 and holds(right, "matrix") and _is_of_capitals(left)):
        values = _all(sides[1:])
        return Answer("assigned", sides, values, left, links=operators) if values else None
    if len(sides) == 2 and operators == ("=",) and (symbols(left) | symbols(right)):
        named = _is_quantity(left) and not symbols(right) and not _is_to_be_solved(left)
        value = _typed(right) if named else None
        is_value = value is not None and value.kind in ("expression", "quantity")
        others = (Answer("assigned", sides, (value,), left, links=operators),) if value and is_value else ()
        return Answer("equation", sides, others=others) if others or _plain(*sides) else None
    if (
        len(sides) > 2
        and symbols(left)
        and not symbols(sides[1:])
        and _is_quantity(left)
        and not _is_to_be_solved(left)
    ):
        values = _all(sides[1:])  # m + n = 256 + 37 = 293
        return Answer("assigned", sides, values, left, links=operators) if values else None
    values = _all(sides)
    return Answer("assigned", items=values, links=("=", *operators)) if values else None


def to_intervals(answer: Answer | None) -> Any:
    """The pieces (low, closed, high, closed) of a set of reals, or None."""
    match answer:
        case Answer("intervals"):
            return answer.value
        case Answer("tuple", (a, b), marks="()" | "[]") if {x.kind for x in answer.items} == {"expression"}:
            return ((a, answer.marks == "[]", b, answer.marks == "[]"),)
        case Answer("set") | Answer("assigned", links=("=",)) if all(x.kind == "expression" for x in answer.items):
            return tuple((x.value, True, x.value, True) for x in answer.items)
        case Answer("list") if {*answer.links} == {"or"} and len({x.name for x in answer.items} - {None, _NO_NAME}) < 2:
            pieces = [to_intervals(x) if x.kind != "expression" else None for x in answer.items]
            return None if None in pieces else tuple(piece for part in pieces for piece in part or ())
    return None


def _set_operation(operator: str, left: Answer | None, right: Answer | None) -> Answer | None:
    if operator == "minus" and right and right.kind in ("expression", "list"):  # all reals except 2
        right = Answer("set", items=right.items or (right,))
    if left and right and operator == "cup" and left.kind == right.kind == "set":
        return Answer("set", items=left.items + right.items)
    pieces, others = to_intervals(left), to_intervals(right)
    if pieces is None or others is None:
        return None
    return Answer("intervals", (*pieces, *others) if operator == "cup" else ((operator, pieces, others),))


def _set_builder(item: Node, conditions: tuple[Node, ...], links: tuple[str, ...]) -> Answer | None:
    """Sets of reals and families over the integers."""
    conditions = (*_shared(conditions, links),)
    if any(condition[0] != "rel" for condition in conditions):
        return None
    domain = "R"
    if item[0] == "rel" and item[2] == (r"\in",):
        (item, (_, domain)) = item[1] if item[1][1][0] == "named" else (item, (None, ""))
        if domain not in ("R", "Z", "N") or item[0] != "s":
            return None
    parameters, rest = set[str](), list[tuple[Node, str]]()
    for (_, sides, operators), link in zip(conditions, ("and", *links), strict=True):
        if operators != (r"\in",) or sides[1][0] != "named":
            rest.append((("rel", sides, operators), link))
        elif sides[1] == ("named", "Z") and sides[0] != item and sides[0][0] == "s":
            parameters.add(sides[0][1])
        elif sides != (item, ("named", "R")):
            return None
    if parameters:
        named = [c[1][1] for c, _ in rest if c[2] == ("=",) and c[1][0] == item]
        values = named if item[0] == "s" else item[1] if item[0] == "set" else [item]
        whole = len(parameters) == 1 and values and len(rest) == len(named if item[0] == "s" else ())
        return Answer("family", tuple(values), marks=parameters.pop()) if whole else None
    if not rest:
        return Answer("intervals", REALS) if domain == "R" else None
    image = None if item[0] == "s" else _linear(item)
    if item[0] != "s" and image is None:  # {x² | x ≥ 1} is not the set of its x
        return None
    answers = [_relation(*condition[1:]) for condition, _ in rest]
    if any(to_intervals(x) is None or symbols(x and x.name) != symbols(item) for x in answers):
        return None
    whole = _combined([x for x in answers if x], ["or" if link == "or" else "and" for _, link in rest[1:]])
    if image and whole:
        return replace(whole, value=tuple(_image(piece, *image) for piece in whole.value), name=None)
    if domain == "R" or whole is None:
        return whole
    piece: Any = whole.value[0] if len(whole.value) == 1 and len(whole.value[0]) == 4 else None
    low, high = (exact(piece[0]), exact(piece[2])) if piece else (None, None)
    if low is None or high is None or high - low > 60:
        return None
    low, high = ceil(low) + (not piece[1] and low == int(low)), floor(high) - (not piece[3] and high == int(high))
    return Answer("set", items=tuple(Answer("expression", integer_node(n)) for n in range(low, high + 1)))


def _linear(node: Node) -> tuple[Fraction, Fraction] | None:
    """The a and b of an expression a x + b of one letter, with a other than 0."""
    letters = symbols(node)
    if len(letters) != 1 or not _plain(node):
        return None
    name = ("s", *letters)
    at = [exact(replaced(node, {name: integer_node(n)})) for n in range(4)]
    steps = {y - x for x, y in pairwise(at) if x is not None and y is not None}
    if at[0] is None or None in at or len(steps) != 1 or steps == {0}:
        return None
    return steps.pop(), at[0]


def _image(piece: Any, factor: Fraction, shift: Fraction) -> Any:
    """A piece of a set of reals under x ↦ factor · x + shift."""
    if isinstance(piece[0], str):
        return (piece[0], *(tuple(_image(part, factor, shift) for part in side) for side in piece[1:]))
    low, closed, high, also = piece
    ends = [
        end if sign_of_infinity(end) else _worked_out(("+", ("*", _number(factor), end), _number(shift)))
        for end in (low, high)
    ]
    if factor > 0:
        return (ends[0], closed, ends[1], also)
    flipped = [{1: MINUS_INFINITY, -1: INFINITY}.get(sign_of_infinity(end), end) for end in ends]
    return (flipped[1], also, flipped[0], closed)


def _combined(answers: Sequence[Answer], links: Sequence[str]) -> Answer | None:
    """Sets of reals joined by "and" or by "or"."""
    pieces = [to_intervals(answer) for answer in answers]
    if {*links} == {"or"}:
        return Answer("intervals", tuple(piece for part in pieces for piece in part))
    if "or" in links or None in pieces:
        return None
    whole = pieces[0]
    for part, link in zip(pieces[1:], links, strict=True):
        whole = (("," if link == "," else "cap", whole, part),)
    return Answer("intervals", whole)


def _shared(items: Sequence[Node], links: Sequence[str]) -> Sequence[Node]:
    """What x ≠ 1, 2 and "all except 1 and 2" exclude, together."""
    rest = items[1:]
    if rest and "or" not in links and _plain(*rest):
        match items[0]:
            case ("rel", (left, _), ("!=",)):
                return [items[0], *(("rel", (left, item), ("!=",)) for item in rest)]
            case ("setop", "minus", whole, first) if _plain(first):
                return [("setop", "minus", whole, ("set", (first, *rest)))]
    return items


def _restricted(items: Sequence[Node], links: Sequence[str]) -> Answer | None:
    """An expression, or f(x) = …, and values that its letter may not have: (x + 6)/(x − 4), x ≠ 5; else None."""
    if len(items) < 2 or "or" in links or items[1][0] != "rel" or items[1][2] not in (("!=",), (r"\notin",)):
        return None
    first, *conditions = items[0], *_shared(items[1:], links[1:])
    value = first[1][-1] if first[0] == "rel" and first[2] == ("=",) and first[1][0] else first
    letters = symbols(value) if _plain(value) else set()
    excluded = list[Node]()
    for condition in conditions:
        if condition[0] != "rel" or condition[2] not in (("!=",), (r"\notin",)) or condition[1][0] is None:
            return None
        name, point = condition[1]
        if name[0] != "s" or name[1] not in letters or symbols(point):
            return None
        points = point[1] if point[0] == "set" else (point,)
        signs = dict.fromkeys(with_sign(x, sign) for x in points for sign in "pm")
        excluded += [("rel", (name, x), ("!=",)) for x in signs]
    whole = _typed(first)
    return whole and replace(whole, excluded=tuple(excluded))


def _build(items: Sequence[Node], links: Sequence[str]) -> Answer | None:
    """The typed value of all items of a text."""
    items = _shared(items, links)
    if restricted := _restricted(items, links):
        return restricted
    if len(items) == 1:
        match items[0]:
            case ("rel", (("seq", "(", names, ")"), ("seq", "(", values, ")")), ("=",)) if len(names) == len(values):
                return _build([("rel", pair, ("=",)) for pair in zip(names, values, strict=True)], (",",) * len(names))
        return _typed(items[0])
    integers = [n for n in items if n[0] == "rel" and n[2] == (r"\in",) and n[1][1] == ("named", "Z")]
    if integers:  # x = 2πk, k ∈ ℤ
        rest = [n for n in items if n not in integers]
        named = [n for n in rest if n[0] == "rel" and n[2] == ("=",) and n[1][0] and n[1][0][0] == "s"]
        names, rest = tuple({n[1][0][1] for n in named}), [n[1][-1] if n in named else n for n in rest]
        values = [value for n in rest for value in dict.fromkeys((with_sign(n, "p"), with_sign(n, "m")))]
        whole = len(integers) == 1 and integers[0][1][0][0] == "s" and values and not any(n[0] == "rel" for n in rest)
        name = ("s", *names) if len(names) == 1 else ("seq", *sorted(names)) if names else None
        return Answer("family", tuple(values), name=name, marks=integers[0][1][0][1]) if whole else None
    if items[-1][0] == "mod" and all(x[0] != "mod" for x in items[:-1]):  # x = 1, 4 (mod 5)
        items = [*(("mod", x, items[-1][2]) for x in items[:-1]), items[-1]]
    answers = _all(items)
    if answers is None:
        return None
    if any(x.kind == "intervals" for x in answers) and all(
        x.name and x.name == answers[0].name and to_intervals(x) is not None for x in answers
    ):
        whole = _combined(answers, links)
        return whole and replace(whole, name=answers[0].name)
    if "or" in links and {*links} != {"or"} and all(x.kind == "assigned" and x.value for x in answers):
        at = [0, *(n for n, link in enumerate(links, 1) if link == "or"), len(items)]
        groups = [sorted(answers[i:j], key=lambda x: str(x.name)) for i, j in pairwise(at)]
        if len({tuple(str(x.name) for x in group) for group in groups}) == 1 < len(groups[0]):  # x=1, y=2 or x=3, y=4
            points = [Answer("tuple", tuple(x.value[-1] for x in g), tuple(g), marks="()") for g in groups]
            return Answer("list", items=tuple(points), links=("or",) * (len(points) - 1))
    flat = _flat(answers)
    names = [str(x.name[1]) if x.name and x.name[0] == "s" else "" for x in flat]
    if "" not in names and "".join(sorted(names)) in "abcdefghijklmnopqrstuvwxyz":  # y = 2, x = 1
        flat = tuple(sorted(flat, key=lambda x: str(x.name)))
    compound = _compound(answers) if {*links} <= {"and", ","} else None  # 2 hours and 30 minutes
    match items, links:
        case [("n", whole, "int"), ("n" | "/", *_) as part], ["and"] if 0 < (exact(part) or 0) < 1 <= whole:
            compound = Answer("expression", ("n", whole + exact(part), "mixed"))
    return Answer("list", items=flat, links=tuple(links), others=(compound,) if compound else ())
