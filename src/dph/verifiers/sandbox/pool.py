"""A pool of killable worker processes: model output is executed there, never in the training process.

Each process is a fresh interpreter that loads one small module and speaks JSON lines over its pipes. The parent
enforces a limit on every request by killing the process, which also stops a long call inside a C library. A worker that
dies for another reason is replaced, and its request is sent again: once if the process crashed, many times if something
outside ended it.
"""

import contextlib
import functools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from numbers import Number
from pathlib import Path
from typing import Any, Literal, Self

from dph.errors import UserError
from dph.process.progress import warn
from dph.types import Outcome
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


_ATTEMPTS = {"crash": 2, "lost": 20}  # how often a request may end its worker so, without any progress
_PATIENCE = 30.0  # seconds from the first such end after which a request is not sent a third time
_LOST = {
    "timeout": (Outcome.TIMEOUT, "the worker was stopped at the time limit"),
    "crash": (Outcome.ERROR, "the worker process crashed twice on this"),
    "lost": (Outcome.INFRA_ERROR, f"something ended its worker process every time; {REMEDY}"),
}


def read_reply(reply: Reply) -> tuple[Outcome, str]:
    """Outcome and detail of a verifier worker's reply, also if the worker did not answer."""
    if reply.status != "ok":
        return _LOST[reply.status]
    return Outcome(reply.value["outcome"]), reply.value["detail"]


def _stop_all(workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.stop()


class WorkerPool:
    """Worker processes that run `main(**options)` of one module.

    The module must call `dph.verifiers.sandbox.loop.serve`. Processes start on first use and end with `close`, with the
    interpreter, or when the pool is garbage collected; a closed pool restarts on its next use. The pool is thread-safe:
    threads share the workers, so requests that run into their limits delay other threads but do not affect them
    otherwise. A process forked from this one gets its own workers.
    """

    def __init__(self, module: str, options: Mapping[str, Any], workers: int = 1, path: Sequence[str] = ()) -> None:
        """module: full module name; options: arguments of its main for JSON; path: import path besides the library."""
        self._workers = [Worker(module, options, path) for _ in range(workers)]
        self._finalizer = weakref.finalize(self, _stop_all, self._workers)
        self._open()
        _POOLS.add(self)

    def _open(self) -> None:
        """Create the queue of idle workers and the locks."""
        self._free: queue.LifoQueue[Worker] = queue.LifoQueue()  # last in, first out: its caches are warm
        for worker in self._workers:
            self._free.put(worker)
        self._closing = threading.Lock()

    def run(self, chains: Sequence[Sequence[Request]]) -> list[list[Reply]]:
        """Run all requests; the requests of a chain go to one worker, in order, so that it can reuse its caches.

        Returns the replies in the shape of `chains`. Raises WorkersFailed if workers cannot start.
        """
        stopped = threading.Event()

        def answered(chain: Sequence[Request]) -> list[Reply]:
            if stopped.is_set():
                return []
            try:
                with self._borrowed() as worker:
                    return _call_all(worker, chain, stopped)
            except BaseException:
                stopped.set()  # the other threads end after their current answer
                raise

        active = min(len(self._workers), len(chains))
        if active <= 1:
            return [answered(chain) for chain in chains]
        with ThreadPoolExecutor(active) as threads:
            try:
                return list(threads.map(answered, chains))
            except BaseException:
                stopped.set()
                raise

    def run_all(self, chains: Sequence[Sequence[Request]]) -> list[list[Reply]]:
        """As `run`, for requests that must not go unanswered, such as the check of gold answers.

        Raises WorkersFailed if something outside ended a request's workers every time.
        """
        replies = self.run(chains)
        if lost := sum(reply.status == "lost" for chain in replies for reply in chain):
            raise WorkersFailed(
                f"{lost} of {sum(map(len, chains))} requests got no answer: something ended their worker process every "
                f"time; {REMEDY}"
            )
        return replies

    @contextlib.contextmanager
    def _borrowed(self) -> Iterator[Worker]:
        worker = self._free.get()
        try:
            yield worker
        except BaseException:  # interrupted during an exchange: requests and answers no longer match
            worker.stop()
            raise
        finally:
            self._free.put(worker)

    def close(self) -> None:
        """Stop the processes after their current requests."""
        with self._closing:
            idle = [self._free.get() for _ in self._workers]
            _stop_all(idle)
            for worker in idle:
                self._free.put(worker)

    def pids(self) -> list[int]:
        """Process ids of the running workers."""
        return [worker.pid for worker in self._workers if worker.pid is not None]


class UsesWorkers:
    """Has a pool of workers, which stop at the end of a `with` block."""

    _pool: WorkerPool

    def close(self) -> None:
        """Stop the processes; a later call starts them again."""
        self._pool.close()

    def workers(self) -> list[int]:
        """Process ids of the running workers."""
        return self._pool.pids()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_POOLS: "weakref.WeakSet[WorkerPool]" = weakref.WeakSet()


def _after_fork() -> None:
    """Reset pools in a forked process: the workers, and the threads that may hold a lock, belong to the parent."""
    for pool in list(_POOLS):
        for worker in pool._workers:
            worker.disown()
        pool._open()


os.register_at_fork(after_in_child=_after_fork)


def _call_all(worker: Worker, chain: Sequence[Request], stopped: threading.Event) -> list[Reply]:
    """Replies to all requests of a chain. A request whose worker disappeared is sent again; if a named phase, which is
    work that the chain shares, hits its limit, that is the reply to the rest of the chain."""
    waiting = deque(chain)
    replies: list[Reply] = []
    ends: Counter[str] = Counter()  # of the workers that had the first waiting request, since it last made progress
    first_end = 0.0
    while waiting and not stopped.is_set():
        for reply in worker.call(list(waiting), stopped):
            if reply.status in _ATTEMPTS:
                payload = {**waiting[0].payload, **reply.value}
                if payload != waiting[0].payload:
                    waiting[0] = Request(payload, waiting[0].limit)
                    ends.clear()
                if not ends:
                    first_end = time.monotonic()
                ends[reply.status] += 1
                soon = time.monotonic() - first_end < _PATIENCE or ends.total() < 2
                if ends[reply.status] < _ATTEMPTS[reply.status] and soon:
                    continue  # this was the last reply, and the request still waits
            replies.append(reply)
            waiting.popleft()
            ends.clear()
            if reply.status == "timeout" and reply.phase:
                return replies + [reply] * len(waiting)
    return replies
