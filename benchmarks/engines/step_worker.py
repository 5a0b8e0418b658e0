# pyright: reportMissingImports=false
"""One engine of `step.py`: takes a step per line on standard input, and prints its times as JSON.

Its only argument is a JSON object with the fields of `Asked`.
"""

import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from benchmarks._support import shapes
from benchmarks._support.shapes import Where
from benchmarks._support.turns import answer, wait
from dph.process.memory import resident

VOCABULARY, STEPS = 2048, 10_000


@dataclass(frozen=True, slots=True)
class Asked:
    """What the steps consist of."""

    engine: str
    prompt: int
    """Tokens of a prompt."""
    response: int
    """Tokens of a response."""
    prompts: int
    responses: int
    """Responses to each prompt."""
    batch: int
    """Tokens (ours) or rows (TRL) of a micro-batch."""
    threads: int
    clock: str
    device: str
    precision: str
    model: str
    """"small", or a name in `shapes`."""
    graphs: bool
    """Our sampler may use CUDA graphs."""

    @property
    def where(self) -> Where:
        return Where(self.device, self.precision)

    @property
    def tokens(self) -> int:
        """Generated tokens of a step."""
        return self.prompts * self.responses * self.response


class Clock:
    """Seconds by phase of the current step."""

    def __init__(self, asked: Asked) -> None:
        self._now, self._on_gpu = asked.where.clock(asked.clock), asked.where.on_gpu
        self._seconds: dict[str, float] = defaultdict(float)
        self._start, self._before = 0.0, 0

    def timed(self, function: Callable[..., Any], phase: str | None = None) -> Callable[..., Any]:
        """Wrap a function to count its time for a phase: "forward" by default, "logprob passes" without gradients."""

        def call(*args: Any, **kwargs: Any) -> Any:
            start = self._now()
            try:
                return function(*args, **kwargs)
            finally:
                name = phase or ("forward" if torch.is_grad_enabled() else "logprob passes")
                self._seconds[name] += self._now() - start

        return call

    def wait(self) -> None:
        """Wait until a step is requested."""
        wait()
        self._before = self._before or (torch.cuda.memory_allocated() if self._on_gpu else resident("VmRSS"))
        self._seconds.clear()
        self._start = self._now()

    def answer(self) -> None:
        """Print the times of the step."""
        total = self._now() - self._start
        phases = {name: self._seconds[name] for name in ("generation", "logprob passes", "forward", "backward")}
        peak = torch.cuda.max_memory_allocated() if self._on_gpu else resident("VmHWM")
        memory = peak - self._before
        answer({**phases, "rest": total - sum(phases.values()), "total": total, "memory": memory})


def named_model(name: str, where: Where) -> Any:
    """The model "small" or one of `shapes`, with random weights, or SmolLM2-135M with its own, on its device."""
    if name == "small":
        return make_model().to(where.device)  # type: ignore[arg-type]
    if name == "smollm2":
        from dph.models.loading import model_folder

        model: Any = AutoModelForCausalLM.from_pretrained(model_folder(name), dtype=torch.float32)
        return model.to(where.device)
    return shapes.random_model(shapes.settings(name), where)


def make_model() -> LlamaForCausalLM:
    """A model of 3.4 million parameters with next-token distributions far from uniform."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        intermediate_size=688,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        initializer_range=0.06,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=1,
    )
    return LlamaForCausalLM(config)


def make_tokenizer(size: int = VOCABULARY) -> PreTrainedTokenizerFast:
    """One token per word: "7" is token 7. The special tokens "0" and "1" are whole words, not parts of "701"."""
    words = Tokenizer(models.WordLevel({str(i): i for i in range(size)}, unk_token="0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    end, pad = (AddedToken(word, single_word=True, special=True) for word in ("0", "1"))
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token=end, bos_token=end, pad_token=pad)


def make_texts(prompts: list[list[int]], tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """Texts that the tokenizer turns into these prompts."""
    texts = [" ".join(map(str, ids)) for ids in prompts]
    assert tokenizer(text=texts)["input_ids"] == prompts
    return texts


def make_prompts(count: int, length: int, vocabulary: int = VOCABULARY) -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(2, vocabulary, (count, length), generator=generator).tolist()


def reward(token_ids: list[int]) -> float:
    """Right or wrong by the first token."""
    return float(token_ids[0] % 2)


def ours(asked: Asked, clock: Clock) -> None:
    """Steps of this package: the built-in sampler and the update of `dph train`."""
    from dph.config import LossConfig, OptimConfig
    from dph.config.sampling import SamplingParams
    from dph.models.device import computed_in
    from dph.models.policy import Policy
    from dph.objective import Objective, group_advantages
    from dph.process.distributed import World
    from dph.process.memory import return_freed
    from dph.sampling.generate import HFSampler
    from dph.sampling.seeding import derive_key
    from dph.training.optim import Optimizer
    from dph.training.rows import Row
    from dph.training.update import Updater

    model = named_model(asked.model, asked.where).eval()
    policy = Policy(model, make_tokenizer(), precision=computed_in(asked.precision))
    policy.keep_less()
    policy.eos_ids = frozenset()  # no response ends early
    optim = OptimConfig(lr=1e-6, weight_decay=0.0, tokens_per_microbatch=asked.batch)
    optimizer = Optimizer(policy.trainable(), optim, STEPS)
    objective = Objective(LossConfig(eta=0.0))
    updater = Updater(policy, objective, optimizer, temperature=1.0, token_budget=asked.batch, world=World())
    sample = clock.timed(HFSampler(policy, graphs=asked.graphs).sample, "generation")
    policy.logprobs = clock.timed(policy.logprobs)  # type: ignore[method-assign]
    torch.Tensor.backward = clock.timed(torch.Tensor.backward, "backward")  # type: ignore[method-assign]
    prompts = make_prompts(asked.prompts, asked.prompt, model.config.vocab_size)
    params = SamplingParams(asked.responses, max_tokens=asked.response)
    for step in range(STEPS):
        clock.wait()
        keys = [derive_key(step, index) for index in range(asked.prompts)]
        groups = sample(prompts, params, keys)
        rewards = torch.tensor([[reward(one.token_ids) for one in group] for group in groups])
        advantages = group_advantages(rewards, torch.ones_like(rewards, dtype=torch.bool)).tolist()
        rows = [
            [
                Row(ids, one.token_ids, one.logprobs, advantage=advantage)
                for one, advantage in zip(group, values, strict=True)
            ]
            for ids, group, values in zip(prompts, groups, advantages, strict=True)
        ]
        assert sum(len(row.response_ids) for group in rows for row in group) == asked.tokens
        updater.update([rows], recompute_old=False)
        return_freed(step + 1)
        clock.answer()


def trl_trainer(
    kind: Any,
    texts: list[str],
    rewards: Any,
    callback: Any,
    folder: str,
    rows: int,
    batch: int,
    settings: dict[str, Any],
    model: Any = None,
) -> Any:
    """A trainer of TRL without a reference model, recomputation of activations, and logs.

    Args:
        kind: `GRPOTrainer` or a class made from it.
        texts: the prompts of every step.
        rows, batch: rows of an optimizer step and of a micro-batch.
        settings: fields of `GRPOConfig`, with `num_generations` and `max_completion_length`; by default fp32 on a CPU.
        model: by default the small model.
    """
    from datasets import Dataset
    from trl import GRPOConfig

    usual = {
        "output_dir": folder,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "per_device_train_batch_size": batch,
        "gradient_accumulation_steps": rows // batch,
        "beta": 0.0,
        "learning_rate": 1e-6,
        "max_steps": STEPS,
        "logging_strategy": "no",
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }
    model = make_model() if model is None else model
    return kind(
        model=model,
        reward_funcs=rewards,
        args=GRPOConfig(**usual | settings),
        train_dataset=Dataset.from_dict({"prompt": texts}),
        processing_class=make_tokenizer(model.config.vocab_size),
        callbacks=[callback],
    )


def trl(asked: Asked, clock: Clock) -> None:
    """Steps of TRL's trainer."""
    from transformers import TrainerCallback
    from trl import GRPOTrainer

    class Turns(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            clock.wait()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.answer()

    def rewards(completion_ids: list[list[int]], **_: Any) -> list[float]:
        assert sum(map(len, completion_ids)) == asked.tokens
        return [reward(ids) for ids in completion_ids]

    settings = {
        "num_generations": asked.responses,
        "max_completion_length": asked.response,
        "generation_kwargs": {"min_new_tokens": asked.response},
        "epsilon_high": 0.28,
        "use_cpu": not asked.where.on_gpu,
        "bf16": asked.precision != "fp32",
    }
    model, rows = named_model(asked.model, asked.where), asked.prompts * asked.responses
    size = model.config.vocab_size
    texts = make_texts(make_prompts(asked.prompts, asked.prompt, size), make_tokenizer(size))
    with tempfile.TemporaryDirectory() as folder:
        trainer = trl_trainer(GRPOTrainer, texts, rewards, Turns(), folder, rows, asked.batch, settings, model)
        trainer._generate = clock.timed(trainer._generate, "generation")
        trainer._get_per_token_logps_and_entropies = clock.timed(trainer._get_per_token_logps_and_entropies)
        trainer.accelerator.backward = clock.timed(trainer.accelerator.backward, "backward")
        trainer.train()


def main() -> None:
    asked = Asked(**json.loads(sys.argv[1]))
    torch.set_num_threads(asked.threads)
    {"ours": ours, "trl": trl}[asked.engine](asked, Clock(asked))


if __name__ == "__main__":
    main()
