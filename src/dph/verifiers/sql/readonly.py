"""Makes a connection refuse everything but reading. Standard library only: worker processes load this."""

import sqlite3
from contextlib import suppress
from typing import Any

_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_FORBIDDEN_FUNCTIONS = {"load_extension", "fts3_tokenizer", "writefile", "readfile", "edit"}
_WITHOUT_SCHEMA = ("json_each", "json_tree")  # virtual tables that every database has


def forbid_writing(connection: sqlite3.Connection) -> None:
    """Allow this connection only statements that read; it can be neither undone nor bypassed by SQL.

    Virtual tables of the schema, json_each and json_tree can be read.
    """
    connection.execute("PRAGMA query_only = 1")
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0)
    _open_virtual_tables(connection)
    connection.set_authorizer(_authorize)


def _open_virtual_tables(connection: sqlite3.Connection) -> None:
    """SQLite declares a virtual table when a query first names it, by statements that count as writing to the schema;
    rtree also prepares its statements for writing. The authorizer would refuse both, so this is done before it is
    set."""
    try:
        found = connection.execute("SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE%'").fetchall()
    except sqlite3.Error:  # a damaged file; the query will meet the same error
        return
    for name in (*_WITHOUT_SCHEMA, *(name for [name] in found)):
        quoted = name.replace('"', '""')
        with suppress(sqlite3.Error, UnicodeError):  # a kind of table that this SQLite lacks
            connection.execute(f'EXPLAIN SELECT 1 FROM "{quoted}"').close()  # compiling the query is enough


def _authorize(action: int, first: str | None, second: str | None, *_: Any) -> int:
    if action == sqlite3.SQLITE_FUNCTION:
        allowed = (second or "").lower() not in _FORBIDDEN_FUNCTIONS
    elif action == sqlite3.SQLITE_PRAGMA:  # FTS5 asks for this in every query
        allowed = (first, second) == ("data_version", None)
    else:
        allowed = action in _READING
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY
