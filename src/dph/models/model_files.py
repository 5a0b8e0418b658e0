"""Checks of a model's files before a library reads them: the weights are safetensors files in the model's own folder,
the settings have sizes that a model can have, and the kind is that of a causal language model. Each raises ModelError
for files that may not be read."""

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
    """A file of a model's folder or, downloaded, of its repository on the hub; None if it has no such file."""
    file = cached_file(model, name, _raise_exceptions_for_missing_entries=False)
    return None if file is None else Path(file)


_LARGEST = {"layer": 1000, "expert": 10_000, "label": 100_000, "head": 10_000}
"""By a part of their names, the largest numbers in a model's settings of which there is a Python object each."""


def check_sizes(model: str) -> None:
    """Raise UserError for settings that describe more parts than any model has: building them would take hours, and all
    memory, before the weights are compared with them."""
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
    """Raise UserError for chat templates whose names are no names: a tokenizer is written with a file for each, and a
    name with a path would lead out of the folder."""
    template = getattr(tokenizer, "chat_template", None)
    names = template if isinstance(template, dict) else {}
    fits = {name: isinstance(text, str) and _TEMPLATE_NAME.fullmatch(str(name)) for name, text in names.items()}
    wrong = [name for name in names if not fits[name]]
    if wrong or not isinstance(template, str | dict | None):
        what = f"a chat template named {wrong[0]!r:.100}" if wrong else "a chat template that is not a text"
        raise ModelError(f"the tokenizer of {model} has {what}; correct its tokenizer_config.json")


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


def refuse_pickles(folder: Path) -> None:
    """Raise UserError if a directory has only pickled weights."""
    pickles = [path.name for pattern in _PICKLES for path in sorted(folder.glob(pattern))] if folder.is_dir() else []
    adapter = "adapter_model.bin" in pickles and not (folder / "adapter_model.safetensors").exists()
    if pickles and (adapter or not any(folder.glob("*.safetensors"))):
        name = "adapter_model.bin" if adapter else pickles[0]
        raise ModelError(
            f"the weights of {folder} are pickled ({name}), and unpickling a file can run code; if you trust them, "
            "convert them to safetensors: load them with transformers and call save_pretrained"
        )


def refuse_links(folder: Path) -> None:
    """Raise UserError if a file of a model's folder is a link that leads out of it, but not within a hub's cache: a
    model that is trained further is saved with the texts in these files. Weights: `check_weight_files`."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        weights = path.name.endswith((".safetensors", _INDEX))
        if path.is_symlink() and not weights and not _is_inside(str(folder), path.name):
            leads = f"{path} is a link that leads out of the model's folder, and only files in that folder are read"
            raise ModelError(f"{leads}; put the file itself there")


def check_weight_files(model: str, config: Any) -> None:
    """Raise UserError if a model's index or settings name weights other than safetensors files of its own folder:
    transformers unpickles a file of another name, and follows a path that leads out of the folder."""
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
    """Whether a name, links followed, leads into a model's folder or, from the hub's cache, into the `blobs` there."""
    folder = Path(model).resolve()
    places = [folder, *([folder.parents[1] / "blobs"] if folder.parent.name == "snapshots" else [])]
    target = Path(os.path.realpath(folder / name))  # Path.resolve raises for a loop of links
    return any(target.is_relative_to(place) for place in places)
