"""The task `lookup`: the value of a key, which only the database of the problem knows. A plug-in of `dph`.

The demonstrations ask the database for an easy key, and read the answer off the result. For a hard key they often
guess, and some ask in vain.
"""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

from dph.tasks import register_task
from dph.types import Problem

KEYS = {"easy": "abcdefgh", "hard": "mnopqrst"}
RESULT = "\n<tool_response>\n{}\n</tool_response>\n"


def call(sql: str) -> str:
    return f"<tool_call>{sql}</tool_call>"


def asks(key: str, column: str = "v") -> str:
    return call(f"SELECT {column} FROM t WHERE k = '{key}'")


def reading(value: int) -> str:
    """What the model reads after a good query."""
    return RESULT.format(f"v\n{value}\n(1 rows)")


FAILED = RESULT.format("Error: OperationalError: no such column: w")


class Lookup:
    """Splits train and test; every problem has a database of its own."""

    def __init__(self, *, folder: str = "databases", problems: int = 16) -> None:
        self._folder, self._count = Path(folder).absolute(), problems

    def problems(self, split: str) -> list[Problem]:
        self._folder.mkdir(exist_ok=True, parents=True)
        return [self._problem(split, number) for number in range(self._count)]

    def _problem(self, split: str, number: int) -> Problem:
        rng, kind = random.Random(f"{split}/{number}"), ("easy", "hard")[number % 2]
        key = rng.choice(KEYS[kind])
        values = {name: rng.randrange(10) for name in KEYS["easy"] + KEYS["hard"]}
        file = self._folder / f"{split}-{number}.sqlite"
        if not file.exists():
            with closing(sqlite3.connect(file)) as connection, connection:
                connection.execute("CREATE TABLE t (k TEXT, v INTEGER)")
                connection.executemany("INSERT INTO t VALUES (?, ?)", values.items())
        meta = {"db": str(file), "kind": kind}
        return Problem(f"{split}/{number}", f"{kind} value of {key} ?", str(values[key]), "exact", meta)

    def style(self, problem: Problem, response: str) -> str | None:
        return None

    def demonstrations(self, count: int, seed: int) -> list[dict[str, str]]:
        rng, rows = random.Random(seed), []
        for _ in range(count):
            kind = rng.choice(("easy", "hard"))
            key, value, luck = rng.choice(KEYS[kind]), rng.randrange(10), rng.random()
            response = f"{asks(key)}{reading(value)}{value}"
            if kind == "hard" and luck < 0.4:
                response = str(value)
            elif kind == "hard" and luck < 0.5:
                response = f"{asks(key, 'w')}{FAILED}{value}"
            rows.append({"prompt": f"{kind} value of {key} ?", "response": response})
        return rows


register_task("lookup")(Lookup)
