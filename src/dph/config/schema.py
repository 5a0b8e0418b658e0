"""Settings of every stage as frozen dataclasses; `dph.config.load` fills them from presets, files and flags."""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The policy's model."""

    path: str = ""
    """Hub name or local directory of a causal language model."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16 runs matrix products in bfloat16 by autocast; weights and optimizer state stay in fp32."""
    device: str = "auto"
    """"auto" takes a GPU where there is one; otherwise any torch device name."""
    attention: str = "sdpa"
    """Attention implementation as transformers names it."""
    shared_prefix: bool = True
    """Compute what several responses have in common, their prompt above all, once in training; same results to fp32
    rounding. Models that attend in other ways do without, and say so."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    lora_rank: int = 0
    """Train low-rank adapters of this rank (needs the extra `peft`); 0 trains all weights."""
    lora_alpha: int = 32
    """Scale of the adapters."""
    lora_targets: str = "all-linear"
    """Module names for adapters, separated by commas, or "all-linear"."""
    trust_remote_code: bool = False
    """Allow a hub model to run code of its own."""


@dataclass(frozen=True, slots=True)
class TaskConfig:
    """Where problems come from."""

    name: str = "minisql"
    """Task name: minisql, records (your own JSONL/Parquet), spider, bird, …"""
    split: str = "train"
    """Split of the task, or several separated by commas."""
    limit: int = 0
    """Use only the first so many problems of each split; 0 uses all."""
    options: dict[str, str] = field(default_factory=dict)
    """Options of the task, as key value pairs (for `records`: path data.jsonl)."""


@dataclass(frozen=True, slots=True)
class VerifierConfig:
    """How responses are judged."""

    comparator: str = "strict"
    """Rule for comparing SQL results: strict, bird, spider, paper or paper_bird."""
    keep_distinct: bool = False
    """Rule spider: leave DISTINCT in both queries."""
    columns: Literal["fixed", "free"] = "fixed"
    """Rule strict: columns in the gold's order, or in any."""
    tolerance: float = 1e-9
    """Rule strict: relative difference up to which two numbers are equal, if one is not an integer."""
    unterminated: bool = False
    """Accept a last SQL block that was never closed, as of a response that was cut off."""
    reward: str = "binary"
    """Reward scheme of SQL: binary (1/0), arctic (1 correct, 0.1 executes, 0 otherwise), paper or soft_f1."""
    policy: str = "math_verify"
    """How mathematical answers are found and compared: math_verify, qwen or paper."""
    fallback: str = ""
    """What answers in mathematics without a box: none, phrase (after "answer is", or ####), last_number or library
    (whatever math-verify finds); empty: as the policy does."""
    workers: int = 1
    """Worker processes that execute queries and grade mathematics."""
    timeout: float = 5.0
    """Seconds that one response may take to be judged."""


@dataclass(frozen=True, slots=True)
class RewardConfig:
    """A Python function of your own that rewards responses, in place of the problems' verifiers."""

    function: str = ""
    """FILE.py:NAME of a function (prompt, completion, **columns) -> float | None; empty: verifiers judge."""
    correct_from: float = 1.0
    """Reward from which a response counts as correct: for the partition, dynamic sampling and pass@k."""
    in_process: bool = False
    """Call the function in this process, without limits, instead of in `verifier.workers` processes that are stopped
    after `verifier.timeout` seconds."""


@dataclass(frozen=True, slots=True)
class SamplerConfig:
    """How responses are generated."""

    engine: str = "hf"
    """hf (built in), or vllm (extra)."""
    rows: int = 256
    """Responses decoded together at most; lower it when memory runs out."""
    tensor_parallel: int = 1
    """GPUs that one copy of the model spans (vllm, for `dph presample` and `dph eval`)."""
    memory: float = 0.9
    """Share of a GPU's memory that vLLM takes for weights and cache; beside training leave the trainer its part."""


@dataclass(frozen=True, slots=True)
class RolloutConfig:
    """What is generated for each step."""

    prompts: int = 128
    """Prompts per step, over all processes."""
    n: int = 16
    """Responses per prompt (the group)."""
    temperature: float = 1.0
    """Sampling temperature; log-probabilities of training are taken at the same temperature."""
    top_p: float = 1.0
    """Nucleus sampling: keep the smallest set of tokens with this much probability."""
    max_tokens: int = 1024
    """Longest response, in tokens."""
    max_prompt_tokens: int = 4096
    """Problems with a longer prompt are excluded, and counted."""
    old_logprobs: Literal["auto", "sampler", "recompute"] = "auto"
    """Log-probabilities of the sampling policy: the sampler's own, or recomputed by the trainer's forward pass; auto
    takes the sampler's where they are exact (the built-in sampler in fp32)."""
    importance_cap: float = 2.0
    """Where log-probabilities are recomputed, a token counts π_trainer/π_sampler times in the loss, at most this
    (truncated importance sampling); 0 counts all tokens alike."""
    mask_truncated: bool = False
    """Leave responses cut off at max_tokens out of the loss."""


@dataclass(frozen=True, slots=True)
class OverlongConfig:
    """DAPO's soft penalty for long responses."""

    buffer: int = 0
    """Length of the penalty zone before max_tokens; 0 switches it off."""
    penalty: float = 1.0
    """Penalty at and beyond max_tokens; it grows linearly from 0 over the zone."""


@dataclass(frozen=True, slots=True)
class DynamicSamplingConfig:
    """DAPO's refill: groups that are all correct or all wrong are dropped and replaced."""

    enabled: bool = False
    """Drop constant groups and draw further prompts in their place."""
    max_attempts: int = 4
    """Rounds of drawing at most, the first included; after that the step goes on with what it has."""


@dataclass(frozen=True, slots=True)
class RehearsalTerm:
    """The rehearsal term of the objective, on D_pef (eq. 6, App. E). One declaration for every engine."""

    divergence: str = "js"
    """Rehearsal divergence: forward_kl, forward_kl_raw, reverse_kl, js, alpha, or one that a plug-in registered."""
    alpha: float = 0.5
    """α of the alpha divergence, 0 < α < 1."""
    eta: float = 0.2
    """η, weight of the rehearsal term."""
    reduction: Literal["pooled", "per_set"] = "pooled"
    """pooled: both sets over all tokens of the mini-batch (the paper); per_set: each set over its own tokens."""
    estimator: Literal["generator", "definition"] = "generator"
    """generator: f(u) on stored responses; definition: JS by its definition (App. E), which needs a reference model."""
    official: bool = False
    """The authors' code where it departs from the paper (clamped forward KL; k3 estimate in the definition)."""
    js_scale: float = 1.0
    """Factor on JS by its definition; 2 matches the authors' code, which leaves the ½ out."""


@dataclass(frozen=True, slots=True)
class LossConfig(RehearsalTerm):
    """The objective (eqs. 5–7, App. D and E)."""

    policy: str = "ppo_clip"
    """Policy loss on rollouts: ppo_clip, or one that a plug-in registered."""
    policy_options: dict[str, str] = field(default_factory=dict)
    """Settings of a policy loss besides the clips, as key value pairs."""
    clip_low: float = 0.2
    """ε_low of PPO-clip."""
    clip_high: float = 0.28
    """ε_high of PPO-clip."""
    dual_clip: float = 0.0
    """Lower bound c > 1 on the objective for negative advantages (dual clip); 0 switches it off."""
    aggregation: Literal["token", "sequence", "dr_grpo"] = "token"
    """How tokens are averaged: over all; per sequence, then over sequences; or over a constant length."""
    dr_grpo_length: int = 1024
    """The constant length of dr_grpo aggregation, in tokens."""
    kl: Literal["none", "k1", "k2", "k3", "k3_is"] = "none"
    """KL penalty on rollouts (baselines); needs a reference model."""
    kl_coef: float = 0.0
    """β of the KL penalty."""
    entropy_coef: float = 0.0
    """Weight of an entropy bonus on rollouts."""


@dataclass(frozen=True, slots=True)
class AdvantageConfig:
    """How the rewards of a group become advantages."""

    name: str = "group"
    """Advantage: group (GRPO), or one that a plug-in registered."""
    options: dict[str, str] = field(default_factory=dict)
    """Settings of the advantage, as key value pairs."""


@dataclass(frozen=True, slots=True)
class OptimConfig:
    """The optimizer: AdamW."""

    lr: float = 1e-6
    """Peak learning rate."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """What the learning rate does after warm-up."""
    warmup_steps: int = 0
    """Optimizer steps of linear warm-up."""
    beta1: float = 0.9
    """Decay of the first moment."""
    beta2: float = 0.999
    """Decay of the second moment."""
    weight_decay: float = 0.01
    """Decoupled weight decay."""
    grad_clip: float = 1.0
    """Largest gradient norm; 0 switches clipping off."""
    minibatches: int = 2
    """Optimizer steps per step's rollouts."""
    tokens_per_microbatch: int = 16384
    """Tokens, padding included, that pass through the model at once; lower it when memory runs out."""
    max_skipped: int = 10
    """Updates in a row that may be left out because the gradient is not finite; then the run stops, its state saved.
    0 never stops."""


@dataclass(frozen=True, slots=True)
class RehearsalConfig:
    """The near-perfect set D_pef and the stored responses of the reference policy."""

    path: str = ""
    """Run directory of `dph presample`."""
    rows: int = 0
    """Stored responses per step, over all processes; 0 trains without rehearsal."""
    check_rows: int = 4
    """Stored rows whose log-probabilities are recomputed at the start."""


@dataclass(frozen=True, slots=True)
class MonitorConfig:
    """Evaluation during training."""

    every: int = 0
    """Evaluate after every so many steps (and before the first); 0 never."""
    split: str = "dev"
    """Split of the training task that is evaluated."""
    limit: int = 64
    """Problems used, from the front of the split."""
    n: int = 16
    """Samples per problem."""


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """`dph train`: reinforcement learning from a presampled partition."""

    out: str = ""
    """Run directory to write."""
    method: str = "custom"
    """Name of the method, for tables."""
    seed: int = 0
    """Seed of everything."""
    steps: int = 100
    """Training steps; each takes `optim.minibatches` optimizer steps."""
    prompts: Literal["all", "explore"] = "all"
    """Which prompts are sampled: the whole training set (baselines) or the exploration set D_exp."""
    model: ModelConfig = field(default_factory=ModelConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    verifier: VerifierConfig = field(default_factory=VerifierConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    dynamic_sampling: DynamicSamplingConfig = field(default_factory=DynamicSamplingConfig)
    overlong: OverlongConfig = field(default_factory=OverlongConfig)
    advantage: AdvantageConfig = field(default_factory=AdvantageConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    rehearsal: RehearsalConfig = field(default_factory=RehearsalConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    monitor: MonitorConfig = field(default_factory=MonitorConfig)
    checkpoint_every: int = 20
    """Steps between checkpoints; the last step is always saved."""
    keep_checkpoints: int = 2
    """Newest checkpoints that are kept."""
    keep_best: str = "eval/greedy"
    """The checkpoint with the highest value of this metric of the monitor is kept too; empty keeps none."""
    max_unjudged: float = 0.05
    """Share of a step's responses whose judging may fail; with more the run stops, its state saved."""
    tracker: Literal["none", "wandb", "trackio"] = "none"
    """Send metrics to an experiment tracker too, if it is installed; TensorBoard files are always written."""


@dataclass(frozen=True, slots=True)
class PresampleConfig:
    """`dph presample`: split the prompts by what the reference policy masters, and store its correct responses."""

    out: str = ""
    """Run directory to write."""
    seed: int = 0
    """Seed of sampling."""
    model: ModelConfig = field(default_factory=ModelConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    verifier: VerifierConfig = field(default_factory=VerifierConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    rollout: RolloutConfig = field(default_factory=lambda: RolloutConfig(n=8))
    threshold: int = 6
    """Correct responses of `rollout.n` from which a prompt counts as near-perfect."""
    refine: Literal["move", "discard", "keep"] = "move"
    """What happens to a near-perfect prompt whose further draw is wrong: it moves to the exploration set, is discarded,
    or keeps one of its first correct responses."""
    stored: int = 1
    """Correct responses stored for each near-perfect prompt (the refinement draw first)."""
    drop_unsolved: bool = False
    """Drop prompts without any correct response (the paper does so for mathematics)."""
    check: str = ""
    """Judge the stored responses of this finished presample run again, with the run's own settings; writes nothing."""
    check_logprobs: bool = False
    """With check: also load the model and recompute every stored log-probability."""


@dataclass(frozen=True, slots=True)
class EvalConfig:
    """`dph eval`: greedy accuracy, pass@k and diversity on held-out problems."""

    out: str = ""
    """Run directory to write."""
    label: str = ""
    """Name in tables; taken from the run that made the model when empty."""
    seed: int = 12345
    """Seed of sampling."""
    model: ModelConfig = field(default_factory=ModelConfig)
    task: TaskConfig = field(default_factory=lambda: TaskConfig(split="test"))
    verifier: VerifierConfig = field(default_factory=VerifierConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    rollout: RolloutConfig = field(default_factory=lambda: RolloutConfig(n=32))
    greedy: bool = True
    """Also decode greedily."""


@dataclass(frozen=True, slots=True)
class VerifyConfig:
    """`dph verify`: scores of a file of predictions."""

    predictions: str = ""
    """The file: Spider's one SQL a line, BIRD's JSON, or rows (JSONL, Parquet) with ids and responses."""
    out: str = ""
    """Run directory to write, with every verdict; empty only prints."""
    column: str = ""
    """Column of rows that holds the predictions, where several could."""
    bare: bool = False
    """The predictions are SQL or answers themselves, not responses in which these are to be found."""
    partial: bool = False
    """Problems without a prediction are left out; otherwise they count as wrong."""
    task: TaskConfig = field(default_factory=lambda: TaskConfig(name="gold", split="gold"))
    verifier: VerifierConfig = field(default_factory=lambda: VerifierConfig(workers=2, timeout=30.0))


@dataclass(frozen=True, slots=True)
class NewModelConfig:
    """A small Llama-type model made from scratch (used when `model.path` is empty)."""

    tokenizer: Literal["word", "bpe"] = "bpe"
    """word: lossless word-level vocabulary of the training texts; bpe: byte-level BPE trained on them."""
    vocab_size: int = 2048
    """Size of a BPE vocabulary."""
    hidden: int = 160
    """Width."""
    layers: int = 3
    """Number of layers."""
    heads: int = 5
    """Attention heads."""
    kv_heads: int = 0
    """Key/value heads; 0 takes as many as attention heads."""
    intermediate: int = 448
    """Width of the feed-forward layers."""
    context: int = 512
    """Longest sequence, in tokens."""


@dataclass(frozen=True, slots=True)
class SftConfig:
    """`dph sft`: supervised training on prompt/response rows."""

    out: str = ""
    """Run directory to write; the model is in its folder `model`."""
    data: str = ""
    """JSONL or Parquet file with columns prompt and response; empty takes the task's own demonstrations."""
    seed: int = 0
    """Seed of weights and order."""
    steps: int = 450
    """Optimizer steps."""
    batch: int = 48
    """Rows per step, over all processes."""
    checkpoint_every: int = 200
    """Steps between checkpoints."""
    demonstrations: int = 20000
    """Rows drawn when the task makes its own demonstrations."""
    model: ModelConfig = field(default_factory=ModelConfig)
    new: NewModelConfig = field(default_factory=NewModelConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    optim: OptimConfig = field(
        default_factory=lambda: OptimConfig(
            lr=2.5e-3, schedule="cosine", warmup_steps=40, beta2=0.95, minibatches=1, tokens_per_microbatch=65536
        )
    )


@dataclass(frozen=True, slots=True)
class ReportConfig:
    """`dph report`: one table, figures and a page from one or more runs."""

    runs: tuple[str, ...] = ()
    """Run directories of `dph eval` (and, for curves, of `dph train`)."""
    out: str = ""
    """Directory to write."""
    base: str = "base"
    """Label of the reference policy's evaluation, for keep and exploration rates."""
    title: str = "DPH-RL report"
    """Heading of the page."""


@dataclass(frozen=True, slots=True)
class DemoConfig:
    """`dph demo`: the whole story in the embedded world, in minutes, without network or GPU."""

    out: str = "runs/demo"
    """Directory for all runs of the demo."""
    seed: int = 0
    """Seed of everything but the world."""
    methods: tuple[str, ...] = ("grpo", "dph_js")
    """Method presets that are trained and compared."""
    smoke: bool = False
    """A few steps only, to see that everything works; its numbers mean nothing."""
    jobs: int = 2
    """Runs side by side, one thread each."""


@dataclass(frozen=True, slots=True)
class DoctorConfig:
    """`dph doctor`: whether this machine can do the work, and what to do where it cannot."""

    out: str = "runs"
    """Directory that runs will be written to: write access and free disk are checked there."""
    device: str = "auto"
    """Device of the smoke run, as for `model.device`."""
    smoke: bool = True
    """Also run every stage at the smallest scale."""
    json: bool = False
    """Print the findings as JSON."""


@dataclass(frozen=True, slots=True)
class ReproduceConfig:
    """`dph reproduce`: the paper's experiments with equal budgets, several seeds, tables and figures."""

    scale: str = "tiny"
    """Grid of experiments: tiny (the embedded world), small (real Spider, a model made from scratch), or full (the
    paper's models and data: launches for a cluster are written, nothing is run)."""
    methods: tuple[str, ...] = ("core",)
    """Methods by name or tier: core, wide (the rest of the paper), more (beyond it), all; for full recipes, too."""
    seeds: tuple[int, ...] = ()
    """Training seeds of every method; empty: those of the grid."""
    out: str = ""
    """Directory of all runs; empty: runs/reproduce-SCALE."""
    data: str = ""
    """Folder of the data set (scale small: Spider's; scale full: a folder with one for each data set)."""
    smoke: bool = False
    """A few steps only, to see that everything works; its numbers mean nothing."""
    report_only: bool = False
    """Run nothing: tables and figures of what is finished."""
    jobs: int = 2
    """Runs side by side, one thread each."""
