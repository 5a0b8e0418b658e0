"""`python -m experiments bank`: the runs of experiment B2, one after the other, and its tables.

The development starts run first, with all arms. What they decide follows from their counts, and the confirming starts
run with it. The same command continues; what is finished is kept.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from dph.errors import UserError
from dph.process.progress import say
from experiments.anchor.confirm import run_start
from experiments.anchor.counts import read
from experiments.anchor.design import DISTINCT, SMOKE_STEPS, Flags
from experiments.anchor.tables import figure
from experiments.bank.design import (
    DEVELOPMENT,
    STARTS,
    STEPS,
    Starts,
    choice_table,
    choose,
    complete,
    confirm,
    develop,
    missing,
    shown,
    tables,
)
from experiments.starts import Course, options_of, smoke_flags

COUNTS = Path("experiments/counts/bank.parquet")
SMOKE = smoke_flags(SMOKE_STEPS[STEPS])
"""Flags of a run that only shows that everything works; a step stands for 125."""
SMOKE_DEVELOPMENT, SMOKE_STARTS = DEVELOPMENT[:1], (DEVELOPMENT[0], STARTS[0])
"""The starts of such a run. One of them chooses and confirms, so that its arms are there already."""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options. Raises UserError for what cannot be meant."""
    parser = options_of("bank", __doc__, COUNTS, None, nargs="*", starts_are="seeds that confirm; none: only choose")
    parser.add_argument("--development", type=int, nargs="+", help="seeds that choose the arms")
    parser.add_argument("--figure", type=Path, help="also draw the chosen arms beside GRPO's learning rates")
    given = parser.parse_args(words)
    if given.development is None:
        given.development = SMOKE_DEVELOPMENT if given.smoke else DEVELOPMENT
    if given.starts is None:
        given.starts = SMOKE_STARTS if given.smoke else STARTS
    return given


def run(words: Sequence[str]) -> None:
    """Run what is missing, and print the tables. Raises UserError if the development starts are not complete."""
    given = parse(words)

    def course(start: int) -> Course:
        extra: Flags = SMOKE if given.smoke else {}
        return Course(start, given.out / f"start-{start}", given.counts, (DISTINCT,), extra=extra)

    if not given.report_only:
        for start in given.development:
            run_start(course(start), develop())
    first = _counts(given.counts, given.development)
    if lacking := missing(first, given.development):
        raise UserError(
            f"{given.counts} lacks {len(lacking)} of the evaluations that choose the arms (first: {lacking[0]}); run "
            "the command again, which repeats the runs that failed"
        )
    choice = choose(first)
    print(*choice_table(choice, first), "", sep="\n")
    if not given.report_only:
        for start in given.starts:
            run_start(course(start), confirm(choice))
    starts = _counts(given.counts, given.starts)
    whole = complete(starts, choice)
    if len(whole) < len(STARTS):
        say(f"{len(whole)} of {len(STARTS)} starts are complete; the protocol decides with all of them")
    print(*tables(starts, choice), sep="\n")
    if given.figure and whole:
        figure(whole, given.figure, shown(choice))


def _counts(file: Path, seeds: Sequence[int]) -> Starts:
    return {seed: found for seed in seeds if (found := read(file, seed))}
