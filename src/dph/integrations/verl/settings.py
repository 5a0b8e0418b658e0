# pyright: reportMissingImports=false
"""Our settings in verl's configuration: `configured` reads them as training does. For a launch they are written by
`dph.integrations.verl.configuration`.

Settings that verl has keep verl's names (clips, aggregation, KL, entropy: `actor_rollout_ref.actor`); those that it has
not are its block `dph`. No setting is in both. `dph_defaults.yaml` holds the block's defaults for Hydra, and the values
of verl's settings that DPH-RL needs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dph.config import (
    BankConfig,
    LossConfig,
    ModelConfig,
    RehearsalTerm,
    from_dict,
    narrowed,
    to_dict,
)
from dph.config.sampling import SamplingParams, marks
from dph.config.settings import NonNegative, NonNegativeInt, Share
from dph.engine import load_plugin
from dph.errors import UserError
from dph.objective import POLICY_LOSSES, Advantage, Objective

TRAINER_MODE = "dph_sync"
"""Our trainer's name in verl's registry (`trainer.v1.trainer_mode`)."""
VENDOR = "dph"
"""If the environment variable VERL_ENGINE_VENDOR has this value, verl uses our engine, with shared prompts."""

AGENT_LOOP = "dph.integrations.verl.sampling.AgentLoopManager"
"""Our agent loop, which reads `dph.sampling`, as verl's agent_loop_manager_class."""
QUERY_TOOL = "query"
"""Name of the tool of `dph.integrations.verl.tools`."""

AGGREGATIONS = {"token": "token-mean", "sequence": "seq-mean-token-mean", "dr_grpo": "seq-mean-token-sum-norm"}
"""verl's name for each of our aggregations."""
_OUR_AGGREGATIONS = {theirs: ours for ours, theirs in AGGREGATIONS.items()}
_KL_KINDS = {"kl": "k1", "k1": "k1", "mse": "k2", "k2": "k2", "low_var_kl": "k3", "k3": "k3"}
NO_DUAL_CLIP = 1e6
"""verl cannot switch its dual clip off; from this value on, its clip_ratio_c clips nothing."""


@dataclass(frozen=True, slots=True)
class DPHSettings(RehearsalTerm):
    """The block `dph` of the configuration: the rehearsal term, and these."""

    policy: str = "ppo_clip"
    """Policy loss on rollouts: ppo_clip, or one that a plug-in registered."""
    policy_options: dict[str, str] = field(default_factory=dict)
    """Settings of the policy loss other than the clips."""
    advantage: str = "group"
    """Advantage of a rollout in its group: one of `dph.objective`'s, or one that a plug-in registered."""
    advantage_options: dict[str, str] = field(default_factory=dict)
    """Settings of the advantage. Whether `group` divides by the deviation is verl's norm_adv_by_std_in_grpo."""
    rehearsal: str = ""
    """Run directory of `dph presample`."""
    rows: NonNegativeInt = 0
    """Stored responses per step, over all ranks; 0 trains without rehearsal."""
    check_rows: NonNegativeInt = 64
    """Stored responses whose log-probabilities are recomputed before the first update of a run; 0 checks none."""
    tolerance: NonNegative = 0.1
    """Largest mean deviation of those log-probabilities, in nats per token; with a larger one the set is refused."""
    bank: BankConfig = field(default_factory=BankConfig)
    """The bank, from which the stored responses of a step then are taken; without a key there is none."""
    task: str = ""
    """The task of the problems, which gives the canonical forms for the bank's key `style`; queries need none."""
    task_options: dict[str, str] = field(default_factory=dict)
    """Settings of the task."""
    seed: int = 0
    """Seed of the order of stored responses."""
    overlong_buffer: NonNegativeInt = 0
    """DAPO's soft length penalty: length of the zone before the limit, in tokens; 0 switches it off."""
    overlong_penalty: NonNegative = 1.0
    """Penalty at the limit."""
    mask_truncated: bool = False
    """Leave responses that were cut off at the limit out of the loss."""
    max_unjudged: Share = 0.05
    """Largest share of a step's responses whose judging may fail; with a larger one the run stops."""
    max_gap: NonNegative = 0.05
    """Largest mean difference between the sampler's log-probabilities and the trainer's, in nats per token; rounding to
    bf16 explains less. With a larger one the run stops before the update."""
    plugins: tuple[str, ...] = ()
    """Python files or modules that register divergences, policy losses or advantages; every process imports them."""
    sampling: SamplingParams = field(default_factory=SamplingParams)
    """Sampling parameters that verl's rollout settings lack: min_p and stop. They need our agent loop (see
    `dph.integrations.verl.sampling`), which a launch names."""
    validation_sampling: SamplingParams = field(default_factory=SamplingParams)
    """The same for validation."""
    date: str = ModelConfig.date
    """Date, YYYY-MM-DD, in place of today's in prompts whose chat template writes today's."""

    @property
    def begins_with_stored(self) -> bool:
        """Whether training needs stored responses of `rehearsal`: without a bank, or to begin one."""
        return self.rows != 0 and (not self.bank.key or self.bank.begun)


def configured(config: Mapping[str, Any]) -> tuple[DPHSettings, LossConfig, Advantage]:
    """The block `dph` of a configuration in plain containers, the objective and the advantage; plug-ins are loaded.
    Raises UserError for settings that cannot be meant, or that this objective has no counterpart for."""
    block = config.get("dph") or {}
    settings = from_dict(DPHSettings, block, "the settings under 'dph'")
    for validation in (False, True):
        sampling_block(block, validation=validation)
    if settings.bank.key:
        _check_bank(config, settings)
    if settings.begins_with_stored and not settings.rehearsal:
        beside = ", with whose responses the bank begins; name one, or set dph.bank.begun=false"
        raise UserError(
            f"dph.rows is {settings.rows}, but dph.rehearsal names no run of `dph presample`"
            f"{beside if settings.bank.key else ''}"
        )
    if settings.begins_with_stored:
        _check_sampling(config["actor_rollout_ref"].get("rollout") or {})
    _check_agent_loop(config["actor_rollout_ref"].get("rollout") or {}, settings)
    for plugin in settings.plugins:
        load_plugin(plugin)
    return settings, _loss_config(config, settings), _advantage(config, settings)


def _check_bank(config: Mapping[str, Any], settings: DPHSettings) -> None:
    """Raises UserError for settings with which the bank would do nothing, or that it does not fit."""
    key, rollout = f"dph.bank.key is {settings.bank.key!r}", config["actor_rollout_ref"].get("rollout") or {}
    refused = {
        "dph.rows is 0, so nothing is taken from the bank; set dph.rows": not settings.rows,
        "its responses are of many policies, which dph.estimator 'definition' would compare with one reference policy; "
        "use estimator 'generator'": settings.estimator == "definition",
        "the bank keeps responses of one turn, which multi_turn.enable has not; leave one of them out": bool(
            (rollout.get("multi_turn") or {}).get("enable")
        ),
    }
    for sentence, is_so in refused.items():
        if is_so:
            raise UserError(f"{key}, but {sentence}")


def _check_sampling(rollout: Mapping[str, Any]) -> None:
    """Raises UserError for a setting by which verl samples otherwise than stored responses were sampled: from the
    model's distribution at a temperature and with top-p."""
    kwargs = rollout.get("engine_kwargs") or {}
    settings = {f"engine_kwargs.{name}": (of or {}).get("logits_processors") for name, of in kwargs.items()}
    neutral = {"top_k": (None, -1, 0), "repetition_penalty": (None, 1), "ignore_eos": (None, False)}
    settings |= {name: None if rollout.get(name) in values else rollout[name] for name, values in neutral.items()}
    if changed := [f"{name}={value!r}" for name, value in settings.items() if value]:
        raise UserError(
            f"stored responses were sampled from the model's distribution at its temperature and top-p, but "
            f"actor_rollout_ref.rollout.{changed[0]} samples from another; leave it out, or set dph.rows to 0"
        )


def sampling_block(block: Mapping[str, Any], *, validation: bool) -> SamplingParams:
    """The sampling parameters of the block `dph` of a configuration. Raises UserError for one that verl has itself."""
    name = "validation_sampling" if validation else "sampling"
    given = dict(block.get(name) or {})
    if theirs := [key for key in given if key not in marks() or marks()[key].of_verl or marks()[key].ours]:
        raise UserError(f"dph.{name} has {theirs[0]!r}, which is a setting of verl's rollout or unknown; leave it out")
    return from_dict(SamplingParams, given, f"the settings under 'dph.{name}'")


def drawn_by(rollout: Mapping[str, Any], block: Mapping[str, Any]) -> SamplingParams:
    """The sampling parameters of training, from verl's rollout settings and the block `dph`."""
    of_verl = {name: float(rollout[name]) for name, mark in marks().items() if mark.of_verl}
    return replace(sampling_block(block, validation=False), **of_verl)


def _check_agent_loop(rollout: Mapping[str, Any], settings: DPHSettings) -> None:
    """Raises UserError for sampling parameters of ours if verl does not use the agent loop that reads them."""
    if settings.sampling == settings.validation_sampling == SamplingParams():
        return
    if (rollout.get("agent") or {}).get("agent_loop_manager_class") != AGENT_LOOP or rollout.get("name") != "vllm":
        raise UserError(
            "dph.sampling and dph.validation_sampling are read by our agent loop for vLLM only; set, under "
            f"actor_rollout_ref.rollout, name=vllm and agent.agent_loop_manager_class={AGENT_LOOP}"
        )


def _advantage(config: Mapping[str, Any], settings: DPHSettings) -> Advantage:
    """The advantage, from the block `dph` and verl's setting for GRPO's."""
    name, options = settings.advantage, dict(settings.advantage_options)
    divides = bool(config["algorithm"]["norm_adv_by_std_in_grpo"])
    if name != "group" and not divides:
        raise UserError(
            f"algorithm.norm_adv_by_std_in_grpo is false, which dph.advantage {name!r} does not read; leave it at true"
        )
    if name == "group":
        if "normalize_std" in options:
            raise UserError(
                "dph.advantage_options has normalize_std; in verl this setting is algorithm.norm_adv_by_std_in_grpo"
            )
        options["normalize_std"] = str(divides)
    advantage = bound_advantage(name, options)
    if advantage.needs_reference and not config["actor_rollout_ref"]["actor"]["use_kl_loss"]:
        raise UserError(f"dph.advantage {name!r} reads a reference model; set actor_rollout_ref.actor.use_kl_loss=true")
    return advantage


def bound_advantage(name: str, options: Mapping[str, str]) -> Advantage:
    """An advantage. Raises UserError as `Advantage`, and for one that reads the problems."""
    advantage = Advantage(name, options)
    if advantage.needs_problems:
        raise UserError(
            f"advantage {name!r} reads styles or answers, and verl's trainer sees responses without their problems; "
            "set its options so that it reads texts (uniqueness: by text)"
        )
    return advantage


def check_policy_loss(name: str) -> None:
    """Raises UserError for a policy loss that reads more than the micro-batch that verl's loss sees."""
    if POLICY_LOSSES.traits(name).select is not None:
        raise UserError(
            f"policy loss {name!r} selects tokens of the whole mini-batch, which verl's loss does not see; train it "
            "with `dph train`"
        )


def _loss_config(config: Mapping[str, Any], settings: DPHSettings) -> LossConfig:
    """The objective, from verl's actor settings and ours."""
    actor, algorithm = config["actor_rollout_ref"]["actor"], config["algorithm"]
    required = {
        "algorithm.adv_estimator": (algorithm["adv_estimator"], "grpo"),
        "algorithm.use_kl_in_reward": (algorithm["use_kl_in_reward"], False),
        "algorithm.rollout_correction.bypass_mode": (algorithm["rollout_correction"]["bypass_mode"], False),
        "actor_rollout_ref.actor.policy_loss.loss_mode": (actor["policy_loss"]["loss_mode"], "vanilla"),
        "distillation.enabled": (config["distillation"]["enabled"], False),
    }
    for name, (value, wanted) in required.items():
        if value != wanted:
            raise UserError(f"trainer mode {TRAINER_MODE!r} works only with {name}={wanted}, not {value}")
    aggregation = actor["loss_agg_mode"]
    if aggregation not in _OUR_AGGREGATIONS:
        raise UserError(
            f"actor.loss_agg_mode {aggregation!r} has no counterpart here; use one of {', '.join(_OUR_AGGREGATIONS)}"
        )
    kl, beta = actor["kl_loss_type"], float(actor["kl_loss_coef"])
    with_kl = bool(actor["use_kl_loss"]) and beta != 0
    if with_kl and kl not in _KL_KINDS:
        raise UserError(f"actor.kl_loss_type {kl!r} has no counterpart here; use one of {', '.join(_KL_KINDS)}")
    dual_clip = float(actor["clip_ratio_c"])
    policy = {
        "policy": settings.policy,
        "policy_options": settings.policy_options,
        "clip_low": float(actor["clip_ratio_low"]),
        "clip_high": float(actor["clip_ratio_high"]),
        "dual_clip": 0.0 if dual_clip >= NO_DUAL_CLIP else dual_clip,
        "aggregation": _OUR_AGGREGATIONS[aggregation],
        "dr_grpo_length": int(actor["loss_scale_factor"] or config["data"]["max_response_length"]),
        "kl": _KL_KINDS[kl] if with_kl else "none",
        "kl_coef": beta if with_kl else 0.0,
        "entropy_coef": float(actor["entropy_coeff"]),
    }
    check_policy_loss(settings.policy)
    loss = from_dict(
        LossConfig,
        {**to_dict(narrowed(RehearsalTerm, settings)), **policy, "eta": settings.eta if settings.rows else 0.0},
    )
    Objective(loss)
    if loss.estimator == "definition" and loss.eta > 0 and not actor["use_kl_loss"]:
        raise UserError(
            "dph.estimator 'definition' needs a reference model: set actor_rollout_ref.actor.use_kl_loss=true and "
            "actor_rollout_ref.actor.kl_loss_coef=0"
        )
    return loss
