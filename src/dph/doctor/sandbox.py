"""Checks of the sandbox: which limits the system enforces, and whether it stops attacks on the verifiers."""

import json
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dph.doctor.finding import Finding, broken, note, ok
from dph.types import Outcome, Problem, Verdict
from dph.verifiers import Verifiers

_TIMEOUT = 1.0
_MATH_TIMEOUT = 3.0
_SLACK = 15.0  # seconds to stop a worker and start the next one on a busy machine
_GOLD = "SELECT count(*) FROM t"

# Runs in a separate process, because a limit cannot be raised again.
_PROBE = """
import json, sys
try:
    import resource
except ImportError:
    print(json.dumps({"memory": False, "files": False}))
    sys.exit()
found = {}
try:
    size = min(limit for limit in (1 << 30, *resource.getrlimit(resource.RLIMIT_AS)) if limit >= 0)
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    bytearray(2 << 30)
    found["memory"] = False
except MemoryError:
    found["memory"] = True
except (ValueError, OSError):
    found["memory"] = False
try:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    with open(sys.argv[1], "wb") as file:
        file.write(b"x")
    found["files"] = False
except OSError:
    found["files"] = True
except ValueError:
    found["files"] = False
print(json.dumps(found))
"""
_PROBE_CPU = """
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
except (ImportError, ValueError, OSError):
    raise SystemExit
import time
while time.process_time() < 3:
    pass
"""

_NOT_PROMISED = {
    "memory": "a response may use more memory than a worker is allowed to (queries stay within SQLite's own limit)",
    "files": "only SQLite's own checks prevent writes; there is no second line of defence",
    "processor time": "a worker may keep running if the process that should stop it is killed",
}

_ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r"
_BOMB = "WITH RECURSIVE r(n, s) AS (SELECT 1, 'x' UNION ALL SELECT n + 1, s || s FROM r) SELECT max(s) FROM r"
_ATTACKS = {
    "a write": ("DELETE FROM t", {Outcome.ERROR}),
    "a new file": ("ATTACH DATABASE 'stolen.sqlite' AS other", {Outcome.ERROR}),
    "an endless query": (_ENDLESS, {Outcome.TIMEOUT}),
    "a memory bomb": (_BOMB, {Outcome.ERROR, Outcome.TIMEOUT}),
}


def check_sandbox() -> list[Finding]:
    """Check which limits the system enforces on workers, then attack the verifiers; each must still work afterwards."""
    return [_limits(), *_attacks(), _math()]


def enforced_limits() -> dict[str, bool]:
    """Whether this system enforces the limits on memory, files and processor time of a process; tested by trying."""
    with tempfile.TemporaryDirectory(prefix="dph-doctor-") as folder:
        command = [sys.executable, "-I", "-S", "-c", _PROBE, str(Path(folder, "file"))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=folder)
    found: dict[str, bool] = json.loads(done.stdout)
    busy = subprocess.run([sys.executable, "-I", "-S", "-c", _PROBE_CPU], capture_output=True, timeout=60)
    stopped = {-getattr(signal, name) for name in ("SIGXCPU", "SIGKILL") if hasattr(signal, name)}
    return found | {"processor time": busy.returncode in stopped}


def _limits() -> Finding:
    found = enforced_limits()
    missing = [name for name, enforced in found.items() if not enforced]
    if not missing:
        return ok("limits of worker processes", f"{', '.join(found)} and wall-clock time are enforced")
    lost = "; ".join(f"{name}: {_NOT_PROMISED[name]}" for name in missing)
    advice = "to judge responses that you do not trust, use Linux (a container or virtual machine is sufficient)"
    return note("limits of worker processes", f"not enforced on this system: {lost}", advice)


def _attacks() -> list[Finding]:
    """Each attack must end in time with its expected outcome and change no file; the next query must be answered."""
    findings = []
    with (
        tempfile.TemporaryDirectory(prefix="dph-doctor-") as folder,
        Verifiers({"sql": {"workers": 1, "timeout": _TIMEOUT, "memory_mb": 512}}) as verifiers,
    ):
        path = Path(folder, "data.sqlite")
        connection = sqlite3.connect(path)
        connection.executescript("CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (1), (2), (3);")
        connection.close()
        before = path.read_bytes()
        problem = Problem("doctor", "How many?", _GOLD, "sql", {"db": str(path)})
        first = _judge(verifiers, problem, _GOLD)
        if not first.correct:
            return [broken("SQL verifier", f"a correct answer was judged {first.outcome} ({first.detail})", _REPORT)]
        findings.append(ok("SQL verifier", "a correct answer is accepted"))
        for number, (name, (sql, allowed)) in enumerate(_ATTACKS.items()):
            started = time.monotonic()
            verdict = _judge(verifiers, problem, sql)
            took = time.monotonic() - started
            trace = path.read_bytes() != before or [p.name for p in Path(folder).iterdir()] != [path.name]
            after = _judge(verifiers, problem, f"{_GOLD} WHERE n > -{number + 1}")  # not a cached verdict
            if verdict.outcome not in allowed or took > _TIMEOUT + _SLACK or trace or not after.correct:
                detail = (
                    f"ended as {verdict.outcome} after {took:.1f} s, {'files' if trace else 'no file'} changed; "
                    f"the next query: {after.outcome}"
                )
                findings.append(broken(name, detail, _REPORT))
            else:
                findings.append(ok(name, f"stopped ({verdict.outcome}, {took:.1f} s); the next query was answered"))
    return findings


_REPORT = "do not judge untrusted responses on this machine, and please report this"


def _judge(verifiers: Verifiers, problem: Problem, sql: str) -> Verdict:
    [verdict] = verifiers.verify([(problem, f"```sql\n{sql}\n```")])
    return verdict


def _math() -> Finding:
    """A fraction must equal its reduced form, and a tower of powers must end within the time limit."""
    half = Problem("doctor", "Half of one?", "1/2", "math")
    with Verifiers({"math": {"workers": 1, "timeout": _MATH_TIMEOUT}}) as verifiers:
        [first] = verifiers.verify([(half, r"\boxed{\frac{2}{4}}")])
        started = time.monotonic()
        [tower] = verifiers.verify([(half, r"\boxed{9^{9^{9^{9}}}}")])
        took = time.monotonic() - started
    if first.correct and not tower.correct and took < _MATH_TIMEOUT + _SLACK:
        return ok("mathematics", f"2/4 equals 1/2; a tower of powers ended in {took:.1f} s ({tower.outcome})")
    if first.outcome is Outcome.TIMEOUT:
        return note("mathematics", f"no verdict within {_MATH_TIMEOUT:g} s", "the machine may be busy; try again later")
    detail = f"2/4 against 1/2: {first.outcome} ({first.detail}); a tower of powers: {tower.outcome} after {took:.1f} s"
    return broken("mathematics", detail, "reinstall math-verify and sympy: pip install -c constraints.txt .")
