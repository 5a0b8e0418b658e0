"""Simple questions with SQL, generated from the schema and the values of a real database.

They enlarge the demonstrations for small models: the real questions are too few for learning the language.
"""

import random
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dph.tasks.sql.schema import ForeignKey, Schema, Table, connect, quoted

_VALUES = 40  # distinct values of a column to draw from
_LONGEST = 24  # characters of a text value in a question

# kind -> (phrasings, SQL); c, d are columns to show, e a text column with its value v, m a number column with w.
_ONE_TABLE: dict[str, tuple[tuple[str, ...], str]] = {
    "list": (
        ("list the {c} of all {t}.", "what are the {c} of the {t}?", "show the {c} for each {t}."),
        "select {C} from {T}",
    ),
    "list_two": (
        ("show the {c} and {d} of all {t}.", "what are the {c} and the {d} of each {t}?"),
        "select {C}, {D} from {T}",
    ),
    "count": (
        ("how many {t} are there?", "count the number of {t}.", "what is the number of {t}?"),
        "select count(*) from {T}",
    ),
    "distinct": (
        ("what are the different {c} of {t}?", "list all distinct {c} of the {t}."),
        "select distinct {C} from {T}",
    ),
    "filter": (
        (
            "what is the {c} of the {t} whose {e} is {v}?",
            "find the {c} of {t} with {e} {v}.",
            "show the {c} of the {t} that have {v} as {e}.",
        ),
        "select {C} from {T} where {E} = {V}",
    ),
    "filter_above": (
        ("list the {c} of {t} with {m} above {w}.", "which {c} belong to {t} whose {m} is greater than {w}?"),
        "select {C} from {T} where {M} > {W}",
    ),
    "filter_below": (
        ("list the {c} of {t} with {m} below {w}.", "which {c} belong to {t} whose {m} is less than {w}?"),
        "select {C} from {T} where {M} < {W}",
    ),
    "count_filter": (
        ("how many {t} have {e} {v}?", "count the {t} whose {e} is {v}."),
        "select count(*) from {T} where {E} = {V}",
    ),
    "count_above": (
        ("how many {t} have a {m} above {w}?", "count the {t} whose {m} is more than {w}."),
        "select count(*) from {T} where {M} > {W}",
    ),
    "average": (
        ("what is the average {m} of all {t}?", "find the average {m} of the {t}."),
        "select avg({M}) from {T}",
    ),
    "extremes": (
        ("what are the maximum and minimum {m} of the {t}?", "find the highest and the lowest {m} of all {t}."),
        "select max({M}), min({M}) from {T}",
    ),
    "group": (
        ("how many {t} are there for each {e}?", "show each {e} and the number of {t} with it."),
        "select {E}, count(*) from {T} group by {E}",
    ),
    "order_up": (
        ("list the {c} of {t} ordered by {m}.", "show the {c} of all {t} in ascending order of {m}."),
        "select {C} from {T} order by {M}",
    ),
    "order_down": (
        (
            "list the {c} of {t} in descending order of {m}.",
            "show the {c} of all {t} from the highest {m} to the lowest.",
        ),
        "select {C} from {T} order by {M} desc",
    ),
    "most": (
        ("what is the {c} of the {t} with the highest {m}?", "find the {c} of the {t} with the largest {m}."),
        "select {C} from {T} order by {M} desc limit 1",
    ),
    "least": (
        ("what is the {c} of the {t} with the lowest {m}?", "find the {c} of the {t} with the smallest {m}."),
        "select {C} from {T} order by {M} limit 1",
    ),
    "most_common": (
        ("what is the most common {e} of {t}?", "which {e} do most {t} have?"),
        "select {E} from {T} group by {E} order by count(*) desc limit 1",
    ),
}
_TWO_TABLES: dict[str, tuple[tuple[str, ...], str]] = {
    "join": (
        ("show the {c} of each {t} and the {f} of its {u}.", "what are the {c} of {t} and the {f} of their {u}?"),
        "select t1.{C}, t2.{F} from {T} as t1 join {U} as t2 on t1.{K} = t2.{L}",
    ),
    "join_filter": (
        ("find the {f} of the {u} of {t} whose {e} is {v}.", "what is the {f} of the {u} for the {t} with {e} {v}?"),
        "select t2.{F} from {T} as t1 join {U} as t2 on t1.{K} = t2.{L} where t1.{E} = {V}",
    ),
    "join_count": (
        ("for each {f} of the {u}, how many {t} are there?", "count the {t} of each {u} by its {f}."),
        "select t2.{F}, count(*) from {T} as t1 join {U} as t2 on t1.{K} = t2.{L} group by t1.{K}",
    ),
}
KINDS = (*_ONE_TABLE, *_TWO_TABLES)


@dataclass(frozen=True, slots=True)
class Asked:
    """A generated question and its gold SQL."""

    kind: str
    question: str
    sql: str


@dataclass(frozen=True, slots=True)
class _Source:
    """A non-empty table as the templates use it: titles and values of its columns."""

    table: Table
    shown: tuple[str, ...]
    texts: dict[str, tuple[str, ...]]
    numbers: dict[str, tuple[float, ...]]


class TemplateWriter:
    """Generates questions about one database."""

    def __init__(self, db: Path, schema: Schema) -> None:
        """Reads some values of every column. Raises UserError if the file cannot be read."""
        self._titles = {c.name.lower(): c.title for table in schema.tables for c in table.columns}
        keys = {(k.table.lower(), k.column.lower()) for k in schema.foreign_keys}
        connection = connect(db)
        try:
            sources = [_read_source(connection, table, keys) for table in schema.tables]
        finally:
            connection.close()
        self._sources = {s.table.name.lower(): s for s in sources if s is not None and s.shown}
        self._links = [k for k in schema.foreign_keys if {k.table.lower(), k.to_table.lower()} <= self._sources.keys()]

        self.kinds = [kind for kind in KINDS if self._places(kind)]
        """The kinds that fit at least one table of this database."""

    def ask(self, rng: random.Random) -> Asked:
        """A random question of a random kind; `kinds` must not be empty."""
        kind = rng.choice(self.kinds)
        source, link = rng.choice(self._places(kind))
        phrasings, sql = (_TWO_TABLES if link else _ONE_TABLE)[kind]
        words = self._words(rng, source, link, sql)
        return Asked(kind, rng.choice(phrasings).format(**words), sql.format(**words))

    def _places(self, kind: str) -> list[tuple[_Source, ForeignKey | None]]:
        """The tables (for joins: the foreign keys) that have the columns that the kind needs."""
        if kind in _TWO_TABLES:
            places = [(self._sources[link.table.lower()], link) for link in self._links]
        else:
            places = [(source, None) for source in self._sources.values()]
        sql = (_TWO_TABLES if kind in _TWO_TABLES else _ONE_TABLE)[kind][1]
        needed = sum(mark in sql for mark in ("{C}", "{D}", "{E}", "{M}"))  # no kind uses {V} and {W} at once
        return [
            (source, link)
            for source, link in places
            if len(source.shown) >= needed
            and ("{E}" not in sql or source.texts)
            and ("{M}" not in sql or source.numbers)
        ]

    def _words(self, rng: random.Random, source: _Source, link: ForeignKey | None, sql: str) -> dict[str, str]:
        """Values of the slots: lower-case keys are words of the question, upper-case keys names and literals of the
        SQL."""
        words = _named("t", source.table.name, _noun(source.table.name))
        asked = ""
        if "{E}" in sql:
            asked = rng.choice(list(source.texts))
            value = rng.choice(source.texts[asked])
            words |= self._column("e", asked) | {"v": value, "V": "'" + value.replace("'", "''") + "'"}
        if "{M}" in sql:
            asked = rng.choice(list(source.numbers))
            value = f"{rng.choice(source.numbers[asked]):g}"
            words |= self._column("m", asked) | {"w": value, "W": value}
        shown = [column for column in source.shown if column != asked]
        rng.shuffle(shown)
        for letter, column in zip("cd", shown, strict=False):
            words |= self._column(letter, column)
        if link is not None:
            target = self._sources[link.to_table.lower()]
            words |= _named("u", target.table.name, _noun(target.table.name))
            words |= self._column("f", rng.choice(target.shown))
            words |= {"K": _identifier(link.column), "L": _identifier(link.to_column)}
        return words

    def _column(self, letter: str, name: str) -> dict[str, str]:
        return _named(letter, name, self._titles[name.lower()])


def _named(letter: str, name: str, title: str) -> dict[str, str]:
    return {letter: title, letter.upper(): _identifier(name)}


def _identifier(name: str) -> str:
    plain = name.replace("_", "").isalnum() and not name[0].isdigit()
    return name.lower() if plain else quoted(name)


def _noun(name: str) -> str:
    return name.replace("_", " ").lower()


def _read_source(connection: sqlite3.Connection, table: Table, keys: set[tuple[str, str]]) -> _Source | None:
    """Classify a table's columns by their values; None if the table is empty or missing from the file."""
    primary = {column.lower() for column in table.primary_key}
    shown, texts, numbers = [], {}, {}
    for column in table.columns:
        is_key = column.name.lower() in primary or (table.name.lower(), column.name.lower()) in keys
        values = _values(connection, table.name, column.name)
        if is_key or not values:
            continue
        shown.append(column.name)
        if all(isinstance(v, str) for v in values):
            short = tuple(
                v for v in values if isinstance(v, str) and 0 < len(v) <= _LONGEST and v == " ".join(v.split())
            )
            if short:
                texts[column.name] = short
        elif all(isinstance(v, int | float) for v in values) and not column.name.lower().endswith("id"):
            short = tuple(v for v in values if isinstance(v, int | float) and float(f"{v:g}") == v)
            if len(short) > 1:
                numbers[column.name] = short[1:-1] or short  # no value is above the highest one
    return _Source(table, tuple(shown), texts, numbers) if shown else None


def _values(connection: sqlite3.Connection, table: str, column: str) -> Sequence[object]:
    name = quoted(column)
    sql = f"SELECT DISTINCT {name} FROM {quoted(table)} WHERE {name} IS NOT NULL ORDER BY 1 LIMIT {_VALUES}"
    try:
        return [row[0] for row in connection.execute(sql)]
    except sqlite3.Error:  # tables.json describes a table that the file lacks
        return []
