"""The schema of a SQLite database: read from the file, or from an entry of Spider's or BIRD's tables.json."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dph.errors import UserError
from dph.verifiers.sql.files import database


@dataclass(frozen=True, slots=True)
class Column:
    """A column, its declared type and its natural-language name."""

    name: str
    type: str
    title: str


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """`table`.`column` refers to `to_table`.`to_column`."""

    table: str
    column: str
    to_table: str
    to_column: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its columns and the names of its primary key's columns."""

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Schema:
    """Tables and foreign keys of a database."""

    tables: tuple[Table, ...]
    foreign_keys: tuple[ForeignKey, ...]


def connect(path: Path) -> sqlite3.Connection:
    """A read-only connection that preserves text that is not UTF-8. Raises UserError for a file that is missing or
    cannot be used."""
    connection = sqlite3.connect(database(str(path))[0], uri=True)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    return connection


def quoted(name: str) -> str:
    """A name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def schema_of_file(path: Path) -> Schema:
    """Tables, columns and keys as the file declares them; SQLite's own tables are left out."""
    connection = connect(path)
    try:
        names = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
        ).fetchall()
        tables, keys = [], []
        for (name,) in names:
            columns = connection.execute(f"PRAGMA table_info({quoted(name)})").fetchall()
            primary = sorted((row[5], row[1]) for row in columns if row[5])
            tables.append(
                Table(
                    name,
                    tuple(Column(row[1], row[2].lower(), _title(row[1])) for row in columns),
                    tuple(column for _, column in primary),
                )
            )
            for row in connection.execute(f"PRAGMA foreign_key_list({quoted(name)})").fetchall():
                if row[4] is not None:
                    keys.append(ForeignKey(name, row[3], row[2], row[4]))
        return Schema(tuple(tables), tuple(keys))
    except sqlite3.Error as error:
        raise UserError(f"the database {path} cannot be read: {error}") from error
    finally:
        connection.close()


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


def _title(name: str) -> str:
    return " ".join(name.replace("_", " ").split()).lower()
