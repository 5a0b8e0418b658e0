# pyright: reportMissingImports=false
"""Our settings and verl's configuration: `configured` reads it as training does, `verl_config` writes it for a launch.

Settings that verl has keep verl's names (clips, aggregation, KL, entropy: `actor_rollout_ref.actor`); those that it has
not are its block `dph`. No setting is in both. `dph_defaults.yaml` holds the block's defaults for Hydra, and the values
of verl's settings that DPH-RL needs.

Every setting of `dph train` reaches verl's configuration or the data that `data.sh` writes, is refused because verl has
no counterpart, or is listed in `WITHOUT_EFFECT`. A test changes each setting and checks the effect.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from dph.config import (
    LossConfig,
    ModelConfig,
    RehearsalTerm,
    RewardConfig,
    VerlConfig,
    flatten,
    from_dict,
    narrowed,
    to_dict,
)
from dph.config.checks import template_variables
from dph.config.sampling import SamplingParams, marks, verl_settings
from dph.config.settings import NonNegative, NonNegativeInt, Share
from dph.engine import load_plugin
from dph.errors import UserError
from dph.objective import POLICY_LOSSES, Advantage, Objective
from dph.registry import read_option

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


def configured(config: Mapping[str, Any]) -> tuple[DPHSettings, LossConfig, Advantage]:
    """The block `dph` of a configuration in plain containers, the objective and the advantage; plug-ins are loaded.
    Raises UserError for settings that cannot be meant, or that this objective has no counterpart for."""
    block = config.get("dph") or {}
    settings = from_dict(DPHSettings, block, "the settings under 'dph'")
    for validation in (False, True):
        sampling_block(block, validation=validation)
    if settings.rows and not settings.rehearsal:
        raise UserError(f"dph.rows is {settings.rows}, but dph.rehearsal names no run of `dph presample`")
    if settings.rows:
        _check_sampling(config["actor_rollout_ref"].get("rollout") or {})
    _check_agent_loop(config["actor_rollout_ref"].get("rollout") or {}, settings)
    for plugin in settings.plugins:
        load_plugin(plugin)
    return settings, _loss_config(config, settings), _advantage(config, settings)


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
    if theirs := [key for key in given if key not in marks() or marks()[key].of_verl]:
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


# To verl ------------------------------------------------------------------------------------------------------------

VLLM_SHARE = 0.6
"""Share of a GPU's memory that vLLM takes while it samples."""
Offload = Literal["none", "between", "cpu"]


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """How a model is laid out on a cluster."""

    tensor_parallel: int
    """GPUs that one copy of vLLM spans."""
    sequence_parallel: int
    """GPUs that share each sequence in training (Ulysses)."""
    offload: Offload
    """Which states are in host memory. none: none; between: weights and moments during sampling; cpu: all, always."""
    tokens_per_gpu: int
    training_gb: float
    """Estimated peak memory of one GPU in training, in GB."""
    host_gb: float
    """Estimated host memory of one node for offloaded states, in GB."""


WITHOUT_EFFECT: dict[str, Any] = {
    **{f"certify.{name}": None for name in ("set", "epsilon", "alpha", "k", "every", "stop")},  # dph certify does it
    "dynamic_sampling.max_attempts": None,  # verl refills without a limit
    "keep_best": None,  # verl keeps the newest checkpoints
    "keep_best_within": None,
    "model.attention": None,
    "model.device": None,
    "model.gradient_checkpointing": True,  # the estimate of memory assumes it
    "monitor.kept_responses": None,
    "optim.max_skipped": None,
    "sampler.engine": "vllm",  # laid out by `cluster`
    "sampler.decoder": None,
    "sampler.memory": None,
    "sampler.rows": None,
    "show_samples": None,
}
"""Settings of `dph train` that training through verl does not use, and the value that verl always acts by, if any."""


def unused_settings(config: VerlConfig) -> list[str]:
    """Names of settings without effect that ask for something else than their default and verl's own behaviour."""
    now, default = flatten(to_dict(config)), flatten(to_dict(VerlConfig()))
    return [name for name, always in WITHOUT_EFFECT.items() if now[name] not in (default[name], always)]


def presamples(config: VerlConfig) -> bool:
    """Whether a launch begins with pre-sampling: its method needs a partition, and the settings name none."""
    return (config.prompt_set != "all" or config.rehearsal.rows != 0) and not config.rehearsal.path


def check_launch(config: VerlConfig, layout: ClusterLayout) -> None:
    """Raises UserError for settings that verl has no counterpart for, and for sizes that do not divide evenly."""
    cluster, gpus = config.cluster, config.cluster.gpus
    prompts, minibatches = config.rollout.prompts, config.optim.minibatches
    if gpus > cluster.per_node and gpus % cluster.per_node:
        raise UserError(f"cluster.gpus {gpus} is not a multiple of cluster.per_node {cluster.per_node}")
    if prompts % minibatches:
        raise UserError(
            f"verl needs mini-batches of equal size: rollout.prompts {prompts} is not a multiple of optim.minibatches "
            f"{minibatches}"
        )
    per_node = min(gpus, cluster.per_node)
    for name in ("tensor_parallel", "sequence_parallel"):
        width = getattr(layout, name)
        if per_node % width:
            raise UserError(f"cluster.{name} {width} does not divide the {per_node} GPUs of a node")
    ranks = gpus // layout.sequence_parallel
    rows = prompts // minibatches * config.rollout.n
    if rows % ranks:
        raise UserError(
            f"a mini-batch of {rows} responses does not divide over {ranks} data-parallel ranks; change "
            "rollout.prompts, rollout.n, optim.minibatches or cluster.gpus"
        )
    bound_advantage(config.advantage.name, config.advantage_options)
    check_policy_loss(config.loss.policy)
    without_counterpart = {
        "a launch of verl judges by verifiers only: put the reward function into a verifier "
        "(docs/guides/extend.md), or train it with `dph train`": config.reward != RewardConfig(),
        "verl saves the trained weights; leave --trained-share out, and interpolate the trained model with "
        "`dph interpolate FOLDER --initial MODEL`": config.trained_share < 1,
        "verl has no linear learning-rate schedule; use --optim.schedule constant or cosine": (
            config.optim.schedule == "linear"
        ),
        f"model.precision {config.model.precision!r} is for `dph train`; a launch of verl, which keeps weights in "
        "fp32 in any case, takes fp32 or bf16": config.model.precision not in ("fp32", "bf16"),
        "verl recomputes the log-probabilities of its sampler; use --rollout.old-logprobs auto or recompute": (
            config.rollout.old_logprobs == "sampler"
        ),
        "verl has no name for loss.kl 'k3_is'; use k1, k2 or k3": config.loss.kl == "k3_is",
        "verl draws as many samples for every monitored set: give each table monitor.sets.NAME the n of "
        f"monitor.n ({config.monitor.n})": any(one.n != config.monitor.n for one in config.monitor.sets.values()),
    }
    for sentence, is_set in without_counterpart.items():
        if is_set:
            raise UserError(sentence)


def shares_prompts(config: VerlConfig, layout: ClusterLayout) -> bool:
    """Whether the launch uses the engine that computes each prompt once; Ulysses cuts rows into pieces."""
    return config.model.shared_prefix and layout.sequence_parallel == 1


def verl_config(config: VerlConfig, layout: ClusterLayout, folder: Path) -> dict[str, Any]:
    """verl's configuration for a launch in `folder`, as nested dictionaries over `dph_defaults.yaml`."""
    check_launch(config, layout)
    cluster, model, rollout, cap = config.cluster, config.model, config.rollout, config.rollout.importance_cap
    per_node, targets = min(cluster.gpus, cluster.per_node), model.lora_targets.split(",")
    # GRPO's own division is a setting of verl's; other advantages keep an option of this name
    std = config.advantage.options.get("normalize_std", "true") if config.advantage.name == "group" else "true"
    adapters = {
        "lora_rank": model.lora_rank,
        "lora_alpha": model.lora_alpha,
        "target_modules": targets[0] if len(targets) == 1 else targets,
    }
    variables = template_variables(model.chat_template_kwargs)
    offloaded = {"offload_policy": layout.offload == "cpu", "param_offload": layout.offload == "between"}
    environment = {"env_vars": {"VERL_ENGINE_VENDOR": VENDOR}}
    return {
        "trainer": {
            "nnodes": cluster.gpus // per_node,
            "n_gpus_per_node": per_node,
            "project_name": "dph",
            "experiment_name": f"{config.method}-{config.seed}",
            "default_local_dir": str(folder / "checkpoints"),
            "logger": ["console", "file", "tensorboard", *([config.tracker] if config.tracker != "none" else [])],
            "total_training_steps": config.steps,
            "total_epochs": config.steps,  # verl stops at the smaller of the two
            "save_freq": config.checkpoint_every,
            "max_actor_ckpt_to_keep": config.keep_checkpoints,
            "test_freq": config.monitor.every or -1,
            "val_before_train": config.monitor.every > 0,
        },
        "data": {
            "train_files": str(folder / "data" / "train.parquet"),
            "val_files": str(folder / "data" / "val.parquet"),
            "train_batch_size": rollout.prompts,
            "max_prompt_length": rollout.max_prompt_tokens,
            "max_response_length": rollout.max_tokens,
            "filter_overlong_prompts": True,
            "seed": config.seed,
            "trust_remote_code": model.trust_remote_code,
            **({"apply_chat_template_kwargs": variables} if variables else {}),
        },
        "algorithm": {
            "filter_groups": {"enable": config.dynamic_sampling.enabled},
            "norm_adv_by_std_in_grpo": bool(read_option(std, bool, "advantage.options normalize_std")),
            # Truncated importance sampling by tokens, as in `dph.objective.objective`
            "rollout_correction": {"rollout_is": "token", "rollout_is_threshold": cap} if cap else {"rollout_is": None},
        },
        "actor_rollout_ref": {
            "model": {
                "path": model.path,
                "trust_remote_code": model.trust_remote_code,
                "enable_gradient_checkpointing": True,  # the estimate of memory assumes it
                **(adapters if model.lora_rank else {}),
            },
            "actor": _actor(config, layout, offloaded),
            "ref": {"fsdp_config": offloaded},
            "rollout": _rollout(config, layout),
        },
        "reward": {
            "custom_reward_function": {"reward_kwargs": asdict(config.verifier) | {"plugins": list(config.plugins)}}
        },
        "dph": _block(config, folder),
        "ray_kwargs": {"ray_init": {"runtime_env": environment}} if shares_prompts(config, layout) else {},
    }


def _actor(config: VerlConfig, layout: ClusterLayout, offloaded: Mapping[str, bool]) -> dict[str, Any]:
    loss, optim = config.loss, config.optim
    clip = optim.grad_clip or 1e9  # clips nothing
    definition = loss.estimator == "definition" and loss.eta > 0
    return {
        "ppo_mini_batch_size": config.rollout.prompts // optim.minibatches,
        "ppo_max_token_len_per_gpu": layout.tokens_per_gpu,
        "ulysses_sequence_parallel_size": layout.sequence_parallel,
        "entropy_from_logits_with_chunking": True,
        "clip_ratio_low": loss.clip_low,
        "clip_ratio_high": loss.clip_high,
        "clip_ratio_c": loss.dual_clip or NO_DUAL_CLIP,
        "loss_agg_mode": AGGREGATIONS[loss.aggregation],
        "loss_scale_factor": loss.dr_grpo_length,  # verl reads it for that aggregation only
        "entropy_coeff": loss.entropy_coef,
        "use_kl_loss": loss.kl != "none" or definition,  # without it verl loads no reference model
        "kl_loss_type": "k3" if loss.kl == "none" else loss.kl,
        "kl_loss_coef": loss.kl_coef,
        "data_loader_seed": config.seed,
        "grad_clip": clip,
        "optim": {
            "lr": optim.lr,
            "lr_scheduler_type": optim.schedule,
            "lr_warmup_steps": optim.warmup_steps,
            "weight_decay": optim.weight_decay,
            "betas": [optim.beta1, optim.beta2],
            "clip_grad": clip,
        },
        "fsdp_config": {
            **offloaded,
            "optimizer_offload": layout.offload == "between",
            "dtype": "bfloat16" if config.model.precision == "bf16" else "float32",
            "seed": config.seed,
        },
    }


def _rollout(config: VerlConfig, layout: ClusterLayout) -> dict[str, Any]:
    rollout, validation = config.rollout, config.validation
    longest, greedy = rollout.max_prompt_tokens + rollout.max_tokens, validation.temperature == 0
    return {
        "name": "vllm",
        "n": rollout.n,
        **verl_settings(rollout)[0],
        "tensor_model_parallel_size": layout.tensor_parallel,
        "gpu_memory_utilization": VLLM_SHARE,
        "max_model_len": longest,
        "max_num_batched_tokens": max(8192, longest),
        "seed": config.seed,
        "val_kwargs": {
            "n": 1 if greedy else config.monitor.n,  # more than one greedy response was refused
            "do_sample": not greedy,
            **verl_settings(validation)[0],
        },
        **({"agent": {"agent_loop_manager_class": AGENT_LOOP}} if any(_sampling(config).values()) else {}),
    }


def _sampling(config: VerlConfig) -> dict[str, dict[str, Any]]:
    """The sampling parameters that verl lacks, in the block `dph`."""
    return {"sampling": verl_settings(config.rollout)[1], "validation_sampling": verl_settings(config.validation)[1]}


def _block(config: VerlConfig, folder: Path) -> dict[str, Any]:
    """The block `dph`, see `DPHSettings`. Whether the advantage `group` divides by the deviation is verl's setting."""
    loss, rows, options = config.loss, config.stored_rows, config.advantage_options
    if config.advantage.name == "group":
        options = {name: value for name, value in options.items() if name != "normalize_std"}
    return to_dict(narrowed(RehearsalTerm, loss)) | {
        "policy": loss.policy,
        "policy_options": loss.policy_options,
        "advantage": config.advantage.name,
        "advantage_options": options,
        "rehearsal": (config.rehearsal.path or str(folder / "presample")) if rows else "",
        "rows": rows,
        "check_rows": config.rehearsal.check_rows,
        "seed": config.seed,
        "overlong_buffer": config.overlong.buffer,
        "overlong_penalty": config.overlong.penalty,
        "mask_truncated": config.rollout.mask_truncated,
        "max_unjudged": config.max_unjudged,
        "plugins": list(config.plugins),
        **{name: params for name, params in _sampling(config).items() if params},
        "date": config.model.date,
    }
