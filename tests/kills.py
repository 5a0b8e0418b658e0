"""Ends worker processes from outside while something runs, for tests of verifiers and stages on Linux."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def children(pid: int | str = "self") -> list[int]:
    """Process ids of a process's children, by default of this one's; none if it has ended."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found


def descendants(pid: int | str = "self") -> list[int]:
    """Process ids of a process's children, their children, and so on."""
    found = children(pid)
    for child in found:
        found += children(child)
    return found


def judging_seconds() -> float:
    """Processor time that this process's children, those that have ended and those that run, have taken so far: what
    limits count, however busy the machine is."""
    ended = os.times()
    return ended.children_user + ended.children_system + sum(processor_seconds(pid, 15) for pid in descendants())


def processor_seconds(pid: int, last: int = 13) -> float:
    """Processor time of a process, with last=15 also of its ended children; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:last])) / TICKS


def open_databases(pid: int) -> int:
    """How many SQLite files a process has open; 0 if it has ended."""
    files: set[str] = set()
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # closed since
                files.add(os.readlink(descriptor))
    return sum(file.endswith(".sqlite") for file in files)


@contextmanager
def killing(
    after: float = 0.0, databases: int = 0, most: int = 1_000_000, name: str = "SIGKILL"
) -> Iterator[list[int]]:
    """Kill every child that has opened so many databases and has since used `after` seconds of processor time, `most`
    of them; yields the killed ones so far.

    Without both it is killed at once. How fast a worker starts and queries on this machine plays no part.
    """
    killed: list[int] = []
    begun: dict[int, float] = {}  # processor seconds of those that have opened their databases
    done = threading.Event()

    def due(pid: int) -> bool:
        if pid not in begun:
            if open_databases(pid) < databases:
                return False
            begun[pid] = processor_seconds(pid)
        return processor_seconds(pid) - begun[pid] >= after

    def watch() -> None:
        while not done.wait(0.002):
            for pid in children():
                if len(killed) < most and pid not in killed and due(pid):
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
