"""The schema of a SQLite database: read from the file, or from an entry of Spider's or BIRD's tables.json."""

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dph.errors import DataError
from dph.verifiers.sql.files import database

_LOST = "\N{REPLACEMENT CHARACTER}"
"""What stands for bytes that are not UTF-8: a query could not name them."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column, its declared type and its natural-language name."""

    name: str
    type: str
    title: str


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """`table`.`column` refers to `to_table`.`to_column`, which is "" if nothing says to which."""

    table: str
    column: str
    to_table: str
    to_column: str
    number: int = -1
    """What the columns of a composite key share; -1: it stands alone."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its columns and the names of its primary key's columns, or a view."""

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    is_view: bool = False


@dataclass(frozen=True, slots=True)
class Schema:
    """Tables and foreign keys of a database."""

    tables: tuple[Table, ...]
    foreign_keys: tuple[ForeignKey, ...]
    left_out: tuple[str, ...] = ()
    """Views that SQLite cannot read, each with the reason."""


def connect(path: Path, errors: str = "replace") -> sqlite3.Connection:
    """A read-only connection. errors: how it decodes text that is not UTF-8. Raises UserError for a file that is
    missing or cannot be used."""
    connection = sqlite3.connect(database(str(path))[0], uri=True)
    connection.text_factory = partial(str, encoding="utf-8", errors=errors)
    return connection


def quoted(name: str) -> str:
    """A name as a quoted SQL identifier.

    >>> quoted("price (cm)")
    '"price (cm)"'
    """
    return '"' + name.replace('"', '""') + '"'


def column_values(
    connection: sqlite3.Connection, more: str = "", *, views: bool = False
) -> Iterator[tuple[str, str, list[Any]]]:
    """(table, column, its distinct values in SQLite's order) without NULL; tables of a kind that this SQLite cannot
    read are left out. more: the end of the query, with {} for the column. views: also of those that are quick."""
    kinds = "('table', 'view')" if views else "('table')"
    names = connection.execute(f"SELECT name, type FROM sqlite_master WHERE type IN {kinds} ORDER BY type, rowid")
    for table, kind in names.fetchall():
        connection.set_progress_handler((lambda: 1) if kind == "view" else None, _QUICK)  # ends a query
        try:
            columns = _columns(connection, table)
        except sqlite3.OperationalError:  # of a broken view
            continue
        for column, *_ in columns:
            name = quoted(column)
            sql = f"SELECT DISTINCT {name} FROM {quoted(table)} WHERE {name} IS NOT NULL{more.format(name)}"
            try:
                values = [value for (value,) in connection.execute(sql)]
            except sqlite3.Error:
                continue
            yield table, column, values
    connection.set_progress_handler(None, 0)


def _columns(connection: sqlite3.Connection, table: str) -> list[tuple[str, str, int]]:
    """(name, declared type, place in the primary key or 0) of each column, those that SQLite computes included."""
    rows = connection.execute(f"PRAGMA table_xinfo({quoted(table)})").fetchall()
    return [(name, kind, place) for _, name, kind, _, _, place, hidden in rows if hidden != _HIDDEN]


_HIDDEN = 1  # of virtual tables, for their own use
_QUICK = 1_000_000  # instructions of SQLite


def schema_of_file(path: Path, *, views: bool = False) -> Schema:
    """Tables, columns and keys as the file declares them; tables of SQLite and of virtual tables for their own use are
    left out, and views, unless they are asked for. A view that SQLite cannot read is left out and named."""
    tables: list[Table] = []
    left_out: list[str] = []
    references: list[tuple[str, list[Any]]] = []
    try:
        with closing(connect(path)) as connection:
            names = connection.execute(
                "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' "
                "ORDER BY type, rowid"
            )
            own = shadows(connection)
            for name, type in names.fetchall():
                if (type == "view" and not views) or name in own:
                    continue
                try:
                    rows = _columns(connection, name)
                except sqlite3.OperationalError as error:
                    if type == "view":
                        left_out.append(f"{name} ({error})")
                        continue
                    raise
                titles = [" ".join(row[0].replace("_", " ").split()).lower() for row in rows]
                columns = tuple(Column(row[0], row[1].lower(), title) for row, title in zip(rows, titles, strict=True))
                primary = tuple(column for _, column in sorted((place, column) for column, _, place in rows if place))
                tables.append(Table(name, columns, primary, type == "view"))
                references.append((name, connection.execute(f"PRAGMA foreign_key_list({quoted(name)})").fetchall()))
    except (sqlite3.Error, ValueError) as error:
        raise DataError(f"the database {path} cannot be read: {error}") from error
    if odd := [name for table in tables for name in (table.name, *(c.name for c in table.columns)) if _LOST in name]:
        raise DataError(f"the database {path} has a name that is not UTF-8, {odd[0]!r:.100}; rename it")
    keys = {table.name.lower(): table.primary_key for table in tables}
    found = tuple(key for name, rows in references for key in _foreign_keys(name, rows, keys))
    return Schema(tuple(tables), found, tuple(left_out))


def shadows(connection: sqlite3.Connection) -> set[str]:
    """The tables in which virtual tables, such as those of full-text search, keep what they hold; a SQLite before 3.37
    does not tell them."""
    try:
        listed = connection.execute("PRAGMA table_list").fetchall()
    except sqlite3.Error:  # of a table of a kind that this SQLite cannot read
        return set()
    return {name for _, name, kind, *_ in listed if kind == "shadow"}


def _foreign_keys(table: str, rows: Sequence[Any], keys: Mapping[str, Sequence[str]]) -> Iterator[ForeignKey]:
    """The foreign keys of a table, as SQLite lists them: one that names no columns refers to the primary key, if that
    has as many."""
    sizes = Counter(number for number, *_ in rows)
    for number, place, to_table, column, named, *_ in rows:
        primary = keys.get(to_table.lower(), ())
        implied = str(primary[place]) if len(primary) == sizes[number] else ""
        of_several = number if sizes[number] > 1 else -1
        yield ForeignKey(table, column, to_table, implied if named is None else named, of_several)


def schema_of_entry(entry: Mapping[str, Any]) -> Schema:
    """The schema that an entry of tables.json describes, with its types ("text", "number", "time", "others")."""
    names = entry["table_names_original"]
    columns: list[list[Column]] = [[] for _ in names]
    places: list[tuple[int, str]] = []
    for (table, original), (_, title), kind in zip(
        entry["column_names_original"], entry["column_names"], entry["column_types"], strict=True
    ):
        places.append((table, original))
        if table >= 0:
            columns[table].append(Column(original, kind, title))
    primary: list[list[str]] = [[] for _ in names]
    for key in entry["primary_keys"]:
        for index in key if isinstance(key, list) else [key]:  # BIRD lists composite keys
            table, column = places[index]
            primary[table].append(column)
    keys = []
    for source, target in entry["foreign_keys"]:
        (table, column), (to_table, to_column) = places[source], places[target]
        keys.append(ForeignKey(names[table], column, names[to_table], to_column))
    tables = [Table(n, tuple(c), tuple(k)) for n, c, k in zip(names, columns, primary, strict=True)]
    return Schema(tuple(tables), tuple(keys))
