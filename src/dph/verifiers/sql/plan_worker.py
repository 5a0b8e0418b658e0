"""The worker process that asks SQLite for query plans. It compiles queries but runs none.

Standard library only. The connection is read-only and permits nothing but reading. The parent kills the process at the
time limit, and memory and CPU time are capped as in every worker.
"""

import sqlite3
from typing import Any

from dph.verifiers.sandbox.loop import Message, limit_cpu, serve
from dph.verifiers.sql.readonly import forbid_writing


class PlanWorker:
    """State of the process: the most recent database."""

    def __init__(self) -> None:
        self._uri = ""
        self._connection: sqlite3.Connection | None = None

    def handle(self, request: Message) -> Message:
        """The steps of request["sql"] on request["uri"] as [id, parent, text]; none if the text is not a valid
        query."""
        limit_cpu(request["timeout"])
        try:
            return {"steps": self._steps(request["uri"], request["sql"])}
        except Exception:  # SQLite and its binding can raise anything
            return {"steps": []}

    def _steps(self, uri: str, sql: str) -> list[list[Any]]:
        if self._connection is None or uri != self._uri:
            if self._connection is not None:
                self._connection.close()
            self._connection = sqlite3.connect(uri, uri=True, isolation_level=None)
            forbid_writing(self._connection)
            self._uri = uri
        rows = self._connection.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()
        return [[number, parent, text] for number, parent, _, text in rows]


def main(memory_mb: int) -> None:
    """Entry point of the process."""
    serve(PlanWorker().handle, memory_mb)
