"""A worker that handles its requests in a forked child, for handlers whose imports take seconds.

Stopping a request kills only the child; the next child is forked within milliseconds from the process that has
everything loaded. Where fork is missing (Windows), the worker handles requests itself, and the pool replaces the worker
when it kills it.
"""

import json
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any

from dph.process.parents import when_parent_ends

Message = dict[str, Any]
_CRASHES = {getattr(signal, name, None) for name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE")}
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
        if -status in _CRASHES:
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
