"""Layers that keep fewer numbers for the backward pass, for training in bf16 on a CPU.

Under autocast, a root-mean-square norm of fp32 numbers keeps its input and the normed input, and each linear layer that
reads its output keeps a cast of it. A gated feed-forward layer keeps four tensors of its inner width. Here a norm keeps
its input and returns bf16, which is what linear layers read. A gated layer keeps the two tensors that it multiplies.
The forward pass gives the same numbers, bit for bit. In the backward pass, the gradients of the linear layers that read
a norm are added in bf16; the norm's own gradient is computed in fp32.

An input embedding that is also the output embedding gives its gradient for the tokens that were read only, which is
added to that of the output embedding. Otherwise a gradient of the whole vocabulary would be zeroed and added.
"""

from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

_TRIAL_TOKENS = 5


def make_lean(model: nn.Module) -> None:
    """Replace the forward pass of norms and gated layers where that changes no result of the model.

    It changes the model on a CPU under autocast and with gradients only. A layer is recognised by its parts, and by a
    trial that compares results; then one compares those of the whole model, whose other parts may read a norm's output.
    """
    _sparse_if_tied(model)
    alike: dict[type, bool] = {}
    changes: list[tuple[Any, Callable[..., Tensor]]] = []
    for part in model.modules():
        forward = _norm if _is_norm(part) else _gated if _is_gated(part) else None
        if forward is None or "forward" in vars(part):
            continue
        kind = type(part)
        if kind not in alike:
            alike[kind] = _same_output(part, forward)
        if alike[kind]:
            changes.append((part, forward))
    if not changes:
        return
    expected = _outputs(model)
    for part, forward in changes:
        part.forward = MethodType(forward, part)  # a copy of the model binds it to the copy's parts
    if not torch.equal(_outputs(model), expected):
        for part, _ in changes:
            del part.forward


def _active(x: Tensor) -> bool:
    return x.device.type == "cpu" and torch.is_autocast_enabled("cpu") and torch.is_grad_enabled()


def _sparse_if_tied(model: Any) -> None:
    """Let the input embedding give a sparse gradient if it is tied, so that the sum with the other one is dense."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if type(embedding) is nn.Embedding and type(head) is nn.Linear and head.weight is embedding.weight:
        embedding.sparse = True


# Norms ---------------------------------------------------------------------------------------------------------------


def _is_norm(part: nn.Module) -> bool:
    parameters = dict(part.named_parameters())
    epsilon = getattr(part, "variance_epsilon", None)
    return list(parameters) == ["weight"] and parameters["weight"].ndim == 1 and isinstance(epsilon, float)


def _norm(part: Any, hidden_states: Tensor) -> Tensor:
    wide = hidden_states.dtype == part.weight.dtype == torch.float32
    if not (wide and _active(hidden_states) and torch.get_autocast_dtype("cpu") == torch.bfloat16):
        return type(part).forward(part, hidden_states)
    return _Norm.apply(hidden_states, part.weight, part.variance_epsilon)


class _Norm(torch.autograd.Function):
    """w·x/√(mean x² + ε) of fp32 rows, in bf16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        inverse = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon)
        ctx.save_for_backward(x, weight, inverse)
        return (x * inverse).mul_(weight).to(torch.bfloat16)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight, inverse = ctx.saved_tensors
        normed, slope = x * inverse, grad.float()
        found = None
        if ctx.needs_input_grad[1]:
            found = (slope * normed).flatten(0, -2).sum(0)
        slope = slope.mul_(weight)  # of the normed rows
        along = (slope * normed).mean(-1, keepdim=True)
        return slope.sub_(normed.mul_(along)).mul_(inverse), found, None


# Gated feed-forward layers -------------------------------------------------------------------------------------------

_PARTS = ("gate_proj", "up_proj", "down_proj", "act_fn")


def _is_gated(part: nn.Module) -> bool:
    return all(isinstance(getattr(part, name, None), nn.Module) for name in _PARTS)


def _gated(part: Any, x: Tensor) -> Tensor:
    if not _active(x):
        return type(part).forward(part, x)
    x = x.to(torch.get_autocast_dtype("cpu"))
    return part.down_proj(_Gated.apply(part.gate_proj(x), part.up_proj(x)))


class _Gated(torch.autograd.Function):
    """silu(gate)·up, computed again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return nn.functional.silu(gate).mul_(up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        gate, up = ctx.saved_tensors
        return torch.ops.aten.silu_backward(grad * up, gate), grad * nn.functional.silu(gate)


# Trials --------------------------------------------------------------------------------------------------------------


def _same_output(part: Any, forward: Callable[..., Tensor]) -> bool:
    """Whether a part's other forward pass computes what its class does, as linear layers under autocast read it."""
    width = part.weight.shape[0] if forward is _norm else getattr(part.gate_proj, "in_features", 0)
    x = torch.randn(_TRIAL_TOKENS, width, generator=torch.Generator().manual_seed(0))
    try:
        with torch.enable_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            found, expected = forward(part, x), part(x)
        return torch.equal(found.to(torch.bfloat16), expected.to(torch.bfloat16))
    except (RuntimeError, TypeError, AttributeError):  # a part that takes other inputs
        return False


def _outputs(model: nn.Module) -> Tensor:
    """The model's logits of a few tokens, in bf16."""
    ids = torch.arange(3, 3 + _TRIAL_TOKENS)[None] % model.get_input_embeddings().num_embeddings  # type: ignore[operator]
    with torch.enable_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        return model(input_ids=ids, use_cache=False).logits.detach().to(torch.bfloat16)
