"""A tool that lets a model query a problem's database before it answers, in the killable worker of the verifier.

It only reads; a query's time, its rows and the length of what the model sees are limited.
"""

from pathlib import Path
from typing import Any

from dph.errors import UserError
from dph.types import Problem
from dph.verifiers.protocol import require_positive
from dph.verifiers.sandbox.pool import UsesWorkers, WorkerPool
from dph.verifiers.sandbox.worker import GRACE, Request
from dph.verifiers.sql import files

_MOST_ROWS = 10_000  # of a result that is computed; fewer are shown


def database_of(problem: Problem) -> str:
    """The database file of a SQL problem. Raises UserError for a problem without one."""
    if database := problem.meta.get("db"):
        return str(database)
    raise UserError(
        f"the SQL tool needs problems with a database, and {problem.id!r} has none; give it SQL problems only"
    )


class SqlTool(UsesWorkers):
    """Runs queries on SQLite files, for any number of threads."""

    def __init__(
        self, *, workers: int = 2, timeout: float = 5.0, rows: int = 20, characters: int = 2000, memory_mb: int = 1024
    ) -> None:
        """
        Args:
            workers: number of processes.
            timeout: seconds of a query.
            rows, characters: largest answer.
            memory_mb: of each process.
        Raises UserError for a value out of range.
        """
        require_positive("SQL tool", workers=workers, timeout=timeout, rows=rows, characters=characters)
        self._timeout, self._rows, self._characters = timeout, rows, characters
        limits = {"memory_mb": memory_mb, "max_rows": _MOST_ROWS, "max_bytes": 8 << 20}
        self._pool = WorkerPool(f"{__package__}.worker", limits, workers)

    def query(self, database: str, sql: Any) -> str:
        """The answer to a query, as a model sees it: the names of the columns, the first rows, and their number; or
        "Error: " and the reason. Raises UserError if there is no database file, and WorkersFailed, a UserError, if
        workers cannot start."""
        if not isinstance(sql, str):
            return "Error: the query must be a text"
        try:
            where = files.database(str(Path(database).absolute()))
        except files.MissingDatabase as error:
            raise UserError(f"the SQL tool: {error}; name the file of the problem") from error
        payload = {"run": sql, "database": where, "timeout": self._timeout, "rows": self._rows}
        [[reply]] = self._pool.run_all([[Request(payload, self._timeout + GRACE)]])
        if reply.status != "ok":
            return f"Error: no result after {self._timeout:g} s"
        if failure := reply.value.get("detail"):
            return f"Error: {failure}"[: self._characters]
        lines = [" | ".join(row) for row in (reply.value["names"], *reply.value["cells"])]
        count = reply.value["count"]
        shown = f"({count} rows)" if count <= self._rows else f"(the first {self._rows} of {count} rows)"
        text = "\n".join(lines)
        return f"{text if len(text) <= self._characters else text[: self._characters] + ' …'}\n{shown}"
