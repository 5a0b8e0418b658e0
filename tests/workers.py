"""What tests of worker processes share: a database, queries that take a known time, and what a process does."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

COUNTING = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x WHERE n < {}) SELECT max(n) FROM x"


def one_row(folder: Path) -> Path:
    """A database whose table t has one row, a = 1."""
    path = folder / "data.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS a")
        connection.commit()
    return path


def of_seconds(seconds: float) -> tuple[str, int]:
    """A query that takes about so much processor time here, and its result."""
    with closing(sqlite3.connect(":memory:")) as connection:
        started = time.process_time()
        connection.execute(COUNTING.format(200_000)).fetchall()
        count = int(200_000 * seconds / max(0.001, time.process_time() - started))
    return COUNTING.format(count), count


def soon(condition: Callable[[], bool], seconds: float = 20) -> bool:
    """Whether a condition holds within a time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def state_of(pid: int) -> str:
    """What a process does (R, S, T, Z …), "" if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
