"""Drawing the next token of 128 rows from logits: ours, transformers' way, and running sums over the whole vocabulary.

    python -m benchmarks.speed.drawing
    python -m benchmarks.speed.drawing --vocabulary 151936 --rows 64

transformers' way is softmax and `torch.multinomial`, and for top-p a sort of all tokens. Running sums in float64 are
what our draw equals. One thread, random logits; prints the median milliseconds of processor time of each and its ratio
to ours.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from transformers.generation.logits_process import TopPLogitsWarper

from dph.config.sampling import SamplingParams
from dph.sampling.generate import draw
from dph.sampling.seeding import uniforms


def running_sums(logits: Tensor, keys: Tensor) -> Tensor:
    """Invert the cumulative distribution over the whole vocabulary in float64."""
    sums = logits.double().softmax(-1).cumsum(-1)
    return torch.searchsorted(sums, uniforms(keys, torch.tensor(0))[:, None], right=True)


def transformers_way(logits: Tensor, top_p: float) -> Tensor:
    """What `generate(do_sample=True)` computes from the logits."""
    if top_p < 1:
        logits = TopPLogitsWarper(top_p)(None, logits)  # type: ignore[arg-type]
    return torch.multinomial(logits.softmax(-1), 1)


def milliseconds(run: Callable[[], object], times: int) -> float:
    """Median of several runs, after one that is not counted."""
    run()
    found = []
    for _ in range(times):
        start = time.process_time()
        run()
        found.append(1000 * (time.process_time() - start))
    return statistics.median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--vocabulary", type=int, default=49152)
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--times", type=int, default=10)
    args = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(args.rows, args.vocabulary, generator=generator)
    keys = torch.randint(0, 1 << 62, (args.rows,), generator=generator)
    print("| top-p | way | ms | ratio |\n|---|---|---:|---:|")
    for top_p in (1.0, 0.95):
        params = SamplingParams(top_p=top_p)
        ways: dict[str, Callable[[], object]] = {
            "ours": partial(draw, logits, params, keys, 0),
            "transformers": partial(transformers_way, logits, top_p),
        }
        if top_p == 1:
            ways["running sums in float64"] = partial(running_sums, logits, keys)
        found = {name: milliseconds(run, args.times) for name, run in ways.items()}
        for name, value in found.items():
            print(f"| {top_p:g} | {name} | {value:.1f} | {value / found['ours']:.1f} |", flush=True)


if __name__ == "__main__":
    main()
