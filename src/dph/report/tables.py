"""The tables of a report: how metrics are written, what each table shows, and tables as Markdown and on a terminal.

`dph.measure.metrics` declares which metrics there are (METRICS). The tables have a column for each entry that names one
of them as its table.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from rich.console import Console
from rich.table import Table as TerminalTable
from rich.text import Text

from dph.errors import counted, visible
from dph.measure.metrics import AMONG, METRICS, metric
from dph.measure.strata import FEWEST, FEWEST_PROBLEMS
from dph.measure.wording import decimal
from dph.process.streams import Drawn
from dph.report.comparison import (
    KEEP_K,
    RATES,
    EvaluationTable,
    label_differences,
    points,
    retention,
    samples_of,
    strata_of,
)
from dph.report.data import MetricValue, Split, TrainRun, monitored_metric
from dph.runs.coverage import CERTIFICATE, CLASSES, FALLING, FILE, Ledger, read_visits
from dph.types import Interval


@dataclass(frozen=True, slots=True)
class Cell:
    """The entry of a table: a text, and the interval and the number of problems of a mean, if they are known."""

    text: str
    interval: str = ""
    over: str = ""
    """See `dph.report.data.MetricValue.over`."""


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A titled table. The first entry of a row is its label."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""

    @property
    def caption(self) -> str:
        """The note, with an explanation of entries such as "35 of 40" if there are any."""
        over = "An entry with “35 of 40” is over 35 of the 40 problems: the others lack the metric."
        incomplete = any(entry.over for row in self.rows for entry in row)
        return " ".join(filter(None, (self.note, over if incomplete else "")))


def cell(name: str, value: MetricValue | None) -> Cell:
    """A metric as text, in the unit of `METRICS`. Shares are in percent."""
    if value is None or math.isnan(value.mean):
        return Cell("–")
    scale, digits = metric(name).scale, metric(name).digits
    interval = "" if math.isnan(value.low) else f"{scale * value.low:.{digits}f}–{scale * value.high:.{digits}f}"
    return Cell(f"{scale * value.mean:.{digits}f}", interval, value.over)


_MARKUP = re.compile(
    r"""[\\`*\[\]<|~$]               # code, emphasis, links, HTML, cells, mathematics
    |(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])  # emphasis, which does not begin or end within a word
    |&(?=\#?\w+;)                  # entities
    |:(?=//)|(?<=www)\.            # addresses""",
    re.VERBOSE,
)
"""The texts that GitHub would read as markup within a line. Other texts stay readable in the file, such as 1e-6 and
pass@8."""


def as_markdown(text: str) -> str:
    """A text as one line of GitHub's Markdown that shows the text unchanged. Nothing in it is markup."""
    return _MARKUP.sub(r"\\\g<0>", visible(" ".join(text.splitlines())))


def to_markdown(table: ReportTable) -> str:
    """The table in GitHub's Markdown, with intervals in parentheses."""

    def line(entries: Sequence[str]) -> str:
        return "| " + " | ".join(entries) + " |"

    body = [
        line([as_markdown(entry.text + _bracketed(entry.interval, entry.over)) for entry in row]) for row in table.rows
    ]
    rule = line(["---", *("---:" for _ in table.columns[1:])])
    head = line([*map(as_markdown, table.columns)])
    blocks = [f"**{as_markdown(table.title)}**", "\n".join([head, rule, *body]), as_markdown(table.caption)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def print_table(table: ReportTable) -> None:
    """Print the table on the terminal. If it has fewer rows than columns, rows become columns."""
    if len(table.rows) < len(table.columns):
        first, *columns = zip(table.columns, *table.rows, strict=True)
        rows = [[Cell(name), *cells] for name, *cells in columns]
        table = ReportTable(table.title, ["", *(entry.text for entry in first[1:])], rows, table.note)
    console = Console(file=Drawn("stdout"))  # type: ignore[arg-type]
    # A column with an interval takes about 20 characters. If the intervals do not fit, only report.md has them.
    intervals = console.width >= 20 * len(table.columns)
    title, caption = Text(visible(table.title)), Text(visible(table.caption))  # rich reads [tags] in a str
    shown = TerminalTable(title=title, title_justify="left", caption=caption, caption_justify="left")
    for index, name in enumerate(table.columns):
        shown.add_column(Text(visible(name)), justify="left" if index == 0 else "right")
    for row in table.rows:
        details = (_bracketed(entry.interval if intervals else "", entry.over) for entry in row)
        shown.add_row(
            *(Text.assemble(visible(entry.text), (detail, "dim")) for entry, detail in zip(row, details, strict=True))
        )
    console.print(shown)


def _bracketed(*details: str) -> str:
    text = "; ".join(filter(None, details))
    return f" ({text})" if text else ""


def tables(comparison: EvaluationTable, trains: Sequence[TrainRun] = ()) -> list[ReportTable]:
    """All tables of a report. The first has all metrics of the main split."""
    labels, base, main = comparison.runs, comparison.base, comparison.main
    summaries = comparison.splits[main]
    notes = ["Percent, styles as counts per problem; with 95 % intervals over problems."]
    if any(len(group) > 1 for group in labels.values()):
        seeds = ", ".join(f"{label} {len(group)}" for label, group in labels.items())
        cover = "of several runs the intervals cover runs and problems, of one run they hold for that model"
        notes.append(f"Runs averaged: {seeds}; {cover}.")
    kept = {}
    if base is not None and base in labels:
        kept = {label: retention(group, labels[base][0], main) for label, group in labels.items()}
        if not any(kept.values()):
            fewest = f"{KEEP_K} samples of every problem and {FEWEST_PROBLEMS} problems for each rate"
            notes.append(f"Keep and exploration rates need at least {fewest}.")
        else:
            notes.append(retention_note(base))
            notes.append(f"The row of {base} is the noise floor: {base} against further samples of itself.")
    elif base is not None:
        notes.append(f"No evaluation is labelled {base!r}, so keep and exploration rates are left out.")
    if "styles" in _main_metrics(summaries):
        counts = {label: samples_of(group, main)[0] for label, group in labels.items()}
        if len({*counts.values()}) > 1 and (fewer := [label for label, number in counts.items() if number < AMONG]):
            notes.append(
                f"Styles are those of the first {AMONG} samples of a problem, or of all where there are fewer, as for "
                f"{', '.join(fewer)}: fewer samples show fewer styles."
            )
    curve = monitored_metric(trains)
    if without := [_named(run, trains) for run in trains if not any(f"eval/{curve}" in row for row in run.metrics)]:
        notes.append(f"Without a curve of {curve or 'pass@k'}, as they had no monitor: {', '.join(without)}.")
    if any(k > summary.samples // 2 for summary in summaries.values() for k in summary.pass_curve if k in (8, 32)):
        notes.append("pass@k from fewer than 2k samples is unreliable.")
    of_splits = [
        main_table(comparison, split, kept, notes if split == main else [])
        for split, of_split in comparison.splits.items()
        if of_split
    ]
    further = (
        difference_table(comparison),
        strata_table(comparison),
        diversity_table(main, summaries),
        coverage_table(trains),
    )
    return of_splits + [table for table in further if table is not None]


def _named(run: TrainRun, trains: Sequence[TrainRun]) -> str:
    """The label of a run. If other runs have the label too, the name of the folder follows."""
    return f"{run.label} ({run.path.name})" if [train.label for train in trains].count(run.label) > 1 else run.label


def difference_table(comparison: EvaluationTable) -> ReportTable | None:
    """The changes from the base and from GRPO to the other labels; None if there is a single label."""
    changes = label_differences(comparison)
    names = list(dict.fromkeys(name for change in changes for name in change.metrics))
    rows = []
    for change in changes:
        cells = [Cell(points(change.metrics[name]) if name in change.metrics else "–") for name in names]
        label = Cell(f"{change.after} − {change.before}")
        rows.append([label, *cells, Cell(decimal(change.lost)), Cell(decimal(change.gained))])
    note = (
        "Points of percent, paired by problem, with 95 % intervals over problems and, of a label with several runs, "
        "over runs; a label with one run counts as that very model. "
        "Lost: problems that a sample of the second solves and none of the first; gained: the reverse; with several "
        "runs or unequal numbers of samples, the expectation for one run of each at the smallest number of samples."
    )
    title = f"Split {comparison.main}: differences"
    return (
        ReportTable(title, ["", *(metric(name).title for name in names), "lost", "gained"], rows, note)
        if rows
        else None
    )


def strata_table(comparison: EvaluationTable) -> ReportTable | None:
    """Where pass@k changed from the base to the other labels, by how often the base solves a problem. None without a
    base, or if the base has too few samples."""
    found = strata_of(comparison)
    if not found:
        return None
    rows = []
    for (label, k), classes in found.items():
        named = f"{label}, pass@{k}"
        rows.append(
            [Cell(f"{named}: part of the change"), *(Cell(points(_of_interval(stratum.part))) for stratum in classes)]
        )
        inside = [
            points(_of_interval(stratum.change)) if stratum.problems * _problems(comparison) >= FEWEST_PROBLEMS else "–"
            for stratum in classes
        ]
        rows.append([Cell(f"{named}: in the class"), *map(Cell, inside)])
    first = next(iter(found.values()))
    columns = [f"{stratum.title} ({100 * stratum.problems:.0f} % of the problems)" for stratum in first]
    note = (
        f"Points of percent. Classes by the share of {comparison.base}'s samples that are correct; the class and the "
        "level before come from different halves of its samples, in the mean over all ways to halve them, so that no "
        "class regresses to the mean. The parts add up to the change over all problems, but for those with fewer than "
        f"{FEWEST} judged samples of {comparison.base}. Intervals as above; –: fewer than {FEWEST_PROBLEMS} problems "
        "are expected in the class."
    )
    title = f"Split {comparison.main}: where pass@k changed, by how often {comparison.base} solves a problem"
    return ReportTable(title, ["", *columns], rows, note)


def _of_interval(value: Interval) -> MetricValue:
    return MetricValue(value.estimate, value.low, value.high)


def _problems(comparison: EvaluationTable) -> int:
    return max(summary.problems for summary in comparison.splits[comparison.main].values())


def coverage_table(trains: Sequence[TrainRun]) -> ReportTable | None:
    """The problems that training runs sampled and lost, by the pass rate of the reference policy; None if no run has a
    record of them."""
    rows = []
    for run, file in product(trains, (FILE, CERTIFICATE)):
        visits = read_visits(run.path, file, strict=True)
        reference = {id: (correct, judged) for id, correct, judged in visits.pop(0, [])}
        if not reference or not visits:
            continue
        ledger = Ledger(reference)
        for problems in visits.values():
            ledger.note(problems)
        of, lost, falling = (ledger.by_class(ids) for ids in (ledger.seen, ledger.lost, ledger.falling))
        label = _named(run, trains) + (", certification set" if file == CERTIFICATE else "")
        counts = [Cell(f"{problems[name]} of {of[name]}") for name in CLASSES for problems in (lost, falling)]
        rows.append([Cell(label), *counts])
    if not rows:
        return None
    columns = [f"{name}: {what}" for name in CLASSES for what in ("lost", "falling")]
    (_, hard), (_, middle), _ = CLASSES.values()
    note = (
        "Of the problems that training sampled, and of the certification set, by their last visit. Lost: solved "
        "before, by the reference policy or in training, and not at the last visit. Falling: the reference policy "
        f"would do as badly with a probability of at most {FALLING:g}. By the reference policy's pass rate: hard up to "
        f"{hard:g}, middle up to {middle:g}, easy above."
    )
    return ReportTable("Problems that training is losing", ["", *columns], rows, note)


def retention_note(base: str) -> str:
    """A note for below a table: the meaning of the keep rate and of the exploration rate against the label `base`."""
    keep, explore = RATES
    return (
        f"{keep}: of the problems that {base} solves within {KEEP_K} samples, the share solved within as many; "
        f"{explore}: the same of those that {base} does not solve; –: fewer than {FEWEST_PROBLEMS} such problems "
        "are expected."
    )


def main_table(
    comparison: EvaluationTable, split: str, kept: Mapping[str, Mapping[str, MetricValue]], notes: Iterable[str]
) -> ReportTable:
    """A table with a row for each label: greedy, pass@k, maj@k and styles on a split. On the main split it also has the
    keep and exploration rates in `kept`, by label, and greedy on the other splits."""
    summaries, is_main = comparison.splits[split], split == comparison.main
    elsewhere = comparison.elsewhere if is_main else {}
    names = _main_metrics(summaries)
    rates = RATES if is_main and any(kept.values()) else ()
    rows = []
    for label, summary in summaries.items():
        greedy_rates = [
            by_label[label].metrics.get("greedy") if label in by_label else None for by_label in elsewhere.values()
        ]
        row = [Cell(label), *(cell(name, summary.metrics.get(name)) for name in names)]
        row += [cell(name, kept.get(label, {}).get(name)) for name in rates]
        rows.append(row + [cell("greedy", value) for value in greedy_rates])
    columns = ["", *(metric(name).title for name in names), *rates, *(f"{by_label}: greedy" for by_label in elsewhere)]
    return ReportTable(f"Split {split} ({_size(comparison, split)})", columns, rows, " ".join(notes))


def _size(comparison: EvaluationTable, split: str) -> str:
    """The number of problems of a split and the number of samples of each problem. The samples are given for every
    label if they differ."""
    summaries = comparison.splits[split]
    counts = {label: samples_of(comparison.runs[label], split) for label in summaries}
    numbers = {label: f"{low}" if low == high else f"{low} to {high}" for label, (low, high) in counts.items()}
    problems = ", ".join(counted(n, "problem") for n in sorted({summary.problems for summary in summaries.values()}))
    if len({*numbers.values()}) > 1:
        return f"{problems}; samples of each: {', '.join(f'{label} {number}' for label, number in numbers.items())}"
    number = next(iter(numbers.values()))
    return f"{problems}, {'1 sample' if number == '1' else f'{number} samples'} each"


def _main_metrics(summaries: Mapping[str, Split]) -> list[str]:
    """The metrics of the first table."""
    measured = {name for summary in summaries.values() for name in summary.metrics}
    ks = sorted(int(name.removeprefix("pass@")) for name in measured if name.startswith("pass@"))
    # The curve has every power of two. A table of all of them would be hard to read.
    passes = [f"pass@{k}" for k in ks if k in (1, 8, 32) or k == ks[-1] < 8]
    main = (passes if entry.name == "pass@k" else [entry.name] for entry in METRICS if entry.table == "main")
    return [name for names in main for name in names if name in measured]


DIVERSITY = {entry.name: entry.title for entry in METRICS if entry.table == "diversity"}
"""The column titles of the measures of diversity that `dph eval` reports."""
DIVERSITY_NOTE = (
    "Counts of distinct things among 32 samples of a problem, or among all if there are fewer; overlap of the 4-grams "
    "of two responses and the area under pass@k over log k in percent; entropy in nats. Fewer distinct answers are not "
    "a loss if only one is right."
)


def diversity_table(split: str, summaries: Mapping[str, Split]) -> ReportTable | None:
    """How varied the samples are, with a row for each label; None if no evaluation measured it."""
    names = [name for name in DIVERSITY if any(name in summary.metrics for summary in summaries.values())]
    if not names:
        return None
    rows = [
        [Cell(label), *(cell(name, summary.metrics.get(name)) for name in names)]
        for label, summary in summaries.items()
    ]
    columns = ["", *(DIVERSITY[name] for name in names)]
    return ReportTable(f"Split {split}: diversity of the samples", columns, rows, DIVERSITY_NOTE)
