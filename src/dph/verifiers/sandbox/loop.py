"""What every worker process does: limit itself, say that it is ready, answer one JSON line with one JSON line.

Workers import nothing but the standard library here, so that a fresh one is ready in a few hundredths of a second.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from dph.process.orphans import when_parent_ends

Message = dict[str, Any]


def _limit(memory_mb: int, *, may_write: bool) -> list[str]:
    """Cap the address space, forbid core dumps and, unless it may write, files; returns what this system does not
    enforce."""
    try:
        import resource
    except ImportError:  # Windows
        return ["memory", "files", "processor time"]
    unlimited = ["memory"] if sys.platform == "darwin" else []  # macOS takes the limit and does not heed it
    limits = {"RLIMIT_AS": memory_mb << 20, "RLIMIT_CORE": 0} | ({} if may_write else {"RLIMIT_FSIZE": 0})
    for kind, value in limits.items():
        try:
            resource.setrlimit(getattr(resource, kind), (value, value))
        except (ValueError, OSError):
            lost = {"RLIMIT_AS": "memory", "RLIMIT_FSIZE": "files"}.get(kind)
            unlimited += [lost] if lost and lost not in unlimited else []
    return unlimited


def limit_cpu(seconds: float) -> None:
    """Let this process use about `seconds` more CPU time: it dies even if the parent that should kill it is gone."""
    try:
        import resource
    except ImportError:
        return
    usage = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(usage.ru_utime + usage.ru_stime + seconds) + 2
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]  # may be given from outside; it can only be lowered
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def send(message: Message) -> None:
    """Write one message to the parent."""
    sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
    sys.stdout.buffer.flush()


def serve(handle: Callable[[Message], Message], memory_mb: int, *, may_write: bool = False) -> None:
    """Answer requests until the parent closes the pipe.

    A handler may `send({"extend": seconds})` before its answer: a new phase begins, and may take so long.

    memory_mb: address space of this process. may_write: it may write files.
    """
    if hasattr(signal, "SIGINT"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    unlimited = _limit(memory_mb, may_write=may_write)
    when_parent_ends(lambda: os._exit(1))  # a killed parent closes the pipe, but a busy worker would not notice
    send({"unlimited": unlimited})
    for line in sys.stdin.buffer:
        send(handle(json.loads(line)))
