"""The bench's figures: each method beside the target method, one panel a method."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from dph.report.plots import canvas, tidy
from experiments.bench.design import Bench, Setting
from experiments.bench.merit import attainment, undominated
from experiments.bench.results import Phase, evaluated, frontier

_GREY, _OWN, _BASE = "#9A9A9A", "#0B6E99", "#6B6B6B"
_COLUMNS = 4
_BELOW, _ABOVE, _STEP = 0.10, 0.05, 0.0025
"""Range and step of an attainment curve, in accuracy around the target's."""


def frontier_figure(bench: Bench, phase: Phase, metric: str = "greedy") -> Figure | None:
    """Accuracy (x) against pass@k (y), means over the worlds of a phase, in percent; the target's points in grey, the
    base models as a cross. A line joins the settings that no other setting of the method beats in both; the others are
    hollow. A triangle at the left edge stands for a setting that is less accurate than the base models. None if no
    method has a point."""
    shown = evaluated(bench, phase)
    if not shown:
        return None
    coverage = f"pass@{bench.rule.k}"

    def places(settings: Sequence[Setting]) -> list[tuple[float, float]]:
        found = ((phase.means(s, metric).values(), phase.means(s, coverage).values()) for s in settings)
        return sorted((100 * float(np.mean([*x])), 100 * float(np.mean([*y]))) for x, y in found)

    bases = [100 * float(np.mean([*phase.base_means(name).values()] or [np.nan])) for name in (metric, coverage)]
    edge = -np.inf if np.isnan(bases[0]) else bases[0] - 1
    target = places(shown.get(bench.rule.target, []))
    figure, panels = _panels(bench, [*shown], f"{_name(metric)} (%)", f"{coverage} (%)")
    for (method, settings), axes in zip(shown.items(), panels, strict=True):
        if not np.isnan(bases).any():
            axes.plot(*bases, "+", color=_BASE, markersize=8)
        for points, color, size in ((target, _GREY, 4), (places(settings), _OWN, 6)):
            if color == _OWN and method == bench.rule.target:
                continue
            best = undominated(points)
            beaten = [point for point in points if point not in best]
            far = [(edge, y) for x, y in points if x < edge]
            for drawn, style, fill in ((best, "o-", "full"), (beaten, "o", "none"), (far, "<", "full")):
                if inside := [point for point in drawn if point[0] >= edge]:
                    axes.plot(
                        *zip(*inside, strict=True), style, color=color, markersize=size, linewidth=1, fillstyle=fill
                    )
    return figure


def attainment_figure(bench: Bench, phase: Phase, metric: str = "greedy") -> Figure | None:
    """The pass@k that a method attains with at least an accuracy (x, distance from the target's highest in each world),
    mean over the worlds, in percent; the target's curve in grey. None if the target has no point."""
    shown, coverage = evaluated(bench, phase), f"pass@{bench.rule.k}"
    if bench.rule.target not in shown:
        return None
    offsets = np.arange(-_BELOW, _ABOVE + _STEP / 2, _STEP)

    def curve(settings: Sequence[Setting]) -> list[float]:
        found = frontier(phase, settings, metric, coverage, shown[bench.rule.target])
        target = frontier(phase, shown[bench.rule.target], metric, coverage, settings)
        worlds = sorted(found.keys() & target.keys())
        goals = [max(x for x, _ in target[world]) for world in worlds]
        values = attainment([found[world] for world in worlds], goals, offsets.tolist()) if worlds else []
        return [100 * value for value in values]

    names = [f"{_name(metric)} − that of {bench.label(bench.rule.target)} (points)", f"{coverage} (%)"]
    figure, panels = _panels(bench, [*shown], *names)
    grey = curve(shown[bench.rule.target])
    for settings, axes in zip(shown.values(), panels, strict=True):
        for values, color in ((grey, _GREY), (curve(settings), _OWN)):
            if values:
                axes.plot(100 * offsets, values, color=color, linewidth=1.5)
    return figure


def _name(metric: str) -> str:
    return "mean@n" if metric == "mean" else metric


def _panels(bench: Bench, methods: Sequence[str], x: str, y: str) -> tuple[Figure, list[Any]]:
    """A figure with a panel for each method; axes are shared, and named at the left and at the bottom."""
    columns = min(_COLUMNS, len(methods))
    figure = canvas(2.7 * columns, 2.3 * -(-len(methods) // columns) + 0.3)
    panels: list[Any] = []
    for number, method in enumerate(methods, 1):
        first = panels[0] if panels else None
        axes = figure.add_subplot(-(-len(methods) // columns), columns, number, sharex=first, sharey=first)
        tidy(axes, bench.label(method))
        axes.grid(color="#DDDDDD", linewidth=0.8)
        if number > len(methods) - columns:
            axes.set_xlabel(x, fontsize=9)
        if number % columns == 1 % columns:
            axes.set_ylabel(y, fontsize=9)
        panels.append(axes)
    return figure, panels
