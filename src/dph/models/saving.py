"""The files of a model: weights, config and tokenizer, as AutoModelForCausalLM and vLLM load them."""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.utils import logging as transformers_logging

from dph.models.adapters import merged_state, ties_embeddings
from dph.models.capability import replaced

_LOADING = ("is_local", "local_files_only")
"""Notes of transformers in a tokenizer about its loading, which it would write with it: whether from a directory,
and whether the hub was forbidden. A resumed run loads from its checkpoint, and must write the same files."""


def save_model(model: Any, tokenizer: Any, path: Path, state: Mapping[str, Tensor] | None = None) -> None:
    """Write a model and its tokenizer into a folder.

    Embeddings that differ, as after adapters of one of them were merged, are not tied in the config that is written:
    loading would read one tensor for both.

    state: the weights to write; by default `merged_state` of the model.
    """
    transformers_logging.disable_progress_bar()
    state = merged_state(model) if state is None else state
    configs = [model.config, model.config.get_text_config()]
    wrong = [x for x in configs if getattr(x, "tie_word_embeddings", False) and not ties_embeddings(model, state)]
    with replaced((config, "tie_word_embeddings", False) for config in wrong), as_os_errors(path):
        model.save_pretrained(path, state_dict=dict(state))
    save_tokenizer(tokenizer, path)


def weight_hash(model: Any) -> str:
    """Hash of the names and values of all weights, without adapters; not of the type in which they are kept."""
    digest = hashlib.blake2b(digest_size=16)
    for name, parameter in sorted(model.named_parameters()):
        if "lora_" in name:
            continue
        digest.update(name.replace(".base_layer", "").encode())
        digest.update(parameter.detach().to("cpu").float().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


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
