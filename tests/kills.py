"""Ends worker processes from outside while something runs, for tests of verifiers and stages on Linux."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def children() -> list[int]:
    """Process ids of this process's children."""
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            found += map(int, (task / "children").read_text().split())
    return found


def processor_seconds(pid: int) -> float:
    """Processor time of a process; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def killing(after: float, most: int = 1_000_000, name: str = "SIGKILL") -> Iterator[list[int]]:
    """Kill every child that has used `after` seconds of processor time, `most` of them; yields the killed ones so far.

    A worker needs less than 0.1 s until it is ready, and its work counts from there.
    """
    killed: list[int] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            for pid in children():
                if len(killed) < most and pid not in killed and processor_seconds(pid) >= after:
                    with suppress(ProcessLookupError):
                        os.kill(pid, getattr(signal, name))
                        killed.append(pid)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        done.set()
        thread.join()
