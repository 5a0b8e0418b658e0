"""The bank on queries: a model that writes several right queries is trained with the key `style`, whose form of a query
is told apart from how the query is written."""

import json
import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dph.config import STAGES, from_dict, merge_settings, to_dict
from dph.runs.directory import read_metrics
from dph.stages.sft import sft
from dph.stages.train import train
from dph.tasks import register_task
from dph.types import Problem
from dph.verifiers.sql.forms import query_form
from dph.verifiers.sql.text import extract_sql
from helpers import TINY, folder

JOINED = ("select name from cars where price < 5", "SELECT c.name FROM cars AS c WHERE 5 > c.price ;")
"""One way, written in two ways."""
NESTED = ("select name from cars where price in ( select price from cars where price < 5 )",)
"""Another way, with the same rows."""
FURTHER = ("select name from cars where price < 5 and glob ( 'a*' , 'a' )",)
"""A third way."""
WRONG = ("select name from cars",)


def fenced(query):
    return f"```sql\n{query}\n```"


@pytest.fixture(scope="module")
def database():
    path = folder() / "cars.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table cars (name text, price integer)")
        connection.executemany("insert into cars values (?, ?)", [("alpha", 3), ("beta", 4), ("gamma", 7)])
        connection.commit()
    return path


@register_task("test_queries")
class Queries:
    """One question, asked with several numbers, over one database."""

    def __init__(self, *, db: str = "") -> None:
        self._db = db

    def problems(self, split):
        return [Problem(f"{split}/{i}", f"cars {i}", JOINED[0], "sql", {"db": self._db}) for i in range(6)]

    def style(self, problem, response):
        return None


@pytest.fixture(scope="module")
def base():
    """A model that writes each of these queries about equally often."""
    here = folder()
    queries = (*JOINED, *NESTED, *FURTHER, *WRONG)
    rows = [{"prompt": f"cars {i}", "response": fenced(query)} for i in range(6) for query in queries]
    (here / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    settings = {
        "out": str(here / "sft"),
        "data": str(here / "data.jsonl"),
        "steps": 150,
        "batch": 30,
        "new": {**to_dict(TINY), "context": 96},
        "optim": {"lr": 1e-2, "schedule": "cosine", "warmup_steps": 5},
    }
    return sft(from_dict(STAGES["sft"], settings))


def run(out: Path, base: Path, database: Path, **bank):
    settings = {
        "out": str(out),
        "steps": 4,
        "model": {"path": str(base / "model"), "device": "cpu"},
        "task": {"name": "test_queries", "options": {"db": str(database)}},
        "rollout": {"prompts": 3, "n": 12, "max_tokens": 48, "max_prompt_tokens": 8},
        "optim": {"lr": 1e-4, "minibatches": 1, "warmup_steps": 0},
        "overlong": {"buffer": 0},
        "rehearsal": {"rows": 8},
        "bank": bank,
    }
    preset = from_dict(STAGES["train"], merge_settings("train", ["bank_online"], []))
    return train(from_dict(STAGES["train"], settings, default=preset))


def test_a_query_is_banked_once_for_each_plan_however_it_is_written(tmp_path, base, database):
    trained = run(tmp_path / "style", base, database)
    lines = read_metrics(trained)
    rows = [row for file in sorted((trained / "bank").iterdir()) for row in pq.read_table(file).to_pylist()]
    found = defaultdict(set)
    for row in rows:
        found[row["problem_id"]].add(query_form(extract_sql(row["text"])))
    forms = {query_form(query) for query in (*JOINED, *NESTED, *FURTHER)}
    assert len(forms) == 3 and set.union(*found.values()) <= forms
    assert len(rows) == sum(map(len, found.values()))  # no plan of a problem twice, though one is written in two ways
    assert {row["text"] for row in rows} >= {fenced(query) for query in JOINED}
    assert sum(len(own) == 3 for own in found.values()) >= 4
    assert lines[-1]["bank/modes"] == len(rows) and lines[-1]["bank/unread"] == 0 == lines[-1]["bank/unkeyed"]
    assert lines[0]["pef/tokens"] == 0 < min(line["pef/tokens"] for line in lines[1:])
    text = read_metrics(run(tmp_path / "text", base, database, key="text"))
    assert text[-1]["bank/modes"] > lines[-1]["bank/modes"]
