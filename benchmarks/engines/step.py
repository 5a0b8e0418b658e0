"""A whole training step of this package and of TRL: the same model, prompts, number of tokens and update, in turns.

    python -m benchmarks.engines.step                          # three sizes; hours on two CPU cores, mostly for TRL
    python -m benchmarks.engines.step --sizes 512+64 --pairs 3
    python -m benchmarks.engines.step --sizes 2048+128 --prompts 1 --pairs 3 --tokens 8192
    python -m benchmarks.engines.step --engines ours --device cuda --precision bf16 --model 0.5B --sizes 2048+256

Run it in an environment with the extra `trl`, or with `--engines ours`. For each size a process per engine holds the
model, and they take steps in turn: 8 prompts (`--prompts`) with 16 responses each (`--responses`), rewards from the
tokens, advantages, one AdamW step on all rows. End tokens are suppressed, so that both generate and train the same
number of tokens. TRL gets its fastest settings: no reference model, no recomputation of activations, no pass for old
log-probabilities, and `--trl-batch` rows per micro-batch (`auto` tries 8, 16 and 32 and keeps the fastest).

It prints medians over the pairs of steps, medians of the ratios within a pair, and the peak memory of the steps beyond
the memory before the first; on a GPU, of its memory. The limit of a phase is the time of its operations, each prompt
computed once, at the rate of the model's matrix products (`--tokens` at once), which is measured first.
"""

import argparse
import contextlib
import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks._support import shapes
from benchmarks._support.flops import Work, forward_flops, matmul_rate
from benchmarks._support.lines import Lines
from benchmarks._support.turns import Worker

PHASES = ("generation", "logprob passes", "forward", "backward", "rest", "total")
CANDIDATES = (8, 16, 32)


def start(engine: str, prompt: int, response: int, batch: int, args: argparse.Namespace) -> Worker:
    """A process with one engine."""
    asked = {"engine": engine, "prompt": prompt, "response": response, "batch": batch}
    names = ("clock", "device", "precision", "model", "prompts", "responses", "threads", "graphs")
    return Worker("benchmarks.engines.step_worker", [json.dumps(asked | {name: getattr(args, name) for name in names})])


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
    """The engines' steps at one size, after one warm-up step each."""
    batches = {"ours": args.tokens, "trl": 0}
    if "trl" in args.engines:
        batches["trl"] = best_batch(prompt, response, args) if args.trl_batch == "auto" else int(args.trl_batch)
    steps: dict[str, list[dict[str, float]]] = {name: [] for name in args.engines}
    with contextlib.ExitStack() as stack:
        workers = {
            name: stack.enter_context(start(name, prompt, response, batches[name], args)) for name in args.engines
        }
        for number in range(args.pairs + 1):
            for name, worker in workers.items():
                taken = worker.step()
                if number:
                    steps[name].append(taken)
    facts = {"model": args.model, "prompts": args.prompts, "n": args.responses, "prompt": prompt, "response": response}
    facts |= {"graphs": args.graphs}
    facts |= {"trl_batch": batches["trl"], "threads": args.threads, "clock": args.clock, "tokens": args.tokens}
    return {**facts, "steps": steps, "limits": limits(facts, args)}


def limits(found: dict[str, Any], args: argparse.Namespace) -> dict[str, float]:
    """The least seconds of the phases of a step."""
    import torch

    from benchmarks.engines.step_worker import make_model

    torch.set_num_threads(args.threads)
    where = shapes.Where.chosen(args)
    config = make_model().config if args.model == "small" else shapes.settings(args.model)
    rate = matmul_rate(config, args.tokens, where.clock(args.clock), device=where.device, dtype=where.dtype)
    groups, n, prompt, response = (found[name] for name in ("prompts", "n", "prompt", "response"))
    pairs = prompt * (prompt + 1) // 2 + n * response * (prompt + (response + 1) // 2)
    work = Work(groups * (prompt + n * response), groups * pairs, groups * n * response)
    forward = forward_flops(config, work) / rate
    return {"generation": forward, "forward": forward, "backward": 2 * forward, "total": 4 * forward}


def median(steps: list[dict[str, float]], name: str) -> float:
    """Median of a phase over steps."""
    return statistics.median(step[name] for step in steps)


def show(found: dict[str, Any]) -> None:
    """Print a table of one size: seconds of each engine and, of two, the ratio."""
    engines = list(found["steps"])
    sizes = f"{found['prompts']} prompts, {found['n']} responses, {found['prompt']}+{found['response']} tokens"
    print(f"\n{sizes}" + (f", TRL with {found['trl_batch']} rows at once" if "trl" in engines else ""))
    heads = [*(name + " s" for name in engines), *(["ratio"] if engines[1:] else []), "limit"]
    print(f"{'':16}" + "".join(f"{head:>10}" for head in heads))
    for name in PHASES:
        values = "".join(f"{median(found['steps'][engine], name):10.3f}" for engine in engines)
        pairs = zip(*found["steps"].values(), strict=True) if engines[1:] else ()
        ratios = [b[name] / a[name] for a, b in pairs if a[name]]
        ratio = f"{statistics.median(ratios):10.2f}" if ratios else " " * 10 * bool(engines[1:])
        print(f"{name:16}{values}{ratio}" + (f"{found['limits'][name]:10.3f}" if name in found["limits"] else ""))
    memory = [max(step["memory"] for step in found["steps"][engine]) / 2**20 for engine in engines]
    ratio = f"{memory[1] / memory[0]:10.2f}" if engines[1:] else ""
    print(f"{'memory, MiB':16}" + "".join(f"{value:10.0f}" for value in memory) + ratio, flush=True)


def note(found: dict[str, Any], args: argparse.Namespace, lines: Lines) -> None:
    """Write each engine's medians at one size as a line of JSON."""
    facts = {name: value for name, value in found.items() if name not in ("steps", "limits")}
    for engine, steps in found["steps"].items():
        phases = {name: median(steps, name) for name in PHASES}
        phases |= {"limit": found["limits"]["total"]}
        peak = max(step["memory"] for step in steps)
        lines.add("step", engine=engine, **facts, **phases, bytes=peak)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["64+48", "512+64", "2048+128"], metavar="PROMPT+RESPONSE")
    parser.add_argument("--engines", nargs="+", choices=("ours", "trl"), default=["ours", "trl"])
    shapes.add_options(parser)
    parser.add_argument("--model", choices=("small", *shapes.MODELS), default="small", help="small: 3.4M, 2048 tokens")
    parser.add_argument("--prompts", type=int, default=8, help="prompts in a step")
    parser.add_argument("--responses", type=int, default=16, help="responses to each prompt")
    parser.add_argument("--pairs", type=int, default=5, help="measured pairs of steps per size")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: for a machine that is not idle")
    parser.add_argument("--tokens", type=int, default=2048, help="tokens per micro-batch of our engine")
    parser.add_argument("--trl-batch", default="16", help='rows per micro-batch of TRL, or "auto"')
    parser.add_argument("--no-graphs", dest="graphs", action="store_false", help="our sampler uses no CUDA graphs")
    parser.add_argument("--out", type=Path, help="write all numbers to this file as JSON")
    parser.add_argument("--lines", type=Path, help="file that gets each size at once, as lines of JSON")
    args = parser.parse_args()
    lines, every = Lines(args.lines, **shapes.Where.chosen(args).facts()), []
    for size in args.sizes:
        prompt, response = (int(part) for part in size.split("+"))
        every.append(compare(prompt, response, args))
        show(every[-1])
        note(every[-1], args, lines)
    if args.out:
        args.out.write_text(json.dumps(every, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
