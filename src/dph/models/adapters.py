"""Low-rank adapters of a model (LoRA, by peft). They are added for training, and merged into the weights when the model
is saved."""

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dph.config import SupervisedModelConfig
from dph.errors import ModelError, SettingsError, how_to_install, reason_of


def add_adapters(model: Any, config: SupervisedModelConfig, seed: int) -> Any:
    """The model with new adapters, wrapped by peft.

    seed: of the initial weights of the adapters, which are the same in every process. Raises UserError if peft is not
    installed, or if the model has no layers of the names in `model.lora_targets`.
    """
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
        # peft warns of adapters of tied embeddings, but a merged model is saved with both embeddings (`Policy.save`)
        warnings.filterwarnings("ignore", "Model has `tie_word_embeddings=True`")
        # peft reads a name that transformers has renamed
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        try:
            return get_peft_model(model, lora)
        except ValueError as error:
            raise SettingsError(
                f"model.lora_targets {targets!r} does not fit this model: {reason_of(error)}"
            ) from error


def refuse_adapters(path: str, model: Any) -> None:
    """Raise UserError for a model that was loaded from a folder of adapters, because the weights of the model itself
    would not be saved. path: of the folder, for the message."""
    if getattr(model, "_hf_peft_config_loaded", False):
        raise ModelError(
            f"{path} holds adapters, which can be sampled from but not trained; merge them into their model with "
            "peft's merge_and_unload, save that, and give its folder"
        )


def merged_state(model: Any) -> dict[str, Tensor]:
    """The state dict of a model with its adapters added to the weights.

    The weights of the model stay untouched, because adding the adapters and subtracting them again would not restore
    the weights exactly. Weights that are kept in bf16 in a model of fp32 (`dph.models.memory_saving`) are widened to
    fp32.
    """
    narrow, kept = torch.bfloat16 if model.dtype == torch.float32 else None, model.state_dict().items()
    state = {name: value.float() if value.dtype == narrow else value for name, value in kept if "lora_" not in name}
    for name, module in model.named_modules():
        if hasattr(module, "get_delta_weight") and hasattr(module, "base_layer"):
            key = f"{name}.base_layer.weight"
            state[key] = state[key] + module.get_delta_weight("default").to(state[key].dtype)
    return {name.replace(".base_layer", ""): value for name, value in state.items()}


def ties_embeddings(model: Any, state: Mapping[str, Tensor]) -> bool:
    """Whether the input and the output embedding are one tensor in a state dict. True also for a model that lacks one
    of the two."""
    names = {module: name for name, module in model.named_modules()}
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    weights = [state.get(f"{names.get(end)}.weight") for end in ends]
    return any(x is None for x in weights) or len({x.data_ptr() for x in weights if x is not None}) == 1
