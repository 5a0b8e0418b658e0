"""The paper's experiments as one resumable command, with its tables and figures."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dph.errors import UserError
from dph.process.jobs import run_jobs
from dph.process.progress import say
from dph.report import plots
from dph.report.comparison import EvaluationTable, tabulate
from dph.report.data import TrainRun
from dph.report.page import MAX_TIMELINES, page_data, render, settings_of, timelines
from dph.report.tables import ReportTable, to_markdown
from dph.report.tables import tables as report_tables
from dph.report.write import write_report
from dph.runs.files import write_atomically, written_atomically
from experiments.config import ReproduceConfig
from experiments.count_files import read_counts, warn_of_other_bases, write_counts
from experiments.figures import figures
from experiments.finished import DOMAINS, Counts, Results, check_finished, read_results
from experiments.grid import Grid, let_jobs_import, read_grid
from experiments.plan import Choice, RunPaths, plan, write_settings
from experiments.start import start_bases, with_known_starts
from experiments.strata import kinds_table, strata_table
from experiments.tables import (
    accuracy_table,
    comparison_table,
    cost_table,
    diversity_table,
    forgetting_table,
    free_table,
    sampling_table,
    settings_table,
    variants_table,
    variety_table,
)


def reproduce(config: ReproduceConfig) -> Path:
    """Run what is missing of the chosen grid, then write tables and figures; returns the tables' file.

    After an interruption the same command continues. A run that fails does not stop the others.

    Raises UserError for unknown names, for settings that differ from those of the runs already there, and when runs
    failed.
    """
    let_jobs_import()
    if config.scale == "full":
        from experiments.paper.launches import reproduce_full  # verl's launches; the other scales do without

        return reproduce_full(config)
    if config.smoke and not config.out:
        raise UserError("a smoke run needs a directory of its own; add --out DIRECTORY")
    if config.scale == "bench":
        from experiments.bench.run import reproduce_bench

        return reproduce_bench(config)
    started = time.monotonic()
    grid = read_grid(config.scale)
    paths = RunPaths(Path(config.out or f"runs/reproduce-{config.scale}"))
    folder = Path(config.counts) if config.counts else None
    choice = with_known_starts(choose(grid, config), paths, folder)
    counts = read_counts(choice, folder) if folder else {}
    if config.report_only:
        return _report_only(choice, paths, counts)
    choice = start_bases(choice, paths, config.jobs)
    wanted = choice.without(counts)
    write_settings(wanted, paths)
    jobs = plan(wanted, paths, config.jobs)
    trainings = sum(job.arguments[0] == "train" for job in jobs)
    say(f"{len(wanted.arms)} methods, {trainings} training runs, {len(jobs)} jobs in all")
    failures = run_jobs(jobs, paths.root / "logs", config.jobs, f"reproduce {config.scale}", keep_going=True)
    page = write_results(choice, paths, counts)
    say(f"{time.monotonic() - started:.0f} s; open {page}")
    check_finished(failures)
    return page


def _report_only(choice: Choice, paths: RunPaths, counts: Counts) -> Path:
    if not counts and not paths.root.is_dir():
        raise UserError(
            f"there is no reproduction at {paths.root}; run it without --report-only, or name a folder of --counts"
        )
    if not counts and not any((paths.evaluation(base.name) / "scores.json").exists() for base in choice.bases()):
        raise UserError(
            f"no base model has been evaluated yet in {paths.root}; run the command without --report-only first"
        )
    page = write_results(choice, paths, counts)
    say(f"open {page}")
    return page


def choose(grid: Grid, config: ReproduceConfig) -> Choice:
    """The arms and seeds that a configuration names. Raises UserError for unknown ones."""
    reads = grid.needs_data and not (config.report_only and config.counts)
    if reads and not (config.data and Path(config.data).is_dir()):
        raise UserError(f"the scale {grid.name!r} reads a data set; name its folder with --data, not {config.data!r}")
    arms = grid.chosen(config.methods)
    seeds = {arm.name: tuple(config.seeds) or grid.seeds_of(arm) for arm in arms}
    return Choice(grid, seeds, config.data, config.smoke)


def write_results(choice: Choice, paths: RunPaths, counts: Counts | None = None) -> Path:
    """Write tables (tables.md), figures (PNG and SVG), counts and the page (index.html) of a choice's finished runs.

    Runs that are known by their counts alone are in tables and figures, but not on the page. Returns the page, or the
    tables if no base model was evaluated here.
    """
    results = read_results(choice, paths, counts)
    warn_of_other_bases(results.bases, counts or {})
    out = paths.root / "report"
    (out / "figures").mkdir(parents=True, exist_ok=True)
    found, images = tables(results), []
    parts = ["# The paper's experiments", f"Scale {choice.grid.name!r}.", *map(to_markdown, found)]
    for name, (figure, description) in figures(results).items():
        image = plots.to_png(figure)
        images.append((image, description))
        write_atomically(out / "figures" / f"{name}.png", image)
        with written_atomically(out / "figures" / f"{name}.svg") as file:
            figure.savefig(file, format="svg", metadata={"Date": None})
        parts.append(f"![{description}](figures/{name}.png)\n\n{description}")
    write_atomically(out / "tables.md", "\n\n".join(parts) + "\n")
    try:
        write_counts(results, paths, out / "counts", counts or {})
    except UserError as error:
        say(f"no counts are written: {error}")
    base = results.first_base
    if base is None or not results.bases[base.name].path.is_dir():
        return out / "tables.md"
    methods = results.of_base(base.name)
    evals = [results.bases[base.name], *(run for runs in methods.values() for run in runs)]
    evals = [run for run in evals if run.path.is_dir()]
    trains = [run for name in methods for run in results.trained[name]]
    further = [run for name, runs in results.trained.items() if name not in methods for run in runs]
    title = f"DPH-RL: the paper's experiments, scale {choice.grid.name}"
    page = write_report(evals, trains, out, base=base.label, title=title)
    comparison = tabulate(evals, base.label)
    data = extended_data(comparison, trains, further)
    shown = [*found, *report_tables(comparison, trains)]
    settings = settings_of([*evals, *trains])
    if page.suffix == ".html":  # Plotly is installed
        write_atomically(page, render(title, data, tables=shown, settings=settings, images=images))
    return page


def extended_data(
    comparison: EvaluationTable, trains: Sequence[TrainRun], further: Sequence[TrainRun]
) -> dict[str, Any]:
    """The data of the page's script with further training runs, in the training chart only and hidden until their names
    are clicked."""
    shown = {*comparison.runs, *(run.label for run in trains)}
    return page_data(comparison, [*trains, *further]) | {
        "timelines": timelines(trains, MAX_TIMELINES),
        "training_hidden": sorted({run.label for run in further} - shown),
    }


def tables(results: Results) -> list[ReportTable]:
    """All tables for which the runs have finished."""
    found: list[ReportTable | None] = []
    titles = ("Greedy and pass@k (Table 1)", "A second, stronger base model (Table 2)")
    bases = results.choice.bases()
    for base, title in zip(bases, titles, strict=False):
        if base.name in results.bases:
            found.append(accuracy_table(results, base, title))
    if bases and bases[0].name in results.bases:
        found += [comparison_table(results, bases[0]), free_table(results, bases[0])]
        found.append(forgetting_table(results, bases[0]))
        found += [sampling_table(results, bases[0], domain) for domain in DOMAINS]
        found += [diversity_table(results, bases[0]), variety_table(results, bases[0])]
        found.append(kinds_table(results, bases[0]))
        found += [strata_table(results, bases[0], domain) for domain in DOMAINS]
        found.append(variants_table(results, bases[0]))
    found += [cost_table(results), settings_table(results.choice)]
    return [table for table in found if table is not None]
