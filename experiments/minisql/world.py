"""Generates problems: first a question, then rows on which its two readings differ, or agree.

Whether a problem is ambiguous is decided first. The rows are drawn after the prompt, again and again until they fit
that decision, so a prompt carries no information on whether its problem is ambiguous.
"""

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from math import floor

from experiments.minisql.databases import TABLES, Database, Query, Rows, Schema, random_rows, random_schema
from experiments.minisql.questions import KINDS, Kind, Question

AMBIGUOUS_SHARE = 0.56
"""Share of problems whose readings give different results."""
SECOND_SHARE = 0.7
"""Share of gold queries that follow the second reading."""
_DRAWS = 300


@dataclass(frozen=True, slots=True)
class Asked:
    """A question in words about a schema, still without rows."""

    kind: Kind
    schema: Schema
    question: Question
    phrasing: str
    prompt: str


@dataclass(frozen=True, slots=True)
class Sample:
    """A problem with its rows."""

    asked: Asked
    rows: Rows
    ambiguous: bool
    second: bool

    @property
    def gold(self) -> Query:
        return self.asked.question.second if self.second else self.asked.question.first


def held_out(kind: Kind, table: str) -> bool:
    """Whether this kind is asked about this table only in the split "cross", as for two of the eight tables."""
    return (KINDS.index(kind) + tuple(TABLES).index(table)) % 4 == 0


def ask(rng: random.Random, kind: Kind, *, cross: bool = False) -> Asked:
    """Draw a schema and a question of a kind. With `cross`, both the combination of kind and table and the phrasing are
    held-out ones; otherwise neither is."""
    asked_of = rng.choice([table for table in TABLES if held_out(kind, table) == cross])
    other = rng.choice([table for table in TABLES if table != asked_of])
    of_child = kind.of_child or rng.random() < 0.5
    schema = random_schema(rng, *((asked_of, other) if of_child else (other, asked_of)))
    question = kind.draw(rng, schema, schema.child if of_child else schema.parent)
    phrasing = kind.held_out if cross else rng.choice(kind.phrasings)
    words = phrasing.format(t=asked_of, **question.words)
    return Asked(kind, schema, question, phrasing, f"sql | {schema} | {words} |")


def draw_rows(rng: random.Random, asked: Asked, ambiguous: bool) -> Rows | None:
    """Rows on which the readings differ (or agree), nothing is empty, and each of the question's conditions matters.
    None if a few hundred draws find none."""
    question = asked.question
    with closing(Database(asked.schema)) as database:
        for _ in range(_DRAWS):
            rows = random_rows(rng, asked.schema, question.needs)
            database.fill(rows)
            first, second = database.result(question.first), database.result(question.second)
            if _empty(first) or _empty(second) or (second != first) != ambiguous:
                continue
            shorter = (question.first.without(i) for i in range(len(question.first.where)))
            if all(database.result(query) != first for query in shorter):
                return rows
    return None


def samples(split: str, count: int, seed: int) -> Iterator[Sample]:
    """The problems of a split. Kinds alternate; within each kind, the shares of ambiguous problems and of second
    readings are AMBIGUOUS_SHARE and SECOND_SHARE, rounded to whole problems."""
    rng = random.Random(f"minisql/{seed}/{split}")
    for kind, ambiguous, second in _plan(rng, count):
        asked = ask(rng, kind, cross=split == "cross")
        while (rows := draw_rows(rng, asked, ambiguous)) is None:
            asked = ask(rng, kind, cross=split == "cross")
        yield Sample(asked, rows, ambiguous, second)


def _plan(rng: random.Random, count: int) -> list[tuple[Kind, bool, bool]]:
    plan: list[tuple[Kind, bool, bool]] = []
    for position, kind in enumerate(KINDS):
        size = count // len(KINDS) + (position < count % len(KINDS))
        ambiguous = _spread(rng, size, AMBIGUOUS_SHARE)
        for flag in (True, False):
            group = ambiguous.count(flag)
            plan += [(kind, flag, second) for second in _spread(rng, group, SECOND_SHARE)]
    rng.shuffle(plan)
    return plan


def _spread(rng: random.Random, size: int, share: float) -> list[bool]:
    """`size` flags of which size * share are true, rounded up or down at random without bias."""
    phase = rng.random()
    return [floor((i + 1) * share + phase) > floor(i * share + phase) for i in range(size)]


def _empty(result: list[tuple]) -> bool:
    """Whether a result has no rows, or a single row with only NULL or zero."""
    return not result or (len(result) == 1 and not any(result[0]))
