"""Reads an answer into a typed value: what the text says, not how it is written."""

import re
from dataclasses import replace
from functools import lru_cache

from mathequal.answers import (
    Answer,
    Chain,
    Code,
    Date,
    Digits,
    Equation,
    Expression,
    Inequality,
    Intervals,
    Letters,
    Quantity,
    Several,
    Text,
    Time,
)
from mathequal.grammar import LONGEST, readings
from mathequal.languages import chinese_number, number_of
from mathequal.nodes import Event
from mathequal.notation import HEDGES, NOTATION
from mathequal.number_words import NUMBER_WORDS, number_in_words, ordinal
from mathequal.phrases import (
    AS_FORMULA,
    DECIMAL_COMMA,
    FOLLOWS,
    HEDGE,
    INDEX_IS_REAL,
    INTEGERS,
    KNOWN_WORDS,
    LEAD,
    LONG_WORDS,
    PHRASES,
    ROUNDED,
    ROWS_OF_WORDS,
    SAY_NOTHING,
    TAIL,
    THOUSANDS,
    TWO_LETTERS,
    WHOLE,
    by_label,
    is_decimal_comma,
    ungrouped,
    without_lead,
)
from mathequal.quantities import quantity_of
from mathequal.rational import exact
from mathequal.remarks import without_remarks
from mathequal.rulebook import rewritten
from mathequal.text import plain_latex, plain_words, word_list
from mathequal.tokens import FUNCTIONS
from mathequal.trees import decimal_node, integer_node, rational_node, signed
from mathequal.typed import typed_values
from mathequal.units import counts_things

_MOST_TEXTS = 20
_MONTHS = word_list("january february march april may june july august september october november december")

_CALENDAR = (*_MONTHS, *word_list("monday tuesday wednesday thursday friday saturday sunday"))
_USUAL_TEXT = (
    ("^(?:(?:it|they|this|that|the (?!opposite|converse|negation|inverse|contrary|complement|other)[a-z]+) "
     "(?:(?:is|are) |(?=cannot|(?:con|di)verges))|on |in |quadrant )", ""), ("^(?:an?|the|only) | only$", ""),
    ("^infinite(?:ly many)?(?: solutions)?$", "infinitely many"),
    ("^(odd|even|prime|composite|(?:ir)?rational(?! f)) (?:functions?|numbers?|integers?)$", r"\1"),
)  # fmt: skip
_SHORT_WORDS = word_list("""yes no odd one two six ten up on off red all any tie not low day man sun max min dne
    nan inf may mon tue wed thu fri sat""")
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
_CODE = re.compile(
    r"(?:\d\d?/){2}\d{4}|(?:\d\d?[-.]){2}(?:1[5-9]|20)\d\d|(?:\d{3}-){1,2}\d{4}|\d{4}(?:/\d\d?){2}|"
    r"(?:\([\d ]{2,}\) ?){2,}"
)
_BASE = re.compile(
    r"(-?)\s*[({]?\s*(?=[A-Fa-f]*[0-9]|[A-Fa-f]{2,}[ )}]*_ ?\{? ?16)([0-9A-Fa-f]+(?:\.[0-9A-Fa-f]+)?)\s*[)}]?\s*"
    r"(?:_\s*(?:\{\s*\(?\s*(?:base\s*)?(\d{1,2}|[a-z]+)\s*\)?\s*\}|(\d|[a-z]+))|"
    r"\(?\s*(?:in )?base[- ]?\s*(\d{1,2}|[a-z]+)\s*\)?)"
)
_PREFIXED = re.compile(r"(-?)0([bBoOxX])([0-9A-Fa-f]{1,200})")
_ONLY_DIGITS = re.compile(r"-?\d{1,300}(?:\.\d{1,300})?")


@lru_cache(maxsize=8192)
def read(text: str, *, units: bool = False) -> Answer | None:
    """The typed value of a text, or None. units: single letters after numbers may be units."""
    if len(text) > LONGEST:
        return None
    if _ONLY_DIGITS.fullmatch(text):  # most answers are, and need none of what follows
        return Expression(signed("-" * (text[0] == "-"), decimal_node(text.lstrip("-"))))
    plain = by_label(plain_latex(text))
    if "\x01" in plain or (")" in plain and TWO_LETTERS.search(plain)) or r"\because" in plain:
        plain = without_remarks(plain, number_in_words)
    event, said = None, frozenset[str]()
    if lead := LEAD.match(plain):
        said = frozenset(re.findall("[a-z]{3,}", (lead["said"] or "").lower())) - SAY_NOTHING
        event = lead["event"] and Event(re.sub(r"[^\w'|^<>=+-]", "", lead["event"].replace(r"\mid", "|")))
        plain = without_lead(lead) + plain[lead.end() :]
    exactly = plain
    plain = HEDGE.sub(lambda hedge: "\x01" * (hedge[0].count("\x01") - hedge[0].count("\x02")), plain, count=1)
    plain = rewritten(ROUNDED.sub("", plain), HEDGES)
    hedged = plain != exactly
    plain = rewritten(plain, NOTATION)
    over_reals = ("\\RR" in plain or "real" in plain) and INDEX_IS_REAL.search(plain) is not None
    plain = plain if re.search(r"\\pi.*[kmn] ?\\in ?\\RR", plain) else TAIL.sub("", plain)
    words = plain_words(plain)
    if not words:
        return None
    if answer := _read_words(words, marked="\x01" in plain):
        return replace(answer, hedged=hedged)
    digits = re.sub(" ?[\x01\x02] ?", "", plain)
    if based := _in_base(digits):
        return based
    if TWO_LETTERS.search(plain):
        low = plain.lower()
        for _, needs, phrase, usual in PHRASES:
            if needs in low:
                plain = phrase.sub(usual, plain).strip()
    for _, needs, pattern, usual in AS_FORMULA:
        if needs in plain:
            plain = pattern.sub(usual, plain).strip()
    if sum(word.lower() not in KNOWN_WORDS for word in LONG_WORDS.findall(plain)) > 4:  # prose
        return None
    others: tuple[Answer | None, ...] = ()
    unbraced = plain[1:-1].strip() if re.fullmatch(r"\{[^{}]*\}", plain) else plain
    if (grouped := THOUSANDS.fullmatch(unbraced)) and grouped[2][0] != "0":
        is_list = not grouped[1].strip() and not grouped[4].strip() and ",0" not in grouped[2]
        others = (_parsed(plain, units),) if is_list else ()
        plain = ungrouped(grouped)
    elif (comma := DECIMAL_COMMA.fullmatch(unbraced)) and is_decimal_comma(comma):
        return None
    if (count := ROWS_OF_WORDS.search(plain)) and counts_things(count[1].split()):  # 5 red balls
        plain = f"{plain[: count.start()]} \x01{count[1]}\x02"
    answer = _parsed(plain, units)
    if answer and event:
        return Chain((answer,), name=event)
    if answer is None:
        return _concluded(plain, units)
    others = (*answer.others, *filter(None, others))
    return replace(answer, others=others, said=said, hedged=hedged, over_reals=over_reals)


def _in_base(text: str) -> Digits | None:
    """Digits with their base, 101_2; the last of several that are equal, 45_{10} = 101101_2."""
    *others, last = text.split("=")
    if others:
        based = _in_base(last.strip()) if len(others) < 4 else None
        values = {_whole_number(other.strip()) for other in others}
        return based if based and values == {_whole_number(last.strip())} else None
    base = _BASE.fullmatch(text) or (text[:1] == "{" and _BASE.fullmatch(text[1:-1])) or _PREFIXED.fullmatch(text)
    if not base:
        return None
    if base.re is _PREFIXED:
        radix = {"b": 2, "o": 8, "x": 16}[base[2].lower()]
        sign, digits = base[1], base[3].upper().lstrip("0") or "0"
    else:
        radix = base[3] or base[4] or base[5]
        radix = int(radix) if radix.isdigit() else NUMBER_WORDS.get(radix, 0)
        sign, digits = base[1], base[2].upper().lstrip("0") or "0"
    if not 2 <= radix <= 36 or not all(int(digit, 36) < radix for digit in digits.replace(".", "")):
        return None
    return Digits(sign, f"0{digits}" if digits[0] == "." else digits, radix)


def _whole_number(text: str) -> int | None:
    """The whole number that digits write, in their base or in base ten."""
    if text.isdecimal() and len(text) < 300:
        return int(text)
    based = _in_base(text)
    return int(based.sign + based.digits, based.radix) if based and based.digits.isalnum() else None


def _concluded(plain: str, units: bool) -> Answer | None:
    """What conclusions end with, 2x = 6 ⇒ x = 3; None unless all of them are read and each value is named once."""
    parts = [part.strip(" ,;") for part in FOLLOWS.split(plain)]
    if not 1 < len(parts) <= _MOST_TEXTS:
        return None
    answers = [_parsed(part, units) for part in parts]
    values = {exact(x.value) if isinstance(x, Expression) else None for x in answers}
    if len(values) == 1 and None not in values:  # 10^2 ⇒ 100
        return Chain(tuple(filter(None, answers)), ("=",) * len(answers))
    if not all(isinstance(x, (Equation, Inequality, Chain, Intervals)) for x in answers):
        return None
    *steps, last = filter(None, answers)
    named = isinstance(last, (Chain, Intervals)) and not any(x.name == last.name for x in steps)
    return last if named else None


def _parsed(plain: str, units: bool) -> Answer | None:
    plain = INTEGERS.sub(lambda found: rf", {found[1] or found[2] or found[3]} \in \ZZ ", plain)
    for ways in readings(plain, units=units):
        answers = [typed_values(items, links) for items, links in ways]
        if answers and answers[0]:
            others = tuple(other for other in answers[1:] if other and other != answers[0])
            return replace(answers[0], others=answers[0].others + others)
    return None


def _read_words(words: str, *, marked: bool) -> Answer | None:
    r"""Answers that are words, letters, times and dates. marked: whether \text{…} or the like was there."""
    if _LETTERS.fullmatch(words):
        return Letters(frozenset(re.findall(r"(?<![A-Za-z])[A-Z](?![A-Za-z])", words)))
    if choice := _CHOICE.fullmatch(words):
        text = choice["text"] or choice["more"] or ""
        if not _TWO_CHOICES.search(text):
            letter = choice[1] or choice[2] or choice[3] or choice[5]
            return Letters(frozenset({letter}), text)
        return Text(words.lower())
    if inner := re.fullmatch(r"\( ?([^\W\d_]{2,}) ?\)", words):
        words = inner[1]
    low = words.lower().replace("\\", "")
    for _, needs, pattern, usual in WHOLE if ":" in low or re.search("[a-z]{2}", low) else ():
        if needs in low and (found := pattern.fullmatch(low)):
            written = found.expand(usual) if isinstance(usual, str) else usual(found)
            if written.lower() != low:
                return read(written)
    if time := _TIME.fullmatch(low):
        hour = int(time[1]) % 12 + 12 * (time[4] == "p") if time[4] else int(time[1])
        return Time(hour, int(time[2] or time[5] or 0), int(time[3] or time[6] or 0))
    if date := _DATE.fullmatch(low):
        year, named, day = date[1] or date[6] or date[9], date[4] or date[8], date[3] or date[5] or date[7]
        month = [n for n, name in enumerate(_MONTHS, 1) if name.startswith(named)] if named else [int(date[2])]
        if month and int(day) <= 31:
            return Date(int(year) if year else None, month[0], int(day))
    if _CODE.fullmatch(low):
        return Code(low)
    if chinese := None if low.isascii() else chinese_number(low):
        number = rational_node(chinese[0])
        return quantity_of(number, (chinese[1],)) if chinese[1] else Expression(number)
    if words == low and len(low) > 2 and (whole := number_of(low)) is not None:  # Nove may be a name
        return Expression(integer_node(whole))
    if re.search("[a-z]{3}", low):
        twice = re.fullmatch(r"(.+?) \( ?(.+?) ?\)", low)  # 84 (eighty-four)
        if number := number_in_words(twice[1] if twice else low):
            if twice and number_in_words(twice[2]) != number:
                return None
            return Expression(number)
        if number := ordinal(low):
            return Quantity(number, words=("place",))
        runs = low.split()[:9]
        for n in range(min(len(runs) - 1, 8), 0, -1):  # two hundred apples
            counted = tuple(re.sub("^(?:of )?an? ", "", " ".join(low.split()[n:])).split())
            number = None if runs[0].isdecimal() else number_in_words(" ".join(runs[:n]))
            if number and (quantity := quantity_of(number, counted)):
                return quantity
    parts = re.split(", and | and |, ", words)
    if 1 < len(parts) <= _MOST_TEXTS and not re.search(r"\bor\b", low):  # Ann and Bob
        items = [_read_words(part, marked=marked) for part in parts]
        if all(isinstance(x, (Text, Letters)) for x in items):
            return Several(tuple(filter(None, items)), (",",) * (len(items) - 1))
    if not re.fullmatch(r"[^\W\d_](?:[^\W\d_]|[ '.\-])*", words) or {*re.findall("[a-z]+", words)} & FUNCTIONS:
        return None
    if re.search(r"\b\w'(?!\w)|''", words):  # A' and A''
        return None
    runs = re.findall(r"[^\W\d_]+", words)
    if re.fullmatch("infty|pi|inf|oo|.", low) or any(rule.pattern.search(words) for rule in PHRASES):
        return None
    product = len(runs) == 1 and words.islower() and words.isascii() and len(words) <= 3 and words not in _SHORT_WORDS
    product |= len(runs) == 1 and len(words) < 5 and not (words.islower() or words.isupper() or words.istitle())  # mgH
    if (not marked and (product or (len(runs) > 1 and all(len(run) == 1 for run in runs)))) or len(runs) > 7:
        return None
    text = " ".join(run.lower() for run in re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)*", words))
    for pattern, usual in _USUAL_TEXT:
        text = re.sub(pattern, usual, text)
    named = [name for name in _CALENDAR if len(text) > 2 and name.startswith(text)]
    return Text(named[0] if len(named) == 1 else text)
