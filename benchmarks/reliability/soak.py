"""A long training run in the embedded world: do memory, descriptors, processes and disk use stay constant?

    python -m benchmarks.reliability.soak --minutes 120 --out runs/soak
    python -m benchmarks.reliability.soak --minutes 30 --out runs/soak-kills --kill-workers 3 --same-as runs/soak
    python -m benchmarks.reliability.soak --out runs/soak --draw            # figure and summary of the samples so far

DPH-JS trains with an evaluation and a checkpoint every 20 steps, and gets SIGTERM when the time is over.
--kill-workers SECONDS kills a random verifier process at that mean interval; --same-as then compares the metrics with
those of an undisturbed run, step by step. Linux only: it reads /proc.

Writes soak.csv, soak.png and soak.json beside the run directory `run`.
"""

import argparse
import csv
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from benchmarks._support.embedded import ENVIRONMENT, given, prepare, training

_PAGE = os.sysconf("SC_PAGE_SIZE") / (1 << 20)
_SETTLED = 0.1
"""Share of samples at the start that the summary leaves out, while caches and the allocator's pools fill."""


@dataclass(frozen=True, slots=True)
class Sample:
    """State of a run at one moment. Memory and disk use in MiB."""

    seconds: float
    step: int
    trainer_memory: float
    worker_memory: float
    descriptors: int
    processes: int
    threads: int
    checkpoints: float
    logs: float
    kills: int


def children(pid: int) -> list[int]:
    """Process ids of the children of a process."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(word) for task in tasks for word in (task / "children").read_text().split()]
    except OSError:  # it ended
        return []


def memory(pid: int) -> float:
    """Resident memory in MiB; 0 for a process that has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0.0


def entries(pid: int, kind: str) -> int:
    """Number of open descriptors ("fd") or threads ("task")."""
    try:
        return len(os.listdir(f"/proc/{pid}/{kind}"))
    except OSError:
        return 0


def size(paths: Sequence[Path]) -> float:
    """Size in MiB of files and of all files in directories."""
    total = 0
    for path in paths:
        for file in [path, *path.rglob("*")] if path.is_dir() else [path]:
            try:
                total += file.stat().st_size if file.is_file() else 0
            except OSError:  # was just replaced
                continue
    return total / (1 << 20)


def last_step(run: Path) -> int:
    """The last step in a run's log."""
    try:
        return json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    except (OSError, IndexError, ValueError):
        return 0


def look(pid: int, run: Path, seconds: float, kills: int) -> Sample:
    workers = children(pid)
    family = [pid, *workers]
    logs = [run / name for name in ("metrics.jsonl", "timings.jsonl", "tensorboard")]
    return Sample(
        seconds=round(seconds, 1),
        step=last_step(run),
        trainer_memory=round(memory(pid), 1),
        worker_memory=round(sum(map(memory, workers)), 1),
        descriptors=sum(entries(member, "fd") for member in family),
        processes=len(family),
        threads=sum(entries(member, "task") for member in family),
        checkpoints=round(size([run / "checkpoints"]), 2),
        logs=round(size(logs), 2),
        kills=kills,
    )


def soak(options: argparse.Namespace) -> int:
    """Run, watch and stop; return the exit status of the training process."""
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    model, sampled = given(options.base) if options.base else prepare(out)
    words = training(model, sampled, out / "run", 10_000_000, 20, "--monitor.limit", "32", "--monitor.n", "4")
    rng, kills = random.Random(options.seed), 0
    with (out / "soak.log").open("ab") as log, (out / "soak.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, [field.name for field in fields(Sample)])
        table.writeheader()
        process = subprocess.Popen(
            [sys.executable, "-m", "dph", *words, "--verifier.workers", "2"],
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            start = time.monotonic()
            next_kill, next_look = start + 30.0, start
            while process.poll() is None and time.monotonic() - start < 60 * options.minutes:
                now = time.monotonic()
                if now >= next_look:
                    table.writerow(asdict(look(process.pid, out / "run", now - start, kills)))
                    file.flush()
                    next_look = now + options.every
                if options.kill_workers and now >= next_kill:
                    if workers := children(process.pid):
                        os.kill(rng.choice(workers), signal.SIGKILL)
                        kills += 1
                    next_kill = now + rng.expovariate(1 / options.kill_workers)
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            began = time.monotonic()
            status = process.wait(120)
            print(f"SIGTERM: exit status {status} after {time.monotonic() - began:.1f} s")
            return status
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def read(out: Path) -> list[Sample]:
    with (out / "soak.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    whole = {"step", "descriptors", "processes", "threads", "kills"}
    numbers = [{name: int(text) if name in whole else float(text) for name, text in row.items()} for row in rows]
    return [Sample(**row) for row in numbers]  # type: ignore[arg-type]


def summarise(samples: Sequence[Sample], out: Path) -> dict[str, object]:
    """Medians of the first and the last tenth of the settled samples, and their largest value."""
    settled = samples[int(_SETTLED * len(samples)) :]
    tenth = max(1, len(settled) // 10)
    facts: dict[str, object] = {
        "minutes": round(samples[-1].seconds / 60, 1),
        "steps": samples[-1].step,
        "worker_kills": samples[-1].kills,
    }
    for name in ("trainer_memory", "worker_memory", "descriptors", "processes", "threads", "checkpoints", "logs"):
        values = [getattr(sample, name) for sample in settled]
        facts[name] = {
            "first": round(statistics.median(values[:tenth]), 2),
            "last": round(statistics.median(values[-tenth:]), 2),
            "largest": max(values),
        }
    run = out / "run"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    facts["steps_without_gap"] = [line["step"] for line in lines] == list(range(len(lines)))
    facts["unjudged_responses"] = sum(line.get("unscored", 0.0) for line in lines) > 0
    facts["temporary_files"] = [path.name for folder in (run, run / "checkpoints") for path in folder.glob(".*.tmp")]
    return facts


def draw(samples: Sequence[Sample], path: Path) -> None:
    """Four panels over the duration of the run."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    hours = [sample.seconds / 3600 for sample in samples]
    panels = {
        "memory, MiB": ("trainer_memory", "worker_memory"),
        "open descriptors, threads, processes": ("descriptors", "threads", "processes"),
        "disk, MiB": ("checkpoints", "logs"),
        "steps": ("step",),
    }
    figure, axes = pyplot.subplots(2, 2, figsize=(9, 5.5), sharex=True, layout="constrained")
    for axis, (title, names) in zip(axes.flat, panels.items(), strict=True):
        for name in names:
            axis.plot(hours, [getattr(sample, name) for sample in samples], label=name.replace("_", " "), linewidth=1.2)
        axis.set_title(title, fontsize=10)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8, frameon=False)
    for axis in axes[1]:
        axis.set_xlabel("hours")
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def common_prefix(run: Path, other: Path) -> tuple[int, int]:
    """Number of equal lines at the start of two runs' metrics, and the number of lines of the shorter one."""
    one, two = ((path / "metrics.jsonl").read_bytes().splitlines() for path in (run, other))
    shorter = min(len(one), len(two))
    differing = [index for index in range(shorter) if one[index] != two[index]]
    return (differing[0] if differing else shorter), shorter


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two samples")
    parser.add_argument("--base", type=Path, help="folder with an existing base/ and presample/")
    parser.add_argument("--kill-workers", type=float, default=0.0, help="mean seconds between kills; 0 kills none")
    parser.add_argument("--same-as", type=Path, help="folder of an undisturbed soak to compare the metrics with")
    parser.add_argument("--seed", type=int, default=0, help="seed of the kills")
    parser.add_argument("--draw", action="store_true", help="only draw and summarise the recorded samples")
    options = parser.parse_args()
    status = 0 if options.draw else soak(options)
    samples = read(options.out)
    facts = summarise(samples, options.out)
    if options.same_as:
        equal, lines = common_prefix(options.out / "run", options.same_as / "run")
        facts["metrics_equal_to_the_undisturbed_run"] = f"{equal} of {lines} lines"
    draw(samples, options.out / "soak.png")
    text = json.dumps(facts, indent=1)
    (options.out / "soak.json").write_text(text + "\n")
    print(text)
    return 0 if options.draw or status == 128 + signal.SIGTERM else 1


if __name__ == "__main__":
    sys.exit(main())
