"""A pool of killable worker processes: what a model wrote runs there, never in the training process.

A worker is a fresh interpreter that loads one small module and speaks JSON lines over its pipes. The parent enforces
a wall-clock limit on every request by killing the process, which also stops a long call inside a C library. A worker
that dies for another reason is replaced and its request is tried once more.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, cast

from dph.types import Outcome

_PACKAGE = Path(__file__).resolve().parent.parent
# The packages are registered empty, so that importing a worker's module does not run their __init__ and all it loads.
_BOOTSTRAP = """
import importlib, json, sys, types
settings = json.loads(sys.argv[1])
for name, path in settings["packages"]:
    package = types.ModuleType(name)
    package.__path__ = [path]
    sys.modules[name] = package
sys.path += settings["path"]
importlib.import_module(settings["module"]).main(**settings["options"])
"""
_TICK = 0.05  # seconds between two looks at the deadlines
_START_LIMIT = 60.0  # seconds until a fresh worker must be ready
_LOST = {
    "timeout": (Outcome.TIMEOUT, "the worker was stopped at the time limit"),
    "crash": (Outcome.ERROR, "the worker process crashed twice on this"),
    "lost": (Outcome.INFRA_ERROR, "the worker process was lost twice"),
}
_CRASHES = {getattr(signal, name, None) for name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE")}


@dataclass(frozen=True, slots=True)
class Request:
    """One message for a worker and the seconds it may take."""

    payload: Mapping[str, Any]
    limit: float


@dataclass(frozen=True, slots=True)
class Reply:
    """How a request ended.

    "ok": the worker answered with `value`; "timeout": it was killed at its limit; "crash": the request killed two
    workers in a row by a fault of the process; "lost": two workers in a row went away from outside.
    """

    status: Literal["ok", "timeout", "crash", "lost"]
    value: Mapping[str, Any] = field(default_factory=dict)


def read_reply(reply: Reply) -> tuple[Outcome, str]:
    """Outcome and detail of a verifier worker's reply, or of its absence."""
    if reply.status != "ok":
        return _LOST[reply.status]
    return Outcome(reply.value["outcome"]), reply.value["detail"]


class _Worker:
    """One process, started when first needed and again after it died."""

    def __init__(self, settings: str) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._lock = threading.Lock()
        self._deadline: float | None = None
        self._expired = False

    def call(self, request: Request) -> Reply:
        """Send one request and wait for its answer, or for the process to end."""
        self._ensure_running()
        answer = self._exchange(request.payload, request.limit)
        if answer is not None:
            return Reply("ok", answer)
        expired = self._expired
        code = self._stop()
        if expired or -code == getattr(signal, "SIGXCPU", None):
            return Reply("timeout")
        return Reply("crash" if code < 0 and -code in _CRASHES else "lost")

    def kill_if_overdue(self, now: float) -> None:
        """Called by the watchdog thread; the lock keeps it from hitting the request that comes next."""
        with self._lock:
            if self._deadline is not None and now > self._deadline and self._process is not None:
                self._expired = True
                self._process.kill()

    def _ensure_running(self) -> None:
        if self._process is not None and self._owner == os.getpid() and self._process.poll() is None:
            return
        self._stop()
        command = [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, self._settings]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._owner = os.getpid()
        if self._exchange(None, _START_LIMIT) is None:
            raise RuntimeError(f"a worker process could not start (exit status {self._stop()}); see its output above")

    def _exchange(self, payload: Mapping[str, Any] | None, limit: float) -> Mapping[str, Any] | None:
        """Write a payload if there is one, read the answer; None when the process ended before it answered."""
        process = self._process
        assert process is not None
        stdin, stdout = cast(IO[bytes], process.stdin), cast(IO[bytes], process.stdout)
        self._set_deadline(limit)
        try:
            if payload is not None:
                stdin.write(json.dumps(payload).encode() + b"\n")
                stdin.flush()
            while line := stdout.readline():
                if not line.endswith(b"\n"):  # the process died while it wrote
                    return None
                message = json.loads(line)
                if "extend" not in message:
                    return message
                self._set_deadline(message["extend"])
            return None
        except OSError:
            return None
        finally:
            self._set_deadline(None)

    def _set_deadline(self, limit: float | None) -> None:
        with self._lock:
            self._deadline = None if limit is None else time.monotonic() + limit
            if limit is not None:
                self._expired = False

    def _stop(self) -> int:
        """End the process and free its pipes; returns its exit status (negative: the signal that ended it)."""
        process, self._process = self._process, None
        if process is None:
            return 0
        if self._owner == os.getpid():  # after a fork the process belongs to the parent
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # unsent bytes of a broken pipe
                    pipe.close()
        return process.returncode or 0

    stop = _stop


def _stop_all(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.stop()


class WorkerPool:
    """Worker processes that run `main(**options)` of one module of this package.

    The module must call `worker_loop.serve`. Processes start at the first `run` and end with `close`, with the
    interpreter, or when the pool is garbage collected; a closed pool starts again when it is used.
    """

    def __init__(self, module: str, options: Mapping[str, Any], workers: int = 1, path: Sequence[str] = ()) -> None:
        """module: full module name; options: JSON-able arguments of its main; path: import path besides the
        standard library."""
        packages = [("dph", str(_PACKAGE)), ("dph.verifiers", str(_PACKAGE / "verifiers"))]
        settings = {"packages": packages, "path": list(path), "module": module, "options": dict(options)}
        self._workers = [_Worker(json.dumps(settings)) for _ in range(workers)]
        self._busy = threading.Lock()
        self._finalizer = weakref.finalize(self, _stop_all, self._workers)

    def run(self, chains: Sequence[Sequence[Request]]) -> list[list[Reply]]:
        """Run all requests; those of one chain go to one worker, in order, so that it can reuse what it has cached.

        Returns the replies in the shape of `chains`. Raises RuntimeError when workers cannot start.
        """
        todo = deque(enumerate(chains))
        replies: list[list[Reply]] = [[] for _ in chains]

        def drain(worker: _Worker) -> None:
            while True:
                try:
                    index, chain = todo.popleft()
                except IndexError:
                    return
                replies[index] = [_call_twice(worker, request) for request in chain]

        with self._busy, self._watchdog():
            try:
                active = self._workers[: len(chains)]
                if len(active) <= 1:
                    for worker in active:
                        drain(worker)
                else:
                    with ThreadPoolExecutor(len(active)) as threads:
                        try:
                            list(threads.map(drain, active))
                        except BaseException:
                            todo.clear()
                            raise
            except BaseException:  # interrupted in the middle of an exchange: those pipes are out of step
                _stop_all(self._workers)
                raise
        return replies

    def close(self) -> None:
        """Stop the processes."""
        with self._busy:
            _stop_all(self._workers)

    def pids(self) -> list[int]:
        """Process ids of the workers that have been started."""
        return [worker._process.pid for worker in self._workers if worker._process is not None]

    @contextlib.contextmanager
    def _watchdog(self):
        done = threading.Event()

        def watch() -> None:
            while not done.wait(_TICK):
                now = time.monotonic()
                for worker in self._workers:
                    worker.kill_if_overdue(now)

        thread = threading.Thread(target=watch, daemon=True, name="dph-verifier-watchdog")
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def _call_twice(worker: _Worker, request: Request) -> Reply:
    reply = worker.call(request)
    return worker.call(request) if reply.status in ("crash", "lost") else reply
