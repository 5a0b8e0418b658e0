"""Load a model and its tokenizer from a directory or a hub, in a type and onto a device.

A failure is reported in one sentence. No code in the files is run. Weights are read only from safetensors files of the
model's own folder, because the older format (pytorch_model.bin) is a pickle, which can contain code.
"""

import os
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME
from transformers.utils import logging as transformers_logging
from transformers.utils.hub import cached_file
from transformers.utils.import_utils import is_accelerate_available

from dph.config import EvaluatedModelConfig, SupervisedModelConfig, code_of, require
from dph.config.checks import ask_hub, check_model
from dph.config.files import expanded, irregular
from dph.config.text import read_json
from dph.errors import ModelError, SettingsError, UserError, how_to_install, is_out_of_memory, reason_of
from dph.models.faults import is_panic, load_report, mismatch_in, try_tokenizer, wrong_value
from dph.process.distributed import World
from dph.process.progress import say
from dph.runs.directory import RunDir
from dph.runs.files import cache_folder

_INDEX = ".safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
_LOADING = ("is_local", "local_files_only")
"""Notes of transformers in a tokenizer about its loading, which it would write with it: whether from a directory,
and whether the hub was forbidden. A resumed run loads from its checkpoint, and must write the same files."""
CPU_CAPABILITIES = ("amx_bf16", "avx512_bf16")
"""Instructions with which a CPU multiplies matrices in bf16 faster than in fp32, as torch names them."""

M = TypeVar("M", bound=EvaluatedModelConfig)


def load_model(config: EvaluatedModelConfig, seed: int = 0) -> tuple[Any, Any]:
    """A causal language model on its device, with adapters if configured, and its tokenizer.

    seed: of the adapters' initial weights, which are the same in every process and on every device. Raises UserError if
    there is no model, a file is damaged, weights are pickled, missing or not finite, or the model needs code of its own
    and `trust_remote_code` is off.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    transformers_logging.disable_progress_bar()  # we show one bar for the whole stage
    device = choose_device(config.device)
    common = {"trust_remote_code": config.trust_remote_code}
    with _reading(config) as path:
        base = _base_of(path)
        settings = _settings(base, config.trust_remote_code)
        refuse_other_kinds(config.path, settings)
        _check_weight_files(base, settings)
        tokenizer = AutoTokenizer.from_pretrained(path, **common)
        try_tokenizer(tokenizer)
        _check_templates(config.path, tokenizer)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path,
            config=settings,
            dtype=weight_type(config.precision),
            attn_implementation=config.attention,
            use_safetensors=True,
            output_loading_info=True,
            # read by the device itself; without accelerate all weights would be in host memory first, in each process
            device_map=torch.empty(0, device=device).device if is_accelerate_available() else None,
            **common,
        )
        model, info = loaded
    _check_keys(config.path, info["missing_keys"], info["unexpected_keys"])
    if isinstance(config, SupervisedModelConfig) and config.gradient_checkpointing:
        # transformers 5.2x renamed it and warns about the old name
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    if isinstance(config, SupervisedModelConfig) and config.lora_rank:
        refuse_adapters(config.path, model)
        model = _add_adapters(model, config, seed).eval()
    model.to(device)
    _check_finite(config.path, model)
    return model, tokenizer


def read_config(config: EvaluatedModelConfig) -> Any:
    """The settings of a model's files; for a folder with adapters, of the model that it names. Raises UserError if they
    cannot be read."""
    with _reading(config) as path:
        return _settings(_base_of(path), config.trust_remote_code)


def load_tokenizer(config: EvaluatedModelConfig) -> Any:
    """A model's tokenizer alone. Raises UserError as `load_model`."""
    from transformers import AutoTokenizer

    with _reading(config) as path:
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=config.trust_remote_code)
        try_tokenizer(tokenizer)
        _check_templates(config.path, tokenizer)
        return tokenizer


def _settings(path: str, trust_remote_code: bool) -> Any:
    """As `read_config`, without the implementation of attention or experts that a config.json may name: perhaps a
    name of a repository whose code would be downloaded and run."""
    from transformers import AutoConfig

    _check_sizes(path)
    config = AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code)
    for name in ("_attn_implementation", "_experts_implementation"):
        if hasattr(config, name):
            setattr(config, name, None)  # also in the configs that this one contains
    return config


_LARGEST = {"layer": 1000, "expert": 10_000, "label": 100_000, "head": 10_000}
"""By a part of their names, the largest numbers in a model's settings of which there is a Python object each."""


def _check_sizes(model: str) -> None:
    """Raise UserError for settings that describe more parts than any model has: building them would take hours, and all
    memory, before the weights are compared with them."""
    file = _file_of(model, "config.json")
    try:
        tables = [] if file is None else [read_json(file, kind=ModelError)]
    except ModelError as error:
        raise ModelError(f"cannot load a model from {model}: {error}; copy the model again") from error
    for table in tables:
        if not isinstance(table, dict):
            raise ModelError(f"cannot load a model from {model}: config.json holds no object; copy the model again")
        tables += [value for value in table.values() if isinstance(value, dict)]
        for name, value in table.items():
            size = len(value) if isinstance(value, list | dict) else value
            most = min([most for part, most in _LARGEST.items() if part in str(name)], default=None)
            if most is not None and isinstance(size, int) and size > most:
                raise ModelError(f"{file} has {name} {size}, and at most {most} can be loaded; correct it")


_TEMPLATE_NAME = re.compile(r"[\w-]{1,100}")


def _check_templates(model: str, tokenizer: Any) -> None:
    """Raise UserError for chat templates whose names are no names: a tokenizer is written with a file for each, and a
    name with a path would lead out of the folder."""
    template = getattr(tokenizer, "chat_template", None)
    names = template if isinstance(template, dict) else {}
    fits = {name: isinstance(text, str) and _TEMPLATE_NAME.fullmatch(str(name)) for name, text in names.items()}
    wrong = [name for name in names if not fits[name]]
    if wrong or not isinstance(template, str | dict | None):
        what = f"a chat template named {wrong[0]!r:.100}" if wrong else "a chat template that is not a text"
        raise ModelError(f"the tokenizer of {model} has {what}; correct its tokenizer_config.json")


def from_hub(model: str) -> str:
    """What to load for a folder or a hub name: the same or, if the hub does not answer, the folder in its cache. The
    hub is asked once, because transformers would repeat each failed request for a minute. Raises UserError for a model
    that neither the hub nor its cache has."""
    if Path(model).is_dir():
        return model
    from huggingface_hub import try_to_load_from_cache

    try:
        ask_hub(model, "config.json")
    except Exception as error:  # of the network, its library, or the hub
        cached = try_to_load_from_cache(model, "config.json")
        if not isinstance(cached, str):
            raise ModelError(_load_failure(model, error)) from error
        return str(Path(cached).parent)
    return model


def refuse_other_kinds(path: str, config: Any) -> None:
    """Raise UserError for a model that is not a causal one. Some would load and see the tokens that they predict."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    names = config.architectures or []
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ModelError(
            f"cannot load a model from {path}: config.json has architectures {names!r:.80}, and not a list of names; "
            "correct it, or copy the model again"
        )
    is_causal = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING or hasattr(config, "auto_map")
    if not is_causal or config.is_encoder_decoder or any("MaskedLM" in name for name in names):
        raise ModelError(
            f"cannot load a model from {path}: its type is {config.model_type} ({', '.join(names)}), but only causal "
            "language models (decoders, which predict each token from those before it) can be sampled and trained"
        )


def _file_of(model: str, name: str) -> Path | None:
    """A file of a model's folder or, downloaded, of its repository on the hub; None if it has no such file."""
    file = cached_file(model, name, _raise_exceptions_for_missing_entries=False)
    return None if file is None else Path(file)


def _base_of(model: str) -> str:
    """The folder or name of the model itself: for adapters, of the one that they change. Raises UserError for pickled
    weights, and for adapters whose settings could import a module or open other files."""
    _refuse_pickles(Path(model))
    file = _file_of(model, "adapter_config.json")
    if file is None:
        return model
    adapters = read_json(file, kind=ModelError)
    if not isinstance(adapters, dict) or not {"peft_type", "base_model_name_or_path"} <= adapters.keys():
        raise ModelError(f"{file} does not say of which kind and model its adapters are; save them again with peft")
    if adapters["peft_type"] != "LORA" or adapters.get("megatron_config"):
        peft_type = f"{adapters['peft_type']}{' for Megatron' if adapters.get('megatron_config') else ''}"
        raise ModelError(f"the adapters of {model} are of the kind {peft_type}; only LoRA can be loaded, so merge them")
    if _file_of(model, "adapter_model.safetensors") is None:
        raise ModelError(f"the adapters of {model} have no file adapter_model.safetensors; save them as safetensors")
    if (Path(model) / "config.json").is_file():  # the model is in the same folder
        return model
    base = from_hub(str(adapters["base_model_name_or_path"]))
    _refuse_pickles(Path(base))
    return base


def refuse_adapters(path: str, model: Any) -> None:
    """Raise UserError for a model that was loaded from a folder of adapters: its own weights would not be saved."""
    if getattr(model, "_hf_peft_config_loaded", False):
        raise ModelError(
            f"{path} holds adapters, which can be sampled from but not trained; merge them into their model with "
            "peft's merge_and_unload, save that, and give its folder"
        )


def _refuse_pickles(folder: Path) -> None:
    """Raise UserError if a directory has only pickled weights."""
    pickles = [path.name for pattern in _PICKLES for path in sorted(folder.glob(pattern))] if folder.is_dir() else []
    adapter = "adapter_model.bin" in pickles and not (folder / "adapter_model.safetensors").exists()
    if pickles and (adapter or not any(folder.glob("*.safetensors"))):
        name = "adapter_model.bin" if adapter else pickles[0]
        raise ModelError(
            f"the weights of {folder} are pickled ({name}), and unpickling a file can run code; if you trust them, "
            "convert them to safetensors: load them with transformers and call save_pretrained"
        )


def _refuse_links(folder: Path) -> None:
    """Raise UserError if a file of a model's folder is a link that leads out of it, but not within a hub's cache: a
    model that is trained further is saved with the texts in these files. Weights: `_check_weight_files`."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        weights = path.name.endswith((".safetensors", _INDEX))
        if path.is_symlink() and not weights and not _is_inside(str(folder), path.name):
            leads = f"{path} is a link that leads out of the model's folder, and only files in that folder are read"
            raise ModelError(f"{leads}; put the file itself there")


def _check_weight_files(model: str, config: Any) -> None:
    """Raise UserError if a model's index or settings name weights other than safetensors files of its own folder:
    transformers unpickles a file of another name, and follows a path that leads out of the folder."""
    named = getattr(config, "transformers_weights", None)
    weights = [] if named is None else [str(named)]
    for index in (SAFE_WEIGHTS_INDEX_NAME, *(name for name in weights if name.endswith(_INDEX))):
        if not _is_inside(model, index):
            raise ModelError(_foreign(model, index))
        if file := _file_of(model, index):
            listed = read_json(file, kind=ModelError)
            if not isinstance(listed, dict) or not isinstance(listed.get("weight_map"), dict):
                raise ModelError(f"{file} has no weight_map, which names the file of each weight; save the model again")
            weights += {str(name) for name in listed["weight_map"].values()}
    for name in sorted(set(weights)):
        of_kind = name.endswith(".safetensors") or (name == named and name.endswith(_INDEX))
        if not of_kind or not _is_inside(model, name):
            raise ModelError(_foreign(model, name))


def _foreign(model: str, name: str) -> str:
    return (
        f"the files of {model} name the weights {name!r}, but weights are read from safetensors files in that folder "
        "only; correct its index or config.json, or save the model again"
    )


def _is_inside(model: str, name: str) -> bool:
    """Whether a name, links followed, leads into a model's folder or, from the hub's cache, into the `blobs` there."""
    folder = Path(model).resolve()
    places = [folder, *([folder.parents[1] / "blobs"] if folder.parent.name == "snapshots" else [])]
    target = Path(os.path.realpath(folder / name))  # Path.resolve raises for a loop of links
    return any(target.is_relative_to(place) for place in places)


def _check_keys(path: str, missing: Any, unexpected: Any) -> None:
    """Refuse missing weights, which would be random numbers; report unused ones."""
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
        # The sum is quick and not finite if any weight is not; finite weights may also overflow it, so check each then.
        if not torch.isfinite(parameter.sum()) and not torch.isfinite(parameter).all():
            raise ModelError(
                f"cannot load a model from {path}: the weights {name} are not all finite; they come from a failed "
                "training run, or the file is damaged"
            )


@contextmanager
def _reading(config: EvaluatedModelConfig) -> Iterator[str]:
    """Context of reading a model's files; yields what to load. What libraries raise becomes one sentence."""
    check_model(config.path)
    for code in code_of(config):
        require(code, f"the model {config.path}")
    model = from_hub(model_folder(config.path))
    _refuse_links(Path(model))
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
            code = config.trust_remote_code  # whose errors are not looked into
            raise ModelError(_load_failure(config.path, error, "" if code else model, reports)) from error


_TOKENIZER_FILES = ("tokenizer.json", "*.model", "vocab*", "*.tiktoken", "tekken.json", "*.py")
"""One of these is there if a folder holds a tokenizer with its vocabulary."""


def _load_failure(path: str, error: BaseException, model: str = "", reports: Sequence[str] = ()) -> str:
    """The sentence for an error of a library. model: what was loaded, whose files are searched for a wrong value."""
    if (folder := Path(path)).is_dir() and not any(any(folder.glob(name)) for name in _TOKENIZER_FILES):
        return f"cannot load a model from {path}: it holds no tokenizer; save its base model's tokenizer into it"
    if mismatch := mismatch_in(reports):
        return f"cannot load a model from {path}: {mismatch}; the files belong to another model, so copy it again"
    config = _file_of(model, "config.json") if model else None
    if config is not None and (wrong := wrong_value(config.parent)):
        value = f"{wrong}, which cannot be used" if " has " in wrong else f"its {wrong} cannot be used"
        return f"cannot load a model from {path}: {value} ({reason_of(error)}); correct it, or copy the model again"
    if folder.exists() or (model and Path(model).is_dir()):
        return f"cannot load a model from {path}: {reason_of(error)}; check its files, or copy the model again"
    return (
        f"cannot load the model {path!r}: there is no such directory, and downloading it from a model hub failed "
        f"({reason_of(error)}); give a local path, or check the name and the network"
    )


def _add_adapters(model: Any, config: SupervisedModelConfig, seed: int) -> Any:
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise ModelError(f"low-rank adapters need peft; install it with: {how_to_install('peft')}") from error
    targets = config.lora_targets
    lora = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=0.0,
        target_modules=targets if targets == "all-linear" else [name.strip() for name in targets.split(",")],
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        torch.manual_seed(seed)
        # peft warns of adapters of tied embeddings; a merged model has both embeddings (`dph.models.policy`)
        warnings.filterwarnings("ignore", "Model has `tie_word_embeddings=True`")
        # and reads a name that transformers has renamed
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        try:
            return get_peft_model(model, lora)
        except ValueError as error:
            raise SettingsError(
                f"model.lora_targets {targets!r} does not fit this model: {reason_of(error)}"
            ) from error


# Models in the cache ------------------------------------------------------------------------------------------------


def model_folder(path: str) -> str:
    """Where a model is that the setting `model.path` names: a model in the cache by its name (`experiments/smollm2.py`
    writes one); anything else (a folder, a hub name) unchanged, but for a leading "~"."""
    kept = cache_folder() / "models" / path
    if path and Path(path).name == path and not Path(path).exists() and kept.is_dir():
        return str(kept)
    return str(expanded(path)) if path.startswith("~") else path


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write a tokenizer: the same files for the same tokenizer, wherever it was loaded from."""
    for key in _LOADING:
        tokenizer.init_kwargs.pop(key, None)
    with as_os_errors(folder):
        tokenizer.save_pretrained(folder)


_OS_ERROR = re.compile(r"\(os error (\d+)\)")


@contextmanager
def as_os_errors(path: Path) -> Iterator[None]:
    """Raises OSError for what libraries written in Rust (tokenizers, safetensors) raise if a file cannot be written:
    an error of their own whose text ends with the system's number."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        if (number := _OS_ERROR.search(str(error))) is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error


# Types and devices ----------------------------------------------------------------------------------------------------


def weight_type(precision: str) -> torch.dtype:
    """The type in which a model's weights are kept, for a setting `model.precision`."""
    return torch.bfloat16 if precision == "bf16_master" else torch.float32


def choose_device(name: str) -> torch.device:
    """The device with this name; "auto" is CUDA if available, else the CPU. Raises UserError if it cannot be used
    here."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device).item()  # devices without storage, such as meta, fail here
    except (RuntimeError, AssertionError) as error:
        raise SettingsError(
            f"device {name!r} cannot be used here ({reason_of(error)}); try model.device cpu"
        ) from error
    return device


def computed_in(precision: str) -> str:
    """The precision of a policy, "fp32" or "bf16", for a setting `model.precision` other than "auto"."""
    return "fp32" if precision == "fp32" else "bf16"


def settled(model: M, run: RunDir, world: World | None = None) -> M:
    """A run's model settings without "auto": with the precision in its manifest, so that a resumed run keeps it on any
    device, or one that the leading process chooses and writes there."""
    if model.precision != "auto":
        return model
    chosen = (world or World()).decided(lambda: run.kept("precision", lambda: choose_precision(model)))
    return replace(model, precision=chosen)


def choose_precision(model: EvaluatedModelConfig) -> str:
    """ "fp32" or "bf16" for a model on its device; says which. It is bf16 on a GPU with products of this type (CUDA,
    capability 8.0 or more) and on a CPU with AMX-BF16 or AVX512-BF16, and fp32 on any other."""
    device = choose_device(model.device)
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        fast = device.type == "cpu" and any(torch.cpu.get_capabilities().get(name) for name in CPU_CAPABILITIES)
    precision = "bf16" if fast else "fp32"
    say(f"model.precision auto is {precision} on {device}")
    return precision
