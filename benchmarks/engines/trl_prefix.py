# pyright: reportMissingImports=false
"""The update of TRL's trainer with shared prompts and without: the same model, rows and optimizer, in turns.

    python -m benchmarks.engines.trl_prefix                       # three sizes, 8 and 16 responses to a prompt
    python -m benchmarks.engines.trl_prefix --sizes 512+64 --responses 8 --generation
    python -m benchmarks.engines.trl_prefix --sizes 256+48 --responses 8 --model 135M --precision bf16
    python -m benchmarks.engines.trl_prefix --sizes 512+256 --model 0.5B --precision bf16 --device cuda --vllm

Run it in an environment with the extra `trl`. For each size two processes hold the model of `step.py` (3.4 million
parameters, or `--model 135M`; fp32, or with `--precision bf16` TRL's defaults) and take optimizer steps in turn:
`--prompts` prompts with their responses, one micro-batch for each prompt's responses, shuffled by TRL. The responses
are random tokens, so no time is spent on generation; with `--vllm` vLLM generates them in the trainer's process, of the
full length.

It prints medians of the update (forward, backward and optimizer), of the whole step of `train()`, of the pass for
log-probabilities without gradients over the same rows, and of the ratios within a pair; the peak memory of the update
beyond the memory before the first (on a GPU, of its memory); and the largest difference of a log-probability, from
TRL's and of both from the same weights in fp32. With `--generation` it also times both ways to generate for the same
prompts, transformers' and, in the trainer with shared prompts, the built-in sampler, and the step includes it.
"""

import json
import math
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._support.lines import Lines
from benchmarks._support.prefix_table import compare, every_size, note, parser, show
from benchmarks._support.turns import Worker, answer, wait
from dph.process.memory import resident

MODULE, WARM_UP = "benchmarks.engines.trl_prefix", 1
VLLM_SHARE = 0.2
"""Of the GPU's memory for each trainer's vLLM; two of them are there."""


class Stopwatch:
    """Seconds of a part of the current step, such as the update: TRL's loss, the backward pass and the optimizer."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._start = 0.0
        self.seconds = 0.0

    def start(self) -> None:
        self._start = self._now()

    def stop(self) -> None:
        self.seconds += self._now() - self._start

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Count a function's time."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self.start()
            try:
                return function(*args, **kwargs)
            finally:
                self.stop()

        return call


def worker(shared: bool, asked: dict[str, Any]) -> None:
    """Take an optimizer step at each request, and answer with its times.

    asked: the options, and the size of the step.
    """
    import torch
    from transformers import TrainerCallback

    from benchmarks._support.shapes import Where
    from benchmarks.engines.step_worker import (
        make_prompts,
        make_texts,
        make_tokenizer,
        named_model,
        reward,
        trl_trainer,
    )

    if asked["vllm"]:
        wait()  # one vLLM starts after the other, because each measures the memory that is free
    torch.set_num_threads(asked["threads"])
    where, response, responses = Where(asked["device"]), asked["response"], asked["responses"]
    now = where.clock(asked["clock"])
    update, sampling, before, began = Stopwatch(now), Stopwatch(now), [0], [0.0]

    def memory(peak: bool) -> int:
        if not where.on_gpu:
            return resident("VmHWM" if peak else "VmRSS")
        return torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated()

    model = named_model(asked["model"], where)
    size = model.config.vocab_size
    drawn = make_prompts(asked["prompts"], asked["prompt"], size)
    rows = [ids for ids in drawn for _ in range(responses)]

    compared: dict[str, float] = {}

    def compare_with_exact() -> None:
        ours, reference = logprobs(trainer, response), named_model(asked["model"], where)
        compared["from fp32"] = float((ours - exact(trainer, reference, response)).abs().max())
        if shared:
            trainer.shared_prefix = False
            compared["difference"] = float((ours - logprobs(trainer, response)).abs().max())
            trainer.shared_prefix = True

    class Turns(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            if trainer.state.global_step or not asked["vllm"]:
                wait()
            before[0] = before[0] or memory(peak=False)
            update.seconds = sampling.seconds = 0.0
            began[0] = now()

        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            if trainer.state.global_step < WARM_UP:  # before weights move by less than bf16 resolves
                compare_with_exact()
            update.start()

        def on_optimizer_step(self, *_: Any, **__: Any) -> None:
            update.stop()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            found = {"update": update.seconds, "step": now() - began[0], "memory": memory(peak=True) - before[0]}
            start = now()
            logprobs(trainer, response)
            found["log-probs"] = now() - start
            if trainer.state.global_step == WARM_UP:
                found |= compared
                forget_peak(where.on_gpu)
            if asked["vllm"]:
                found["generation"] = sampling.seconds
                gaps = trainer._metrics["train"]["sampling/sampling_logp_difference/mean"]
                found["sampler"] = float(gaps[-1]) if gaps else math.nan
            elif asked["generation"]:
                start = now()
                generate(trainer, rows, responses, shared)
                found["generation"] = now() - start
                found["step"] += found["generation"]
            if shared:
                found["saved"] = trainer.shared_prefix_report().saved
            answer(found)

    def rewards(completion_ids: list[list[int]], **_: Any) -> list[float]:
        return [reward(ids) for ids in completion_ids]

    texts = make_texts(drawn, make_tokenizer(size))
    settings = {"num_generations": responses, "max_completion_length": response, "use_cpu": not where.on_gpu}
    if asked["precision"] == "bf16":  # TRL's defaults
        settings |= {"bf16": True, "gradient_checkpointing": True}
    with tempfile.TemporaryDirectory() as folder:
        if asked["vllm"]:
            settings |= {"use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": VLLM_SHARE}
            settings |= {"vllm_max_model_length": asked["prompt"] + response}
            settings |= {"generation_kwargs": {"ignore_eos": True}}
            model = from_folder(model, Path(folder) / "model", where)
        kind = trainers(response, size, asked["vllm"])[shared]
        trainer = trl_trainer(kind, texts, rewards, Turns(), folder, len(rows), responses, settings, model)
        trainer._compute_loss = update.timed(trainer._compute_loss)
        trainer.accelerator.backward = update.timed(trainer.accelerator.backward)
        trainer._generate_single_turn = sampling.timed(trainer._generate_single_turn)
        trainer.train()


def from_folder(model: Any, folder: Path, where: Any) -> Any:
    """The same model in fp32, from a folder with its tokenizer and weights in bf16, as vLLM reads it."""
    import torch
    from transformers import AutoModelForCausalLM

    from benchmarks.engines.step_worker import make_tokenizer

    model.to(torch.bfloat16).save_pretrained(folder)
    make_tokenizer(model.config.vocab_size).save_pretrained(folder)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(where.device)


def trainers(response: int, vocabulary: int, vllm: bool) -> tuple[Any, Any]:
    """TRL's trainer and the one with shared prompts, whose responses are random tokens or vLLM's."""
    import torch
    from trl import GRPOTrainer

    from dph.integrations.trl import SharedPrefixMixin

    class Random(GRPOTrainer):
        def _generate_single_turn(self, prompt_ids: list[list[int]], *_: Any, **__: Any) -> Any:
            generator = torch.Generator().manual_seed(self.state.global_step)
            return torch.randint(2, vocabulary, (len(prompt_ids), response), generator=generator).tolist(), None

    stock: Any = GRPOTrainer if vllm else Random

    class Shared(SharedPrefixMixin, stock):
        pass

    return stock, Shared


def generate(trainer: Any, rows: list[list[int]], responses: int, shared: bool) -> None:
    """Generate the responses of a step."""
    from trl import GRPOTrainer

    if not shared:
        GRPOTrainer._generate_single_turn(trainer, rows, None, {}, responses)
        return
    trainer.shared_generation = True
    trainer._generate_single_turn(rows, None, {}, responses)
    trainer.shared_generation = False
    assert trainer._sampler is not None


def logprobs(trainer: Any, response: int) -> Any:
    """Log-probabilities of the rows of the last step, a tensor [rows, response]."""
    import torch

    found = []
    for part in trainer._buffered_inputs:
        ids, mask = (torch.cat([part[f"prompt_{x}"], part[f"completion_{x}"]], dim=1) for x in ("ids", "mask"))
        with torch.no_grad():
            values, *_ = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, response)
        found.append(values * part["completion_mask"])
    return torch.cat(found)


def exact(trainer: Any, model: Any, response: int) -> Any:
    """What `logprobs` returns, by the trainer's weights in fp32 without autocast, row by row.

    model: one of the same kind, which gets the weights.
    """
    import torch

    own = trainer.accelerator.unwrap_model(trainer.model)
    model.load_state_dict(own.state_dict())
    model.float().eval()
    found = []
    for part in trainer._buffered_inputs:
        every = torch.cat([part["prompt_ids"], part["completion_ids"]], dim=1)
        for ids, mask in zip(every.unsqueeze(1), part["completion_mask"], strict=True):
            with torch.no_grad():
                logits = model(input_ids=ids, logits_to_keep=response + 1).logits[:, :-1]
            values = (logits / trainer.temperature).log_softmax(-1)
            found.append(values.gather(-1, ids[:, -response:, None]).squeeze(-1) * mask)
    return torch.cat(found)


def forget_peak(on_gpu: bool) -> None:
    """Measure the peak of memory anew: the GPU's, or by the kernel (Linux) this process's."""
    if on_gpu:
        import torch

        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def main() -> None:
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2] == "1", json.loads(sys.argv[3]))
        return
    options = parser((__doc__ or "").splitlines()[0], ["64+48", "512+64", "2048+128"], [8, 16])
    options.add_argument("--generation", action="store_true", help="time generation too")
    options.add_argument("--vllm", action="store_true", help="vLLM generates, in the trainer's process")
    help = "bf16: as TRL's defaults, with gradient checkpointing"
    options.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help=help)
    options.add_argument("--device", default="cpu", help="cpu, or cuda")
    options.add_argument("--lines", type=Path, help="file that gets each size at once, as lines of JSON")
    args = options.parse_args()
    if args.vllm:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # TRL runs it in the trainer's process
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    names = ("threads", "clock", "model", "precision", "device", "generation", "vllm")
    facts, every = {name: getattr(args, name) for name in names}, []
    lines = Lines(args.lines, trainer="TRL", **facts)
    for sizes in every_size(args):
        words = json.dumps(sizes | facts)
        start = partial(lambda words, shared: Worker(MODULE, ["--worker", shared, words]), words)
        every.append(compare(sizes, "TRL", start, args))
        first = every[-1]["first"]
        every[-1]["difference"] = first["shared"]["difference"]
        show(every[-1], "{prompt}+{response} tokens, {prompts} prompts with {responses} responses", "TRL")
        print("from fp32: TRL {TRL:.1e}, shared {shared:.1e}".format(**{k: v["from fp32"] for k, v in first.items()}))
        note(every[-1], "TRL", lines)
    if args.out:
        args.out.write_text(json.dumps(every, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
