"""What must not change a verdict: pauses of the worker or of everything, a loaded machine, output and input that code
takes for its own, processes that a reward function starts and leaves behind."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from dph.types import Outcome, Problem
from dph.verifiers.function import FunctionVerifier
from dph.verifiers.sql.verifier import SqlVerifier
from kills import descendants
from workers import of_seconds, one_row, soon, state_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")


def running(pid: int) -> bool:
    return state_of(pid) not in ("", "Z")


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return one_row(tmp_path)


def asked(db: Path, sql: str, gold: str = "SELECT a FROM t") -> tuple[Problem, str]:
    return Problem("p", "?", gold, "sql", {"db": str(db)}), f"```sql\n{sql}\n```"


def function(tmp_path: Path, code: str, **options) -> FunctionVerifier:
    (tmp_path / "mine.py").write_text(textwrap.dedent(code))
    return FunctionVerifier(function=f"{tmp_path / 'mine.py'}:f", **{"timeout": 20.0, **options})


def rewards(verifier: FunctionVerifier, *responses: str) -> list[float | None]:
    verdicts = verifier.verify([(Problem("p", "?", "1", ""), response) for response in responses])
    return [verdict.reward if verdict.scored else None for verdict in verdicts]


# Pauses and load ----------------------------------------------------------------------------------------------------


def test_a_worker_that_is_stopped_for_good_is_continued(db: Path):
    with SqlVerifier(timeout=0.5, cache_size=0) as verifier:
        verifier.verify([asked(db, "SELECT 1")])
        os.kill(verifier.workers()[0], signal.SIGSTOP)
        found = verifier.verify([asked(db, "SELECT 2 - 1"), asked(db, "SELECT 2")])
    assert [verdict.outcome for verdict in found] == [Outcome.CORRECT, Outcome.WRONG]


def test_a_worker_that_is_stopped_and_continued_in_the_midst_of_a_query_is_right(db: Path):
    sql, count = of_seconds(0.25)
    with SqlVerifier(timeout=2.0, cache_size=0) as verifier:
        verifier.verify([asked(db, "SELECT 1")])
        worker, done = verifier.workers()[0], threading.Event()

        def interrupt() -> None:
            while not done.wait(0.05):
                os.kill(worker, signal.SIGSTOP)
                time.sleep(0.5)
                os.kill(worker, signal.SIGCONT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            [verdict] = verifier.verify([asked(db, sql, f"SELECT {count}")])
        finally:
            done.set()
            thread.join()
    assert verdict.outcome is Outcome.CORRECT


PAUSED = """
import sys
from dph.types import Problem
from dph.verifiers.function import FunctionVerifier
from dph.verifiers.math.verifier import MathVerifier
from dph.verifiers.sql.verifier import SqlVerifier

def main():
    kind, db, sql, gold, code = sys.argv[1:]
    if kind == "sql":
        judge = SqlVerifier(timeout=1.5, gold_timeout=1.5, cache_size=0)
        item = Problem("p", "?", gold, "sql", {"db": db}), f"```sql {sql} ```"
        warm = Problem("p", "?", "SELECT 1", "sql", {"db": db}), "```sql SELECT 1 ```"
    else:
        judge = FunctionVerifier(function=f"{code}:f", timeout=1.5)
        item = warm = Problem("p", "?", "1", ""), "0.5"
    judge.verify([warm])
    print("begun", flush=True)
    [verdict] = judge.verify([item])
    print(verdict.outcome, verdict.reward, verdict.detail, flush=True)
    judge.close()

main()
"""


@pytest.mark.parametrize("kind", ["sql", "function"])
def test_a_pause_of_everything_costs_nothing(db: Path, tmp_path: Path, kind: str):
    """As of a machine that was suspended: all processes stop and continue, for longer than the limit."""
    sql, count = of_seconds(0.5)
    code = tmp_path / "mine.py"
    code.write_text("import time\ndef f(prompt, completion, **_):\n    time.sleep(0.5)\n    return float(completion)\n")
    command = [sys.executable, "-c", PAUSED, kind, str(db), sql, f"SELECT {count}", str(code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        time.sleep(0.1)
        tree = [process.pid, *descendants(process.pid)]
        for pid in tree:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(4)
        for pid in reversed(tree):
            os.kill(pid, signal.SIGCONT)
        said = process.stdout.read()
    assert said.split()[:2] == (["correct", "1.0"] if kind == "sql" else ["wrong", "0.5"]), said


def test_only_processor_time_counts_for_a_query(db: Path):
    """Three busy processes for each processor stand for any load."""
    sql, count = of_seconds(0.25)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3 * (os.cpu_count() or 1))]
    try:
        with SqlVerifier(timeout=0.75, gold_timeout=20, cache_size=0) as verifier:
            [verdict] = verifier.verify([asked(db, sql, f"SELECT {count}")])
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert verdict.outcome is Outcome.CORRECT


def test_a_stopped_child_of_a_function_is_continued(tmp_path: Path):
    verifier = function(tmp_path, "import os\ndef f(prompt, completion, **_): return os.getpid()\n", timeout=1.0)
    [pid] = rewards(verifier, "x")
    assert pid
    os.kill(int(pid), signal.SIGSTOP)
    assert rewards(verifier, "x") == [pid]
    verifier.close()


def test_a_function_that_sleeps_reaches_its_limit(tmp_path: Path):
    verifier = function(tmp_path, "import time\ndef f(prompt, completion, **_): time.sleep(600)\n", timeout=0.5)
    started = time.monotonic()
    [verdict] = verifier.verify([(Problem("p", "?", "1", ""), "x")])
    verifier.close()
    assert verdict.outcome is Outcome.INFRA_ERROR and "time limit" in verdict.detail
    assert time.monotonic() - started < 20


# The pipes belong to the protocol -----------------------------------------------------------------------------------

NOISY = """
import ctypes, os, subprocess, sys
library = ctypes.CDLL(None)
library.puts(b'{"extend": 5}')
library.fflush(None)
os.write(1, b"no JSON\\n")
subprocess.run(["echo", "from a child"])
assert sys.stdin.read() == "" and os.read(0, 10) == b""
def f(prompt, completion, **_):
    print("printed")
    library.puts(b"from C")
    library.fflush(None)
    os.write(1, b'[0, {"reward": 9}]\\n')
    os.system("echo from a shell; cat")
    return float(completion)
"""


def test_what_code_writes_to_standard_output_is_no_answer(tmp_path: Path):
    verifier = function(tmp_path, NOISY)
    assert verifier.check([]) == {}
    assert rewards(verifier, "0.25", "0.5") == [0.25, 0.5]
    verifier.close()


# Processes of a function --------------------------------------------------------------------------------------------

FORKING = """
import os, time
def f(prompt, completion, **_):
    if completion == "fork":
        os.fork()
        return 0.0
    if completion == "late":
        if os.fork() == 0:
            time.sleep(0.3)
        return 0.125
    return float(completion)
"""


def test_a_function_that_forks_answers_once(tmp_path: Path):
    verifier = function(tmp_path, FORKING)
    responses = ["1", "fork", "2", "late", "3", "fork", "4"]
    expected = [1.0, 0.0, 2.0, 0.125, 3.0, 0.0, 4.0]
    assert rewards(verifier, *responses) == expected
    time.sleep(0.5)
    assert rewards(verifier, *responses) == expected
    verifier.close()


LEAVING = """
import os, subprocess, sys, time
def f(prompt, completion, **_):
    started = [subprocess.Popen(["sleep", "1000"]), subprocess.Popen(["sleep", "1000"], start_new_session=True)]
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            open(completion + ".daemon", "w").write(str(os.getpid()))
            time.sleep(1000)
        os._exit(0)
    while not os.path.exists(completion + ".daemon") or not open(completion + ".daemon").read():
        time.sleep(0.01)
    open(completion, "w").write(" ".join(str(p.pid) for p in started))
    if completion.endswith("hang"):
        time.sleep(600)
    if completion.endswith("crash"):
        os.abort()
    return 1.0
"""


def left(path: str) -> list[int]:
    return [int(pid) for file in (path, path + ".daemon") for pid in Path(file).read_text().split()]


@pytest.mark.parametrize("end", ["hang", "crash", "close"])
def test_processes_that_a_function_started_end_with_it(tmp_path: Path, end: str):
    verifier = function(tmp_path, LEAVING, timeout=5.0)
    path = str(tmp_path / end)
    assert rewards(verifier, path) == [1.0 if end == "close" else None]
    pids = left(path)
    assert len(pids) == 3
    if end == "close":
        assert all(map(running, pids))  # a server that a function keeps is its own matter, until the end
        verifier.close()
    assert soon(lambda: not any(map(running, pids)))
    verifier.close()


SERVED = """
import subprocess, time
server = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
def f(prompt, completion, **_):
    if completion == "hang":
        time.sleep(600)
    if completion == "pid":
        return server.pid
    server.stdin.write(completion.encode())
    return float(server.stdout.read(len(completion)))
"""


def test_a_process_that_the_import_started_serves_until_the_end(tmp_path: Path):
    verifier = function(tmp_path, SERVED, timeout=1.0)
    [first, hung, second, pid] = rewards(verifier, "1", "hang", "2", "pid")
    assert (first, hung, second) == (1.0, None, 2.0) and pid and running(int(pid))
    verifier.close()
    assert soon(lambda: not running(int(pid)))


ENDING = """
import sys, time
from dph.types import Problem
from dph.verifiers.function import FunctionVerifier
verifier = FunctionVerifier(function=sys.argv[1] + ":f", timeout=600)
verifier.verify([(Problem("p", "?", "1", ""), sys.argv[2])])
print(verifier._pool.pids()[0], flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("victim", ["parent", "worker"])
def test_processes_of_a_function_end_if_the_parent_or_the_worker_is_killed(tmp_path: Path, victim: str):
    (tmp_path / "mine.py").write_text(LEAVING)
    path = str(tmp_path / "left")
    with subprocess.Popen(
        [sys.executable, "-c", ENDING, str(tmp_path / "mine.py"), path], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        # Nothing adopts what has left the group, if the worker is killed.
        pids = left(path) if victim == "parent" else left(path)[:1]
        assert all(map(running, [worker, *pids]))
        os.kill(parent.pid if victim == "parent" else worker, signal.SIGKILL)
        gone = soon(lambda: not any(map(running, [worker, *pids])))
        parent.kill()
    for pid in left(path):
        if running(pid):
            os.kill(pid, signal.SIGKILL)
    assert gone


def test_a_function_leaves_no_zombies(tmp_path: Path):
    code = """
    import os
    def f(prompt, completion, **_):
        for _ in range(3):
            if os.fork() == 0:
                os.fork()
                os._exit(0)
            os.wait()
        return os.getppid()
    """
    verifier = function(tmp_path, code)
    worker = int(rewards(verifier, *"12345678")[-1] or 0)
    assert soon(lambda: bool(rewards(verifier, "9")) and len(descendants(worker)) <= 4)
    verifier.close()
