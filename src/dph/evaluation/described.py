"""A comparison of judged samples in words, as text and as JSON; its page is `dph.report.passk`."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dph.errors import one_line
from dph.evaluation.changes import Change, Comparison, Problem
from dph.evaluation.wilson import Interval

_NAMED = 10
"""Problems that the text names; the page and the JSON name all."""


def verdict(change: Change) -> str:
    """What changed, in one sentence."""
    name = next(reversed([name for name in change.differences if name.startswith("pass@")]))
    found = change.differences[name]
    if found.low <= 0 <= found.high:
        said = f"{name} did not change measurably ({_points(found)})"
    else:
        low, high = sorted(100 * abs(end) for end in (found.low, found.high))
        rose = "rose" if found.estimate > 0 else "fell"
        said = f"{name} {rose} by {100 * abs(found.estimate):.1f} points ({low:.1f} to {high:.1f})"
    half = sum(2 * problem.before[0] >= problem.before[1] for problem in change.lost)
    often = f" ({half} of them solved by at least half of the samples before)" if half else ""
    return f"{said}: {_count(change.lost)} lost{often}, {_count(change.gained)} gained"


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Everything, as JSON takes it; a number that is not defined is null."""
    return {"verdicts": [verdict(change) for change in comparison.changes]} | _plain(asdict(comparison))


def as_text(comparison: Comparison) -> str:
    """Tables in percent, one line for each metric, and the lost and gained problems by name."""
    lines = [f"{verdict(change)}." for change in comparison.changes]
    for table in (scores_table(comparison), distinct_table(comparison), *map(mix_table, comparison.changes)):
        if table.rows:
            widths = [max(map(len, column)) for column in zip(table.columns, *table.rows, strict=True)]
            rows = [
                "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
                for row in (table.columns, *table.rows)
            ]
            lines += ["", *rows]
    for change in comparison.changes:
        for what, problems in (("lost", change.lost), ("gained", change.gained)):
            shown = [_problem(problem) for problem in problems[:_NAMED]]
            more = f" and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
            lines += ["", f"{what} in {change.after}:", *(f"  {line}" for line in shown)] if problems else []
            lines += [f" {more}"] if more else []
        lines += [
            "",
            f"{len(change.lost)} lost and {len(change.gained)} gained: p = {change.sign_p:.2g} (exact sign test)",
        ]
    return "\n".join([*lines, "", "percent, with 95 % intervals over problems"]).lstrip()


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def scores_table(comparison: Comparison) -> Table:
    names = list(dict.fromkeys(name for scores in comparison.scores for name in scores.metrics))
    labels = _labels(len(comparison.scores))
    rows = []
    for name in names:
        cells = [_share(scores.metrics.get(name)) for scores in comparison.scores]
        rows.append([name, *cells, *(_points(change.differences.get(name)) for change in comparison.changes)])
    return Table("Scores", ["", *labels, *(f"{label} − before" for label in labels[1:])], rows)


def distinct_table(comparison: Comparison) -> Table:
    ms = sorted({m for scores in comparison.scores for m in scores.distinct})
    cells = [[f"{s.distinct[m]:.2f}" if m in s.distinct else "–" for s in comparison.scores] for m in ms]
    rows = [[f"of {m}", *row] for m, row in zip(ms, cells, strict=True)]
    return Table("Distinct answers", ["distinct answers", *_labels(len(comparison.scores))], rows)


def mix_table(change: Change) -> Table:
    k = max(change.mix)
    chosen = sorted(
        {b for b in change.mix if b in (0, k)} | {round(k / 4), round(k / 2), round(3 * k / 4)} & set(change.mix)
    )
    columns = [f"samples of before among {k}", *map(str, chosen)]
    return Table("Mix", columns, [[f"pass@{k}", *(f"{100 * change.mix[b]:.1f}" for b in chosen)]] if k > 1 else [])


def _labels(count: int) -> list[str]:
    return ["before", "after", *(f"after {i}" for i in range(2, count))][:count]


def _share(value: Interval | None) -> str:
    return "–" if value is None else f"{100 * value.estimate:.1f} ({100 * value.low:.1f}–{100 * value.high:.1f})"


def _points(value: Interval | None) -> str:
    return "–" if value is None else f"{100 * value.estimate:+.1f} ({100 * value.low:+.1f} to {100 * value.high:+.1f})"


def _count(problems: Sequence[Problem]) -> str:
    return f"{len(problems)} problem{'' if len(problems) == 1 else 's'}"


def _problem(problem: Problem) -> str:
    return (
        f"{one_line(problem.id, 60)} ({problem.before[0]}/{problem.before[1]} → {problem.after[0]}/{problem.after[1]})"
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
