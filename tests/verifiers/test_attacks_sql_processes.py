"""What can happen to the processes and descriptors of the SQL verifier, by accident or by ill will."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dph.types import Outcome, Problem
from dph.verifiers.sql.verifier import SqlVerifier
from kills import judging_seconds, killing
from workers import soon, state_of

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at processes through /proc")

FOREVER = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT count(*) FROM x"


def database(path: Path, value: int = 1) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript(f"CREATE TABLE t AS SELECT {value} AS a")
    connection.close()
    return path


def problem(path: Path | str, gold: str = "SELECT a FROM t") -> Problem:
    return Problem("p", "?", gold, "sql", {"db": str(path)})


def outcomes(verifier: SqlVerifier, path: Path | str, *queries: str) -> list[Outcome]:
    return [v.outcome for v in verifier.verify([(problem(path), f"```sql\n{sql}\n```") for sql in queries])]


def descriptors(pid: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return database(tmp_path / "data.sqlite")


@pytest.fixture
def verifier() -> Iterator[SqlVerifier]:
    with SqlVerifier(timeout=0.5, cache_size=0) as made:
        yield made


def test_a_worker_that_is_stopped_is_continued(verifier: SqlVerifier, db: Path):
    outcomes(verifier, db, "SELECT 1")
    os.kill(verifier.workers()[0], signal.SIGSTOP)
    started = time.monotonic()
    assert outcomes(verifier, db, "SELECT 2", "SELECT 1") == [Outcome.WRONG, Outcome.CORRECT]
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGBUS"])
def test_a_query_that_crashes_two_workers_is_an_error(db: Path, name: str):
    with SqlVerifier(timeout=60, cache_size=0) as slow, killing(databases=1, after=0.05, name=name) as killed:
        verdicts = slow.verify([(problem(db), f"```sql {sql} ```") for sql in ("SELECT 1", FOREVER, "SELECT 1 AS a")])
    assert [v.outcome for v in verdicts] == [Outcome.CORRECT, Outcome.ERROR, Outcome.CORRECT]
    assert "crashed twice" in verdicts[1].detail and len(killed) == 2


def test_workers_that_are_killed_from_outside_are_an_infrastructure_error(db: Path):
    """Never a wrong answer."""
    with SqlVerifier(timeout=60, cache_size=0) as verifier, killing(databases=1, after=0.05) as killed:
        assert outcomes(verifier, db, FOREVER, "SELECT 1") == [Outcome.INFRA_ERROR, Outcome.CORRECT]
    assert 2 <= len(killed) <= 20


def test_what_is_sent_ahead_is_answered_after_a_kill(verifier: SqlVerifier, db: Path):
    """Long queries, several for one gold, more than a pipe holds; a worker is stopped in the midst of them."""
    queries = [f"SELECT {'1' if n % 3 else '-1'} /* {n} {'x' * 50_000} */" for n in range(20)]
    queries[3] = FOREVER
    expected = [Outcome.CORRECT if n % 3 else Outcome.WRONG for n in range(20)]
    expected[3] = Outcome.TIMEOUT
    outcomes(verifier, db, "SELECT 1")
    os.kill(verifier.workers()[0], signal.SIGSTOP)
    assert outcomes(verifier, db, *queries) == expected


def test_an_error_in_one_thread_stops_the_others(tmp_path: Path, monkeypatch):
    """Without waiting for all that was sent ahead."""

    def interrupted(*args: object, **more: object) -> None:
        time.sleep(0.2)
        raise KeyboardInterrupt

    one, two = database(tmp_path / "one.sqlite"), database(tmp_path / "two.sqlite")
    with SqlVerifier(timeout=2, workers=2) as verifier:
        outcomes(verifier, one, "SELECT 1")  # this worker runs already, the other one is started below
        slow = [(problem(one), f"```sql\n{FOREVER} WHERE n > {n}\n```") for n in range(8)]
        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "Popen", interrupted)
            started = judging_seconds()
            with pytest.raises(KeyboardInterrupt):
                verifier.verify([*slow, (problem(two), "```sql\nSELECT 666\n```")])
        assert judging_seconds() - started < 10  # all eight would take 16 s
        assert outcomes(verifier, two, "SELECT 1") == [Outcome.CORRECT]


def test_many_kills_leave_neither_zombies_nor_descriptors(verifier: SqlVerifier, db: Path):
    outcomes(verifier, db, "SELECT 1")
    before = descriptors()
    pids = set()
    for _ in range(10):
        pids.update(verifier.workers())
        os.kill(verifier.workers()[0], signal.SIGKILL)
        assert outcomes(verifier, db, "SELECT 1") == [Outcome.CORRECT]
    assert len(pids) == 10 and descriptors() == before
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)  # a zombie would still be listed


def test_more_databases_than_a_worker_keeps_open(verifier: SqlVerifier, tmp_path: Path):
    paths = [database(tmp_path / f"{number}.sqlite", number) for number in range(200)]
    items = [(problem(path), f"```sql SELECT {number} ```") for number, path in enumerate(paths)]
    assert all(verdict.correct for verdict in verifier.verify(items + items))
    assert descriptors(verifier.workers()[0]) < 150


def test_a_worker_with_few_descriptors_reads_every_database(tmp_path: Path):
    import resource

    paths = [database(tmp_path / f"{number}.sqlite", number) for number in range(40)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with SqlVerifier(timeout=5) as verifier:
        outcomes(verifier, paths[0], "SELECT 1")
        resource.prlimit(verifier.workers()[0], resource.RLIMIT_NOFILE, (16, hard))
        items = [(problem(path), f"```sql SELECT {number} ```") for number, path in enumerate(paths)]
        assert all(verdict.correct for verdict in verifier.verify(items))
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == soft


def test_what_is_no_file_is_not_read(verifier: SqlVerifier, db: Path, tmp_path: Path):
    """Reading a pipe or a device could last for ever."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, "/dev/zero", "/dev/full", "/proc/self/mem", tmp_path / "gone"):
        assert outcomes(verifier, path, "SELECT 1") == [Outcome.GOLD_ERROR]
    assert outcomes(verifier, db, "SELECT 1") == [Outcome.CORRECT]


def test_a_name_that_looks_like_options_opens_that_file_and_makes_no_other(verifier: SqlVerifier, tmp_path: Path):
    path = database(tmp_path / "a?mode=rwc&immutable=0#b%41.sqlite")
    assert outcomes(verifier, path, "SELECT 1", "DELETE FROM t") == [Outcome.CORRECT, Outcome.ERROR]
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_database_that_is_cut_short_or_deleted_while_it_is_open(verifier: SqlVerifier, db: Path, tmp_path: Path):
    other = database(tmp_path / "other.sqlite", 2)
    assert outcomes(verifier, db, "SELECT 1") == [Outcome.CORRECT]
    with db.open("r+b") as file:
        file.truncate(100)
    assert outcomes(verifier, db, "SELECT 1") == [Outcome.GOLD_ERROR]
    db.unlink()
    assert outcomes(verifier, db, "SELECT 1") == [Outcome.GOLD_ERROR]
    assert outcomes(verifier, other, "SELECT 2") == [Outcome.CORRECT]


def test_a_gold_that_writes_is_a_gold_error(verifier: SqlVerifier, db: Path):
    before = db.read_bytes()
    bad = problem(db, "DELETE FROM t")
    assert verifier.verify([(bad, "```sql SELECT 1 ```")])[0].outcome is Outcome.GOLD_ERROR
    assert list(verifier.check([bad])) == ["p"]
    assert db.read_bytes() == before


STUCK = "SELECT instr(zeroblob(40000000), zeroblob(20000000) || x'01') FROM t"  # one step of hours


@pytest.mark.parametrize("gold", [FOREVER, STUCK])
def test_a_gold_that_times_out_runs_twice_however_many_responses_there_are(db: Path, gold: str):
    """Counted by the processor time of the workers, which is that of its runs."""
    before = judging_seconds()
    with SqlVerifier(timeout=0.5, gold_timeout=1.5) as verifier:
        for batch in range(3):
            items = [(problem(db, gold), f"```sql SELECT {batch}, {n} ```") for n in range(8)]
            assert {verdict.outcome for verdict in verifier.verify(items)} == {Outcome.GOLD_ERROR}
        assert list(verifier.check([problem(db, gold)])) == ["p"]
        assert outcomes(verifier, db, "SELECT 1", "SELECT 2") == [Outcome.CORRECT, Outcome.WRONG]
    assert 3.0 <= judging_seconds() - before < 4.5


def test_a_gold_that_timed_out_once_is_asked_again(db: Path):
    """Here one that never ends until the machine's clock has a certain time."""
    with SqlVerifier(timeout=0.5, gold_timeout=0.3) as verifier:
        assert outcomes(verifier, db, "SELECT 1") == [Outcome.CORRECT]  # the worker has started
        end = int(time.time()) + 3
        gold = f"SELECT CASE WHEN strftime('%s', 'now') + 0 < {end} THEN ({FOREVER}) ELSE 7 END"
        items = [(problem(db, gold), f"```sql SELECT {n} ```") for n in (7, 8)]
        assert [verdict.outcome for verdict in verifier.verify(items)] == [Outcome.GOLD_ERROR] * 2
        while time.time() < end:
            time.sleep(0.05)
        assert [verdict.outcome for verdict in verifier.verify(items)] == [Outcome.CORRECT, Outcome.WRONG]


def test_a_gold_that_crashes_two_workers_is_no_error_of_the_response(db: Path):
    with SqlVerifier(gold_timeout=60) as verifier, killing(databases=1, after=0.05, name="SIGSEGV") as killed:
        [verdict] = verifier.verify([(problem(db, FOREVER), "```sql SELECT 1 ```")])
    assert (verdict.outcome, len(killed)) == (Outcome.GOLD_ERROR, 2) and "crashed twice" in verdict.detail


def test_sixty_four_callers_of_which_one_is_hostile_lose_nothing(tmp_path: Path):
    paths = [database(tmp_path / f"{number}.sqlite", number) for number in range(64)]

    def call(number: int) -> list[Outcome]:
        sql = [FOREVER, FOREVER + " WHERE n > 0"] if number == 7 else [f"SELECT {number}", "SELECT -1"]
        return outcomes(verifier, paths[number], *sql)

    with SqlVerifier(workers=2, timeout=0.5) as verifier, ThreadPoolExecutor(64) as threads:
        found = list(threads.map(call, range(64)))
        assert len(verifier.workers()) == 2
    assert found.pop(7) == [Outcome.TIMEOUT] * 2
    assert found == [[Outcome.CORRECT, Outcome.WRONG]] * 63


def test_closing_waits_for_what_is_running(db: Path):
    verifier = SqlVerifier(timeout=30)
    slow = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x WHERE n < 300000) SELECT min(n) FROM x"
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(outcomes, verifier, db, slow)
        assert soon(lambda: bool(verifier.workers()))
        verifier.close()
        assert running.result() == [Outcome.CORRECT]
    verifier.close()
    assert verifier.workers() == []


def _in_a_fork(action: Callable[[], bool]) -> bool:
    """Whether an action succeeds in a forked process."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if action() else 1)
        finally:
            os._exit(2)
    return os.waitpid(pid, 0)[1] == 0


def test_a_forked_process_gets_workers_of_its_own(verifier: SqlVerifier, db: Path):
    assert outcomes(verifier, db, "SELECT 1") == [Outcome.CORRECT]
    pids = verifier.workers()

    def child() -> bool:
        right = outcomes(verifier, db, "SELECT 1", "SELECT 2") == [Outcome.CORRECT, Outcome.WRONG]
        mine = verifier.workers()
        verifier.close()
        return right and mine != pids and len(mine) == 1

    assert _in_a_fork(child)
    assert verifier.workers() == pids
    assert outcomes(verifier, db, "SELECT 1") == [Outcome.CORRECT]
    assert verifier.workers() == pids  # the child's end left the parent's worker alone


def test_a_fork_while_another_thread_judges(db: Path):
    """The thread holds a worker and is not there in the child, which must not wait for it."""
    with SqlVerifier(timeout=1.5) as verifier:
        busy = threading.Thread(target=outcomes, args=(verifier, db, FOREVER))
        busy.start()
        assert soon(lambda: bool(verifier.workers()))
        assert _in_a_fork(lambda: outcomes(verifier, db, "SELECT 1") == [Outcome.CORRECT])
        busy.join()
        assert outcomes(verifier, db, "SELECT 1") == [Outcome.CORRECT]


_IN_A_PROCESS = """
import multiprocessing, sys
from dph.types import Problem
from dph.verifiers.sql.verifier import SqlVerifier

def judge(queue):
    with SqlVerifier() as verifier:
        queue.put(verifier.verify([(Problem("p", "?", "SELECT 1", "sql", {"db": sys.argv[1]}), "```sql SELECT 1 ```")]))

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[2])
    queue = context.Queue()
    process = context.Process(target=judge, args=(queue,), daemon=True)
    process.start()
    print(queue.get(timeout=60)[0].outcome)
    process.join()
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_daemonic_process_can_judge(db: Path, tmp_path: Path, method: str):
    """Such as those of data loaders and actors, which may have no children by multiprocessing."""
    script = tmp_path / "script.py"
    script.write_text(_IN_A_PROCESS)
    command = [sys.executable, str(script), str(db), method]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.returncode) == ("correct\n", 0), done.stderr


_KILLED = """
import sys, threading, time
from dph.types import Problem
from dph.verifiers.sql.verifier import SqlVerifier
verifier = SqlVerifier(timeout=600, gold_timeout=600)
item = (Problem("p", "?", "SELECT 1", "sql", {"db": sys.argv[1]}), "```sql " + sys.argv[2] + " ```")
threading.Thread(target=verifier.verify, args=([item],), daemon=True).start()
while not verifier.workers():
    time.sleep(0.01)
print(verifier.workers()[0], flush=True)
time.sleep(600)
"""


def test_a_busy_worker_ends_when_its_parent_is_killed(db: Path):
    with subprocess.Popen([sys.executable, "-c", _KILLED, str(db), FOREVER], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert Path(f"/proc/{worker}").exists()
        parent.kill()
    assert soon(lambda: state_of(worker) in ("", "Z"))


_WITHOUT_LIMITS = """
from dph.verifiers.sandbox import loop

def main():
    send = loop.send
    as_on_macos = {"unlimited": ["memory"]}
    loop.send = lambda message: send(message | as_on_macos if "unlimited" in message else message)
    loop.serve(lambda request: {}, 512)
"""
_TWO_POOLS = """
import sys, warnings
from dph.verifiers.sandbox.pool import WorkerPool
from dph.verifiers.sandbox.worker import Request

for _ in range(2):
    pool = WorkerPool("without_limits", {}, path=[sys.argv[1]])
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        pool.run([[Request({}, 60.0)]])
    print(len(found), *[f"{one.category.__name__}: {one.message}" for one in found])
    pool.close()
"""


def test_what_the_system_does_not_limit_is_said_once(tmp_path: Path):
    (tmp_path / "without_limits.py").write_text(_WITHOUT_LIMITS)
    command = [sys.executable, "-c", _TWO_POOLS, str(tmp_path)]
    first, second = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert first.startswith("1 RuntimeWarning: ") and "may take more memory than memory_mb" in first
    assert second == "0"
