"""Changes between two sides of several training runs each, such as the seeds of two recipes: intervals are over runs
and problems, by `dph.measure.intervals.difference_over_runs`. Only numpy.

A metric of a side is the mean over its runs. A problem counts as lost if a sample of any run of BEFORE solves it and
none of any run of AFTER does.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dph.errors import counted
from dph.measure.bands import band
from dph.measure.changes import (
    Comparison,
    Metrics,
    Scores,
    change_between,
    check_problems,
    chosen_ks,
    common_problems,
    distinct_of,
    metrics_of,
    note_of_unequal,
    samples_of_all,
)
from dph.measure.intervals import FloatArray, difference_over_runs, interval_over_runs
from dph.measure.passk import missed_at_k
from dph.measure.samples import Samples
from dph.measure.strata import Stratum, largest_k, strata

Counts = tuple[NDArray[np.int64], NDArray[np.int64]]
"""The numbers of all and of correct samples of a run, [problems]."""


def compare_runs(
    before: Sequence[Samples],
    after: Sequence[Samples],
    ks: Sequence[int] = (),
    partial: bool = False,
    same_prompts: bool = True,
) -> Comparison:
    """Scores of two sides, each the mean over its runs, and the change between them.

    before, after: judged samples of each training run of a side; the others as in `dph.measure.changes.compare`, with
    its errors. A side with one run adds no spread of runs: the interval holds for that very model.
    """
    for side in (*before[1:], *after):
        check_problems(before[0], side, partial, same_prompts)
    every, left_out = common_problems([*before, *after])
    every = [_in_order(run, every[0].problems) for run in every]
    sides = every[: len(before)], every[len(before) :]
    fewest, m = min(int(run.n.min()) for run in every), samples_of_all(every)[0]
    tables = [[metrics_of(run, chosen_ks(run, ks, fewest), m) for run in side] for side in sides]
    values = [_stacked(side) for side in tables]
    scores = [
        Scores(
            _name(side),
            len(m),
            (min(int(run.n.min()) for run in side), max(int(run.n.max()) for run in side)),
            {name: interval_over_runs(each) for name, each in table.items()},
            _mean([distinct_of(run, fewest) for run in side]),
            len(side),
        )
        for side, table in zip(sides, values, strict=True)
    ]
    means: list[Metrics] = [{name: each.mean(0) for name, each in table.items()} for table in values]
    pooled = (_pooled(sides[0]), _pooled(sides[1]))
    change = change_between(pooled, (means[0], means[1]), bool(left_out))
    counts = [[(run.n, run.c) for run in side] for side in sides]
    change = replace(
        change,
        differences={name: difference_over_runs(values[1][name], values[0][name]) for name in change.differences},
        errors={},
        mix=_mix(counts, max(change.mix), [*change.mix]),
        band=band(counts[0], counts[1]) if fewest > 1 else None,
        strata=_strata(counts, [int(name[5:]) for name in change.differences if name.startswith("pass@")]),
    )
    notes = [note for run in every for note in run.notes]
    return Comparison(scores, [change], [*notes, *left_out, *filter(None, [note_of_unequal(change)])])


def _in_order(run: Samples, problems: Sequence[str]) -> Samples:
    """The same samples, with the problems in the given order."""
    place = {id: i for i, id in enumerate(problems)}
    places = np.array([place[id] for id in run.problems], np.int32)
    by_id = None if run.prompts is None else dict(zip(run.problems, run.prompts, strict=True))
    prompts = None if by_id is None else [by_id[id] for id in problems]
    return replace(run, problems=problems, problem=places[run.problem], prompts=prompts)


def _stacked(runs: Sequence[Metrics]) -> dict[str, FloatArray]:
    """The metrics that all runs have, [runs, problems]."""
    shared = [name for name in runs[0] if all(name in run for run in runs)]
    return {name: np.stack([run[name] for run in runs]) for name in shared}


def _pooled(runs: Sequence[Samples]) -> Samples:
    """The samples of all runs together, without answers, whose numbers differ between files."""
    problem = np.concatenate([run.problem for run in runs])
    right = np.concatenate([run.right for run in runs])
    return replace(runs[0], name=_name(runs), problem=problem, right=right, answer=None, prompts=None, number=None)


def _name(runs: Sequence[Samples]) -> str:
    others = len(runs) - 1
    return runs[0].name + (f" and {counted(others, 'further run')}" if others else "")


def _mean(tables: Sequence[dict[int, float]]) -> dict[int, float]:
    shared = [m for m in tables[0] if all(m in table for table in tables)]
    return {m: float(np.mean([table[m] for table in tables])) for m in shared}


def _mix(counts: Sequence[Sequence[Counts]], k: int, bs: Sequence[int]) -> dict[int, float]:
    """pass@k of b samples of a run of BEFORE and k − b of one of AFTER, in the mean over all pairs of runs, which are
    independent."""

    def missed(side: Sequence[Counts], drawn: int) -> FloatArray:
        return np.mean([missed_at_k(*run, drawn) for run in side], axis=0)

    return {b: float(1 - (missed(counts[0], b) * missed(counts[1], k - b)).mean()) for b in bs}


def _strata(counts: Sequence[Sequence[Counts]], ks: Sequence[int]) -> list[Stratum]:
    """By how often BEFORE solves a problem; none with several runs of BEFORE, which have no common classes."""
    if len(counts[0]) > 1:
        return []
    most = largest_k(counts[0][0][0], *(n for n, _ in counts[1]))
    chosen = max((k for k in ks if k <= most), default=0)
    return strata(counts[0][0], counts[1], chosen) if chosen else []
