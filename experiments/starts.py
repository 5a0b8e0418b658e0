"""What the experiments in Countdown share: their options, the flags of a smoke run, and the runs of a start.

The runs of a start are a base model and arms, one after the other. The counts are written after each arm.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from dph.cli.arguments import Parser
from dph.process.jobs import Job, run_jobs
from dph.process.progress import say
from experiments.anchor.counts import lacks, write
from experiments.anchor.design import Arm, Flags, Made, arm_jobs, base_jobs


def smoke_flags(steps: int, *more: str) -> Flags:
    """Flags of a run that only shows that everything works.

    Args:
        steps: the steps of training, each with a checkpoint.
        more: further flags of training.
    """
    return {
        "sft": ("--steps", "150", "--demonstrations", "2000"),
        "presample": ("--task.limit", "24", "--rollout.n", "8", "--threshold", "1", "--refine", "keep"),
        "train": (
            *("--task.limit", "24", "--rollout.prompts", "2", "--rollout.n", "4", *more),
            *("--steps", str(steps), "--checkpoint-every", "1", "--keep-checkpoints", "9"),
        ),
        "eval": ("--task.limit", "8", "--rollout.n", "32"),
    }


def options_of(
    name: str,
    description: str | None,
    counts: Path | None,
    starts: Sequence[int] | None,
    *,
    nargs: str = "+",
    starts_are: str = "seeds of worlds; those of the protocol",
    counts_are: str = "file of the counts",
) -> argparse.ArgumentParser:
    """The parser of an experiment's options, with those that all of them have.

    Args:
        name: the experiment, as a command of `python -m experiments`.
        description: what the command does.
        counts: the file of the counts, unless the command line names another.
        starts: the seeds of the starts, unless the command line names others.
        nargs: how many seeds the option takes, as argparse says it.
        starts_are: the help of the option of the seeds.
        counts_are: the help of the option of the file.
    """
    parser = Parser(f"python -m experiments {name}", description=description)
    parser.add_argument("--starts", type=int, nargs=nargs, default=starts, help=starts_are)
    parser.add_argument("--out", type=Path, default=Path("runs") / name, help="folder of the runs")
    parser.add_argument("--counts", type=Path, default=counts, help=counts_are)
    parser.add_argument("--report-only", action="store_true", help="run nothing; print the tables of the counts")
    parser.add_argument("--smoke", action="store_true", help="a few steps each; the numbers mean nothing")
    return parser


@dataclass(frozen=True, slots=True)
class Course:
    """The runs of one start of an experiment."""

    start: int
    """The seed of the world."""
    root: Path
    """The folder of the runs."""
    counts: Path
    """The file of the counts."""
    presamples: Sequence[str]
    """The pre-samplings that its arms need."""
    options: Sequence[str] = ()
    """Further options of the task."""
    extra: Flags = field(default_factory=dict)
    """Flags of a smoke run; {} otherwise."""
    label: str = ""
    """What messages call the start, if they say more than its seed."""

    @property
    def named(self) -> str:
        """What messages call the start."""
        return self.label or f"start {self.start}"

    def base(self) -> bool:
        """Make the base model, its evaluations and pre-samplings, as far as they are missing. Returns whether all of
        them are there; if not, a message says why the start is left out."""
        jobs = base_jobs(self.start, self.root, self.extra, self.presamples, self.options)
        if failures := in_turn([jobs], self.root, f"{self.named}: base"):
            say(f"{self.named} is left out: {failures[0]}")
        return not failures

    def arms(self, arms: Sequence[Arm], counted: Sequence[Arm | Made] = ()) -> None:
        """Run what is missing of the arms, in their order. A failed arm does not stop the others. The counts are
        written after each arm; in a smoke run, all of whose arms share the libraries that one process loads, they are
        written after all arms.

        counted: all arms whose evaluations are counted, if they are more than `arms`.
        """
        counted = counted or arms
        plans = [list(arm_jobs(self.start, self.root, arm, self.extra, options=self.options)) for arm in arms]
        if self.extra:
            self.run(plans, "arms", counted)
            return
        for arm, jobs in zip(arms, plans, strict=True):
            self.run([jobs], arm.name, counted)

    def run(self, plans: Sequence[Sequence[Job]], what: str, counted: Sequence[Arm | Made]) -> None:
        """Run what is missing of some jobs, each list of them in turn, and write the counts."""
        ran = not all(job.done for job in chain(*plans))
        in_turn(plans, self.root, f"{self.named}: {what}")
        if ran or lacks(self.counts, self.start, [self.root], counted):
            write(self.counts, self.start, [self.root], counted)


def in_turn(plans: Sequence[Sequence[Job]], root: Path, label: str) -> list[str]:
    """Run jobs one after the other on one thread; returns what failed.

    plans: lists of jobs. A job that fails skips those that follow it in its list.
    """
    if all(job.done for job in chain(*plans)):
        return []
    chained = []
    for jobs in plans:
        before = [(), *((job.name,) for job in jobs)]
        chained += [replace(job, needs=needs) for job, needs in zip(jobs, before, strict=False)]
    return run_jobs(chained, root / "logs", 1, label, keep_going=True)
