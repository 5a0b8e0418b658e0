"""Workers that something outside ends: their requests are sent again, and what stays unanswered is an error of its own,
never a verdict about a response or a gold answer."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dph.errors import UserError
from dph.types import Problem
from dph.verifiers.function import FunctionVerifier
from dph.verifiers.math.verifier import MathVerifier
from dph.verifiers.sandbox.pool import WorkerPool
from dph.verifiers.sandbox.worker import Reply, Request
from dph.verifiers.sql.verifier import SqlVerifier
from kills import killing
from workers import COUNTING, of_seconds, one_row

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds processes through /proc")

WORKER = """
import os, signal
from pathlib import Path
from dph.verifiers.sandbox.loop import send, serve

def main(log, ends):
    def handle(request):
        if "steps" not in request:
            return {"value": request["value"]}
        for step in range(request.get("done", 0), request["steps"]):
            send({"extend": 30, "resume": {"done": step}})
            with open(log, "a") as file:
                file.write(f"{step} ")
            tried = Path(log).read_text().split().count(str(step))
            if tried <= ends:
                os.kill(os.getpid(), getattr(signal, request["signal"]))
        return {"value": "whole"}
    serve(handle, 512, may_write=True)
"""


def judged(tmp_path: Path, steps: int, ends: int, name: str = "SIGKILL") -> tuple[list[str], list[int]]:
    """Run a request of several steps, each of which ends its worker `ends` times, between two others; returns the
    status or value of each and the steps as they were tried."""
    (tmp_path / "ending_worker.py").write_text(WORKER)
    log = tmp_path / "log"
    pool = WorkerPool("ending_worker", {"log": str(log), "ends": ends}, path=[str(tmp_path)])
    chain = [{"value": "first"}, {"steps": steps, "signal": name}, {"value": "last"}]
    try:
        [replies] = pool.run([[Request(payload, 30.0) for payload in chain]])
    finally:
        pool.close()
    found = [reply.value["value"] if reply.status == "ok" else reply.status for reply in replies]
    return found, list(map(int, log.read_text().split()))


def test_a_request_goes_on_where_its_worker_was_lost(tmp_path: Path):
    found, tried = judged(tmp_path, steps=30, ends=1)
    assert found == ["first", "whole", "last"]
    assert tried == [step for step in range(30) for _ in (1, 2)]


@pytest.mark.parametrize(("name", "ends"), [("SIGKILL", 19), ("SIGTERM", 3), ("SIGSEGV", 1)])
def test_a_request_survives_as_many_ends_as_it_may(tmp_path: Path, name: str, ends: int):
    assert judged(tmp_path, 1, ends, name)[0] == ["first", "whole", "last"]


@pytest.mark.parametrize(("name", "status", "attempts"), [("SIGKILL", "lost", 20), ("SIGSEGV", "crash", 2)])
def test_a_request_that_always_loses_its_worker(tmp_path: Path, name: str, status: str, attempts: int):
    found, tried = judged(tmp_path, steps=2, ends=100, name=name)
    assert found == ["first", status, "last"]
    assert tried == [0] * attempts


# Verifiers ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return one_row(tmp_path)


def problem(db: Path, gold: str) -> Problem:
    return Problem("p", "?", gold, "sql", {"db": str(db)})


def test_a_gold_answer_whose_workers_are_lost_is_not_called_broken(db: Path):
    gold, _ = of_seconds(1.0)
    with SqlVerifier(timeout=60, gold_timeout=60) as verifier, killing(databases=1, after=0.3, most=3) as killed:
        assert verifier.check([problem(db, gold)]) == {}
    assert len(killed) == 3


def endless() -> str:
    return COUNTING.format(10**12)


def test_a_gold_answer_whose_workers_are_always_lost_ends_the_check(db: Path):
    said = r"1 of 1 requests got no answer: something ended .* use fewer --workers"
    with (
        SqlVerifier(timeout=60, gold_timeout=60) as verifier,
        killing(databases=1, after=0.05),
        pytest.raises(UserError, match=said),
    ):
        verifier.check([problem(db, endless())])


def check_gold(verifier: SqlVerifier, db: Path) -> object:
    return verifier.check([problem(db, "SELECT a FROM t")])


def run_gold_for_flags(verifier: SqlVerifier, db: Path) -> object:
    return verifier.flags([problem(db, "SELECT a FROM t")])


def probe_gold(verifier: SqlVerifier, db: Path) -> object:
    return verifier.flags([problem(db, "SELECT a FROM t LIMIT 1")])


@pytest.mark.parametrize("ask", [check_gold, run_gold_for_flags, probe_gold])
def test_what_must_be_answered_is_never_taken_for_answered(
    db: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[[SqlVerifier, Path], object]
):
    run = WorkerPool.run

    def losing(self: WorkerPool, chains: Sequence[Sequence[Request]]) -> list[list[Reply]]:
        """Lose every request, but answer the one that comes before the probes."""
        before_probes = ask is probe_gold and "run" not in chains[0][0].payload
        return run(self, chains) if before_probes else [[Reply("lost") for _ in chain] for chain in chains]

    with SqlVerifier(cache_size=0) as verifier:
        ask(verifier, db)
        monkeypatch.setattr(WorkerPool, "run", losing)
        with pytest.raises(UserError, match=r"(1 of 1|2 of 2) requests got no answer"):
            ask(verifier, db)


def with_sql(folder: Path, db: Path) -> None:
    with SqlVerifier() as verifier:
        verifier.verify([(problem(db, "SELECT 1"), "```sql\nSELECT 2\n```")])


def with_math(folder: Path, db: Path) -> None:
    with MathVerifier(policy="math_verify") as verifier:
        verifier.verify([(Problem("p", "?", r"\frac{x}{2}", "math"), r"\boxed{0.5x}")])


def with_function(folder: Path, db: Path) -> None:
    (folder / "mine.py").write_text("def f(prompt, completion, **_): return 1.0\n")
    verifier = FunctionVerifier(function=f"{folder / 'mine.py'}:f")
    verifier.verify([(Problem("p", "?", "1", ""), "1")])


def with_function_check(folder: Path, db: Path) -> None:
    (folder / "mine.py").write_text("def f(prompt, completion, **_): return 1.0\n")
    FunctionVerifier(function=f"{folder / 'mine.py'}:f").check([Problem("p", "?", "1", "")])


@pytest.mark.parametrize("judge", [with_sql, with_math, with_function, with_function_check])
def test_workers_that_never_get_ready_are_one_sentence(tmp_path: Path, db: Path, judge: Callable[[Path, Path], None]):
    with (
        killing() as killed,
        pytest.raises(UserError, match="something ended it 20 times before it"),
    ):
        judge(tmp_path, db)
    assert len(killed) >= 20


def test_a_function_that_ends_its_own_process_is_not_called_again(tmp_path: Path):
    """Nothing outside ended it, and nothing else would come of calling it twice."""
    log = tmp_path / "calls"
    (tmp_path / "mine.py").write_text(
        f"import os\ndef f(prompt, completion, **_):\n    open({str(log)!r}, 'a').write('x')\n    os._exit(7)\n"
    )
    verifier = FunctionVerifier(function=f"{tmp_path / 'mine.py'}:f", timeout=20)
    [verdict] = verifier.verify([(Problem("p", "?", "1", ""), "1")])
    verifier.close()
    assert "ended its process with status 7" in verdict.detail and not verdict.scored
    assert log.read_text() == "x"


# Memory -------------------------------------------------------------------------------------------------------------

LIMITED = """
import resource, sys
size = int(sys.argv[1]) << 20
resource.setrlimit(resource.RLIMIT_AS, (size, size))
from dph.process.progress import show_messages
from dph.errors import UserError
from dph.types import Problem
from dph.verifiers import Verifiers
show_messages()
try:
    with Verifiers({"math": {"policy": "math_verify", "workers": 1, "memory_mb": int(sys.argv[2])}}) as verifiers:
        for _ in range(2):
            [verdict] = verifiers.verify([(Problem("q", "x", "x^2+2*x+1", "math"), r"\\boxed{(x+1)^2}")])
            print(verdict.outcome)
except UserError as error:
    print(error)
"""
UNPRIVILEGED = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(24, 24, 0, 0, 0)  # not even the superuser may then raise a limit (CAP_SYS_RESOURCE)
os.execv(sys.executable, [sys.executable, "-c", *sys.argv[1:]])
"""


def limited(system: int, option: int) -> tuple[list[str], list[str]]:
    """Lines on standard output and standard error of a process with so many MB that asks for a worker with others."""
    words = [sys.executable, "-c", UNPRIVILEGED, LIMITED, str(system), str(option)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr.splitlines()


def test_a_lower_limit_of_the_system_is_kept_and_said_once() -> None:
    found, said = limited(976, 2048)  # ulimit -v 1000000
    assert found == ["correct", "correct"]
    [line] = said
    assert "allows a process 976 MB of memory (ulimit -v)" in line and "instead of 2048 MB" in line
    assert limited(4096, 2048) == (["correct", "correct"], [])


@pytest.mark.parametrize(("system", "option"), [(45, 2048), (2048, 1), (2048, 10), (2048, 40)])
def test_a_worker_without_memory_to_start_is_one_sentence(system: int, option: int) -> None:
    found, said = limited(system, option)
    assert (len(found), said) == (1, []) and "could not start" in found[0]
    assert f"memory_mb is {option}, and the system may allow less" in found[0]
