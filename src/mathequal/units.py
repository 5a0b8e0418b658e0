"""Units of measurement: words → exact factor to a base unit, and dimension."""

import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from mathequal.languages import changes_a_number, english_unit, fold, is_counted
from mathequal.text import word_list

Unit = tuple[tuple[tuple[str, int], ...], Fraction]
"""Powers of dimensions, and the factor to their base units."""

_TABLE = """
L m meter metre =1 angstrom å =1/10000000000 micrometer micron =1/1000000 inch inche in =127/5000
    ft foot feet =381/1250 yd yard =1143/1250 mi mile =201168/125 centimeter centimetre cm =1/100
    millimeter millimetre mm =1/1000 kilometer kilometre km =1000 nanometer =1/1000000000 au =149597870700
    pc parsec =30856775814913673 ly =9460730472580800  L^2 acre =316160658/78125 hectare ha =10000
L^3 l liter litre =1/1000 milliliter millilitre ml cc =1/1000000 gal gallon =473176473/125000000000
    qt quart =473176473/500000000000 pint =473176473/1000000000000
T s sec second =1 min minute =60 h hr hour =3600 d day =86400 week wk =604800 month =2629746 yr year =31556952
M g gm gram =1/1000 kilogram kilo kg =1 milligram mg =1/1000000 lb pound =45359237/100000000 ton tonne t =1000
    oz ounce =45359237/1600000000  T^-1 hz hertz =1  M*L*T^-2 n newton =1  M*L^-1*T^-2 pa pascal =1
M*L^2*T^-2 j joule Nm =1 wh =3600 erg =1/10000000 ev =801088317/5000000000000000000000000000  M*L^2*T^-3 w watt =1
AMP ampere amp =1  VO v volt =1  OHM ohm omega =1  MOL mol mole =1  USD dollar usd buck =1 cent ¢ =1/100
EUR euro eur € =1  GBP £ gbp =1 penny pence =1/100  INR rupee rs inr =1  CNY yuan yen 元 rmb =1  CHF franc francs =1
    RUB ruble rouble =1 kopeck =1/100  PLN zloty =1  KRW won =1  A degree deg 度 =1 gradian gon =9/10  R radian rad =1
TC celsius =1  TF fahrenheit =1  K k kelvin =1  PCT percent pct % percentage =1 permille permil =1/10  U unit u =1
"""
_NOT_NAMES = re.compile(
    r"""\b(?:or|and|not|nor?|non|none|never|is|isn|are|if|either|neither|maybe|possibly|perhaps|probably|but|wrong|false|
    incorrect|exceeds|divides|means|does|thereabouts|\w+wards?|unless|except|without|when|for|where|mod|modulo|than|most|least|more|less|fewer|between|to|from|about|k|
    approximate(?:ly)?|around|approx|nearly|almost|over|under|up|off|short|guess|unknown|unsure|minus|plus|times|cubed|
    squared|factorial|point|root|power|base|hundreds?|thousands?|\w*illi(?:on|ard)s?|millones|dozens?|docenas|menos|scores?|gross|lakhs?|crores?|myriads?|googols?|(?:per|pro)?milles?|hal(?:f|ves|fs)|double|twice|
    triple|pairs?|couples?|negative|positive|one|two|three|four|five|six|seven|eight|nine|tens?|eleven|twelve|exactly|too|
    (?:\w+teen|\w+tie|four|fif|six|seven|eigh|nin|ten|eleven|twelf|hundred|thousand|\w*illion)ths?|thirds?|quarters?|
    \w+teens?|(?:twen|thir|for|fif|six|seven|eigh|nine)t(?:y|ies)|basis|nils?|zero|infinit\w*|ago|later|earlier|past|
    before|after|older|younger)\b|[\d?!()=<>+*^\\]""",
    re.IGNORECASE | re.VERBOSE,
)
_INTRODUCE = {*word_list("is are point")}
_OTHERWISE = re.compile(
    "others?|candidates?|cubes?|squares?|misses|avoids|approaches|beats|lacks|omits|worst|errors?|surpass\\w*|exclud\\w*|"
    "reject\\w*|eliminat\\w*|discard\\w*"
)
_COUNTERS = {
    *"个個名人条條件次种種天年月日岁歳米元本张張只隻位组組排块塊枚辆棵支根页層层步场份套队家台座道题题項项秒回円つ匹冊개명원번살년권度"
}
_CHANGES_IT = {*"以上下内外余左右不错誤误否之又半倍约至近超过多少于方十百千万亿兆"}
"""Chinese, Japanese and Korean signs after which a number counts something, and signs that change its value."""
_PLURAL = re.compile(
    r"(?:(?:[a-z]{2,}[^s\W](?<!ou)s|people|men|women|children|fish|sheep)(?: |$))?"
    r"(?:in total|in all|total|altogether|each|left|old|remaining|(?:of|per) [a-z]+|(?:in|on) (?:the|each|a) [a-z]+)?",
    re.I,
)
_PREFIXES = {"p": -12, "n": -9, "u": -6, "m": -3, "c": -2, "d": -1, "h": 2, "k": 3, "M": 6, "G": 9, "T": 12}
_PREFIXED = {"m", "g", "s", "l", "L", "Hz", "Pa", "N", "J", "W", "Wh", "V", "eV", "mol", "ohm"}

_Powers = tuple[tuple[str, int], ...]


def _read_table() -> dict[str, tuple[_Powers, Fraction]]:
    units: dict[str, tuple[_Powers, Fraction]] = {}
    dimension: _Powers = ()
    names = list[str]()
    for word in _TABLE.split():
        if word[0] == "=":
            units |= dict.fromkeys(names, (dimension, Fraction(word[1:])))
            names = []
        elif word.isupper() and word.isascii():
            powers = (power.partition("^") for power in word.split("*"))
            dimension = tuple((name, int(exponent or 1)) for name, _, exponent in powers)
        else:
            names.append(word)
    return units


UNITS = _read_table()
_COMPOUND = {"light[- ]years?": "ly", "mph": "mi / h", "kph": "km / h", "kmph": "km / h", "fps": "ft / s",
             r"m\.p\.h\b\.?": "mi / h", r"(?<=\w )an? (?=(?:second|minute|hour|day|week|month|year)s?$)": "/ ",
             "degrees? c(?:elsius)?": "celsius", "degrees? f(?:ahrenheit)?": "fahrenheit"}  # fmt: skip
_WRITTEN_AS = [
    (re.compile(rf"\b(?:{pattern})(?!\w)" if pattern[0] != "(" else pattern, re.I), written)
    for pattern, written in _COMPOUND.items()
]
_POWERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_SPELLED = {name for name in UNITS if len(name) > 1 and name.isalpha() and name not in ("au", "pc", "ev", "wh")}
SPELLED_UNITS = _SPELLED | {f"{name}s" for name in _SPELLED} | {*word_list("mph kph kmph fps dm nm um ms"), *_POWERS}
for _symbol in _PREFIXED:
    _powers, _factor = UNITS[_symbol.lower()]
    for _prefix, _exponent in _PREFIXES.items():
        UNITS.setdefault(_prefix + _symbol, (_powers, _factor * Fraction(10) ** _exponent))
"""Words of two and more small letters that are units without \\text."""
PERCENT, DEGREE, RADIAN = (("PCT", 1),), (("A", 1),), (("R", 1),)


_CODES = {*word_list("""CHF CAD AUD NZD SGD HKD TWD MXN BRL ARS CLP COP RUB UAH PLN CZK HUF RON BGN SEK NOK DKK ISK
    TRY ILS ZAR EGP NGN KES AED SAR KRW THB VND IDR MYR PHP PKR BDT LKR""")}  # fmt: skip
"""Codes of currencies that no other name of a unit stands for."""
CODES = "|".join(sorted(_CODES | {"JPY", "CNY", "RMB"}))


def unit_of(word: str) -> Unit | None:
    """The powers of dimensions of a word and its factor; None if it is not a unit."""
    low = word.strip(".").lower()
    if word in _CODES:
        return ((word, 1),), Fraction(1)
    if word in ("JPY", "CNY"):
        return UNITS["yen"]
    if low == "has" or word in {*"kDGHMST"}:  # no hectares; thousand, tesla: neither kelvin nor a larger s
        return None
    if word[:1].islower() and low != word.strip("."):  # mM and pA are neither mm nor Pa
        return UNITS.get(word.strip("."))
    spellings = (word.strip("."), low, low.removesuffix("s"), low.removesuffix("es"))
    return next((UNITS[spelling] for spelling in spellings if spelling in UNITS), None)


def is_spelled_unit(word: str) -> bool:
    """Whether a word is a unit without \\text: cm, feet, kPa."""
    return (
        word.lower() in SPELLED_UNITS
        or word in _CODES
        or word in ("JPY", "CNY")
        or (word in UNITS and len(word) > 1 and not word.islower())
    )


def read_unit(words: Sequence[str]) -> Unit | None:
    """The unit that words name together, such as ("km/h",), ("square", "feet") or ("metros", "cuadrados"); None if some
    of them do not."""
    text = " ".join(words)
    return _read_unit(text) or (_read_unit(english) if (english := english_unit(text)) != text else None)


@lru_cache(maxsize=1024)
def _read_unit(text: str) -> Unit | None:
    text = re.sub(r"\s*/\s*", " / ", re.sub(r"\bper\b", "/", text))
    powers: Counter[str] = Counter()
    factor, sign, power = Fraction(1), 1, 1
    for pattern, written in _WRITTEN_AS:
        text = pattern.sub(written, text)
    text = re.sub(r" squared\b", "^2", re.sub(r" cubed\b", "^3", text))
    for word in text.split():
        named = re.fullmatch(r"([^\^\d]+)(?:\^?(-?\d))?", word)
        if word == "/":
            sign = -1
        elif word.lower().strip(".") in _POWERS:
            power = _POWERS[word.lower().strip(".")]
        elif named and (unit := unit_of(named[1])):
            exponent = sign * int(named[2] or power)
            for dimension, own_power in unit[0]:
                powers[dimension] += exponent * own_power
            factor *= unit[1] ** exponent
            power = 1
        else:
            return None
    if powers["U"] == 1 or len(powers) > 1:
        powers.pop("U", None)  # "units" have no dimension
    return tuple(sorted(x for x in powers.items() if x[1])), factor


def counts_things(words: Sequence[str]) -> bool:
    """Whether words after a number can name what is counted: a few that neither scale, negate, compare nor hedge."""
    text = " ".join(words)
    known = _NOT_NAMES.search(re.sub(r"^more (?=\w+s$)", "", text)) or changes_a_number(words)
    return len(text.split()) <= 4 and not known


def introduces(words: Sequence[str]) -> bool:
    """Whether words before a value can say what has it: none that negate, compare, hedge or compute with it."""
    low = {word.lower() for word in words}
    return not any(map(_OTHERWISE.fullmatch, low)) and not any(map(_NOT_NAMES.search, low - _INTRODUCE))


def adds_a_name(words: Sequence[str], number: Fraction | None) -> bool:
    """Whether words name what a number counts: a plural after up to two other words, or any noun after 1."""
    text = re.sub(" (?:(?:en|au|no) total|in totale|insgesamt|всего)$", "", fold(" ".join(words)))
    if is_counted(text):
        return True
    if not text.isascii():
        return text[0] in _COUNTERS and not _CHANGES_IT & {*text}
    last = re.sub(r"^(?:[A-Za-z]+ ){0,2}(?=[A-Za-z]+s$)", "", text)
    return _PLURAL.fullmatch(last) is not None or (number == 1 and len(words) == 1)
