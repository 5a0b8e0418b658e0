"""What settings name: run directories, models, variables of chat templates; looked at before anything is loaded."""

import ast
import contextlib
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from dph.config.files import expanded, text_fault
from dph.config.text import parse_json, read_json
from dph.errors import RESUMED, ModelError, RunError, SettingsError, SharedUserError

_MODEL_FILES = ("config.json", "adapter_config.json")
_MODELS_INSIDE = ("model", "checkpoints/step-*/model", "step-*/model")
"""The places of models in a run's folder or in one of its checkpoints."""
OR_HF = "or sample with --sampler.engine hf"


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


def check_alone() -> None:
    """Raises UserError in each of several processes: vLLM samples in one."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise SharedUserError(f"vLLM runs in one process and on one GPU; train on more with `dph verl`, {OR_HF}")
