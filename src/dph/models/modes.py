"""Modes of a model's parts: a policy computes in evaluation mode, also where layers recompute their activations."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from transformers.modeling_layers import GradientCheckpointingLayer


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Context in which all parts of a model are in evaluation mode."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


@contextmanager
def recomputing(model: torch.nn.Module) -> Iterator[None]:
    """Context in which layers with gradient checkpointing recompute their activations.

    transformers recomputes a layer only if it is in training mode. So the layer is in this mode until its
    checkpointing function is called, which calls the layer itself in evaluation mode.
    """
    layers: list[Any] = [part for part in model.modules() if isinstance(part, GradientCheckpointingLayer)]
    layers = [layer for layer in layers if layer.gradient_checkpointing and torch.is_grad_enabled()]
    functions = [layer._gradient_checkpointing_func for layer in layers]
    for layer, function in zip(layers, functions, strict=True):
        layer._gradient_checkpointing_func = partial(_evaluated, layer, function)
        layer.training = True
    try:
        yield
    finally:
        for layer, function in zip(layers, functions, strict=True):
            layer._gradient_checkpointing_func = function
            layer.training = False


def _evaluated(layer: Any, function: Callable[..., Any], call: Callable[..., Any], *args: Any, **more: Any) -> Any:
    """Call a layer's checkpointing function; the layer computes in evaluation mode, also in the backward pass."""

    def evaluated(*inputs: Any) -> Any:
        with evaluating(layer):
            return call(*inputs)

    return function(evaluated, *args, **more)
