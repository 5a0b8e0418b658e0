"""The worker process of the SQL verifier: runs the gold and the predicted query read-only and compares their results.

docs/concepts/verifiers.md lists its defences. Standard library only.
"""

import os
import sqlite3
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from dph.errors import counted
from dph.verifiers.lru import LRU
from dph.verifiers.sandbox.loop import TOO_LITTLE_MEMORY, Message, limit_cpu, send, serve
from dph.verifiers.sql.compare import Row, digest
from dph.verifiers.sql.rewards import CREDITS
from dph.verifiers.sql.rules import Options, Rule, get_rule

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


_SIZED = (str, bytes)
_CHUNK = 500  # rows fetched between checks of their size
_STEPS = 1000  # virtual-machine steps between checks of the clock
_CONNECTIONS = 128  # open databases per worker; a test suite has about 35 per database
_GOLD_SHARE = 8  # a worker keeps gold results of this fraction of its memory
_ROW, _CELL = 64, 56  # bytes of a row and of a cell in Python, besides the characters of a text


@dataclass(frozen=True, slots=True)
class Result:
    """Rows of a query, or why there are none: `failure` is "error" or "timeout", `detail` says more."""

    rows: tuple[Row, ...] = ()
    names: tuple[str, ...] = ()
    """Of the columns."""
    failure: str = ""
    detail: str = ""
    length: int = 0
    """Bytes of the cells, 8 for each number."""

    @property
    def width(self) -> int:
        return len(self.names)

    @property
    def shape(self) -> str:
        return f"{counted(len(self.rows), 'row')} of {counted(self.width, 'column')}"

    @property
    def size(self) -> int:
        """Bytes that it takes of the cache."""
        return _ROW + len(self.rows) * (_ROW + _CELL * self.width) + self.length


class _TooLarge(Exception):
    pass


@dataclass
class SqlWorker:
    """State of one worker process: open databases and results of gold queries."""

    rule: Rule
    options: Options
    credit: str
    """Name of the score (see `dph.verifiers.sql.rewards`) computed besides the verdict; "" for none."""
    digests: bool
    """Also tell what each predicted query returns on the first database, as `asked` does."""
    max_rows: int
    max_bytes: int
    memory_mb: int

    def __post_init__(self) -> None:
        self._connections = LRU(_CONNECTIONS)
        self._golds = LRU((self.memory_mb << 20) // _GOLD_SHARE)
        self._deadline = 0.0
        self._used = self._exhausted = False
        """Whether this process has judged anything, and whether it ran out of memory."""

    def handle(self, request: Message) -> Message:
        """Run query request["run"]; or judge request["predicted"] on each database, or run only the gold query."""
        if self._exhausted:
            os._exit(TOO_LITTLE_MEMORY)  # the parent sends the request to a new worker
        try:
            return self._run(request) if "run" in request else self._judge_all(request)
        except MemoryError:  # in comparing or scoring two results that each fit
            self._run_out()
            return {"outcome": "error", "detail": "out of memory"}
        finally:
            self._used = True

    def _run_out(self) -> None:
        """Out of memory: a new worker decides, and takes over, so that no verdict depends on what came before."""
        if self._used:
            os._exit(TOO_LITTLE_MEMORY)
        self._exhausted = True

    def _judge_all(self, request: Message) -> Message:
        answer: Message = {"outcome": "correct", "detail": ""}
        returned: Message = {}
        for done, (uri, stamp) in enumerate(request["databases"]):
            if done < request.get("done", 0):
                continue
            if done:
                send({"extend": request["timeout"] + request["grace"], "resume": {"done": done}})
            answer = self._judge(request, uri, stamp)
            self._used = True
            first = answer.pop("digest", None)
            if done == 0 and first is not None:
                returned = {"digest": first}
            if answer["outcome"] != "correct":
                break
        return answer | returned

    def _judge(self, request: Message, uri: str, stamp: str) -> Message:
        gold = self._gold(request, uri, stamp)
        if gold.failure:
            return {"outcome": "gold_error", "detail": gold.detail, "gold_timeout": gold.failure == "timeout"}
        if "predicted" not in request:
            return {"outcome": "correct", "detail": gold.shape, "rows": len(gold.rows), "columns": gold.width}
        result = gold  # the same query has the same result
        if request["predicted"] != request["gold"]:
            result = self._execute(uri, stamp, request["predicted"], request["timeout"])
        reply: Message = {"outcome": result.failure, "detail": result.detail}
        if self.digests:
            reply["digest"] = "" if result.failure else digest(result.rows)
        if result.failure:
            return reply
        equal = self.rule.equal(gold.rows, result.rows, (gold.width, result.width), request["ordered"], self.options)
        if self.credit:
            reply["credit"] = CREDITS[self.credit](gold.rows, result.rows, equal)
        detail = "" if equal else f"{result.shape}, expected {gold.shape}"
        return reply | {"outcome": "correct" if equal else "wrong", "detail": detail}

    def _run(self, request: Message) -> Message:
        """The result of a query: the number of rows, the first request["rows"] of them as texts, and, if it
        did not fail, the request's "digests" of all rows: "digest" in any order, "sequence" in this one."""
        uri, stamp = request["database"]
        result = self._execute(uri, stamp, request["run"], request["timeout"])
        cells = [["NULL" if cell is None else str(cell) for cell in row] for row in result.rows[: request["rows"]]]
        returned: Message = {"names": result.names, "cells": cells, "count": len(result.rows)}
        if not result.failure:
            returned |= {name: digest(result.rows, ordered=name == "sequence") for name in request.get("digests", ())}
        return {"outcome": result.failure or "correct", "detail": result.detail} | returned

    def _gold(self, request: Message, uri: str, stamp: str) -> Result:
        """The gold query's result, cached by the content of the database; a time-out, for one attempt only."""
        key = stamp, request["gold"]
        attempt = *key, request["attempt"]
        gold = self._golds.get(key) or self._golds.get(attempt)
        if gold is None:
            send({"extend": request["gold_timeout"] + request["grace"], "phase": "gold"})
            gold = self._execute(uri, stamp, request["gold"], request["gold_timeout"])
            if gold.failure in ("", "timeout"):
                self._golds.put(attempt if gold.failure else key, gold, gold.size)
            send({"extend": request["timeout"] + request["grace"]})  # the prediction's time starts now
        return gold

    def _execute(self, uri: str, stamp: str, sql: str, timeout: float) -> Result:
        limit_cpu(timeout)
        self._deadline = time.process_time() + timeout
        try:
            cursor = self._connect(uri, stamp).execute(sql)
            if cursor.description is None:  # statements that change anything were refused, so there is no statement
                return Result() if self.rule.nothing_is_empty else Result(failure="error", detail="no statement")
            rows, length = self._fetch(cursor)
            return Result(rows, tuple(str(column[0]) for column in cursor.description), length=length)
        except _TooLarge as error:
            return Result(failure="error", detail=str(error))
        except MemoryError:
            self._run_out()
            return Result(failure="error", detail="out of memory")
        except Exception as error:  # SQLite and its binding can raise anything
            if time.process_time() >= self._deadline:
                return Result(failure="timeout", detail=f"no result after {timeout:g} s")
            return Result(failure="error", detail=f"{type(error).__name__}: {error}"[:300])

    def _fetch(self, cursor: sqlite3.Cursor) -> tuple[tuple[Row, ...], int]:
        """All rows, or only the distinct rows if the rule ignores duplicates, and their bytes."""
        rows: dict[Row, None] | list[Row] = {} if self.rule.compare == "sets" else []
        size, count = 0, 1
        try:
            while chunk := cursor.fetchmany(count):
                count = min(2 * count, _CHUNK)  # a few large rows may be more than fits
                if isinstance(rows, dict):
                    chunk = [row for row in dict.fromkeys(chunk) if row not in rows]
                    rows.update(dict.fromkeys(chunk))
                else:
                    rows += chunk
                size += sum([len(cell) if type(cell) in _SIZED else 8 for row in chunk for cell in row])
                if len(rows) > self.max_rows:
                    raise _TooLarge(f"more than {self.max_rows} rows")
                if size > self.max_bytes:
                    raise _TooLarge(f"more than {self.max_bytes} bytes of results")
        finally:
            cursor.close()
        return tuple(rows), size

    def _connect(self, uri: str, stamp: str) -> sqlite3.Connection:
        """An open connection; a file that has changed (another stamp) is reopened."""
        connection = self._connections.get((uri, stamp))
        if connection is None:
            # No query is kept: texts of many kilobytes on many databases would fill the heap.
            connect = partial(sqlite3.connect, uri, uri=True, isolation_level=None, cached_statements=0)
            try:
                connection = connect()
            except sqlite3.OperationalError:  # perhaps the system's limit on open files
                for idle in self._connections.clear():
                    idle.close()
                connection = connect()
            if self.rule.text != "strict":
                connection.text_factory = partial(str, encoding="utf-8", errors=self.rule.text)
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute(f"PRAGMA hard_heap_limit = {(self.memory_mb << 20) // 2}")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, self.max_bytes)
            connection.set_progress_handler(self._overdue, _STEPS)
            forbid_writing(connection)
            for dropped in self._connections.put((uri, stamp), connection):
                dropped.close()
        return connection

    def _overdue(self) -> bool:
        return time.process_time() >= self._deadline


def main(
    rule: str = "strict", options: Message | None = None, credit: str = "", digests: bool = False, **limits: int
) -> None:
    """Entry point of the process."""
    worker = SqlWorker(get_rule(rule), Options(**options or {}), credit, digests, **limits)
    serve(worker.handle, limits["memory_mb"])
