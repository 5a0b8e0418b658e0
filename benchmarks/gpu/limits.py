"""Commands with a time limit each, within the limit of their part. What a stopped command has written stays."""

import contextlib
import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks._support.lines import Lines

LOG_BYTES = 4 << 20
"""Of a part's log, the end is kept."""


@dataclass(frozen=True, slots=True)
class Command:
    """One measurement, or several."""

    name: str
    words: tuple[str, ...]
    seconds: float = math.inf
    """Its own limit."""
    after: str = ""
    """Name of the command whose files it reads, if any."""


def run(words: Sequence[str], seconds: float, log: Path, environment: Mapping[str, str]) -> int | None:
    """Run a command; returns its exit status, or None if it ran out of time and was killed with all that it started."""
    with log.open("ab") as file:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=dict(environment), start_new_session=True
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:  # also what a command that has ended left running
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def run_part(
    part: str,
    commands: Sequence[Command],
    limit: float,
    out: Path,
    environment: Mapping[str, str],
    *,
    together: bool = False,
) -> dict[str, str]:
    """Run a part's commands; returns how each ended: "ok", "failed", "stopped" or "not run".

    limit: seconds for all of them. How each ended, and when, becomes a line of `out/<part>.jsonl`; what they print goes
    to `out/<part>.log`.
    together: run them side by side, except that a command waits for the one that it comes after; their lines mix.
    """
    running = _Part(part, limit, out, environment, [command.name for command in commands])
    with ThreadPoolExecutor(len(commands) if together and commands else 1) as pool:
        ends = dict(zip([command.name for command in commands], pool.map(running.run, commands), strict=True))
    shorten(running.log)
    return ends


class _Part:
    """A part that runs, in one thread or in one for each command."""

    def __init__(
        self, part: str, limit: float, out: Path, environment: Mapping[str, str], names: Sequence[str]
    ) -> None:
        self.log = out / f"{part}.log"
        self._part, self._environment = part, environment
        self._end, self._lines = time.monotonic() + limit, Lines(out / f"{part}.jsonl")
        self._over = {name: threading.Event() for name in names}

    def run(self, command: Command) -> str:
        """Run a command when the one before it has ended; returns how it ended."""
        if command.after:
            self._over[command.after].wait()
        begun = time.monotonic()
        left = min(command.seconds, self._end - begun)
        if left <= 0:
            end = "not run"
        else:
            print(f"part {self._part}: {command.name} (at most {left:.0f} s)", flush=True)
            with self.log.open("ab") as file:
                file.write(f"\n== {command.name}\n".encode())
            status = run(command.words, left, self.log, self._environment)
            end = "stopped" if status is None else "failed" if status else "ok"
        seconds = round(time.monotonic() - begun, 1)
        self._lines.add("command", name=command.name, end=end, seconds=seconds)
        print(f"part {self._part}: {command.name}: {end} after {seconds} s", flush=True)
        self._over[command.name].set()
        return end


def shorten(log: Path, most: int = LOG_BYTES) -> None:
    """Keep only the end of a log."""
    content = log.read_bytes() if log.is_file() else b""
    if len(content) > most:
        log.write_bytes(content[-most:])
