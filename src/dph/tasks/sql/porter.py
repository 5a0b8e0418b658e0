"""Porter's stemmer (Porter 1980, "An algorithm for suffix stripping"), in Lucene's variant."""

import re
from functools import lru_cache

_VC = re.compile(r"v+c+")
_STEP_2 = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "bli": "ble", "alli": "al",
    "entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate", "alism": "al",
    "iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble", "logi": "log",
}  # fmt: skip
_STEP_3 = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
_STEP_4 = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
    "ous", "ive", "ize",
)  # fmt: skip


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """The stem of a lower-case word; words of one or two characters stay unchanged."""
    if len(word) < 3:
        return word
    word = _past_and_gerund(_plural(word))
    if word.endswith("y") and "v" in _form(word[:-1]):
        word = word[:-1] + "i"
    word = _replaced(_replaced(word, _STEP_2), _STEP_3)
    word = _without_suffix(word)
    return _tidied(word)


def _form(word: str) -> str:
    """The word as vowels (v) and consonants (c); y is a vowel after a consonant."""
    form = ""
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and form.endswith("c"))
        form += "v" if vowel else "c"
    return form


def _measure(word: str) -> int:
    """Porter's m: how often a vowel is followed by a consonant."""
    return len(_VC.findall(_form(word)))


def _plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past_and_gerund(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        if word.endswith(suffix) and "v" in _form(word[: -len(suffix)]):
            base = word[: -len(suffix)]
            if base.endswith(("at", "bl", "iz")):
                return base + "e"
            if _doubled(base):
                return base if base[-1] in "lsz" else base[:-1]
            return base + "e" if _measure(base) == 1 and _short(base) else base
    return word


def _doubled(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _form(word)[-1] == "c"


def _short(word: str) -> bool:
    """Consonant, vowel, consonant at the end, the last not w, x or y."""
    return _form(word)[-3:] == "cvc" and word[-1] not in "wxy"


def _replaced(word: str, endings: dict[str, str]) -> str:
    """Replace the longest matching ending if the rest of the word has a measure above 0."""
    for ending in sorted(endings, key=len, reverse=True):
        if word.endswith(ending):
            base = word[: -len(ending)]
            return base + endings[ending] if _measure(base) > 0 else word
    return word


def _without_suffix(word: str) -> str:
    for suffix in sorted(_STEP_4, key=len, reverse=True):
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            if suffix == "ion" and not base.endswith(("s", "t")):
                return word
            return base if _measure(base) > 1 else word
    return word


def _tidied(word: str) -> str:
    if word.endswith("e"):
        base = word[:-1]
        if _measure(base) > 1 or (_measure(base) == 1 and not _short(base)):
            word = base
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word
