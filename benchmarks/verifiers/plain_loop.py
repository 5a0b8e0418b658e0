"""What the SQL verifier is compared with: a loop that judges by Spider's rule in this process, and caches nothing.

`python -m benchmarks.verifiers.plain_loop FOLDER plain|official` judges FOLDER/predictions.sql against FOLDER/gold.sql
(lines SQL<TAB>database) on FOLDER/databases/<database>/<database>.sqlite, and prints how many are correct. Each query
runs on a new connection ("plain"), which the official evaluator does in an event loop per query, by which it limits
the time ("official").
"""

import asyncio
import sqlite3
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from dph.verifiers.sql.rules import Options, get_rule

RULE, OPTIONS = get_rule("spider"), Options()
Run = Callable[[str, str], list[Any] | None]
"""(path of the database, SQL) → rows; None if the query fails."""


def connect(db: str) -> sqlite3.Connection:
    connection = sqlite3.connect(db)
    connection.text_factory = partial(str, encoding="utf-8", errors="ignore")
    return connection


def fetch(connection: sqlite3.Connection, sql: str) -> list[Any] | None:
    try:
        return connection.execute(sql).fetchall()
    except (sqlite3.Error, sqlite3.Warning):
        return None


def run_once(db: str, sql: str) -> list[Any] | None:
    """Run a query on a new connection."""
    connection = connect(db)
    try:
        return fetch(connection, sql)
    finally:
        connection.close()


def run_in_loop(db: str, sql: str) -> list[Any] | None:
    """Run a query on a new connection in a new event loop with a time limit."""

    async def execute() -> list[Any] | None:
        return run_once(db, sql)

    async def limited() -> list[Any] | None:
        return await asyncio.wait_for(execute(), 60)

    return asyncio.run(limited())


def judge(items: Iterable[tuple[str, str, str]], run: Run) -> list[bool]:
    """Whether each prediction is correct; items: (path of the database, gold query, prediction)."""
    found = []
    for db, gold, predicted in items:
        expected = run(db, RULE.prepare_gold(gold, OPTIONS))
        rows = run(db, RULE.prepare_prediction(predicted, OPTIONS))
        ordered = RULE.orders(gold, OPTIONS)
        widths = (0, 0)  # Spider's rule does not use them
        equal = expected is not None and rows is not None and RULE.equal(expected, rows, widths, ordered, OPTIONS)
        found.append(equal)
    return found


def main() -> None:
    folder, way = Path(sys.argv[1]), sys.argv[2]
    golds = [line.split("\t") for line in (folder / "gold.sql").read_text().splitlines()]
    predictions = (folder / "predictions.sql").read_text().splitlines()
    items = [
        (str(folder / "databases" / db / f"{db}.sqlite"), gold, predicted)
        for (gold, db), predicted in zip(golds, predictions, strict=True)
    ]
    found = judge(items, {"plain": run_once, "official": run_in_loop}[way])
    print(f"{sum(found)} of {len(found)} are correct")


if __name__ == "__main__":
    main()
