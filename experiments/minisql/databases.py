"""The vocabulary, queries in parts, schemas, rows and SQLite databases.

Tables, columns and values are few, so that a model of about a million parameters learns them in a minute or two; a
column has the same type in every table.
"""

import random
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace

from experiments.styles import Form

TABLES: dict[str, str] = {
    "singers": "singer_id",
    "stadiums": "stadium_id",
    "workers": "worker_id",
    "cars": "car_id",
    "students": "student_id",
    "movies": "movie_id",
    "cities": "city_id",
    "books": "book_id",
}
"""Table name → name of a foreign key that refers to it."""

TEXT_COLUMNS: tuple[str, ...] = ("name", "country", "color", "genre", "title", "status")
"""Text columns."""

TEXT_VALUES: tuple[str, ...] = ("alpha", "beta", "gamma", "delta", "omega", "sigma")
"""Values of every text column: the same for all columns, so that a model must read them in the question."""

NUMBER_COLUMNS: tuple[str, ...] = ("age", "price", "score", "height", "weight", "size")
"""Integer columns; values are multiples of five from 5 to 75."""

BOUNDS: tuple[int, ...] = (20, 30, 40, 50, 60)
"""Numbers that occur in comparisons."""


@dataclass(frozen=True, slots=True)
class Query:
    """SELECT [DISTINCT] outputs FROM source [WHERE conditions] [tail]."""

    outputs: tuple[str, ...]
    source: str
    where: tuple[str, ...] = ()
    tail: str = ""
    """GROUP BY, ORDER BY and LIMIT."""
    distinct: bool = False
    opaque: bool = False
    """The outer part needs the source's own names, so other forms wrap the whole query instead of its filter."""

    def without(self, condition: int) -> "Query":
        """The query with one condition dropped."""
        return replace(self, where=self.where[:condition] + self.where[condition + 1 :])

    def sql(self, form: Form = "plain") -> str:
        """The query's text. Tokens are separated by spaces, so that each is one token of a word-level tokenizer."""
        head = f"select {'distinct ' if self.distinct else ''}{' , '.join(self.outputs)} from"
        where = f" where {' and '.join(self.where)}" if self.where else ""
        tail = f" {self.tail}" if self.tail else ""
        plain = f"{head} {self.source}{where}{tail}"
        if form == "plain":
            return plain
        inner = plain if self.opaque else f"select * from {self.source}{where}"
        if form == "with":
            outer = "select * from x" if self.opaque else f"{head} x{tail}"
            return f"with x as ( {inner} ) {outer}"
        return f"select * from ( {inner} )" if self.opaque else f"{head} ( {inner} ){tail}"


Value = str | int | None
Rows = Mapping[str, list[tuple[Value, ...]]]


@dataclass(frozen=True, slots=True)
class Table:
    """A table with the primary key `id`; `columns` are the other columns, in order."""

    name: str
    columns: tuple[str, ...]

    @property
    def text(self) -> tuple[str, ...]:
        return tuple(c for c in self.columns if c in TEXT_COLUMNS)

    @property
    def numbers(self) -> tuple[str, ...]:
        return tuple(c for c in self.columns if c in NUMBER_COLUMNS)

    def __str__(self) -> str:
        return f"{self.name} ( {' '.join(('id', *self.columns))} )"


@dataclass(frozen=True, slots=True)
class Schema:
    """Two tables; each row of `child` points to a row of `parent`. The only common column is `id`."""

    child: Table
    parent: Table
    child_first: bool
    """Which table the prompt names first."""

    @property
    def key(self) -> str:
        """The child's foreign key."""
        return TABLES[self.parent.name]

    @property
    def tables(self) -> tuple[Table, Table]:
        return (self.child, self.parent) if self.child_first else (self.parent, self.child)

    @property
    def joined(self) -> str:
        """FROM clause of the child's rows with their parents."""
        return f"{self.child.name} join {self.parent.name} on {self.key} = {self.parent.name}.id"

    def __str__(self) -> str:
        return " ; ".join(str(table) for table in self.tables)


def random_schema(rng: random.Random, child: str, parent: str) -> Schema:
    """Two text and two number columns in each table, in random order, and the foreign key last in the child."""
    text, numbers = rng.sample(TEXT_COLUMNS, 4), rng.sample(NUMBER_COLUMNS, 4)

    def columns(part: slice) -> tuple[str, ...]:
        mixed = text[part] + numbers[part]
        rng.shuffle(mixed)
        return tuple(mixed)

    return Schema(
        Table(child, (*columns(slice(0, 2)), TABLES[parent])),
        Table(parent, columns(slice(2, 4))),
        rng.random() < 0.5,
    )


@dataclass(frozen=True, slots=True)
class Needs:
    """What a question requires of the rows that are drawn for it."""

    nullable: tuple[str, ...] = ()
    """Columns that may contain NULL."""
    unique: tuple[str, ...] = ()
    """Number columns that contain each value, including NULL, at most once."""
    frequent: tuple[tuple[str, str], ...] = ()
    """(text column, value): the value fills about half of the column."""


def random_rows(rng: random.Random, schema: Schema, needs: Needs) -> Rows:
    """Rows for both tables, 5 to 11 in the child and 3 to 9 in the parent.

    The number of values that a column uses, and whether a nullable column has NULLs at all, are drawn too, so that
    duplicates, ties, NULLs and parents without children occur in some databases and not in others.
    """
    counts = {schema.child.name: rng.randint(5, 11), schema.parent.name: rng.randint(3, 9)}
    rows = {}
    for table in (schema.parent, schema.child):
        count = counts[table.name]
        columns = [_column(rng, name, count, counts[schema.parent.name], needs) for name in table.columns]
        rows[table.name] = list(zip(range(1, count + 1), *columns, strict=True))
    return rows


def _column(rng: random.Random, column: str, count: int, parents: int, needs: Needs) -> list[Value]:
    pool: list[Value]
    if column in TEXT_COLUMNS:
        pool = list(rng.sample(TEXT_VALUES, rng.randint(3, len(TEXT_VALUES))))
        pool += [value for name, value in needs.frequent if name == column] * len(pool)
    elif column in NUMBER_COLUMNS:
        width = rng.choice((11, 15))
        low = rng.randint(1, 16 - width)
        pool = [5 * n for n in range(low, low + width)]
    else:
        pool = list(range(1, parents + 1))
    with_nulls = column in needs.nullable and rng.random() < 0.5
    if column in needs.unique:
        once = rng.sample(pool, count)
        if with_nulls:
            once[rng.randrange(count)] = None
        return once
    share = 0.3 if with_nulls else 0.0
    return [None if share and rng.random() < share else rng.choice(pool) for _ in range(count)]


class Database:
    """A new SQLite database, in memory or in a file, whose rows can be replaced.

    Journal and syncing are off: whoever makes a file publishes it only once it is complete.
    """

    def __init__(self, schema: Schema, path: str = ":memory:") -> None:
        self._tables = (schema.parent, schema.child)
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.executescript(
            "pragma page_size = 512; pragma journal_mode = off; pragma synchronous = off; begin;"
        )
        types = dict.fromkeys(TEXT_COLUMNS, "text") | {schema.key: f"integer references {schema.parent.name} (id)"}
        for table in self._tables:
            columns = ", ".join(f"{column} {types.get(column, 'integer')}" for column in table.columns)
            self._connection.execute(f"create table {table.name} (id integer primary key, {columns})")

    def fill(self, rows: Rows) -> None:
        """Replace all rows."""
        for table in reversed(self._tables):
            self._connection.execute(f"delete from {table.name}")
        for table in self._tables:
            marks = ",".join("?" * (1 + len(table.columns)))
            self._connection.executemany(f"insert into {table.name} values ({marks})", rows[table.name])

    def result(self, query: Query) -> list[tuple[Value, ...]]:
        """Result rows, sorted into a canonical order unless the query's own order counts."""
        rows = self._connection.execute(query.sql()).fetchall()
        return rows if query.tail.startswith("order by") else sorted(rows, key=repr)

    def close(self) -> None:
        self._connection.execute("commit")
        self._connection.close()
