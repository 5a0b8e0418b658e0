"""The loop of every worker process: limit itself, report that it is ready, answer each JSON line with a JSON line; and
`Forked`, which handles requests in a forked child, for handlers whose imports take seconds.

Standard library only, so that a new worker is ready in a few hundredths of a second. Where fork is missing (Windows),
the worker handles requests itself, and the pool replaces the worker when it kills it.
"""

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from dph.process.parents import when_parent_ends

Message = dict[str, Any]
TOO_LITTLE_MEMORY = 99
"""Exit status of a worker that cannot even start with its memory."""


def _limit(memory_mb: int, *, may_write: bool) -> tuple[list[str], int]:
    """Cap the address space, forbid core dumps and, unless `may_write`, files.

    Returns the limits that this system does not enforce, and the address space in MB that the process has: less than
    `memory_mb` if it was started with a lower limit, which stays.
    """
    try:
        import resource
    except ImportError:  # Windows
        return ["memory", "files", "processor time"], memory_mb
    unlimited = ["memory"] if sys.platform == "darwin" else []  # macOS accepts the limit but does not enforce it
    limits = {"RLIMIT_AS": memory_mb << 20, "RLIMIT_CORE": 0} | ({} if may_write else {"RLIMIT_FSIZE": 0})
    for kind, value in limits.items():
        try:
            hard = resource.getrlimit(getattr(resource, kind))[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(getattr(resource, kind), (value, value))
        except (ValueError, OSError):
            lost = {"RLIMIT_AS": "memory", "RLIMIT_FSIZE": "files"}.get(kind)
            unlimited += [lost] if lost and lost not in unlimited else []
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return unlimited, memory_mb if soft == resource.RLIM_INFINITY else min(memory_mb, soft >> 20)


def limit_cpu(seconds: float) -> None:
    """Limit this process to about `seconds` more CPU time, so that it dies even if its parent is gone."""
    try:
        import resource
    except ImportError:
        return
    usage = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(usage.ru_utime + usage.ru_stime + seconds) + 2
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]  # perhaps set from outside; it can only be lowered
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def send(message: Message) -> None:
    """Write one message to the parent."""
    sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
    sys.stdout.buffer.flush()


def serve(handle: Callable[[Message], Message], memory_mb: int, *, may_write: bool = False) -> None:
    """Answer requests until the parent closes the pipe.

    A handler may `send({"extend": seconds})` before its answer: this starts a new phase with that time limit. With
    "resume": {…} in this message, a request whose process is lost later is sent again with these values added, so that
    the handler need not repeat what is done.

    memory_mb: address space of this process. may_write: allow it to write files.
    """
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)  # the parent handles Ctrl-C and the end of a terminal
    unlimited, memory_mb = _limit(memory_mb, may_write=may_write)
    try:
        when_parent_ends(lambda: os._exit(1))  # a dead parent closes the pipe, but a busy worker would not notice
    except (RuntimeError, MemoryError):  # no space for another thread
        os._exit(TOO_LITTLE_MEMORY)
    send({"unlimited": unlimited, "memory_mb": memory_mb})
    for line in sys.stdin.buffer:
        send(handle(json.loads(line)))


CRASHES = {getattr(signal, name, None) for name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE")}
_CHUNK = 1 << 16


class Forked:
    """Calls a handler in a child process, with the limit that the request's "timeout" sets (in seconds).

    Answers have "outcome" and "detail": those of the handler, "timeout" if the child was stopped, "error" if it
    crashed or ended itself. If something outside ends the child, this process ends too, and the pool sends the request
    again.
    """

    def __init__(self, handle: Callable[[Message], Message]) -> None:
        self._handle = handle
        self._child = 0
        self._to_child = self._from_child = -1

    def __call__(self, request: Message) -> Message:
        if not hasattr(os, "fork"):
            return self._handle(request)
        if not self._child:
            self._start()
        deadline = time.monotonic() + request["timeout"]
        answer = self._exchange(json.dumps(request).encode() + b"\n", deadline)
        if answer is not None:
            return json.loads(answer)
        expired = time.monotonic() >= deadline
        status = self._stop()
        if expired or -status == getattr(signal, "SIGXCPU", None):
            return {"outcome": "timeout", "detail": "stopped at the time limit"}
        if -status in CRASHES:
            return {"outcome": "error", "detail": f"crashed by signal {-status}"}
        if status >= 0:
            return {"outcome": "error", "detail": f"ended its process with status {status}"}
        raise SystemExit(1)

    def _start(self) -> None:
        down, self._to_child = os.pipe()
        self._from_child, up = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            try:
                os.close(self._to_child)
                os.close(self._from_child)
                nowhere = os.open(os.devnull, os.O_RDWR)
                os.dup2(nowhere, 0)  # the worker's pipes must close when the worker ends
                os.dup2(nowhere, 1)
                when_parent_ends(lambda: os._exit(1))
                with os.fdopen(down, "rb") as requests, os.fdopen(up, "wb") as answers:
                    for line in requests:
                        answers.write(json.dumps(self._handle(json.loads(line))).encode() + b"\n")
                        answers.flush()
            finally:
                os._exit(1)
        os.close(down)
        os.close(up)

    def _exchange(self, request: bytes, deadline: float) -> bytes | None:
        """Send a line and read a line; None if the time is up or the child has ended."""
        parts: list[bytes] = []
        while True:
            left = deadline - time.monotonic()
            wanted = ([self._from_child], [self._to_child] if request else [])
            readable, writable, _ = select.select(*wanted, [], max(0.0, left))
            if not readable and not writable:
                return None
            try:
                if writable:
                    request = request[os.write(self._to_child, request[: select.PIPE_BUF]) :]
                if readable:
                    parts.append(os.read(self._from_child, _CHUNK))
            except BrokenPipeError:
                return None
            if parts and (not parts[-1] or parts[-1].endswith(b"\n")):
                return b"".join(parts) if parts[-1] else None

    def _stop(self) -> int:
        """Kill the child and return its exit status (negative: the signal that ended it, perhaps an earlier one than
        ours)."""
        os.kill(self._child, signal.SIGKILL)
        _, status = os.waitpid(self._child, 0)
        os.close(self._to_child)
        os.close(self._from_child)
        self._child = 0
        return os.waitstatus_to_exitcode(status)
