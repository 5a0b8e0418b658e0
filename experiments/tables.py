"""The paper's tables from the runs of a grid: Tables 1–4 and 8, comparisons with intervals, budgets and settings.

A table about a base model needs one that was evaluated; it is None if its split was not.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from dph.config import flatten
from dph.report.comparison import RATES, retention
from dph.report.data import EvalRun, MetricValue
from dph.report.tables import DIVERSITY, DIVERSITY_NOTE, Cell, ReportTable, cell, retention_note
from experiments.finished import (
    CROSS_DOMAIN,
    DIFFERENCES,
    IN_DOMAIN,
    INTERVALS,
    OUT_OF_DOMAIN,
    Results,
    difference,
    mean_value,
    values,
)
from experiments.grid import Base, train_settings
from experiments.mixing import cover_of, mixed, pass_of
from experiments.mixing import mean_of as mean_of_counts
from experiments.plan import AGAIN, Choice


def signed_cell(value: MetricValue, scale: float = 100, digits: int = 1) -> Cell:
    """A difference as text with its sign; in percentage points unless another scale is given."""
    if math.isnan(value.mean):
        return Cell("–")
    interval = "" if math.isnan(value.low) else f"{scale * value.low:+.{digits}f} to {scale * value.high:+.{digits}f}"
    return Cell(f"{scale * value.mean:+.{digits}f}", interval, value.over)


def accuracy_table(results: Results, base: Base, title: str, ks: Sequence[int] = (8, 16, 32)) -> ReportTable:
    """Tables 1 and 2: greedy and pass@k, in-domain and cross-domain, of a base model and what was trained from it."""
    domains = [(domain, results.split(domain)) for domain in (IN_DOMAIN, CROSS_DOMAIN) if results.split(domain)]
    metrics = ["greedy", *(f"pass@{k}" for k in ks)]
    columns = [(f"{domain}: {metric}", split, metric) for domain, split in domains for metric in metrics]
    return _metric_table(results, base, title, columns, _sizes(results, domains))


def _metric_table(
    results: Results, base: Base, title: str, columns: Sequence[tuple[str, str, str]], note: str
) -> ReportTable:
    """One row for the base model and one for each method; columns are (title, split, metric)."""
    labelled = [(base.label, [results.bases[base.name]]), *_trained(results, base)]
    rows = [_figures(label, runs, columns) for label, runs in labelled]
    return ReportTable(title, ["", *(column for column, _, _ in columns)], rows, f"{note} {INTERVALS}.")


def _figures(label: str, runs: Sequence[EvalRun], columns: Sequence[tuple[str, str, str]]) -> list[Cell]:
    """A row: the label, and a cell for each column (title, split, metric)."""
    return [Cell(label), *(cell(metric, mean_value(runs, split, metric)) for _, split, metric in columns)]


def _trained(results: Results, base: Base) -> list[tuple[str, Sequence[EvalRun]]]:
    """Label with number of seeds, and evaluations, of every method trained from a base model."""
    return [(_seeded(results, name), runs) for name, runs in results.of_base(base.name).items()]


def _seeded(results: Results, name: str) -> str:
    count = len(results.arms[name])
    return f"{results.arm(name).label} ({count} seed{'s' if count > 1 else ''})"


def _sizes(results: Results, domains: Sequence[tuple[str, str]]) -> str:
    any_run = next(iter(results.bases.values()))
    parts = [f"{domain}: {any_run.splits[split].problems} problems" for domain, split in domains]
    samples = any_run.splits[domains[0][1]].samples if domains else 0
    return f"{', '.join(parts)}; {samples} samples a problem. Percent."


def forgetting_table(results: Results, base: Base) -> ReportTable | None:
    """Table 3: the task that training did not touch."""
    split = results.split(OUT_OF_DOMAIN)
    if not split:
        return None
    columns = [("greedy", split, "greedy"), ("mean@n", split, "mean"), ("pass@8", split, "pass@8")]
    note = f"Split {split!r}: {results.bases[base.name].splits[split].problems} problems."
    return _metric_table(results, base, "Out-of-domain after training (Table 3)", columns, note)


def sampling_table(results: Results, base: Base, domain: str) -> ReportTable | None:
    """Tables 4 and 8: mean@n and the whole pass@k curve of one domain."""
    split = results.split(domain)
    if not split:
        return None
    found = results.bases[base.name].splits[split]
    curve = [f"pass@{k}" for k in sorted(found.pass_curve) if k > 1 and 2 * k <= found.samples]
    columns = [("mean@n", split, "mean"), *((metric, split, metric) for metric in curve)]
    title = f"mean@n and pass@k, {domain} (Tables 4 and 8)"
    return _metric_table(results, base, title, columns, "k up to half of the samples.")


def comparison_table(results: Results, base: Base, against: Sequence[str] = ("grpo", "exp_only")) -> ReportTable | None:
    """Differences in percentage points to the base model and to other arms, in-domain, paired by problem."""
    split = results.split(IN_DOMAIN)
    if not split:
        return None
    run = results.bases[base.name]
    known = results.of_base(base.name)
    metrics = [
        metric
        for metric in ("greedy", "pass@8", "pass@32", "styles_correct")
        if not np.isnan(values([run], split, metric)).all()
    ]
    others = {base.label: [run]} | {results.arm(name).label: known[name] for name in against if name in known}
    rows, compared, excluding = [], 0, 0
    for name, runs in known.items():
        row = [Cell(_seeded(results, name))]
        for label, other in others.items():
            for metric in metrics:
                if label == results.arm(name).label:
                    row.append(Cell("–"))
                    continue
                found = difference(runs, other, split, metric)
                compared += 1
                excluding += found.low > 0 or found.high < 0
                row.append(_signed(metric, found))
        rows.append(row)
    columns = ["", *(f"{metric} − {label}" for label in others for metric in metrics)]
    note = (
        f"Percentage points (styles: counts). {DIFFERENCES}. "
        f"{compared} comparisons, {excluding} of them with an interval that excludes 0; {0.05 * compared:.1f} would by "
        "chance if nothing differed."
    )
    return ReportTable("Differences, in-domain", columns, rows, note)


def free_table(results: Results, base: Base) -> ReportTable | None:
    """Every arm, and every arm with some of its k samples from the base model, in-domain: what costs no training."""
    split = results.split(IN_DOMAIN)
    if not split:
        return None
    k = min(32, results.bases[base.name].splits[split].samples)
    shares = [b for b in (k // 16, k // 8, k // 4) if b]
    every = [results.bases[base.name], *(run for _, runs in _trained(results, base) for run in runs)]
    judged = [{row["id"] for row in run.problems if row["split"] == split and row["samples"] >= k} for run in every]
    whole = sorted(set.intersection(*judged))
    if not whole:
        return None

    def counted(run: EvalRun) -> list[tuple[int, int]]:
        found = {row["id"]: (row["samples"], row["correct"]) for row in run.problems if row["split"] == split}
        return [found[id] for id in whole]

    def measured(one: list[tuple[int, int]]) -> list[float]:
        return [mean_of_counts(one), pass_of(one, k), cover_of(one, 0.25, k)]

    own = counted(results.bases[base.name])
    rows = [[Cell(base.label), *_percent(measured(own)), *[Cell("–")] * (2 * len(shares))]]
    for label, runs in _trained(results, base):
        each = [[*measured(one), *(v for b in shares for v in mixed(one, own, b, k))] for one in map(counted, runs)]
        rows.append([Cell(label), *_percent(np.mean(each, axis=0))])
    columns = ["", "mean@n", f"pass@{k}", f"cover@¼ of {k}"]
    columns += [f"{b} from the base: {metric}" for b in shares for metric in ("mean", f"pass@{k}")]
    note = (
        f"Percent, means over seeds, {len(whole)} problems. A mix has that many of its {k} samples from the base "
        "model: compare a method with the mix of GRPO at the same mean. cover@¼: at least a quarter of the samples is "
        "correct, which rare guesses do not reach."
    )
    return ReportTable("Free baselines, in-domain", columns, rows, note)


def _percent(shares: Sequence[float] | np.ndarray) -> list[Cell]:
    return [Cell(f"{100 * share:.1f}") for share in shares]


def variants_table(results: Results, base: Base) -> ReportTable | None:
    """Sensitivity: below each arm its variants, with their differences to it."""
    domains = {domain: results.split(domain) for domain in (IN_DOMAIN, OUT_OF_DOMAIN)}
    known = results.of_base(base.name, variants=True)
    varied = {name: [other for other in known if results.arm(other).variant_of == name] for name in known}
    if not domains[IN_DOMAIN] or not any(varied.values()):
        return None
    titles = {"greedy": "greedy", "mean": "mean@n", "pass@8": "pass@8", "pass@32": "pass@32"}
    titles["styles_correct"] = "styles among correct"
    columns = [(title, domains[IN_DOMAIN], metric) for metric, title in titles.items()]
    against = [column for column in columns if column[2] in ("greedy", "mean", "pass@32")]
    if domains[OUT_OF_DOMAIN]:
        kept = (f"{OUT_OF_DOMAIN}: mean@n", domains[OUT_OF_DOMAIN], "mean")
        columns.append(kept)
        against.append(kept)

    def gaps(name: str, plain: str) -> list[Cell]:
        runs, others = known[name], known[plain]
        return [_signed(metric, difference(runs, others, split, metric)) for _, split, metric in against]

    shown = dict.fromkeys(name for plain, others in varied.items() if others for name in (plain, *others))
    figures = {name: _figures(_seeded(results, name), known[name], columns) for name in shown}
    blank = [Cell("–")] * len(against)
    rows = [_figures(base.label, [results.bases[base.name]], columns) + blank]
    for plain, others in varied.items():
        if others:
            rows.append(figures[plain] + blank)
            rows += [figures[name] + gaps(name, plain) for name in others]
    headings = ["", *(title for title, _, _ in columns), *(f"{title} − plain" for title, _, _ in against)]
    note = (
        "In-domain but for the columns that name another. The last columns compare an arm with the plain one that it "
        f"varies, which stands above it, in percentage points. {INTERVALS}. Differences: {DIFFERENCES}."
    )
    return ReportTable("Sensitivity: one setting changed", headings, rows, note)


def _signed(metric: str, value: MetricValue) -> Cell:
    return signed_cell(value, 1, 2) if metric.startswith("styles") else signed_cell(value)


def diversity_table(results: Results, base: Base) -> ReportTable | None:
    """Figs. 2 and 4 in numbers: styles, keep and exploration rates, with the noise floor."""
    split = results.split(IN_DOMAIN)
    if not split:
        return None
    run = results.bases[base.name]
    rows = []
    floor = {base.label: [run]} | (
        {base.label + AGAIN: [results.again[base.name]]} if base.name in results.again else {}
    )
    for label, runs in [*floor.items(), *_trained(results, base)]:
        rates = retention(runs, run, split)
        styles = (cell(m, mean_value(runs, split, m)) for m in ("styles", "styles_correct"))
        rows.append([Cell(label), *styles, *(cell(m, rates.get(m)) for m in RATES)])
    columns = ["", "styles in 32 samples", "styles among correct", *RATES]
    note = (
        f"{retention_note(base.label)} The base model against other samples of its own is the noise floor. {INTERVALS}."
    )
    return ReportTable("Styles, keep and exploration rate, in-domain (Fig. 2, Fig. 4)", columns, rows, note)


def variety_table(results: Results, base: Base) -> ReportTable | None:
    """Distinct queries and answers, overlap, area under pass@k and entropy, of all samples and correct ones."""
    split = results.split(IN_DOMAIN)
    if not split:
        return None
    measured = results.bases[base.name].splits[split].metrics
    columns = [(title, split, name) for name, title in DIVERSITY.items() if name in measured]
    title = "Diversity of the samples, in-domain"
    return _metric_table(results, base, title, columns, DIVERSITY_NOTE) if columns else None


def cost_table(results: Results) -> ReportTable | None:
    """Efficiency: rollouts, seconds per step and memory of each arm."""
    rows = []
    for name, trained in results.trained.items():
        laps = results.timings[name]
        if not trained or not laps:
            continue
        config = flatten(train_settings(results.choice.grid.world, results.arm(name), results.choice.grid.train))
        drawn = [sum(row.get("prompts_drawn", 0.0) for row in run.metrics) for run in trained]
        steps = [max(row["step"] for row in run.metrics) for run in trained]
        seconds = [_median(laps, key) for key in ("sample_seconds", "update_seconds")]
        memory = max((row.get("peak_memory_gib", math.nan) for row in laps), default=math.nan)
        rows.append(
            [
                Cell(results.arm(name).label),
                Cell(f"{np.mean(steps):.0f}"),
                Cell(f"{np.mean(drawn) * config['rollout.n']:.0f}"),
                *(Cell("–" if math.isnan(part) else f"{part:.2f}") for part in seconds),
                Cell("–" if math.isnan(memory) else f"{1024 * memory:.0f}"),
            ]
        )
    if not rows:
        return None
    columns = ["", "steps", "rollouts", "sampling (s)", "update (s)", "peak memory (MiB)"]
    note = "A run; medians over steps and seeds. Runs side by side on shared cores: see benchmarks/ for exact ratios."
    return ReportTable("Budgets and cost", columns, rows, note)


def _median(laps: Sequence[Mapping[str, float]], key: str) -> float:
    found = [row[key] for row in laps if key in row]
    return float(np.median(found)) if found else math.nan


def settings_table(choice: Choice) -> ReportTable:
    """What was run: every arm with its preset, base, store, seeds, and the settings that not all arms share."""
    grid = choice.grid
    resolved = {name: flatten(train_settings(grid.world, grid.arms[name], grid.train)) for name in choice.arms}
    common = dict(next(iter(resolved.values()), {}))
    for settings in resolved.values():
        common = {key: value for key, value in common.items() if settings.get(key, value) == value}
    rows = []
    for name, seeds in choice.arms.items():
        arm = grid.arms[name]
        own = {key: value for key, value in resolved[name].items() if key not in common and key != "method"}
        words = [f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}" for key, value in own.items()]
        text = ", ".join([*words, *([arm.retired] if arm.retired else [])])
        seeds_text = ", ".join(map(str, seeds))
        rows.append(
            [Cell(arm.label), Cell(arm.preset), Cell(f"{arm.base} / {arm.store}"), Cell(seeds_text), Cell(text)]
        )
    shared = ", ".join(f"{key}={value}" for key, value in sorted(common.items()))
    return ReportTable(
        "Everything that was run", ["", "preset", "base / store", "seeds", "settings"], rows, f"In common: {shared}."
    )
