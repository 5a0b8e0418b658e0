"""`python -m experiments factorial`: the runs of experiment D1, one after the other, and its tables.

The same command continues; what is finished is kept. The development starts run first and decide the learning rate and
the weights of the rehearsal terms. Then come the runs of the primary comparisons in all starts, then the others.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from dph.errors import UserError
from dph.process.progress import say
from experiments.anchor.counts import Evaluated, read
from experiments.anchor.design import NEAR, RARE, SEEN, Arm, Flags
from experiments.factorial.design import (
    DEVELOPMENT,
    OPTIONS,
    PRESAMPLES,
    STARTS,
    Choice,
    choice_of,
    chosen_rate,
    primary,
    rates,
    secondary,
    strengths,
)
from experiments.factorial.rare import write_rare
from experiments.factorial.tables import arm_table, class_table, complete, primary_table, secondary_table
from experiments.starts import Course, options_of, smoke_flags

COUNTS = Path("experiments/counts/factorial.parquet")
SMOKE = smoke_flags(3, "--prompt-set", "all")
"""Flags of a run that only shows that everything works."""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options. Raises UserError for what cannot be meant."""
    parser = options_of("factorial", __doc__, COUNTS, STARTS, nargs="*")
    parser.add_argument("--development", type=int, nargs="+", default=DEVELOPMENT, help="seeds of development worlds")
    parser.add_argument(
        "--interim", action="store_true", help="print the primary comparisons before all starts have run"
    )
    return parser.parse_args(words)


def run(words: Sequence[str]) -> None:
    """Run what is missing, and print the tables. Raises UserError if the development starts are not complete."""
    options = parse(words)
    extra = SMOKE if options.smoke else {}
    if not options.report_only:
        choice = develop(options.development, options.out, options.counts, extra)
        for arms in (primary(choice), secondary(choice)):
            for start in options.starts:
                run_start(start, options.out / f"start-{start}", arms, options.counts, extra)
    report(options)


def develop(seeds: Sequence[int], out: Path, counts: Path, extra: Flags) -> Choice:
    """Run what is missing of the development starts, and return what they decide. Raises UserError if a run failed."""
    for start in seeds:
        run_start(start, out / f"start-{start}", rates(), counts, extra)
    rate = chosen_rate([read(counts, start) for start in seeds])
    if rate is not None:
        for start in seeds:
            run_start(start, out / f"start-{start}", strengths(rate), counts, extra)
    return decided(seeds, counts)


def decided(seeds: Sequence[int], counts: Path) -> Choice:
    """What the development starts decide. Raises UserError while one of their runs is missing from the counts."""
    choice = choice_of([read(counts, start) for start in seeds])
    if choice is None:
        raise UserError(f"{counts} lacks runs of the development starts; the same command continues them")
    return choice


def run_start(start: int, root: Path, arms: Sequence[Arm], counts: Path, extra: Flags) -> None:
    """The base model of a start, then the arms."""
    course = Course(start, root, counts, PRESAMPLES, OPTIONS, extra)
    if course.base():
        write_rare(root / NEAR, root / SEEN, root / RARE)
        course.arms(arms)


def report(options: argparse.Namespace) -> None:
    """Print the tables of the counts. The comparisons of the protocol are printed when all starts are complete, or with
    `interim`."""
    choice = decided(options.development, options.counts)
    say(f"chosen on the development starts: rate {choice.rate}, η {choice.js} (JS), {choice.kl} (−log u)")
    starts: dict[int, dict[str, Evaluated]] = {s: found for s in options.starts if (found := read(options.counts, s))}
    whole = complete(starts, choice)
    if len(whole) < len(STARTS) and not options.interim:
        say(f"{len(whole)} of {len(STARTS)} starts are complete; the comparisons are printed when all are (--interim)")
        return
    if len(whole) < len(STARTS):
        print(f"Interim: {len(whole)} of {len(STARTS)} starts.\n")
    tables = (primary_table, secondary_table, class_table, arm_table)
    for number, table in enumerate(tables):
        print(*([""] if number else []), *table(starts, choice), sep="\n")
