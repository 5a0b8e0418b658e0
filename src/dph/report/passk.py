"""A comparison of judged samples as one page that stands alone and has no scripts."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from markupsafe import Markup

from dph.measure.bands import Band
from dph.measure.changes import Comparison
from dph.measure.passk import powers_of_two
from dph.measure.wording import (
    TextTable,
    distinct_table,
    footer,
    further_sentences,
    scores_table,
    strata_tables,
    test_of,
    verdicts,
)
from dph.report.templates import TEMPLATES, template_text
from dph.types import Interval

_WIDTH, _HEIGHT, _EDGE = 640, 260, 44
_COLOURS = ("var(--base)", "var(--accent)", "var(--bad)", "var(--good)", "var(--none)")
_Point = tuple[float, float, float, float]
"""A place on the x-axis, a share, and the two ends of its interval."""


def as_page(comparison: Comparison, read_as: Sequence[str], title: str) -> str:
    """The whole page as HTML. read_as: for each side, a sentence on how its files were read."""
    charts = [("pass@k", _chart([(scores.name, _curve(scores.metrics)) for scores in comparison.scores]))]
    for change in comparison.changes:
        if change.band:
            charts.append((f"Change of pass@k from {change.before} to {change.after}", _change_chart(change.band)))
        heading = f"pass@{max(change.mix)} of b samples of {change.before}, the others of {change.after}"
        band = [(float(b), value, value, value) for b, value in change.mix.items()]
        charts.append((heading, _chart([("mix", band)], log=False)))
    tables = [scores_table(comparison), *strata_tables(comparison), distinct_table(comparison)]
    for change in comparison.changes:
        for what, problems in (("Lost", change.lost), ("Gained", change.gained)):
            rows = [[p.id, "{}/{}".format(*p.before), "{}/{}".format(*p.after)] for p in problems]
            columns = ["problem", "before", "after"]
            if change.expected:
                columns.append("chance")
                rows = [[*row, f"{100 * p.chance:.0f}"] for row, p in zip(rows, problems, strict=True)]
            tables.append(TextTable(f"{what} in {change.after}", columns, rows))
    return TEMPLATES.get_template("passk.html").render(
        title=title,
        verdicts=verdicts(comparison),
        further=further_sentences(comparison),
        footer=footer(comparison).capitalize(),
        tests=[test_of(change) for change in comparison.changes],
        read_as=[*read_as, *comparison.notes],
        charts=charts,
        **{"width": _WIDTH, "height": _HEIGHT, "edge": _EDGE},
        tables=[table for table in tables if table.rows],
        css=Markup(template_text("dph.report", "assets", "report.css")),
    )


def _curve(metrics: dict[str, Interval]) -> list[_Point]:
    return [(float(name[5:]), v.estimate, v.low, v.high) for name, v in metrics.items() if name.startswith("pass@")]


def _change_chart(band: Band) -> dict[str, Any]:
    """The change of pass@k with its simultaneous band, every k; those at powers of two are marked."""
    points = [
        (float(k), y, low, high) for k, y, low, high in zip(band.ks, band.estimate, band.low, band.high, strict=True)
    ]
    most = max(0.05, math.ceil(20 * max(-min(band.low), max(band.high))) / 20)
    marked = {*map(float, powers_of_two(band.k)), float(band.k)}
    return _chart([("after − before", points)], marked=marked, within=(-most, most))


def _chart(
    curves: Sequence[tuple[str, Sequence[_Point]]],
    *,
    log: bool = True,
    marked: set[float] | None = None,
    within: tuple[float, float] = (0.0, 1.0),
) -> dict[str, Any]:
    """The lines, bands and marks of named curves, in the units of the picture. log: whether the x-axis is logarithmic;
    marked: the x with marks, by default all; within: the ends of the y-axis."""
    xs = sorted({x for _, points in curves for x, *_ in points})
    bottom, top = within
    right = max(xs, default=1.0)

    def across(x: float) -> float:
        share = (math.log2(x) / math.log2(right) if right > 1 else 0.5) if log else x / max(1.0, right)
        return round(_EDGE + share * (_WIDTH - 2 * _EDGE), 1)

    def up(y: float) -> float:
        return round(_HEIGHT - 30 - (y - bottom) / (top - bottom) * (_HEIGHT - 45), 1)

    def path(places: Iterable[tuple[float, float]]) -> str:
        return " ".join(f"{across(x)},{up(y)}" for x, y in places)

    lines = [
        {
            "name": name,
            "colour": _COLOURS[number % len(_COLOURS)],
            "line": path((x, y) for x, y, *_ in points),
            "band": path([(x, low) for x, _, low, _ in points] + [(x, high) for x, *_, high in reversed(points)]),
            "points": [
                (across(x), up(y), f"{name}: {100 * y:.1f} % at {x:g}")
                for x, y, *_ in points
                if marked is None or x in marked
            ],
        }
        for number, (name, points) in enumerate(curves)
    ]
    return {
        "lines": lines,
        "x": [(across(x), f"{x:g}") for x in xs if marked is None or x in marked],
        "y": [
            (up(y), f"{100 * y:.3g}") for y in (bottom + share * (top - bottom) for share in (0, 0.25, 0.5, 0.75, 1))
        ],
    }
