"""A pool of worker processes: requests are spread over them, and sent again when a worker dies.

A worker that dies before a request has reached its limit is replaced, and its request is sent again: once if the
process crashed, many times if something outside ended it.
"""

import contextlib
import os
import queue
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from dph.types import Outcome
from dph.verifiers.sandbox.worker import REMEDY, Reply, Request, Worker, WorkersFailed

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
