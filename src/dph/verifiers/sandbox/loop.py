"""The loop of every worker process: limit itself, report that it is ready, answer each JSON line with a JSON line.

This module imports only the standard library, so that a new worker is ready in a few hundredths of a second.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from dph.process.parents import when_parent_ends

Message = dict[str, Any]
TOO_LITTLE_MEMORY = 99
"""Exit status of a worker that cannot even start with its memory."""


def _limit(memory_mb: int, *, may_write: bool) -> list[str]:
    """Cap the address space, forbid core dumps and, unless `may_write`, files; returns the limits that this system does
    not enforce. A lower limit that the process was started with stays."""
    try:
        import resource
    except ImportError:  # Windows
        return ["memory", "files", "processor time"]
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
    return unlimited


def _memory_mb(wanted: int) -> int:
    """The address space that this process may have, if that is less than the wanted one; else the wanted one."""
    try:
        import resource
    except ImportError:
        return wanted
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return wanted if soft == resource.RLIM_INFINITY else min(wanted, soft >> 20)


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
    unlimited = _limit(memory_mb, may_write=may_write)
    try:
        when_parent_ends(lambda: os._exit(1))  # a dead parent closes the pipe, but a busy worker would not notice
    except (RuntimeError, MemoryError):  # no space for another thread
        os._exit(TOO_LITTLE_MEMORY)
    send({"unlimited": unlimited, "memory_mb": _memory_mb(memory_mb)})
    for line in sys.stdin.buffer:
        send(handle(json.loads(line)))
