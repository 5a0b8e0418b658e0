"""Run a `dph` command while a small file names the part of the training step that it is in.

    python -m benchmarks.reliability.phases MARKER train --preset …

The parts are wrapped from outside, so the package needs no code for it. The file holds the name of the part. When the
command ends by itself, MARKER.json holds the mean seconds and the number of calls of each part. Of several processes
that torchrun started, the first writes MARKER, the others MARKER-of-rank-N.
"""

import atexit
import json
import mmap
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dph.cli import main as cli
from dph.models.policy import Policy
from dph.process.interrupts import CommandInterrupts
from dph.runs.directory import RunDir
from dph.stages import train
from dph.training import checkpoints, rollouts, update
from dph.training.callbacks import monitor
from dph.verifiers import Verifiers

SIZE = 64
BETWEEN = "between"
PARTS: dict[str, tuple[tuple[Any, str], ...]] = {
    "loading": ((train, "load"),),
    "sampling": ((rollouts.RolloutCollector, "draw"),),
    "verification": ((Verifiers, "verify"),),
    "update": ((update.Updater, "update"),),
    "evaluation": ((monitor.Monitor, "measure"),),
    "checkpoint": ((checkpoints, "save"),),
    "logging": ((RunDir, "log"),),
    "final model": ((Policy, "save"), (RunDir, "finish")),
}
"""Functions of each part. The outermost one counts, except that verification within sampling is its own part."""


class Marker:
    """The file, and the parts that have begun and not ended."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(b" " * SIZE)
        with path.open("r+b") as file:
            self._view = mmap.mmap(file.fileno(), SIZE)
        self._open: list[str] = []
        self._part, self._since = BETWEEN, time.monotonic()
        self._spent: dict[str, list[float]] = {}
        atexit.register(lambda: path.with_suffix(".json").write_text(json.dumps(self.durations())))

    def durations(self) -> dict[str, tuple[float, int]]:
        return {part: (sum(times) / len(times), len(times)) for part, times in self._spent.items()}

    def enter(self, part: str) -> None:
        self._open.append(part)
        self._note()

    def leave(self) -> None:
        self._open.pop()
        self._note()

    def _note(self) -> None:
        inside = self._open[0] if self._open else BETWEEN
        if self._open == ["sampling", "verification"]:
            inside = "verification"
        if inside != self._part:
            now = time.monotonic()
            self._spent.setdefault(self._part, []).append(now - self._since)
            self._part, self._since = inside, now
            self._view[:] = inside.encode().ljust(SIZE)

    def wrap(self, part: str, owner: Any, name: str) -> None:
        """Make a function or method record its part."""
        inner = getattr(owner, name)
        bound = owner.__dict__.get(name)

        def outer(*args: Any, **named: Any) -> Any:
            self.enter(part)
            try:
                return inner(*args, **named)
            finally:
                self.leave()

        wrapped: Callable[..., Any] = staticmethod(outer) if isinstance(bound, classmethod) else outer
        setattr(owner, name, wrapped)


def read(path: Path) -> str:
    """The part that a marker file names; "start" before the first."""
    try:
        return path.read_bytes().decode().strip() or "start"
    except OSError:
        return "start"


def main() -> None:
    marker, rank = Path(sys.argv[1]), os.environ.get("RANK", "0")
    with CommandInterrupts():
        run(Marker(marker if rank == "0" else marker.with_name(f"{marker.name}-of-rank-{rank}")))


def run(marker: Marker) -> None:
    for part, functions in PARTS.items():
        for owner, name in functions:
            marker.wrap(part, owner, name)
    cli.main(sys.argv[2:])


if __name__ == "__main__":
    main()
