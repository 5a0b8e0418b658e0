"""Finds the database values that a question mentions, as in OmniSQL's pipeline (arXiv 2503.02240).

Every text value of at most 40 characters is a document. The queries are all runs of up to eight words of the question,
and the whole question; BM25 returns ten documents for each. A document is kept if more than 85 % of it occurs in the
question as one piece, and the best twenty are used. Text analysis and scores are those of the pipeline's search engine
(Lucene through Pyserini: k1 = 0.9, b = 0.4, English stop words, Porter's stemmer, ties by document name).
"""

import re
import sqlite3
from array import array
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from dph.tasks.sql.schema import connect, quoted

_VC = re.compile(r"v+c+")
_STEP_2 = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "bli": "ble", "alli": "al",
    "entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate", "alism": "al",
    "iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble", "logi": "log",
}  # fmt: skip
_STEP_3 = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
_STEP_4: dict[str, str] = dict.fromkeys(
    ("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
     "ous", "ive", "ize"), "",
)  # fmt: skip


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """The stem of a lower-case word; words of one or two characters stay unchanged."""
    if len(word) < 3:
        return word
    word = _past_and_gerund(_plural(word))
    if word.endswith("y") and "v" in _form(word[:-1]):
        word = word[:-1] + "i"
    for endings, least in ((_STEP_2, 0), (_STEP_3, 0), (_STEP_4, 1)):
        word = _replaced(word, endings, least)
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


def _replaced(word: str, endings: dict[str, str], least: int) -> str:
    """Replace the longest matching ending if the rest of the word has a measure above `least`."""
    ending = max(filter(word.endswith, endings), key=len, default="")
    base = word.removesuffix(ending)
    if not ending or _measure(base) <= least or (ending == "ion" and not base.endswith(("s", "t"))):
        return word
    return base + endings[ending]


def _tidied(word: str) -> str:
    if word.endswith("e"):
        base = word[:-1]
        if _measure(base) > 1 or (_measure(base) == 1 and not _short(base)):
            word = base
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word


_K1, _B = 0.9, 0.4
_HITS = 10  # per query
_LONGEST_RUN = 8  # words of the question in one query
_LONGEST_VALUE = 40  # characters of a value that is indexed
_SHARE = 0.85  # a kept value has more than this share of its characters in the question
_KEPT = 20  # values per question

_STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was
will with
"""
_STOP = frozenset(_STOP_WORDS.split())
_TERM = re.compile(r"\w+(?:(?:(?<=[^\W\d_])['’.:·](?=[^\W\d_])|(?<=\d)[,.;'](?=\d))\w+)*")
_POSSESSIVE = re.compile(r"['’]s$")


@dataclass(frozen=True, slots=True)
class Value:
    """A text value of a column; the name orders values of equal score."""

    table: str
    column: str
    text: str
    name: str


class ValueIndex:
    """BM25 over the text values of one database."""

    def __init__(self, db: Path) -> None:
        """Read every text column. Raises UserError if the database file is missing."""
        self._values = _values(db)
        self._order = np.argsort(np.argsort(np.array([value.name.encode() for value in self._values], dtype=object)))
        postings: dict[str, tuple[array[int], array[int]]] = defaultdict(lambda: (array("i"), array("i")))
        lengths = np.zeros(len(self._values))
        for number, value in enumerate(self._values):
            terms = Counter(analysed(value.text))
            lengths[number] = terms.total()
            for term, count in terms.items():
                postings[term][0].append(number)
                postings[term][1].append(count)
        documents = int((lengths > 0).sum())
        mean = lengths.sum() / max(1, documents)
        self._norms = _K1 * (1 - _B + _B * lengths / (mean or 1))
        self._scores: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for term, (numbers, counts) in postings.items():
            where, tf = np.array(numbers, dtype=np.int64), np.array(counts, dtype=float)
            idf = np.log(1 + (documents - len(where) + 0.5) / (len(where) + 0.5))
            self._scores[term] = where, idf * tf / (tf + self._norms[where])
        self._found: dict[tuple[tuple[str, int], ...], list[Value]] = {}

    def search(self, query: str) -> list[Value]:
        """The ten best values for a query, best first."""
        terms = tuple(sorted(Counter(t for t in analysed(query) if t in self._scores).items()))
        if not terms:
            return []
        if terms in self._found:
            return self._found[terms]
        where = np.concatenate([self._scores[term][0] for term, _ in terms])
        gains = np.concatenate([count * self._scores[term][1] for term, count in terms])
        numbers, places = np.unique(where, return_inverse=True)
        # Single precision, as in the engine, so that sums in another order still tie.
        scores = np.bincount(places, gains).astype(np.float32)
        best = np.lexsort((self._order[numbers], -scores))[:_HITS]
        self._found[terms] = [self._values[numbers[place]] for place in best]
        return self._found[terms]

    def mentioned(self, question: str) -> dict[tuple[str, str], list[str]]:
        """Values that the question mentions, best first, by (table, column) in lower case."""
        hits: dict[Value, int] = {}
        for query in queries(question):
            for value in self.search(query):
                hits.setdefault(value, len(hits))
        asked = question.lower()
        scored = [(_share(value.text.lower(), asked), len(value.text), place, value) for value, place in hits.items()]
        kept = sorted((item for item in scored if item[0] > _SHARE), key=lambda item: item[:3], reverse=True)[:_KEPT]
        by_column: dict[tuple[str, str], list[str]] = {}
        for *_, value in kept:
            by_column.setdefault((value.table.lower(), value.column.lower()), []).append(value.text)
        return by_column


@lru_cache(maxsize=4)
def value_index(db: Path) -> ValueIndex:
    """The index of a database; the most recent ones are cached, since questions are grouped by database."""
    return ValueIndex(db)


def analysed(text: str) -> list[str]:
    """The terms of a text: words in lower case, without possessive endings and stop words, stemmed."""
    words = (_POSSESSIVE.sub("", word).lower() for word in _TERM.findall(text))
    return [stem(word) for word in words if word and word not in _STOP]


def queries(question: str) -> list[str]:
    """All runs of one to eight words of a question by length, then the question itself, without repetitions."""
    words = tokenized(question)
    runs = [
        " ".join(words[start : start + length])
        for length in range(1, _LONGEST_RUN + 1)
        for start in range(len(words) - length + 1)
    ]
    return list(dict.fromkeys([*runs, question]))


_SPLITS = (
    (r"([«“‘„»”’]|`+)", r" \1 "),
    (r"([.?!])(\s+(?=[A-Z\"'`(])|[\]\)}>\"'»”’ ]*$)", r" \1 \2"),  # the end of a sentence
    (r"([:,])(?!\d)", r" \1 "),
    (r"(\.{2,}|--|''|[;@#$%&?!*\"\[\](){}<>])", r" \1 "),
    (r"(?i)(?<!\w)'(?!(?:re|ve|ll|m|t|s|d|n)\b)(\w)\b", r"' \1"),
    (r"(?i)([^' ])('(?:s|m|d|ll|re|ve)?(?=\s|$)|n't\b)", r"\1 \2 "),
    (r"(?i)\b(can)(not)\b", r"\1 \2"),
)
_SPLITTERS = [(re.compile(pattern), replacement) for pattern, replacement in _SPLITS]


def tokenized(text: str) -> list[str]:
    """Words and punctuation of an English text, split by the Penn Treebank's rules."""
    for pattern, replacement in _SPLITTERS:
        text = pattern.sub(replacement, text)
    return text.split()


def _share(value: str, question: str) -> float:
    """Length of the longest piece of the value that occurs in the question, over the value's length."""
    best = 0
    for start in range(len(value)):
        while start + best < len(value) and value[start : start + best + 1] in question:
            best += 1
    return best / len(value)


def _values(db: Path) -> list[Value]:
    connection = connect(db)
    connection.text_factory = lambda data: data.decode("utf-8", "ignore")
    try:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name != 'sqlite_sequence'")
        every = []
        for (table,) in tables.fetchall():
            for row in connection.execute(f"PRAGMA table_info({quoted(table)})").fetchall():
                sql = f"SELECT DISTINCT {quoted(row[1])} FROM {quoted(table)} WHERE {quoted(row[1])} IS NOT NULL"
                try:
                    texts = [v for (v,) in connection.execute(sql) if isinstance(v, str) and not _is_number(v)]
                except sqlite3.Error:  # a table of a kind that this SQLite cannot read
                    continue
                every += [
                    Value(table, row[1], text, f"{table}-**-{row[1]}-**-{number}")
                    for number, text in enumerate(texts)
                    if 0 < len(text) <= _LONGEST_VALUE
                ]
        return every
    finally:
        connection.close()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
