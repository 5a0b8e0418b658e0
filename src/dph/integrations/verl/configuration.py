"""verl's configuration for a launch, from the settings of `dph verl`.

Every setting of `dph train` reaches verl's configuration or the data that `data.sh` writes, is refused because verl has
no counterpart, or is listed in `WITHOUT_EFFECT`. A test changes each setting and checks the effect.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dph.config import RehearsalTerm, RewardConfig, VerlConfig, flatten, narrowed, to_dict
from dph.config.checks import template_variables
from dph.config.sampling import DEFAULTS, verl_settings
from dph.engine import BANK_KEYS
from dph.errors import UserError
from dph.integrations.verl.layout import VLLM_SHARE, ClusterLayout
from dph.integrations.verl.settings import (
    AGENT_LOOP,
    AGGREGATIONS,
    NO_DUAL_CLIP,
    VENDOR,
    bound_advantage,
    check_policy_loss,
)
from dph.registry import read_option

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
    return (config.prompt_set != "all" or config.begins_with_stored) and not config.rehearsal.path


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
    if config.bank.key:
        BANK_KEYS[config.bank.key]
    check_policy_loss(config.loss.policy)
    without_counterpart = {
        "a launch of verl judges by verifiers only: put the reward function into a verifier "
        "(docs/guides/extend.md), or train it with `dph train`": config.reward != RewardConfig(),
        "verl saves the trained weights; leave --trained-share out, and interpolate the trained model with "
        "`dph interpolate FOLDER --initial MODEL`": config.trained_share < 1,
        "a launch of verl has no turns and no tool_tokens; leave them out, and give verl the tool of "
        "examples/verl_tools.sh": any(
            (of.turns, of.tool_tokens) != (DEFAULTS["turns"], DEFAULTS["tool_tokens"])
            for of in (config.rollout, config.validation)
        ),
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
        "rehearsal": (config.rehearsal.path or str(folder / "presample")) if config.begins_with_stored else "",
        "rows": rows,
        "bank": to_dict(config.bank),
        **({"task": config.task.name, "task_options": config.task.options} if config.bank.key else {}),
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
