"""The bench's figure: each method's frontier beside that of the target method."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from dph.report.plots import canvas, tidy
from dph.reproduce.bench.design import Bench, Setting
from dph.reproduce.bench.results import Phase

_GREY, _OWN, _BASE = "#9A9A9A", "#0B6E99", "#6B6B6B"
_COLUMNS = 4


def frontier_figure(bench: Bench, phase: Phase, metric: str = "greedy") -> Figure | None:
    """One panel a method: accuracy (x) against pass@k (y), means over the worlds of a phase, in percent; the target's
    points in grey, the base models as a cross. None if no method has a point."""
    shown = {method: [s for s in settings if phase.seen(s)] for method, settings in bench.methods.items()}
    shown = {method: settings for method, settings in shown.items() if settings}
    if not shown:
        return None
    coverage = f"pass@{bench.rule.k}"

    def places(settings: Sequence[Setting]) -> list[tuple[float, float]]:
        found = ((phase.means(s, metric).values(), phase.means(s, coverage).values()) for s in settings)
        return sorted((100 * float(np.mean([*x])), 100 * float(np.mean([*y]))) for x, y in found)

    bases = [[*phase.base_means(name).values()] for name in (metric, coverage)]
    target = places(shown.get(bench.rule.target, []))
    rows = -(-len(shown) // _COLUMNS)
    figure = canvas(2.7 * min(_COLUMNS, len(shown)), 2.3 * rows + 0.3)
    first = None
    for number, (method, settings) in enumerate(shown.items(), 1):
        axes = figure.add_subplot(rows, min(_COLUMNS, len(shown)), number, sharex=first, sharey=first)
        first = first or axes
        tidy(axes, bench.label(method))
        if all(bases):
            axes.plot(*(100 * float(np.mean(found)) for found in bases), "+", color=_BASE, markersize=8)
        for points, color, size in ((target, _GREY, 4), (places(settings), _OWN, 6)):
            if points and not (color == _OWN and method == bench.rule.target):
                axes.plot(*zip(*points, strict=True), "o-", color=color, markersize=size, linewidth=1)
        axes.grid(color="#DDDDDD", linewidth=0.8)
        if number > len(shown) - _COLUMNS:
            axes.set_xlabel("mean@n (%)" if metric == "mean" else f"{metric} (%)", fontsize=9)
        if number % _COLUMNS == 1:
            axes.set_ylabel(f"{coverage} (%)", fontsize=9)
    return figure
