"""What the gold query of a problem uses and its prompt does not name: no model can write it."""

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from dph.errors import DataError
from dph.tasks.sql.schema import connect, quoted, shadows
from dph.types import Problem, as_text

_NAMED = 5  # problems, and names of each


def lacking_lines(problems: Sequence[Problem]) -> list[str]:
    """A line about the problems for SQL whose golds use tables or columns that their prompts do not name; none without
    such a problem."""
    found = {problem.id: names for problem in problems if problem.verifier == "sql" and (names := lacking(problem))}
    if not found:
        return []
    told = [f"{id}: {', '.join(names[:_NAMED])}" for id, names in list(found.items())[:_NAMED]]
    more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    use = "gold uses" if len(found) == 1 else "golds use"
    return [f"{len(found)} {use} what the prompt does not name: {'; '.join(told)}{more}"]


def lacking(problem: Problem) -> list[str]:
    """The tables, views and columns ("table.column") that a problem's gold query reads and its prompt does not name.
    A gold that SQLite cannot compile uses none: the judge says so."""
    prompt = as_text(problem.prompt).casefold()
    names = []
    for table, column in _read_by(Path(str(problem.meta.get("db", ""))), str(problem.answer)):
        if not _is_named(table, prompt):
            names.append(table)
        elif column and not _is_named(column, prompt):
            names.append(f"{table}.{column}")
    return list(dict.fromkeys(names))


def _is_named(name: str, text: str) -> bool:
    """Whether a name occurs in a text in lower case, as a whole word."""
    return re.search(rf"(?<!\w){re.escape(name.casefold())}(?!\w)", text) is not None


def _read_by(db: Path, query: str) -> list[tuple[str, str]]:
    """(table or view, column) that a query itself reads, without what its views read; "" for a table as a whole. The
    query is compiled and not run."""
    reads: dict[tuple[str, str], None] = {}
    kinds: dict[str, str] = {}

    def note(action: int, table: str | None, column: str | None, _: str | None, within: str | None) -> int:
        """within: the view, or the common table expression of the query itself, that reads."""
        by_query = kinds.get((within or "").lower()) != "view"
        if action == sqlite3.SQLITE_READ and by_query and table and table.lower() in kinds:
            reads[table, column or ""] = None
        return sqlite3.SQLITE_OK

    try:
        with closing(connect(db)) as connection:
            named = "SELECT lower(name), type FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
            kinds |= dict(connection.execute(f"{named} AND type IN ('table', 'view')").fetchall())
            for own in shadows(connection):  # a search in full text reads them, not the query
                kinds.pop(own.lower(), None)
            connection.set_authorizer(note)
            connection.execute(f"EXPLAIN {query.strip().rstrip(';')}").close()
            connection.set_authorizer(None)
            listed = {table: _columns_of(connection, table) for table, _ in reads}
    except (sqlite3.Error, sqlite3.Warning, ValueError, DataError):
        return []
    return [(table, column) for table, column in reads if not column or column.lower() in listed[table]]


def _columns_of(connection: sqlite3.Connection, table: str) -> set[str]:
    """The columns of a table or view in lower case, without hidden ones, such as the rank of a search."""
    rows = connection.execute(f"PRAGMA table_info({quoted(table)})").fetchall()
    return {str(row[1]).lower() for row in rows}
