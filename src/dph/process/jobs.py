"""A small scheduler that runs several `dph` commands in parallel and respects their dependencies."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from dph.config.text import read_json
from dph.errors import UserError
from dph.process.interrupts import PARENT
from dph.process.places import check_place
from dph.process.progress import progress, say

LOADED = "dph.cli.loaded"
FORKED_FROM = 2
"""From this number of jobs on, the jobs share the libraries that one process loads. A single job loads them itself."""
_PYTHON = (sys.executable, "-P", "-m")  # -P: no module of the current directory is imported
POLL_SECONDS = 0.2
_WATCH_SECONDS = 15.0
_PATIENCE_SECONDS = 60.0
"""The time that a job has for saving its state after it was asked to stop."""


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
    """The run directory of the job. The job is skipped if the run there is complete."""
    at_once: bool = False
    """Whether `out` is not a run directory, but a file or folder that appears when the job is done. The job is skipped
    if it exists."""

    @property
    def done(self) -> bool:
        """Whether the output of the job exists."""
        return self.out is not None and (self.out.exists() if self.at_once else is_complete(self.out))


def run_jobs(
    jobs: Sequence[Job], logs: Path, slots: int, label: str, *, keep_going: bool = False, watch: bool = False
) -> list[str]:
    """Run all jobs. Returns one sentence for each job that failed or was skipped.

    A job starts as soon as the jobs in its `needs` have finished and threads are free. Of the jobs that may start, the
    earliest in `jobs` starts first. The output of a job is written to `logs/<name>.log`. An interruption stops all
    jobs, and a job that is asked to stop saves its state first. No job outlives this process.

    Args:
        jobs: the jobs, with distinct names.
        logs: the folder of the logs.
        slots: the number of threads that all jobs together may use.
        label: the name of the work, shown next to its progress.
        keep_going: whether a failure skips only the jobs that need the failed one. Otherwise a failure stops all jobs.
        watch: whether the last line of each running job is shown from time to time.
    Raises:
        UserError: a job failed, and `keep_going` is off. The message has the last line of the output of the job.
        graphlib.CycleError: jobs need each other. It is a ValueError.
    """
    check_place(logs / "log")
    logs.mkdir(parents=True, exist_ok=True)
    complete = {job.name for job in jobs if job.done}
    missing = {job.name: job for job in jobs if job.name not in complete}
    places = {name: place for place, name in enumerate(missing)}
    graph = TopologicalSorter({name: set(job.needs) - complete for name, job in missing.items()})
    graph.prepare()
    ready: list[str] = []
    failed: dict[str, str] = {}
    running: dict[str, subprocess.Popen[bytes] | Forked] = {}
    forks = Forks() if len(missing) >= FORKED_FROM and sys.platform == "linux" else None
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
                    running[name] = _start(missing.pop(name), logs, forks)
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
        if forks is not None:
            forks.close()
    return list(failed.values())


def is_complete(run: Path) -> bool:
    """Whether a folder holds a complete run."""
    try:
        return read_json(run / "manifest.json").get("status") == "complete"
    except (UserError, AttributeError):
        return False


def _start(job: Job, logs: Path, forks: "Forks | None") -> "subprocess.Popen[bytes] | Forked":
    threads, log = str(job.threads), logs / f"{job.name}.log"
    changed = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "false"}
    log.unlink(missing_ok=True)  # it may be a link
    with log.open("xb") as file:
        if forks is not None:
            return Forked(forks, job.arguments, changed, log)
        return subprocess.Popen(
            [*_PYTHON, "dph", *job.arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=os.environ | changed | {PARENT: str(os.getpid())},
            start_new_session=True,  # Ctrl-C then reaches only this process, which asks the jobs to stop
        )


class Forks:
    """Starts commands as children of one process that has loaded their libraries (`dph.cli.loaded`)."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [*_PYTHON, LOADED],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        self._asked = 0

    def ask(self, request: Any) -> int | None:
        """The answer of the process to a request. If the process has ended, the answer is −9, because its children then
        end too."""
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None and answers is not None
        self._asked += 1
        try:
            requests.write(json.dumps([self._asked, request]).encode() + b"\n")
            requests.flush()
            while True:
                number, answer = json.loads(answers.readline())
                if number == self._asked:  # another number answers a request that was interrupted
                    return answer
        except (BrokenPipeError, ValueError):
            return -signal.SIGKILL

    def close(self) -> None:
        """End the process, and wait until it has ended."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()


class Forked:
    """A command that `Forks` has started, with the methods of `Popen` that jobs use."""

    def __init__(self, forks: Forks, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Start `dph` with these arguments and changes of the environment. The output of the command is appended to the
        log."""
        self._forks, self.returncode = forks, None
        self._number = forks.ask({"arguments": arguments, "environment": environment, "log": str(log.absolute())})

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._forks.ask(self._number)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None and self._number is not None:
            os.kill(self._number, number)  # a zombie at worst: `poll` would have said that the process has ended


def _last_words(logs: Path, name: str) -> str:
    lines = (logs / f"{name}.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "no output"
