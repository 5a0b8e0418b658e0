"""Commands with a time limit each, within the limit of their part. What a stopped command has written stays."""

import contextlib
import math
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lines import Lines

LOG_BYTES = 4 << 20
"""Of a part's log, the end is kept."""


@dataclass(frozen=True, slots=True)
class Command:
    """One measurement, or several."""

    name: str
    words: tuple[str, ...]
    seconds: float = math.inf
    """Its own limit."""


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
    part: str, commands: Sequence[Command], limit: float, out: Path, environment: Mapping[str, str]
) -> dict[str, str]:
    """Run a part's commands one after the other; returns how each ended: "ok", "failed", "stopped" or "not run".

    limit: seconds for all of them. How each ended, and when, becomes a line of `out/<part>.jsonl`; what they print goes
    to `out/<part>.log`.
    """
    started, log, lines = time.monotonic(), out / f"{part}.log", Lines(out / f"{part}.jsonl")
    ends: dict[str, str] = {}
    for command in commands:
        begun = time.monotonic()
        left = min(command.seconds, limit - (begun - started))
        if left <= 0:
            ends[command.name] = "not run"
        else:
            print(f"part {part}: {command.name} (at most {left:.0f} s)", flush=True)
            with log.open("ab") as file:
                file.write(f"\n== {command.name}\n".encode())
            status = run(command.words, left, log, environment)
            ends[command.name] = "stopped" if status is None else "failed" if status else "ok"
        seconds = round(time.monotonic() - begun, 1)
        lines.add("command", name=command.name, end=ends[command.name], seconds=seconds)
        print(f"part {part}: {command.name}: {ends[command.name]} after {seconds} s", flush=True)
    shorten(log)
    return ends


def shorten(log: Path, most: int = LOG_BYTES) -> None:
    """Keep only the end of a log."""
    content = log.read_bytes() if log.is_file() else b""
    if len(content) > most:
        log.write_bytes(content[-most:])
