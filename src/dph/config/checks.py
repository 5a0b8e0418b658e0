"""Settings that contradict each other: found before anything is loaded, without torch."""

import os
from pathlib import Path

from dph.config.bounds import check_bounds
from dph.config.components import LossConfig
from dph.config.stages import PresampleConfig, TrainConfig
from dph.errors import UserError

_MODEL_FILES = ("config.json", "adapter_config.json")
_MODELS_INSIDE = ("model", "checkpoints/step-*/model", "step-*/model")
"""Where a run's folder, or one of its checkpoints, has its models."""


def check_out(out: str) -> None:
    """Raises UserError if no run directory is named."""
    if not out:
        raise UserError("no run directory was named; add --out DIRECTORY")


def check_model(path: str) -> None:
    """Raises UserError if no model is named, or if a path that can only be local leads to none."""
    folder = Path(path).expanduser()
    if not path:
        raise UserError("no model was named; add --model.path with a directory or a hub name")
    if folder.is_file():
        if not path.endswith(".gguf"):
            raise UserError(f"{path} is a file; give the directory of a model, or a GGUF file, with --model.path")
    elif not folder.is_dir():
        if _is_local(path):
            raise UserError(f"there is no model directory {path}; check --model.path")
    elif not is_model_folder(folder):
        found = [sorted(folder.glob(f"{pattern}/config.json")) for pattern in _MODELS_INSIDE]
        newest = [str(files[-1].parent) for files in found if files]
        meant = f"did you mean --model.path {newest[0]}?" if newest else "check --model.path"
        raise UserError(f"cannot load a model from {path}: it holds no config.json; {meant}")


def is_model_folder(folder: Path) -> bool:
    """Whether a folder holds a model or an adapter."""
    return any((folder / name).is_file() for name in _MODEL_FILES)


def _is_local(path: str) -> bool:
    """Whether a model's path can only be a directory. Names on a hub have at most one slash, in the middle; where both
    are possible, a first folder that exists decides."""
    first, slash, rest = path.partition("/")
    return path.startswith((".", "/", "~")) or "/" in rest or (bool(slash) and (not rest or Path(first).is_dir()))


def check_train(config: TrainConfig) -> None:
    """Raises UserError for settings that contradict each other, before anything is loaded."""
    check_loss(config.loss)
    uses_rehearsal = config.rehearsal.rows > 0
    if uses_rehearsal and config.loss.eta == 0:
        raise UserError(
            f"rehearsal.rows is {config.rehearsal.rows} but loss.eta is 0, so stored responses would have no effect; "
            "set loss.eta above 0, or rehearsal.rows to 0"
        )
    if (uses_rehearsal or config.prompt_set == "explore") and not config.rehearsal.path:
        raise UserError(
            f"method {config.method!r} needs a presampled partition; run `dph presample` and add --rehearsal.path RUN"
        )
    if config.rollout.n < 2:
        raise UserError(f"rollout.n is {config.rollout.n}; advantages are relative to a group of at least 2 responses")
    if config.rollout.temperature <= 0:
        raise UserError("rollout.temperature must be above 0: greedy responses of a group would all be the same")
    if config.show_samples > (config.monitor.kept_responses if config.monitor.every else 0):
        raise UserError(
            f"show_samples is {config.show_samples}, but only responses that the monitor keeps can be shown; set "
            "monitor.every, and monitor.kept_responses to at least as many"
        )
    if config.sampler.engine == "vllm":
        _check_vllm(config)
    if config.overlong.buffer > config.rollout.max_tokens:
        raise UserError(
            f"overlong.buffer {config.overlong.buffer} is longer than a response may be (rollout.max_tokens "
            f"{config.rollout.max_tokens}), so even an empty response would be penalised; lower it"
        )
    if config.rollout.prompts < config.optim.minibatches:
        raise UserError(
            f"rollout.prompts {config.rollout.prompts} cannot be split into {config.optim.minibatches} mini-batches"
        )


def _check_vllm(config: TrainConfig) -> None:
    if config.rollout.top_p < 1:
        raise UserError(
            "vLLM does not report log-probabilities of samples with rollout.top_p below 1, and training needs them; "
            "set it to 1, or sample with --sampler.engine hf"
        )
    if config.rollout.old_logprobs == "sampler":
        raise UserError(
            "vLLM's log-probabilities are not exactly the trainer's; leave rollout.old_logprobs at auto, which "
            "recomputes them"
        )
    if config.model.lora_rank:
        raise UserError(
            "beside `dph train` vLLM takes whole models, not adapters; train without model.lora_rank, or sample with "
            "--sampler.engine hf"
        )
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError(
            "beside `dph train` vLLM runs in one process on one GPU; for more use `dph verl`, or sample with "
            "--sampler.engine hf"
        )


def check_presample(config: PresampleConfig) -> None:
    """Raises UserError for a threshold that no prompt could reach."""
    if not 0 < config.threshold <= config.rollout.n:
        raise UserError(f"threshold {config.threshold} must lie between 1 and rollout.n = {config.rollout.n}")


def check_loss(config: LossConfig) -> None:
    """Raises UserError for settings of the objective that exclude each other or are out of range."""
    if config.clip_high < 0 or not 0 <= config.clip_low <= 1:
        raise UserError(
            f"loss.clip_low must lie in [0, 1] and loss.clip_high must not be negative, "
            f"but they are {config.clip_low} and {config.clip_high}"
        )
    if config.dual_clip and config.dual_clip <= 1:
        raise UserError(f"loss.dual_clip must be greater than 1, or 0 for off, but is {config.dual_clip}")
    if config.eta < 0:
        raise UserError(f"loss.eta must not be negative, but is {config.eta}; 0 trains without rehearsal")
    if config.aggregation == "dr_grpo" and config.dr_grpo_length < 1:
        raise UserError(
            f"loss.aggregation 'dr_grpo' needs loss.dr_grpo_length (the largest response length in tokens), "
            f"but it is {config.dr_grpo_length}"
        )
    if config.estimator == "definition" and config.divergence != "js":
        raise UserError(
            f"loss.estimator 'definition' exists for loss.divergence 'js' only, not for {config.divergence!r}; "
            "use estimator 'generator'"
        )
    if config.estimator != "definition" and config.js_scale != 1.0:
        raise UserError("loss.js_scale applies to loss.estimator 'definition' only; scale loss.eta instead")
    if config.kl == "none" and config.kl_coef:
        raise UserError(f"loss.kl_coef is {config.kl_coef} but loss.kl is 'none'; choose an estimator such as 'k3'")
    check_bounds(config, "loss.")
