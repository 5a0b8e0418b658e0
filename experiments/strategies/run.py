"""`python -m experiments strategies`: the runs of experiment D2, one after the other, and its tables.

The same command continues; what is finished is kept. All shares of a seed run before the next seed.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from dph.errors import UserError
from dph.process.progress import say
from experiments.anchor.counts import read
from experiments.anchor.design import Flags
from experiments.anchor.run import SMOKE
from experiments.grid import let_jobs_import
from experiments.starts import Course, options_of
from experiments.strategies.design import COMMONS, PRESAMPLES, STARTS, arms, complete, options, tables

COUNTS = Path("experiments/counts/strategies.parquet")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options. Raises UserError for what cannot be meant."""
    many = "file of the counts; one for each share beside it"
    return options_of("strategies", __doc__, COUNTS, STARTS, counts_are=many).parse_args(words)


def counts_of(counts: Path, share: str) -> Path:
    """The file of a share."""
    return counts.with_name(f"{counts.stem}-{share}{counts.suffix}")


def run(words: Sequence[str]) -> None:
    """Run what is missing, and print the tables. Raises UserError if there are no counts to print."""
    given = parse(words)
    if not given.report_only:
        let_jobs_import()
        for start in given.starts:
            for share in COMMONS:
                root = given.out / f"start-{start}-{share}"
                run_start(start, share, root, given.counts, SMOKE if given.smoke else {})
    cells = {(s, c): found for s in given.starts for c in COMMONS if (found := read(counts_of(given.counts, c), s))}
    if not cells:
        raise UserError(f"{given.counts} has no counts of these starts; run the command without --report-only first")
    if len(complete(cells)) < len(STARTS):
        say(f"{len(complete(cells))} of {len(STARTS)} starts are complete; the protocol decides with all of them")
    print(*tables(cells), sep="\n")


def run_start(start: int, share: str, root: Path, counts: Path, extra: Flags) -> None:
    """The base model of a start at a share, then its arms."""
    label = f"start {start}, share {share}"
    course = Course(start, root, counts_of(counts, share), PRESAMPLES, options(share), extra, label)
    if course.base():
        course.arms(arms())
