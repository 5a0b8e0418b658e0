"""Layers that keep fewer numbers for the backward pass and take fewer kernels, for training in bf16 under autocast.

Under autocast, a root-mean-square norm of fp32 numbers keeps its input and the normed input, and each linear layer that
reads its output keeps a cast of it. A gated feed-forward layer keeps four tensors of its inner width. Here a norm keeps
its input and returns bf16, which is what linear layers read. A gated layer keeps the two tensors that it multiplies,
and multiplies them again in the backward pass.
In the backward pass, the gradients of the linear layers that read a norm are added in bf16; the norm's own gradient is
computed in fp32.

On a CPU the forward pass gives the same numbers, bit for bit. On a GPU a norm is torch's fused kernel, which adds in
another order; it also serves passes without gradients, so that sampling and training compute alike.

On a CPU, an input embedding that is also the output embedding gives its gradient for the tokens that were read only,
which is added to that of the output embedding. Otherwise a gradient of the whole vocabulary would be zeroed and added.
"""

from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

_TRIAL_TOKENS = 5
_UNIT = torch.finfo(torch.bfloat16).eps
"""On a GPU, the outputs and gradients of a changed layer may differ by this share of their norm."""
_LARGEST_ERROR = 1.5
"""On a GPU, the changed model may have this many times the error of the model's own bf16, against fp32."""


def make_lean(model: nn.Module) -> None:
    """Replace the forward pass of norms and gated layers where that changes no result of the model.

    It changes the model under autocast only and, on a CPU, with gradients only. A layer is recognised by its parts, and
    by a trial that compares results; then one compares those of the whole model, whose other parts may read a norm's
    output.
    """
    if _device(model).type == "cpu":
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
    exact = _outputs(model, autocast=False) if _fuses(expected.device) else expected
    for part, forward in changes:
        part.forward = MethodType(forward, part)  # a copy of the model binds it to the copy's parts
    if not _as_good(_outputs(model), expected, exact):
        for part, _ in changes:
            del part.forward


def _device(part: nn.Module) -> torch.device:
    return next(part.parameters()).device


def _active(x: Tensor) -> bool:
    kind = x.device.type
    if kind == "cpu":
        return torch.is_autocast_enabled(kind) and torch.is_grad_enabled()
    return kind == "cuda" and torch.is_autocast_enabled(kind)


def _sparse_if_tied(model: Any) -> None:
    """Let the input embedding give a sparse gradient if it is tied, so that the sum with the other one is dense."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if type(embedding) is nn.Embedding and type(head) is nn.Linear and head.weight is embedding.weight:
        embedding.sparse = True


def _fuses(device: torch.device) -> bool:
    """Whether torch's fused kernels compute norms there, which add in another order; a CPU has none."""
    return device.type == "cuda"


def _autocast_type(x: Tensor) -> torch.dtype:
    return torch.get_autocast_dtype(x.device.type)


# Norms ---------------------------------------------------------------------------------------------------------------


def _is_norm(part: nn.Module) -> bool:
    parameters = dict(part.named_parameters())
    epsilon = getattr(part, "variance_epsilon", None)
    return list(parameters) == ["weight"] and parameters["weight"].ndim == 1 and isinstance(epsilon, float)


def _norm(part: Any, hidden_states: Tensor) -> Tensor:
    wide = hidden_states.dtype == part.weight.dtype == torch.float32
    if not (wide and _active(hidden_states) and _autocast_type(hidden_states) == torch.bfloat16):
        return type(part).forward(part, hidden_states)
    return _Norm.apply(hidden_states, part.weight, part.variance_epsilon)


class _Norm(torch.autograd.Function):
    """w·x/√(mean x² + ε) of fp32 rows, in bf16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        if _fuses(x.device):
            out, inverse = torch.ops.aten._fused_rms_norm(x, weight.shape, weight, epsilon)
        else:
            inverse = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon)
            out = (x * inverse).mul_(weight)
        ctx.save_for_backward(x, weight, inverse)
        return out.to(torch.bfloat16)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight, inverse = ctx.saved_tensors
        slope = grad.float()
        if _fuses(x.device):
            wanted = list(ctx.needs_input_grad[:2])
            return *torch.ops.aten._fused_rms_norm_backward(slope, x, weight.shape, inverse, weight, wanted), None
        normed, found = x * inverse, None
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
    x = x.to(_autocast_type(x))
    gate, up, down = part.gate_proj(x), part.up_proj(x), part.down_proj
    if _is_plain(down):
        return _GatedDown.apply(gate, up, down.weight.to(x.dtype))
    return down(_Gated.apply(gate, up))


def _is_plain(layer: Any) -> bool:
    """Whether a layer multiplies by its weight and does nothing else; another kind may have adapters."""
    return type(layer) is nn.Linear and layer.bias is None


def casts_itself(model: nn.Module) -> set[nn.Module]:
    """The linear layers of a changed model whose weights each pass casts, instead of autocast once for all passes."""
    gated = (part for part in model.modules() if getattr(vars(part).get("forward"), "__func__", None) is _gated)
    return {part.down_proj for part in gated if _is_plain(part.down_proj)}  # type: ignore[misc]


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


class _GatedDown(torch.autograd.Function):
    """(silu(gate)·up) Wᵀ; the product in brackets is computed again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up, weight)
        return nn.functional.linear(nn.functional.silu(gate).mul_(up), weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:  # type: ignore[override]
        gate, up, weight = ctx.saved_tensors
        active, of_weight = nn.functional.silu(gate), None
        if ctx.needs_input_grad[2]:
            of_weight = grad.flatten(0, -2).T @ (active * up).flatten(0, -2)
        slope = grad @ weight
        return torch.ops.aten.silu_backward(slope * up, gate), slope.mul_(active), of_weight


# Trials --------------------------------------------------------------------------------------------------------------


def _same_output(part: Any, forward: Callable[..., Tensor]) -> bool:
    """Whether a part's other forward pass computes what its class does, as linear layers under autocast read it."""
    width = part.weight.shape[0] if forward is _norm else getattr(part.gate_proj, "in_features", 0)
    x = torch.randn(_TRIAL_TOKENS, width, generator=torch.Generator().manual_seed(0)).to(_device(part)).requires_grad_()
    try:
        with torch.enable_grad(), torch.autocast(x.device.type, dtype=torch.bfloat16):
            found, expected = (result.to(torch.bfloat16) for result in (forward(part, x), part(x)))
        if not _fuses(x.device):
            return torch.equal(found, expected)
        slopes = [torch.autograd.grad(result, x, torch.ones_like(result))[0] for result in (found, expected)]
    except (RuntimeError, TypeError, AttributeError):  # a part that takes other inputs
        return False
    pairs = ((found.detach(), expected.detach()), slopes)  # two fp32 numbers that nearly agree may round to neighbours
    return all(float((one - other).norm()) <= _UNIT * float(other.norm()) for one, other in pairs)


def _as_good(found: Tensor, expected: Tensor, exact: Tensor) -> bool:
    """Whether the changed model's outputs are the model's own or, on a GPU, about as near to those of fp32."""
    if not _fuses(found.device):
        return torch.equal(found, expected)
    error, usual = (float((value.double() - exact.double()).norm()) for value in (found, expected))
    return error <= _LARGEST_ERROR * usual


def _outputs(model: nn.Module, autocast: bool = True) -> Tensor:
    """The model's logits of a few tokens, in bf16 if under autocast."""
    device = _device(model)
    ids = torch.arange(3, 3 + _TRIAL_TOKENS, device=device)[None] % model.get_input_embeddings().num_embeddings  # type: ignore[operator]
    with torch.enable_grad(), torch.autocast(device.type, dtype=torch.bfloat16, enabled=autocast):
        logits = model(input_ids=ids, use_cache=False).logits.detach()
    return logits.to(torch.bfloat16) if autocast else logits
