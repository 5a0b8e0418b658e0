# pyright: reportMissingImports=false
"""Sampling with the built-in sampler, transformers' generate and vLLM: the same model and prompts.

    python -m benchmarks.speed.generate --sizes 256+64  # ours and transformers
    python -m benchmarks.speed.generate --sizes 256+64 --vllm .venv-vllm/bin/python  # and vLLM, of another environment
    python -m benchmarks.speed.generate --precision bf16 --model 13M

The engines run one after the other, each in a process with the model (random weights, by default with the shape of
SmolLM2-135M). With `--clock cpu`, for a machine that is not idle, they take turns and count processor time; vLLM's
engine and its worker then are one process. A step samples `--responses` responses to each of `--prompts` prompts at
temperature 1; end tokens are suppressed, so that all sample the same number of tokens. With `--mean`, so many tokens of
the vocabulary end a response that it has about this length on average (a model with random weights is nearly uniform).
With `--precision bf16` all of them keep the weights in bfloat16.

It prints medians over the steps of the seconds and of the tokens per second, and how many times as fast as the first
engine each is.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks._support.turns import Worker, answer, wait


def worker(
    engine: str,
    folder: str,
    prompt: int,
    response: int,
    prompts: int,
    responses: int,
    precision: str,
    mean: int,
    clock: str,
) -> None:
    """Sample at each request, and answer with the seconds and the tokens."""
    from transformers import AutoConfig

    from benchmarks.engines.step_worker import make_prompts

    now = time.process_time if clock == "cpu" else time.perf_counter
    if clock == "cpu":
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    vocabulary = AutoConfig.from_pretrained(folder).vocab_size
    ends = list(range(2, 2 + vocabulary // mean)) if mean else []
    make = {"transformers": by_transformers, "ours": ours, "vllm": by_vllm}[engine]
    sample = make(folder, responses, response, precision, ends)
    drawn = make_prompts(prompts, prompt, vocabulary)
    step = 0
    while True:
        wait()
        step += 1
        start = now()
        tokens = sample(drawn, step)
        seconds = now() - start
        assert mean or tokens == prompts * responses * response, tokens
        answer({"seconds": seconds, "tokens": tokens})


Sample = Callable[[list[list[int]], int], int]
"""(prompts, step) → the number of sampled tokens."""


def by_transformers(folder: str, responses: int, response: int, precision: str, ends: list[int]) -> Sample:
    """transformers' `generate`."""
    import torch
    from transformers import AutoModelForCausalLM

    from dph.models.device import weight_type

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=weight_type(_kept(precision))).eval()

    def sample(prompts: list[list[int]], step: int) -> int:
        torch.manual_seed(step)
        rows = torch.tensor(prompts).repeat_interleave(responses, 0)
        length: dict[str, Any] = {"max_new_tokens": response}
        length |= {"eos_token_id": ends, "pad_token_id": ends[0]} if ends else {"min_new_tokens": response}
        found = model.generate(rows, attention_mask=torch.ones_like(rows), do_sample=True, top_k=0, **length)
        generated = found[:, rows.shape[1] :]
        over = torch.isin(generated, torch.tensor(ends, dtype=torch.long)).cumsum(1)
        return int((over == 0).sum()) + int((over[:, -1] > 0).sum())

    return torch.inference_mode()(sample)


def ours(folder: str, responses: int, response: int, precision: str, ends: list[int]) -> Sample:
    """The built-in sampler."""
    from dph.config import ModelConfig
    from dph.config.sampling import SamplingParams
    from dph.models.fitting import MOST_ROWS, MOST_ROWS_OTHERWISE
    from dph.models.policy import Policy
    from dph.sampling.generate import HFSampler
    from dph.sampling.seeding import derive_key

    policy = Policy.load(ModelConfig(folder, precision=_kept(precision)))  # type: ignore[arg-type]
    policy.eos_ids = frozenset(ends)
    sampler = HFSampler(policy, rows=MOST_ROWS.get(policy.device.type, MOST_ROWS_OTHERWISE))

    def sample(prompts: list[list[int]], step: int) -> int:
        keys = [derive_key(step, place) for place in range(len(prompts))]
        groups = sampler.sample(prompts, SamplingParams(responses, max_tokens=response), keys)
        return sum(len(one.token_ids) for group in groups for one in group)

    return sample


def by_vllm(folder: str, responses: int, response: int, precision: str, ends: list[int]) -> Sample:
    """vLLM's offline engine."""
    from vllm import LLM, SamplingParams

    dtype = "float32" if precision == "fp32" else "bfloat16"
    llm = LLM(folder, dtype=dtype, max_model_len=8192, max_num_seqs=1024, seed=0, enable_prefix_caching=True)

    def sample(prompts: list[list[int]], step: int) -> int:
        length: dict[str, Any] = {"stop_token_ids": ends} if ends else {"min_tokens": response}
        params = SamplingParams(
            n=responses, temperature=1.0, max_tokens=response, detokenize=False, ignore_eos=True, **length
        )
        inputs = [{"prompt_token_ids": ids} for ids in prompts]
        found = llm.generate(inputs, params, use_tqdm=False)
        return sum(len(one.token_ids) for group in found for one in group.outputs)

    return sample


def _kept(precision: str) -> str:
    """The setting `model.precision` that keeps the weights in this type."""
    return "fp32" if precision == "fp32" else "bf16_master"


def measure(size: str, folder: str, args: argparse.Namespace) -> dict[str, Any]:
    """Each engine's seconds at one size, after one warm-up step."""
    prompt, response = map(int, size.split("+"))
    pythons = dict.fromkeys(args.engines, sys.executable) | ({"vllm": args.vllm} if args.vllm else {})
    words = [folder, prompt, response, args.prompts, args.responses, args.precision, args.mean, args.clock]
    steps: dict[str, list[dict[str, float]]] = {engine: [] for engine in pythons}
    # with the clock on the wall one after the other: vLLM keeps its memory and its cores
    for together in [list(pythons)] if args.clock == "cpu" else [[engine] for engine in pythons]:
        with contextlib.ExitStack() as stack:
            workers = {
                engine: stack.enter_context(
                    Worker("benchmarks.speed.generate", ["--worker", engine, *words], python=pythons[engine])
                )
                for engine in together
            }
            for _ in range(args.steps + 1):
                for engine, one in workers.items():
                    steps[engine].append(one.step())
    seconds = {engine: statistics.median(step["seconds"] for step in taken[1:]) for engine, taken in steps.items()}
    rates = {
        engine: statistics.median(step["tokens"] / step["seconds"] for step in taken[1:])
        for engine, taken in steps.items()
    }
    facts = {"size": size, "prompts": args.prompts, "n": args.responses, "mean": args.mean, "clock": args.clock}
    return {**facts, "precision": args.precision, "model": args.model, "seconds": seconds, "rates": rates}


def show(found: dict[str, Any], args: argparse.Namespace) -> None:
    """Print a table of one size."""
    length = f", mean length {args.mean}" if args.mean else ""
    print(f"\n{found['size']} tokens{length}, {args.prompts} prompts with {args.responses} responses, {args.precision}")
    print(f"{'':14}{'seconds':>10}{'tokens/s':>10}{'ratio':>8}")
    first = next(iter(found["rates"].values()))
    for engine, rate in found["rates"].items():
        print(f"{engine:14}{found['seconds'][engine]:10.2f}{rate:10.0f}{rate / first:8.2f}", flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        engine, folder, prompt, response, prompts, responses, precision, mean, clock = sys.argv[2:]
        worker(engine, folder, int(prompt), int(response), int(prompts), int(responses), precision, int(mean), clock)
        return
    from benchmarks._support import shapes
    from benchmarks._support.lines import Lines
    from benchmarks.engines.step_worker import make_tokenizer

    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--sizes", nargs="+", default=["256+64"], metavar="PROMPT+RESPONSE")
    options.add_argument("--model", choices=shapes.MODELS, default="135M")
    options.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    options.add_argument("--prompts", type=int, default=4)
    options.add_argument("--responses", type=int, default=8, help="to each prompt")
    options.add_argument("--steps", type=int, default=3, help="measured steps of each engine")
    options.add_argument("--mean", type=int, default=0, help="mean length of responses; 0: all as long as --sizes says")
    options.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: for a machine that is not idle")
    options.add_argument("--engines", nargs="*", choices=("transformers", "ours"), default=["transformers", "ours"])
    options.add_argument("--vllm", default="", help="Python of an environment with vLLM")
    options.add_argument("--lines", type=Path, help="file that gets each size at once, as lines of JSON")
    options.add_argument("--out", type=Path, help="write all numbers to this file as JSON")
    args = options.parse_args()
    every = []
    with tempfile.TemporaryDirectory() as folder:
        model = shapes.random_model(shapes.settings(args.model), shapes.Where())
        make_tokenizer(model.config.vocab_size).save_pretrained(folder)
        model.save_pretrained(folder)
        del model
        for size in args.sizes:
            every.append(measure(size, folder, args))
            show(every[-1], args)
            Lines(args.lines).add("generate", **every[-1])
    if args.out:
        args.out.write_text(json.dumps(every, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
