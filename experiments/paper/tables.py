"""The paper's tables from finished evaluations, beside the numbers that the paper published."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from dph.errors import UserError
from dph.process.progress import say
from dph.report.data import MetricValue, Split, read_eval
from dph.report.tables import Cell, ReportTable, to_markdown
from dph.runs.files import write_atomically
from experiments.paper.study import PaperTable, Study, evaluation_folder


def paper_tables(study: Study, out: Path) -> Path:
    """Write every table with a finished evaluation into OUT/tables.md. Raises UserError if there is none."""
    tables = [table for table in (_table(study, table, out) for table in study.tables) if table is not None]
    if not tables:
        raise UserError(f"{out} has no finished evaluation of a table's recipe; run its evaluate.sh first")
    file = out / "tables.md"
    write_atomically(file, "\n\n".join(["# The paper's tables", *map(to_markdown, tables)]) + "\n")
    say(f"wrote {file}")
    return file


def _table(study: Study, table: PaperTable, out: Path) -> ReportTable | None:
    """A table, or None if nothing of it was evaluated."""
    columns = table.columns + ([("average", "")] if table.average else [])
    finished, rows = False, []
    for recipe, arms in table.rows.items():
        published = table.paper.get(recipe, {})
        for name in ("base", *arms):
            arm = study.arms.get(name)
            label = f"{recipe}: {arm.label if arm else 'base model'}"
            folders = [out / recipe / "eval" / "base"]
            if arm is not None:
                folders = sorted(evaluation_folder(out / recipe, name, 0).parent.glob("seed-*"))
            runs = [run for run in (_read(folder, table) for folder in folders) if run]
            finished = finished or bool(runs)
            counted = f" ({len(runs)} seed{'s' * (len(runs) > 1)})" if arm and runs else ""
            rows.append([Cell(label + counted), *_cells(runs, columns, published.get(name, ()))])
    for label, numbers in table.others.items():
        rows.append([Cell(f"{label}, published; not run here"), *_cells([], columns, numbers)])
    if not finished:
        return None
    titles = [f"{name} {metric}".strip() for name, metric in columns]
    note = (
        "Percent; [the paper's number]. Mean over training seeds with their range; the interval of one run is the 95 % "
        "one over problems. pass@k is unbiased over 2k samples, mean@k is over all of them."
    )
    return ReportTable(f"{table.name}: {table.title}", ["", *titles], rows, note)


def _read(folder: Path, table: PaperTable) -> Mapping[str, Split]:
    """The finished evaluations of one model by benchmark; a benchmark has one split."""
    files = {name: folder / name for name in table.benchmarks if (folder / name / "scores.json").exists()}
    return {name: next(iter(read_eval(file).splits.values())) for name, file in files.items()}


def _cells(
    runs: Sequence[Mapping[str, Split]], columns: Sequence[tuple[str, str]], published: Sequence[float]
) -> list[Cell]:
    cells, means = [], []
    for place, (benchmark, metric) in enumerate(columns):
        paper = f" [{published[place]:.1f}]" if place < len(published) else ""
        if benchmark == "average":
            value = MetricValue(float(np.mean(means))) if means else MetricValue(math.nan)
        else:
            value = _over_seeds([_value(run[benchmark], metric) for run in runs if benchmark in run])
            means.append(value.mean)
        text = "–" if math.isnan(value.mean) else f"{100 * value.mean:.1f}"
        interval = "" if math.isnan(value.low) else f"{100 * value.low:.1f}–{100 * value.high:.1f}"
        cells.append(Cell(text + paper, interval))
    return cells


def _value(split: Split, metric: str) -> MetricValue:
    kind, _, k = metric.partition("@")
    if kind == "greedy":
        return split.metrics.get(kind, MetricValue(math.nan))
    return split.pass_curve.get(int(k) if kind == "pass" else 1, MetricValue(math.nan))  # mean@k estimates pass@1


def _over_seeds(values: Sequence[MetricValue]) -> MetricValue:
    """The mean over seeds with their range; of one run its own value and interval."""
    if len(values) < 2:
        return values[0] if values else MetricValue(math.nan)
    means = [value.mean for value in values]
    return MetricValue(float(np.mean(means)), min(means), max(means))
