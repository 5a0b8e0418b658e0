"""Checks of the files of a model before a library reads them.

The weights must be safetensors files in the folder of the model itself. The settings must describe sizes that a model
can have. The kind of the model must be that of a causal language model. Each check raises ModelError, a UserError, for
files that may not be read.
"""

import os
import re
from pathlib import Path
from typing import Any

from transformers.utils import SAFE_WEIGHTS_INDEX_NAME
from transformers.utils.hub import cached_file

from dph.config.text import read_json
from dph.errors import ModelError

_INDEX = ".safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")


def file_of(model: str, name: str) -> Path | None:
    """The path of a file of a model, in the folder of the model or, after a download, in the cache of its repository on
    the hub. None if the model has no such file."""
    file = cached_file(model, name, _raise_exceptions_for_missing_entries=False)
    return None if file is None else Path(file)


_LARGEST = {"layer": 1000, "expert": 10_000, "label": 100_000, "head": 10_000}
"""The largest numbers allowed in the settings of a model, by a part of the names of the settings. transformers builds a
Python object for each layer, expert, label or head."""


def check_sizes(model: str) -> None:
    """Raise UserError if config.json describes more parts than any model has, or holds no JSON object. Building so many
    parts would take hours and all memory before the weights are compared with them."""
    file = file_of(model, "config.json")
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


def check_templates(model: str, tokenizer: Any) -> None:
    """Raise UserError if a chat template of a tokenizer is no text, or has a name that is not a plain word. A tokenizer
    is saved with one file for each named template, and a name with a path in it would lead out of the folder."""
    template = getattr(tokenizer, "chat_template", None)
    names = template if isinstance(template, dict) else {}
    fits = {name: isinstance(text, str) and _TEMPLATE_NAME.fullmatch(str(name)) for name, text in names.items()}
    wrong = [name for name in names if not fits[name]]
    if wrong or not isinstance(template, str | dict | None):
        what = f"a chat template named {wrong[0]!r:.100}" if wrong else "a chat template that is not a text"
        raise ModelError(f"the tokenizer of {model} has {what}; correct its tokenizer_config.json")


def refuse_other_kinds(path: str, config: Any) -> None:
    """Raise UserError for a model that is not a causal language model. Some other models would load, but would see the
    tokens that they predict."""
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


def refuse_pickles(folder: Path) -> None:
    """Raise UserError if the only weights in a folder, or the only weights of its adapters, are pickled."""
    pickles = [path.name for pattern in _PICKLES for path in sorted(folder.glob(pattern))] if folder.is_dir() else []
    adapter = "adapter_model.bin" in pickles and not (folder / "adapter_model.safetensors").exists()
    if pickles and (adapter or not any(folder.glob("*.safetensors"))):
        name = "adapter_model.bin" if adapter else pickles[0]
        raise ModelError(
            f"the weights of {folder} are pickled ({name}), and unpickling a file can run code; if you trust them, "
            "convert them to safetensors: load them with transformers and call save_pretrained"
        )


def refuse_links(folder: Path) -> None:
    """Raise UserError if a file in the folder of a model is a link to a file outside the folder. A link within the
    cache of a hub is allowed. A model that is trained further is saved with the texts of these files, so that a link
    would copy a foreign file. `check_weight_files` checks the files of weights."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        weights = path.name.endswith((".safetensors", _INDEX))
        if path.is_symlink() and not weights and not _is_inside(str(folder), path.name):
            leads = f"{path} is a link that leads out of the model's folder, and only files in that folder are read"
            raise ModelError(f"{leads}; put the file itself there")


def check_weight_files(model: str, config: Any) -> None:
    """Raise UserError if the index or the settings of a model name weights that are not safetensors files in its own
    folder. transformers unpickles a file of another kind, and follows a path that leads out of the folder."""
    named = getattr(config, "transformers_weights", None)
    weights = [] if named is None else [str(named)]
    for index in (SAFE_WEIGHTS_INDEX_NAME, *(name for name in weights if name.endswith(_INDEX))):
        if not _is_inside(model, index):
            raise ModelError(_foreign(model, index))
        if file := file_of(model, index):
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
    """Whether a name, with all links followed, leads into the folder of a model or, in the cache of a hub, into the
    folder `blobs` of the cache."""
    folder = Path(model).resolve()
    places = [folder, *([folder.parents[1] / "blobs"] if folder.parent.name == "snapshots" else [])]
    target = Path(os.path.realpath(folder / name))  # Path.resolve raises for a loop of links
    return any(target.is_relative_to(place) for place in places)
