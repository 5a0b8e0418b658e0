"""Where a method gains and loses: accuracy by the share of samples in which the base model solves a problem."""

from itertools import pairwise

import numpy as np

from dph.report.data import EvalRun
from dph.report.table import Cell, Table, cell
from dph.reproduce.grid import Base
from dph.reproduce.plan import AGAIN
from dph.reproduce.results import IN_DOMAIN, INTERVALS, Results, mean_of, values

EDGES = (0.0, 1 / 16, 1 / 4, 5 / 8, 1.0)
"""Upper ends of the classes of problems: shares of the base model's samples that are correct."""


def strata_table(results: Results, base: Base, smallest: int = 10) -> Table | None:
    """mean@n and pass@8 in-domain for each class of difficulty, with the noise floor; None without the split, or where
    every class is too small.

    The classes come from the base model's first evaluation, so its second one regresses to the mean; a method that
    changed nothing would look like the second. Classes of fewer than `smallest` problems are left out.
    """
    split = results.split(IN_DOMAIN)
    if not split:
        return None
    run = results.bases[base.name]
    share = values([run], split, "mean")[0]
    classes = [share == 0.0, *((share > low) & (share <= high) for low, high in pairwise(EDGES))]
    titles = ["none", *(f"{100 * low:g}–{100 * high:g} %" for low, high in pairwise(EDGES))]
    known = [(title, chosen) for title, chosen in zip(titles, classes, strict=True) if chosen.sum() >= smallest]
    if not known:
        return None
    runs: list[tuple[str, list[EvalRun]]] = []
    if base.name in results.again:
        runs.append((base.label + AGAIN, [results.again[base.name]]))
    arms = results.of_base(base.name, variants=True)
    runs += [(f"{results.arm(name).label} ({len(found)})", list(found)) for name, found in arms.items()]

    rows = []
    for label, found in runs:
        row = [Cell(label)]
        for metric in ("mean", "pass@8"):
            measured = values(found, split, metric)
            row += [cell(metric, mean_of(measured[:, chosen], metric)) for _, chosen in known]
        rows.append(row)
    columns = [f"{metric}, {title}" for metric in ("mean@n", "pass@8") for title, _ in known]
    sizes = ", ".join(f"{title}: {np.count_nonzero(chosen)}" for title, chosen in known)
    note = (
        f"Classes by the share of its {run.splits[split].samples} samples that {base.label} has right, with problems "
        f"in each: {sizes}. Compare with {base.label + AGAIN}, not with the classes' own names: other samples of the "
        f"same model regress to the mean. Classes of fewer than {smallest} problems are left out. Numbers of seeds in "
        f"brackets; {INTERVALS}."
    )
    return Table("By difficulty for the base model, in-domain", ["", *columns], rows, note)
