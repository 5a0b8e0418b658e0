"""Models in the cache: those of GGUF files, dequantised once into a folder that every stage can load."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from dph.errors import ModelError
from dph.models.language_model import save_tokenizer
from dph.process.progress import say
from dph.runs.files import cache_folder, directory_written_atomically, waiting_for


def model_folder(path: str) -> str:
    """Where a model is that the setting `model.path` names: the folder in the cache for a GGUF file or the name of a
    model there (`experiments/smollm2.py` writes one); anything else (a folder, a hub name) unchanged, but for a leading
    "~". Raises UserError as `folder_of` does.
    """
    if path.endswith(".gguf"):
        return str(folder_of(Path(path).expanduser()))
    kept = cache_folder() / "models" / path
    if path and Path(path).name == path and not Path(path).exists() and kept.is_dir():
        return str(kept)
    return str(Path(path).expanduser()) if path.startswith("~") else path


def folder_of(file: Path) -> Path:
    """The folder in the cache that holds the model of a GGUF file; it is written on first use.

    A file that was changed or replaced gets another folder. Raises UserError if the file cannot be read as a causal
    language model that transformers knows, if the package gguf is missing, or if the cache cannot be written.
    """
    try:
        file = file.resolve()
        status = file.stat()
    except OSError as error:
        raise ModelError(f"cannot read the model file {file}: {error.strerror}") from error
    key = hashlib.sha256(f"{file}\0{status.st_size}\0{status.st_mtime_ns}".encode()).hexdigest()[:12]
    return cached(f"{file.stem}-{key}", lambda folder: dequantise(file, folder))


def cached(name: str, write: Callable[[Path], None]) -> Path:
    """The folder `name` among the cache's models; `write(folder)` fills it if it is not there. Raises UserError if it
    cannot be written."""
    folder = cache_folder() / "models" / name
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with waiting_for(folder.parent):
            if not folder.is_dir():
                with directory_written_atomically(folder) as draft:
                    write(draft)
    except OSError as error:
        raise ModelError(
            f"cannot write the model folder {folder} ({error.strerror or error}); set the variable DPH_CACHE to a "
            "writable folder with enough space"
        ) from error
    return folder


def dequantise(file: Path, folder: Path) -> None:
    """Write the model of a GGUF file in fp32, with its tokenizer and chat template, into a folder."""
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise ModelError("reading GGUF files needs gguf; install it with: pip install 'dph-rl[llm]'") from error
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    say(f"dequantising {file.name}, once")
    if (file.parent / "adapter_config.json").exists():  # transformers would load these adapters, pickled or not
        raise ModelError(f"{file.parent} holds adapters too; move {file.name} into a folder of its own")
    place: dict[str, Any] = {
        "pretrained_model_name_or_path": str(file.parent),
        "gguf_file": file.name,
        "trust_remote_code": False,
    }
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(**place)
        _set_special_tokens(tokenizer, GGUFReader(file))
        model: Any = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.float32, **_dequantised())
        model.save_pretrained(folder)
        save_tokenizer(tokenizer, folder)
    except OSError as error:
        if error.errno is not None:  # of the system; transformers raises OSError without a number for bad files
            raise
        raise ModelError(_unreadable(file, error)) from error
    except Exception as error:  # damaged files make gguf and transformers raise many types
        raise ModelError(_unreadable(file, error)) from error


def _set_special_tokens(tokenizer: Any, reader: Any) -> None:
    """Take the ids of special tokens from the file's metadata: some versions of transformers guess them wrong."""
    for kind, key in {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}.items():
        field = reader.get_field(f"tokenizer.ggml.{key}_token_id")
        if field is not None:
            setattr(tokenizer, f"{kind}_token", tokenizer.convert_ids_to_tokens(int(field.parts[field.data[0]][0])))


def _unreadable(file: Path, error: Exception) -> str:
    return (
        f"cannot read a model from the GGUF file {file}: {' '.join(str(error).split())[:400] or type(error).__name__}"
    )


def _dequantised() -> dict[str, Any]:
    """The argument that makes transformers dequantise; older versions always do."""
    try:
        from transformers.utils.quantization_config import GgufConfig
    except ImportError:
        return {}
    return {"quantization_config": GgufConfig(dequantize=True)}
