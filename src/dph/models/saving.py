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
"""Notes that transformers keeps in a tokenizer about how it was loaded: whether from a directory, and whether the hub
was forbidden. transformers would save these notes with the tokenizer. A resumed run loads the tokenizer from its
checkpoint, and must write the same files as a run without a break."""


def save_model(model: Any, tokenizer: Any, path: Path, state: Mapping[str, Tensor] | None = None) -> None:
    """Write a model and its tokenizer into a folder.

    The weights are those of the model with adapters merged into them. After adapters of only one embedding were merged,
    the two embeddings differ. The config that is written then says that they are not tied, because loading would
    otherwise read one tensor for both.

    state: the weights to write; by default `merged_state` of the model. Raises OSError if a file cannot be written.
    """
    transformers_logging.disable_progress_bar()
    state = merged_state(model) if state is None else state
    configs = [model.config, model.config.get_text_config()]
    wrong = [x for x in configs if getattr(x, "tie_word_embeddings", False) and not ties_embeddings(model, state)]
    with replaced((config, "tie_word_embeddings", False) for config in wrong), as_os_errors(path):
        model.save_pretrained(path, state_dict=dict(state))
    save_tokenizer(tokenizer, path)


def weight_hash(model: Any) -> str:
    """A hash of the names and values of all weights of a model, without adapters. The type in which the weights are
    kept does not change the hash: all values are read as fp32."""
    digest = hashlib.blake2b(digest_size=16)
    for name, parameter in sorted(model.named_parameters()):
        if "lora_" in name:
            continue
        digest.update(name.replace(".base_layer", "").encode())
        digest.update(parameter.detach().to("cpu").float().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write a tokenizer into a folder. The files are the same wherever the tokenizer was loaded from. Raises OSError if
    a file cannot be written."""
    for key in _LOADING:
        tokenizer.init_kwargs.pop(key, None)
    with as_os_errors(folder):
        tokenizer.save_pretrained(folder)


_OS_ERROR = re.compile(r"\(os error (\d+)\)")


@contextmanager
def as_os_errors(path: Path) -> Iterator[None]:
    """Context in which a failure of a library to write a file is raised as OSError. Libraries written in Rust
    (tokenizers, safetensors) raise errors of their own, whose text ends with the error number of the system."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        if (number := _OS_ERROR.search(str(error))) is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
