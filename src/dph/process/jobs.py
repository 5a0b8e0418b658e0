"""A small scheduler that runs several `dph` commands in parallel, respecting their dependencies."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

from dph.config.text import read_json
from dph.errors import UserError
from dph.process.interrupts import PARENT
from dph.process.progress import progress, say

POLL_SECONDS = 0.2
_WATCH_SECONDS = 15.0
_PATIENCE_SECONDS = 60.0
"""Time for a job to save its state after the request to stop."""


@dataclass(frozen=True, slots=True)
class Job:
    """One `dph` command."""

    name: str
    arguments: tuple[str, ...]
    """Command-line arguments after `dph`."""
    needs: tuple[str, ...] = ()
    """Names of the jobs that must finish first."""
    threads: int = 1
    out: Path | None = None
    """Its run directory; the job is skipped if the run there is complete."""
    at_once: bool = False
    """`out` is not a run directory but appears when the job is done; the job is skipped if it is there."""

    @property
    def done(self) -> bool:
        """Whether what it makes is there."""
        return self.out is not None and (self.out.exists() if self.at_once else is_complete(self.out))


def run_jobs(
    jobs: Sequence[Job], logs: Path, slots: int, label: str, *, keep_going: bool = False, watch: bool = False
) -> list[str]:
    """Run all jobs on at most `slots` threads. Each job starts as soon as the jobs in `needs` have finished; earlier
    jobs in the sequence come first.

    The output of a job is written to `logs/<name>.log`. An interruption stops all jobs; a job that is asked to stop
    saves its state first. No job outlives this process.

    Args:
        keep_going: after a failure, skip only the jobs that need the failed one, instead of stopping all.
        watch: show what each running job says, with the time that it has left.
    Returns:
        One sentence for each job that failed or was skipped.
    Raises:
        UserError: a job failed and `keep_going` is not set; the message quotes the last line of its output.
        graphlib.CycleError: jobs need each other (a ValueError).
    """
    logs.mkdir(parents=True, exist_ok=True)
    complete = {job.name for job in jobs if job.done}
    missing = {job.name: job for job in jobs if job.name not in complete}
    places = {name: place for place, name in enumerate(missing)}
    graph = TopologicalSorter({name: set(job.needs) - complete for name, job in missing.items()})
    graph.prepare()
    ready: list[str] = []
    failed: dict[str, str] = {}
    running: dict[str, subprocess.Popen[bytes]] = {}
    threads = {job.name: min(slots, job.threads) for job in jobs}
    shown_at = time.monotonic()
    try:
        with progress(label, len(jobs), len(complete)) as shown:
            while True:
                ready = sorted([*ready, *graph.get_ready()], key=places.__getitem__)
                free = slots - sum(threads[name] for name in running)
                name = next((name for name in ready if threads[name] <= free), "")
                if name:
                    ready.remove(name)
                    running[name] = _start(missing.pop(name), logs)
                    shown.advance(0, ", ".join(running))
                    continue
                if not running:
                    break
                time.sleep(POLL_SECONDS)
                if watch and time.monotonic() - shown_at >= _WATCH_SECONDS:
                    shown_at = time.monotonic()
                    shown.advance(0, "; ".join(f"{name}: {_last_words(logs, name)}" for name in running))
                for name in [name for name, process in running.items() if process.poll() is not None]:
                    if running.pop(name).returncode == 0:
                        graph.done(name)
                    else:
                        text = f"{name} failed: {_last_words(logs, name)} (full log: {logs / name}.log)"
                        if not keep_going:
                            raise UserError(text)
                        say(text)
                        failed[name] = text
                    shown.advance(1, ", ".join(running))
            if missing:
                shown.advance(len(missing))
            failed |= {name: f"{name} was skipped because it needs a job that failed" for name in missing}
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            until = time.monotonic() + _PATIENCE_SECONDS
            for process in running.values():
                process.send_signal(number)
            while any(process.poll() is None for process in running.values()) and time.monotonic() < until:
                time.sleep(POLL_SECONDS)
    return list(failed.values())


def is_complete(run: Path) -> bool:
    """Whether a folder holds a complete run."""
    try:
        return read_json(run / "manifest.json").get("status") == "complete"
    except (UserError, AttributeError):
        return False


def _start(job: Job, logs: Path) -> subprocess.Popen[bytes]:
    threads = str(job.threads)
    changed = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "false"}
    with (logs / f"{job.name}.log").open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "dph", *job.arguments],  # -P: nothing of the current directory is imported
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=os.environ | changed | {PARENT: str(os.getpid())},
            start_new_session=True,  # Ctrl-C then reaches only this process, which tells the jobs to stop
        )


def _last_words(logs: Path, name: str) -> str:
    lines = (logs / f"{name}.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "no output"
