"""The backward pass of attention in bf16 on a CPU: torch's kernel and ours in turns, with their errors.

    python benchmarks/attention_cpu.py                       # shapes of SmolLM2-135M
    python benchmarks/attention_cpu.py --heads 14 2 64       # query heads, key heads and width of Qwen2.5-0.5B

Errors are distances to gradients in fp64, relative to their size, of queries, keys and values: the largest of the three
ratios is printed. Times are medians of the process's processor time, so that other work on the machine matters little.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from dph.models.attention import blocks_cpu, split_cpu

CASES = [
    (48, 16, 16),
    (16, 48, 48),
    (6, 128, 128),
    (3, 256, 256),
    (1, 1024, 1024),
    (1, 4096, 4096),
    (1, 384, 256),
    (1, 1000, 300),
]
"""Sequences, queries and keys; where queries and keys differ in number, each query sees every key."""


def kernel(saved: tuple[Tensor, ...], causal: bool, scale: float) -> tuple[Tensor, ...]:
    """Gradients by torch's kernel."""
    usable, blocks_cpu.usable = blocks_cpu.usable, lambda _: False
    try:
        return split_cpu._attend_backward(saved, causal, scale)
    finally:
        blocks_cpu.usable = usable


def milliseconds(action: Callable[[], object]) -> float:
    begun = time.process_time()
    action()
    return 1000 * (time.process_time() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--heads", type=int, nargs=3, default=[9, 3, 64], metavar=("QUERY", "KEY", "WIDTH"))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    heads, shared, width = args.heads
    scale = width**-0.5
    if not blocks_cpu.usable(torch.zeros(1, dtype=torch.bfloat16)):
        print("note: this processor has no matrix products in bf16, so training uses the kernel here")
    print("| sequences × queries, keys | kernel, ms | blocks, ms | kernel/blocks | error, blocks/kernel |")
    print("|---|---|---|---|---|")
    for count, queries, keys in CASES:
        causal = queries == keys
        exact = [torch.randn(count, queries, heads, width) for _ in range(2)]
        exact += [torch.randn(count, keys, shared, width) for _ in range(2)]
        grad, q, k, v = (x.bfloat16() for x in exact)
        saved = grad, q, k, v, *split_cpu._attend(q, k, v, causal, scale)
        wide = q.double(), k.double(), v.double()
        truth = kernel((grad.double(), *wide, *split_cpu._attend(*wide, causal, scale)), causal, scale)
        ours = blocks_cpu.backward(*saved, causal, scale)
        errors = [
            [float((x.double() - y).norm()) for x, y in zip(found, truth, strict=True)]
            for found in (ours, kernel(saved, causal, scale))
        ]
        times: tuple[list[float], list[float]] = [], []
        for _ in range(args.rounds):
            times[0].append(milliseconds(lambda saved=saved, causal=causal: kernel(saved, causal, scale)))
            times[1].append(milliseconds(lambda saved=saved, causal=causal: blocks_cpu.backward(*saved, causal, scale)))
        usual, fast = (statistics.median(values) for values in times)
        ratio = statistics.median(a / b for a, b in zip(*times, strict=True))
        worst = max(a / b for a, b in zip(*errors, strict=True))
        seen = "as many" if causal else f"{keys}"
        print(f"| {count} × {queries}, {seen} | {usual:.2f} | {fast:.2f} | {ratio:.1f} | {worst:.2f} |", flush=True)


if __name__ == "__main__":
    main()
