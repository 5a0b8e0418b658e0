"""The update of a trainer with shared prompts and without, in turns: options, measurement and table."""

import argparse
import contextlib
import os
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks._support import shapes
from benchmarks._support.lines import Lines
from benchmarks._support.turns import Worker

PHASES = ("update", "step", "log-probs", "generation")
FACTS = ("from fp32", "sampler", "saved")


def parser(description: str, sizes: list[str], responses: list[int]) -> argparse.ArgumentParser:
    """The options."""
    found = argparse.ArgumentParser(description=description)
    found.add_argument("--sizes", nargs="+", default=sizes, metavar="PROMPT+RESPONSE")
    found.add_argument("--responses", nargs="+", type=int, default=responses, help="to each prompt")
    found.add_argument("--prompts", type=int, default=2, help="in an optimizer step")
    models = ("small", "smollm2", *shapes.MODELS)
    help = "small: 3.4M, 2048 tokens; smollm2: with its weights, of python -m experiments.smollm2"
    found.add_argument("--model", choices=models, default="small", help=help)
    found.add_argument("--pairs", type=int, default=3, help="measured pairs of steps per size")
    found.add_argument("--threads", type=int, default=1)
    found.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: for a machine that is not idle")
    found.add_argument("--apart", action="store_true", help="one after the other: for a machine with little memory")
    found.add_argument("--out", type=Path, help="write all numbers to this file as JSON")
    return found


def every_size(args: argparse.Namespace) -> list[dict[str, int]]:
    """Sizes of the optimizer steps that the options ask for."""
    return [
        dict(prompt=int(prompt), response=int(response), prompts=args.prompts, responses=responses)
        for prompt, response in (size.split("+") for size in args.sizes)
        for responses in args.responses
    ]


def compare(
    sizes: Mapping[str, int], name: str, start: Callable[[int], Worker], args: argparse.Namespace
) -> dict[str, Any]:
    """Steps of both at one size, in turns, after a warm-up step each; both processes end.

    name: of the one without shared prompts. start: starts its process for 0, and that of the other for 1.
    """
    ways: dict[str, list[dict[str, float]]] = {name: [], "shared": []}
    groups = [[0], [1]] if args.apart else [[0, 1]]
    for group in groups:
        with contextlib.ExitStack() as stack:
            workers = [(list(ways)[way], stack.enter_context(start(way))) for way in group]
            for _ in range(1 + args.pairs):
                for way, worker in workers:
                    ways[way].append(worker.step())
    first, *steps = [dict(zip(ways, pair, strict=True)) for pair in zip(*ways.values(), strict=True)]
    return {**sizes, "load": f"{os.getloadavg()[0]:.1f}", "first": first, "steps": steps}


def note(found: Mapping[str, Any], name: str, lines: Lines) -> None:
    """Write one size as a line: medians of both by phase, and what the first step compared."""
    values: dict[str, Any] = {}
    for way, key in ((name, "stock"), ("shared", "shared")):
        steps = [step[way] for step in found["steps"]]
        phases = {phase: statistics.median(step[phase] for step in steps) for phase in PHASES if phase in steps[0]}
        values[key] = {**phases, "bytes": max(step["memory"] for step in steps)}
        values[key] |= {fact: found["first"][way][fact] for fact in FACTS if fact in found["first"][way]}
    sizes = {fact: found[fact] for fact in ("prompt", "response", "prompts", "responses")}
    lines.add("trainer", **sizes, difference=found["difference"], **values)


def show(found: dict[str, Any], title: str, name: str) -> None:
    """Print a table of one size; `difference` is the largest one of a log-probability."""
    sizes = f"{title}, load {{load}}".format(**found)
    print(f"\n{sizes}\n{'':16}{name:>10}{'shared':>10}{'ratio':>10}")
    for phase in [phase for phase in PHASES if phase in found["steps"][0][name]]:
        both = [[step[one][phase] for step in found["steps"]] for one in (name, "shared")]
        ratio = statistics.median(a / b for a, b in zip(*both, strict=True))
        print(f"{phase + ', s':16}{statistics.median(both[0]):10.3f}{statistics.median(both[1]):10.3f}{ratio:10.2f}")
    stock, ours = (max(step[one]["memory"] for step in found["steps"]) / 2**20 for one in (name, "shared"))
    print(f"{'memory, MiB':16}{stock:10.0f}{ours:10.0f}{stock / ours:10.2f}")
    print(f"largest difference of a log-probability: {found['difference']:.1e} nats", flush=True)
