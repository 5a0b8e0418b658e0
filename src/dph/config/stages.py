"""Settings of every stage as frozen dataclasses; `dph.config.load` fills them from presets, files and flags. Those of
commands without a model are in `dph.config.commands`."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from dph.config.commands import (
    DemoConfig,
    DoctorConfig,
    InitConfig,
    InterpolateConfig,
    PasskConfig,
    ReportConfig,
    TrialConfig,
)
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
from dph.config.learning import AdamWConfig, AsideConfig, CertificateConfig
from dph.config.settings import (
    NonNegativeInt,
    Positive,
    PositiveInt,
    PositiveShare,
    Seed,
    Settings,
    Share,
    Usual,
)
from dph.config.train import SamplingStage, StageConfig, TrainConfig
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
        self.rollout.check_turns(self.sampler.engine)
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
        """Raises SettingsError for several greedy responses to a prompt, and for turns that the sampler lacks."""
        self.rollout.check_repeats()
        self.rollout.check_turns(self.sampler.engine)


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
        if self.bank.key:
            self.check_bank()
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
class AuditConfig(EvalConfig):
    """`dph audit`: what training changed: samples both models on the same problems and compares them as dph passk
    does."""

    greedy: bool = False
    after: str = ""
    """The trained model, its run or its folder; `model.path` names the one before."""
    average: Share = 0.0
    """Also audit the average of both models with this share of the trained weights; 0: none."""
    certify: CertificateConfig = field(default_factory=CertificateConfig)


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
