r"""Reads what the rules of the policy `strict` compare from an answer's text: units, brackets, elements, relations."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

_NAMES_OF_UNITS = """
    mm millimeter millimetre, cm centimeter centimetre, dm, m meter metre, km kilometer kilometre, inch in, yd yard,
    ft foot feet, mi mile, mg milligram, g gm gram, kg kilogram, lb pound, oz ounce, ton tonne, ml milliliter, acre,
    l liter litre, gal gallon, hectare, s sec second, min minute, h hr hour, day, week, month, yr year, am a.m, pm p.m,
    dollar, cent, euro, rupee, degree deg, rad radian, percent, c celsius, f fahrenheit, k kelvin, n newton, j joule,
    w watt, v volt, mph, kmph kph, hz
"""
_UNITS = {word: names.split()[0] for names in _NAMES_OF_UNITS.split(",") for word in names.split()}
_SPELLINGS = (
    (re.compile(r"\^\s*(?:\\circ|\{\s*\\circ\s*\})|°"), " degree "),
    (re.compile(r"\\?%"), " percent "),
    (re.compile(r"\\\$"), " dollar "),
    (re.compile(r"\\[!,;:]"), ""),
    (re.compile(r"\\(?:left|right|displaystyle|q?quad)(?![A-Za-z])|\\ |~|\$|\s+"), " "),
    (re.compile(r"\{,\}"), ","),
    (re.compile("[−–]"), "-"),
    (re.compile(r"\\[dt]frac"), r"\\frac"),
    (re.compile(r"\\mathbb ?(?:R|\{R\})"), r"(-\\infty,\\infty)"),
)
_TEXT = re.compile(r"\\(?:text(?:rm|bf|it)?|math(?:rm|bf)|[mh]box|operatorname) ?\{([^{}]*)\}")
_TAIL = re.compile(
    r"([^A-Za-z]*(?:\\frac[^A-Za-z\\]*)?\d\}?)"  # a number
    r"((?: (?=[ghlms]\b)| ?(?=m/s|[A-Za-z]{2}))[A-Za-z][A-Za-z/^{}\d .-]*)"  # its unit, such as cm^2
)
_WORD = re.compile(  # with what makes it a unit: per hour, square cm, cm^2
    r"(?P<per>/ ?|@?\bper )?(?:@?(?P<power>square|sq|cubic)\b\.? )?(?P<text>@?)(?<![\\A-Za-z])"
    r"(?P<word>[A-Za-z]+(?:\.m\b)?)(?: ?\^ ?\{?(?P<exponent>-?\d+)\}?)?"
)
_BASE = re.compile(r"(?<=[\d)]) ?_ ?(?:\{[ @]*(\w+) ?\}|@?(\w))")
_THOUSANDS = re.compile(r"(?<![\d,.(\[{])\d{1,3}(?:,\d{3})+(?![\d,)\]}])")
_AND = re.compile(r"@?\b(?:or|and)\b|\\cup(?![A-Za-z])|;")
_INNERMOST = re.compile(  # brackets without brackets in them; those of f(x, y) enclose arguments
    r"(?P<call>(?<![\\A-Za-z@])[A-Za-z] ?|\\(?:gcd|lcm|max|min) ?)?(?P<open>\(|\[|\\?\{)(?P<inside>[^()\[\]{}]*?)"
    r"(?P<close>\)|\]|\\?\})"
)
_RELATION = re.compile(r"([<>≤≥]|\\[lg](?:eq?(?:slant)?|t)(?![A-Za-z]))|=|\\(?:neq?|approx|equiv|sim|in)(?![A-Za-z])")
_LETTER = r"(?:[A-Za-z]|\\[A-Za-z]+)(?:_\w|_\{\w+\})?'*"
_NAMES = re.compile(  # (x, y) = …, x ∈ …, x = (…
    rf"\( ?{_LETTER}(?: ?, ?{_LETTER})* ?\) ?=|{_LETTER} ?(?:\\in(?![a-z])|= ?(?=\(|\[|\\\{{))"
)
_NAME = re.compile(rf"(?:{_LETTER}(?:\{{[\w¦]+\}})?|\\angle[A-Z]+|[A-Z]{{2,3}}|[A-Za-z]{{4,}})?=")  # x=, f(x)=, Area=


@dataclass(frozen=True, slots=True)
class AnswerText:
    """What the rules compare."""

    units: frozenset[tuple[str, int]]
    """With their powers: m/s² is (m, 1), (s, -2)."""
    words: frozenset[str]
    asides: frozenset[str]
    """Numbers within text."""
    bases: tuple[str, ...]
    brackets: Counter[str]
    """Of tuples, intervals and sets, as "(]"."""
    values: tuple[str, ...]
    """What stands between commas, without units, words and "x="."""
    relations: Counter[str]
    unnamed: Counter[str]
    """Relations of the values."""

    @property
    def count(self) -> int:
        """The number of answers."""
        return sum(2 if r"\pm" in value else 1 for value in self.values)

    def numbers(self, *forms: re.Pattern[str]) -> bool:
        """Whether every value has one of these forms."""
        return all(any(form.fullmatch(value.removeprefix(r"\pm")) for form in forms) for value in self.values)

    def found(self, pattern: re.Pattern[str]) -> set[str]:
        """What matches a pattern in the values."""
        return {name for value in self.values for name in pattern.findall(value)}


@lru_cache(maxsize=4096)
def read_answer(text: str) -> AnswerText:
    """Read an answer, LaTeX or plain text."""
    for spelling, plain in _SPELLINGS:
        text = spelling.sub(plain, text)
    text = text.strip().removesuffix(".").strip()
    asides = () if _TEXT.fullmatch(text) else re.findall(r"\d+", " ".join(_TEXT.findall(text)))
    left, equals, right = text.rpartition("=")
    if tail := _TAIL.fullmatch(right):
        text = rf"{left}{equals}{tail[1]} \text{{{tail[2]}}}"
    text = _TEXT.sub(lambda group: " " + re.sub(r"(?<![A-Za-z.])(?=[A-Za-z])", "@", group[1]) + " ", text)
    text = _AND.sub(",", " ".join(text.split()))
    bases = sorted("".join(groups) for groups in _BASE.findall(text))
    text, units, words = _without_words(_BASE.sub("", text))
    text = _THOUSANDS.sub(lambda number: number[0].replace(",", ""), text)
    brackets, elements = _structure(_NAMES.sub("", text))
    values = [_NAME.sub("", element, count=1) if _NAME.match(element) else element for element in elements]
    return AnswerText(units, words, frozenset(asides), tuple(bases), brackets, tuple(values),
                   _relations(elements), _relations(values))  # fmt: skip


def _without_words(text: str) -> tuple[str, frozenset[tuple[str, int]], frozenset[str]]:
    """The text without units and words, the units, and the words of four letters or more. @ marks words of \\text."""
    has_digits, units, words = re.search(r"\d", text), set[tuple[str, int]](), set[str]()

    def take(match: re.Match[str]) -> str:
        word, unit = match["word"], _unit(match["word"])
        if has_digits and unit and (match["text"] or (len(word) > 1 and word != "in")):
            power = {None: 1, "cubic": 3}.get(match["power"], 2) * int(match["exponent"] or 1)
            units.add((unit, -power if match["per"] else power))
            return ""
        if len(word) > 3:
            words.add(word.lower().removesuffix("s"))
        return "" if match["text"] and len(word) > 1 else match[0].replace("@", "")

    return _WORD.sub(take, text), frozenset(units), frozenset(words)


def _unit(word: str) -> str:
    word = word.lower()
    return next((_UNITS[w] for w in (word, word.removesuffix("s"), word.removesuffix("es")) if w in _UNITS), "")


def _relations(elements: Iterable[str]) -> Counter[str]:
    return Counter("<" if match[1] else match[0] for text in elements for match in _RELATION.finditer(text))


def _structure(text: str) -> tuple[Counter[str], list[str]]:
    """The brackets of lists, tuples, sets and intervals, and their elements; other groups get braces."""
    brackets: Counter[str] = Counter()

    def close(match: re.Match[str]) -> str:
        inside, before = match["inside"], match.string[: match.start("open")].rstrip()[-1:]
        argument = match["open"] == "{" and before and (before.isalnum() or before in "^_⟩")
        if "," not in inside or match["call"] or argument:
            return f"{match['call'] or ''}⟨{inside.replace(',', '¦')}⟩"
        brackets[(match["open"] + match["close"]).replace("\\", "")] += 1
        return f",{inside},"

    while (flat := _INNERMOST.sub(close, text)) != text:
        text = flat
    text = re.sub(r"(\\[A-Za-z]+ (?=[A-Za-z]))| ", r"\1", text).replace("⟨", "{").replace("⟩", "}")
    return brackets, [element for element in text.split(",") if element] or [""]
