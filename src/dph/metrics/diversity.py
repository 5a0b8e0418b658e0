"""Diversity of repeated samples of one problem, for any task: distinct kinds, overlap of wording, entropy.

Every count of distinct items is *rarefied*: it is the expected number in a random subset of m of the n samples. Like
pass@k, it is unbiased and uses all samples, and it makes runs with different n comparable.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations

import numpy as np
import sqlglot
from numpy.typing import ArrayLike
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dph.metrics.passk import mean_at_k, pass_at_k


def expected_distinct(kinds: Iterable[Hashable], m: int) -> float:
    """Expected number of distinct kinds among m samples drawn without replacement, or among all if there are fewer.

    Σ over kinds of 1 − C(n − c, m) / C(n, m), where c of the n samples are of that kind (Hurlbert 1971). None marks a
    sample of no kind, such as a response without an answer: it is drawn like any other and adds no kind.
    """
    counts = Counter(kinds)
    n = counts.total()
    del counts[None]
    if not counts:
        return 0.0
    return float(pass_at_k(n, list(counts.values()), min(m, n)).sum())


def ngram_overlap(texts: Sequence[str], n: int = 4) -> float:
    """Mean Jaccard overlap of the sets of word n-grams over all pairs of texts: 1 if all are equal, 0 for no overlap.

    A text of fewer than n words counts as one n-gram. NaN for fewer than two texts.
    """
    if len(texts) < 2:
        return float("nan")
    # Equal texts are common: each pair of distinct texts is compared once and counted as often as it occurs.
    groups = [(count, _ngrams(text.split(), n)) for text, count in Counter(texts).items()]
    total = sum(count * (count - 1) / 2 for count, _ in groups)
    for (count, grams), (other_count, other) in combinations(groups, 2):
        common = len(grams & other)
        total += count * other_count * common / (len(grams) + len(other) - common)
    return total / (len(texts) * (len(texts) - 1) / 2)


def _ngrams(words: list[str], n: int) -> set[tuple[str, ...]]:
    return {tuple(words[i : i + n]) for i in range(max(1, len(words) - n + 1))}


def canonical_sql(sql: str) -> str:
    """Normalize a query, so that queries that differ only in writing have equal texts.

    Layout, comments, letter case and quoting of identifiers, and the names of table aliases are normalised; the order
    of conditions and columns is kept. A query that does not parse is returned with its white space collapsed.
    """
    try:
        tree = sqlglot.parse_one(sql, read="sqlite")
    except (SqlglotError, RecursionError):
        return " ".join(sql.split())
    for identifier in tree.find_all(exp.Identifier):
        # SQLite's names are case-insensitive even when quoted.
        identifier.replace(exp.to_identifier(identifier.name.lower()))
    aliased = [table for table in tree.find_all(exp.Table) if table.alias]
    names = {alias: f"t{i}" for i, alias in enumerate(dict.fromkeys(table.alias for table in aliased), 1)}
    for table in aliased:
        table.set("alias", exp.TableAlias(this=exp.to_identifier(names[table.alias])))
    for column in tree.find_all(exp.Column):
        if column.table in names:
            column.set("table", exp.to_identifier(names[column.table]))
    return tree.sql(dialect="sqlite", comments=False)


def pass_area(n: ArrayLike, c: ArrayLike, largest: int) -> np.ndarray:
    """Area under each problem's pass@k over log₂ k from 1 to `largest`, divided by the width: a mean pass@k in [0, 1].

    Trapezoidal rule over the powers of two up to `largest`; with `largest` = 1 it is pass@1. Shapes and errors are
    those of `dph.metrics.passk.pass_at_k`.
    """
    doublings = max(1, largest).bit_length() - 1
    curve = np.stack([pass_at_k(n, c, 1 << i) for i in range(doublings + 1)])
    if doublings == 0:
        return mean_at_k(n, c)
    return ((curve[1:] + curve[:-1]) / 2).mean(0)


def token_entropy(logprobs: Iterable[Sequence[float]]) -> float:
    """The policy's entropy per token in nats, estimated as the mean of −log p over all tokens of its own samples.

    Unbiased if the policy itself sampled at the temperature of the log-probabilities. NaN without tokens.
    """
    total, count = 0.0, 0
    for row in logprobs:
        total -= sum(row)
        count += len(row)
    return total / count if count else float("nan")
