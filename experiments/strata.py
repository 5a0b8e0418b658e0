"""Where a method gains and loses: by the base model's success on a problem, and over the kinds of problems."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from dph.report.data import EvalRun, MetricValue, aligned_rows
from dph.report.tables import Cell, ReportTable, cell
from experiments.finished import DOMAINS, IN_DOMAIN, INTERVALS, Results, mean_of, values
from experiments.grid import Base
from experiments.intervals import student_interval
from experiments.plan import AGAIN
from experiments.tables import signed_cell

EDGES = (0.0, 1 / 16, 1 / 4, 5 / 8, 1.0)
"""Upper ends of the classes of problems: shares of the base model's samples that are correct."""


def strata_table(results: Results, base: Base, domain: str = IN_DOMAIN, *, smallest: int = 10) -> ReportTable | None:
    """mean@n and pass@8 in a domain for each class of difficulty, with the noise floor; None where the domain was not
    evaluated, or where every class is too small.

    The classes come from the base model's first evaluation, so its second one regresses to the mean; a method that
    changed nothing would look like the second. Classes of fewer than `smallest` problems are left out.
    """
    split = results.split(domain)
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
    return ReportTable(f"By difficulty for the base model, {domain}", ["", *columns], rows, note)


def kinds_table(results: Results, base: Base, against: str = "grpo", fewest: int = 4) -> ReportTable | None:
    """Differences of every method to one of them, as means over the kinds of problems; None where that method was not
    run, or where there are fewer than `fewest` kinds.

    Problems of one kind are often won and lost together. An interval over problems is then too narrow for a claim about
    other kinds of questions; this one is Student's over the kinds, each with its mean over seeds and problems.
    """
    known = results.of_base(base.name)
    domains = [(domain, results.split(domain)) for domain in DOMAINS if results.split(domain)]
    if against not in known or not domains:
        return None
    sizes = {domain: len(set(_kinds(known[against], split))) for domain, split in domains}
    domains = [(domain, split) for domain, split in domains if sizes[domain] >= fewest]
    if not domains or len(known) < 2:
        return None
    samples = results.bases[base.name].splits[domains[0][1]].samples
    metrics = ("greedy", "mean", f"pass@{min(samples, 32)}")
    rows = [
        [
            Cell(f"{results.arm(name).label} ({len(runs)})"),
            *(
                signed_cell(_over_kinds(runs, known[against], split, metric))
                for _, split in domains
                for metric in metrics
            ),
        ]
        for name, runs in known.items()
        if name != against
    ]
    columns = [f"{domain}: {'mean@n' if metric == 'mean' else metric}" for domain, _ in domains for metric in metrics]
    counted = ", ".join(f"{domain}: {sizes[domain]} kinds" for domain, _ in domains)
    note = (
        f"Percentage points. {counted}. Each kind of problem counts alike, whatever its number of problems; 95 % "
        "intervals are Student's over kinds, with these training seeds (their numbers in brackets)."
    )
    return ReportTable(
        f"Differences to {results.arm(against).label} over kinds of problems", ["", *columns], rows, note
    )


def _kinds(runs: Sequence[EvalRun], split: str) -> list[str]:
    """The kind of each problem; "" where the task names none."""
    return [str(row.get("kind") or "") for row in aligned_rows(runs, split)[0]]


def _over_kinds(runs: Sequence[EvalRun], others: Sequence[EvalRun], split: str, metric: str) -> MetricValue:
    """Mean over kinds of the difference between two methods, with its interval."""
    aligned_rows([*runs, *others], split)
    gaps = values(runs, split, metric).mean(0) - values(others, split, metric).mean(0)
    by_kind: dict[str, list[float]] = {}
    for kind, gap in zip(_kinds(runs, split), gaps, strict=True):
        if not np.isnan(gap):
            by_kind.setdefault(kind, []).append(float(gap))
    found = student_interval([float(np.mean(of_kind)) for of_kind in by_kind.values()])
    return MetricValue(found.estimate, found.low, found.high)
