"""`python -m experiments strategies`: the runs of experiment D2, one after the other, and its tables.

The same command continues; what is finished is kept. All shares of a seed run before the next seed.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from dph.cli.arguments import Parser
from dph.errors import UserError
from dph.process.progress import say
from experiments.anchor.counts import read, write
from experiments.anchor.design import arm_jobs, base_jobs
from experiments.anchor.run import SMOKE, in_turn
from experiments.grid import let_jobs_import
from experiments.strategies.design import COMMONS, PRESAMPLES, STARTS, arms, complete, options, tables

COUNTS = Path("experiments/counts/strategies.parquet")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options. Raises UserError for what cannot be meant."""
    parser = Parser("python -m experiments strategies", description=__doc__)
    parser.add_argument("--starts", type=int, nargs="+", default=STARTS, help="seeds of worlds; those of the protocol")
    parser.add_argument("--out", type=Path, default=Path("runs/strategies"), help="folder of the runs")
    parser.add_argument("--counts", type=Path, default=COUNTS, help="file of the counts; one for each share beside it")
    parser.add_argument("--report-only", action="store_true", help="run nothing; print the tables of the counts")
    parser.add_argument("--smoke", action="store_true", help="a few steps each; the numbers mean nothing")
    return parser.parse_args(words)


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
                run_start(
                    start, share, given.out / f"start-{start}-{share}", given.counts, SMOKE if given.smoke else {}
                )
    cells = {(s, c): found for s in given.starts for c in COMMONS if (found := read(counts_of(given.counts, c), s))}
    if not cells:
        raise UserError(f"{given.counts} has no counts of these starts; run the command without --report-only first")
    if len(complete(cells)) < len(STARTS):
        say(f"{len(complete(cells))} of {len(STARTS)} starts are complete; the protocol decides with all of them")
    print(*tables(cells), sep="\n")


def run_start(start: int, share: str, root: Path, counts: Path, extra: dict) -> None:
    """The base model of a start at a share, then its arms; the counts are written after each."""
    world = options(share)
    jobs = base_jobs(start, root, extra, PRESAMPLES, world)
    if failures := in_turn(jobs, root, f"start {start}, share {share}: base"):
        say(f"start {start} at share {share} is left out: {failures[0]}")
        return
    for arm in arms():
        in_turn(
            list(arm_jobs(start, root, arm, extra, options=world)), root, f"start {start}, share {share}: {arm.name}"
        )
        write(counts_of(counts, share), start, [root], arms())
