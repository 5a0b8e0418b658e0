"""Finds the database values that a question mentions, as in OmniSQL's pipeline (arXiv 2503.02240).

Every text value of at most 40 characters is a document. The queries are all runs of up to eight words of the question,
and the whole question; BM25 returns ten documents for each. A document is kept if more than 85 % of it occurs in the
question as one piece, and the best twenty are used. Text analysis and scores are as in the pipeline's search engine
(Lucene through Pyserini: k1 = 0.9, b = 0.4, English stop words, Porter's stemmer, ties by document name).
"""

import re
import sqlite3
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path

import numpy as np

from dph.errors import DataError
from dph.tasks.sql.schema import column_values, connect

_K1, _B = 0.9, 0.4
_AT_ONCE = 20_000  # texts whose terms are held together
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
_PORTER = "porter ascii tokenchars '_.:,;'''"  # what `_TERM` has within a word; all beyond ASCII is a letter here


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
        texts = [value.text for value in self._values]
        parts = (texts[start : start + _AT_ONCE] for start in range(0, len(texts), _AT_ONCE))
        for number, words in enumerate(chain.from_iterable(map(analysed, parts))):
            terms = Counter(words)
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

    def search(self, query: Iterable[str]) -> list[Value]:
        """The ten best values for the terms of a query, best first."""
        terms = tuple(sorted(Counter(term for term in query if term in self._scores).items()))
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
        for terms in analysed(queries(question)):
            for value in self.search(terms):
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


def analysed(texts: Sequence[str]) -> list[list[str]]:
    """The terms of each text: words in lower case, without possessive endings and stop words, stemmed."""
    all_words = [[_POSSESSIVE.sub("", word).lower() for word in _TERM.findall(text)] for text in texts]
    kept = [[word for word in words if word and word not in _STOP] for words in all_words]
    stem_of = stems({word for words in kept for word in words})
    return [[stem_of.get(word, word) for word in words] for words in kept]


def stems(words: Iterable[str]) -> dict[str, str]:
    """The stems of lower-case words of three or more characters, by Porter's stemmer in SQLite's full-text search.
    Raises UserError for an SQLite without it."""
    longer = [word for word in words if len(word) > 2]
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.execute(f'CREATE VIRTUAL TABLE words USING fts5 (word, tokenize = "{_PORTER}")')
        except sqlite3.OperationalError as error:
            raise DataError(f"the prompt style omnisql needs an SQLite with FTS5 ({error}); use compact") from error
        connection.execute("CREATE VIRTUAL TABLE stems USING fts5vocab (words, 'instance')")
        connection.executemany("INSERT INTO words (rowid, word) VALUES (?, ?)", enumerate(longer))
        return {longer[number]: stem for number, stem in connection.execute("SELECT doc, term FROM stems")}


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
    every = []
    with closing(connect(db, "ignore")) as connection:
        for table, column, values in column_values(connection):
            if table == "sqlite_sequence":
                continue
            texts = [value for value in values if isinstance(value, str) and not _is_number(value)]
            every += [
                Value(table, column, text, f"{table}-**-{column}-**-{number}")
                for number, text in enumerate(texts)
                if 0 < len(text) <= _LONGEST_VALUE
            ]
    return every


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
