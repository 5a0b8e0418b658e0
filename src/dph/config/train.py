"""Settings of `dph train`, and those that it shares with the other stages that make runs, sample and judge."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from dph.config.checks import OR_HF, check_alone
from dph.config.components import (
    ModelConfig,
    RewardConfig,
    RolloutConfig,
    TaskConfig,
    TrainingSamplerConfig,
    VerifierConfig,
)
from dph.config.learning import (
    AdvantageConfig,
    BankConfig,
    CertifyConfig,
    DynamicSamplingConfig,
    LossConfig,
    MonitorConfig,
    OptimConfig,
    OverlongConfig,
    RehearsalConfig,
)
from dph.config.sampling import DEFAULTS
from dph.config.settings import (
    Code,
    NonNegative,
    NonNegativeInt,
    PositiveInt,
    PositiveShare,
    Seed,
    Settings,
    Share,
    Usual,
)
from dph.errors import SettingsError
from dph.registry import read_option

Plugins = Annotated[tuple[str, ...], Code("--plugin")]


@dataclass(frozen=True)
class StageConfig(Settings):
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
    sampler: TrainingSamplerConfig = field(default_factory=TrainingSamplerConfig, kw_only=True)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    dynamic_sampling: DynamicSamplingConfig = field(default_factory=DynamicSamplingConfig)
    overlong: OverlongConfig = field(default_factory=OverlongConfig)
    advantage: AdvantageConfig = field(default_factory=AdvantageConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    rehearsal: RehearsalConfig = field(default_factory=RehearsalConfig)
    bank: BankConfig = field(default_factory=BankConfig)
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

    def check(self) -> None:
        """Raises SettingsError for settings of different parts that contradict each other."""
        rollout, buffer, shown = self.rollout, self.overlong.buffer, self.show_samples
        if self.rehearsal.rows and self.loss.eta == 0:
            effect = (
                f"rehearsal.rows is {self.rehearsal.rows} but loss.eta is 0, so stored responses would have no effect"
            )
            raise SettingsError(f"{effect}; set loss.eta above 0, or rehearsal.rows to 0")
        if self.bank.key:
            self.check_bank()
        if rollout.n < 2:
            raise SettingsError(f"rollout.n is {rollout.n}; advantages are relative to a group of at least 2 responses")
        rollout.check_sampled()
        rollout.check_turns(self.sampler.engine)
        if shown > (self.monitor.kept_responses if self.monitor.every else 0):
            remedy = "set monitor.every, and monitor.kept_responses to at least as many"
            raise SettingsError(
                f"show_samples is {shown}, but only responses that the monitor keeps can be shown; {remedy}"
            )
        if self.sampler.engine == "vllm":
            self._check_vllm()
        if buffer > rollout.max_tokens:
            most = rollout.max_tokens
            longer = f"overlong.buffer {buffer} is longer than a response may be (rollout.max_tokens {most})"
            raise SettingsError(f"{longer}, so even an empty response would be penalised; lower it")
        if rollout.prompts < self.optim.minibatches:
            cut = f"{self.optim.minibatches} mini-batches"
            raise SettingsError(
                f"rollout.prompts {rollout.prompts} cannot be split into {cut}; lower optim.minibatches"
            )

    def check_bank(self) -> None:
        """Raises SettingsError for a bank that the other settings leave without effect or do not fit."""
        key = f"bank.key is {self.bank.key!r}"
        if not self.rehearsal.rows:
            raise SettingsError(f"{key} but rehearsal.rows is 0, so nothing is taken from the bank; set rehearsal.rows")
        if self.rollout.turns > 1:
            raise SettingsError(
                f"{key} and rollout.turns is {self.rollout.turns}, but the bank keeps no responses that called a tool; "
                "leave one of them out"
            )
        if self.loss.estimator == "definition":
            raise SettingsError(
                f"{key}, whose responses are of many policies, but loss.estimator 'definition' compares with one "
                "reference policy; use estimator 'generator'"
            )

    @property
    def begins_with_stored(self) -> bool:
        """Whether training needs stored responses of a presample run: without a bank, or to begin one."""
        return self.rehearsal.rows != 0 and (not self.bank.key or self.bank.begun)

    def _check_vllm(self) -> None:
        for name, value in self.rollout.truncations.items():
            raise SettingsError(
                f"vLLM does not report log-probabilities of the policy with rollout.{name} {value}; set it to "
                f"{DEFAULTS[name]}, {OR_HF}"
            )
        if self.rollout.old_logprobs == "sampler":
            raise SettingsError("vLLM's log-probabilities are not exactly the trainer's; use rollout.old_logprobs auto")
        if self.model.lora_rank:
            raise SettingsError(
                f"in `dph train` vLLM takes whole models, no adapters; leave model.lora_rank out, {OR_HF}"
            )

    def check_ready(self) -> None:
        """Raises UserError for what these settings lack before training begins: a presample run that the method needs,
        which other commands do without or make, and a single process if vLLM samples."""
        if (self.begins_with_stored or self.prompt_set != "all") and not self.rehearsal.path:
            method = f"method {self.method!r} needs a presampled partition"
            raise SettingsError(f"{method}; run `dph presample` and add --rehearsal.path RUN")
        if self.sampler.engine == "vllm":
            check_alone()
