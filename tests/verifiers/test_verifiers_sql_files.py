"""Databases as their last commit left them: write-ahead logs, journals of transactions that were cut off, links; what
is not a file; files that are large; and what a worker has judged before."""

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dph.errors import UserError
from dph.tasks.sql.schema import schema_of_file
from dph.types import Outcome, Problem
from dph.verifiers.sql.compare import Rows
from dph.verifiers.sql.rewards import soft_f1
from dph.verifiers.sql.rules import RULES
from dph.verifiers.sql.verifier import SqlVerifier

LOGGED = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = wal")
connection.execute("CREATE TABLE t (a)")
connection.execute("INSERT INTO t VALUES (1)")
connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
connection.execute("INSERT INTO t VALUES (2)")
connection.execute("CREATE TABLE later (b)")
os._exit(0)
"""
CUT_OFF = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("CREATE TABLE t (a, filler)")
connection.execute("INSERT INTO t VALUES (1, zeroblob(50000)), (2, zeroblob(50000))")
connection.execute("CREATE TABLE later (b)")
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN")
connection.execute("UPDATE t SET a = 7, filler = randomblob(50000)")
connection.execute("INSERT INTO t VALUES (3, randomblob(500000))")
os._exit(0)
"""


def left_by(code: str, path: Path) -> Path:
    """The database that a process left behind when it was cut off."""
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def problem(path: Path | str, gold: str = "SELECT count(*) FROM t") -> Problem:
    return Problem("p", "?", gold, "sql", {"db": str(path)})


def outcomes(verifier: SqlVerifier, path: Path | str, *queries: str, gold: str = "SELECT count(*) FROM t"):
    return [v.outcome for v in verifier.verify([(problem(path, gold), f"```sql\n{sql}\n```") for sql in queries])]


@pytest.fixture(scope="module")
def verifier() -> Iterator[SqlVerifier]:
    with SqlVerifier(timeout=20) as made:
        yield made


@pytest.mark.parametrize(("code", "log"), [(LOGGED, "-wal"), (CUT_OFF, "-journal")])
@pytest.mark.parametrize("rule", RULES)
def test_a_database_with_a_log_is_read_as_committed(tmp_path: Path, code: str, log: str, rule: str):
    path = left_by(code, tmp_path / "d.sqlite")
    assert Path(f"{path}{log}").stat().st_size > 0
    before = contents(tmp_path)
    with SqlVerifier(comparator=rule, timeout=20) as verifier:
        assert outcomes(verifier, path, "SELECT 2", "SELECT 1", "SELECT 3") == [
            Outcome.CORRECT,
            Outcome.WRONG,
            Outcome.WRONG,
        ]
        rows = "SELECT 1 UNION ALL SELECT 2"
        assert outcomes(verifier, path, rows, "SELECT 1", gold="SELECT a FROM t") == [Outcome.CORRECT, Outcome.WRONG]
        assert verifier.check([problem(path)]) == {}
    assert contents(tmp_path) == before


@pytest.mark.parametrize("code", [LOGGED, CUT_OFF])
def test_the_schema_is_that_of_the_last_commit(tmp_path: Path, code: str):
    path = left_by(code, tmp_path / "d.sqlite")
    before = contents(tmp_path)
    assert [table.name for table in schema_of_file(path).tables] == ["t", "later"]
    assert contents(tmp_path) == before


def test_a_link_to_a_database_with_a_log(tmp_path: Path, verifier: SqlVerifier):
    """The log lies beside the file itself."""
    (tmp_path / "link.sqlite").symlink_to(left_by(LOGGED, tmp_path / "d.sqlite"))
    assert outcomes(verifier, tmp_path / "link.sqlite", "SELECT 2") == [Outcome.CORRECT]


def test_a_commit_to_the_log_between_two_batches_is_seen(tmp_path: Path):
    path = tmp_path / "d.sqlite"
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA journal_mode = wal")
    writer.execute("CREATE TABLE t (a)")
    with SqlVerifier(timeout=20) as verifier:
        for count in range(3):
            assert outcomes(verifier, path, f"SELECT {count}", "SELECT 9") == [Outcome.CORRECT, Outcome.WRONG]
            writer.execute("INSERT INTO t VALUES (0)")
    writer.close()  # applies and removes the log


def test_an_empty_log_needs_no_copy(tmp_path: Path, verifier: SqlVerifier, monkeypatch: pytest.MonkeyPatch):
    path = left_by(LOGGED, tmp_path / "d.sqlite")
    sqlite3.connect(path).execute("PRAGMA wal_checkpoint(TRUNCATE)")
    Path(f"{path}-wal").touch()
    monkeypatch.setattr("shutil.copyfile", None)
    assert outcomes(verifier, path, "SELECT 2") == [Outcome.CORRECT]


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a log that is a pipe": (lambda path: os.mkfifo(f"{path}-wal"), "is not a regular file"),
    "a log that is a device": (lambda path: os.symlink("/dev/zero", f"{path}-journal"), "is not a regular file"),
    "a log that is a folder": (lambda path: os.mkdir(f"{path}-wal"), "is not a regular file"),
    "a log without end": (lambda path: (Path(f"{path}-wal").touch(), os.truncate(f"{path}-wal", 1 << 40)), "too large"),
    "no database": (
        lambda path: (path.write_text("no" * 999), Path(f"{path}-wal").write_text("x")),
        "is not a database",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_log_that_cannot_be_read_is_refused_by_name(tmp_path: Path, verifier: SqlVerifier, name: str):
    path = tmp_path / "d.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE t (a)")
    connection.close()
    make, said = REFUSED[name]
    make(path)
    started = time.monotonic()
    [verdict] = verifier.verify([(problem(path), "```sql SELECT 1 ```")])
    assert verdict.outcome is Outcome.GOLD_ERROR and said in verdict.detail and str(path) in verdict.detail
    for use in (lambda: verifier.check([problem(path)]), lambda: schema_of_file(path)):
        with pytest.raises(UserError, match=said):
            use()
    assert time.monotonic() - started < 10


@pytest.mark.skipif(sys.platform != "linux", reason="files of the kernel")
@pytest.mark.parametrize("place", ["/proc/kmsg", "/proc/self/mem", "/proc/kcore", "/proc/self/stat", "/sys/kernel/mm"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, verifier: SqlVerifier, place: str):
    if not os.path.exists(place):
        pytest.skip(f"no {place} here")
    (tmp_path / "link").symlink_to(place)
    started = time.monotonic()
    for path in (place, tmp_path / "link"):
        [verdict] = verifier.verify([(problem(path, "SELECT 1"), "```sql SELECT 1 ```")])
        assert verdict.outcome is Outcome.GOLD_ERROR and "not a regular file" in verdict.detail
        with pytest.raises(UserError, match="not a regular file"):
            verifier.check([problem(path)])
        with pytest.raises(UserError, match="not a regular file"):
            schema_of_file(Path(path))
    assert time.monotonic() - started < 5


def test_a_large_file_is_not_read_for_its_hash(tmp_path: Path, verifier: SqlVerifier):
    """A terabyte, most of it a hole."""
    path = tmp_path / "d.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE t (a); INSERT INTO t VALUES (1)")
    connection.close()
    os.truncate(path, 1 << 40)
    started = time.monotonic()
    assert outcomes(verifier, path, "SELECT 1", "SELECT 2") == [Outcome.CORRECT, Outcome.WRONG]
    assert time.monotonic() - started < 10


# Statements ---------------------------------------------------------------------------------------------------------

EMPTY_STATEMENTS = ["{};;", "{} ; ;", ";{};", "{};-- done\n;", "{}; /* a; b */ ;; -- c", ";;\n{}\n;;;"]


@pytest.mark.parametrize("form", EMPTY_STATEMENTS)
def test_empty_statements_change_nothing(tmp_path: Path, verifier: SqlVerifier, form: str):
    path = left_by(LOGGED, tmp_path / "d.sqlite")
    right, wrong = form.format("SELECT a FROM t"), form.format("SELECT a + 1 FROM t")
    found = outcomes(verifier, path, right, wrong, right + "\n SELECT 1", gold="SELECT a FROM t")
    assert found == [Outcome.CORRECT, Outcome.WRONG, Outcome.ERROR]
    assert outcomes(verifier, path, "SELECT a FROM t", gold=right) == [Outcome.CORRECT]


def test_semicolons_in_literals_stay(tmp_path: Path, verifier: SqlVerifier):
    path = left_by(LOGGED, tmp_path / "d.sqlite")
    assert outcomes(verifier, path, "SELECT ';;';;", "SELECT ';'", gold="SELECT ';;'") == [
        Outcome.CORRECT,
        Outcome.WRONG,
    ]
    assert outcomes(verifier, path, ";;", "; -- SELECT 1", "SELECT 'a;;") == [Outcome.ERROR] * 3


def test_many_brackets_and_quotes_are_read_in_bounded_time(tmp_path: Path, verifier: SqlVerifier):
    path = left_by(LOGGED, tmp_path / "d.sqlite")
    started = time.monotonic()
    assert outcomes(verifier, path, *(";" + sign * 200_001 + ";;" for sign in ("[", "'", '"', "`", "/*"))) == (
        [Outcome.ERROR] * 5
    )
    assert time.monotonic() - started < 10


# Memory -------------------------------------------------------------------------------------------------------------


def test_long_honest_responses_on_many_databases_never_fill_a_worker(tmp_path: Path):
    """25 databases and texts of 38 KB once made every further query an error, which was then cached."""
    databases = []
    for number in range(25):
        databases.append(tmp_path / f"{number}.sqlite")
        connection = sqlite3.connect(databases[-1])
        connection.executescript(f"CREATE TABLE t AS SELECT {number} AS a")
        connection.close()
    filler = "x" * 38_000
    items = [
        (
            problem(path, "SELECT a FROM t"),
            f"```sql\nSELECT a + {turn % 2} AS n{turn} FROM t WHERE '' <> '{filler}'\n```",
        )
        for turn in range(24)
        for path in databases
    ]
    with SqlVerifier(timeout=20, memory_mb=96) as verifier:  # as 3,200 responses for 512 MB
        verdicts = verifier.verify(items)
    expected = [Outcome.WRONG if turn % 2 else Outcome.CORRECT for turn in range(24) for _ in databases]
    assert [verdict.outcome for verdict in verdicts] == expected


BIG = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x WHERE n < {}) SELECT n, hex(zeroblob({})) FROM x"


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on memory")
def test_a_verdict_does_not_depend_on_what_the_worker_judged_before(tmp_path: Path):
    """The same queries in two orders, some of which fill the memory; the gold results differ, so all are kept."""
    path = left_by(LOGGED, tmp_path / "d.sqlite")
    golds = [BIG.format(100 + size, 50_000) for size in range(4)]
    queries = [*golds, BIG.format(101, 400_000), "SELECT group_concat(hex(zeroblob(9000000))) FROM t", "SELECT 1"]
    items = [(problem(path, gold), f"```sql\n{sql}\n```") for gold in golds for sql in queries]
    found = []
    for ordered in (items, items[::-1]):
        with SqlVerifier(timeout=60, memory_mb=160, cache_size=0) as verifier:
            verdicts = verifier.verify(ordered)
            again = verifier.verify([(problem(path), "```sql SELECT 2 ```")])
        found.append([verdict.outcome for verdict in verdicts])
        assert again[0].correct
    assert found[0] == found[1][::-1]
    assert {Outcome.CORRECT, Outcome.WRONG, Outcome.ERROR} == set(found[0])


def test_a_gold_that_failed_once_is_asked_again(tmp_path: Path):
    """Here a file that another process had locked away; the worker keeps no failure, and neither does the parent."""
    path = left_by(LOGGED, tmp_path / "d.sqlite")
    sqlite3.connect(path).execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with SqlVerifier(timeout=20) as verifier:
        assert outcomes(verifier, path, "SELECT 0") == [Outcome.WRONG]
        worker = verifier.workers()[0]
        import resource

        limits = resource.prlimit(worker, resource.RLIMIT_NOFILE)
        other = left_by(LOGGED, tmp_path / "other.sqlite")
        resource.prlimit(worker, resource.RLIMIT_NOFILE, (1, limits[1]))
        assert outcomes(verifier, other, "SELECT 2") == [Outcome.GOLD_ERROR]
        resource.prlimit(worker, resource.RLIMIT_NOFILE, limits)
        assert outcomes(verifier, other, "SELECT 2") == [Outcome.CORRECT]


# Rewards and flags --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gold", "predicted", "expected"),
    [
        ([(1,)], [(1,) * 1999], 2 / 2000),
        ([(1, 2)], [(1, 1)], 0.5),
        ([(1, 2)], [(1, 1, 1, 1, 2)], 4 / 7),
        ([(1, 1)], [(1, 1)], 1.0),
        ([(1, 1)], [(1, 2)], 0.5),
        ([(1,), (2,)], [(1, 1), (2, 2)], 2 / 3),
    ],
)
def test_soft_f1_pays_a_cell_once(gold: Rows, predicted: Rows, expected: float):
    """2·matched/(cells of both rows), where each gold cell is matched once."""
    assert soft_f1(gold, predicted, False) == pytest.approx(expected, abs=1e-12)
    assert soft_f1(gold, [*predicted] * 7, False) == soft_f1(gold, predicted, False)


CHANGING = [
    "SELECT random()",
    "SELECT a FROM t ORDER BY RANDOM ( ) LIMIT 1",
    "SELECT hex(randomblob(4))",
    "SELECT date('now')",
    'SELECT count(*) FROM t WHERE a < julianday( "NOW" )',
    "SELECT strftime('%Y', 'now') - 1",
    "SELECT strftime('%Y')",
    "SELECT datetime('now', '-1 day', 'localtime')",
    "SELECT time(), a FROM t",
    "SELECT CURRENT_TIMESTAMP",
    "SELECT a FROM t WHERE a > current_date",
    "SELECT unixepoch(/* here */ 'now')",
    "SELECT r FROM v",
    "SELECT d FROM v WHERE d > '2020'",
    "SELECT (SELECT max(d) FROM v), a FROM t",
    "SELECT date(('now'))",
    "SELECT date(n) FROM (SELECT 'Now' AS n)",
    "WITH c AS (SELECT 'now' AS n) SELECT strftime('%Y', n) FROM c",
    "SELECT julianday(column1) FROM (VALUES ('now'))",
    "SELECT date(CASE WHEN 1 THEN 'now' ELSE a END) FROM t",
    "SELECT a FROM t UNION SELECT time('subsec')",
]
if sqlite3.sqlite_version_info >= (3, 43):
    CHANGING += ["SELECT timediff('2020-01-01', 'now')", "SELECT timediff(('now'), a) FROM t"]
STABLE = [
    "SELECT date('2020-01-01')",
    "SELECT 'random()', 'now' FROM t",
    "SELECT a AS random, a AS \"current_date\" FROM t -- date('now')",
    "SELECT strftime('%Y', a) = 'now' FROM t",
    "SELECT '(now' || date(a, 'now') FROM t",
    "SELECT 'date(' , 'now' FROM t",
    "SELECT datetime('2020-01-01', 'subsec') FROM t",
    "SELECT a FROM s",
]


def test_golds_that_change_by_themselves_are_flagged(tmp_path: Path, verifier: SqlVerifier):
    path = left_by(LOGGED, tmp_path / "d.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE VIEW v AS SELECT date('now') AS d, random() AS r FROM t")
        database.execute("CREATE VIEW s AS SELECT a, 'now' AS n FROM t")
        database.commit()
    problems = [
        Problem(str(number), "?", gold, "sql", {"db": str(path)}) for number, gold in enumerate([*CHANGING, *STABLE])
    ]
    assert verifier.check(problems) == {}
    flags = verifier.flags(problems)
    assert flags == {str(number): ["changes"] for number in range(len(CHANGING))}
