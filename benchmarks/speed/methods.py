"""Cost of an update by method: time, memory, and the prompt length up to which DPH is cheaper than RKL.

    python -m benchmarks.speed.methods                 # about five minutes on two CPU cores
    python -m benchmarks.speed.methods --only table    # or sweep
    python -m benchmarks.speed.methods --device cuda --precision bf16 --models 0.5B --sizes 2048+256 --budget 16384

All methods use the same rollouts of the same model. RKL passes the rollouts through a reference model. DPH passes
rehearsal rows through the policy, one per eight rollouts, and needs no reference model. On a GPU, one case at a time is
in its memory.
"""

import argparse
import json
import math
import multiprocessing
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch

from benchmarks._support import shapes, workload
from benchmarks._support.flops import matmul_rate, square_rate
from benchmarks._support.lines import Lines
from benchmarks._support.shapes import Where
from benchmarks._support.workload import METHODS, Size, Update, alone_on_gpu, alternated, update_flops
from dph.process.memory import resident

DESCRIPTION = "What an update costs by method: time, memory, and when doing without a reference model pays."
TABLE = Size(prompts=2, prompt=512, response=64, stored=4)
SQUARE = {True: 8192, False: 1024}
"""Rows of the matrices whose product is measured, on a GPU and elsewhere."""
PROMPTS, RESPONSES = (64, 256, 1024), (16, 64, 256)


def _peak(method: str, size: Size, shared: bool, budget: int, threads: int, where: Where) -> int:
    """Peak memory in bytes of models, optimizer and update; runs in a process of its own."""
    torch.set_num_threads(threads)
    small = workload.smallest(size)
    Update(method, small, shared=shared, budget=budget, where=where)()  # loads whatever the first step loads
    before = resident("VmRSS")
    update = Update(method, size, shared=shared, budget=budget, where=where)
    for _ in range(2):  # the optimizer's moments exist after the first step
        update()
    return resident("VmHWM") - before


def peaks(cases: Sequence[tuple[str, bool]], size: Size, options: argparse.Namespace) -> list[int]:
    """Peak memory of each case; with --smoke in this process, where the peak covers all cases so far."""
    common = (options.budget, options.threads, Where.chosen(options))
    if options.smoke:
        return [_peak(method, size, shared, *common) for method, shared in cases]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["workload"])
    with context.Pool(1, maxtasksperchild=1) as pool:
        return [pool.apply(_peak, (method, size, shared, *common)) for method, shared in cases]


def measured(
    cases: Sequence[tuple[str, bool]], size: Size, options: argparse.Namespace, clock: Callable[[], float]
) -> tuple[list[list[float]], list[int]]:
    """Seconds by round and case, and the peak memory of each case."""
    where = Where.chosen(options)
    makers = [
        partial(Update, method, size, shared=shared, budget=options.budget, where=where) for method, shared in cases
    ]
    if not where.on_gpu:
        return alternated([make() for make in makers], options.rounds, clock), peaks(cases, size, options)
    found = [alone_on_gpu(make, options.rounds, clock) for make in makers]
    return [list(line) for line in zip(*(seconds for seconds, _ in found), strict=True)], [peak for _, peak in found]


def table(
    size: Size, methods: Sequence[str], options: argparse.Namespace, clock: Callable[[], float], lines: Lines
) -> list[dict[str, Any]]:
    """Every method with and without shared prompts."""
    cases, where = [(method, shared) for shared in (False, True) for method in methods], Where.chosen(options)
    on, config = {"device": where.device, "dtype": where.dtype}, shapes.settings(size.model)
    rate, square = matmul_rate(config, options.budget, clock, **on), square_rate(SQUARE[where.on_gpu], clock, **on)
    seconds, memory = measured(cases, size, options, clock)
    print(f"\n{size.prompts} prompts of {size.prompt} tokens, {size.n} responses of {size.response} each; "
          f"{size.stored} rehearsal rows; model {size.model}; matrix products run at {rate / 1e9:.0f} GFLOP/s, "
          f"square ones at {square / 1e9:.0f}\n")  # fmt: skip
    print("prompts   method                  seconds   of RKL   FLOP model    MB   of the limit      MFU")
    found = []
    for index, (method, shared) in enumerate(cases):
        flops, least = update_flops(method, size, shared=shared, budget=options.budget), update_flops(method, size)
        median = statistics.median(line[index] for line in seconds)
        line = {"method": method, "shared": shared, "seconds": median, "bytes": memory[index]}
        if "RKL" in methods:
            rival = cases.index(("RKL", shared))
            line["of_rkl"] = statistics.median(line[index] / line[rival] for line in seconds)
            line["flop_model"] = flops / update_flops("RKL", size, shared=shared, budget=options.budget)
        line |= {"of_limit": least / rate / median, "mfu": flops / square / median}
        found.append(line)
        lines.add("update", **asdict(size), **line, rate=rate, square_rate=square)
        print(f"{'shared' if shared else 'repeated':9} {method:22} {median:8.3f} {line.get('of_rkl', math.nan):8.2f} "
              f"{line.get('flop_model', math.nan):12.2f} {memory[index] / 1e6:5.0f} {line['of_limit']:13.0%} "
              f"{line['mfu']:8.0%}", flush=True)  # fmt: skip
    return found


def sweep(
    base: Size, lengths: Sequence[tuple[int, int]], options: argparse.Namespace, clock: Callable[[], float]
) -> list[dict[str, Any]]:
    """DPH-JS against RKL with shared prompts, by the lengths of prompts and responses, with one and with four rehearsal
    rows per prompt."""
    print("\nDPH-JS's update as a share of RKL's, prompts shared: measured / by the FLOP model")
    print("prompt  response   one stored response per prompt   four per prompt")
    lines = []
    for prompt, response in lengths:
        single = replace(base, prompt=prompt, response=response)
        several = replace(single, stored_per_prompt=4)
        cases = [("RKL", single), ("DPH-JS", single), ("DPH-JS", several)]
        where = Where.chosen(options)
        updates = [Update(method, size, shared=True, budget=options.budget, where=where) for method, size in cases]
        seconds = alternated(updates, options.rounds, clock)
        flops = [update_flops(method, size, budget=options.budget) for method, size in cases]
        measured = [statistics.median(line[index] / line[0] for line in seconds) for index in (1, 2)]
        model = [flops[index] / flops[0] for index in (1, 2)]
        lines.append({"prompt": prompt, "response": response, "measured": measured, "flop_model": model})
        print(
            f"{prompt:6d} {response:9d} {measured[0]:16.2f} / {model[0]:.2f} {measured[1]:19.2f} / {model[1]:.2f}",
            flush=True,
        )
    return lines


def crossover(base: Size, response: int) -> int:
    """Longest prompt with which DPH-JS's update takes no more operations than RKL's, with shared prompts and one stored
    response per prompt."""
    low, high = 1, 64 * response
    while high - low > max(1, response // 16):
        middle = (low + high) // 2
        size = replace(base, prompt=middle, response=response)
        cheaper = update_flops("DPH-JS", size) <= update_flops("RKL", size)
        low, high = (middle, high) if cheaper else (low, middle)
    return low


def main() -> None:
    """Measure and print."""
    parser = workload.parser(DESCRIPTION)
    parser.add_argument("--only", choices=("table", "sweep"), help="run one part only")
    parser.add_argument("--methods", nargs="+", choices=tuple(METHODS), default=list(METHODS), help="of the table")
    parser.add_argument("--sizes", nargs="+", default=["512+64"], metavar="PROMPT+RESPONSE", help="of the table")
    parser.add_argument("--prompts", type=int, default=TABLE.prompts, help="prompts in a step")
    parser.add_argument("--responses", type=int, default=TABLE.n, help="responses to each prompt")
    options = parser.parse_args()
    clock, lines = workload.prepare(options), workload.results(options)
    stored = max(1, options.prompts * options.responses // 8)  # as in the paper
    base = replace(TABLE, prompts=options.prompts, n=options.responses, stored=stored)
    tables = [replace(workload.sized(base, size), model=model) for model in options.models for size in options.sizes]
    methods, lengths = options.methods, [(prompt, response) for response in RESPONSES for prompt in PROMPTS]
    if options.smoke:
        tables, methods, lengths = [workload.smallest(tables[0])], ("GRPO", "RKL", "DPH-JS"), [(8, 4)]
        options.rounds = 1
    found: dict[str, Any] = workload.environment(options)
    if options.only != "sweep":
        found["table"] = [line for size in tables for line in table(size, methods, options, clock, lines)]
    if options.only != "table":
        found["sweep"] = sweep(tables[0], lengths, options, clock)
        found["crossover"] = {response: crossover(tables[0], response) for response in sorted({r for _, r in lengths})}
        for response, prompt in found["crossover"].items():
            print(f"responses of {response} tokens: DPH-JS costs less up to prompts of {prompt} tokens (FLOP model)")
    if options.out:
        (options.out / "methods.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
