"""Decoding alone: milliseconds a token by the number of rows, and whether a CUDA graph replays the steps.

    python -m benchmarks.gpu.decode --device cuda --precision bf16_master --models 0.5B --rows 64 256 512 1024
    python -m benchmarks.gpu.decode --precision bf16 --models 135M --prompt 256 --rows 32 --clock cpu --threads 1

Every row adds a token to each of its responses, without an end. The limit is the larger of the operations at the rate
of matrix products and the bytes of weights, keys and values at the rate of a copy, both measured here. The first two
steps, which warm up and record, are not counted.
"""

import argparse
import sys
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks._support import shapes, workload
from benchmarks._support.flops import Work, forward_flops, matmul_rate
from benchmarks._support.shapes import Where
from dph.config.sampling import SamplingParams
from dph.models.device import computed_in
from dph.models.policy import Policy
from dph.sampling.generate import HFSampler, draw

_COPIED = {True: 1 << 28, False: 1 << 26}
"""Numbers of a copy whose rate is measured, on a GPU and elsewhere."""


def copy_rate(where: Where, clock: Any) -> float:
    """Bytes per second that a copy reads and writes."""
    x = torch.zeros(_COPIED[where.on_gpu], device=where.device)
    y, seconds = torch.empty_like(x), []
    for _ in range(4):
        started = clock()
        y.copy_(x)
        seconds.append(clock() - started)
    return 2 * x.nbytes / min(seconds[1:])


def measure(policy: Policy, rows: int, options: argparse.Namespace, clock: Any) -> dict[str, Any]:
    """Seconds of a step with this many rows, and of its drawing, and whether a graph was replayed."""
    groups, n = max(1, rows // options.responses), min(rows, options.responses)
    generator, vocabulary = torch.Generator().manual_seed(0), policy.config.vocab_size
    prompts = torch.randint(3, vocabulary, (groups, options.prompt), generator=generator).tolist()
    params, keys = SamplingParams(n), torch.arange(groups * n, device=policy.device)
    sampler = HFSampler(policy)
    start, _ = sampler.way(options.prompt + options.tokens)  # not under autocast: its trials compare with fp32
    with policy.evaluating(), sampler._computing():
        decoder: Any = start(policy, prompts, n)
        drawing = began = 0.0
        for step in range(options.tokens):
            if step == 2:
                began, drawing = clock(), 0.0
            before = clock() if options.draws else 0.0
            with torch.autocast(policy.device.type, enabled=False):
                chosen, _ = draw(decoder.logits, params, keys, step)
            drawing += clock() - before if options.draws else 0.0
            decoder.step(chosen)
        seconds = clock() - began
    counted = options.tokens - 2
    replayed = getattr(decoder, "graph", None) is not None
    found = {"rows": groups * n, "decoder": type(decoder).__name__, "replayed": replayed}
    return {**found, "step": seconds / counted, "drawing": drawing / counted}


def limit(policy: Policy, rows: int, options: argparse.Namespace, rates: tuple[float, float]) -> float:
    """The least seconds of a step at these rates of operations and of bytes."""
    config, groups = policy.config, max(1, rows // options.responses)
    own = options.tokens // 2  # tokens of a response, on average
    work = Work(rows, rows * (options.prompt + own), rows)
    width = (
        2
        * config.num_hidden_layers
        * config.num_key_value_heads
        * (getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    )
    size = 4 if policy.precision == "fp32" else 2
    held = sum(p.numel() for p in policy.model.parameters()) + width * (groups * options.prompt + rows * own)
    return max(forward_flops(config, work) / rates[0], size * held / rates[1])


def main() -> int:
    parser = workload.parser(__doc__ or "")
    parser.add_argument("--rows", nargs="+", type=int, default=[64, 256, 512, 1024])
    parser.add_argument("--responses", type=int, default=16, help="to each prompt")
    parser.add_argument("--prompt", type=int, default=512, help="its tokens")
    parser.add_argument("--tokens", type=int, default=64, help="of a response")
    parser.add_argument("--draws", action="store_true", help="time the drawing too, which waits for the device")
    options = parser.parse_args()
    clock, lines, where = workload.prepare(options), workload.results(options), Where.chosen(options)
    for model in options.models:
        config = shapes.settings(model)
        tokenizer: Any = SimpleNamespace(eos_token_id=1)
        policy = Policy(shapes.random_model(config, where).eval(), tokenizer, precision=computed_in(where.precision))
        for rows in options.rows:
            found = measure(policy, rows, options, clock)
            rates = matmul_rate(config, rows, clock, device=where.device, dtype=where.dtype), copy_rate(where, clock)
            found["limit"] = limit(policy, found["rows"], options, rates)
            lines.add("decode", model=model, prompt=options.prompt, tokens=options.tokens, **found)
            print(f"{model} {where.precision}, {found['rows']} rows: {1000 * found['step']:.2f} ms a token, of which "
                  f"drawing {1000 * found['drawing']:.2f}, limit {1000 * found['limit']:.2f}; graph replayed: "
                  f"{'yes' if found['replayed'] else 'no'}; {found['decoder']}", flush=True)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
