"""Settings of every stage as frozen dataclasses; `dph.config.load` fills them from presets, files and flags."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from dph.config.components import (
    AdvantageConfig,
    AsideConfig,
    Bounds,
    CertifyConfig,
    Code,
    DynamicSamplingConfig,
    LossConfig,
    ModelConfig,
    MonitorConfig,
    NewModelConfig,
    NonNegative,
    NonNegativeInt,
    OptimConfig,
    OverlongConfig,
    Positive,
    PositiveInt,
    PositiveShare,
    Reading,
    RehearsalConfig,
    RewardConfig,
    RolloutConfig,
    SamplerConfig,
    Share,
    TaskConfig,
    Unread,
    Usual,
    VerifierConfig,
)
from dph.config.settings import Seed
from dph.errors import SettingsError
from dph.registry import read_option

OF_TRAINING = ("gradient_checkpointing", "lora_rank", "lora_alpha", "lora_targets")

Sampling = Annotated[RolloutConfig, Unread(("prompts", "old_logprobs", "importance_cap", "mask_truncated"))]
Plugins = Annotated[tuple[str, ...], Code("--plugin")]
FixedCertify = Annotated[CertifyConfig, Unread(("set", "every", "stop"))]


@dataclass(frozen=True)
class StageConfig:
    """The settings of every stage that makes a run directory."""

    out: str = ""
    """Run directory to write."""
    plugins: Plugins = field(default=(), kw_only=True)
    """Python files or modules that register tasks, verifiers, advantages, losses or divergences; --plugin adds one. In
    a file they say what it needs, and only the flag imports them."""


@dataclass(frozen=True)
class SamplingStage(StageConfig):
    """The settings of every stage that samples and judges."""

    task: TaskConfig = field(default_factory=TaskConfig, kw_only=True)
    verifier: VerifierConfig = field(default_factory=VerifierConfig, kw_only=True)
    reward: RewardConfig = field(default_factory=RewardConfig, kw_only=True)
    sampler: SamplerConfig = field(default_factory=SamplerConfig, kw_only=True)
    max_unjudged: Share = field(default=0.05, kw_only=True)
    """Share of the responses of a step or batch whose judging may fail; if more do, the run stops, its state saved."""


@dataclass(frozen=True)
class TrainConfig(SamplingStage):
    """`dph train`: reinforcement learning: DPH-RL and its baselines, by --preset."""

    method: str = "custom"
    """Name of the method, for tables."""
    seed: Seed = 0
    """Seed of everything."""
    steps: Annotated[NonNegativeInt, Usual(high=100_000)] = 100
    """Training steps; each takes `optim.minibatches` optimizer steps. With --resume a larger number extends a run."""
    prompt_set: Literal["all", "explore", "other"] = "all"
    """Prompts to sample from: the whole training set (baselines), the exploration set D_exp, or a task of its own, none
    of whose problems the presample run has: a published D_exp with a published D_pef."""
    model: ModelConfig = field(default_factory=ModelConfig)
    sampler: Annotated[SamplerConfig, Unread(("tensor_parallel",))] = field(default_factory=SamplerConfig, kw_only=True)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    dynamic_sampling: DynamicSamplingConfig = field(default_factory=DynamicSamplingConfig)
    overlong: OverlongConfig = field(default_factory=OverlongConfig)
    advantage: AdvantageConfig = field(default_factory=AdvantageConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    rehearsal: RehearsalConfig = field(default_factory=RehearsalConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    monitor: MonitorConfig = field(default_factory=MonitorConfig)
    certify: CertifyConfig = field(default_factory=CertifyConfig)
    checkpoint_every: PositiveInt = 20
    """Steps between checkpoints; the last step is always saved."""
    keep_checkpoints: NonNegativeInt = 2
    """How many of the newest checkpoints are kept."""
    keep_best: str = "eval/greedy"
    """The best checkpoint by this metric of the monitor is kept too (see `keep_best_within`); empty keeps none."""
    keep_best_within: NonNegative = 0.02
    """Steps whose value is at most this much below the highest are equally good; of these, the one with the highest
    pass@k is the best, at the largest k that the monitor estimates from 2k samples."""
    trained_share: PositiveShare = 1.0
    """Share of the trained weights in the final model, which is averaged with the weights that training began with
    (WiSE-FT). Checkpoints hold the trained weights; `dph interpolate` makes other shares of a finished run."""
    show_samples: NonNegativeInt = 0
    """Responses of each monitored step to print with their verdicts: rollouts, or the monitor's before step 1."""
    tracker: Literal["none", "wandb", "trackio"] = "none"
    """Send metrics to an experiment tracker too, if it is installed; TensorBoard files are always written."""

    @property
    def stored_rows(self) -> int:
        """Stored responses per step: `rehearsal.rows`, or one for eight rollouts if that is -1."""
        rows = self.rehearsal.rows
        return rows if rows >= 0 else -(-self.rollout.prompts * self.rollout.n // 8)

    @property
    def advantage_options(self) -> dict[str, str]:
        """Settings of the advantage. The β of MARA is the penalty's, `loss.kl_coef`; SettingsError for another one."""
        options, penalty = self.advantage.options, self.loss.kl_coef
        if self.advantage.name != "mara" or not penalty:
            return options
        stated = options.get("beta")
        if stated is not None and read_option(stated, float, "advantage.options beta") != penalty:
            both = f"advantage.options beta is {stated} and loss.kl_coef is {penalty:g}"
            raise SettingsError(f"{both}, but MARA has one β for both; leave the first out, or set both")
        return {"beta": repr(penalty)} | options


@dataclass(frozen=True)
class PartitionRule:
    """Which prompts count as near-perfect, and what is stored for them (paper §4.1)."""

    threshold: PositiveInt = 6
    """A prompt is near-perfect if at least this many of its responses are correct."""
    refine: Literal["move", "discard", "keep"] = "move"
    """If one further response is wrong, a near-perfect prompt moves to the exploration set, is discarded, or keeps one
    of its first correct responses."""
    stored: Annotated[PositiveInt, Usual(high=1024)] = 1
    """Most correct responses stored for each near-perfect prompt: the refinement draw first, repeats included."""
    distinct: bool = False
    """Of the stored responses to a prompt, keep each different one once: a rare one weighs as much as a common one."""
    drop_unsolved: bool = False
    """Drop prompts without any correct response (the paper does so for mathematics)."""


@dataclass(frozen=True)
class PresampleConfig(PartitionRule, SamplingStage):
    """`dph presample`: split prompts by what the reference policy masters; store its correct responses."""

    seed: Seed = 0
    """Seed of sampling."""
    model: Annotated[ModelConfig, Unread(OF_TRAINING)] = field(default_factory=ModelConfig)
    rollout: Sampling = field(default_factory=lambda: RolloutConfig(n=8))
    tokens_per_microbatch: NonNegativeInt = 16384
    """Tokens, padding included, that pass through the model at once when log-probabilities are computed; lower it if
    memory runs out. 0 takes as many as training would."""
    certify: AsideConfig = field(default_factory=AsideConfig)


@dataclass(frozen=True)
class EvalConfig(SamplingStage):
    """`dph eval`: greedy accuracy, pass@k and diversity on held-out problems."""

    label: str = ""
    """Name in tables; taken from the run that made the model when empty."""
    seed: Seed = 12345
    """Seed of sampling."""
    model: Annotated[ModelConfig, Unread(("shared_prefix", *OF_TRAINING))] = field(default_factory=ModelConfig)
    task: TaskConfig = field(default_factory=lambda: TaskConfig(split="test"), kw_only=True)
    rollout: Sampling = field(default_factory=lambda: RolloutConfig(n=32))
    greedy: bool = True
    """Also decode greedily."""


@dataclass(frozen=True)
class CertifyStageConfig(EvalConfig, Reading):
    """`dph certify`: bound, with confidence, what checkpoints lost of what their base model solved."""

    base: str = ""
    """Samples of the base model: a run of `dph presample --certify`, `dph eval` or `dph verify`, a file or folder that
    `dph passk` reads, or a model."""
    checkpoints: tuple[str, ...] = ()
    """The same of the checkpoints, in the order of training; with a presample run, models."""
    out: str = ""
    """Folder for the results (certificates.json), and for evaluations of models; if empty, they are only printed."""
    certify: FixedCertify = field(default_factory=CertifyConfig)
    choose: NonNegativeInt = 0
    """Samples of the base model of each problem that choose the problems, by a hash of their numbers; the others
    measure it, and the checkpoints' of the same numbers are left out. 0: all problems count, and samples that chose
    them must not be among these."""
    mastered: PositiveShare = 0.75
    """With `choose`: share of these samples that must be correct."""


@dataclass(frozen=True)
class VerifyConfig(StageConfig):
    """`dph verify`: scores of a file of predictions by the official rules, with every verdict."""

    predictions: str = ""
    """File to judge: Spider's text with one SQL query per line, BIRD's JSON, or rows (JSONL, Parquet) with ids and
    responses."""
    out: str = ""
    """Run directory to write, with every verdict; if empty, the scores are only printed."""
    column: str = ""
    """Column that holds the predictions, if several could."""
    bare: bool = False
    """The predictions are bare SQL or bare answers, not responses that contain them."""
    partial: bool = False
    """Leave out problems without a prediction; otherwise they count as wrong."""
    task: Annotated[TaskConfig, Unread(("shuffle", "requires"))] = field(
        default_factory=lambda: TaskConfig(name="gold", split="gold")
    )
    verifier: Annotated[VerifierConfig, Unread(("skip_weak",))] = field(
        default_factory=lambda: VerifierConfig(workers=2, timeout=30.0)
    )


@dataclass(frozen=True)
class SftConfig(StageConfig):
    """`dph sft`: supervised training on prompt/response rows."""

    out: str = ""
    """Run directory to write; the model is in its folder `model`."""
    data: str = ""
    """File of rows (JSONL, CSV, Parquet) with columns prompt and response; with --task, as in the other stages, the
    place of the task's data. If empty, the task's own demonstrations are used: of your own problems, their golds."""
    seed: Seed = 0
    """Seed of weights and order."""
    steps: Annotated[NonNegativeInt, Usual(high=10_000_000)] = 450
    """Optimizer steps. With --resume a larger number extends a run."""
    batch: Annotated[PositiveInt, Usual(high=65536)] = 48
    """Rows per step, over all processes."""
    checkpoint_every: PositiveInt = 200
    """Steps between checkpoints; the last step is always saved."""
    demonstrations: PositiveInt = 20000
    """Rows drawn when the task makes its own demonstrations."""
    model: Annotated[ModelConfig, Unread(("shared_prefix",))] = field(default_factory=ModelConfig)
    new: NewModelConfig = field(default_factory=NewModelConfig)
    task: Annotated[TaskConfig, Unread(("split", "limit", "shuffle", "requires"))] = field(default_factory=TaskConfig)
    optim: Annotated[OptimConfig, Unread(("minibatches",))] = field(
        default_factory=lambda: OptimConfig(
            lr=2.5e-3, schedule="cosine", warmup_steps=40, beta2=0.95, tokens_per_microbatch=65536
        )
    )


@dataclass(frozen=True)
class ClusterConfig:
    """The GPUs that verl trains on, and how the model is spread over them; 0 and "auto" choose by estimated size."""

    gpus: PositiveInt = 8
    """GPUs in total."""
    per_node: PositiveInt = 8
    """GPUs of one node."""
    memory: Positive = 80.0
    """Memory of one GPU, in GB."""
    tensor_parallel: NonNegativeInt = 0
    """GPUs that one copy of vLLM spans; 0 chooses."""
    sequence_parallel: NonNegativeInt = 0
    """GPUs that share each sequence in training; 0 chooses."""
    offload: Literal["auto", "none", "between", "cpu"] = "auto"
    """Place of the training state: none, on GPUs; between, in host memory during sampling; cpu, in host memory."""

    @property
    def nodes(self) -> int:
        return -(-self.gpus // self.per_node)


@dataclass(frozen=True)
class PartitionConfig(PartitionRule):
    """Pre-sampling, as in `dph presample`."""

    n: PositiveInt = 8
    """Responses drawn for each prompt."""


@dataclass(frozen=True)
class VerlConfig(TrainConfig):
    """`dph verl`: write the launch of a training run on a cluster, through verl."""

    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    partition: PartitionConfig = field(default_factory=PartitionConfig)
    validation: Sampling = field(default_factory=lambda: RolloutConfig(n=32))
    """Sampling of validation during training and of the evaluation afterwards."""
    start: bool = False
    """Also run the launch on this machine, one step after the other (one node only)."""


@dataclass(frozen=True)
class CheckConfig(TrainConfig):
    """`dph check`: look at data, golds, judge and one training step before anything is trained; writes nothing."""

    task: TaskConfig = field(default_factory=lambda: TaskConfig(name="records"))
    test: str = "test"
    """A split on which nothing is trained, whose gold answers are run too; empty: none."""
    step: bool = True
    """Also load the model and measure one step of training; without rehearsal.path, sampled responses stand in."""
    stored: PositiveInt = 1
    """How many responses to a prompt stand in together; as `dph presample` stores them."""


@dataclass(frozen=True)
class InitConfig:
    """`dph init`: make problems and settings of your own questions: dph init sql DATABASE FILE, dph init maths FILE."""

    kind: str = ""
    """sql (questions with gold queries on one SQLite database) or maths (problems with their answers)."""
    files: tuple[str, ...] = ()
    """The database, for SQL, and the file of questions: CSV, JSONL, JSON or Parquet."""
    columns: tuple[str, ...] = ()
    """prompt=COLUMN, answer=COLUMN and id=COLUMN, if the columns do not have usual names."""
    model: str = ""
    """Model of the settings; empty: Qwen/Qwen2.5-0.5B-Instruct."""
    small: bool = False
    """Settings that end in minutes on a laptop, with a small model."""
    test_share: Share = 0.2
    """Share of the problems that are kept for tests, chosen by their ids."""
    out: str = ""
    """New folder for problems and settings, which can be moved."""


@dataclass(frozen=True)
class InterpolateConfig:
    """`dph interpolate`: a model between the one that a run began with and the one that it trained."""

    run: str = ""
    """Run directory of `dph train` or `dph sft`, a checkpoint in it, or the folder of any trained model."""
    weight: Annotated[float, Bounds(-1, "between -1 and 3", 3)] = 0.5
    """Share of the trained weights; 0 is the initial model, 1 the trained one, and more goes beyond it."""
    initial: str = ""
    """Model to interpolate from; empty: the one that the run began with."""
    out: str = ""
    """New folder for the model."""
    certify: Annotated[CertifyConfig, Unread(("every", "stop"))] = field(default_factory=CertifyConfig)
    """With a set, `weight` is the furthest share that is certified."""
    shares: PositiveInt = 10
    """With a certification set: shares 1/shares, 2/shares, … up to 1 are tested, until one fails."""
    trust_remote_code: Annotated[bool, Code("--trust-remote-code")] = False
    """Allow a hub model to run code of its own."""


@dataclass(frozen=True)
class ReportConfig:
    """`dph report`: table, figures and a page from several runs."""

    runs: tuple[str, ...] = ()
    """Run directories of `dph eval` or `dph verify` (and, for curves, of `dph train`, or launches of `dph verl`)."""
    out: str = ""
    """Directory to write."""
    base: str = "base"
    """Label of the reference policy's evaluation, for keep and exploration rates."""
    title: str = "DPH-RL report"
    """Heading of the page."""


@dataclass(frozen=True)
class PasskConfig(Reading):
    """`dph passk`: pass@k of judged samples of any harness with intervals, and which problems a training lost."""

    files: tuple[str, ...] = ()
    """Judged samples, as files or folders: BEFORE, then each AFTER."""
    k: tuple[int, ...] = ()
    """The k of pass@k and maj@k; empty: 1, 2, 4 … and the number of samples."""
    fail_if_lost: Share = 1.0
    """Exit status 3 if more than this share of the problems that BEFORE solves were lost."""
    json: bool = False
    """Print everything as JSON."""
    html: str = ""
    """Page to write, self-contained."""


@dataclass(frozen=True)
class AuditConfig(EvalConfig):
    """`dph audit`: what training changed: samples both models on the same problems and compares them as dph passk
    does."""

    greedy: bool = False
    after: str = ""
    """The trained model, its run or its folder; `model.path` names the one before."""
    average: Share = 0.0
    """Also audit the average of both models with this share of the trained weights; 0: none."""
    certify: FixedCertify = field(default_factory=CertifyConfig)


@dataclass(frozen=True)
class DemoConfig:
    """`dph demo`: base model, GRPO, DPH-JS and a report on Countdown, in minutes, without network or GPU."""

    out: str = "runs/demo"
    """Directory for all runs of the demo."""
    world: str = "countdown"
    """Preset of the task, which must have demonstrations: the embedded world, sums that reach a target, or a file such
    as experiments/minisql/minisql.toml."""
    seed: Seed = 0
    """Seed of everything but the world."""
    methods: tuple[str, ...] = ("grpo", "dph_js")
    """Method presets to train and compare: names, or paths of your own TOML files."""
    smoke: bool = False
    """A few steps only, to see that everything works; its numbers mean nothing."""
    jobs: PositiveInt = 2
    """Runs side by side, one thread each."""
    plugins: Plugins = ()
    """Python files or modules that the world or a method needs, for every run; --plugin adds one."""


@dataclass(frozen=True)
class DoctorConfig:
    """`dph doctor`: check the machine and the installation, and say how to fix what does not work."""

    out: str = "runs"
    """Directory for runs, whose write access and free disk space are checked."""
    device: str = "auto"
    """Device of the smoke run, as in `model.device`."""
    smoke: bool = True
    """Also run every stage at the smallest scale."""
    json: bool = False
    """Print the findings as JSON."""


STAGES: dict[str, type[Any]] = {
    "demo": DemoConfig,
    "init": InitConfig,
    "check": CheckConfig,
    "sft": SftConfig,
    "presample": PresampleConfig,
    "train": TrainConfig,
    "eval": EvalConfig,
    "verify": VerifyConfig,
    "certify": CertifyStageConfig,
    "interpolate": InterpolateConfig,
    "passk": PasskConfig,
    "audit": AuditConfig,
    "report": ReportConfig,
    "verl": VerlConfig,
    "doctor": DoctorConfig,
}
"""Settings class of each command, in the order in which `dph --help` lists them."""
