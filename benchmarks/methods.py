"""Cost of an update by method: time, memory, and the prompt length up to which DPH is cheaper than RKL.

    python benchmarks/methods.py                 # about five minutes on two CPU cores
    python benchmarks/methods.py --only table    # or sweep

All methods use the same rollouts of the same model. RKL passes the rollouts through a reference model. DPH passes
rehearsal rows through the policy, one per eight rollouts, and needs no reference model.
"""

import argparse
import json
import multiprocessing
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import workload
from flops import matmul_rate
from workload import METHODS, Size, Update, alternated, update_flops

from dph.process.memory import resident

DESCRIPTION = "What an update costs by method: time, memory, and when doing without a reference model pays."
TABLE = Size(prompts=2, prompt=512, response=64, stored=4)
PROMPTS, RESPONSES = (64, 256, 1024), (16, 64, 256)


def _peak(method: str, size: Size, shared: bool, budget: int, threads: int) -> int:
    """Peak memory in bytes of models, optimizer and update; runs in a process of its own."""
    torch.set_num_threads(threads)
    Update(method, workload.smallest(size), shared=shared, budget=budget)()  # loads whatever the first step loads
    before = resident("VmRSS")
    update = Update(method, size, shared=shared, budget=budget)
    for _ in range(2):  # the optimizer's moments exist after the first step
        update()
    return resident("VmHWM") - before


def peaks(cases: Sequence[tuple[str, bool]], size: Size, budget: int, threads: int) -> list[int]:
    """Peak memory of each case."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["workload"])
    with context.Pool(1, maxtasksperchild=1) as pool:
        return [pool.apply(_peak, (method, size, shared, budget, threads)) for method, shared in cases]


def table(
    size: Size, methods: Sequence[str], options: argparse.Namespace, clock: Callable[[], float]
) -> list[dict[str, Any]]:
    """Every method with and without shared prompts."""
    cases = [(method, shared) for shared in (False, True) for method in methods]
    updates = [Update(method, size, shared=shared, budget=options.budget) for method, shared in cases]
    rate = matmul_rate(workload.settings(size), options.budget, clock)
    seconds = alternated(updates, options.rounds, clock)
    if options.smoke:  # in this process, where the peak covers all cases so far
        memory = [_peak(method, size, shared, options.budget, options.threads) for method, shared in cases]
    else:
        memory = peaks(cases, size, options.budget, options.threads)
    print(f"\n{size.prompts} prompts of {size.prompt} tokens, {size.n} responses of {size.response} each; "
          f"{size.stored} rehearsal rows; {updates[0].parameters / 1e6:.1f}M parameters; "
          f"own matrix products run at {rate / 1e9:.0f} GFLOP/s\n")  # fmt: skip
    print("prompts   method                  seconds   of RKL   FLOP model    MB   of the limit")
    lines = []
    for index, (method, shared) in enumerate(cases):
        rival = cases.index(("RKL", shared))
        flops, least = update_flops(method, size, shared=shared, budget=options.budget), update_flops(method, size)
        median = statistics.median(line[index] for line in seconds)
        ratio = statistics.median(line[index] / line[rival] for line in seconds)
        model = flops / update_flops("RKL", size, shared=shared, budget=options.budget)
        lines.append(
            {"method": method, "shared": shared, "seconds": median, "of_rkl": ratio, "flop_model": model}
            | {"bytes": memory[index], "of_limit": least / rate / median}
        )
        print(f"{'shared' if shared else 'repeated':9} {method:22} {median:8.3f} {ratio:8.2f} {model:12.2f} "
              f"{memory[index] / 1e6:5.0f} {least / rate / median:13.0%}", flush=True)  # fmt: skip
    return lines


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
        updates = [Update(method, size, shared=True, budget=options.budget) for method, size in cases]
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
    options = parser.parse_args()
    clock = workload.prepare(options)
    size, methods, lengths = TABLE, tuple(METHODS), [(prompt, response) for response in RESPONSES for prompt in PROMPTS]
    if options.smoke:
        size, methods, lengths, options.rounds = workload.smallest(TABLE), ("GRPO", "RKL", "DPH-JS"), [(8, 4)], 1
    found: dict[str, Any] = workload.environment(options)
    if options.only != "sweep":
        found["table"] = table(size, methods, options, clock)
    if options.only != "table":
        found["sweep"] = sweep(size, lengths, options, clock)
        found["crossover"] = {response: crossover(size, response) for response in sorted({r for _, r in lengths})}
        for response, prompt in found["crossover"].items():
            print(f"responses of {response} tokens: DPH-JS costs less up to prompts of {prompt} tokens (FLOP model)")
    if options.out:
        (options.out / "methods.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
