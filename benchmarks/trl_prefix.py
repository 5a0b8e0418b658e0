# pyright: reportMissingImports=false
"""The update of TRL's trainer with shared prompts and without: the same model, rows and optimizer, in turns.

    python benchmarks/trl_prefix.py                       # three sizes, 8 and 16 responses to a prompt
    python benchmarks/trl_prefix.py --sizes 512+64 --responses 8 --generation

Run it in an environment with the extra `trl`. For each size two processes hold the model of `step.py` (3.4 million
parameters, fp32) and take optimizer steps in turn: `--prompts` prompts with their responses, one micro-batch for each
prompt's responses, shuffled by TRL. The responses are random tokens, so no time is spent on generation.

It prints medians of the update (forward, backward and optimizer), of the pass for log-probabilities without gradients
over the same rows, and of the ratios within a pair; the peak memory of the update beyond the memory before the first;
and the largest difference of a log-probability from TRL's. With `--generation` it also times both ways to generate for
the same prompts: transformers' and, in the trainer with shared prompts, the built-in sampler.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

VOCABULARY, WARM_UP = 2048, 1


def worker(
    shared: bool, prompt: int, response: int, prompts: int, responses: int, threads: int, generation: int, clock: str
) -> None:
    """Take an optimizer step at each line of standard input, and print its times as JSON."""
    import torch
    from datasets import Dataset
    from step_worker import make_model, make_prompts, make_texts, make_tokenizer, resident
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from dph.integrations.trl import SharedPrefixMixin

    torch.set_num_threads(threads)
    now = time.process_time if clock == "cpu" else time.perf_counter

    class Stock(GRPOTrainer):
        def _generate_single_turn(self, prompt_ids: list[list[int]], *_: Any, **__: Any) -> Any:
            generator = torch.Generator().manual_seed(self.state.global_step)
            return torch.randint(2, VOCABULARY, (len(prompt_ids), response), generator=generator).tolist(), None

    class Shared(SharedPrefixMixin, Stock):
        pass

    def rewards(completion_ids: list[list[int]], **_: Any) -> list[float]:
        return [float(ids[0] % 2) for ids in completion_ids]

    before = [0]
    update = [0.0]

    def timed(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = now()
            try:
                return function(*args, **kwargs)
            finally:
                update[0] += now() - start

        return call

    class Turns(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            if not sys.stdin.readline():
                sys.exit(0)
            before[0] = before[0] or resident("VmRSS")
            update[0] = 0.0

        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            self.start = now()

        def on_optimizer_step(self, *_: Any, **__: Any) -> None:
            update[0] += now() - self.start

        def on_step_end(self, *_: Any, **__: Any) -> None:
            found = {"update": update[0], "memory": resident("VmHWM") - before[0]}
            start = now()
            ours = logprobs()
            found["log-probs"] = now() - start
            if shared and trainer.state.global_step == WARM_UP:
                trainer.shared_prefix = False
                theirs = logprobs()
                trainer.shared_prefix = True
                found["difference"] = float((ours - theirs).abs().max())
            if generation:
                found["generation"] = generate()
            print("@@" + json.dumps(found), flush=True)

    def generate() -> float:
        """Seconds for the responses of a step."""
        rows = [ids for ids in make_prompts(prompts, prompt) for _ in range(responses)]
        start = now()
        if shared:
            trainer.shared_generation = True
            trainer._generate_single_turn(rows, None, {}, responses)
            trainer.shared_generation = False
            assert trainer._sampler is not None
        else:
            GRPOTrainer._generate_single_turn(trainer, rows, None, {}, responses)
        return now() - start

    def logprobs() -> torch.Tensor:
        """Of the step's rows."""
        found = []
        for part in trainer._buffered_inputs:
            ids, mask = (torch.cat([part[f"prompt_{x}"], part[f"completion_{x}"]], dim=1) for x in ("ids", "mask"))
            with torch.no_grad():
                values, *_ = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, response)
            found.append(values)
        return torch.cat(found)

    with tempfile.TemporaryDirectory() as folder:
        args = GRPOConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            per_device_train_batch_size=responses,
            gradient_accumulation_steps=prompts,
            num_generations=responses,
            max_completion_length=response,
            beta=0.0,
            learning_rate=1e-6,
            max_steps=10_000,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        tokenizer = make_tokenizer()
        texts = make_texts(make_prompts(prompts, prompt), tokenizer)
        trainer = (Shared if shared else Stock)(
            model=make_model(),
            reward_funcs=rewards,
            args=args,
            train_dataset=Dataset.from_dict({"prompt": texts}),
            processing_class=tokenizer,
            callbacks=[Turns()],
        )
        trainer._compute_loss = timed(trainer._compute_loss)
        trainer.accelerator.backward = timed(trainer.accelerator.backward)
        trainer.train()


class Worker:
    """A process that takes one optimizer step at each request."""

    def __init__(self, shared: bool, sizes: list[int], args: argparse.Namespace) -> None:
        given = [str(int(shared)), *map(str, sizes), str(args.threads), str(int(args.generation)), args.clock]
        environment = os.environ | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        command = [sys.executable, __file__, "--worker", *given]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def step(self) -> dict[str, float]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write("step\n")
        stdin.flush()
        for line in stdout:
            if line.startswith("@@"):
                return json.loads(line[2:])
        raise SystemExit("a worker has ended; see its message above")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def compare(sizes: list[int], args: argparse.Namespace) -> dict[str, Any]:
    """Steps of both trainers at one size, in turns, after a warm-up step each."""
    workers = {"TRL": Worker(False, sizes, args), "shared": Worker(True, sizes, args)}
    try:
        first = {name: worker.step() for name, worker in workers.items()}
        steps = [{name: worker.step() for name, worker in workers.items()} for _ in range(args.pairs)]
    finally:
        for one in workers.values():
            one.close()
    names = ("prompt", "response", "prompts", "responses")
    load = f"{os.getloadavg()[0]:.1f}"
    return {
        **dict(zip(names, sizes, strict=True)),
        "difference": first["shared"]["difference"],
        "load": load,
        "steps": steps,
    }


def show(found: dict[str, Any]) -> None:
    """Print a table of one size."""
    sizes = "{prompt}+{response} tokens, {prompts} prompts with {responses} responses, load {load}".format(**found)
    print(f"\n{sizes}\n{'':16}{'TRL':>10}{'shared':>10}{'ratio':>10}")
    for name in [name for name in ("update", "log-probs", "generation") if name in found["steps"][0]["TRL"]]:
        both = [[step[one][name] for step in found["steps"]] for one in ("TRL", "shared")]
        ratio = statistics.median(a / b for a, b in zip(*both, strict=True))
        print(f"{name + ', s':16}{statistics.median(both[0]):10.3f}{statistics.median(both[1]):10.3f}{ratio:10.2f}")
    stock, ours = (max(step[one]["memory"] for step in found["steps"]) / 2**20 for one in ("TRL", "shared"))
    print(f"{'memory, MiB':16}{stock:10.0f}{ours:10.0f}{stock / ours:10.2f}")
    print(f"largest difference of a log-probability: {found['difference']:.1e} nats", flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        shared, *sizes, clock = sys.argv[2:]
        worker(shared == "1", *map(int, sizes), clock)  # type: ignore[call-arg]
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["64+48", "512+64", "2048+128"], metavar="PROMPT+RESPONSE")
    parser.add_argument("--responses", nargs="+", type=int, default=[8, 16], help="to each prompt")
    parser.add_argument("--prompts", type=int, default=2, help="in an optimizer step")
    parser.add_argument("--pairs", type=int, default=3, help="measured pairs of steps per size")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: for a machine that is not idle")
    parser.add_argument("--generation", action="store_true", help="time generation too")
    parser.add_argument("--out", type=Path, help="write all numbers to this file as JSON")
    args = parser.parse_args()
    every = []
    for size in args.sizes:
        for responses in args.responses:
            prompt, response = (int(part) for part in size.split("+"))
            every.append(compare([prompt, response, args.prompts, responses], args))
            show(every[-1])
    if args.out:
        args.out.write_text(json.dumps(every, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
