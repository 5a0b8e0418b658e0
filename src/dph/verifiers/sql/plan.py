"""Execution plans distinguish queries by what they do rather than by how they are written."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dph.verifiers.sandbox.pool import Request, UsesWorkers, WorkerPool
from dph.verifiers.sql.files import MissingDatabase, database

_GRACE = 1.0  # seconds for the process and the pipe
_MOST_STEPS = 10_000  # of a plan
_EXPLAIN = "EXPLAIN QUERY PLAN"
_NAMED = r"\b(scan(?: table)?|search(?: table)?|materialize|co-routine|bloom filter on) "
_NUMBERED = re.compile(r"subquery[ -]\d+")
_UNNAMED = "subquery"


class PlanReader(UsesWorkers):
    """Asks SQLite for plans, in killable worker processes that never run a query."""

    def __init__(self, *, workers: int = 1, timeout: float = 5.0, memory_mb: int = 1024) -> None:
        """workers: number of processes; timeout: seconds per plan; memory_mb: of each process."""
        self._timeout = timeout
        limits = {"memory_mb": memory_mb, "max_rows": _MOST_STEPS, "max_bytes": 1 << 20}
        self._pool = WorkerPool(f"{__package__}.worker", limits, workers)

    def plans(self, path: Path, queries: Sequence[str]) -> list[str | None]:
        """The plan of each query on one SQLite file; None if a text is not a valid query there, the file cannot be
        used, or the time limit was hit. Raises WorkersFailed if something outside ended every worker that had a
        query."""
        try:
            where = database(str(path))
        except MissingDatabase:
            return [None] * len(queries)
        distinct = list(dict.fromkeys(queries))
        asked = {"database": where, "rows": _MOST_STEPS, "timeout": self._timeout}
        chains = [[Request(asked | {"run": f"{_EXPLAIN} {sql}"}, self._timeout + _GRACE)] for sql in distinct]
        plans: dict[str, str | None] = {}
        for sql, [reply] in zip(distinct, self._pool.run_all(chains), strict=True):
            steps = reply.value.get("cells")  # missing after a timeout or a crash, empty for an invalid query
            plans[sql] = canonical_plan(sql, [(step[0], step[1], step[3]) for step in steps]) if steps else None
        return [plans[sql] for sql in queries]


def canonical_plan(sql: str, steps: Sequence[Sequence[Any]]) -> str:
    """Steps [id, parent, text] of SQLite's EXPLAIN QUERY PLAN as indented lines without names that the query chooses:
    aliases become the names of their tables, and subqueries have neither name nor number."""
    names = _own_names(sql)
    pattern = re.compile(f"{_NAMED}({'|'.join(map(re.escape, names))})(?= |$)") if names else None
    depth: dict[int, int] = {}
    lines = []
    for number, parent, text in steps:
        depth[number] = depth.get(parent, -1) + 1
        line = _NUMBERED.sub(_UNNAMED, text.lower())
        if pattern:
            line = pattern.sub(lambda found: f"{found[1]} {names[found[2]]}", line)
        lines.append("  " * depth[number] + line)
    return "\n".join(lines)


def _own_names(sql: str) -> dict[str, str]:
    """The table behind each alias of a query (a placeholder for subqueries), in lower case; {} for unparsable SQL."""
    try:
        tree = sqlglot.parse_one(sql, read="sqlite")
    except (SqlglotError, RecursionError):
        return {}
    names = {query.alias.lower(): _UNNAMED for query in tree.find_all(exp.CTE, exp.Subquery) if query.alias}
    for table in tree.find_all(exp.Table):
        if table.alias:
            base = table.name.lower()
            names.setdefault(table.alias.lower(), names.get(base, base))
    return names
