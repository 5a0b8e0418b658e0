"""Kill a training run in the embedded world repeatedly, resume it each time, and compare the final files.

    python -m benchmarks.reliability.kill --kills 30 --out runs/kill
    python -m benchmarks.reliability.kill --kills 10 --ranks 2 --out runs/kill-2      # two processes, by torchrun

One run is left alone. Another is stopped at random moments within a part of the step (sampling, verification, update,
checkpoint, evaluation, … in turn), by SIGKILL or, with --signal, by SIGTERM or SIGINT. Of several processes, each one,
torchrun and all together get the signal in turn. When the run ends before all kills are used, it is checked and a new
one begins. Each must end with exactly the files of the undisturbed run, byte for byte: weights, optimizer moments,
cursors, metrics.jsonl. No process may outlive its run, and SIGTERM and SIGINT may lose no finished step. Linux only: it
reads /proc.

Writes kills.json; the exit status is 0 only if every comparison holds.
"""

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from benchmarks._support.embedded import ENVIRONMENT, given, prepare, training
from benchmarks._support.lines import Lines
from benchmarks.reliability import phases
from benchmarks.reliability.soak import children
from dph.training.checkpoints import steps_saved

TARGETS = ("sampling", "verification", "update", "checkpoint", "evaluation", "any")
PATIENCE = 5.0
"""Seconds within which the processes of a killed run must have ended."""
PATIENCE_TO_SAVE = 60.0
"""The same where they complete an update and save their state first."""
DIFFERING = {"timings.jsonl", "config.toml", "inputs.json", "model/README.md"}
"""Files with times or with the run's own path: only their presence is compared."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One stop of a run."""

    aimed: str
    """Part of the step in which the moment was drawn."""
    part: str
    """Part that the process, or the first of several, was in when it was stopped."""
    whom: str
    """Process that the signal went to: "all", a rank, or "torchrun"."""
    step: int
    """Last step in its log."""
    saved: int
    """Step of its newest checkpoint."""
    seconds: float
    """Time until it and its processes had ended."""
    orphans: int
    """Number of its processes that still existed after `PATIENCE` or `PATIENCE_TO_SAVE` seconds."""
    left: str
    """Temporary files that it left behind, which the next start must remove."""


class Victim:
    """A training process, or several under torchrun, and the part of the step that it, or the first, is in."""

    def __init__(self, words: list[str], marker: Path, log: Path, ranks: int) -> None:
        self.marker, self.run, self.ranks = marker, Path(words[words.index("--out") + 1]), ranks
        marker.write_bytes(b"")
        torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks))
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, *(torchrun if ranks > 1 else ()), str(Path(phases.__file__)), str(marker), *words],
                env=ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    def reaches(self, part: str, times: int, delay: float) -> bool:
        """Wait until it enters a part for the n-th time, then `delay` seconds. Returns False if it ended before."""
        before = self.part
        while self.process.poll() is None:
            now = self.part
            if now == part != before:
                times -= 1
                if times == 0:
                    time.sleep(delay)
                    return self.process.poll() is None
            before = now
            time.sleep(0.0005)
        return False

    def lives(self, seconds: float) -> bool:
        """Wait that long. Returns False if it ended before."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    @property
    def part(self) -> str:
        return phases.read(self.marker)

    def stop(self, aimed: str, number: int, whom: str) -> Kill:
        """Stop it by a signal to "all", a rank or "torchrun"; the process whose part is read is paused meanwhile."""
        launcher, family = self.process.pid, descendants(self.process.pid)
        ranks = {rank: pid for pid in family if (rank := rank_of(pid))} if self.ranks > 1 else {"0": launcher}
        if len(ranks) < self.ranks:
            whom = "all"  # torchrun has not started them yet
        hit = {"torchrun": [launcher], "all": list({launcher, *ranks.values()})}.get(whom) or [ranks[whom]]
        first = ranks.get("0", launcher)
        send(first, signal.SIGSTOP)
        part = self.part
        began = time.monotonic()
        for pid in hit:
            send(pid, number)
        send(first, signal.SIGCONT)
        status = self.process.wait(120)
        orphans = survivors(family, PATIENCE_TO_SAVE if whom == "torchrun" else PATIENCE)
        seconds = time.monotonic() - began
        expected = {0, -number} if number == signal.SIGKILL else {0, 128 + number}
        if self.ranks > 1 and (number, whom) not in {(signal.SIGKILL, "all"), (signal.SIGKILL, "torchrun")}:
            expected = {0, 1}  # torchrun's own, after a signal or when a process has failed
        if part == "start":  # its handlers may not be there yet
            expected.add(-number)
        if status not in expected:
            raise SystemExit(f"the run ended with status {status} after signal {number} to {whom} in {part}")
        left = [path.name for folder in (self.run, self.run / "checkpoints") for path in folder.glob(".*.tmp")]
        step, saved = last_step(self.run), max([0, *steps_saved(self.run)])
        return Kill(aimed, part, whom, step, saved, round(seconds, 2), orphans, " ".join(left))


def descendants(pid: int) -> list[int]:
    """Ids of the children of a process, of their children, and so on."""
    own = children(pid)
    return [*own, *(further for child in own for further in descendants(child))]


def rank_of(pid: int) -> str:
    """The rank of a process that torchrun has started; "" for another process, such as a verifier's worker."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        variables = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    ranks = [variable.removeprefix("RANK=") for variable in variables if variable.startswith("RANK=")]
    return ranks[0] if ranks and phases.__file__ in words else ""


def send(pid: int, number: int) -> None:
    """Send a signal to a process, which may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def survivors(family: list[int], patience: float) -> int:
    """Number of processes that still exist after that many seconds."""
    end = time.monotonic() + patience
    while (alive := sum(map(alive_now, family))) and time.monotonic() < end:
        time.sleep(0.05)
    return alive


def alive_now(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def last_step(run: Path) -> int:
    """The last step in a run's log; a line cut short by a kill does not count."""
    try:
        return [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().split("\n")[:-1]][-1]
    except (OSError, IndexError):
        return -1


def content(run: Path) -> dict[str, str]:
    """Hashes of a run's files by name; "there" for those in `DIFFERING`."""
    files = [path for path in run.rglob("*") if path.is_file() and "tensorboard" not in path.parts]
    names = {path.relative_to(run).as_posix(): path for path in files}
    return {
        name: "there" if name in DIFFERING else hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in sorted(names.items())
    }


def differences(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    """Names of files that differ, are missing or are extra."""
    return [name for name in sorted(expected.keys() | found.keys()) if expected.get(name) != found.get(name)]


@dataclass(frozen=True, slots=True)
class Trial:
    """The runs that are compared: the same command in two folders."""

    options: argparse.Namespace
    more: list[str]
    """Further settings of `dph train`."""
    model: Path
    sampled: Path

    @property
    def out(self) -> Path:
        return self.options.out

    def begin(self, name: str) -> Victim:
        """Start the run, or go on with it."""
        small = ("--monitor.limit", "4", "--monitor.n", "4", "--verifier.workers", "2", *self.more)
        words = training(self.model, self.sampled, self.out / name, self.options.steps, self.options.every, *small)
        return Victim(words, self.out / "part", self.out / "log", self.options.ranks)

    def finish(self, victim: Victim) -> None:
        """Wait for its end, which must be a good one."""
        if victim.process.wait() != 0:
            raise SystemExit(f"the run {victim.run} failed; see {self.out / 'log'}")

    def undisturbed(self) -> tuple[dict[str, str], float, dict[str, float]]:
        """What a run that is left alone writes, its seconds, and the mean seconds of each part of its steps."""
        started = time.monotonic()
        victim = self.begin("whole")
        self.finish(victim)
        seconds = time.monotonic() - started
        parts = json.loads(victim.marker.with_suffix(".json").read_text())
        return content(victim.run), seconds, {part: mean for part, (mean, _) in parts.items()}

    def killed(
        self, expected: dict[str, str], whole_seconds: float, lasts: dict[str, float]
    ) -> tuple[list[Kill], list[list[str]]]:
        """Stop a run again and again, and compare it whenever it ends; returns the stops and the differing files of
        each completed run."""
        number, rng = signal.Signals[f"SIG{self.options.signal}"], random.Random(self.options.seed)
        ranks = self.options.ranks
        kills: list[Kill] = []
        differing: list[list[str]] = []
        victim, aims = self.begin("killed"), cycle(TARGETS)
        victims = cycle([*map(str, range(ranks)), "torchrun", "all"] if ranks > 1 else ["all"])
        while len(kills) < self.options.kills:
            aimed = next(aims)
            if aimed == "any":
                reached = victim.lives(rng.uniform(0, whole_seconds / 2))
            else:
                reached = victim.reaches(aimed, rng.randint(1, 2), rng.uniform(0, lasts[aimed]))
            if reached:
                kills.append(victim.stop(aimed, number, next(victims)))
                print(f"{len(kills)}/{self.options.kills} {kills[-1]}", flush=True)
            else:
                self.finish(victim)
                differing.append(differences(expected, content(victim.run)))
                shutil.rmtree(victim.run)
            victim = self.begin("killed")
        self.finish(victim)
        differing.append(differences(expected, content(victim.run)))
        return kills, differing


def facts_of(trial: Trial, expected: dict[str, str], kills: list[Kill], differing: list[list[str]]) -> dict[str, Any]:
    """What the stops did, as numbers."""
    return {
        "ranks": trial.options.ranks,
        "kills": len(kills),
        "signal": trial.options.signal,
        "by_part": dict(Counter(kill.part for kill in kills)),
        "by_process": dict(Counter(kill.whom for kill in kills)),
        "left_half_written_files": sum(bool(kill.left) for kill in kills),
        "steps_lost": sum(max(0, kill.step - kill.saved) for kill in kills),
        "longest_seconds_to_end": max(kill.seconds for kill in kills),
        "orphans": sum(kill.orphans for kill in kills),
        "runs_completed": len(differing),
        "files_compared": len(expected),
        "files_that_differ": sorted({name for names in differing for name in names}),
    }


def read_arguments() -> tuple[argparse.Namespace, list[str]]:
    """The options, and further settings for `dph train`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--every", type=int, default=2, help="steps between evaluations and checkpoints")
    parser.add_argument("--signal", choices=("KILL", "TERM", "INT"), default="KILL")
    parser.add_argument("--ranks", type=int, default=1, help="processes that train together, by torchrun")
    parser.add_argument("--base", type=Path, help="folder with an existing base/ and presample/")
    parser.add_argument("--smoke", action="store_true", help="train the base model for a few steps only")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random moments")
    parser.add_argument("--lines", type=Path, help="file that gets the result as a line of JSON")
    options, more = parser.parse_known_args()
    options.out = options.out.resolve()
    return options, more


def main() -> int:
    options, more = read_arguments()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    trial = Trial(options, more, *(given(options.base) if options.base else prepare(out, smoke=options.smoke)))
    for name in ("whole", "killed"):
        shutil.rmtree(out / name, ignore_errors=True)
    expected, seconds, lasts = trial.undisturbed()
    kills, differing = trial.killed(expected, seconds, lasts)
    facts = facts_of(trial, expected, kills, differing)
    each = [asdict(kill) for kill in kills]
    (out / "kills.json").write_text(json.dumps({**facts, "each": each}, indent=1) + "\n")
    print(json.dumps(facts, indent=1))
    lost = facts["steps_lost"] if options.signal != "KILL" else 0
    bad = bool(facts["orphans"] or facts["files_that_differ"] or lost)
    Lines(options.lines).add("kill", ok=not bad, **facts)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
