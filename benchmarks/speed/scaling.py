"""Cost of an update by the number of rollouts, the lengths of prompts and responses, and the size of the model.

    python -m benchmarks.speed.scaling --out FOLDER  # about five minutes on two CPU cores; writes scaling.json and .png
    python -m benchmarks.speed.scaling --device cuda --precision bf16 --models 0.5B --base 2048+256 --sweeps n

It measures GRPO's update with each prompt computed once (shared) and once per response (repeated), in turns. The limit
is the time that the least work would take at the rate of the model's matrix products, measured in the same run.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks._support import shapes, workload
from benchmarks._support.flops import matmul_rate
from benchmarks._support.lines import Lines
from benchmarks._support.shapes import PUBLISHED, WIDTHS, Where
from benchmarks._support.workload import Size, Update, update_flops

DESCRIPTION = "What an update costs by the number of rollouts, lengths, and the size of the model."
BASE = Size(prompts=1, n=16, prompt=256, response=64, stored=0)
SWEEPS: dict[str, tuple[Any, ...]] = {
    "n": (1, 2, 4, 8, 16, 32),
    "prompt": (16, 64, 256, 512, 1024, 2048),
    "response": (16, 64, 128, 256),
    "model": tuple(WIDTHS),
}
LABELS = {
    "n": "responses per prompt",
    "prompt": "tokens of a prompt",
    "response": "tokens of a response",
    "model": "parameters",
}


def measure(size: Size, options: argparse.Namespace, clock: Callable[[], float]) -> dict[str, float]:
    """Seconds of both ways and of the limit, and the medians of their ratios."""
    where, config = Where.chosen(options), shapes.settings(size.model)
    updates = [Update("GRPO", size, shared=shared, budget=options.budget, where=where) for shared in (True, False)]
    limits, seconds = [], []
    for update in updates:
        update()  # warms up
    for _ in range(options.rounds):
        rate = matmul_rate(config, options.budget, clock, 3, device=where.device, dtype=where.dtype)
        limits.append(update_flops("GRPO", size) / rate)
        seconds.append([update.timed(clock) for update in updates])
    return {
        "shared": statistics.median(line[0] for line in seconds),
        "repeated": statistics.median(line[1] for line in seconds),
        "limit": statistics.median(limits),
        "repeated_of_shared": statistics.median(line[1] / line[0] for line in seconds),
        "of_limit": statistics.median(
            limit / line[0] for limit, line in zip(limits, seconds, strict=True)
        ),
    }  # fmt: skip


def figure(found: Mapping[str, list[dict[str, Any]]]) -> Figure:
    """One panel per sweep."""
    drawn = Figure(figsize=(10, 2.8), layout="constrained")
    FigureCanvasAgg(drawn)
    for axes, (name, lines) in zip(drawn.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True):
        places = [line["value"] for line in lines]
        ways = (("repeated", "#D55E00", "s", "-"), ("shared", "#0072B2", "o", "-"), ("limit", "#6B6B6B", "", "--"))
        for way, color, marker, style in ways:
            axes.plot(places, [line[way] for line in lines], color=color, marker=marker, linestyle=style, label=way)
        axes.set_xlabel(LABELS[name])
        axes.set_yscale("log")
        if name != "model":
            axes.set_xscale("log", base=2)
            axes.set_xticks(places, [str(place) for place in places], rotation=45)
            axes.minorticks_off()
    drawn.axes[0].set_ylabel("seconds per update")
    drawn.axes[0].legend(frameon=False)
    return drawn


def run(
    base: Size,
    sweeps: Mapping[str, Sequence[Any]],
    options: argparse.Namespace,
    clock: Callable[[], float],
    lines: Lines,
) -> dict[str, list[dict[str, Any]]]:
    """All sweeps, printed as they go."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, values in sweeps.items():
        print(f"\n{LABELS[name]:22} shared  repeated   limit   repeated/shared   of the limit")
        found[name] = []
        for value in values:
            size = replace(base, **{name: value})
            line = measure(size, options, clock)
            found[name].append({"value": value} | line)
            lines.add("scaling", sweep=name, **asdict(size), **line)
            print(f"{value!s:>20} {line['shared']:8.3f} {line['repeated']:9.3f} {line['limit']:7.3f} "
                  f"{line['repeated_of_shared']:17.2f} {line['of_limit']:14.0%}", flush=True)  # fmt: skip
    return found


def save(found: dict[str, Any], base: Size, facts: dict[str, Any], folder: Path) -> None:
    """Write the numbers and the figure."""
    (folder / "scaling.json").write_text(json.dumps(facts | {"base": repr(base), "sweeps": found}, indent=1))
    figure(found).savefig(folder / "scaling.png", dpi=130)


def main() -> None:
    """Measure and print."""
    parser = workload.parser(DESCRIPTION)
    parser.add_argument("--base", default="256+64", metavar="PROMPT+RESPONSE", help="lengths that a sweep starts from")
    parser.add_argument("--sweeps", nargs="+", choices=tuple(SWEEPS), default=list(SWEEPS), help="what is varied")
    options = parser.parse_args()
    clock, lines = workload.prepare(options), workload.results(options)
    base, sweeps = replace(workload.sized(BASE, options.base), model=options.models[0]), SWEEPS
    if base.model in PUBLISHED:
        sweeps = sweeps | {"model": options.models}
    if options.smoke:
        base, options.rounds = workload.smallest(BASE), 1
        sweeps = {"n": (1, 2), "prompt": (4, 8), "response": (2, 4), "model": ("0.8M",)}
    found = run(base, {name: sweeps[name] for name in options.sweeps}, options, clock, lines)
    if options.out:
        save(found, base, workload.environment(options), options.out)


if __name__ == "__main__":
    main()
