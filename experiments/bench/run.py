"""`python -m experiments bench`: settings are chosen on development worlds, frozen, and compared on test worlds."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from matplotlib.figure import Figure

from dph.errors import UserError
from dph.process.jobs import run_jobs
from dph.process.progress import say
from dph.report import plots
from dph.report.tables import print_table, to_markdown
from dph.runs.files import write_atomically, written_atomically
from experiments.bench.choose import Points, freeze, halved, read_frozen, write_frozen
from experiments.bench.design import Bench, Setting, arm_of, base_of, read_bench
from experiments.bench.figure import attainment_figure, frontier_figure
from experiments.bench.results import Phase, by_name, development_points
from experiments.bench.tables import (
    Frozen,
    attempts_table,
    chosen_settings,
    chosen_table,
    gaps_table,
    merit_table,
    seeds_table,
    tried_table,
    variance_table,
)
from experiments.config import ReproduceConfig
from experiments.count_files import counts_file, read_counts, recorded_settings, warn_of_other_bases, write_counts
from experiments.finished import Counts, check_finished, read_bases, read_results
from experiments.plan import Choice, RunPaths, plan, write_settings

FROZEN = "frozen.toml"


@dataclass(frozen=True, slots=True)
class Run:
    """One call of the command."""

    config: ReproduceConfig
    bench: Bench
    root: Path

    def phase(self, name: str, arms: Mapping[Setting, Mapping[int, Sequence[int]]]) -> tuple[Phase, list[str]]:
        """Run what is missing of a phase: settings with their seeds by world. Returns it with the jobs that failed."""
        settings = list(arms)
        worlds = list(dict.fromkeys(world for seeds in arms.values() for world in seeds))
        seeds = sorted({seed for by_world in arms.values() for found in by_world.values() for seed in found})
        grid = self.bench.grid(f"bench-{name}", settings, worlds, seeds)
        wanted = {arm_of(s, world): tuple(found) for s, by_world in arms.items() for world, found in by_world.items()}
        choice, paths = Choice(grid, wanted, smoke=self.config.smoke), RunPaths(self.root / name)
        counts = self._counts(choice)
        failures: list[str] = []
        if not self.config.report_only:
            to_run = choice.without(counts)
            write_settings(to_run, paths)
            for seed in seeds:  # one seed in every world before the next one: claims are about worlds
                for number, world in enumerate(worlds, 1):
                    label = f"bench {name}, seed {seed}, world {world} ({number} of {len(worlds)})"
                    failures += self._run_world(to_run.part(base_of(world), seed), paths, counts, label)
        results = read_results(choice, paths, counts)
        try:
            write_counts(results, paths, self.root / "report" / "counts", counts)
        except UserError as error:
            say(f"no counts are written: {error}")
        return Phase(results, settings, worlds), failures

    def _run_world(self, to_run: Choice, paths: RunPaths, counts: Counts, label: str) -> list[str]:
        """Run what is missing of one world; returns the jobs that failed. If its base model answers otherwise than when
        counts were taken, that is said before anything is trained from it."""
        jobs, logs, slots = plan(to_run, paths, self.config.jobs), paths.root / "logs", self.config.jobs
        if counts and jobs:
            of_base = {name for base in to_run.bases() for name in (f"base-{base.name}", f"eval-{base.name}")}
            first = [job for job in jobs if job.name in of_base]
            if failed := run_jobs(first, logs, slots, f"{label}: base model", keep_going=True):
                return failed
            warn_of_other_bases(read_bases(to_run, paths), counts)
        return run_jobs(jobs, logs, slots, label, keep_going=True) if jobs else []

    def _counts(self, choice: Choice) -> Counts:
        folder = Path(self.config.counts)
        if not self.config.counts or not counts_file(choice, folder).is_file():
            return {}
        recorded = recorded_settings(counts_file(choice, folder))
        there = {arm: seeds for arm, seeds in choice.arms.items() if arm in recorded}
        return read_counts(replace(choice, arms=there), folder) if there else {}


def reproduce_bench(config: ReproduceConfig) -> Path:
    """Run what is missing of the bench, then write its tables and figures; returns the tables' file.

    The same command goes on after an interruption. Settings that are frozen already are not chosen again.

    Raises UserError for unknown methods, for a directory with other settings, and when runs failed.
    """
    started = time.monotonic()
    bench = read_bench([] if config.methods == ("core",) else config.methods, smoke=config.smoke)
    run = Run(config, bench, Path(config.out or "runs/reproduce-bench"))
    frozen, development, failures = choose(run)
    test = None
    if not failures and bench.rule.target in frozen:
        test, failures = run.phase("test", arms_of_test(run, frozen))
    page = _write(run, frozen, development, test)
    say(f"{time.monotonic() - started:.0f} s; open {page}")
    check_finished(failures)
    return page


def choose(run: Run) -> tuple[Frozen, list[Phase], list[str]]:
    """The frozen settings, the development phases, and the jobs that failed."""
    bench, file = run.bench, run.root / FROZEN
    shipped = Path(run.config.counts) / FROZEN
    if run.config.counts and shipped.is_file() and not file.exists():
        write_frozen(read_frozen(shipped), file)
    frozen = read_frozen(file) if file.exists() else {}
    every = [setting for settings in bench.methods.values() for setting in settings]
    phases: list[Phase] = []
    points: Points = {}
    for number, world in enumerate(bench.development, 1):
        name = f"development-{number}"
        seeds = {world: (bench.development_seed,)}
        phase, failures = run.phase(name, {setting: seeds for setting in every})
        phases.append(phase)
        points = development_points(bench, phases)
        wanted = [setting for setting in every if not setting.retired]
        if failures or any(setting.name not in points.get(setting.method, ()) for setting in wanted):
            return frozen, phases, failures or [f"{name} is not finished"] * (not run.config.report_only)
        kept = halved(points, bench.rule)
        every = [by_name(bench)[one] for names in kept.values() for one in names]
    new = {method: roles for method, roles in freeze(points, bench.rule).items() if method not in frozen}
    if new:
        write_frozen(new, file)
        frozen = read_frozen(file)
    return frozen, phases, []


def arms_of_test(run: Run, frozen: Frozen) -> dict[Setting, dict[int, Sequence[int]]]:
    """The chosen settings in every test world, with their seeds."""
    bench = run.bench
    return {
        setting: {w: bench.test_seeds if setting.method in bench.twice else bench.test_seeds[:1] for w in bench.test}
        for setting in chosen_settings(bench, frozen)
    }


def _write(run: Run, frozen: Frozen, development: Sequence[Phase], test: Phase | None) -> Path:
    """Write tables.md and the figures."""
    bench, out = run.bench, run.root / "report"
    (out / "figures").mkdir(parents=True, exist_ok=True)
    tables = [tried_table(bench, development, frozen)]
    if test is not None:
        tuned = frozen.get(bench.rule.target, {}).get("accurate", "")
        merits = [merit_table(bench, test), attempts_table(bench, test), variance_table(bench, test)]
        merits.append(seeds_table(bench, test, tuned))
        gaps = [gaps_table(bench, test, method) for method in (bench.rule.target, *bench.against)]
        tables = [chosen_table(bench, test), *gaps, *merits, *tables]
    found = [table for table in tables if table is not None]
    parts = ["# The bench of diversity", *map(to_markdown, found)]
    target = bench.label(bench.rule.target)
    for name, phase in {"development": development[0], **({"test": test} if test is not None else {})}.items():
        for metric in ("greedy", "mean"):
            marks = f"grey: {target}; cross: the base models; triangle: less accurate than they are"
            words = f"{metric} against pass@{bench.rule.k}, {name} worlds; {marks}"
            parts += _figure(out, f"{name}-{metric}", frontier_figure(bench, phase, metric), words)
            words = f"pass@{bench.rule.k} attained with at least an accuracy ({metric}), {name} worlds; grey: {target}"
            parts += _figure(out, f"{name}-{metric}-attained", attainment_figure(bench, phase, metric), words)
    write_atomically(out / "tables.md", "\n\n".join(parts) + "\n")
    print_table(found[0])
    return out / "tables.md"


def _figure(out: Path, name: str, figure: Figure | None, words: str) -> list[str]:
    """Write a figure; returns what shows it in Markdown."""
    if figure is None:
        return []
    with written_atomically(out / "figures" / f"{name}.png") as temporary:
        temporary.write_bytes(plots.to_png(figure))
    return [f"![{words}](figures/{name}.png)\n\n{words}"]
