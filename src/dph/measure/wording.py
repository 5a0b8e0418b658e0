"""Changes between judged samples in words, as tables of text and as JSON."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any

from dph.errors import counted, one_line
from dph.measure.bands import Band
from dph.measure.changes import Change, Comparison, ProblemCounts
from dph.measure.strata import FEWEST_PROBLEMS
from dph.types import Interval

_NAMED = 10
"""Problems that the text names; the page and the JSON name all."""


def verdict(change: Change) -> str:
    """The change, in one sentence."""
    name = next(reversed([name for name in change.differences if name.startswith("pass@")]))
    difference = change.differences[name]
    if difference.low <= 0 <= difference.high:
        changed = f"{name} did not change measurably ({_points(difference)})"
    else:
        low, high = sorted(100 * abs(end) for end in (difference.low, difference.high))
        rose = "rose" if difference.estimate > 0 else "fell"
        changed = f"{name} {rose} by {100 * abs(difference.estimate):.1f} points ({low:.1f} to {high:.1f})"
    on = f" on {counted(change.problems, 'common problem')}" if change.common else ""
    # Named problems are no part of an expected number.
    half = 0 if change.expected else sum(2 * problem.before[0] >= problem.before[1] for problem in change.lost)
    often = f" ({half} of them solved by at least half of the samples before)" if half else ""
    lost, gained = in_problems(change.lost_count), in_problems(change.gained_count)
    among = f" (expected among {change.among} of each)" if change.expected else ""
    if not among and change.samples != (int(name[5:]),) * 2:
        among = f", among all {change.among}"
    return f"{changed}{on}: {lost} lost{often}, {gained} gained{among}"


def in_problems(number: float) -> str:
    """A number of problems, or an expected one with one decimal, in words."""
    return counted(round(number), "problem") if number == round(number) else f"{decimal(number)} problems"


def decimal(number: float) -> str:
    """A number, or an expected one with one decimal."""
    return f"{number:.0f}" if number == round(number) else f"{number:.1f}"


def comparison_as_json(comparison: Comparison) -> dict[str, Any]:
    """Everything, as JSON takes it; a number that is not defined is null."""
    sentences = {"verdicts": verdicts(comparison), "sentences": further_sentences(comparison)}
    return sentences | plain(asdict(comparison))


def verdicts(comparison: Comparison) -> list[str]:
    """The changes, one sentence each; with several AFTER each begins with its file's name."""
    names = [f"{label}: " if len(comparison.changes) > 1 else "" for label in _labels(comparison)[1:]]
    return [f"{name}{verdict(change)}" for name, change in zip(names, comparison.changes, strict=True)]


def further_sentences(comparison: Comparison) -> list[str]:
    """For each AFTER, where pass@k changed over all k at once, and on which problems it was lost, as far as it has
    samples enough for either."""
    several = len(comparison.changes) > 1
    found = []
    for label, change in zip(_labels(comparison)[1:], comparison.changes, strict=True):
        sentences = [band_sentence(change.band) if change.band else "", strata_sentence(change)]
        found += [f"{label}: {sentence}" if several else sentence for sentence in sentences if sentence]
    return [f"{sentence[:1].upper()}{sentence[1:]}" if not several else sentence for sentence in found]


def band_sentence(band: Band) -> str:
    """Where pass@k changed over all k at once, and where the first k with a loss lies."""
    regions = {"higher": band.above, "lower": band.below, "undecided": band.undecided}
    order = sorted((region, what) for what, each in regions.items() for region in each)
    where = ", ".join(f"{what} for k = {_span(*region)}" for region, what in order)
    over = f"95 % over {'problems' if band.runs == (1, 1) else 'runs and problems'}"
    return f"at all k from 1 to {band.k} at once ({over}), pass@k is {where}; {_first_loss(band)}"


def _first_loss(band: Band) -> str:
    earliest, latest = band.first_loss
    if earliest is None:
        return "there is no loss at any of these k"
    if latest is None:
        return "no loss is shown" + (f", and none is possible below k = {earliest}" if earliest > 1 else "")
    return f"the first k with a loss {f'lies between {earliest} and {latest}' if earliest < latest else f'is {latest}'}"


def _span(first: int, last: int) -> str:
    return f"{first}–{last}" if first < last else str(first)


def strata_sentence(change: Change) -> str:
    """On which problems pass@k was lost, by how often BEFORE solves them; "" without classes."""
    if not change.strata:
        return ""
    k, parts = change.strata[0].k, [one for one in change.strata if one.part.high < 0]
    if not parts:
        return f"no class of problems, by how often before solves them, shows a loss of pass@{k}"
    places = [
        f"{_points(one.part)} points on the {100 * one.problems:.1f} % of the problems that before "
        + (f"solves in {one.title} of its samples" if one.high else "never solves")
        for one in sorted(parts, key=lambda one: one.part.estimate)
    ]
    return f"where pass@{k} was lost: {', '.join(places)}; no other class shows a loss"


def comparison_as_text(comparison: Comparison) -> str:
    """Tables in percent, one line for each metric, and the lost and gained problems by name."""
    lines = [f"{sentence}." for sentence in (*verdicts(comparison), *further_sentences(comparison))]
    tables = (scores_table(comparison), *strata_tables(comparison), distinct_table(comparison), *mix_tables(comparison))
    for table in tables:
        every = [table.columns, *table.rows] if table.rows else []
        widths = [max(map(len, column)) for column in zip(*every, strict=True)]
        cells = [[f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)] for row in every]
        lines += ["", *("  ".join(row).rstrip() for row in cells)] if cells else []
    for change in comparison.changes:
        for what, problems in (("lost", change.lost), ("gained", change.gained)):
            if problems:
                likely = ", each with its chance" if change.expected else ""
                lines += [
                    "",
                    f"{what} in {change.after}{likely}:",
                    *(f"  {_problem(problem)}" for problem in problems[:_NAMED]),
                ]
            if len(problems) > _NAMED:
                lines.append(f"  and {len(problems) - _NAMED} more")
        lines += ["", test_of(change)]
    return "\n".join([*lines, "", footer(comparison)]).lstrip()


def footer(comparison: Comparison) -> str:
    """What the numbers of all tables are."""
    runs = [scores.runs for scores in comparison.scores]
    if max(runs, default=1) == 1:
        return "percent, with 95 % intervals over problems"
    sides = [f"{label} is the mean of {counted(n, 'run')}" for label, n in zip(("before", "after"), runs, strict=True)]
    single = "; the interval holds for the very model of a side with one run" if 1 in runs else ""
    return f"percent, with 95 % intervals over runs and problems: {' and '.join(sides)}{single}"


def test_of(change: Change) -> str:
    """The sign test in one line, and what chance alone does."""
    digits = 1 if change.expected else 0
    numbers = f"{change.lost_count:.{digits}f} lost and {change.gained_count:.{digits}f} gained"
    test = "sign test of expected numbers" if change.expected else "exact sign test"
    chance = f"without any change {change.by_chance:.1f} would be lost and as many gained"
    return f"{numbers}: p = {change.sign_p:.2g} ({test}); {chance}"


@dataclass(frozen=True, slots=True)
class TextTable:
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def scores_table(comparison: Comparison) -> TextTable:
    names = list(dict.fromkeys(name for scores in comparison.scores for name in scores.metrics))
    kinds = list(dict.fromkeys(name.partition("@")[0] for name in names))
    names.sort(key=lambda name: (kinds.index(name.partition("@")[0]), float(name.partition("@")[2])))
    labels, rows = _labels(comparison), []
    banded = any(change.band for change in comparison.changes)
    for name in names:
        cells = [_share(scores.metrics.get(name)) for scores in comparison.scores]
        for change in comparison.changes:
            cells += [_points(change.differences.get(name)), *([_at_all_k(change.band, name)] if banded else [])]
        rows.append([name, *cells])
    columns = [[f"{label} − {labels[0]}", *(["at all k at once"] if banded else [])] for label in labels[1:]]
    return TextTable("Scores", ["", *labels, *(title for titles in columns for title in titles)], rows)


def _at_all_k(band: Band | None, name: str) -> str:
    """The ends of the band at the k of a metric; "" for another metric than pass@k."""
    kind, _, k = name.partition("@")
    if band is None or kind != "pass" or int(k) not in band.ks:
        return ""
    place = band.ks.index(int(k))
    low, high = (round(100 * ends[place], 1) + 0.0 for ends in (band.low, band.high))  # no −0.0
    return f"{low:+.1f} to {high:+.1f}"


def distinct_table(comparison: Comparison) -> TextTable:
    ms = sorted({m for scores in comparison.scores for m in scores.distinct})
    cells = [[f"{s.distinct[m]:.2f}" if m in s.distinct else "–" for s in comparison.scores] for m in ms]
    rows = [[f"of {m}", *row] for m, row in zip(ms, cells, strict=True)]
    return TextTable("Distinct answers", ["distinct answers", *_labels(comparison)], rows)


def mix_tables(comparison: Comparison) -> list[TextTable]:
    """For each AFTER, pass@k of a mix of its samples and those of BEFORE."""
    tables = []
    for label, change in zip(_labels(comparison)[1:], comparison.changes, strict=True):
        k = max(change.mix)
        chosen = {b for b in change.mix if b in (0, k)} | {round(k / 4), round(k / 2), round(3 * k / 4)} & {*change.mix}
        first = f"samples of before among {k}" + (f", others of {label}" if len(comparison.changes) > 1 else "")
        row = [f"pass@{k}", *(f"{100 * change.mix[b]:.1f}" for b in sorted(chosen))]
        tables.append(TextTable("Mix", [first, *map(str, sorted(chosen))], [row] if k > 1 else []))
    return tables


def strata_tables(comparison: Comparison) -> list[TextTable]:
    """For each AFTER, where pass@k changed: by how often BEFORE solves a problem."""
    tables, labels = [], _labels(comparison)
    for label, change in zip(labels[1:], comparison.changes, strict=True):
        rows = []
        for one in change.strata:
            shown = one.problems * change.problems >= FEWEST_PROBLEMS
            levels = [f"{100 * one.before:.1f}", f"{100 * one.after:.1f}", _points(one.change)] if shown else ["–"] * 3
            rows.append([one.title, f"{100 * one.problems:.1f}", *levels, _points(one.part)])
        if rows:
            title = f"pass@{change.strata[0].k} where before solves"
            columns = ["share of problems", labels[0], label, f"{label} − {labels[0]}", "part of the whole change"]
            tables.append(TextTable("Where it changed", [title, *columns], rows))
    return tables


def _labels(comparison: Comparison) -> list[str]:
    """Names of the columns: before and after, or before and the ends of the files' names that tell several AFTER."""
    paths = [PurePath(change.after).parts for change in comparison.changes]
    if len(paths) < 2:
        return ["before", "after"][: len(comparison.scores)]
    longest = max(map(len, paths))
    size = next((n for n in range(1, 1 + longest) if len({path[-n:] for path in paths}) == len(paths)), 0)
    if not size:  # one file twice
        return ["before", *(f"after {number}" for number in range(1, 1 + len(paths)))]
    names = ["/".join(path[-size:]) for path in paths]
    plain = [name.partition(".")[0] if size == 1 else name for name in names]
    return ["before", *(plain if len({*plain} - {""}) == len(plain) else names)]


def _share(value: Interval | None) -> str:
    return "–" if value is None else f"{100 * value.estimate:.1f} ({100 * value.low:.1f}–{100 * value.high:.1f})"


def _points(value: Interval | None) -> str:
    if value is None:
        return "–"
    mean, low, high = (round(100 * end, 1) + 0.0 for end in (value.estimate, value.low, value.high))  # no −0.0
    return f"{mean:+.1f} ({low:+.1f} to {high:+.1f})"


def _problem(problem: ProblemCounts) -> str:
    (cb, nb), (ca, na) = problem.before, problem.after
    chance = f", {100 * problem.chance:.0f} %" if problem.chance < 1 else ""
    return f"{one_line(problem.id, 60)} ({cb}/{nb} → {ca}/{na}{chance})"


def plain(value: Any) -> Any:
    """A value as JSON takes it; a number that is not finite is null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
