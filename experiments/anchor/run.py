"""`python -m experiments anchor`: the runs of experiment B, one after the other, and its tables.

The same command continues; what is finished is kept. Starts run one after the other, so that an interruption leaves
whole starts.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dph.cli.arguments import Parser
from dph.errors import UserError
from dph.process.jobs import Job, run_jobs
from dph.process.progress import say
from experiments.anchor.counts import read, write
from experiments.anchor.design import STARTS, Arm, arm_jobs, arms, base_jobs
from experiments.anchor.tables import arm_table, comparison_table, figure

COUNTS = Path("experiments/counts/anchor")
SMOKE = {
    "sft": ("--steps", "150", "--demonstrations", "2000"),
    "presample": ("--task.limit", "24", "--rollout.n", "8", "--threshold", "1", "--refine", "keep"),
    "train": ("--task.limit", "24", "--steps", "2", "--rollout.prompts", "2", "--rollout.n", "4"),
    "eval": ("--task.limit", "8", "--rollout.n", "32"),
}
"""Flags of a run that only shows that everything works."""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options. Raises UserError for what cannot be meant."""
    parser = Parser("python -m experiments anchor", description=__doc__)
    known = [arm.name for arm in arms()]
    parser.add_argument("--starts", type=int, nargs="+", default=list(STARTS), help="seeds of worlds")
    parser.add_argument("--arms", nargs="+", default=known, help="arms by name; all of them")
    parser.add_argument("--out", type=Path, default=Path("runs/anchor"), help="folder of the runs")
    parser.add_argument("--counts", type=Path, default=COUNTS, help="folder of the counts")
    parser.add_argument("--figure", type=Path, help="also draw the frontiers into this file")
    parser.add_argument("--report-only", action="store_true", help="run nothing; print the tables of the counts")
    parser.add_argument("--smoke", action="store_true", help="a few steps each; the numbers mean nothing")
    options = parser.parse_args(words)
    if unknown := [name for name in options.arms if name not in known]:
        raise UserError(f"experiment B has no arm {unknown[0]!r}; it has {', '.join(known)}")
    return options


def run(words: Sequence[str]) -> None:
    """Run what is missing, and print the tables. Raises UserError if there is nothing to print."""
    options = parse(words)
    if not options.report_only:
        chosen = [arm for arm in arms() if arm.name in options.arms]
        for start in options.starts:
            run_start(start, options.out / f"start-{start}", chosen, options.counts, SMOKE if options.smoke else {})
    starts = {start: found for start in options.starts if (found := read(options.counts, start))}
    if not starts:
        raise UserError(f"{options.counts} has no counts of these starts")
    print(*comparison_table(starts), "", *arm_table(starts), sep="\n")
    if options.figure:
        figure(starts, options.figure)


def run_start(start: int, root: Path, chosen: Sequence[Arm], counts: Path, extra: Mapping) -> None:
    """The base model of a start, then every arm; the counts are written after each. A failed arm does not stop the
    others."""
    extra = dict(extra)
    if failures := in_turn(base_jobs(start, root, extra), root, f"start {start}: base"):
        say(f"start {start} is left out: {failures[0]}")
        return
    for arm in chosen:
        in_turn(list(arm_jobs(start, root, arm, extra)), root, f"start {start}: {arm.name}")
        write(counts, start, root, arms())


def in_turn(jobs: Sequence[Job], root: Path, label: str) -> list[str]:
    """Run jobs one after the other on one thread; returns what failed."""
    if all(job.done for job in jobs):
        return []
    before = [(), *((job.name,) for job in jobs)]
    chained = [replace(job, needs=needs) for job, needs in zip(jobs, before, strict=False)]
    return run_jobs(chained, root / "logs", 1, label, keep_going=True)
