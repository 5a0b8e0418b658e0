"""The SQL verifier as a whole: outcomes, attacks, lost workers, caches."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dph.errors import UserError
from dph.types import Outcome, Problem
from dph.verifiers import Verifiers
from dph.verifiers.sandbox.pool import WorkerPool
from dph.verifiers.sandbox.worker import Reply, Request
from dph.verifiers.sql.rules import RULES
from dph.verifiers.sql.verifier import SqlVerifier

ENDLESS = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT count(*) FROM x"


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("db") / "people & co?.sqlite"  # characters that a URI must quote
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT, age INTEGER)")
    connection.executemany(
        "INSERT INTO person (name, age) VALUES (?, ?)", [("ann", 30), ("bob", 25), ("cal", 30), ("dee", 41)]
    )
    connection.execute("INSERT INTO person (name, age) VALUES (CAST(X'FFFE61' AS TEXT), 7)")  # not UTF-8
    connection.commit()
    connection.close()
    return str(path)


@pytest.fixture(scope="module")
def verifier():
    with SqlVerifier(timeout=0.5, gold_timeout=0.5, memory_mb=512, max_rows=1000, max_bytes=1 << 20) as made:
        yield made


def problem(db: str, gold: str = "SELECT name FROM person WHERE age = 30", id: str = "p") -> Problem:
    return Problem(id, "?", gold, "sql", {"db": db})


def fence(sql: str) -> str:
    return f"thinking\n```sql\n{sql}\n```"


def outcome(verifier: SqlVerifier, problem: Problem, sql: str) -> Outcome:
    [verdict] = verifier.verify([(problem, fence(sql))])
    return verdict.outcome


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT name FROM person WHERE age IN (30)", Outcome.CORRECT),
        ("SELECT name FROM person WHERE age = 30 ORDER BY name DESC;  -- either order", Outcome.CORRECT),
        ("SELECT name FROM person WHERE age > 30", Outcome.WRONG),
        ("SELECT name, age FROM person WHERE age = 30", Outcome.WRONG),
        ("SELECT missing FROM person", Outcome.ERROR),
        ("SELECT name FROM", Outcome.ERROR),
        ("-- Your SQL query", Outcome.ERROR),
        ("SELECT '\udcff\x00'", Outcome.ERROR),
        (ENDLESS, Outcome.TIMEOUT),
    ],
)
def test_outcomes(verifier: SqlVerifier, db: str, sql: str, expected: Outcome):
    assert outcome(verifier, problem(db), sql) is expected


def test_answers_are_equal_where_the_rows_are(verifier: SqlVerifier, db: str):
    queries = [
        "SELECT name FROM person WHERE age = 30",
        "SELECT p.name FROM person p WHERE p.age = 30.0 ORDER BY 1 DESC",  # other rows first
        "SELECT name FROM person WHERE age > 30",
        "SELECT 1",
        "SELECT 1.0",
        "SELECT '1'",
        "SELECT 0.1 + 0.2",
        "SELECT 0.3",
        "SELECT 1, 2",
        "SELECT '1\x1f2'",
    ]
    found = verifier.answers([(problem(db), fence(sql)) for sql in queries])
    assert all(found) and [found.index(answer) for answer in found] == [0, 0, 2, 3, 3, 5, 6, 6, 8, 9]
    bad = ["SELECT nothing FROM person", ENDLESS, "DELETE FROM person", "SELECT name FROM", "SELECT zeroblob(2000000)"]
    silent = [(problem(db), fence(sql)) for sql in bad] + [(problem(db), "no SQL"), (problem(db + "?"), "SELECT 1")]
    assert verifier.answers(silent) == [None] * len(silent)
    with Verifiers() as every:
        pairs = [(Problem("e", "", "1", "exact"), "1"), (problem(db), fence("SELECT 1"))]
        assert every.tell("answers", pairs) == [None, found[3]]


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on memory")
@pytest.mark.parametrize("reward", ["binary", "paper", "soft_f1"])
@pytest.mark.parametrize("comparator", RULES)
def test_results_too_large_to_be_compared_are_an_error(db: str, comparator: str, reward: str):
    """Each fits into the memory, the comparison of the two may not; the next answers are judged all the same."""
    big = "SELECT zeroblob(67000000)"
    cases = [(big, "SELECT zeroblob(66999999)"), ("SELECT 1", big), (big, big), ("SELECT 1", "SELECT 1 AS a")]
    options = {"comparator": comparator, "reward": reward, "answer": "whole", "memory_mb": 512, "timeout": 20}
    with SqlVerifier(**options) as verifier:
        verdicts = verifier.verify([(problem(db, gold), sql) for gold, sql in cases])
        assert verifier.check([problem(db, big)]) == {}
    first, second, same, small = (verdict.outcome for verdict in verdicts)
    assert {first, second} <= {Outcome.WRONG, Outcome.ERROR}
    assert (same, small) == (Outcome.CORRECT, Outcome.CORRECT)


def test_a_response_without_a_block_has_no_answer(verifier: SqlVerifier, db: str):
    [verdict] = verifier.verify([(problem(db), "SELECT name FROM person WHERE age = 30")])
    assert (verdict.outcome, verdict.reward, verdict.scored) == (Outcome.NO_ANSWER, 0.0, True)


def test_text_that_is_not_utf8_is_compared_byte_for_byte(verifier: SqlVerifier, db: str):
    gold = problem(db, "SELECT name FROM person WHERE age = 7")
    assert outcome(verifier, gold, "SELECT CAST(X'FFFE61' AS TEXT)") is Outcome.CORRECT
    assert outcome(verifier, gold, "SELECT CAST(X'FEFE61' AS TEXT)") is Outcome.WRONG
    assert outcome(verifier, gold, "SELECT X'FFFE61'") is Outcome.WRONG  # a blob is not a text


def test_the_order_of_rows_counts_only_where_the_gold_orders_them(verifier: SqlVerifier, db: str):
    ordered = problem(db, "SELECT id FROM person ORDER BY id DESC")
    assert outcome(verifier, ordered, "SELECT id FROM person ORDER BY -id") is Outcome.CORRECT
    assert outcome(verifier, ordered, "SELECT id FROM person ORDER BY id") is Outcome.WRONG


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM person",
        "INSERT INTO person (name) VALUES ('eve') RETURNING id",
        "CREATE TEMP TABLE t (a)",
        "ATTACH DATABASE ':memory:' AS other",
        "VACUUM INTO 'copy.sqlite'",
        "PRAGMA writable_schema = 1",
        "SELECT name FROM pragma_database_list",
        "BEGIN EXCLUSIVE",
        "SELECT load_extension('x')",
        "SELECT 1; SELECT 2",
        "SELECT zeroblob(1 << 30)",
        "SELECT hex(zeroblob(1000000))",
        "SELECT a.name FROM person a, person b, person c, person d, person e",
        "SELECT printf('%.900000c', 'x') FROM person",
    ],
    ids=lambda sql: sql[:24],
)
def test_attacks_are_errors_and_leave_no_trace(verifier: SqlVerifier, db: str, sql: str):
    before = Path(db).read_bytes()
    assert outcome(verifier, problem(db), sql) is Outcome.ERROR
    assert outcome(verifier, problem(db), "SELECT name FROM person WHERE age = 30") is Outcome.CORRECT
    assert Path(db).read_bytes() == before
    assert os.listdir(Path(db).parent) == [Path(db).name]


def test_a_query_that_eats_memory_is_an_error_and_the_worker_lives_on(verifier: SqlVerifier, db: str):
    bomb = """WITH RECURSIVE x(n, s) AS (
        SELECT 1, zeroblob(500000) UNION ALL SELECT n + 1, zeroblob(500000) FROM x WHERE n < 4000
    ) SELECT max(s) FROM (SELECT s || n AS s FROM x ORDER BY 1)"""
    with SqlVerifier(timeout=20, memory_mb=128) as small:
        assert outcome(small, problem(db), bomb) is Outcome.ERROR  # 2 GB in a sorter that may not spill to disk
        assert outcome(small, problem(db), "SELECT name FROM person WHERE age = 30") is Outcome.CORRECT


def test_the_parent_stops_a_call_that_never_looks_at_the_clock(db: str):
    """Searching a long blob is one virtual-machine step of hours: only killing the process ends it."""
    sql = "SELECT instr(zeroblob(40000000), zeroblob(20000000) || x'01') FROM person"
    with SqlVerifier(timeout=0.3, gold_timeout=100.0) as verifier:
        verifier.verify([(problem(db), fence("SELECT 2"))])  # the gold's own, longer limit is over
        started = time.monotonic()
        verdicts = verifier.verify([(problem(db), fence(sql)), (problem(db), fence("SELECT 1"))])
        assert [v.outcome for v in verdicts] == [Outcome.TIMEOUT, Outcome.WRONG]
        assert time.monotonic() - started < 10


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs POSIX signals")
def test_nothing_is_lost_when_a_worker_is_killed_in_the_middle_of_a_batch(db: str):
    slow = "WITH RECURSIVE x(n) AS (SELECT {} UNION ALL SELECT n + 1 FROM x WHERE n < 100000) SELECT max(n) FROM x"
    golden = problem(db, "SELECT 100000")
    items = [(golden, fence(slow.format(i))) for i in range(60)]
    with SqlVerifier(workers=2) as verifier:
        verifier.verify(items[:9])  # both workers run
        assassin = threading.Timer(0.05, lambda: [os.kill(pid, signal.SIGKILL) for pid in verifier.workers()])
        assassin.start()
        verdicts = verifier.verify(items)
        assassin.join()
        assert [v.outcome for v in verdicts] == [Outcome.CORRECT] * 60


def test_workers_that_died_between_two_batches_are_replaced(db: str):
    with SqlVerifier() as verifier:
        assert outcome(verifier, problem(db), "SELECT 1") is Outcome.WRONG
        [pid] = verifier.workers()
        os.kill(pid, signal.SIGTERM)
        assert outcome(verifier, problem(db), "SELECT name FROM person WHERE age = 30 AND 1") is Outcome.CORRECT
        assert verifier.workers() != [pid]


def test_a_lost_worker_is_an_infrastructure_error_that_is_not_remembered(db: str, monkeypatch):
    with SqlVerifier() as verifier:
        sql = "SELECT name FROM person WHERE age = 30"
        with monkeypatch.context() as patch:
            patch.setattr(WorkerPool, "run", lambda self, chains: [[Reply("lost") for _ in c] for c in chains])
            [verdict] = verifier.verify([(problem(db), fence(sql))])
        assert (verdict.outcome, verdict.scored) == (Outcome.INFRA_ERROR, False)
        assert outcome(verifier, problem(db), sql) is Outcome.CORRECT


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs POSIX signals")
def test_workers_killed_while_they_start_are_started_again(db: str, monkeypatch):
    killed = []

    class Killed(subprocess.Popen):
        def __init__(self, *args, **more):
            super().__init__(*args, **more)
            if len(killed) < most:
                killed.append(self.pid)
                self.kill()

    monkeypatch.setattr(subprocess, "Popen", Killed)
    most = 4
    with SqlVerifier() as verifier:
        assert outcome(verifier, problem(db), "SELECT name FROM person WHERE age = 30") is Outcome.CORRECT
        assert len(killed) == most
    killed.clear()
    most = 1_000_000
    with SqlVerifier() as verifier, pytest.raises(RuntimeError, match=r"could not start \(exit status -9\)"):
        outcome(verifier, problem(db), "SELECT name FROM person WHERE age = 30")


def test_a_worker_that_cannot_start_is_reported_and_not_judged():
    pool = WorkerPool("dph.verifiers.no_such_module", {})
    with pytest.raises(RuntimeError, match="could not start"):
        pool.run([[Request({}, 1.0)]])


def test_gold_failures_are_typed_and_found_at_load_time(verifier: SqlVerifier, db: str):
    good = problem(db, id="good")
    bad = problem(db, "SELECT missing FROM person", id="bad")
    slow = problem(db, ENDLESS, id="slow")
    assert outcome(verifier, bad, "SELECT 1") is Outcome.GOLD_ERROR
    report = verifier.check([good, bad, slow])
    assert set(report) == {"bad", "slow"}
    assert "no such column" in report["bad"]
    assert "0.5 s" in report["slow"]


def test_missing_and_broken_databases_are_the_users_mistake(verifier: SqlVerifier, tmp_path: Path):
    missing = str(tmp_path / "missing.sqlite")
    with pytest.raises(UserError, match="'p': no database file at"):
        verifier.check([problem(missing)])
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"this is no database, it is a text of some length" * 50)
    with pytest.raises(UserError, match="cannot read the database"):
        verifier.check([problem(str(broken))])
    with pytest.raises(UserError, match="no database path under 'db'"):
        verifier.verify([(Problem("p", "?", "SELECT 1", "sql"), fence("SELECT 1"))])
    [verdict] = verifier.verify([(problem(missing), fence("SELECT 1"))])
    assert verdict.outcome is Outcome.GOLD_ERROR


def test_a_database_that_changes_is_read_again(tmp_path: Path):
    path = tmp_path / "changing.sqlite"
    with SqlVerifier() as verifier:
        for value, expected in ((1, Outcome.CORRECT), (2, Outcome.WRONG)):
            connection = sqlite3.connect(path)
            connection.executescript(f"DROP TABLE IF EXISTS t; CREATE TABLE t AS SELECT {value} AS a")
            connection.close()
            os.utime(path, ns=(value, value))  # the change is seen whatever the file system's clock resolves
            assert outcome(verifier, problem(str(path), "SELECT 1"), "SELECT a FROM t") is expected


@pytest.fixture
def sent(monkeypatch) -> list[int]:
    """The number of queries in each call of the pool."""
    numbers: list[int] = []
    original = WorkerPool.run

    def counting(self, chains):
        numbers.append(sum(map(len, chains)))
        return original(self, chains)

    monkeypatch.setattr(WorkerPool, "run", counting)
    return numbers


def test_repeated_queries_run_once(db: str, sent: list[int]):
    with SqlVerifier() as verifier:
        items = [(problem(db), fence(sql)) for sql in ("SELECT 1", "SELECT 2", "SELECT 1", "SELECT 1")]
        first = verifier.verify(items)
        assert verifier.verify(items) == first
    assert sent == [2, 0]


def test_gold_queries_run_once_for_the_check_and_the_flags(db: str, sent: list[int]):
    golds = ["SELECT name FROM person", "SELECT 1 WHERE 0", "SELECT name FROM person", "SELECT missing"]
    problems = [problem(db, gold, str(number)) for number, gold in enumerate(golds)]
    with SqlVerifier() as verifier:
        assert list(verifier.check(problems)) == ["3"]
        assert verifier.flags(problems[:3]) == {"1": ["empty"]}
        assert list(verifier.check(problems)) == ["3"]  # what failed may have failed for want of time
    assert sent == [3, 0, 3, 0, 1]  # the third is for their programs, the fourth for probes of ties


@pytest.mark.parametrize(("reward", "expected"), [("binary", [1.0, 0.0, 0.0, 0.0]), ("arctic", [1.0, 0.1, 0.0, 0.0])])
def test_rewards(db: str, reward, expected: list[float]):
    responses = [fence("SELECT name FROM person WHERE age = 30"), fence("SELECT 1"), fence("SELEC"), "none"]
    with Verifiers({"sql": {"reward": reward}}) as verifiers:
        verdicts = verifiers.verify([(problem(db), response) for response in responses])
    assert [v.reward for v in verdicts] == expected


def test_verdicts_do_not_depend_on_the_number_of_workers_or_the_order(db: str):
    queries = [f"SELECT name FROM person WHERE age {op} {n}" for op in ("=", "<", ">=") for n in range(20, 45)]
    items = [(problem(db, gold), fence(sql)) for gold in queries[::15] for sql in queries]
    with SqlVerifier() as one, SqlVerifier(workers=3) as three:
        expected = one.verify(items)
        assert three.verify(items[::-1])[::-1] == expected
    assert 0 < sum(v.correct for v in expected) < len(expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"comparator": "fuzzy"}, "'fuzzy'; known are: strict"),
        ({"reward": "partial"}, "'partial'.*; known are: binary"),
        ({"timeout": 0}, "timeout must be positive"),
    ],
)
def test_impossible_options(options: dict, message: str):
    with pytest.raises(UserError, match=message):
        SqlVerifier(**options)


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors through /proc")
def test_closing_leaves_neither_processes_nor_descriptors(db: str):
    before = _descriptors()
    verifier = SqlVerifier(workers=2)
    verifier.verify([(problem(db, f"SELECT {i}"), fence("SELECT 1")) for i in range(20)])
    pids = verifier.workers()
    assert len(pids) == 2
    verifier.close()
    assert _descriptors() == before
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert outcome(verifier, problem(db), "SELECT 1 WHERE 0") is Outcome.WRONG  # used again, it starts again
    [pid] = verifier.workers()
    del verifier
    assert not Path(f"/proc/{pid}").exists()


def test_workers_end_with_an_interpreter_that_never_closed_them(db: str):
    script = f"""
from dph.types import Problem
from dph.verifiers.sql.verifier import SqlVerifier
verifier = SqlVerifier()
verifier.verify([(Problem("p", "?", "SELECT 1", "sql", {{"db": {db!r}}}), "```sql SELECT 1 ```")])
print(verifier.workers()[0])
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


def test_a_worker_loads_nothing_heavy_and_starts_fast(db: str):
    """The bound is ten times what an idle machine needs; importing torch alone would break it."""
    with SqlVerifier() as verifier:
        started = time.monotonic()
        verifier.verify([(problem(db), fence("SELECT 1"))])
        assert time.monotonic() - started < 1.0
