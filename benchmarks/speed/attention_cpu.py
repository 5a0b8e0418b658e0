"""The backward pass of attention in bf16 on a CPU: torch's kernel and ours in turns, with their errors.

    python -m benchmarks.speed.attention_cpu                       # shapes of SmolLM2-135M
    python -m benchmarks.speed.attention_cpu --heads 14 2 64       # query heads, key heads and width of Qwen2.5-0.5B
    python -m benchmarks.speed.attention_cpu --model smollm2 --threads 2   # passes of a whole model, on an idle machine

Errors are distances to gradients in fp64, relative to their size, of queries, keys and values: the largest of the three
ratios is printed. Times are medians of the process's processor time, so that other work on the machine matters little.

--model measures forward and backward passes of 4 prompts of 256 tokens with 8 responses of 48, in wall-clock seconds:
with torch's kernel and transformers' layers, with our backward pass of attention, and with our layers as well.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable

import torch

from dph.config import ModelConfig
from dph.models.attention import blocks_cpu, split_cpu
from dph.models.batch import Tokens
from dph.models.policy import Policy
from dph.process.memory import keep_few_kernels

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


def milliseconds(action: Callable[[], object]) -> float:
    begun = time.process_time()
    action()
    return 1000 * (time.process_time() - begun)


def measure_model(path: str, rounds: int) -> None:
    """Passes of a whole model, in turns; prints seconds, and ratios within a round."""
    saving, plain = (Policy.load(ModelConfig(path=path, precision="bf16")) for _ in range(2))
    saving.save_memory()
    draw = random.Random(0)

    def ids(count: int) -> list[int]:
        return draw.choices(range(5, saving.model.config.get_text_config().vocab_size), k=count)

    prompts = [ids(256) for _ in range(4)]
    rows = [Tokens(prompt, ids(48)) for prompt in prompts for _ in range(8)]
    ways = {
        "as in torch and transformers": (plain, False),
        "our attention": (plain, True),
        "and layers": (saving, True),
    }
    times: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    usable = blocks_cpu.usable
    for _ in range(rounds + 1):  # the first is not counted
        for way, (policy, blocks) in ways.items():
            blocks_cpu.usable = usable if blocks else lambda _: False
            begun = time.perf_counter()
            logprobs, _ = policy.logprobs(policy.collate(rows, shared=True))
            between = time.perf_counter()
            logprobs.sum().backward()
            times[way].append((between - begun, time.perf_counter() - between))
    print("| | forward, s | backward, s | first way / this one |\n|---|---|---|---|")
    first = [sum(pair) for pair in times["as in torch and transformers"][1:]]
    for way, pairs in times.items():
        forward, backward = (statistics.median(values) for values in zip(*pairs[1:], strict=True))
        ratio = statistics.median(a / sum(b) for a, b in zip(first, pairs[1:], strict=True))
        print(f"| {way} | {forward:.2f} | {backward:.2f} | {ratio:.2f} |", flush=True)


def main() -> None:
    keep_few_kernels()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--heads", type=int, nargs=3, default=[9, 3, 64], metavar=("QUERY", "KEY", "WIDTH"))
    parser.add_argument("--model", help="measure passes of this model instead, as --model.path")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.model:
        return measure_model(args.model, args.rounds)
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
        truth = split_cpu.kernel_backward(
            (grad.double(), *wide, *split_cpu._attend(*wide, causal, scale)), causal, scale
        )
        ours = blocks_cpu.backward(*saved, causal, scale)
        errors = [
            [float((x.double() - y).norm()) for x, y in zip(found, truth, strict=True)]
            for found in (ours, split_cpu.kernel_backward(saved, causal, scale))
        ]
        times: tuple[list[float], list[float]] = [], []
        for _ in range(args.rounds):
            times[0].append(
                milliseconds(lambda saved=saved, causal=causal: split_cpu.kernel_backward(saved, causal, scale))
            )
            times[1].append(milliseconds(lambda saved=saved, causal=causal: blocks_cpu.backward(*saved, causal, scale)))
        usual, fast = (statistics.median(values) for values in times)
        ratio = statistics.median(a / b for a, b in zip(*times, strict=True))
        worst = max(a / b for a, b in zip(*errors, strict=True))
        seen = "as many" if causal else f"{keys}"
        print(f"| {count} × {queries}, {seen} | {usual:.2f} | {fast:.2f} | {ratio:.1f} | {worst:.2f} |", flush=True)
    return None


if __name__ == "__main__":
    main()
