"""Runs of `dph` side by side: a small scheduler for commands that depend on each other."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dph.errors import UserError
from dph.process.orphans import PARENT
from dph.process.progress import progress, say

_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 60.0
"""How long a job that was told to stop may take to save its state."""


@dataclass(frozen=True, slots=True)
class Job:
    """One `dph` command."""

    name: str
    arguments: tuple[str, ...]
    """Words after `dph`."""
    needs: tuple[str, ...] = ()
    """Names of jobs that must have finished before."""
    threads: int = 1
    out: Path | None = None
    """Its run directory, where a run that is complete there already need not be started again."""


@dataclass(slots=True)
class _Running:
    job: Job
    process: "subprocess.Popen[bytes]"
    log: Path


def run_jobs(jobs: Sequence[Job], logs: Path, slots: int, label: str, *, keep_going: bool = False) -> list[str]:
    """Run all jobs, at most `slots` threads at a time, in the order given as far as their needs allow.

    Each job's output goes to `logs/<name>.log`. When one fails, the others are stopped and UserError names it, with its
    last words; with `keep_going` only those that need it are left out. Interrupting stops all; jobs that are told to
    stop save their state first. No job outlives this process.

    Returns a sentence for each job that failed.
    """
    logs.mkdir(parents=True, exist_ok=True)
    finished = {job.name for job in jobs if job.out is not None and _complete(job.out)}
    waiting = [job for job in jobs if job.name not in finished]
    failed: dict[str, str] = {}
    running: list[_Running] = []
    try:
        with progress(label, len(jobs), len(finished)) as shown:
            while waiting or running:
                free = slots - sum(min(slots, item.job.threads) for item in running)
                ready = [job for job in waiting if finished.issuperset(job.needs) and min(slots, job.threads) <= free]
                if ready:
                    waiting.remove(ready[0])
                    running.append(_start(ready[0], logs))
                    shown.advance(0, ", ".join(item.job.name for item in running))
                    continue
                doomed = [job for job in waiting if not failed.keys().isdisjoint(job.needs)]
                for job in doomed:
                    waiting.remove(job)
                    failed[job.name] = f"{job.name} was left out, since it needs what failed"
                    shown.advance(1)
                if doomed:
                    continue
                if not running:
                    raise ValueError(f"jobs wait for each other: {', '.join(job.name for job in waiting)}")
                time.sleep(_POLL_SECONDS)
                for item in [item for item in running if item.process.poll() is not None]:
                    running.remove(item)
                    if item.process.returncode == 0:
                        finished.add(item.job.name)
                    else:
                        text = f"{item.job.name} failed: {_last_words(item.log)} (whole log: {item.log})"
                        if not keep_going:
                            raise UserError(text)
                        say(text)
                        failed[item.job.name] = text
                    shown.advance(1, ", ".join(left.job.name for left in running))
    finally:
        for item in running:
            item.process.terminate()
        for item in running:
            try:
                item.process.wait(_PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                item.process.kill()
                item.process.wait()
    return list(failed.values())


def _complete(run: Path) -> bool:
    try:
        return json.loads((run / "manifest.json").read_text(encoding="utf-8")).get("status") == "complete"
    except (OSError, ValueError, AttributeError):
        return False


def _start(job: Job, logs: Path) -> _Running:
    log = logs / f"{job.name}.log"
    threads = str(job.threads)
    environment = os.environ | {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "TOKENIZERS_PARALLELISM": "false",
        PARENT: str(os.getpid()),
    }
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "dph", *job.arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches this process only, which then asks the jobs to stop
        )
    return _Running(job, process, log)


def _last_words(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
