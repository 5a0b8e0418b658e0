"""Attention over packed rows inside a transformers model, where every common prefix is stored once.

A token of a branch attends to the whole stem and to its own branch up to itself (see `dph.models.packing`).
`dph.models.attention` has the ways to compute this. Here it is registered with transformers' attention interface under
`NAME`. A model uses it inside the context `shared_attention` and receives the layout as the keyword argument
`prefix_layout`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

from dph.models.attention import implementation
from dph.models.packing import PrefixLayout
from dph.models.trial import Unsupported

NAME = "dph_shared_prefix"


class NotShareable(Unsupported):
    """The model's attention cannot be split into stem and branches; the message is the reason."""


_HARMLESS = frozenset({"position_ids", "use_cache"})
"""Keyword arguments that models hand on to attention and that do not change it. For others see `refuse_unknown`."""


def refuse_unknown(arguments: Mapping[str, Any]) -> None:
    """Raise NotShareable if a model hands its attention anything that could change it: caps on scores, sinks, biases,
    indices of selected tokens, and whatever else a new model may think of."""
    for name, value in sorted(arguments.items()):
        if name not in _HARMLESS and not name.startswith("output_") and value is not None and value is not False:
            raise NotShareable(f"its attention uses {name}")


def shared_prefix_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    prefix_layout: PrefixLayout | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """Attention over N packed tokens, with the signature of transformers' attention interface.

    Args:
        query: [1, H, N, D].
        key, value: [1, G, N, D].
        prefix_layout: which tokens attend to which.
        scaling: multiplies the scores; 1/√D if None.
    Returns:
        Outputs [1, N, H, D]; None for the attention weights, which are not computed.
    Raises:
        NotShareable: the model needs anything but causal softmax attention.
    """
    if prefix_layout is None or query.shape[0] != 1:
        raise NotShareable("its layers do not pass their keyword arguments on to attention")
    if dropout or attention_mask is not None or query.shape[-1] != value.shape[-1]:
        raise NotShareable("its attention uses dropout, a mask or values of another width")
    refuse_unknown(more)
    if sliding_window is not None and prefix_layout.longest > sliding_window:
        raise NotShareable(f"its attention window has only {sliding_window} tokens")
    if torch.is_autocast_enabled(query.device.type):
        dtype = torch.get_autocast_dtype(query.device.type)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out = implementation(q, k)(q, k, v, prefix_layout, scale)
    return out[None], None


AttentionInterface.register(NAME, shared_prefix_attention)


@contextmanager
def _implementation(configs: list[Any]) -> Iterator[None]:
    """Context in which the models with these configs use this file's attention."""
    before = [config._attn_implementation for config in configs]
    try:
        for config in configs:
            config._attn_implementation = NAME
        yield
    finally:
        for config, name in zip(configs, before, strict=True):
            config._attn_implementation = name


@contextmanager
def shared_attention(decoder: torch.nn.Module) -> Iterator[None]:
    """Context in which a transformers decoder uses `shared_prefix_attention`.

    Layers with gradient checkpointing also use it when they recompute in the backward pass, after the context ended.
    """
    modules: list[Any] = list(decoder.modules())
    configs = list({id(part.config): part.config for part in modules if hasattr(part, "config")}.values())
    recomputing = [part for part in modules if getattr(part, "gradient_checkpointing", False)]
    before = [part._gradient_checkpointing_func for part in recomputing]
    try:
        for part, function in zip(recomputing, before, strict=True):
            part._gradient_checkpointing_func = partial(
                function, context_fn=lambda: (nullcontext(), _implementation(configs))
            )
        with _implementation(configs):
            yield
    finally:
        for part, function in zip(recomputing, before, strict=True):
            part._gradient_checkpointing_func = function
