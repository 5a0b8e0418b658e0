"""`python -m experiments anchor`: the runs of experiment B, E or F, one after the other, and its tables.

The same command continues; what is finished is kept. Starts run one after the other, so that an interruption leaves
whole starts. Experiment E reads the base models, pre-samplings and runs of experiment B in the same folder, and makes
those that are missing.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from dph.errors import UserError
from dph.process.jobs import Job
from dph.process.progress import say
from experiments.anchor.counts import read, write
from experiments.anchor.design import (
    CONFIRM_STARTS,
    FOLLOW,
    NEAR,
    STARTS,
    Arm,
    Flags,
    Made,
    arm_jobs,
    arms,
    base_jobs,
    confirm_arms,
    follow_arms,
    made,
    made_jobs,
    needed,
)
from experiments.anchor.tables import B, E, F, arm_table, comparison_table, confirm_table, figure, reading_table
from experiments.starts import Course, in_turn, options_of, smoke_flags

COUNTS = Path("experiments/counts/anchor.parquet")
FOLLOW_COUNTS = Path("experiments/counts/anchor-e.parquet")
CONFIRM, CONFIRM_COUNTS = "f", Path("experiments/counts/anchor-f.parquet")
AGAIN, AGAIN_COUNTS = "f2", Path("experiments/counts/anchor-f2.parquet")
SMOKE = smoke_flags(5)
"""Flags of a run that only shows that everything works; a step stands for 25 (see `design.checkpoint`)."""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options. Raises UserError for what cannot be meant."""
    parser = options_of("anchor", __doc__, None, None)
    parser.add_argument(
        "--experiment", choices=("b", FOLLOW, CONFIRM, AGAIN), default="b", help="b; e needs what b has trained; f; f2"
    )
    parser.add_argument("--arms", nargs="+", help="arms by name; all of them")
    parser.add_argument("--figure", type=Path, help="also draw the frontiers into this file")
    options = parser.parse_args(words)
    if options.experiment == AGAIN:
        if options.arms or options.figure:
            raise UserError("experiment F2 has neither --arms nor --figure; leave them out")
        return options
    own, counts, starts = {
        "b": (arms(), COUNTS, STARTS),
        FOLLOW: ((*follow_arms(), *made()), FOLLOW_COUNTS, STARTS),
        CONFIRM: (confirm_arms(), CONFIRM_COUNTS, CONFIRM_STARTS),
    }[options.experiment]
    known = [arm.name for arm in own]
    options.arms, options.counts = options.arms or known, options.counts or counts
    options.starts = options.starts or list(starts)
    if unknown := [name for name in options.arms if name not in known]:
        name = options.experiment.upper()
        raise UserError(f"experiment {name} has no arm {unknown[0]!r}; it has {', '.join(known)}")
    return options


def run(words: Sequence[str]) -> None:
    """Run what is missing, and print the tables. Raises UserError if there is nothing to print."""
    options = parse(words)
    if options.experiment == AGAIN:
        return _run_again(options)
    design = {"b": B, FOLLOW: E, CONFIRM: F}[options.experiment]
    if not options.report_only:
        extra = SMOKE if options.smoke else {}
        for start in options.starts:
            root = options.out / f"start-{start}"
            if design is E:
                follow_start(start, root, options.arms, options.counts, extra)
            else:
                every = arms() if design is B else confirm_arms()
                run_start(start, root, [arm for arm in every if arm.name in options.arms], options.counts, extra, every)
    starts = {start: found for start in options.starts if (found := read(options.counts, start))}
    if not starts:
        raise UserError(f"{options.counts} has no counts of these starts")
    table = confirm_table(starts) if design is F else comparison_table(starts, design)
    readings = [] if design is F else ["", *reading_table(starts, design)]
    print(*table, *readings, "", *arm_table(starts, design), sep="\n")
    if options.figure:
        figure(starts, options.figure, design)


def _run_again(options: argparse.Namespace) -> None:
    from experiments.anchor import confirm  # which uses this module

    starts, counts = options.starts or confirm.STARTS, options.counts or AGAIN_COUNTS
    if not options.report_only:
        confirm.run(starts, options.out, counts, smoke=options.smoke)
    if not any(read(counts, start) for start in starts):
        raise UserError(f"{counts} has no counts of these starts")
    print(*confirm.report(starts, counts), sep="\n")


def run_start(start: int, root: Path, chosen: Sequence[Arm], counts: Path, extra: Flags, every: Sequence[Arm]) -> None:
    """The base model of a start, then the chosen arms of every one; the counts are written after each. A failed arm
    does not stop the others."""
    presamples = sorted({arm.rows or NEAR for arm in every if arm.rows is not None})
    course = Course(start, root, counts, presamples, extra=extra)
    if course.base():
        course.arms(chosen, every)


def follow_start(start: int, root: Path, chosen: Sequence[str], counts: Path, extra: Flags) -> None:
    """What experiment E needs of experiment B in a start, then its own arms, the weights that cost no training first.
    Its counts hold both; those of experiment B are left as they are."""
    before = needed()
    steps: list[tuple[str, list[Job]]] = [("base", base_jobs(start, root, extra))]
    steps += [(arm.name, list(arm_jobs(start, root, arm, extra))) for arm in before]
    for name, jobs in steps:
        if failures := in_turn([jobs], root, f"start {start}: {name} of experiment B"):
            say(f"start {start} is left out: {failures[0]}")
            return
    own: tuple[Arm | Made, ...] = (*made(), *follow_arms())
    for arm in own:
        if arm.name in chosen:
            is_made = isinstance(arm, Made)
            jobs = made_jobs(start, root, arm, extra) if is_made else arm_jobs(start, root, arm, extra, FOLLOW)
            in_turn([list(jobs)], root / FOLLOW, f"start {start}: {arm.name}")
            write(counts, start, [root, root / FOLLOW], (*before, *own))
