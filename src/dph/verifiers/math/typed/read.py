"""Reads an answer into a typed value: what the text says, not how it is written."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

from dph.verifiers.math.typed.grammar import (
    FUNCTIONS,
    INFINITY,
    LONGEST,
    Node,
    fraction,
    holds,
    integer_node,
    readings,
    times,
)
from dph.verifiers.math.typed.text import plain_latex, plain_words, word_list
from dph.verifiers.math.typed.units import DEGREE, SPELLED_UNITS, Unit, counts_things, introduces, read_unit
from dph.verifiers.math.typed.values import exact, symbols

MINUS_INFINITY = ("-", INFINITY)
REALS = ((MINUS_INFINITY, False, INFINITY, False),)


@dataclass(frozen=True, slots=True)
class Answer:
    """A typed answer. Its kind is expression, quantity, list, tuple, set, intervals, named set, matrix, cases,
    assigned, member, equation, inequality, congruence, family, choice, letters, text, time, date, base, ratio
    or infinity."""

    kind: str
    value: Any = None
    items: tuple["Answer", ...] = ()
    name: Node | None = None
    """The x of x = 5."""
    unit: Unit | None = None
    words: tuple[str, ...] = ()
    """The thing that is counted."""
    marks: str = ""
    """Brackets of a tuple."""
    links: tuple[str, ...] = ()
    """Connectors of a list, relations of a chain."""
    others: tuple["Answer", ...] = field(default=(), compare=False)
    """Further readings of the text."""


_MONTHS = word_list("january february march april may june july august september october november december")
_ONES = word_list("""zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen""")
_TENS = word_list("twenty thirty forty fifty sixty seventy eighty ninety")
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}


def _spelled(number: int) -> str:
    if number < 100:
        tens = _TENS[number // 10 - 2] if number >= 20 else ""
        return f"{tens} {_ONES[number % 10] if number % 10 else ''}".strip() if tens else _ONES[number]
    return f"{_ONES[number // 100]} hundred {_spelled(number % 100) if number % 100 else ''}".strip()


_NUMBER_WORDS = {_spelled(number): number for number in range(1000)}
_PARTS = {"half": 2, "halve": 2, "quarter": 4, "hundredth": 100, "thousandth": 1000} | dict(
    zip(word_list("third fourth fifth sixth seventh eighth ninth tenth"), range(3, 11), strict=True)
)


def _number_in_words(words: str) -> Node | None:
    """The number that words name: two thousand and nineteen, minus five, three quarters."""
    words = re.sub(r"^an? (?=hundred|thousand|million|half|dozen)", "one ", re.sub(r"-| and ", " ", words))
    if negative := re.fullmatch("(?:minus|negative) (.+)", words):
        inner = _number_in_words(negative[1])
        return inner and ("n", -inner[1], inner[2])
    for scale in ("trillion", "billion", "million", "thousand"):
        before, found, after = f"{words} ".partition(f" {scale} ")
        if found:
            high, low = _NUMBER_WORDS.get(before), _number_in_words(after.strip() or "zero")
            if not high or low is None or low[2] != "int" or not 0 <= low[1] < _SCALES[scale]:
                return None
            return integer_node(high * _SCALES[scale] + low[1])
    count, _, part = words.removesuffix("s").rpartition(" ")
    if count in _NUMBER_WORDS and part in _PARTS:
        return ("n", Fraction(_NUMBER_WORDS[count], _PARTS[part]), "frac")
    number = {"half": Fraction(1, 2), "one dozen": 12}.get(words, _NUMBER_WORDS.get(words))
    return None if number is None else ("n", Fraction(number), "frac" if words == "half" else "int")


_EMPTY = {"no solution", "no solutions", "no real solution", "no real solutions", "empty set", "the empty set", "empty"}
_UNDEFINED = {"undefined", "dne", "does not exist", "nan", "indeterminate"}
_SHORT_WORDS = word_list("""yes no odd one two six ten up on off red all any tie not low day man sun max min dne
    nan inf may mon tue wed thu fri sat""")


def _operator(latex: str, phrase: re.Match[str]) -> str:
    r"""The operator that a phrase names; it closes and reopens the \text{…} around it."""
    before = phrase.string[: phrase.start()]
    return f"\x02 {latex} \x01" if before.count("\x01") > before.count("\x02") else f" {latex} "


_PHRASES = [(re.compile(rf"(?<!\\)\b(?:{phrase})(?!\w)", re.I), partial(_operator, latex)) for phrase, latex in {
    r"(?:is )?(?:(?:greater|more) than or equal to|at least|(?:no|not) less than)": r"\ge",
    r"(?:is )?(?:less than or equal to|at most|(?:no|not) (?:more|greater) than)": r"\le",
    r"(?:is )?(?:greater|more) than": ">", r"(?:is )?less than": "<", "(?:is )?not equal to": r"\ne",
    "plus or minus": r"\pm", "per cent": r"\%", r"out of(?=[ \x02]*\d)": "/",
    r"approximately(?=[ \x02]*[\d\\])": r"\approx", r"all(?=[ \x02]*[a-z] ?(?:[<>]|\\[lgn]))": "",
    r"USD(?=[ \x02]*\d)": r"\dollar", r"EUR(?=[ \x02]*\d)": r"\euro",
    r"GBP(?=[ \x02]*\d)": r"\gbp", r"(?:Rs\.|Rs|INR)(?=[ \x02]*\d)": r"\rupee",
    r"US(?=[ \x02]*(?:dollars?|\\dollar))": "",
    r"(?:minus|negative)(?=[ \x02]*[\d\\])": "-",
    r"(?:the set of )?(?:(?:all|any|the) )?real (?:numbers?|values?|x)|all reals": r"\RR",
    "except(?: for)?|other than|excluding": r"\setminus",
}.items()]  # fmt: skip
_CHOICE = re.compile(
    r"(?:(?i:option|choice|answer):? )?(?:\( ?([A-Z]) ?\)|([A-Z])\)?[:.]?|([A-Z])[:.)] (?P<text>\S.*)|"
    r"\( ?([A-Z]) ?\)\.? ?(?P<more>\S.*))"
)
_TWO_CHOICES = re.compile(
    r"\( ?[A-Z] ?\)|\b(?:or|and|not|never|wrong|incorrect|maybe|perhaps|could|might)\b|^[A-Z](?:$|[.,:;/)])|"
    r"[,/;] ?\(?[A-Z]\b|\b(?:see|be|is|but|it's) [A-Z]\b|\b[A-Z] is\b|^(?:no|false)[,;.]"
)
_LETTERS = re.compile(r"\(?[A-Z]\)?(?: ?(?:,|;|&|\band\b|, ?and\b) ?\(?[A-Z]\)?)+")
_TIME = re.compile(r"(\d{1,2})(?:(?: ?: ?(\d\d))?(?: ?: ?(\d\d))? ?([ap])\.? ?m\.?| ?: ?(0\d)(?: ?: ?(\d\d))?)")
_DATE = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)|([a-z]{3,})\.? (\d{1,2})(?:st|nd|rd|th)?(?:,? (\d{4}))?|"
    r"(?:the )?(\d{1,2})(?:st|nd|rd|th)?(?: of)? ([a-z]{3,})\.?,? ?(\d{4})?"
)
_CODE = re.compile(r"\d{1,2}/\d{1,2}/\d{4}|\d{3}-\d{4}|\d{3}-\d{3}-\d{4}|\d{4}/\d{1,2}/\d{1,2}")
_BASE = re.compile(
    r"(-?)\s*[({]?\s*(?=[A-F]*[0-9])([0-9A-Fa-f]+(?:\.[0-9A-Fa-f]+)?)\s*[)}]?\s*"
    r"(?:_\s*(?:\{\s*\(?\s*(\d{1,2}|[a-z]+)\s*\)?\s*\}|(\d|[a-z]+))|"
    r"\(?\s*(?:in )?base[- ]\s*(\d{1,2}|[a-z]+)\s*\)?)"
)
_LEAD = re.compile(
    r"""[\s*]*\x01?\s*(?:(?:the\ )?(?:final\ )?answer\s*(?:is|:)|答案[是为]|\\(?:Rightarrow|implies|to)(?![A-Za-z])
    |(?P<said>[A-Za-z][A-Za-z'\ ]*?(?:\b(?:are|was|were|has|have|had|is|equal\ to|point|[A-Za-z]{3,}s)|(?P<colon>:)))
     \s*(?=[\x02\s]*[-+\d$\\(\[.])
    |(?:\\?Pr?|E|\\?Var)\s*[(\[][^()=]{0,60}(?:\\c[au]p|\||\\mid|=|\x01|[<>]|\\[lg]e)[^()]{0,60}[)\]]\s*(?:=|(?=\\approx))
    |\(\s*\w\s*\\circ\s*\w\s*\)\s*\([^()]*\)\s*=)[\s:*\x02]*""",
    re.I | re.X,
)
"""What names a value before it: "the answer is", "Maria has", "Domain:", P(A | B) =, (f∘g)(2) =."""
_TAIL = re.compile(
    r"""(?<=\d)\s*\x01\s*(?:\w+\ ){0,2}(?:values?|solutions?|choices|integers?|pairs?)\ (?:of|for)\s*\x02
     \s*\(?[a-z](?:\s*,\s*[a-z])*\)?$
    |(?:(?<=%)|(?<=\d))\s*\x01\s*(?:of\ (?:the|all)\ |each)[^\x02\d]*\x02$
    |,?\s*\x01?\s*for\ all\ real\ ?(?:numbers\ |values\ of\ )?\x02?\s*[a-z]\x02?$""",
    re.X,
)
"""What names it after it: 5 values of x, 5 % of the students, for all real x."""
_ROWS_OF_WORDS = re.compile(r"(?<=\d)\s+((?:[A-Za-z]{2,}\s+)+[A-Za-z]{3,})$")
_THOUSANDS = re.compile(
    r"([-+]?\s*(?:\\(?:dollar|euro|gbp|rupee)\s*)?[-+]?\s*)(\d{1,3}(?:,\d{3})+)(?![\d,])"
    r"((?:\.\d+)?\s*(?:\\?%|\x01[^\x02]*\x02(?:\s*\^\s*\{?\d\}?)?|\\dollar|\\euro|\^\s*\{?\s*\\circ\s*\}?|"
    r"[A-Za-z ]{2,25})?)"
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
    r",?\s*\x01\s*(?:for |where )?(?:any|all|every|some) integers?\s*\x02\s*([a-z])\s*$|"
    r"\(\s*([a-z])\s*\\in\s*\\ZZ\s*\)$"
)


def _without_lead(lead: re.Match[str]) -> str:
    """Nothing in place of words that only introduce a value; words that negate, compare or compute stay."""
    words = (lead["said"] or "").split()
    if words and (
        len(words) > 7 or len(lead["said"]) < 5 or (len(words) == 1 and not lead["colon"]) or not introduces(words)
    ):
        return lead[0]
    return "\x01" * (lead[0].count("\x01") - lead[0].count("\x02"))


@lru_cache(maxsize=8192)
def read(text: str, *, units: bool = False) -> Answer | None:
    """The typed value of a text, or None. units: single letters after numbers may be units."""
    if len(text) > LONGEST:
        return None
    plain = plain_latex(text)
    if lead := _LEAD.match(plain):
        plain = _without_lead(lead) + plain[lead.end() :]
    plain = _TAIL.sub("", plain)
    words = plain_words(plain)
    if not words:
        return None
    if answer := _read_words(words, marked="\x01" in plain):
        return answer
    if base := _BASE.fullmatch(re.sub("[\x01\x02]", " ", plain).strip()):
        radix = base[3] or base[4] or base[5]
        radix = int(radix) if radix.isdigit() else _NUMBER_WORDS.get(radix, 0)
        digits = base[2].upper().lstrip("0") or "0"
        if 2 <= radix <= 36 and all(int(digit, 36) < radix for digit in digits.replace(".", "")):
            return Answer("base", (base[1], f"0{digits}" if digits[0] == "." else digits, radix))
    for phrase, latex in _PHRASES:
        plain = phrase.sub(latex, plain)
    plain = re.sub(r"\x01\s*\x02", " ", plain).strip()
    if sum(word.lower() not in _KNOWN_WORDS for word in _LONG_WORDS.findall(plain)) > 4:  # prose
        return None
    others: tuple[Answer | None, ...] = ()
    if ordinal := re.fullmatch(r"(\d+)\s*(?:\^\s*)?\{?\s*\x01?\s*(?:st|nd|rd|th)\s*\x02?\s*\}?", plain):
        plain = ordinal[1]
    if re.fullmatch(r"[-+]?\d{1,3}(?:(?: \d{3})+(?:\.\d+)?|(?:\.\d{3}){2,})", plain):
        plain = plain.replace(" ", "") if " " in plain else plain.replace(".", "")
    unbraced = plain[1:-1].strip() if re.fullmatch(r"\{[^{}]*\}", plain) else plain
    if grouped := _THOUSANDS.fullmatch(unbraced):
        if grouped[2][0] != "0":
            is_list = not grouped[1].strip() and not grouped[3].strip() and ",0" not in grouped[2]
            others = (_parsed(plain, units),) if is_list else ()
            plain = grouped[1] + grouped[2].replace(",", "") + grouped[3]
    else:
        plain = re.sub(
            r"(?<![\d,.(\[{])(\d{1,3}(?:,\d{3})+)(?![\d,])(?=\s*(?:=|\\approx|\x01))",
            lambda m: m[1].replace(",", ""),
            plain,
        )
    plain = re.sub(r"(?<=[\d}])\s*(?:\x01to\x02|\sto\s)\s*(?=[\d\\])", " : ", plain)
    if (count := _ROWS_OF_WORDS.search(plain)) and counts_things(count[1].split()):  # 5 red balls
        plain = f"{plain[: count.start()]} \x01{count[1]}\x02"
    answer = _parsed(plain, units)
    return answer and replace(answer, others=(*answer.others, *filter(None, others)))


def _parsed(plain: str, units: bool) -> Answer | None:
    plain = _INTEGERS.sub(lambda found: rf", {found[1] or found[2] or found[3]} \in \ZZ ", plain)
    for ways in readings(plain, units=units):
        answers = [_build(items, links) for items, links in ways]
        if answers and answers[0]:
            others = tuple(other for other in answers[1:] if other and other != answers[0])
            return replace(answers[0], others=answers[0].others + others)
    return None


_MOST_TEXTS = 20


def _read_words(words: str, *, marked: bool) -> Answer | None:
    r"""Answers that are words, letters, times and dates. marked: whether \text{…} or the like was there."""
    if _LETTERS.fullmatch(words):
        return Answer("letters", frozenset(re.findall(r"(?<![A-Za-z])[A-Z](?![A-Za-z])", words)))
    if choice := _CHOICE.fullmatch(words):
        text = choice["text"] or choice["more"] or ""
        if not _TWO_CHOICES.search(text):
            return Answer("choice", choice[1] or choice[2] or choice[3] or choice[5])
        return Answer("text", words.lower())
    low = words.lower().replace("\\", "")
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
    if (number := _number_in_words(low)) is not None:
        return Answer("expression", number)
    if infinite := re.fullmatch("(minus |negative )?(?:plus |positive )?infinity", low):
        return Answer("infinity", -1 if infinite[1] else 1)
    if re.sub("^there (?:is|are) | exists?$", "", low) in _EMPTY:
        return Answer("intervals", ())
    if re.sub("^(?:the limit|it) |'", "", low) in _UNDEFINED:
        return Answer("text", "undefined")
    if 1 < len(parts := re.split(", and | and |, ", words)) <= _MOST_TEXTS and not re.search(
        r"\bor\b", low
    ):  # Ann and Bob
        items = [_read_words(part, marked=marked) for part in parts]
        if all(x and x.kind in ("text", "choice") for x in items):
            return Answer("list", items=tuple(filter(None, items)), links=(",",) * (len(items) - 1))
    if not re.fullmatch(r"[^\W\d_](?:[^\W\d_]|[ '.\-])*", words) or {*re.findall("[a-z]+", words)} & FUNCTIONS:
        return None
    runs = re.findall(r"[^\W\d_]+", words)
    if (
        re.fullmatch("infty|infinity|pi|inf|oo", low)
        or any(phrase.search(words) for phrase, _ in _PHRASES)
        or len(words) == 1
    ):
        return None
    product = len(runs) == 1 and words.islower() and words.isascii() and len(words) <= 3 and words not in _SHORT_WORDS
    if (not marked and (product or (len(runs) > 1 and all(len(run) == 1 for run in runs)))) or len(runs) > 7:
        return None
    text = " ".join(run.lower() for run in re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)*", words))
    return Answer("text", re.sub("^(?:an?|the) |(?<=^infinitely many) solutions$", "", text))


_DEGREES = {"C": "celsius", "F": "fahrenheit", "CELSIUS": "celsius", "FAHRENHEIT": "fahrenheit", "K": "kelvin"}


def sign_of_infinity(node: Any) -> int:
    """1 for ∞, -1 for -∞, else 0."""
    return (node == INFINITY) - (node == MINUS_INFINITY)


def with_sign(node: Any, sign: str) -> Any:
    """The expression with its plus-minus signs read as "p" or "m"."""
    if not isinstance(node, tuple):
        return node
    if node and node[0] == "pm":
        inner = with_sign(node[1], sign)
        return inner if node[2] == sign else ("-", inner)
    return tuple(with_sign(part, sign) for part in node)


def _is_name(node: Node | None) -> bool:
    """Whether the left side of an equation only names the right side."""
    match node:
        case ("s" | "text" | "call", *_) | ("c", "e" | "i"):
            return True
        case ("ratio", parts):
            return all(map(_is_name, parts))
        case ("/", *parts):
            return all(_is_name(part) and (part[0] == "*" or part[1][0].isupper()) for part in parts)
        case ("*", *parts):
            return len(parts) < 6 and all(part[0] == "s" and len(part[1]) == 1 and part[1].isupper() for part in parts)
        case ("seq", _, parts, _):
            return all(part[0] in ("s", "c") and _is_name(part) for part in parts)
        case ("^", ("s", _), ("n", power, _)):
            return power == -1
        case ("f", "abs", inner):
            return _is_name(inner) and not re.fullmatch("[a-y]", str(inner[1]))
    return False


def _is_quantity(node: Node) -> bool:
    """Whether an equation with a number gives the value of an expression, as m + n = 5, and is not one to be solved: it
    has no number outside exponents and limits, and is neither a power nor a function of one symbol."""
    match node:
        case ("big", *_) | ("f", "norm" | "gcd" | "lcm" | "max" | "min" | "det" | "binom", *_):
            return True
        case ("^", ("f", name, _), ("n", *_)) | ("f", name, _) if name in FUNCTIONS:
            return name in ("sin", "cos", "tan", "cot", "sec", "csc")
        case ("^", base, ("n", *_)):
            return base[0] == "*" and _is_quantity(base)
        case ("+" | "*" | "/", *parts):
            return all(
                _is_quantity(x) or _is_name(x) or (x[0] == "^" and _is_name(x[1])) for x in map(_unsigned, parts)
            )
    return _is_name(node)


def _unsigned(node: Node) -> Node:
    return node[1] if node[0] == "-" else node


_NOT_IN_EXPRESSIONS = {*word_list("text rel seq set named ratio where setop unit units pm mod cases matrix")}


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
    if holds(node, "pm") and node[0] not in ("set", "seq", "cases"):
        both = _all([with_sign(node, "p"), with_sign(node, "m")])
        return Answer("list", items=both) if both else None
    match node:
        case ("rel", sides, operators):
            return _relation(sides, operators)
        case ("mod", inner, modulus):
            name, value = (
                inner[1]
                if inner[0] == "rel" and len(inner[1]) == 2 and inner[2][0] in (r"\equiv", "=")
                else (None, inner)
            )
            return Answer("congruence", (value, modulus), name=name) if value and _plain(value, modulus) else None
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
        case ("*", ("deg", value), ("s", "C" | "F" | "K" as letter)):
            return _quantity(("deg", value), (letter,))
        case ("-", ("*", ("deg", value), ("s", "C" | "F" | "K" as letter))):
            return _quantity(("deg", ("-", value)), (letter,))
        case ("named", "R" | "0" as name):
            return Answer("intervals", REALS if name == "R" else ())
        case ("named", "R>0" | "R<0" | "R>=0" | "R<=0" as name):
            member = _relation((None, integer_node(0)), (name[1:-1],))
            return member and member.items[0]
        case ("named", name):
            return Answer("named set", name)
        case ("setop", operator, left, right):
            return _set_operation(operator, _typed(left), _typed(right))
        case ("set", nodes):
            items = _all(nodes)
            return Answer("set", items=_flat(items)) if items else None
        case ("where", item, conditions, links):
            return _set_builder(item, conditions, links)
        case ("seq", opens, nodes, closes) | ("^", ("seq", opens, nodes, closes), ("s" | "text", "T")):
            return _sequence(opens, nodes, closes)
        case ("*", ("s", name), ("seq", "(", nodes, ")")) if len(name) == 1 and name.isupper():
            items = _all(nodes)
            point = Answer("tuple", nodes, items, marks="()") if items else None
            return Answer("assigned", node[1:], (point,), ("s", name), links=("=",)) if point else None
        case ("cases", rows):
            return _cases(rows)
        case ("ratio", terms):
            return Answer("ratio", terms) if _plain(*terms) else None
        case ("text", words):
            return Answer("text", plain_words(words).lower())
    if holds(node, "matrix") and (rows := _matrix(node)):
        return Answer("matrix", rows)
    if sign := sign_of_infinity(node):
        return Answer("infinity", sign)
    return Answer("expression", node) if _plain(node) else None


def _quantity(value: Node, words: tuple[str, ...]) -> Answer | None:
    if value[0] == "unit" and (inner := _quantity(value[1], value[2])) and inner.kind == "expression":  # $5 million
        value = inner.value
    if value[0] == "-" and value[1][0] == "deg":
        value = ("deg", ("-", value[1][1]))
    if value[0] == "deg":
        if words[0].upper() not in _DEGREES:
            return None
        value, words = value[1], (_DEGREES[words[0].upper()], *words[1:])
    while words and (scale := _SCALES.get(words[0].lower().removesuffix("s"))):  # 5 million
        number = Fraction(scale)
        product = value[1] * number if value[0] == "n" else None
        value = (
            ("n", product, "int" if product.denominator == 1 else "frac")
            if product is not None
            else times(value, integer_node(scale))
        )
        words = words[1:]
    if not _plain(value) or holds(value, "%"):
        return None
    if not words:
        return Answer("expression", value)
    if unit := read_unit(words):
        return Answer("quantity", value, unit=unit)
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
        return Answer("list", items=items, links=(",",) * (len(items) - 1)) if items else None
    answers = [_all(row) for row in rows if len(row) == 2]
    if None in answers or len(answers) < len(rows):
        return None
    return Answer("cases", items=tuple(Answer("tuple", items=pair, marks="()") for pair in answers if pair))


def _matrix(node: Node) -> tuple[tuple[Node, ...], ...] | None:
    """The rows of a matrix times scalars."""
    match node:
        case ("matrix", rows):
            return rows
        case ("-", inner) if rows := _matrix(inner):
            return tuple(tuple(("-", cell) for cell in row) for row in rows)
        case ("/", inner, scalar) if not holds(scalar, "matrix") and (rows := _matrix(inner)):
            return tuple(tuple(("/", cell, scalar) for cell in row) for row in rows)
        case ("^", inner, ("s", "T") | ("text", "T")) if rows := _matrix(inner):
            return tuple(zip(*rows, strict=True))
        case ("*", *factors):
            [*matrices] = [factor for factor in factors if holds(factor, "matrix")]
            scalars = [factor for factor in factors if not holds(factor, "matrix")]
            if len(matrices) == 1 and (rows := _matrix(matrices[0])):
                return tuple(tuple(("*", *scalars, cell) for cell in row) for row in rows)
    return None


_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


def _relation(sides: tuple[Any, ...], operators: tuple[str, ...]) -> Answer | None:
    if sides[0] == ("named", "R"):  # all real numbers greater than 3
        sides = (None, *sides[1:])
    left, right = sides[0], sides[-1]
    operators = tuple("=" if operator == r"\equiv" else operator for operator in operators)
    if {*operators} <= {"=", "~"}:
        return _equation(sides, operators)
    if operators == (r"\in",):
        answer = _typed(right)
        if answer and answer.kind == "set" and len(answer.items) == 1:
            return Answer("assigned", items=answer.items, name=left, links=("=",))
        return answer and Answer("member", items=(answer,), name=left)
    if operators == ("!=",) and (left is None or left[0] == "s"):
        points = (with_sign(right, "p"), with_sign(right, "m"))
        excluded = Answer("intervals", (("minus", REALS, tuple((point, True, point, True) for point in points)),))
        return Answer("member", items=(excluded,), name=left) if _plain(*points) else None
    if (
        not _plain(*sides[left is None :])
        or not {*operators} <= {*_FLIPPED}
        or len({operator[0] for operator in operators}) > 1
    ):
        return None
    if operators[0][0] == ">":
        sides, operators = sides[::-1], tuple(_FLIPPED[operator] for operator in operators[::-1])
    unknown = [n for n, side in enumerate(sides) if side is None or side[0] in ("s", "call")]
    if len(unknown) == 1 and (len(sides) == 2 or (len(sides) == 3 and unknown == [1])):
        [at] = unknown
        name, others = sides[at], [*sides[:at], *sides[at + 1 :]]
        if not any(symbols(name) & symbols(other) for other in others):
            low = (sides[at - 1], operators[at - 1] == "<=") if at else (MINUS_INFINITY, False)
            high = (sides[at + 1], operators[at] == "<=") if at + 1 < len(sides) else (INFINITY, False)
            return Answer("member", (sides, operators), (Answer("intervals", ((*low, *high),)),), name)
    return Answer("inequality", (sides, operators)) if left is not None else None


def _equation(sides: tuple[Any, ...], operators: tuple[str, ...]) -> Answer | None:
    left, right = sides[0], sides[-1]
    if left is None:
        return _typed(right) if len(sides) == 2 else None
    if (
        len(sides) == 2
        and right[0] in ("s", "call")
        and not _is_name(left)
        and not symbols(left)
        and operators == ("=",)
    ):
        sides, left, right = (right, left), right, left
    if _is_name(left):
        values = _all(sides[1:])
        return Answer("assigned", sides, values, left, links=operators) if values else None
    if len(sides) == 2 and operators == ("=",) and (symbols(left) | symbols(right)):
        named = _is_quantity(left) and not symbols(right)
        value = _typed(right) if named else None
        others = (Answer("assigned", sides, (value,), left, links=operators),) if value else ()
        return Answer("equation", sides, others=others) if others or _plain(*sides) else None
    values = _all(sides)
    return Answer("assigned", items=values, links=("=", *operators)) if values else None


def to_intervals(answer: Answer | None) -> Any:
    """The pieces (low, closed, high, closed) of a set of reals, or None."""
    match answer:
        case Answer("intervals"):
            return answer.value
        case Answer("member"):
            return to_intervals(answer.items[0])
        case Answer("tuple", (low, high), marks="()" | "[]") if all(
            x.kind in ("expression", "infinity") for x in answer.items
        ):
            return ((low, answer.marks == "[]", high, answer.marks == "[]"),)
        case Answer("set") if all(x.kind == "expression" for x in answer.items):
            return tuple((x.value, True, x.value, True) for x in answer.items)
        case Answer("list") if answer.links and {*answer.links} == {"or"}:
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
    if any(condition[0] != "rel" for condition in conditions):
        return None
    if item[0] == "rel" and item[2] == (r"\in",):
        if item[1][1] != ("named", "R"):
            return None
        item = item[1][0]
    parameters, rest = set[str](), list[tuple[Node, str]]()
    for (_, sides, operators), link in zip(conditions, ("and", *links), strict=True):
        if operators != (r"\in",) or sides[1][0] != "named":
            rest.append((("rel", sides, operators), link))
        elif sides[1] == ("named", "Z") and sides[0] != item and sides[0][0] == "s":
            parameters.add(sides[0][1])
        elif sides != (item, ("named", "R")):
            return None
    if parameters:
        values = [c[1][1] for c, _ in rest if c[2] == ("=",) and c[1][0] == item] if item[0] == "s" else [item]
        whole = len(parameters) == 1 and values and len(values) == len(rest) + (item[0] != "s")
        return Answer("family", tuple(values), name=("s", parameters.pop())) if whole else None
    if not rest:
        return Answer("intervals", REALS)
    answers = [_relation(*condition[1:]) for condition, _ in rest]
    if any(x is None or x.kind != "member" or x.name is None or symbols(x.name) != symbols(item) for x in answers):
        return None
    return _combined([x for x in answers if x], ["or" if link == "or" else "and" for _, link in rest[1:]])


def _combined(answers: Sequence[Answer], links: Sequence[str]) -> Answer | None:
    """Sets of reals joined by "and" or by "or"."""
    pieces = [to_intervals(answer) for answer in answers]
    if {*links} == {"or"}:
        return Answer("intervals", tuple(piece for part in pieces for piece in part))
    if "or" in links or None in pieces:
        return None
    whole = pieces[0]
    for part in pieces[1:]:
        whole = (("cap", whole, part),)
    return Answer("intervals", whole)


def _follow_each_other(letters: Sequence[str]) -> bool:
    """Whether letters are neighbours in the alphabet, as those of points are: x, y, z."""
    return [ord(letter) - ord(letters[0]) for letter in letters] == [*range(len(letters))]


def _build(items: Sequence[Node], links: Sequence[str]) -> Answer | None:
    """The typed value of all items of a text."""
    if len(items) == 1:
        match items[0]:
            case ("rel", (("seq", "(", names, ")"), ("seq", "(", values, ")")), ("=",)) if len(names) == len(values):
                return _build([("rel", pair, ("=",)) for pair in zip(names, values, strict=True)], (",",) * len(names))
        return _typed(items[0])
    integers = [n for n in items if n[0] == "rel" and n[2] == (r"\in",) and n[1][1] == ("named", "Z")]
    if integers:  # x = 2πk, k ∈ ℤ
        rest = [
            n[1][-1] if n[0] == "rel" and n[2] == ("=",) and n[1][0] and n[1][0][0] == "s" else n
            for n in items
            if n not in integers
        ]
        values = [value for n in rest for value in dict.fromkeys((with_sign(n, "p"), with_sign(n, "m")))]
        whole = len(integers) == 1 and integers[0][1][0][0] == "s" and values and not any(n[0] == "rel" for n in rest)
        return Answer("family", tuple(values), name=integers[0][1][0]) if whole else None
    answers = _all(items)
    if answers is None:
        return None
    if all(x.kind == "member" and x.items[0].kind == "intervals" and x.name == answers[0].name for x in answers):
        whole = _combined(answers, ["or" if link == "or" else "and" for link in links])
        return whole and Answer("member", items=(whole,), name=answers[0].name)
    flat = _flat(answers)
    names = [x.name[1] if x.name and x.name[0] == "s" else "" for x in flat]
    if all(len(name) == 1 for name in names) and _follow_each_other(sorted(names)):  # y = 2, x = 1
        flat = tuple(sorted(flat, key=lambda x: str(x.name)))
    compound = _compound(answers) if {*links} <= {"and", ","} else None  # 2 hours and 30 minutes
    match items, links:
        case [("n", whole, "int"), ("n" | "/", *_) as part], ["and"] if 0 < (exact(part) or 0) < 1 <= whole:
            compound = Answer("expression", ("n", whole + exact(part), "mixed"))
    return Answer("list", items=flat, links=tuple(links), others=(compound,) if compound else ())
