"""What a model is on disk and by its hash: weights with adapters merged, hashes of weights and tokenizer."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def weight_hash(model: Any) -> str:
    """Hash of the names and values of all weights, without adapters; not of the type in which they are kept."""
    digest = hashlib.blake2b(digest_size=16)
    for name, parameter in sorted(model.named_parameters()):
        if "lora_" in name:
            continue
        digest.update(name.replace(".base_layer", "").encode())
        digest.update(parameter.detach().to("cpu").float().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


_LOADING = ("is_local", "local_files_only")
"""What transformers notes in a tokenizer about how it was loaded, and would write with it: whether from a directory,
and whether the hub was forbidden. A resumed run loads from its checkpoint, and must write the same files."""


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write a tokenizer: the same files for the same tokenizer, wherever it was loaded from."""
    for key in _LOADING:
        tokenizer.init_kwargs.pop(key, None)
    tokenizer.save_pretrained(folder)


def tokenizer_hash(tokenizer: Any) -> str:
    """Hash of everything in a tokenizer that determines how text is tokenised, the chat template included."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    state = backend.to_str() if backend is not None else repr(sorted(tokenizer.get_vocab().items()))
    template = getattr(tokenizer, "chat_template", None)
    return hashlib.blake2b(f"{state}\x1f{template}".encode(), digest_size=16).hexdigest()


def merged_state(model: Any) -> dict[str, Tensor]:
    """State dict of a model with its adapters added to the weights.

    The live weights stay untouched: adding the adapters and subtracting them again would not restore them exactly.
    """
    state = {name: value for name, value in model.state_dict().items() if "lora_" not in name}
    for name, module in model.named_modules():
        if hasattr(module, "get_delta_weight") and hasattr(module, "base_layer"):
            key = f"{name}.base_layer.weight"
            state[key] = state[key] + module.get_delta_weight("default").to(state[key].dtype)
    return {name.replace(".base_layer", ""): value for name, value in state.items()}


def save_model(model: Any, state: Mapping[str, Tensor], path: Path) -> None:
    """Write a model with these weights.

    Its config says that the embeddings are not tied if they differ, as after adapters of one of them were merged. Other
    programs believe the config, and would read one for both.
    """
    configs = [model.config, model.config.get_text_config()]
    wrong = [x for x in configs if getattr(x, "tie_word_embeddings", False) and not _ties(model, state)]
    for config in wrong:
        config.tie_word_embeddings = False
    try:
        model.save_pretrained(path, state_dict=dict(state))
    finally:
        for config in wrong:
            config.tie_word_embeddings = True


def _ties(model: Any, state: Mapping[str, Tensor]) -> bool:
    """Whether input and output embedding are one tensor in a state dict, or the model has not both."""
    names = {module: name for name, module in model.named_modules()}
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    found = [state.get(f"{names.get(end)}.weight") for end in ends]
    return any(x is None for x in found) or len({x.data_ptr() for x in found if x is not None}) == 1
