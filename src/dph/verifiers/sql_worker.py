"""The worker process of the SQL verifier: runs gold and predicted query read-only and compares their results.

Defences, from the inside out: an authorizer that allows nothing but reading, a connection that is read-only and
immutable, one statement a query, caps on rows, bytes, text length and memory, a time limit by progress handler, CPU
and address-space limits of the process; the parent kills it when all that fails. Standard library only.
"""

import sqlite3
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from dph.verifiers.lru import LRU
from dph.verifiers.sql_compare import Row, results_equal
from dph.verifiers.worker_loop import Message, limit_cpu, send, serve

_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_FORBIDDEN_FUNCTIONS = {"load_extension", "fts3_tokenizer", "writefile", "readfile", "edit"}
_STEPS = 1000  # virtual-machine steps between two looks at the clock
_CONNECTIONS = 64  # open databases a worker
_GOLD_CELLS = 1_000_000  # cells of gold results that a worker keeps


@dataclass(frozen=True, slots=True)
class Result:
    """Rows of a query, or why there are none: `failure` is "error" or "timeout", `detail` says more."""

    rows: tuple[Row, ...] = ()
    width: int = 0
    failure: str = ""
    detail: str = ""

    @property
    def shape(self) -> str:
        return f"{len(self.rows)} rows of {self.width} columns"


class _TooLarge(Exception):
    pass


def _authorize(action: int, _table: str | None, name: str | None, *_: Any) -> int:
    if action not in _READING or (action == sqlite3.SQLITE_FUNCTION and (name or "").lower() in _FORBIDDEN_FUNCTIONS):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


class SqlWorker:
    """State of one worker process: open databases and results of gold queries."""

    def __init__(self, max_rows: int, max_bytes: int, memory_mb: int) -> None:
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._memory_mb = memory_mb
        self._connections = LRU(_CONNECTIONS)
        self._golds = LRU(_GOLD_CELLS)
        self._deadline = 0.0

    def handle(self, request: Message) -> Message:
        """Judge request["predicted"], or only run the gold where there is none."""
        gold = self._gold(request)
        if gold.failure:
            return {"outcome": "gold_error", "detail": gold.detail}
        if "predicted" not in request:
            return {"outcome": "correct", "detail": gold.shape}
        result = self._execute(request, request["predicted"], request["timeout"])
        if result.failure:
            return {"outcome": result.failure, "detail": result.detail}
        widths = (gold.width, result.width)
        if results_equal(request["comparator"], gold.rows, result.rows, widths, request["ordered"]):
            return {"outcome": "correct", "detail": ""}
        return {"outcome": "wrong", "detail": f"{result.shape}, expected {gold.shape}"}

    def _gold(self, request: Message) -> Result:
        key = (request["uri"], request["stamp"], request["gold"])
        gold = self._golds.get(key)
        if gold is None:
            send({"extend": request["gold_timeout"] + request["grace"]})
            gold = self._execute(request, request["gold"], request["gold_timeout"])
            self._golds.put(key, gold, 1 + len(gold.rows) * gold.width)
            send({"extend": request["timeout"] + request["grace"]})  # the prediction's time begins now
        return gold

    def _execute(self, request: Message, sql: str, timeout: float) -> Result:
        limit_cpu(timeout)
        self._deadline = time.monotonic() + timeout
        try:
            connection = self._connect(request["uri"], request["stamp"])
            cursor = connection.execute(sql)
            if cursor.description is None:
                return Result(failure="error", detail="no query: the statement returns no columns")
            rows = self._fetch(cursor)
            return Result(rows, len(cursor.description))
        except _TooLarge as error:
            return Result(failure="error", detail=str(error))
        except MemoryError:
            return Result(failure="error", detail="out of memory")
        except Exception as error:  # whatever the text made SQLite or its binding raise
            if time.monotonic() >= self._deadline:
                return Result(failure="timeout", detail=f"no result after {timeout:g} s")
            return Result(failure="error", detail=f"{type(error).__name__}: {error}"[:300])

    def _fetch(self, cursor: sqlite3.Cursor) -> tuple[Row, ...]:
        rows: list[Row] = []
        size = 0
        try:
            while chunk := cursor.fetchmany(500):
                rows += chunk
                size += sum(len(c) if isinstance(c, str | bytes) else 8 for row in chunk for c in row)
                if len(rows) > self._max_rows:
                    raise _TooLarge(f"more than {self._max_rows} rows")
                if size > self._max_bytes:
                    raise _TooLarge(f"more than {self._max_bytes} bytes of results")
        finally:
            cursor.close()
        return tuple(rows)

    def _connect(self, uri: str, stamp: str) -> sqlite3.Connection:
        """An open connection; a file that has changed since (another stamp) is opened afresh."""
        connection = self._connections.get((uri, stamp))
        if connection is None:
            connection = sqlite3.connect(uri, uri=True, isolation_level=None)
            # Bytes that are not UTF-8 survive as surrogates: they compare and never raise.
            connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
            connection.execute("PRAGMA query_only = 1")
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute(f"PRAGMA hard_heap_limit = {(self._memory_mb << 20) // 2}")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, self._max_bytes)
            connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            connection.setlimit(sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0)
            connection.set_progress_handler(self._overdue, _STEPS)
            connection.set_authorizer(_authorize)
            for dropped in self._connections.put((uri, stamp), connection):
                dropped.close()
        return connection

    def _overdue(self) -> bool:
        return time.monotonic() >= self._deadline


def main(max_rows: int, max_bytes: int, memory_mb: int) -> None:
    """Entry point of the process."""
    serve(SqlWorker(max_rows, max_bytes, memory_mb).handle, memory_mb)
