"""Settings of the parts of training: objective, advantage, optimizer, rehearsal, monitor, certificates."""

import re
from dataclasses import dataclass, field
from typing import Annotated, Literal

from dph.config.settings import (
    Bounds,
    Decay,
    Finite,
    Level,
    NonNegative,
    NonNegativeInt,
    PositiveInt,
    Settings,
    Share,
    Usual,
)
from dph.errors import SettingsError


@dataclass(frozen=True)
class OverlongConfig(Settings):
    """DAPO's soft penalty for long responses."""

    buffer: NonNegativeInt = 0
    """Length of the penalty zone before max_tokens; 0 switches it off."""
    penalty: Annotated[NonNegative, Usual(high=10)] = 1.0
    """Penalty at and beyond max_tokens; it grows linearly from 0 over the zone."""


@dataclass(frozen=True)
class DynamicSamplingConfig(Settings):
    """DAPO's refill: groups that are all correct or all wrong are dropped and replaced."""

    enabled: bool = False
    """Drop constant groups and draw further prompts in their place."""
    max_attempts: PositiveInt = 4
    """Largest number of rounds of drawing, the first included; then the step continues with the groups that it has."""


@dataclass(frozen=True)
class RehearsalTerm(Settings):
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
    js_ratio: Annotated[NonNegative, Usual(0.01, 100)] = 0.0
    """JS by its definition: λ/η, for the reading of eq. 16 by the sizes of the data sets, |D_pef| / |D_exp| (0.335 for
    Llama on BIRD: 2248 of 6710). 0 gives both halves the same weight in each mini-batch."""


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

    def check(self) -> None:
        """Raises SettingsError for settings of the objective that exclude each other."""
        if self.dual_clip and self.dual_clip <= 1:
            raise SettingsError(f"loss.dual_clip must be greater than 1, or 0 for off, but is {self.dual_clip}")
        if self.estimator == "definition" and self.divergence != "js":
            estimator = "loss.estimator 'definition' exists for loss.divergence 'js' only"
            raise SettingsError(f"{estimator}, not for {self.divergence!r}; use estimator 'generator'")
        if self.estimator != "definition" and self.js_scale != 1.0:
            raise SettingsError("loss.js_scale applies to loss.estimator 'definition' only; scale loss.eta instead")
        if self.estimator != "definition" and self.js_ratio:
            raise SettingsError("loss.js_ratio applies to loss.estimator 'definition' only; leave it at 0")
        if self.kl == "none" and self.kl_coef:
            raise SettingsError(
                f"loss.kl_coef is {self.kl_coef} but loss.kl is 'none'; choose an estimator such as 'k3'"
            )


@dataclass(frozen=True)
class AdvantageConfig(Settings):
    """How the rewards of a group become advantages."""

    name: str = "group"
    """Advantage: group (GRPO), or one that a plug-in registered."""
    options: dict[str, str] = field(default_factory=dict)
    """Settings of the advantage, as key value pairs."""


@dataclass(frozen=True)
class AdamWConfig(Settings):
    """The optimizer, AdamW, and the micro-batches of its steps."""

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


@dataclass(frozen=True)
class OptimConfig(AdamWConfig):
    """The optimizer, AdamW, and how a training step uses it."""

    minibatches: Annotated[PositiveInt, Usual(high=256)] = 2
    """Optimizer steps on the rollouts of each training step."""


@dataclass(frozen=True)
class RehearsalConfig(Settings):
    """The near-perfect set D_pef and the stored responses of the reference policy."""

    path: str = ""
    """Run directory of `dph presample`."""
    rows: Annotated[int, Bounds(-1, "-1 or more"), Usual(high=65536)] = 0
    """Stored responses per step, over all processes; 0 trains without rehearsal, -1 takes one for eight rollouts."""
    check_rows: NonNegativeInt = 4
    """Stored rows whose log-probabilities are recomputed at the start."""


@dataclass(frozen=True)
class BankConfig(Settings):
    """The bank: rehearsal of every way of solving a problem that was ever found; `rehearsal.rows` are taken from it."""

    key: str = ""
    """What counts as one way: style (the task's canonical form), answer, text, tokens, once (one response of a
    problem), every (each response), or a key of a plug-in. Empty: no bank."""
    capacity: Annotated[PositiveInt, Usual(high=1024)] = 16
    """Most ways of a problem; when there is another, the one that was drawn most often lately gives way."""
    begun: bool = True
    """Begin with the stored responses of `rehearsal.path`; else with an empty bank."""


@dataclass(frozen=True)
class MonitorSet(Settings):
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
class MonitorConfig(Settings):
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

    def check(self) -> None:
        """Raises SettingsError for a set whose name cannot be in the name of a metric."""
        for name in self.sets:
            if not re.fullmatch(r"[\w-]+", name):
                raise SettingsError(f"monitor.sets has {name!r}; a name has only letters, digits, - and _")


@dataclass(frozen=True)
class AsideConfig(Settings):
    """Near-perfect prompts that are neither trained on nor rehearsed: they certify what training keeps."""

    share: Share = 0.0
    """Share of the near-perfect prompts to keep aside, chosen by their ids."""
    samples: PositiveInt = 8
    """New samples of the model for each of them, which did not choose the prompts."""


@dataclass(frozen=True)
class CertificateConfig(Settings):
    """Certificates that a checkpoint solves at most `epsilon` less than the base model of what that mastered."""

    epsilon: Annotated[Level, Usual(high=0.5)] = 0.05
    """Largest loss of pass@k that is certified."""
    alpha: Annotated[Level, Usual(high=0.5)] = 0.05
    """Probability, for all checkpoints of a run together, of a certificate for a larger loss."""
    k: PositiveInt = 1
    """The k of pass@k; at most the presample run's `certify.samples`."""


@dataclass(frozen=True)
class CertifySetConfig(CertificateConfig):
    """Certificates that a checkpoint solves at most `epsilon` less than the base model of what that mastered."""

    set: str = ""
    """Run directory of `dph presample --certify SHARE` of the model that training begins with; training leaves out
    what it kept aside. Empty: nothing is certified."""


@dataclass(frozen=True)
class CertifyConfig(CertifySetConfig):
    """Certificates that a checkpoint solves at most `epsilon` less than the base model of what that mastered."""

    every: PositiveInt = 20
    """Steps between checks."""
    stop: bool = False
    """End the training after the first check that fails; else later checkpoints are measured but not certified."""
