"""Load a model and its tokenizer from a folder or a hub, in a type and onto a device.

A failure is reported in one sentence. No code in the files is run, unless `trust_remote_code` is set. Weights are read
only from safetensors files in the folder of the model, because the older format (pytorch_model.bin) is a pickle, which
can contain code.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging as transformers_logging
from transformers.utils.import_utils import is_accelerate_available

from dph.config import EvaluatedModelConfig, SupervisedModelConfig, code_of, require
from dph.config.checks import ask_hub, check_model
from dph.config.files import expanded, irregular
from dph.config.text import read_json
from dph.errors import ModelError, UserError, is_out_of_memory, reason_of
from dph.models.adapters import add_adapters, refuse_adapters
from dph.models.device import choose_device, weight_type
from dph.models.faults import is_panic, load_report, mismatch_in, try_tokenizer, wrong_value
from dph.models.model_files import (
    check_sizes,
    check_templates,
    check_weight_files,
    file_of,
    refuse_links,
    refuse_other_kinds,
    refuse_pickles,
)
from dph.process.progress import say
from dph.runs.files import cache_folder


def load_model(config: EvaluatedModelConfig, seed: int = 0) -> tuple[Any, Any]:
    """A causal language model on its device, with adapters if the settings ask for them, and its tokenizer.

    seed: of the initial weights of adapters, which are the same in every process and on every device. Raises UserError
    if there is no model, a file is damaged, weights are pickled, missing or not finite, or the model needs code of its
    own and `trust_remote_code` is off.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    transformers_logging.disable_progress_bar()  # dph shows one bar for the whole stage
    device = choose_device(config.device)
    common = {"trust_remote_code": config.trust_remote_code}
    with _reading(config) as path:
        base = _base_of(path)
        settings = _settings(base, config.trust_remote_code)
        refuse_other_kinds(config.path, settings)
        check_weight_files(base, settings)
        tokenizer = AutoTokenizer.from_pretrained(path, **common)
        try_tokenizer(tokenizer)
        check_templates(config.path, tokenizer)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path,
            config=settings,
            dtype=weight_type(config.precision),
            attn_implementation=config.attention,
            use_safetensors=True,
            output_loading_info=True,
            # weights are read onto the device; without accelerate, each process first has all weights in host memory
            device_map=torch.empty(0, device=device).device if is_accelerate_available() else None,
            **common,
        )
        model, info = loaded
    _check_keys(config.path, info["missing_keys"], info["unexpected_keys"])
    if isinstance(config, SupervisedModelConfig) and config.gradient_checkpointing:
        # transformers 5.2x renamed this method, and warns about the old name
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    if isinstance(config, SupervisedModelConfig) and config.lora_rank:
        refuse_adapters(config.path, model)
        model = add_adapters(model, config, seed).eval()
    model.to(device)
    _check_finite(config.path, model)
    return model, tokenizer


def read_config(config: EvaluatedModelConfig) -> Any:
    """The settings in the files of a model. For a folder of adapters, they are the settings of the model that the
    adapters change. Raises UserError if they cannot be read."""
    with _reading(config) as path:
        return _settings(_base_of(path), config.trust_remote_code)


def load_tokenizer(config: EvaluatedModelConfig) -> Any:
    """The tokenizer of a model, without the model. Raises UserError as `load_model` does."""
    from transformers import AutoTokenizer

    with _reading(config) as path:
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=config.trust_remote_code)
        try_tokenizer(tokenizer)
        check_templates(config.path, tokenizer)
        return tokenizer


def _settings(path: str, trust_remote_code: bool) -> Any:
    """The settings of a model at a path (see `read_config`), without the implementation of attention or experts that
    its config.json may name. Such a name may be that of a repository whose code would be downloaded and run."""
    from transformers import AutoConfig

    check_sizes(path)
    config = AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code)
    for name in ("_attn_implementation", "_experts_implementation"):
        if hasattr(config, name):
            setattr(config, name, None)  # this also changes the configs inside this one
    return config


def from_hub(model: str) -> str:
    """The folder or the name from which to load a model. It is the argument itself, or the folder in the cache of the
    hub if the hub does not answer.

    The hub is asked once, because transformers would repeat each failed request for a minute. Raises UserError for a
    model that neither the hub nor its cache has.
    """
    if Path(model).is_dir():
        return model
    from huggingface_hub import try_to_load_from_cache

    try:
        ask_hub(model, "config.json")
    except Exception as error:  # errors of many types
        cached = try_to_load_from_cache(model, "config.json")
        if not isinstance(cached, str):
            raise ModelError(_load_failure(model, error)) from error
        return str(Path(cached).parent)
    return model


def _base_of(model: str) -> str:
    """The folder or the name of the model itself. For adapters, it is that of the model which the adapters change,
    unless this model is in the same folder. Raises UserError for pickled weights, and for adapters whose settings could
    import a module or open other files."""
    refuse_pickles(Path(model))
    file = file_of(model, "adapter_config.json")
    if file is None:
        return model
    adapters = read_json(file, kind=ModelError)
    if not isinstance(adapters, dict) or not {"peft_type", "base_model_name_or_path"} <= adapters.keys():
        raise ModelError(f"{file} does not say of which kind and model its adapters are; save them again with peft")
    if adapters["peft_type"] != "LORA" or adapters.get("megatron_config"):
        peft_type = f"{adapters['peft_type']}{' for Megatron' if adapters.get('megatron_config') else ''}"
        raise ModelError(f"the adapters of {model} are of the kind {peft_type}; only LoRA can be loaded, so merge them")
    if file_of(model, "adapter_model.safetensors") is None:
        raise ModelError(f"the adapters of {model} have no file adapter_model.safetensors; save them as safetensors")
    if (Path(model) / "config.json").is_file():  # the model is in the same folder
        return model
    base = from_hub(str(adapters["base_model_name_or_path"]))
    refuse_pickles(Path(base))
    return base


def _check_keys(path: str, missing: Any, unexpected: Any) -> None:
    """Raise UserError if weights are missing, because they would be random numbers. Report weights that are not
    used."""
    if missing:
        raise ModelError(
            f"cannot load a model from {path}: its files lack {len(missing)} of the weights that its config.json "
            f"describes, such as {min(missing)}; the files belong to another model or are incomplete"
        )
    if unexpected:
        say(f"{len(unexpected)} weights in the files of {path} are not used by the model, such as {min(unexpected)}")


@torch.no_grad()
def _check_finite(path: str, model: Any) -> None:
    for name, parameter in model.named_parameters():
        # The sum is quick, and is not finite if any weight is not. Finite weights may overflow it too, so that each
        # weight is then checked.
        if not torch.isfinite(parameter.sum()) and not torch.isfinite(parameter).all():
            raise ModelError(
                f"cannot load a model from {path}: the weights {name} are not all finite; they come from a failed "
                "training run, or the file is damaged"
            )


@contextmanager
def _reading(config: EvaluatedModelConfig) -> Iterator[str]:
    """Context in which the files of a model are read. Yields the folder or the name from which to load. An error of a
    library is raised as UserError with one sentence."""
    check_model(config.path)
    for code in code_of(config):
        require(code, f"the model {config.path}")
    model = from_hub(model_folder(config.path))
    refuse_links(Path(model))
    if odd := irregular(Path(model)):
        raise ModelError(f"cannot load a model from {config.path}: {odd} in it is not a regular file; remove it")
    with load_report() as reports:
        try:
            yield model
        except UserError:
            raise
        except BaseException as error:
            if is_out_of_memory(error) or not (isinstance(error, Exception) or is_panic(error)):
                raise
            code = config.trust_remote_code  # the files of a model with code are not searched for a fault
            raise ModelError(_load_failure(config.path, error, "" if code else model, reports)) from error


_TOKENIZER_FILES = ("tokenizer.json", "*.model", "vocab*", "*.tiktoken", "tekken.json", "*.py")
"""Patterns of file names. A folder that holds a tokenizer with its vocabulary has at least one such file."""


def _load_failure(path: str, error: BaseException, model: str = "", reports: Sequence[str] = ()) -> str:
    """The sentence for an error of a library. path: of the model, as the user gave it. model: the folder whose files
    are searched for a wrong value; "" searches none. reports: of transformers about the weights."""
    if (folder := Path(path)).is_dir() and not any(any(folder.glob(name)) for name in _TOKENIZER_FILES):
        return f"cannot load a model from {path}: it holds no tokenizer; save its base model's tokenizer into it"
    if mismatch := mismatch_in(reports):
        return f"cannot load a model from {path}: {mismatch}; the files belong to another model, so copy it again"
    config = file_of(model, "config.json") if model else None
    if config is not None and (wrong := wrong_value(config.parent)):
        value = f"{wrong}, which cannot be used" if " has " in wrong else f"its {wrong} cannot be used"
        return f"cannot load a model from {path}: {value} ({reason_of(error)}); correct it, or copy the model again"
    if folder.exists() or (model and Path(model).is_dir()):
        return f"cannot load a model from {path}: {reason_of(error)}; check its files, or copy the model again"
    return (
        f"cannot load the model {path!r}: there is no such directory, and downloading it from a model hub failed "
        f"({reason_of(error)}); give a local path, or check the name and the network"
    )


# Models in the cache ------------------------------------------------------------------------------------------------


def model_folder(path: str) -> str:
    """The place of the model that the setting `model.path` names. The name of a model in the cache becomes its folder
    there (`experiments/smollm2.py` writes such a model). Any other folder or hub name is returned unchanged, but for a
    "~" at its beginning."""
    kept = cache_folder() / "models" / path
    if path and Path(path).name == path and not Path(path).exists() and kept.is_dir():
        return str(kept)
    return str(expanded(path)) if path.startswith("~") else path
