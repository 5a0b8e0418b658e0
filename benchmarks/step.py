"""A whole training step of this package and of TRL: the same model, prompts, number of tokens and update, in turns.

    python benchmarks/step.py                          # three sizes; hours on two CPU cores, mostly for TRL
    python benchmarks/step.py --sizes 512+64 --pairs 3
    python benchmarks/step.py --sizes 2048+128 --prompts 1 --pairs 3 --tokens 8192

Run it in an environment with the extra `trl`. For each size two processes hold the model and take steps in turn: 8
prompts (`--prompts`) with 16 responses each, rewards from the tokens, advantages, one AdamW step on all rows. End
tokens are suppressed, so that both generate and train the same number of tokens. TRL gets its fastest settings without
a GPU: fp32, no reference model, no recomputation of activations, no pass for old log-probabilities, and `--trl-batch`
rows per micro-batch (`auto` tries 8, 16 and 32 and keeps the fastest).

It prints medians over the pairs of steps, medians of the ratios within a pair, and the peak memory of the steps beyond
the memory before the first.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from turns import Worker

SCRIPT = Path(__file__).with_name("step_worker.py")
PHASES = ("generation", "logprob passes", "forward", "backward", "rest", "total")
CANDIDATES = (8, 16, 32)


def start(engine: str, prompt: int, response: int, batch: int, args: argparse.Namespace) -> Worker:
    """A process with one engine."""
    return Worker(SCRIPT, [engine, args.clock, prompt, response, args.prompts, batch, args.threads])


def best_batch(prompt: int, response: int, args: argparse.Namespace) -> int:
    """The size of the micro-batch with which TRL's second step is fastest."""
    seconds = {}
    for batch in CANDIDATES:
        with start("trl", prompt, response, batch, args) as worker:
            worker.step()
            seconds[batch] = worker.step()["total"]
    print("TRL's seconds a step by micro-batch:", {k: round(v, 2) for k, v in seconds.items()}, flush=True)
    return min(seconds, key=lambda batch: seconds[batch])


def compare(prompt: int, response: int, args: argparse.Namespace) -> dict[str, Any]:
    """Both engines' steps at one size, after one warm-up step each."""
    batch = best_batch(prompt, response, args) if args.trl_batch == "auto" else int(args.trl_batch)
    steps: dict[str, list[dict[str, float]]] = {"ours": [], "trl": []}
    with (
        start("ours", prompt, response, args.tokens, args) as ours,
        start("trl", prompt, response, batch, args) as trl,
    ):
        for number in range(args.pairs + 1):
            for name, worker in (("ours", ours), ("trl", trl)):
                taken = worker.step()
                if number:
                    steps[name].append(taken)
    facts = {"prompts": args.prompts, "prompt": prompt, "response": response, "trl_batch": batch}
    return {**facts, "threads": args.threads, "clock": args.clock, "tokens": args.tokens, "steps": steps}


def show(found: dict[str, Any]) -> None:
    """Print a table of one size."""
    ours, trl = found["steps"]["ours"], found["steps"]["trl"]

    def median(steps: list[dict[str, float]], name: str) -> float:
        return statistics.median(step[name] for step in steps)

    sizes = f"{found['prompts']} prompts, {found['prompt']}+{found['response']} tokens"
    print(f"\n{sizes}, TRL with {found['trl_batch']} rows at once")
    print(f"{'':16}{'ours s':>10}{'TRL s':>10}{'TRL/ours':>10}")
    for name in PHASES:
        ratios = [b[name] / a[name] for a, b in zip(ours, trl, strict=True) if a[name]]
        ratio = f"{statistics.median(ratios):10.2f}" if ratios else f"{'':>10}"
        print(f"{name:16}{median(ours, name):10.3f}{median(trl, name):10.3f}{ratio}")
    memory = [max(step["memory"] for step in steps) / 2**20 for steps in (ours, trl)]
    print(f"{'memory, MiB':16}{memory[0]:10.0f}{memory[1]:10.0f}{memory[1] / memory[0]:10.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["64+48", "512+64", "2048+128"], metavar="PROMPT+RESPONSE")
    parser.add_argument("--prompts", type=int, default=8, help="prompts in a step, each with 16 responses")
    parser.add_argument("--pairs", type=int, default=5, help="measured pairs of steps per size")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: for a machine that is not idle")
    parser.add_argument("--tokens", type=int, default=2048, help="tokens per micro-batch of our engine")
    parser.add_argument("--trl-batch", default="16", help='rows per micro-batch of TRL, or "auto"')
    parser.add_argument("--out", type=Path, help="write all numbers to this file as JSON")
    args = parser.parse_args()
    every = []
    for size in args.sizes:
        prompt, response = (int(part) for part in size.split("+"))
        every.append(compare(prompt, response, args))
        show(every[-1])
    if args.out:
        args.out.write_text(json.dumps(every, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
