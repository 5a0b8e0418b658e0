"""Where the time of an update goes on this device: kernels by kind, and how long the device waits.

    python -m benchmarks.gpu.profile --device cuda --precision bf16 --models 1.5B --sizes 2048+256 --lines FILE

One GRPO update with shared prompts runs under torch's profiler after two others.
"""

import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks._support import workload
from benchmarks._support.shapes import Where
from benchmarks._support.workload import Update
from benchmarks.speed.methods import TABLE

KINDS = {
    "attention": ("flash", "fmha", "flex", "attention"),  # before matrix products, because their names hold its types
    "matrix products": ("gemm", "cutlass", "nvjet", "cublas", "splitk"),
    "softmax and sums": ("reduce", "softmax", "norm", "index", "scatter", "gather"),
    "optimizer": ("adam", "multi_tensor"),
    "copies": ("memcpy", "memset", "copy", "cat"),
    "element by element": ("elementwise", "vectorized", "triton"),
}
"""Parts of kernels' names by kind; the first kind that fits counts."""
SHOWN = 25


def kind(name: str) -> str:
    """The kind of a kernel."""
    low = name.lower()
    return next((one for one, parts in KINDS.items() if any(part in low for part in parts)), "other")


def by_kind(kernels: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Seconds by kind, from names and seconds."""
    found = dict.fromkeys([*KINDS, "other"], 0.0)
    for name, seconds in kernels:
        found[kind(name)] += seconds
    return found


def kernels(profiled: Any) -> list[tuple[str, float, int]]:
    """Name, seconds and count of each kernel, the longest first."""
    found = [
        (one.key, one.self_device_time_total / 1e6, one.count)
        for one in profiled.key_averages()
        if one.device_type != DeviceType.CPU and one.self_device_time_total
    ]
    return sorted(found, key=lambda one: -one[1])


def main() -> int:
    parser = workload.parser(__doc__ or "")
    parser.add_argument("--sizes", nargs="+", default=["512+64"], metavar="PROMPT+RESPONSE")
    parser.add_argument("--prompts", type=int, default=8)
    options = parser.parse_args()
    clock, lines, where = workload.prepare(options), workload.results(options), Where.chosen(options)
    for model in options.models:
        for lengths in options.sizes:
            size = replace(workload.sized(replace(TABLE, prompts=options.prompts, n=8), lengths), model=model)
            update = Update("GRPO", size, shared=True, budget=options.budget, where=where)
            plain = statistics.median([update.timed(clock) for _ in range(4)][2:])
            activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if where.on_gpu else [])]
            with profile(activities=activities) as profiled:
                update()
            show(f"{model}, {lengths}", plain, kernels(profiled), lines, size)
            del update
    return 0


def show(title: str, seconds: float, found: Sequence[tuple[str, float, int]], lines: Any, size: Any) -> None:
    """Print and note what one update consists of."""
    kinds, busy = by_kind((name, time) for name, time, _ in found), sum(time for _, time, _ in found)
    count = sum(number for _, _, number in found)
    print(f"\n{title}: {1000 * seconds:.0f} ms, kernels {1000 * busy:.0f} ms, {count} of them")
    for name, time in kinds.items():
        print(f"  {1000 * time:8.1f} ms {name}")
    for name, time, number in found[:SHOWN]:
        print(f"    {1000 * time:8.1f} ms {number:6d} × {name[:150]}")
    lines.add(
        "profile",
        model=size.model,
        prompt=size.prompt,
        response=size.response,
        seconds=seconds,
        busy=busy,
        kernels=count,
        kinds=kinds,
    )


if __name__ == "__main__":
    sys.exit(main())
