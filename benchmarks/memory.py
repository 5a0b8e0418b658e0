"""Resident memory of supervised training, step by step, and its speed by the size of a micro-batch.

    python benchmarks/memory.py --model smollm2                 # sizes 0 (found by trial), 1024 and 4096
    python benchmarks/memory.py --model smollm2 --tokens 512 --steps 100 --keep-freed

Each size runs in a process of its own, one thread. Rows have 75 to 310 random tokens, a fifth of them responses. Linux
only: it reads /proc. --keep-freed leaves freed memory with the C library, which keeps it.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import time

import torch

from dph.config import ModelConfig, OptimConfig
from dph.models.batch import Tokens
from dph.models.memory import fitting_tokens, kept_per_token
from dph.models.policy import Policy
from dph.process.distributed import World
from dph.process.memory import FreedMemory, resident
from dph.stages.sft import _step
from dph.training.optim import Optimizer

GIB = 1 << 30


def rows_of(draw: random.Random, count: int, vocabulary: int) -> list[Tokens]:
    """Random rows; their lengths are those of questions about a schema and short SQL."""
    rows = []
    for _ in range(count):
        prompt, response = draw.randrange(60, 250), draw.randrange(15, 60)
        rows.append(
            Tokens(draw.choices(range(5, vocabulary), k=prompt), draw.choices(range(5, vocabulary), k=response))
        )
    return rows


def measure(args: argparse.Namespace, tokens: int) -> None:
    """Train for some steps in this process; print a line of JSON for each."""
    torch.set_num_threads(1)
    policy = Policy.load(ModelConfig(path=args.model, precision=args.precision))
    optimizer = Optimizer(policy.trainable(), OptimConfig(lr=1e-6), args.steps)
    facts = {"weights": sum(p.numel() * 4 for p in policy.model.parameters()), "loaded": resident()}
    size = tokens or fitting_tokens(policy)
    print(json.dumps({**facts, "tokens": size, "each": kept_per_token(policy)}), flush=True)
    draw, world, freed = random.Random(0), World.join(), FreedMemory()
    for _ in range(args.steps):
        rows = rows_of(draw, args.rows, policy.model.config.get_text_config().vocab_size)
        start, begun = time.perf_counter(), time.process_time()
        _step(policy, optimizer, rows, size, world)
        if not args.keep_freed:
            freed.after_step()
        times = {"wall": time.perf_counter() - start, "cpu": time.process_time() - begun}
        memory = {"resident": resident(), "peak": resident("VmHWM")}
        print(json.dumps({**times, **memory, "tokens": sum(row.length for row in rows)}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True, help="as --model.path")
    parser.add_argument("--tokens", type=int, nargs="+", default=[0, 1024, 4096], help="tokens per micro-batch")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rows", type=int, default=16, help="rows in a step")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="bf16")
    parser.add_argument("--keep-freed", action="store_true", help="do not return freed memory to the system")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker is not None:
        return measure(args, args.worker)
    for tokens in args.tokens:
        command = [sys.executable, __file__, *sys.argv[1:], "--worker", str(tokens)]
        ran = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert ran.stdout is not None
        facts, steps = {}, []
        for line in ran.stdout:
            found = json.loads(line)
            if not facts:
                facts = found
                print(
                    f"\n{found['tokens']} tokens at once; {found['each'] / 1024:.0f} KiB of activations a token; "
                    f"{found['loaded'] / GIB:.2f} GiB after loading, of it weights {found['weights'] / GIB:.2f}"
                )
                continue
            steps.append(found)
            rate = found["tokens"] / found["cpu"]
            print(
                f"step {len(steps):4}  resident {found['resident'] / GIB:5.2f} GiB  peak {found['peak'] / GIB:5.2f}  "
                f"{rate:5.0f} tokens per second of processor time",
                flush=True,
            )
        if ran.wait():
            raise SystemExit("a worker has ended; see its message above")
        rates = [step["tokens"] / step["cpu"] for step in steps[2:]]
        if rates:
            print(f"median of the steps after the second: {statistics.median(rates):.0f} tokens per second")
    return None


if __name__ == "__main__":
    main()
