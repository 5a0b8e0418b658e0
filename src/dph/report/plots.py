"""The figures of a report. They are drawn from plain data, without global state or a display.

The colours are those of Okabe and Ito, which colour-blind readers can distinguish. Each series also has its own marker,
so that a figure stays readable in greyscale. The reference policy ("base") is always grey and dashed.
"""

import io
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator, NullLocator

from dph.errors import visible
from dph.measure.metrics import AMONG, metric
from dph.report.comparison import EvaluationTable
from dph.report.data import OF_FIGURES, MetricValue, Split, TrainRun, monitored_metric, monitored_prefixes

_SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_BASE = "#6B6B6B"
_INK, _FAINT = "#222222", "#DDDDDD"
_STYLES = ("#4477AA", "#88CCEE", "#44AA99", "#DDCC77", "#CC6677", "#AA4499", "#999933")
_OTHER = "#C4C4C4"
_SOLUTIONS = "distinct_solutions_correct"
MOST_PANELS = 16
"""The largest number of sets whose pass@k through training is drawn. The interactive page has the curves of all
sets."""
MOST_LABELS = 8
"""Labels besides the base model in one panel; more lines cannot be told apart."""


@dataclass(frozen=True, slots=True)
class Series:
    """One labelled line. With `low` and `high`, an interval is drawn around it."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """The colour, the marker and the line style of a label, which are the same in every panel."""

    color: str
    marker: str
    linestyle: str


def looks(labels: Sequence[str], base: str | None = None) -> dict[str, Look]:
    """A look for each label, in the given order. The label `base` is grey and dashed."""
    chosen: dict[str, Look] = {}
    for label in labels:
        if label == base:
            chosen[label] = Look(_BASE, "p", "--")
        elif label not in chosen:
            i = len(chosen) - (base in chosen)
            style = "-" if i < len(_SERIES) else "-."
            chosen[label] = Look(_SERIES[i % len(_SERIES)], _MARKERS[i % len(_MARKERS)], style)
    return chosen


def label_rows(labels: Sequence[str], base: str | None = None) -> list[list[str]]:
    """The labels in rows of at most `MOST_LABELS` and the base model, which is in every row.

    >>> label_rows(["base", *"abcdefghij"], "base")
    [['base', 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'], ['base', 'i', 'j']]
    """
    own = [base] if base is not None and base in labels else []
    others = [label for label in dict.fromkeys(labels) if label != base]
    return [[*own, *others[start : start + MOST_LABELS]] for start in range(0, max(1, len(others)), MOST_LABELS)]


def legend_shape(labels: Sequence[str], width: float) -> tuple[int, float]:
    """The columns of a legend that is no wider than `width`, and its height, both lengths in inches."""
    if not labels:
        return 1, 0.0
    longest = max(map(len, labels), default=1)
    columns = max(1, min(len(labels), 4, int(width / (0.07 * longest + 0.6))))
    return columns, 0.2 * math.ceil(len(labels) / columns)


def legend_below(part: Figure | SubFigure, width: float) -> None:
    """Draw one legend below all panels of a figure, or of a row of panels, that is `width` inches wide."""
    shown = {name: handle for axes in part.axes for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    columns, _ = legend_shape(list(shown), width)
    part.legend(list(shown.values()), list(shown), loc="outside lower center", ncols=columns, frameon=False, fontsize=9)


def panel_rows(labels: Sequence[Sequence[str]], width: float, height: float) -> list[Figure | SubFigure]:
    """A figure of rows of panels, each `height` inches high and a legend of its labels below."""
    heights = [height + legend_shape(names, width)[1] for names in labels]
    figure = canvas(width, sum(heights))
    if len(labels) == 1:
        return [figure]
    return list(figure.subfigures(len(labels), 1, height_ratios=heights))  # type: ignore[arg-type]


def style_colors(styles: Sequence[str]) -> dict[str, str]:
    """A colour for each solution style, in alphabetical order. The style "other" is last and grey."""
    named = sorted(set(styles) - {"other"})
    colors = {style: _STYLES[i % len(_STYLES)] for i, style in enumerate(named)}
    return colors | ({"other": _OTHER} if "other" in styles else {})


def overview_figure(
    pass_curves: Sequence[Series],
    training: Sequence[Series],
    shares: Mapping[str, Mapping[str, float]],
    solutions: Mapping[str, MetricValue] | None = None,
    *,
    base: str | None = None,
    training_label: str = "pass@8",
    title: str = "pass@k",
) -> Figure:
    """Panels side by side. Empty panels are omitted.

    Args:
        pass_curves: pass@k as fractions, against k.
        training: a metric during training, against the step.
        shares: the shares of solution styles, by label and style. They sum to 1 for a label.
        solutions: the number of distinct correct solutions of a problem, by label.
        base: the label of the reference policy.
        training_label: the name of the metric during training.
        title: the heading of the first panel.
    """
    panels = 1 + bool(training) + bool(shares) + bool(solutions)
    figure = canvas(4.2 * panels + (1.0 if panels == 1 else 0.0), 3.6)
    figure.get_layout_engine().set(wspace=0.06)  # type: ignore[union-attr]
    left, *axes = (figure.add_subplot(1, panels, i + 1) for i in range(panels))
    look = looks([*(curve.label for curve in (*pass_curves, *training)), *(solutions or {})], base)
    _draw_curves(left, pass_curves, look, title, "k", "pass@k")
    _legend(left, len(pass_curves))
    if training:
        name = f"{training_label} through training"
        _draw_curves(axes.pop(0), training, look, name, "training step", training_label)
    if shares:
        _draw_styles(axes.pop(0), shares, "Solution styles of the samples")
    if solutions:
        _draw_solutions(axes.pop(0), solutions, look)
    return figure


@contextmanager
def _with_boxes_for_letters() -> Iterator[None]:
    """Context without warnings about letters of a label that the fonts of the machine lack. The figure shows a box in
    the place of such a letter."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        yield


@_with_boxes_for_letters()
def to_png(figure: Figure) -> bytes:
    """The figure as PNG. The same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160, metadata={"Software": OF_FIGURES})
    return buffer.getvalue()


def canvas(width: float, height: float) -> Figure:
    """An empty white figure. Width and height are in inches."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def tidy(axes: Axes, title: str) -> None:
    """Set the title of a panel, and the frame that all panels share."""
    axes.set_title(_plain(title), loc="left", fontsize=11, color=_INK, fontweight="bold", pad=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#888888")
    axes.tick_params(colors=_INK, labelsize=9, length=3, color="#888888")
    axes.set_axisbelow(True)


def _plain(text: str) -> str:
    return visible(text).replace("$", r"\$")  # between two dollar signs matplotlib would read TeX


def draw_line(axes: Axes, curve: Series, look: Look) -> None:
    """Draw one series with its band. About ten of its points have markers, because more markers would hide a long
    line."""
    marks = {"marker": look.marker, "markevery": max(1, len(curve.x) // 10), "markersize": 5}
    style = {"color": look.color, "linestyle": look.linestyle, "linewidth": 1.8}
    axes.plot(curve.x, curve.y, label=_plain(curve.label), zorder=3, **style, **marks)
    if len(curve.low) and len(curve.high):
        axes.fill_between(curve.x, curve.low, curve.high, color=look.color, alpha=0.15, linewidth=0, zorder=2)


def _draw_curves(axes: Axes, curves: Sequence[Series], look: Mapping[str, Look], title: str, x: str, y: str) -> None:
    """Draw lines of shares, in percent, with the names of the axes."""
    tidy(axes, title)
    for curve in curves:
        draw_line(axes, curve, look[curve.label])
    axes.set_xlabel(x, fontsize=10)
    axes.set_ylabel(f"{y} (%)", fontsize=10)
    axes.grid(axis="y", color=_FAINT, linewidth=0.8)
    if x == "k":
        ks = sorted({k for curve in curves for k in curve.x})
        axes.set_xscale("log", base=2)
        axes.set_xticks(ks, [f"{k:g}" for k in ks])
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, -0.02), min(high, 1.02))  # a fraction needs no space below 0 and above 1
    low, high = axes.get_ylim()
    percent = MaxNLocator(integer=True, nbins=7, steps=[1, 2, 5, 10]).tick_values(100 * low, 100 * high)
    shown = [value for value in percent if 100 * low <= value <= 100 * high]
    axes.set_yticks([value / 100 for value in shown], [f"{value:.0f}" for value in shown])


def _draw_styles(axes: Axes, shares: Mapping[str, Mapping[str, float]], title: str) -> None:
    tidy(axes, title)
    colors = style_colors([style for row in shares.values() for style in row])
    labels = list(shares)
    left = [0.0] * len(labels)
    for style in colors:
        widths = [100 * shares[label].get(style, 0.0) for label in labels]
        bars = {"height": 0.66, "color": colors[style], "edgecolor": "white", "linewidth": 0.8}
        axes.barh(range(len(labels)), widths, left=left, label=_plain(style), **bars)
        for row, (start, width) in enumerate(zip(left, widths, strict=True)):
            if width >= 7:  # the number does not fit into narrower parts
                red, green, blue = (int(colors[style][i : i + 2], 16) / 255 for i in (1, 3, 5))
                ink = "white" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.5 else _INK  # by relative luminance
                axes.text(start + width / 2, row, f"{width:.0f}", ha="center", va="center", fontsize=8.5, color=ink)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    _name_bars(axes, labels)
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of samples (%)", fontsize=10)
    _legend(axes, len(colors), handlelength=1, handleheight=1)


def _draw_solutions(axes: Axes, solutions: Mapping[str, MetricValue], look: Mapping[str, Look]) -> None:
    """Draw bars of means with their intervals."""
    tidy(axes, metric(_SOLUTIONS).title.capitalize())
    for row, (label, value) in enumerate(solutions.items()):
        axes.barh(row, value.mean, height=0.66, color=look[label].color)
        axes.plot([value.low, value.high], [row, row], color=_INK, linewidth=1.2)
        axes.text(np.nanmax([value.mean, value.high]), row, f" {value.mean:.2f}", va="center", color=_INK, fontsize=9)
    axes.margins(x=0.2)  # leaves space for the numbers
    _name_bars(axes, list(solutions))
    axes.set_xlabel(f"mean over problems, among up to {AMONG} samples", fontsize=10)


def _name_bars(axes: Axes, labels: Sequence[str]) -> None:
    """Write the labels of horizontal bars. The first label is at the top."""
    axes.set_yticks(range(len(labels)), [*map(_plain, labels)])
    axes.invert_yaxis()
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _legend(axes: Axes, count: int, **options: float) -> None:
    """Draw the legend below the axes, so that it hides no data."""
    options |= {"ncols": min(3, count), "fontsize": 9, "columnspacing": 1.2}
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), frameon=False, **options)


def figures(comparison: EvaluationTable, trains: Sequence[TrainRun]) -> dict[str, tuple[Figure, str]]:
    """The figures of a report by file name, each with its description. The first figure is an overview."""
    base, main = comparison.base, comparison.main
    summaries = comparison.splits[main]
    curves = _pass_series(summaries)
    solutions = {label: s.metrics[_SOLUTIONS] for label, s in summaries.items() if _SOLUTIONS in s.metrics}
    # If a verifier tells solutions apart, the styles are solutions, and no two problems share a solution
    shares = {} if solutions else {label: s.style_shares for label, s in summaries.items() if s.style_shares}
    monitored = monitored_metric(trains)
    training = training_series(trains, f"eval/{monitored}") if monitored else []
    names = ", ".join(summaries)
    overview = overview_figure(curves, training, shares, solutions, base=base, training_label=monitored)
    panels = {"pass@k": curves, f"{monitored} through training": training}
    panels |= {"solution styles": shares, metric(_SOLUTIONS).title: solutions}
    figures = {"overview": (overview, f"{', '.join(panel for panel in panels if panels[panel])} of {names}")}
    for split, of_split in comparison.elsewhere.items():
        figure = overview_figure(_pass_series(of_split), [], {}, base=base, title=split)
        name = "".join(c if c.isalnum() or c in "-_" else "_" for c in split)
        figures[f"pass_at_k_{name}"] = (figure, f"pass@k of {', '.join(of_split)} on {split}")
    if found := training_series(trains, "bank/modes"):
        kept = training_series(trains, "bank/retained")
        figures["bank"] = (bank_figure(found, kept, base), "ways to solve problems: found, and kept by the policy")
    if len(sets := training_curves(trains)) > 1:
        figures["training"] = (training_figure(sets, base), f"pass@k through training on {', '.join(sets)}")
    return figures


def training_curves(trains: Sequence[TrainRun]) -> dict[str, list[Series]]:
    """pass@k through training on each set that was measured (paper, Fig. 5), by a title for the set. Only the first
    sets are drawn, as many as a figure has room for."""
    metrics = {prefix: monitored_metric(trains, prefix) for prefix in monitored_prefixes(trains)}
    names = {prefix: prefix.strip("/").removeprefix("monitor/") for prefix in metrics} | {"eval/": "the training task"}
    drawn = {prefix: metric for prefix, metric in metrics.items() if metric}
    drawn = dict(list(drawn.items())[:MOST_PANELS])
    return {f"{names[prefix]}: {metric}": training_series(trains, prefix + metric) for prefix, metric in drawn.items()}


def training_figure(sets: Mapping[str, Sequence[Series]], base: str | None = None) -> Figure:
    """Curves through training, with a panel for each title. Many labels are shared out among several rows of panels."""
    labels = list(dict.fromkeys(curve.label for curves in sets.values() for curve in curves))
    look, of_rows, width = looks(labels, base), label_rows(labels, base), 5.2 * len(sets)
    rows = panel_rows(of_rows, width, 4.0)
    for names, row in zip(of_rows, rows, strict=True):
        for place, (title, curves) in enumerate(sets.items(), 1):
            axes = row.add_subplot(1, len(sets), place)
            shown = [curve for curve in curves if curve.label in names]
            _draw_curves(axes, shown, look, title, "training step", title.rpartition(": ")[2])
        legend_below(row, width)
    return rows[0].get_figure(root=True)  # type: ignore[return-value]


def bank_figure(found: Sequence[Series], kept: Sequence[Series], base: str | None = None) -> Figure:
    """Ways of solving problems that the bank holds through training, and the share of them that the policy still
    draws (`bank/modes` and `bank/retained`)."""
    look = looks([curve.label for curve in (*found, *kept)], base)
    figure = canvas(5.2 * (1 + bool(kept)), 4.2)
    left = figure.add_subplot(1, 1 + bool(kept), 1)
    tidy(left, "Ways found, in the bank")
    for curve in found:
        draw_line(left, curve, look[curve.label])
    left.set_xlabel("training step", fontsize=10)
    left.set_ylabel("ways, over all problems", fontsize=10)
    left.grid(axis="y", color=_FAINT, linewidth=0.8)
    left.set_ylim(bottom=0)
    for axis in (left.xaxis, left.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    if kept:
        right = figure.add_subplot(1, 2, 2)
        _draw_curves(right, kept, look, "Ways kept by the policy", "training step", "drawn again")
    _legend(left, len(found))
    return figure


def _pass_series(summaries: Mapping[str, Split]) -> list[Series]:
    series = []
    for label, summary in summaries.items():
        points = summary.pass_curve
        y, low, high = ([getattr(point, end) for point in points.values()] for end in ("mean", "low", "high"))
        series.append(Series(label, list(points), y, low, high))
    return series


def training_series(trains: Sequence[TrainRun], name: str) -> list[Series]:
    """A metric through training for each label. With repeated runs, the line is the mean of the runs, and the band
    reaches from the lowest to the highest run."""
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
        series.append(Series(label, steps, values.mean(axis=0).tolist(), *band))
    return series
