"""How a transformers model is called, and its properties that decide how its outputs can be used."""

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
"""Names of the argument, and output, with keys, values and states of earlier tokens, the newest first."""
_TOLERANCE = 1e-4
"""Largest difference of logits in fp32, relative to the largest, that is taken for rounding, which is 1e-5 or less."""
_HEAD_TOLERANCE = 1e-5
"""The same for two ways to compute the same numbers with the same operations."""
_CHUNK, _LARGEST_CHUNK = 8, 512
_TOKENS_BEYOND_A_CHUNK = 15
"""The check's rows are this many tokens longer than a chunk, and differ in their last `_APART` tokens."""
_APART = 8


# How a model is called ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arguments:
    """Names of the arguments of a model's forward pass, from its signature. Models differ in them, and transformers
    renames them: `past_key_values` became `cache` in 5.24. Another name could be ignored, warn, or fail."""

    named: frozenset[str]
    cache: str | None
    """The argument for the cache; None if there is none."""

    @classmethod
    def of(cls, model: Any) -> "Arguments":
        """The arguments of a transformers model, or of the model that peft wraps."""
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        # A subclass may hand its arguments on, as forward(self, *args, **kwargs)
        inherited = (vars(parent)["forward"] for parent in type(base).__mro__ if "forward" in vars(parent))
        for forward in (base.forward, *inherited):
            named = frozenset(inspect.signature(forward).parameters)
            if "input_ids" in named:
                return cls(named, next((name for name in _CACHES if name in named), None))
        return cls(frozenset(), None)

    def taken(self, **arguments: Any) -> dict[str, Any]:
        """The arguments that the forward pass names. `cache` means the cache, whatever its name."""
        if "cache" in arguments and self.cache is not None:
            arguments[self.cache] = arguments.pop("cache")
        return {name: value for name, value in arguments.items() if name in self.named}


def evaluating(module: torch.nn.Module) -> AbstractContextManager[None]:
    """Context in which all parts of a model are in evaluation mode."""
    return replaced((part, "training", False) for part in module.modules() if part.training)


def without_wrapped_autocast(model: torch.nn.Module) -> AbstractContextManager[None]:
    """Context in which forward passes are the model's own: accelerate wraps them in an autocast of its own, which
    `torch.autocast(enabled=False)` around a call does not switch off."""
    wrapped: list[Any] = [part for part in model.modules() if "_original_forward" in vars(part)]
    return replaced((part, "forward", part._original_forward) for part in wrapped)


def recomputing(model: torch.nn.Module) -> AbstractContextManager[None]:
    """Context in which layers with gradient checkpointing recompute their activations. transformers does so in training
    mode only: a layer is in it until its checkpointing function is called, which calls the layer in evaluation mode."""
    layers: list[Any] = [part for part in model.modules() if isinstance(part, GradientCheckpointingLayer)]
    changes: list[tuple[Any, str, Any]] = []
    for layer in layers:
        if layer.gradient_checkpointing and torch.is_grad_enabled():
            function = partial(_evaluated, layer, layer._gradient_checkpointing_func)
            changes += [(layer, "_gradient_checkpointing_func", function), (layer, "training", True)]
    return replaced(changes)


def _evaluated(layer: Any, function: Callable[..., Any], call: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Call a layer's checkpointing function; the layer computes in evaluation mode, also in the backward pass."""

    def evaluated(*inputs: Any) -> Any:
        with evaluating(layer):
            return call(*inputs)

    return function(evaluated, *args, **named)


def has_noise(model: torch.nn.Module) -> bool:
    """Whether dropout (as a layer, or as a rate that the model's code reads) or NEFTune is active in any part."""
    for part in model.modules():
        if part.training:
            layer = isinstance(part, torch.nn.modules.dropout._DropoutNd)
            rates = [rate for name, rate in vars(part).items() if "drop" in name or (layer and name == "p")]
            if vars(part).get("neftune_noise_alpha") or any(isinstance(rate, float) and rate > 0 for rate in rates):
                return True
    return False


# Its head -------------------------------------------------------------------------------------------------------------


def agree(logits: Tensor, expected: Tensor, tolerance: float = _TOLERANCE) -> bool:
    """Whether logits are equal up to rounding in fp32."""
    return bool((logits - expected).abs().max() <= tolerance * (1 + expected.abs().max()))


@torch.no_grad()
def check_runs(model: Any) -> None:
    """Run a whole model on a few token ids.

    Raises UserError if it cannot run on token ids alone, or changes its weights when it runs.
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
    """A model's output embedding if the logits are its outputs for the decoder's last hidden states. None if the model
    computes logits in another way, for example scales or caps them. The model runs, in fp32, on a few tokens.

    model: a causal language model in evaluation mode, possibly with adapters. causal_lm: the same as transformers'
    class, with the adapters in its layers. Raises UserError if the logits after a token depend on later tokens or on
    the other rows of a batch: the sampler's log-probabilities would not be those of whole padded rows.
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
    """The largest size, in tokens, in which a model's settings say that it cuts a sequence, or a small number.

    Layers with a state compute a sequence in chunks, and may be exact only up to one chunk, or for whole chunks.
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
    """Whether the outputs at a token, `outputs` [L, …] for ids [1, L], are the same in a row of `longest` tokens and in
    shorter ones: layers may select tokens, or compute in another way, from some length on."""
    ids = torch.randint(vocabulary, (1, longest), generator=torch.Generator().manual_seed(0))
    together = outputs(ids).float()
    for length in {longest - 1, longest - _APART, longest // 2}:
        if length > 0 and len(differing(outputs(ids[:, :length]).float(), together[:length], _TOLERANCE)):
            return False
    return True


_CONTEXTS = ("max_position_embeddings", "max_seq_len", "max_target_positions", "n_positions", "n_ctx")
"""Names of the context in configs: MPT's is max_seq_len, decoders of speech have max_target_positions."""


def context_of(config: Any) -> int:
    """Longest row, in tokens, of a model with this config; huge without a limit (XLNet: -1)."""
    limit = int(next((found for name in _CONTEXTS if (found := getattr(config, name, None))), -1))
    return min(limit if limit > 0 else 1 << 30, rotary_limit(config))


def rotary_limit(config: Any) -> int:
    """Longest row, in tokens, for which a model's rotary embedding does not depend on the row's length: "longrope" has
    other frequencies beyond its original context, "dynamic" for every length beyond the context. The probabilities that
    tokens had when they were sampled would change as a longer row grows."""
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
    """Size, in tokens, of the smallest attention window or chunk of any layer, from the model's text config.

    The types of layers decide if the config lists them: transformers makes the masks by them.
    """
    types = getattr(config, "layer_types", None)
    slides = "sliding_attention" in types if types else getattr(config, "use_sliding_window", True)
    cuts = "chunked_attention" in types if types else True
    sizes = [slides and getattr(config, "sliding_window", None), cuts and getattr(config, "attention_chunk_size", None)]
    return min([int(size) for size in sizes if size], default=1 << 40)
