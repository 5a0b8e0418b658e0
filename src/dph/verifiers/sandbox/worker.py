"""A killable worker process: model output is executed there, never in the training process.

Each process is a fresh interpreter that loads one small module and speaks JSON lines over its pipes. The parent
enforces a limit on every request by killing the process, which also stops a long call inside a C library.
`dph.verifiers.sandbox.pool` sends requests to several workers.
"""

import functools
import json
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Number
from pathlib import Path
from typing import Any, Literal

from dph.errors import UserError
from dph.process.progress import warn
from dph.verifiers.sandbox.loop import CRASHES, TOO_LITTLE_MEMORY, Peer

_PACKAGE = Path(__file__).resolve().parents[2]
# The packages are registered empty, so that importing a worker's module does not run their __init__ and its imports.
_BOOTSTRAP = f"""
import importlib, json, os, sys, types
settings = json.loads(sys.argv[1])
for name, path in settings["packages"]:
    package = types.ModuleType(name)
    package.__path__ = [path]
    sys.modules[name] = package
sys.path += settings["path"]
importlib.import_module("dph.verifiers.sandbox.loop").take_pipes()
try:
    importlib.import_module(settings["module"]).main(**settings["options"])
except (MemoryError, SystemError):  # Python raises the second too when memory runs out
    os._exit({TOO_LITTLE_MEMORY})
"""
_START_LIMIT = 60.0  # seconds within which a new worker must be ready
GRACE = 0.3  # seconds beyond its own limit after which a worker is killed
_END_LIMIT = 2.0  # seconds that a worker has for ending what it started
_AHEAD = 8  # requests sent ahead to a worker; the answers to them must fit into a pipe (64 KiB)
_START_ATTEMPTS = 20  # attempts to start a worker that something outside kills before it is ready
REMEDY = "if memory is short, the system ends such processes: use fewer --workers, and repeat the command with --resume"
"""The advice when something outside ends worker processes."""


class WorkersFailed(UserError, RuntimeError):
    """Worker processes cannot be started, or something outside ends them again and again."""


@dataclass(frozen=True, slots=True)
class Request:
    """One message for a worker and the seconds it may take, by a `Clock`."""

    payload: Mapping[str, Any]
    limit: float


@dataclass(frozen=True, slots=True)
class Reply:
    """How a request ended.

    "ok": the worker answered with `value`; "timeout": it was killed at its limit; "crash": it ended by a fault in the
    process; "lost": something outside ended it. After "crash" and "lost", `value` is what the worker asked to be added
    to the payload if the request is sent again; `phase` is the worker's name for what it did at its end.
    """

    status: Literal["ok", "timeout", "crash", "lost"]
    value: Mapping[str, Any] = field(default_factory=dict)
    phase: str = ""


class Worker:
    """One process, started on first use and restarted after it died."""

    def __init__(self, module: str, options: Mapping[str, Any], path: Sequence[str] = ()) -> None:
        """module: full module name, must call `dph.verifiers.sandbox.loop.serve`; options: JSON-serialisable arguments
        of its main; path: import path besides the standard library."""
        names = [part.name for part in (_PACKAGE / "verifiers").iterdir() if part.is_dir()]
        parts = ["", "process", "verifiers", *(f"verifiers/{name}" for name in sorted(names))]
        packages = [(".".join(filter(None, ["dph", *part.split("/")])), str(_PACKAGE / part)) for part in parts]
        settings = {"packages": packages, "path": list(path), "module": module, "options": dict(options)}
        self._settings = json.dumps(settings)
        self._memory_mb = int(options.get("memory_mb", 0))
        self._process: subprocess.Popen[bytes] | None = None
        self._expired = False
        self._resume: Mapping[str, Any] = {}
        self._phase = ""

    def call(self, requests: Sequence[Request], stopped: threading.Event) -> list[Reply]:
        """Send requests and return the replies in order. If the process ends, its end is the last reply.

        A few requests are sent ahead, so that the process never waits for this one. The limit of each request counts
        from the previous answer. Once `stopped` is set, no further answers are awaited.
        """
        self._ensure_running()
        replies: list[Reply] = []
        sent = 0
        while len(replies) < len(requests):
            if stopped.is_set():
                self.stop()
                break
            ahead = requests[sent : len(replies) + _AHEAD]
            sent += len(ahead)
            answer = self._exchange([request.payload for request in ahead], requests[len(replies)].limit)
            if answer is None:
                replies.append(self._end())
                break
            replies.append(Reply("ok", answer))
        return replies

    def _end(self) -> Reply:
        """Why the process ended while a request was waiting."""
        code = self.stop()
        if self._expired or -code == signal.SIGXCPU:
            return Reply("timeout", phase=self._phase)
        return Reply("crash" if code < 0 and -code in CRASHES else "lost", self._resume, self._phase)

    @property
    def pid(self) -> int | None:
        """Id of the process; None if none is running."""
        return None if self._process is None else self._process.pid

    def _ensure_running(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.stop()
        command = [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, self._settings]
        status = 0
        for _ in range(_START_ATTEMPTS):
            # Unbuffered: a forked process could inherit the lock of a Python buffer in the held state.
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
            assert process.stdin is not None and process.stdout is not None
            self._process = process
            self._peer = Peer(process.pid, process.stdin.fileno(), process.stdout.fileno())
            ready = self._exchange([], _START_LIMIT)
            if ready is not None:
                if ready["unlimited"]:
                    _warn_of_unlimited_memory()
                if ready["memory_mb"] < self._memory_mb:
                    _say_lowered(ready["memory_mb"], self._memory_mb)
                return
            status = self.stop()
            if self._expired or status >= 0 or -status in CRASHES:
                raise WorkersFailed(
                    f"a worker process could not start (exit status {status}); unless its output above says why, it "
                    f"has too little memory: memory_mb is {self._memory_mb}, and the system may allow less (ulimit -v)"
                )
        raise WorkersFailed(
            f"a worker process could not start (exit status {status}): something ended it {_START_ATTEMPTS} times "
            f"before it was ready; {REMEDY}"
        )

    def _exchange(self, payloads: Sequence[Mapping[str, Any]], limit: float) -> Mapping[str, Any] | None:
        """Send payloads and receive the next answer; None if the process ended before, perhaps killed at its limit."""
        peer = self._peer
        peer.post(*(json.dumps(payload, default=_plain) for payload in payloads))
        self._resume, self._phase = {}, ""
        peer.clock.restart()
        while (message := peer.receive(limit)) is not None:
            if "extend" not in message:
                return message
            limit = message["extend"]
            self._resume, self._phase = message.get("resume", self._resume), message.get("phase", "")
            peer.clock.restart()
        self._expired = peer.clock.spent > limit
        if self._expired and self._process is not None:
            self._process.kill()
        return None

    def stop(self) -> int:
        """End the process, close its pipes and return its exit status (negative: the signal that ended it)."""
        process = self._process
        if process is None:
            return 0
        process.terminate()  # then it ends what it started
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(_END_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._forget(process)
        return process.returncode

    def disown(self) -> None:
        """Forget the process without killing it; for use in a fork of the process that started it."""
        if self._process is not None:
            self._process.returncode = 0  # it is not ours to wait for
            self._forget(self._process)

    def _forget(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _plain(value: Any) -> Any:
    """A JSON form of other values: numpy's as Python has them, another number as a float, all else as text."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return float(value) if isinstance(value, Number) else str(value)  # type: ignore[arg-type]


@functools.cache
def _warn_of_unlimited_memory() -> None:
    """Say once that the operating system does not limit the memory of workers."""
    warnings.warn(
        "this system does not enforce all limits on a verifier's workers (a query or an expression may take more "
        "memory than memory_mb); wall-clock limits hold. Use Linux to judge responses that you do not trust",
        RuntimeWarning,
        stacklevel=1,
    )


@functools.cache
def _say_lowered(allowed: int, wanted: int) -> None:
    warn(
        f"this system allows a process {allowed} MB of memory (ulimit -v), so a verifier's worker has that instead of "
        f"{wanted} MB: a response that needs more is an error"
    )
