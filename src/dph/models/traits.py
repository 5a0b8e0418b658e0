"""How to call a transformers model, and the properties of a model that decide how its outputs can be used."""

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_layers import GradientCheckpointingLayer

from dph.errors import ModelError
from dph.models.capability import differing, replaced, says_of_model

_CACHES = ("cache", "past_key_values", "cache_params")
"""The names that transformers uses for the argument, and the output, that holds keys, values and states of earlier
tokens. The newest name comes first."""
_TOLERANCE = 1e-4
"""The largest difference of logits in fp32, relative to the largest logit, that is taken for rounding. Rounding causes
a difference of 1e-5 or less."""
_HEAD_TOLERANCE = 1e-5
"""The same tolerance for two computations of the same numbers by the same operations."""
_CHUNK, _LARGEST_CHUNK = 8, 512
_TOKENS_BEYOND_A_CHUNK = 15
"""The rows of the check are this many tokens longer than a chunk. They differ in their last `_APART` tokens."""
_APART = 8


# How a model is called ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arguments:
    """The names of the arguments of the forward pass of a model, from its signature.

    Models differ in these names, and transformers renames them: `past_key_values` became `cache` in version 5.24. An
    argument with a wrong name could be ignored, cause a warning, or fail.
    """

    named: frozenset[str]
    cache: str | None
    """The name of the argument for the cache; None if the model has no cache."""

    @classmethod
    def of(cls, model: Any) -> "Arguments":
        """The arguments of a transformers model, or of the model that peft wraps."""
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        # A subclass may only hand its arguments on, as forward(self, *args, **kwargs)
        inherited = (vars(parent)["forward"] for parent in type(base).__mro__ if "forward" in vars(parent))
        for forward in (base.forward, *inherited):
            named = frozenset(inspect.signature(forward).parameters)
            if "input_ids" in named:
                return cls(named, next((name for name in _CACHES if name in named), None))
        return cls(frozenset(), None)

    def taken(self, **arguments: Any) -> dict[str, Any]:
        """Those of the given arguments that the forward pass has. The key `cache` means the argument for the cache,
        whatever name the model has for it."""
        if "cache" in arguments and self.cache is not None:
            arguments[self.cache] = arguments.pop("cache")
        return {name: value for name, value in arguments.items() if name in self.named}


def evaluating(module: torch.nn.Module) -> AbstractContextManager[None]:
    """Context in which all parts of a model are in evaluation mode."""
    return replaced((part, "training", False) for part in module.modules() if part.training)


def without_wrapped_autocast(model: torch.nn.Module) -> AbstractContextManager[None]:
    """Context in which the forward passes are those of the model itself. accelerate wraps them in an autocast of its
    own, which `torch.autocast(enabled=False)` around a call does not switch off."""
    wrapped: list[Any] = [part for part in model.modules() if "_original_forward" in vars(part)]
    return replaced((part, "forward", part._original_forward) for part in wrapped)


def recomputing(model: torch.nn.Module) -> AbstractContextManager[None]:
    """Context in which layers with gradient checkpointing recompute their activations in the backward pass.

    transformers does so in training mode only. In this context, such a layer is in training mode until its
    checkpointing function is called, and the function calls the layer in evaluation mode.
    """
    layers: list[Any] = [part for part in model.modules() if isinstance(part, GradientCheckpointingLayer)]
    changes: list[tuple[Any, str, Any]] = []
    for layer in layers:
        if layer.gradient_checkpointing and torch.is_grad_enabled():
            function = partial(_evaluated, layer, layer._gradient_checkpointing_func)
            changes += [(layer, "_gradient_checkpointing_func", function), (layer, "training", True)]
    return replaced(changes)


def _evaluated(layer: Any, function: Callable[..., Any], call: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Call the checkpointing function of a layer. The layer computes in evaluation mode, also in the backward pass."""

    def evaluated(*inputs: Any) -> Any:
        with evaluating(layer):
            return call(*inputs)

    return function(evaluated, *args, **named)


def has_noise(model: torch.nn.Module) -> bool:
    """Whether dropout or NEFTune is active in any part of a model. Dropout may be a layer, or a rate that the code of
    the model reads."""
    for part in model.modules():
        if part.training:
            layer = isinstance(part, torch.nn.modules.dropout._DropoutNd)
            rates = [rate for name, rate in vars(part).items() if "drop" in name or (layer and name == "p")]
            if vars(part).get("neftune_noise_alpha") or any(isinstance(rate, float) and rate > 0 for rate in rates):
                return True
    return False


# The head of a model --------------------------------------------------------------------------------------------------


def agree(logits: Tensor, expected: Tensor, tolerance: float = _TOLERANCE) -> bool:
    """Whether logits are equal to the expected logits up to rounding in fp32. tolerance: relative to the largest
    logit."""
    return bool((logits - expected).abs().max() <= tolerance * (1 + expected.abs().max()))


@torch.no_grad()
def check_runs(model: Any) -> None:
    """Run a whole model on a few token ids.

    Raises UserError if the model cannot run on token ids alone, or if running changes its weights.
    """
    before, vocabulary = _sums(model), int(model.config.get_text_config().vocab_size)
    ids = torch.tensor([[token % vocabulary for token in (3, 4, 5)]], device=next(model.parameters()).device)
    try:
        model(input_ids=ids, use_cache=False)
    except Exception as error:
        if not (says_of_model(error) or isinstance(error, TypeError)):  # it may need other arguments
            raise
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ModelError(f"the model cannot be used, because it does not run on token ids alone ({reason})") from error
    if not torch.equal(_sums(model), before):
        raise ModelError("the model cannot be used, because its weights change whenever it runs")


@torch.no_grad()
def plain_head(model: Any, causal_lm: Any) -> Any:
    """The output embedding of a model, if it turns the last hidden states of the decoder into the logits of the model.

    None if the model computes logits in another way, for example if it scales or caps them. The model runs on a few
    tokens, in fp32.

    Args:
        model: a causal language model in evaluation mode, possibly with adapters.
        causal_lm: the same model as the class of transformers, with the adapters in its layers.
    Raises:
        UserError: the logits after a token depend on later tokens, or on the other rows of a batch. The
            log-probabilities of the sampler would not be those of whole padded rows.
    """
    config = model.config.get_text_config()
    device = next(model.parameters()).device
    length = min(_chunk(config) + _TOKENS_BEYOND_A_CHUNK, context_of(config))
    kept = max(1, length - _APART)
    first = [(3 + 5 * step) % config.vocab_size for step in range(length)]
    second = [*first[:kept], *((4 + 7 * step) % config.vocab_size for step in range(length - kept))]
    pair, alone = torch.tensor([first, second], device=device), torch.tensor([first[:kept]], device=device)
    together, expected = (model(input_ids=ids, use_cache=False).logits.float() for ids in (pair, alone))
    if expected.isfinite().all() and not agree(together[:, :kept], expected):
        raise ModelError(
            "the model cannot be used, because it is not causal: its prediction of a token changes with later tokens "
            "or with the other rows of a batch; choose another model or version of transformers, or set is_decoder in "
            "config.json if it has that"
        )
    return _head_of(causal_lm, alone, expected)


def _chunk(config: Any) -> int:
    """The largest size, in tokens, of the chunks into which a model cuts a sequence, as far as its settings tell; at
    least 8, and sizes above 512 are not counted.

    Layers with a state compute a sequence in chunks, and may be exact only up to one chunk, or only for whole chunks.
    """
    sizes = [size for name, size in config.to_dict().items() if "chunk" in name and type(size) is int]
    return max([_CHUNK, *(size for size in sizes if size <= _LARGEST_CHUNK)])


def _sums(model: Any) -> Tensor:
    """The sum of each weight tensor, as an integer with the same bits, so that NaN equals NaN."""
    return torch.stack([parameter.float().sum().view(torch.int32) for parameter in model.parameters()])


def _head_of(causal_lm: Any, ids: Tensor, expected: Tensor) -> Any:
    """The output embedding if it turns the decoder's hidden states into the expected logits, else None."""
    try:
        embedding, decoder = causal_lm.get_output_embeddings(), causal_lm.get_decoder()
        if "input_ids" not in Arguments.of(decoder).named:
            return None
        computed = embedding(decoder(input_ids=ids, use_cache=False).last_hidden_state).float()
        same = computed.shape == expected.shape and embedding.weight.shape[0] == expected.shape[-1]
    except Exception as error:  # there are models without such parts
        if not says_of_model(error):
            raise
        return None
    return embedding if same and (computed - expected).abs().max() <= _HEAD_TOLERANCE * expected.abs().max() else None


# Lengths --------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def is_causal(outputs: Callable[[Tensor], Tensor], vocabulary: int, longest: int) -> bool:
    """Whether the outputs at a token are the same in a row of `longest` tokens and in shorter rows. Layers may select
    tokens, or compute in another way, from some length on.

    outputs: returns the outputs [L, …] for ids [1, L]. vocabulary: the number of token ids to draw from.
    """
    ids = torch.randint(vocabulary, (1, longest), generator=torch.Generator().manual_seed(0))
    together = outputs(ids).float()
    for length in {longest - 1, longest - _APART, longest // 2}:
        if length > 0 and len(differing(outputs(ids[:, :length]).float(), together[:length], _TOLERANCE)):
            return False
    return True


_CONTEXTS = ("max_position_embeddings", "max_seq_len", "max_target_positions", "n_positions", "n_ctx")
"""The names of the context length in configs. MPT calls it max_seq_len, and decoders of speech call it
max_target_positions."""


def context_of(config: Any) -> int:
    """The length, in tokens, of the longest row that a model with this config takes. The length is huge for a model
    without a limit (XLNet gives −1)."""
    limit = int(next((found for name in _CONTEXTS if (found := getattr(config, name, None))), -1))
    return min(limit if limit > 0 else 1 << 30, rotary_limit(config))


def rotary_limit(config: Any) -> int:
    """The length, in tokens, of the longest row for which the rotary embedding of a model does not depend on the length
    of the row; huge without such a limit.

    "longrope" has other frequencies beyond the original context of the model, and "dynamic" has other frequencies for
    every length beyond the context. In a longer row, the probabilities that tokens had when they were sampled would
    change as the row grows.
    """
    limit = 1 << 62
    parameters = getattr(config, "rope_parameters", None) or {}
    ropes = [parameters, *(value for value in parameters.values() if isinstance(value, dict))]  # for all or by layer
    for rope in ropes:
        name = rope.get("rope_type", "")
        if name == "longrope":
            limit = min(limit, int(rope["original_max_position_embeddings"]))
        elif "dynamic" in name:
            limit = min(limit, int(config.max_position_embeddings))
    return limit


def attention_window(config: Any) -> int:
    """The size, in tokens, of the smallest attention window or chunk of any layer, from the text config of a model;
    huge if no layer has one.

    If the config lists the types of the layers, they decide, because transformers makes the masks by them.
    """
    types = getattr(config, "layer_types", None)
    slides = "sliding_attention" in types if types else getattr(config, "use_sliding_window", True)
    cuts = "chunked_attention" in types if types else True
    sizes = [slides and getattr(config, "sliding_window", None), cuts and getattr(config, "attention_chunk_size", None)]
    return min([int(size) for size in sizes if size], default=1 << 40)
