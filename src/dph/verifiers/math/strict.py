r"""What the policy `strict` asks of an answer besides math-verify's verdict: that it be of the gold answer's kind.

The rules read both answers as text, and each can only refuse. docs/concepts/verifiers.md lists them.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
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


_PERCENT = ("percent", 1)
_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)"
_TEN = r"10\^(?:\d|\{-?\d{1,3}\})"
_INTEGER = re.compile(r"[-+]?\d+(?:\.0*)?")
_DECIMAL = re.compile(rf"[-+]?(?:{_NUMBER}(?:\\overline\{{\d+\}})?(?:(?:\\times|\\cdot){_TEN})?|{_TEN}|\\infty)")
_RATIO = re.compile(rf"[-+]?\d*\\frac(?:\{{-?{_NUMBER}\}}|\d)(?:\{{-?{_NUMBER}\}}|\d)|[-+]?{_NUMBER}[/:]{_NUMBER}")
_VARIABLE = re.compile(r"(?<![\\A-Za-z])[A-Za-z](?![A-Za-z])")
_FUNCTION = re.compile(r"(?:sin|cos|tan|cot|sec|csc|log|ln)(?![a-z])")
_OPERATION = re.compile(
    r"\\(?:sum|prod|i*nt|lim|[td]?binom|gcd|lcm|max|min|[bp]?mod|det|[lr]floor|[lr]ceil|[lcv]?dots)(?![A-Za-z])|[!']"
)
_WITH_INFINITY = re.compile(r"\\infty ?(?:[-+*/^\d(]|\\(?:cdot|times|d?frac))|[\d)}] ?[-+*/^]? ?\\infty")


def _intervals(answer: AnswerText) -> dict[str, int]:
    return {kind: number for kind, number in answer.brackets.items() if kind != "{}"}


def _is_inequality(answer: AnswerText) -> bool:
    return "<" in answer.relations and not answer.brackets


def _same_brackets(given: AnswerText, gold: AnswerText) -> bool:
    several_names = len(gold.values) == gold.relations["="] > 1  # x = 1, y = 2 may be written (1, 2)
    return _intervals(given) == _intervals(gold) or not given.brackets or several_names


_RULES: Mapping[str, Callable[[AnswerText, AnswerText], bool]] = {
    "unit": lambda given, gold: not (given.units and gold.units) or given.units == gold.units,
    "words": lambda given, gold: not (given.words and gold.words) or bool(given.words & gold.words),
    "number in words": lambda given, gold: given.asides <= gold.asides,
    "base": lambda given, gold: given.bases == gold.bases,
    "operation": lambda given, gold: given.found(_OPERATION) <= gold.found(_OPERATION),
    "brackets": _same_brackets,
    "number of answers": lambda given, gold: given.count == gold.count,
    "relation": lambda given, gold: given.relations == gold.relations or given.unnamed == gold.unnamed,
    "function": lambda given, gold: bool(gold.found(_FUNCTION)) or not given.found(_FUNCTION),
    "variable": lambda given, gold: bool(given.found(_VARIABLE)) == bool(gold.found(_VARIABLE)),
    "number": lambda given, gold: not gold.numbers(_DECIMAL, _RATIO) or given.numbers(_DECIMAL, _RATIO),
    "arithmetic with infinity": lambda given, gold: given.found(_WITH_INFINITY) <= gold.found(_WITH_INFINITY),
    "whole number": lambda given, gold: _PERCENT in gold.units or not gold.numbers(_INTEGER) or given.numbers(_DECIMAL),
}
_NOT_FOR_INTERVALS = ("brackets", "number of answers", "relation", "variable")  # x < 1 is (-∞, 1)


def strict_fault(given: str, gold: str) -> str:
    """The name of the first rule by which an answer differs in kind from the gold answer; "" if it does not."""
    left, right = read_answer(given), read_answer(gold)
    alike = _is_inequality(left) == _is_inequality(right) or not (_intervals(left) or _intervals(right))
    rules = [name for name in _RULES if alike or name not in _NOT_FOR_INTERVALS]
    return next((name for name in rules if not _RULES[name](left, right)), "")
