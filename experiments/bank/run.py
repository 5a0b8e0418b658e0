"""`python -m experiments bank`: the runs of experiment B2, one after the other, and its tables.

The development starts run first, with all arms. What they decide follows from their counts, and the confirming starts
run with it. The same command continues; what is finished is kept.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from dph.cli.arguments import Parser
from dph.errors import UserError
from dph.process.progress import say
from experiments.anchor.confirm import ROWS_ONLY, rows_jobs, write_rows
from experiments.anchor.counts import read, write
from experiments.anchor.design import DISTINCT, SMOKE_STEPS, Arm, arm_jobs, base_jobs
from experiments.anchor.run import SMOKE as OF_ANCHOR
from experiments.anchor.run import in_turn
from experiments.bank.design import (
    DEVELOPMENT,
    STARTS,
    STEPS,
    Starts,
    choice_table,
    choose,
    complete,
    confirm,
    decided,
    develop,
    tables,
)

COUNTS = Path("experiments/counts/bank.parquet")
_SMOKE = {
    **OF_ANCHOR,
    "train": (
        *("--task.limit", "24", "--rollout.prompts", "2", "--rollout.n", "4"),
        *("--steps", str(SMOKE_STEPS[STEPS]), "--checkpoint-every", "1", "--keep-checkpoints", "9"),
    ),
}


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options. Raises UserError for what cannot be meant."""
    parser = Parser("python -m experiments bank", description=__doc__)
    parser.add_argument("--development", type=int, nargs="+", default=DEVELOPMENT, help="seeds that choose the arms")
    parser.add_argument("--starts", type=int, nargs="*", default=STARTS, help="seeds that confirm; none: only choose")
    parser.add_argument("--out", type=Path, default=Path("runs/bank"), help="folder of the runs")
    parser.add_argument("--counts", type=Path, default=COUNTS, help="file of the counts")
    parser.add_argument("--report-only", action="store_true", help="run nothing; print the tables of the counts")
    parser.add_argument("--smoke", action="store_true", help="a few steps each; the numbers mean nothing")
    return parser.parse_args(words)


def run(words: Sequence[str]) -> None:
    """Run what is missing, and print the tables. Raises UserError if the development starts are not complete."""
    given = parse(words)
    extra: Mapping = _SMOKE if given.smoke else {}
    if not given.report_only:
        for start in given.development:
            run_start(start, given.out / f"start-{start}", develop(), given.counts, extra)
    first = _counts(given.counts, given.development)
    if not (decided(first) if len(given.development) == len(DEVELOPMENT) else first):
        raise UserError(f"{given.counts} has not all counts of the development starts; run the command again")
    choice = choose(first)
    print(*choice_table(choice, first), "", sep="\n")
    if not given.report_only:
        for start in given.starts:
            run_start(start, given.out / f"start-{start}", confirm(choice), given.counts, extra)
    starts = _counts(given.counts, given.starts)
    if (number := len(complete(starts, choice))) < len(STARTS):
        say(f"{number} of {len(STARTS)} starts are complete; the protocol decides with all of them")
    print(*tables(starts, choice), sep="\n")


def _counts(file: Path, seeds: Sequence[int]) -> Starts:
    return {seed: found for seed in seeds if (found := read(file, seed))}


def run_start(start: int, root: Path, arms: Sequence[Arm], counts: Path, extra: Mapping) -> None:
    """The base model of a start, then its arms and the supervised loss alone; the counts are written after each. A
    failed arm does not stop the others."""
    extra = dict(extra)
    every = (*arms, *(Arm(name, "rows-only", (), DISTINCT, trained=0) for name in ROWS_ONLY))
    if failures := in_turn(base_jobs(start, root, extra, (DISTINCT,)), root, f"start {start}: base"):
        say(f"start {start} is left out: {failures[0]}")
        return
    for arm in arms:
        in_turn(list(arm_jobs(start, root, arm, extra)), root, f"start {start}: {arm.name}")
        write(counts, start, [root], every)
    write_rows(start, root)
    in_turn(list(rows_jobs(start, root, extra)), root, f"start {start}: the supervised loss alone")
    write(counts, start, [root], every)
