"""Resident memory: of supervised training, step by step, with its speed by the size of a micro-batch; of the logits.

    python -m benchmarks.memory.resident --model smollm2  # sizes 0 (found by trial), 1024 and 4096
    python -m benchmarks.memory.resident --model smollm2 --tokens 512 --steps 100 --keep-freed
    python -m benchmarks.memory.resident --logits 4096  # log-probabilities with gradients: at once, in chunks

Each size runs in a process of its own, one thread. Rows have 75 to 310 random tokens, a fifth of them responses. Linux
only: it reads /proc. --keep-freed leaves freed memory with the C library, which keeps it. --logits takes random hidden
states and a head that is also the input embedding, of the sizes --vocabulary and --hidden.
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
from dph.models.fitting import fitting_tokens, kept_per_token
from dph.models.logprobs import linear_logprobs, token_logprobs
from dph.models.policy import Policy
from dph.process.distributed import World
from dph.process.memory import keep_few_kernels, resident, return_freed
from dph.stages.sft import supervised_step
from dph.training.optim import Optimizer

GIB, MIB = 1 << 30, 1 << 20


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
    policy.keep_less()
    optimizer = Optimizer(policy.trainable(), OptimConfig(lr=1e-6), args.steps)
    facts = {"weights": sum(p.nbytes for p in policy.model.parameters()), "loaded": resident()}
    size = tokens or fitting_tokens(policy)
    print(json.dumps({**facts, "tokens": size, "each": kept_per_token(policy)}), flush=True)
    draw, world = random.Random(0), World.join()
    for step in range(1, args.steps + 1):
        rows = rows_of(draw, args.rows, policy.model.config.get_text_config().vocab_size)
        start, begun = time.perf_counter(), time.process_time()
        supervised_step(policy, optimizer, rows, size, world)
        if not args.keep_freed:
            return_freed(step)
        times = {"wall": time.perf_counter() - start, "cpu": time.process_time() - begun}
        memory = {"resident": resident(), "peak": resident("VmHWM")}
        print(json.dumps({**times, **memory, "tokens": sum(row.length for row in rows)}), flush=True)


def logit_bytes(tokens: int, vocabulary: int, hidden: int, at_once: int) -> int:
    """Largest memory of log-probabilities and gradients in fp32, in bytes, by arithmetic.

    All logits: two tensors of their size (logits and their gradient); those of the head and the embedding come later.
    Chunks: two tensors, and the head's gradient twice (the sum, and one chunk's part) beside that of the embedding.

    at_once: tokens in a chunk; 0 for all logits.
    """
    return 4 * vocabulary * (2 * at_once + 3 * hidden if at_once else 2 * tokens)


def measure_logits(args: argparse.Namespace, at_once: int) -> None:
    """Compute log-probabilities, entropies and gradients; print memory and time as a line of JSON.

    at_once: tokens in a chunk; 0 computes the logits of all tokens and keeps them.
    """
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(args.vocabulary, args.hidden, generator=generator).requires_grad_()
    ids = torch.randint(args.vocabulary, (args.logits,), generator=generator)
    states = torch.arange(args.logits)
    before, start = resident("VmHWM"), time.perf_counter()
    hidden = weight[ids]
    if at_once:
        logprobs, _ = linear_logprobs(hidden, weight, None, states, ids, 0.7, "value", at_once)
    else:
        logprobs, _ = token_logprobs(hidden @ weight.T, states, ids, 0.7, "value")
    logprobs.mean().backward()
    print(json.dumps({"bytes": resident("VmHWM") - before, "seconds": time.perf_counter() - start}))


def compare_logits(args: argparse.Namespace) -> None:
    """Print the table of memory and time, each row measured in a process of its own."""
    print(f"{args.logits} tokens, {args.vocabulary} in the vocabulary, width {args.hidden}; beyond head and states:")
    print("| logits at once | by arithmetic, MiB | measured, MiB | seconds |\n|---|---|---|---|")
    for at_once in (0, 341, 128):  # 341: the default's 2^24 numbers hold so many of 49,152
        command = [sys.executable, "-m", "benchmarks.memory.resident", *sys.argv[1:], "--worker", str(at_once)]
        found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
        arithmetic = logit_bytes(args.logits, args.vocabulary, args.hidden, at_once)
        name = f"chunks of {at_once}" if at_once else "all, kept"
        print(f"| {name} | {arithmetic / MIB:.0f} | {found['bytes'] / MIB:.0f} | {found['seconds']:.1f} |", flush=True)


def main() -> None:
    keep_few_kernels()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--model", help="as --model.path")
    kind.add_argument("--logits", type=int, metavar="TOKENS", help="compare ways to compute log-probabilities")
    parser.add_argument("--vocabulary", type=int, default=49152)
    parser.add_argument("--hidden", type=int, default=576)
    parser.add_argument("--tokens", type=int, nargs="+", default=[0, 1024, 4096], help="tokens per micro-batch")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rows", type=int, default=16, help="rows in a step")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="bf16")
    parser.add_argument("--keep-freed", action="store_true", help="do not return freed memory to the system")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker is not None:
        return measure_logits(args, args.worker) if args.logits else measure(args, args.worker)
    if args.logits:
        return compare_logits(args)
    for tokens in args.tokens:
        command = [sys.executable, "-m", "benchmarks.memory.resident", *sys.argv[1:], "--worker", str(tokens)]
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
