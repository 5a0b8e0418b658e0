"""Reports: from evaluations (and training runs) to tables, figures and one page that anybody can open."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table as TerminalTable
from rich.text import Text

from dph.errors import UserError
from dph.report import html, plots
from dph.report.data import EvalRun, Split, TrainRun, by_label, read_runs
from dph.report.page import browser, charts, page_data, training_chart
from dph.report.tables import (
    KEEP_K,
    Table,
    diversity_table,
    kind_table,
    main_table,
    retention,
    summarise_label,
    to_markdown,
    transposed,
)
from dph.runs.directory import write_atomically

MAIN_SPLIT = "test"
"""The split that the table is about, where it was evaluated; otherwise the first one."""

_CURVES = (
    *("reward", "pass_rate", "informative", "eval/greedy", "eval/pass@1", "eval/pass@8", "eval/styles"),
    *("eval/styles_correct", "exp/entropy", "response_length", "grad_norm", "pef/log_ratio_q50", "pef/forgotten"),
)
_PAGE, _MARKDOWN = "index.html", "report.md"


@dataclass(frozen=True, slots=True)
class Extra:
    """What a report shows besides its own runs' tables and figures."""

    tables: Sequence[Table] = ()
    """They go before the report's own."""
    figures: Sequence[tuple[bytes, str]] = ()
    """Figures (PNG, description)."""
    trains: Sequence[TrainRun] = ()
    """Further training runs, in the page's training chart only, hidden until their names are clicked."""


def report(runs: Sequence[Path], out: Path, *, base: str | None, title: str) -> Path:
    """Write a report of run directories; see `write_report`.

    Raises UserError for a directory that is missing, damaged or no run of `dph eval` or `dph train` besides.
    """
    return write_report(*read_runs(list(dict.fromkeys(runs))), out, base=base, title=title)


def write_report(
    evals: Sequence[EvalRun],
    trains: Sequence[TrainRun],
    out: Path,
    *,
    base: str | None,
    title: str,
    extra: Extra | None = None,
) -> Path:
    """Write a report of runs into `out` and print its table; returns the HTML page.

    Writes index.html (self-contained, with charts and a browser of completions), report.md and figures/*.png.
    Evaluations with one label are taken as seeds of one method. `base` is the label of the reference policy's
    evaluation; where no run has it, keep and exploration rates are left out and the report says so.

    Raises UserError for evaluations on different problems, and when `out` cannot be written.
    """
    labels = by_label(evals)
    main, others = _splits(labels)
    summaries = {label: summarise_label(group, main) for label, group in labels.items()}
    elsewhere = {
        split: {
            label: summarise_label(group, split)
            for label, group in labels.items()
            if all(split in run.splits for run in group)
        }
        for split in others
    }
    tables = _tables(main, labels, summaries, elsewhere, base)
    figures = _figures(main, summaries, elsewhere, trains, base)
    images = {name: plots.to_png(figure) for name, (figure, _) in figures.items()}
    extra = extra or Extra()
    split_summaries = {main: summaries, **elsewhere}
    data = page_data(main, labels, split_summaries, trains, extra.trains, base, _opening_metric(trains))
    sections = [
        ("charts", charts(data)),
        ("tables", "\n".join(map(_table_html, [*extra.tables, *tables]))),
        ("figures", "\n".join(html.figure(*pair) for pair in extra.figures)),
        ("training", training_chart() if trains else ""),
        ("completions", browser()),
        ("settings", _settings_html([*evals, *trains])),
    ]
    try:
        (out / "figures").mkdir(parents=True, exist_ok=True)
        for name, image in images.items():
            (out / "figures" / f"{name}.png").write_bytes(image)
        links = [f"![{description}](figures/{name}.png)" for name, (_, description) in figures.items()]
        text = "\n\n".join([f"# {title}", *links[:1], *map(to_markdown, tables), *links[1:]])
        write_atomically(out / _MARKDOWN, text.rstrip() + "\n")
        write_atomically(out / _PAGE, html.page(title, [pair for pair in sections if pair[1]], data))
    except OSError as error:
        raise UserError(f"cannot write the report to {out}: {error.strerror or error}") from error
    _print(tables[0])
    return out / _PAGE


def _settings_html(runs: Sequence[EvalRun | TrainRun]) -> str:
    """Every run's directory and settings."""
    parts = ["<h2>Runs and their settings</h2>"]
    for run in runs:
        file = run.path / "config.toml"
        text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else "config.toml is not there"
        parts.append(html.unfolding(f"{run.label}: {run.path}", text))
    return "\n".join(parts)


def _splits(labels: Mapping[str, Sequence[EvalRun]]) -> tuple[str, list[str]]:
    """The main split, which every run must have, and the others in the order of first appearance."""
    runs = [run for group in labels.values() for run in group]
    names = list(dict.fromkeys(name for run in runs for name in run.splits))
    common = [name for name in names if all(name in run.splits for run in runs)]
    if not common:
        raise UserError(f"the evaluations have no split in common; they have: {', '.join(names)}")
    main = MAIN_SPLIT if MAIN_SPLIT in common else common[0]
    return main, [name for name in names if name != main]


def _tables(
    main: str,
    labels: Mapping[str, Sequence[EvalRun]],
    summaries: Mapping[str, Split],
    elsewhere: Mapping[str, Mapping[str, Split]],
    base: str | None,
) -> list[Table]:
    notes = ["Percent, styles as counts per problem; with 95 % bootstrap intervals over problems."]
    if any(len(group) > 1 for group in labels.values()):
        seeds = ", ".join(f"{label} {len(group)}" for label, group in labels.items())
        notes.append(f"Runs averaged: {seeds}; the intervals of repeated runs cover runs and problems together.")
    kept = {}
    if base is not None and base in labels:
        kept = {label: retention(group, labels[base][0], main) for label, group in labels.items()}
        if not any(kept.values()):
            notes.append(f"Keep and exploration rates need at least {KEEP_K} samples of every problem.")
        else:
            notes.append(
                f"keep@{KEEP_K}: of the problems that {base} solves within {KEEP_K} samples, the share solved within "
                f"as many; explore@{KEEP_K}: the same of those that {base} does not solve. The row of {base} is the "
                f"noise floor: {base} against further samples of itself."
            )
    elif base is not None:
        notes.append(f"No evaluation is labelled {base!r}, so keep and exploration rates are left out.")
    if any(k > summary.samples // 2 for summary in summaries.values() for k in summary.pass_curve if k in (8, 32)):
        notes.append("pass@k from fewer than 2k samples is unreliable.")
    tables = [main_table(main, summaries, kept, elsewhere, " ".join(notes))]
    tables += [main_table(split, found, {}, {}) for split, found in elsewhere.items() if found]
    tables += [table for table in (diversity_table(main, summaries), kind_table(main, summaries)) if table is not None]
    return tables


def _figures(
    main: str,
    summaries: Mapping[str, Split],
    elsewhere: Mapping[str, Mapping[str, Split]],
    trains: Sequence[TrainRun],
    base: str | None,
) -> dict[str, tuple[Figure, str]]:
    """Figures by file name, each with its description; the first one sums the report up."""
    curves = _pass_series(summaries)
    shares = {label: summary.style_shares for label, summary in summaries.items() if summary.style_shares}
    monitored = _monitored(trains)
    training = training_series(trains, f"eval/{monitored}") if monitored else []
    names = ", ".join(summaries)
    overview = plots.overview_figure(curves, training, shares, base=base, training_label=monitored)
    figures = {"overview": (overview, f"pass@k, {monitored} through training and solution styles of {names}")}
    figures["pass_at_k"] = (plots.pass_curve_figure(curves, base=base), f"pass@k of {names} on {main}")
    if training:
        figure = plots.training_figure(training, ylabel=monitored, base=base)
        figures["training"] = (figure, f"{monitored} through training of {names}")
    if shares:
        figures["styles"] = (plots.style_figure(shares), f"shares of solution styles of {names} on {main}")
    for split, found in elsewhere.items():
        figure = plots.pass_curve_figure(_pass_series(found), base=base, title=split)
        figures[f"pass_at_k_{_file_name(split)}"] = (figure, f"pass@k of {', '.join(found)} on {split}")
    metrics = {name: training_series(trains, name) for name in _CURVES}
    if any(metrics.values()):
        grid = plots.metrics_figure({name: series for name, series in metrics.items() if series})
        figures["metrics"] = (grid, f"metrics through training of {', '.join(dict.fromkeys(t.label for t in trains))}")
    return figures


def _file_name(split: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in split)


def _pass_series(summaries: Mapping[str, Split]) -> list[plots.Series]:
    series = []
    for label, summary in summaries.items():
        points = summary.pass_curve
        y, low, high = ([getattr(point, part) for point in points.values()] for part in ("mean", "low", "high"))
        series.append(plots.Series(label, list(points), y, low, high))
    return series


def _monitored(trains: Sequence[TrainRun]) -> str:
    """pass@8 where it was measured through training, else the largest pass@k below it; "" where there is none."""
    found = {name.removeprefix("eval/") for run in trains for row in run.metrics for name in row}
    return next((f"pass@{k}" for k in (8, 4, 2, 1) if f"pass@{k}" in found), "")


def _opening_metric(trains: Sequence[TrainRun]) -> str:
    """The metric that the training chart shows first."""
    monitored = _monitored(trains)
    return f"eval/{monitored}" if monitored else "reward"


def training_series(trains: Sequence[TrainRun], name: str) -> list[plots.Series]:
    """A metric through training for each label: over repeated runs the mean, between the lowest and the highest."""
    groups: dict[str, list[dict[float, float]]] = {}
    for run in trains:
        points = {row["step"]: float(row[name]) for row in run.metrics if row.get(name) is not None}
        if points:
            groups.setdefault(run.label, []).append(points)
    series = []
    for label, runs in groups.items():
        steps = sorted(set.intersection(*map(set, runs)))
        values = np.array([[points[step] for step in steps] for points in runs])
        band = (values.min(axis=0).tolist(), values.max(axis=0).tolist()) if len(runs) > 1 else ()
        series.append(plots.Series(label, steps, values.mean(axis=0).tolist(), *band))
    return series


def _table_html(table: Table) -> str:
    rows = [[(entry.text, entry.interval) for entry in row] for row in table.rows]
    return html.table(table.title, table.columns, rows, table.note)


def _print(table: Table) -> None:
    table = transposed(table)
    console = Console()
    # A column with an interval takes about 20 characters; where they do not fit, report.md has them.
    intervals = console.width >= 20 * len(table.columns)
    shown = TerminalTable(title=table.title, title_justify="left", caption=table.note, caption_justify="left")
    for index, name in enumerate(table.columns):
        shown.add_column(Text(name), justify="left" if index == 0 else "right")
    for row in table.rows:
        shown.add_row(*(Text.assemble(e.text, (_bracketed(e.interval) if intervals else "", "dim")) for e in row))
    console.print(shown)


def _bracketed(interval: str) -> str:
    return f" ({interval})" if interval else ""
