"""What queries return, for votes: told with the verdict, it is what running the query a second time tells."""

import sqlite3
import time
from contextlib import closing

import pytest

from dph.types import Problem
from dph.verifiers.sandbox.pool import WorkerPool
from dph.verifiers.sql.text import extract_sql
from dph.verifiers.sql.verifier import SqlVerifier

QUERIES = [
    "select a from t",
    "SELECT  a  FROM t",  # the same query up to blanks and case: judged once
    "select a from t order by a desc",  # the same rows in another order
    "select b from t",
    "select distinct b from t",
    "select a, b from t",
    "select a from t where a > 9",  # no rows
    "select nothing from t",
    "delete from t",
    "select a from t; select b from t",
    "",
]


def problem(path, name, *suite):
    with closing(sqlite3.connect(path / f"{name}.sqlite")) as connection:
        connection.executescript(f"create table t (a, b); insert into t values (1, 'x'), (2, 'x'), ({len(name)}, null)")
    meta = {"db": str(path / f"{name}.sqlite"), "suite": [str(path / f"{one}.sqlite") for one in suite]}
    return Problem(name, "?", "select a from t", "sql", meta)


@pytest.fixture
def items(tmp_path):
    """Every query on two databases, one of which has a test suite."""
    first = problem(tmp_path, "one")
    second = problem(tmp_path, "seven", "one")
    return [(item, f"```sql\n{query}\n```" if query else "none") for item in (first, second) for query in QUERIES]


@pytest.mark.parametrize("rule", ["strict", "spider", "bird", "paper", "paper_bird"])
def test_answers_are_those_of_a_second_run_and_cost_none(items, rule, monkeypatch):
    with SqlVerifier(comparator=rule) as plain, SqlVerifier(comparator=rule, answers=True) as keeping:
        assert keeping.verify(items) == plain.verify(items)
        expected = plain.answers(items)
        assert keeping.answers(items[:0]) == []
        ran = []
        run = WorkerPool.run_all
        monkeypatch.setattr(WorkerPool, "run_all", lambda pool, chains: ran.append(len(chains)) or run(pool, chains))
        assert keeping.answers(items) == expected
        assert ran == [0]
    told = expected[: len(QUERIES)]
    assert told[0] == told[1] == told[2] != told[3] and None not in told[:7] and told[-1] is None
    assert told[7] is None and told[8] is None


def test_what_was_not_judged_is_run(items):
    with SqlVerifier() as plain, SqlVerifier(answers=True) as keeping:
        keeping.verify(items[:4])
        assert keeping.answers(items) == plain.answers(items)


def test_a_database_that_changed_is_read_anew(items, tmp_path):
    with SqlVerifier(answers=True) as keeping:
        keeping.verify(items[:1])
        [before] = keeping.answers(items[:1])
        with closing(sqlite3.connect(tmp_path / "one.sqlite")) as connection:
            connection.execute("insert into t values (50, 'y')")
            connection.commit()
        [after] = keeping.answers(items[:1])
    assert before and after and before != after


@pytest.mark.parametrize(
    "response",
    [
        '```sql title="q.sql"\nSELECT 1\n```',
        "```sql title='two words' linenos\r\nSELECT 1\n```",
        "```sql {1,3}\nSELECT 1\n```",
        "```{.sql .numberLines}\nSELECT 1\n```",
        "```sql:query.sql\nSELECT 1\n```",
        "> ```sql\n> SELECT 1\n> ```",
        "I say:\n>>```sql\n>>SELECT 1\n>>```\n",
        "> a remark\n\n```sql SELECT 1 ```",
        "```SQLite\nSELECT 1\n```",
        "```mysql\nSELECT 1\n```",
        "~~~sql\nSELECT 1\n~~~",
        "```sql\nSELECT 2\n```\n~~~~sqlite3\nSELECT 1\n~~~~\nDone.",
    ],
)
def test_fences_may_have_attributes_and_be_quoted(response):
    assert extract_sql(response) == "SELECT 1"


def test_what_only_looks_like_attributes_or_quotes_is_sql():
    assert extract_sql("```sql\nSELECT a FROM t WHERE a\n> 5\n```") == "SELECT a FROM t WHERE a\n> 5"
    assert extract_sql("> ```sql\n> SELECT a FROM t WHERE a\n> > 5\n> ```") == "SELECT a FROM t WHERE a\n> 5"
    assert extract_sql("```sql SELECT\n1\n```") == "SELECT\n1"
    assert extract_sql("```python\nSELECT 1\n```") is None
    assert extract_sql("```nosqlite\nSELECT 1\n```") is None


def test_a_hostile_fence_takes_no_time():
    started = time.process_time()
    for text in (
        "```sql a=b" + "{}" * 100_000,
        "```sql" + " a=b" * 100_000,
        "```sql" + ":a,b" * 100_000,
        "> ```sql\n" * 20_000,
    ):
        extract_sql(text)
    assert time.process_time() - started < 5
