"""The loop of every worker process: limit itself, report that it is ready, answer each JSON line with a JSON line.
`Peer` is the other end of such a loop, and `Clock` keeps its limits on time; `Forked` handles requests in a forked
child, for handlers whose imports take seconds.

Standard library only, so that a new worker is ready in a few hundredths of a second.
"""

import atexit
import contextlib
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from dph.process.interrupts import when_parent_ends

Message = dict[str, Any]
TOO_LITTLE_MEMORY = 99
"""Exit status of a worker that cannot even start with its memory."""


def _limit(memory_mb: int, *, may_write: bool) -> int:
    """Cap the address space (macOS would not enforce it), forbid core dumps and, unless `may_write`, files.

    Returns the MB of memory: less than `memory_mb` if the process was started with a lower limit, which stays.
    """
    limits = {} if sys.platform == "darwin" else {resource.RLIMIT_AS: memory_mb << 20}
    limits |= {resource.RLIMIT_CORE: 0} | ({} if may_write else {resource.RLIMIT_FSIZE: 0})
    for kind, value in limits.items():
        hard = resource.getrlimit(kind)[1]
        limits[kind] = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (limits[kind], limits[kind]))
    return min(memory_mb, limits.get(resource.RLIMIT_AS, memory_mb << 20) >> 20)


def limit_cpu(seconds: float) -> None:
    """Limit this process to about `seconds` more CPU time, so that it dies even if its parent is gone."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(usage.ru_utime + usage.ru_stime + seconds) + 2
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]  # perhaps set from outside; it can only be lowered
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


@contextlib.contextmanager
def one_process() -> Iterator[None]:
    """Ends every process that leaves the block, and is not the one that entered it: other code may fork."""
    own = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != own:
            os._exit(1)


_pipes: list[BinaryIO] = []
"""Where requests come from and answers go to, in a worker."""


def take_pipes() -> None:
    """Keep standard input and output for requests and answers. What other code, also in C, reads from standard input
    is empty from now on, and what it writes to standard output goes to standard error."""
    nowhere = os.open(os.devnull, os.O_RDWR)  # also if this process has no standard error: this is the lowest number
    _pipes[:] = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(nowhere, 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr


def send(message: Message) -> None:
    """Write one message to the parent."""
    _pipes[1].write(json.dumps(message).encode() + b"\n")
    _pipes[1].flush()


def serve(handle: Callable[[Message], Message], memory_mb: int, *, may_write: bool = False) -> None:
    """Answer requests until the parent closes the pipe.

    A handler may `send({"extend": seconds})` before its answer: this starts a new phase with that time limit, and with
    the name "phase" if the message has one. With "resume": {…} in this message, a request whose process is lost later
    is sent again with these values added, so that the handler need not repeat what is done.

    memory_mb: address space of this process. may_write: allow it to write files.
    """
    for ignored in (signal.SIGINT, signal.SIGHUP):  # the parent handles Ctrl-C and the end of a terminal
        signal.signal(ignored, signal.SIG_IGN)
    memory_mb = _limit(memory_mb, may_write=may_write)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:  # a dead parent closes the pipe, but a busy worker would not notice
        when_parent_ends(lambda: os.kill(os.getpid(), signal.SIGTERM))
    except (RuntimeError, MemoryError):  # no space for another thread
        os._exit(TOO_LITTLE_MEMORY)
    send({"unlimited": sys.platform == "darwin", "memory_mb": memory_mb})
    for line in _pipes[0]:
        send(handle(json.loads(line)))


TICK = 0.05
"""Seconds between two looks at a clock."""
_SECOND = os.sysconf("SC_CLK_TCK")  # units of processor time


class Clock:
    """The seconds that a process has `spent` since `restart`: its processor time, and the time that it slept.

    Time in which it was stopped or waited for a processor or a disk does not count, nor does a pause of the whole
    machine, so a limit on this clock depends neither on pauses nor on load. Somebody must `tick` it every TICK seconds,
    which also continues a process that something has stopped. If the system does not say what a process does (not
    Linux), all time counts but pauses of the caller.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.restart()

    def restart(self) -> None:
        self.spent, self._seen, (self.state, self._used) = 0.0, time.monotonic(), self._look()

    def tick(self) -> None:
        now, (self.state, used) = time.monotonic(), self._look()
        slept = min(now - self._seen, 2 * TICK) if self.state in "SZ" else 0.0  # the caller was paused if it is longer
        self.spent += max(min(used - self._used, now - self._seen), slept)
        self._seen, self._used = now, used
        if self.state == "T":
            os.kill(self._pid, signal.SIGCONT)

    def _look(self) -> tuple[str, float]:
        """The state of the process (S: it sleeps; T: it is stopped; Z: it has ended), and its processor seconds."""
        try:
            with open(f"/proc/{self._pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            return "S", 0.0
        return fields[0], (int(fields[11]) + int(fields[12])) / _SECOND


_CHUNK = 1 << 16


class Peer:
    """A process with which JSON lines are exchanged, and its clock."""

    def __init__(self, pid: int, to: int, source: int) -> None:
        """to, source: descriptors of the pipes to and from the process."""
        self.clock = Clock(pid)
        self._to, self._source = to, source
        self._unsent, self._received = bytearray(), b""

    def post(self, *lines: str) -> None:
        """Add messages that `receive` will send."""
        self._unsent += b"".join(line.encode() + b"\n" for line in lines)

    def receive(self, limit: float, each_tick: Callable[[], None] = lambda: None) -> Any:
        """The next message; None if the clock is beyond `limit` (seconds), or the process has ended."""
        looked = time.monotonic()
        while b"\n" not in self._received:
            poll = select.poll()
            poll.register(self._source, select.POLLIN)
            if self._unsent:
                poll.register(self._to, select.POLLOUT)
            ready = [descriptor for descriptor, _ in poll.poll(1000 * TICK)]
            try:
                if self._to in ready:
                    del self._unsent[: os.write(self._to, self._unsent[: select.PIPE_BUF])]
                if self._source in ready:
                    chunk = os.read(self._source, _CHUNK)
                    if not chunk:
                        return None
                    self._received += chunk
            except OSError:
                return None
            if b"\n" in self._received:  # in time, however long this process was paused
                break
            if time.monotonic() - looked >= TICK:
                looked = time.monotonic()
                self.clock.tick()
                each_tick()
            if self.clock.spent > limit or (self.clock.state == "Z" and not ready):  # its children may hold the pipe
                return None
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line)


CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
_ALIVE = 2.0  # seconds beyond the limit that the worker has for saying that it still watches its child
_ADOPTS = 36  # PR_SET_CHILD_SUBREAPER


class Forked:
    """Calls a handler in a child process, with the limit that the request's "timeout" sets (in seconds; see `Clock`).

    Answers have "outcome" and "detail": the handler's, "timeout" if the child was stopped, "error" if it
    crashed or ended itself. If something outside ends the child, this process ends too, and the pool sends the request
    again. Processes that the handler starts end with the child, and only the child can answer.
    """

    def __init__(self, handle: Callable[[Message], Message]) -> None:
        self._handle = handle
        self._child = self._number = 0
        self._pipes = (-1, -1)
        """To the child and from it."""
        self._older: set[int] = set()
        """Processes that the handler's file started when it was imported; they end with this process."""

    def __call__(self, request: Message) -> Message:
        if not self._child:
            self._start()
        for orphan in _children() - self._older - {self._child}:
            os.waitpid(orphan, os.WNOHANG)  # perhaps it has ended
        peer, limit = self._peer, request["timeout"]
        self._number += 1
        peer.clock.restart()
        peer.post(json.dumps([self._number, request]))
        while received := peer.receive(limit, lambda: send({"extend": limit + _ALIVE})):
            if received[0] == self._number:
                return received[1]
        status = self._stop()
        if peer.clock.spent > limit or -status == signal.SIGXCPU:
            return {"outcome": "timeout", "detail": "stopped at the time limit"}
        if -status in CRASHES:
            return {"outcome": "error", "detail": f"crashed by signal {-status}"}
        if status >= 0:
            return {"outcome": "error", "detail": f"ended its process with status {status}"}
        raise SystemExit(1)

    def _start(self) -> None:
        if not self._number:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
            atexit.register(self._end)
            self._older = _children()
            if sys.platform == "linux":
                import ctypes

                ctypes.CDLL(None).prctl(_ADOPTS, 1, 0, 0, 0)  # orphans of the child become children of this process
        down, to = os.pipe()
        source, up = os.pipe()
        self._pipes = to, source
        self._child = os.fork()
        if self._child == 0:
            try:
                self._serve(down, up)
            finally:
                os._exit(1)
        os.close(down)
        os.close(up)
        self._peer = Peer(self._child, to, source)

    def _serve(self, down: int, up: int) -> None:
        """Answer requests, in the child."""
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for unneeded in (*self._pipes, *(pipe.fileno() for pipe in _pipes)):
            os.close(unneeded)  # the worker's pipes must close when the worker ends
        when_parent_ends(lambda: os.killpg(0, signal.SIGKILL))
        with os.fdopen(down, "rb") as requests, os.fdopen(up, "wb") as answers:
            for line in requests:
                number, request = json.loads(line)
                with one_process():
                    answer = self._handle(request)
                answers.write(json.dumps([number, answer]).encode() + b"\n")
                answers.flush()
        os.killpg(0, signal.SIGKILL)  # the worker has ended

    def _stop(self) -> int:
        """Kill the child and all that it started; its exit status (negative: the signal that ended it)."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it may not lead its group yet
            os.killpg(self._child, signal.SIGKILL)
        os.kill(self._child, signal.SIGKILL)
        _, status = os.waitpid(self._child, 0)
        for pipe in self._pipes:
            os.close(pipe)
        self._child = 0
        self._kill_orphans()
        return os.waitstatus_to_exitcode(status)

    def _kill_orphans(self) -> None:
        while orphans := _children() - self._older:
            for orphan in orphans:
                os.kill(orphan, signal.SIGKILL)
                os.waitpid(orphan, 0)

    def _end(self) -> None:
        if self._child:
            self._stop()
        self._older = set()
        self._kill_orphans()


def _children() -> set[int]:
    """Process ids of this process's children, which only Linux tells."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return set(map(int, file.read().split()))
    except OSError:
        return set()
