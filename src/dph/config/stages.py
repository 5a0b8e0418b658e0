"""Settings of every stage as frozen dataclasses; `dph.config.load` fills them from presets, files and flags."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from dph.config.components import (
    EvaluatedModelConfig,
    JudgeConfig,
    NewModelConfig,
    Reading,
    ReferenceModelConfig,
    SamplerConfig,
    SamplingConfig,
    SupervisedModelConfig,
    TaskConfig,
    TaskSource,
    TaskSplit,
)
from dph.config.learning import AdamWConfig, AsideConfig, CertificateConfig, CertifySetConfig
from dph.config.settings import (
    Bounds,
    Code,
    NonNegativeInt,
    Positive,
    PositiveInt,
    PositiveShare,
    Seed,
    Settings,
    Share,
    Usual,
)
from dph.config.train import Plugins, SamplingStage, StageConfig, TrainConfig
from dph.errors import SettingsError

Refinement = Literal["move", "discard", "keep"]
"""What happens to a mastered prompt whose further draw is wrong: it is explored, dropped, or stays in D_pef."""


@dataclass(frozen=True)
class PartitionRule(Settings):
    """Which prompts count as near-perfect, and what is stored for them (paper §4.1)."""

    threshold: PositiveInt = 6
    """A prompt is near-perfect if at least this many of its responses are correct."""
    refine: Refinement = "move"
    """If one further response is wrong, a near-perfect prompt moves to the exploration set, is discarded, or keeps one
    of its first correct responses."""
    stored: Annotated[PositiveInt, Usual(high=1024)] = 1
    """Most correct responses stored for each near-perfect prompt: the refinement draw first, repeats included."""
    distinct: bool = False
    """Of the stored responses to a prompt, keep each different one once: a rare one weighs as much as a common one."""
    drop_unsolved: bool = False
    """Drop prompts without any correct response (the paper does so for mathematics)."""
    for_k: Annotated[NonNegativeInt, Usual(high=1024)] = 0
    """Store responses to the prompts that can lose pass@k, for this k, in place of the near-perfect ones: those with
    at least 1/k and less than 4/k of their responses correct; 0 stores those of near-perfect prompts."""


@dataclass(frozen=True)
class PresampleConfig(PartitionRule, SamplingStage):
    """`dph presample`: split prompts by what the reference policy masters; store its correct responses."""

    seed: Seed = 0
    """Seed of sampling."""
    model: ReferenceModelConfig = field(default_factory=ReferenceModelConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig, kw_only=True)
    rollout: SamplingConfig = field(default_factory=lambda: SamplingConfig(n=8))
    tokens_per_microbatch: NonNegativeInt = 16384
    """Tokens, padding included, that pass through the model at once when log-probabilities are computed; lower it if
    memory runs out. 0 takes as many as training would."""
    certify: AsideConfig = field(default_factory=AsideConfig)

    def check(self) -> None:
        """Raises SettingsError for a threshold or a `for_k` that no prompt could meet, and for responses that are not
        sampled."""
        self.rollout.check_sampled()
        if self.threshold > self.rollout.n:
            raise SettingsError(f"threshold {self.threshold} must lie between 1 and rollout.n = {self.rollout.n}")
        if self.for_k >= 4 * self.rollout.n:
            raise SettingsError(
                f"for_k {self.for_k} asks for prompts with less than 4 of {self.for_k} responses correct, but one of "
                f"rollout.n = {self.rollout.n} is not less; set --rollout.n to {self.for_k} or more, or lower for_k"
            )
        if self.for_k and 4 * self.threshold < self.rollout.n:
            share, usual = 100 * self.threshold / self.rollout.n, -(-3 * self.rollout.n // 4)
            raise SettingsError(
                f"threshold {self.threshold} of rollout.n = {self.rollout.n} would call prompts near-perfect, and not "
                f"explore them, from {share:.0f} % of correct responses on; set --threshold {usual} (6 of 8)"
            )


@dataclass(frozen=True)
class EvalConfig(SamplingStage):
    """`dph eval`: greedy accuracy, pass@k and diversity on held-out problems."""

    label: str = ""
    """Name in tables; taken from the run that made the model when empty."""
    seed: Seed = 12345
    """Seed of sampling."""
    model: EvaluatedModelConfig = field(default_factory=EvaluatedModelConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig, kw_only=True)
    task: TaskConfig = field(default_factory=lambda: TaskConfig(split="test"), kw_only=True)
    rollout: SamplingConfig = field(default_factory=lambda: SamplingConfig(n=32))
    greedy: bool = True
    """Also decode greedily."""

    def check(self) -> None:
        """Raises SettingsError for several greedy responses to a prompt."""
        self.rollout.check_repeats()


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
    certify: CertificateConfig = field(default_factory=CertificateConfig)
    choose: NonNegativeInt = 0
    """Samples of the base model of each problem that choose the problems, by a hash of their numbers; the others
    measure it, and the checkpoints' of the same numbers are left out. 0: all problems count, and samples that chose
    them must not be among these."""
    mastered: PositiveShare = 0.75
    """With `choose`: share of these samples that must be correct."""
    for_k: Annotated[NonNegativeInt, Usual(high=1024)] = 0
    """With `choose`: certify pass@k of the problems that can lose it, for this k, in place of mastered ones: those with
    at least 1/k and less than 4/k of these samples correct; 0: none."""

    def check(self) -> None:
        """Raises SettingsError for a `for_k` that no problem could meet, or that has no part in the certificate.
        Accepts settings of sampling that samples from files do not need; evaluations of models check theirs."""
        if not self.for_k:
            return
        if not self.choose:
            raise SettingsError("--for-k says which problems the samples of --choose take; name --choose too")
        if self.mastered != CertifyStageConfig.mastered:
            raise SettingsError("--for-k and --mastered choose different problems; leave one of them out")
        if self.certify.k not in (CertificateConfig.k, self.for_k):
            raise SettingsError(f"--for-k {self.for_k} certifies pass@{self.for_k}; leave --certify.k out")
        if self.for_k >= 4 * self.choose or self.for_k < 2:
            raise SettingsError(
                f"--for-k {self.for_k} takes problems with at least 1/{self.for_k} and less than 4/{self.for_k} of the "
                f"{self.choose} samples correct, but no number of correct ones is between; let more samples choose, or "
                "name another k"
            )


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
    explain: bool = False
    """Print, for each prediction in mathematics, the rules that decided and how both answers were read."""
    task: TaskSplit = field(default_factory=lambda: TaskSplit(name="gold", split="gold"))
    verifier: JudgeConfig = field(default_factory=lambda: JudgeConfig(workers=2, timeout=30.0))


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
    model: SupervisedModelConfig = field(default_factory=SupervisedModelConfig)
    new: NewModelConfig = field(default_factory=NewModelConfig)
    task: TaskSource = field(default_factory=TaskSource)
    optim: AdamWConfig = field(
        default_factory=lambda: AdamWConfig(
            lr=2.5e-3, schedule="cosine", warmup_steps=40, beta2=0.95, tokens_per_microbatch=65536
        )
    )


@dataclass(frozen=True)
class ClusterConfig(Settings):
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
    validation: SamplingConfig = field(default_factory=lambda: SamplingConfig(n=32))
    """Sampling of validation during training and of the evaluation afterwards."""
    start: bool = False
    """Also run the launch on this machine, one step after the other (one node only)."""

    def check(self) -> None:
        """Raises SettingsError for responses that are not sampled in training, and for several greedy ones elsewhere.
        What else `dph train` refuses is refused there or by verl, or is not used by a launch."""
        self.rollout.check_sampled()
        self.validation.check_repeats(name="validation.n")
        self.validation.check_repeats(self.monitor.n if self.monitor.every else 1, "monitor.n")


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
class InitConfig(Settings):
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
class InterpolateConfig(Settings):
    """`dph interpolate`: a model between the one that a run began with and the one that it trained."""

    run: str = ""
    """Run directory of `dph train` or `dph sft`, a checkpoint in it, or the folder of any trained model."""
    weight: Annotated[float, Bounds(-1, "between -1 and 3", 3)] = 0.5
    """Share of the trained weights; 0 is the initial model, 1 the trained one, and more goes beyond it."""
    initial: str = ""
    """Model to interpolate from; empty: the one that the run began with."""
    out: str = ""
    """New folder for the model."""
    certify: CertifySetConfig = field(default_factory=CertifySetConfig)
    """With a set, `weight` is the furthest share that is certified."""
    shares: PositiveInt = 10
    """With a certification set: shares 1/shares, 2/shares, … up to 1 are tested, until one fails."""
    trust_remote_code: Annotated[bool, Code("--trust-remote-code")] = False
    """Allow a hub model to run code of its own."""


@dataclass(frozen=True)
class ReportConfig(Settings):
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
    """Judged samples, as files or folders: BEFORE, then each AFTER; with `after`, the training runs of BEFORE."""
    after: tuple[str, ...] = ()
    """The training runs (seeds) of AFTER, one file or folder each; intervals are then over runs and problems."""
    k: tuple[int, ...] = ()
    """The k of pass@k and maj@k; empty: 1, 2, 4 … and the number of samples."""
    fail_if_lost: Share = 1.0
    """Exit status 3 if more than this share of the problems that BEFORE solves were lost, beyond what chance alone
    loses; among all samples, whatever `k` is."""
    json: bool = False
    """Print everything as JSON, with the versions, the settings and the SHA-256 of every file."""
    html: str = ""
    """Page to write, self-contained."""
    table: str = ""
    """Table to write: a .md file for a model card, or a .yaml file for the folder .eval_results of a model on the
    hub."""
    benchmark: str = ""
    """With a .yaml table: the dataset on the hub and its task that the problems are of, as openai/gsm8k:gsm8k."""
    example: bool = False
    """Compare the counts of a public pair of models with 1.5 billion parameters, which are in the package."""


@dataclass(frozen=True)
class AuditConfig(EvalConfig):
    """`dph audit`: what training changed: samples both models on the same problems and compares them as dph passk
    does."""

    greedy: bool = False
    after: str = ""
    """The trained model, its run or its folder; `model.path` names the one before."""
    average: Share = 0.0
    """Also audit the average of both models with this share of the trained weights; 0: none."""
    certify: CertificateConfig = field(default_factory=CertificateConfig)


@dataclass(frozen=True)
class TrialConfig(Settings):
    """`dph judge`: try any reward function on answers of known truth: what it pays wrongly, and what it refuses."""

    function: Annotated[str, Code("--function")] = ""
    """FILE.py:NAME of a reward function in the form of TRL, verl, OpenRLHF or this package; empty: our own judge."""
    math: bool = False
    """Try it on answers in mathematics, which is the default."""
    sql: bool = False
    """Try it on SQL queries over a small database."""
    template: str = ""
    """How a response states its answer, with {answer} for it; empty: the usual way that serves the function best."""
    columns: dict[str, str] = field(default_factory=dict)
    """Further arguments that the function is given by name."""
    every: PositiveInt = 1
    """Take every so many-th answer only, for a judge that is slow."""
    timeout: Annotated[Positive, Usual(0.01, 3600)] = 5.0
    """Seconds that one answer may take to be judged; pauses and load do not count."""
    workers: Annotated[PositiveInt, Usual(high=1024)] = 1
    """Processes in which the function is called."""
    json: bool = False
    """Print everything as JSON, with every answer that was judged wrongly."""


@dataclass(frozen=True)
class DemoConfig(Settings):
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
class DoctorConfig(Settings):
    """`dph doctor`: check the machine and the installation, or say which of five failures a run of training shows."""

    run: str = ""
    """What a trainer logged: a folder with TRL's trainer_state.json or completions, verl's file logger or rollouts, or
    a run of dph train; empty: the machine and the installation are checked."""
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
    "judge": TrialConfig,
    "audit": AuditConfig,
    "report": ReportConfig,
    "verl": VerlConfig,
    "doctor": DoctorConfig,
}
"""Settings class of each command, in the order in which `dph --help` lists them."""
