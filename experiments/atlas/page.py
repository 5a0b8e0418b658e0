"""The page and the figure of the atlas, from the results of `dph passk --json`."""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dph.errors import UserError

FOLDER = Path("experiments/results/atlas")
PAGE = Path("docs/results/atlas.md")
FIGURE = Path("docs/figures/atlas.png")
BEGIN, END = "<!-- made by python -m experiments.atlas -->", "<!-- end of what python -m experiments.atlas made -->"
KS = (1, 8, 32, 128)
CLASSES = ("none", "0–25 %", "25–50 %", "50–80 %", "80–100 %")


@dataclass(frozen=True, slots=True)
class Row:
    """A comparison: what was trained on what, how, whose counts they are, and the result."""

    name: str
    model: str
    task: str
    training: str
    family: str
    result: Mapping[str, Any]

    @property
    def change(self) -> Mapping[str, Any]:
        return self.result["changes"][0]


def rows(folder: Path = FOLDER) -> list[Row]:
    """The rows of the atlas, in the order of rows.toml. Raises UserError for a row without its result, and for a result
    without its row."""
    named = tomllib.loads((folder / "rows.toml").read_text(encoding="utf-8"))
    results = {path.stem for path in folder.glob("*.json")}
    if odd := results ^ named.keys():
        raise UserError(f"{folder}: rows.toml and the JSON files differ in {', '.join(sorted(odd))}")
    found = [
        Row(name, **about, result=json.loads((folder / f"{name}.json").read_text())) for name, about in named.items()
    ]
    for row in found:
        if row.result.get("format") != "dph passk" or len(row.result["changes"]) != 1 or not row.change["band"]:
            raise UserError(f"{folder}/{row.name}.json is no result of dph passk --json with one change")
    return found


def page(every: Sequence[Row]) -> str:
    """The two tables, as Markdown."""
    return "\n".join([BEGIN, "", *_table(by_k(every)), "", *_table(by_class(every)), "", END])


def by_k(every: Sequence[Row]) -> Iterator[list[str]]:
    """The change of pass@k at several k, in points, and where the first loss lies."""
    yield ["model", "task", "training", "problems × samples", "runs", *(f"pass@{k}" for k in KS), "first k with a loss"]
    for row in every:
        band = row.change["band"]
        samples = row.result["scores"][0]["samples"]
        many = f"{row.change['problems']:,} × {samples[0]}"
        cells = [_change(row.change["differences"].get(f"pass@{k}")) for k in KS]
        yield [row.model, row.task, row.training, many, str(band["runs"][1]), *cells, _first(band)]


def by_class(every: Sequence[Row]) -> Iterator[list[str]]:
    """Points of pass@k that the problems of each class contribute to the change."""
    yield ["model", "training", "task", "of pass@k, k", *CLASSES]
    for row in every:
        strata = row.change["strata"]
        if not strata:
            continue
        parts = [_part(one["part"], one["problems"]) for one in strata]
        yield [row.model, row.training, row.task, str(strata[0]["k"]), *parts]


def _change(interval: Mapping[str, float] | None) -> str:
    """An interval in points; bold if it lies below 0 as a whole."""
    if interval is None:
        return "–"
    text = f"{_points(interval['estimate'])} ({_points(interval['low'])} to {_points(interval['high'])})"
    return f"**{text}**" if _below(interval) else text


def _part(interval: Mapping[str, float] | None, share: float) -> str:
    if interval is None:
        return "–"
    text = f"{_points(interval['estimate'])} of {100 * share:.0f} %"
    return f"**{text}**" if _below(interval) else text


def _below(interval: Mapping[str, float]) -> bool:
    """Whether the whole interval lies below 0, as it is printed."""
    return round(100 * interval["high"], 1) < 0


def _points(value: float) -> str:
    return f"{round(100 * value, 1) + 0.0:+.1f}"


def _first(band: Mapping[str, Any]) -> str:
    earliest, latest = band["first_loss"]
    if earliest is None:
        return "no loss"
    return f"{earliest} or later, or none" if latest is None else f"{earliest} to {latest}"


def _table(lines: Iterator[list[str]]) -> list[str]:
    head, *others = lines
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(line)} |" for line in others)]


def replaced(text: str, every: Sequence[Row]) -> str:
    """The text of the page with the tables of today's results. Raises UserError without the two marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise UserError(f"{PAGE} has lost one of the marks {BEGIN} and {END}, between which the tables stand")
    return before + page(every) + after


def figure(every: Sequence[Row]) -> Any:
    """Left: the change of pass@k over k. Right: what each class of problems contributes to it, without the class of
    those that BEFORE never solves, which can only gain."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    families = list(dict.fromkeys(row.family for row in every))
    colours = dict(zip(families, ("#000000", "#c8553d", "#2b6cb0", "#2f855a", "#b7791f"), strict=False))
    fig, (left, right) = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
    for row in every:
        band, colour = row.change["band"], colours.get(row.family, "#718096")
        label = row.family if row is next(other for other in every if other.family == row.family) else None
        left.plot(band["ks"], [100 * value for value in band["estimate"]], color=colour, lw=1.3, alpha=0.8, label=label)
        parts = [one["part"] for one in row.change["strata"][1:]]
        heights = [100 * part["estimate"] if part else float("nan") for part in parts]
        right.plot(range(len(parts)), heights, color=colour, lw=1.0, marker="o", ms=3.5, alpha=0.8)
    for axes in (left, right):
        axes.axhline(0, color="#a0aec0", lw=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    left.set_xscale("log", base=2)
    left.set_xticks([1, 2, 4, 8, 16, 32, 64, 128], ["1", "2", "4", "8", "16", "32", "64", "128"])
    left.set(xlabel="k", ylabel="change of pass@k, points", title="All problems")
    right.set_xticks(range(len(CLASSES) - 1), CLASSES[1:])
    right.set(xlabel="share of its samples that the model before has right", ylabel="part of the change, points")
    right.set_title("Problems that the model before solves; k is half of the samples")
    fig.legend(loc="outside lower center", ncols=len(families), frameon=False, fontsize=9)
    return fig
