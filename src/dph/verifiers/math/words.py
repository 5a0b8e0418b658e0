"""Number words of English, read as the package word2number 1.1 reads them (the Qwen2.5-Math evaluation uses it)."""

from collections.abc import Sequence

_UNITS = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_LONGEST = 4300  # digits that Python converts
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_SCALES = {"billion": 10**9, "million": 10**6, "thousand": 10**3}
_VALUES = (
    {word: value for value, word in enumerate(_UNITS)}
    | {word: 10 * (tens + 2) for tens, word in enumerate(_TENS)}
    | {"hundred": 100}
    | _SCALES
)


def read_number_words(text: str) -> str | None:
    """The number that the number words of a text make up, in decimal digits; None where there are none, or where their
    scales are out of order.

    Other words are skipped ("of the two hundred men" is 200), hyphens part words, and a text of digits only is a
    number too ("007" is 7).
    """
    text = text.replace("-", " ").lower()
    if text.isdecimal():
        return str(int(text)) if len(text) < _LONGEST else None
    words = [word for word in text.split() if word in _VALUES or word == "point"]
    if not words or words.count("point") > 1 or any(words.count(scale) > 1 for scale in _SCALES):
        return None
    whole, decimals = words, []
    if "point" in words:
        at = words.index("point")
        whole, decimals = words[:at], words[at + 1 :]
    if any(word not in _UNITS[:10] for word in decimals):
        return None
    total = _whole(whole)
    if total is None:
        return None
    digits = "".join(str(_VALUES[word]) for word in decimals)
    return str(total + float(f"0.{digits}")) if digits else str(total)


def _whole(words: Sequence[str]) -> int | None:
    if len(words) == 1:
        return _VALUES[words[0]]
    total, start, last = 0, 0, 10**10
    for at, word in enumerate(words):
        if word in _SCALES:
            if _SCALES[word] > last or at == start:
                return None
            last = _SCALES[word]
            total += _group([_VALUES[w] for w in words[start:at]]) * last
            start = at + 1
    return total + (_group([_VALUES[w] for w in words[start:]]) if start < len(words) else 0)


def _group(values: Sequence[int]) -> int:
    """A number below 1000: "two hundred (and) thirty five"; two words without a hundred add up, and of an
    enumeration of five or more only the first counts."""
    match values:
        case [hundreds, by, *rest] if len(rest) in (1, 2):
            return hundreds * by + sum(rest)
        case [first, second]:
            return first * second if 100 in values else first + second
        case _:
            return values[0]
