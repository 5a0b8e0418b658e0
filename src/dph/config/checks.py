"""Settings that are out of bounds or contradict each other: found before anything is loaded, without torch."""

import ast
import contextlib
import dataclasses
import os
import re
import shlex
import typing
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any, Literal

from dph.config.components import Bounds, LossConfig, ModelConfig, RolloutConfig, read_fields
from dph.config.files import expanded, text_fault
from dph.config.sampling import DEFAULTS
from dph.config.stages import PresampleConfig, TrainConfig
from dph.config.text import parse_json, read_json
from dph.errors import RESUMED, ModelError, RunError, SettingsError, SharedUserError

_MODEL_FILES = ("config.json", "adapter_config.json")
_MODELS_INSIDE = ("model", "checkpoints/step-*/model", "step-*/model")
"""The places of models in a run's folder or in one of its checkpoints."""
_OR_HF = "or sample with --sampler.engine hf"


def check_bounds(config: Any, prefix: str = "") -> None:
    """Raises SettingsError that names the first field of a config, or of the configs in it, that is out of its bounds,
    or that is set although its stage does not read it."""
    hints = typing.get_type_hints(type(config), include_extras=True)
    for item, unread in read_fields(config):
        name, value = f"{prefix}{item.name}", getattr(config, item.name)
        for bounds in getattr(hints[item.name], "__metadata__", ()):
            if not isinstance(bounds, Bounds):
                continue
            if not isinstance(value, int | float) or not bounds.low <= value <= bounds.high:
                raise SettingsError(f"{name} is {value!r}; it must be {bounds.words}")
        if dataclasses.is_dataclass(value):
            for below in unread:
                if getattr(value, below) != getattr(getattr(type(config)(), item.name), below):
                    raise SettingsError(f"{name}.{below} is set, but this stage does not read it; leave it out")
            check_bounds(value, f"{name}.")
            if isinstance(value, ModelConfig):
                _check_rendering(value)
        elif isinstance(value, dict):
            for key, table in value.items():
                if dataclasses.is_dataclass(table):
                    if not re.fullmatch(r"[\w-]+", key):
                        raise SettingsError(f"{name} has {key!r}; a name has only letters, digits, - and _")
                    check_bounds(table, f"{name}.{key}.")


def _check_rendering(config: ModelConfig) -> None:
    """Raises SettingsError for a date that is none, and for a variable that no chat template can take."""
    template_variables(config.chat_template_kwargs)
    try:
        valid = date.fromisoformat(config.date).isoformat() == config.date  # other spellings are dates too
    except ValueError:
        valid = False
    if not valid:
        raise SettingsError(f"model.date is {config.date!r}; it must be a date like 2026-01-31")


_NO_VARIABLES = frozenset(
    {
        *("conversation", "messages", "tools", "documents", "chat_template", "add_generation_prompt"),
        *("continue_final_message", "tokenize", "sanitize_control_tokens", "padding", "truncation", "max_length"),
        *("return_tensors", "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs", "strftime_now"),
    }
)
"""What transformers' apply_chat_template takes itself, and so hands to no template, or what it computes."""


def template_variables(settings: Mapping[str, Any], where: str = "model.chat_template_kwargs") -> dict[str, Any]:
    """The variables of a chat template from settings, or from a row, whose texts may be JSON or Python's True, False
    and None. Raises SettingsError, naming `where`, for a name that is no variable of a template."""
    for name in settings:
        if not isinstance(name, str) or not name.isidentifier() or name in _NO_VARIABLES:
            hint = "; the date is the setting model.date" if name == "strftime_now" else ""
            raise SettingsError(f"{where} sets {name!r}, which is no variable of a chat template{hint}; leave it out")
    return {name: _template_value(value) for name, value in settings.items()}


def _template_value(value: Any) -> Any:
    """A variable's value: text that is JSON, or a value as Python writes it, becomes that value."""
    if not isinstance(value, str):
        return value
    with contextlib.suppress(ValueError):
        if not re.fullmatch(r"-?(NaN|Infinity)", value.strip()):  # no JSON, though Python reads it
            return parse_json(value)
    with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        if value in ("True", "False", "None") or value[:1] in ("[", "{"):  # of a TOML file, written down again
            return ast.literal_eval(value)
    return value


def check_out(out: str) -> None:
    """Raises SettingsError if no run directory is named."""
    if not out:
        raise SettingsError("no run directory was named; add --out DIRECTORY")
    if fault := text_fault(out):
        raise SettingsError(f"the run directory {out!r:.200} {fault}; name another with --out")


def check_model(path: str, flag: str = "--model.path") -> None:
    """Raises ModelError if no model is named by its flag, or if a path that can only be local leads to none."""
    folder = expanded(path)
    if not path:
        raise ModelError(f"no model was named; add {flag} with a directory or a hub name")
    if folder.is_file():
        raise ModelError(f"{path} is a file; give the directory of a model with {flag}")
    if not is_model_folder(folder) and (folder.is_dir() or is_local(path)):
        run = folder.parent if folder.name == "model" else folder
        configs = [sorted(run.glob(f"{pattern}/config.json")) for pattern in _MODELS_INSIDE]
        newest = [str(files[-1].parent) for files in configs if files]
        meant = f"did you mean {flag} {newest[0]}?" if newest else f"correct {flag}"
        lacking = f"cannot load a model from {path}: it holds no config.json"
        wrong = lacking if folder.is_dir() else f"there is no model directory {folder.absolute()}"
        raise ModelError(f"{wrong}{unfinished(run)}; {meant}")


def unfinished(run: Path) -> str:
    """ "; the run is unfinished: …" with the command that continues it; "" for a complete run and for none."""
    try:
        manifest = read_json(run / "manifest.json")
        stage = "" if manifest["status"] == "complete" else manifest["stage"]
    except (RunError, KeyError, TypeError):
        return ""
    command = f"dph {stage} --resume --out {shlex.quote(str(run))}"
    return f"; the run is unfinished: `{command}` continues it" if stage in RESUMED else ""


def is_model_folder(folder: Path) -> bool:
    """Whether a folder holds a model or an adapter."""
    return any((folder / name).is_file() for name in _MODEL_FILES)


def is_local(path: str) -> bool:
    """Whether a model's path can only be a directory. Names on a hub have at most one slash, in the middle; if both are
    possible, a first folder that exists decides."""
    first, slash, name = path.partition("/")
    return path.startswith((".", "/", "~")) or "/" in name or (bool(slash) and (not name or Path(first).is_dir()))


def ask_hub(name: str, file: str, kind: Literal["model", "dataset"] = "model") -> None:
    """Return if a repository is on the hub, with this file, which nearly every one has, or without it. Otherwise an
    error of the network, its library or the hub is raised within seconds; the types are many."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import EntryNotFoundError

    try:
        get_hf_file_metadata(hf_hub_url(name, file, repo_type=kind), timeout=5.0)
    except EntryNotFoundError:
        return


def check_train(config: TrainConfig) -> None:
    """Raises SettingsError for settings that contradict each other, before anything is loaded."""
    check_loss(config.loss)
    rows, rollout, buffer, shown = config.rehearsal.rows, config.rollout, config.overlong.buffer, config.show_samples
    if rows and config.loss.eta == 0:
        effect = f"rehearsal.rows is {rows} but loss.eta is 0, so stored responses would have no effect"
        raise SettingsError(f"{effect}; set loss.eta above 0, or rehearsal.rows to 0")
    if (rows or config.prompt_set != "all") and not config.rehearsal.path:
        method = f"method {config.method!r} needs a presampled partition"
        raise SettingsError(f"{method}; run `dph presample` and add --rehearsal.path RUN")
    if rollout.n < 2:
        raise SettingsError(f"rollout.n is {rollout.n}; advantages are relative to a group of at least 2 responses")
    check_sampled(rollout)
    if shown > (config.monitor.kept_responses if config.monitor.every else 0):
        remedy = "set monitor.every, and monitor.kept_responses to at least as many"
        raise SettingsError(
            f"show_samples is {shown}, but only responses that the monitor keeps can be shown; {remedy}"
        )
    if config.sampler.engine == "vllm":
        _check_vllm(config)
    if buffer > rollout.max_tokens:
        longer = f"overlong.buffer {buffer} is longer than a response may be (rollout.max_tokens {rollout.max_tokens})"
        raise SettingsError(f"{longer}, so even an empty response would be penalised; lower it")
    if rollout.prompts < config.optim.minibatches:
        cut = f"{config.optim.minibatches} mini-batches"
        raise SettingsError(f"rollout.prompts {rollout.prompts} cannot be split into {cut}; lower optim.minibatches")


def _check_vllm(config: TrainConfig) -> None:
    for name, value in config.rollout.truncations.items():
        raise SettingsError(
            f"vLLM does not report log-probabilities of the policy with rollout.{name} {value}; set it to "
            f"{DEFAULTS[name]}, {_OR_HF}"
        )
    if config.rollout.old_logprobs == "sampler":
        raise SettingsError("vLLM's log-probabilities are not exactly the trainer's; use rollout.old_logprobs auto")
    if config.model.lora_rank:
        raise SettingsError(f"in `dph train` vLLM takes whole models, no adapters; leave model.lora_rank out, {_OR_HF}")
    check_alone()


def check_alone() -> None:
    """Raises UserError in each of several processes: vLLM samples in one."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise SharedUserError(f"vLLM runs in one process and on one GPU; train on more with `dph verl`, {_OR_HF}")


def check_sampled(rollout: RolloutConfig) -> None:
    """Raises SettingsError for responses that are not sampled, in training and for what it stores."""
    if rollout.temperature <= 0:
        raise SettingsError("rollout.temperature must be above 0: greedy responses of a group would all be the same")


def check_repeats(rollout: RolloutConfig, n: int | None = None, name: str = "rollout.n") -> None:
    """Raises SettingsError for several responses to a prompt at temperature 0: they are the same, and pass@n would be
    pass@1. n: responses, if not the rollout's; name: of their setting."""
    n = rollout.n if n is None else n
    if rollout.temperature == 0 and n > 1:
        raise SettingsError(
            f"at temperature 0 all {n} responses to a prompt are the same, so that pass@{n} would be pass@1; set "
            f"{name} to 1, or the temperature above 0: greedy accuracy, which dph eval measures too, is of a response "
            "of its own at any temperature"
        )


def check_presample(config: PresampleConfig) -> None:
    """Raises SettingsError for a threshold that no prompt could reach, and for responses that are not sampled."""
    check_sampled(config.rollout)
    if not 0 < config.threshold <= config.rollout.n:
        raise SettingsError(f"threshold {config.threshold} must lie between 1 and rollout.n = {config.rollout.n}")


def check_loss(config: LossConfig) -> None:
    """Raises SettingsError for settings of the objective that exclude each other or are out of range."""
    check_bounds(config, "loss.")
    if config.dual_clip and config.dual_clip <= 1:
        raise SettingsError(f"loss.dual_clip must be greater than 1, or 0 for off, but is {config.dual_clip}")
    if config.estimator == "definition" and config.divergence != "js":
        estimator = "loss.estimator 'definition' exists for loss.divergence 'js' only"
        raise SettingsError(f"{estimator}, not for {config.divergence!r}; use estimator 'generator'")
    if config.estimator != "definition" and config.js_scale != 1.0:
        raise SettingsError("loss.js_scale applies to loss.estimator 'definition' only; scale loss.eta instead")
    if config.kl == "none" and config.kl_coef:
        raise SettingsError(f"loss.kl_coef is {config.kl_coef} but loss.kl is 'none'; choose an estimator such as 'k3'")
