"""Numbers in English words: two thousand and nineteen, minus five, three quarters, two and a half million."""

import re
from fractions import Fraction
from itertools import product

from mathequal.nodes import Node, Number
from mathequal.text import word_list
from mathequal.trees import integer_node, rational_node

_ONES = word_list("""zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen""")
_TENS = word_list("twenty thirty forty fifty sixty seventy eighty ninety")
_SCALES = {"trillion": 10**12, "billion": 10**9, "million": 10**6, "thousand": 10**3, "hundred": 10**2, "dozen": 12}
NUMBER_WORDS = {word: n for n, word in enumerate(_ONES)} | {
    f"{ten} {one}".removesuffix(" zero"): n for n, (ten, one) in enumerate(product(_TENS, _ONES[:10]), 20)
}
_PARTS = {"half": 2, "halve": 2, "quarter": 4, "hundredth": 100, "thousandth": 1000} | dict(
    zip(word_list("third fourth fifth sixth seventh eighth ninth tenth"), range(3, 11), strict=True)
)
_ORDINALS = dict(first="one", second="two", third="three", fifth="five", eighth="eight", ninth="nine", twelfth="twelve")


def number_in_words(words: str) -> Number | None:
    """The number that words name: two thousand and nineteen, minus five, three quarters, two and a half million."""
    words = re.sub("^an? ", "one ", re.sub("[-,] ?", " ", words).removeprefix("and "))
    if len(words) > 150:
        return None
    if negative := re.fullmatch("(?:minus|negative) (.+)", words):
        inner = number_in_words(negative[1])
        return inner and Number(-inner.value, inner.form)
    for scale, size in _SCALES.items():
        before, found, after = f"{words} ".partition(f" {scale} ")
        if found:
            high, low = number_in_words(before), number_in_words(after.strip() or "zero")
            if not high or not low or not 0 < high.value < 1000 or not 0 <= low.value < size:
                return None
            return rational_node(high.value * size + low.value) if high.form == "int" or not low.value else None
    if share := re.fullmatch("(.+) (?:out of|in) (.+)", words):
        top, bottom = map(number_in_words, share.groups())
        return rational_node(top.value / bottom.value) if top and bottom and bottom.value else None
    count, _, part = words.removesuffix("s").rpartition(" ")
    before, both, after = words.rpartition(" and ")
    number, top = (int(x) if x.isdecimal() else NUMBER_WORDS.get(x) for x in (words, count))
    if words == "half" or (part in _PARTS and top and (top == 1) != words.endswith("s")):
        number = Fraction(top or 1, _PARTS[part])
    elif both and (whole := number_in_words(before)) and (low := number_in_words(after)):
        number = whole.value + low.value if whole.form == "int" and 0 < low.value < 1 else None
    elif point := re.fullmatch(rf"(.*\w) point((?: (?:{'|'.join(_ONES[:10])}))+)", words):
        whole, places = number_in_words(point[1]), "".join(str(_ONES.index(word)) for word in point[2].split())
        number = whole.value + Fraction(int(places), 10 ** len(places)) if whole else None
    return None if number is None else rational_node(Fraction(number))


def ordinal(words: str) -> Node | None:
    """The number of a place: twenty-first."""
    before, _, last = words.replace("-", " ").rpartition(" ")
    number = NUMBER_WORDS.get(f"{before} {_ORDINALS.get(last, re.sub('(?<=t)ie(?=th$)', 'y', last)[:-2])}".strip())
    return integer_node(number) if number and last[-2:] in ("th", "st", "nd", "rd") else None
