"""Layers that keep fewer numbers for the backward pass and take fewer kernels, for training in bf16 under autocast.

Under autocast, a root-mean-square norm of fp32 numbers keeps its input and the normed input, and each linear layer that
reads the output of the norm keeps a cast of it. A gated feed-forward layer keeps four tensors of its inner width. Here
a norm keeps its input and returns bf16, which is the type that linear layers read. A gated layer keeps the two tensors
that it multiplies, and multiplies them again in the backward pass. In the backward pass, the gradients of the linear
layers that read a norm are added in bf16, and the gradient of the norm itself is computed in fp32.

On a CPU the forward pass gives the same numbers, bit for bit. On a GPU a norm is computed by the fused kernel of torch,
which adds in another order. The fused kernel also serves passes without gradients, so that sampling and training
compute alike.

On a CPU, an input embedding that is also the output embedding gives a gradient for the tokens that were read only, and
this gradient is added to that of the output embedding. Otherwise a gradient of the whole vocabulary would be zeroed and
added.
"""

import inspect
from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from dph.errors import ModelError, is_out_of_memory, reason_of
from dph.models.capability import MAX_ERROR_RATIO, attempt
from dph.models.traits import evaluating
from dph.process.progress import say

_CHECK_TOKENS = 5
_CHECK_SCALES = (0.0, 1e-4, 1.0, 1e3)
"""Sizes of the numbers that a layer reads in its check. An ε shows among small numbers, and a limit among large
ones."""
_UNIT = torch.finfo(torch.bfloat16).eps
"""A relative difference of at most this size is taken for rounding. Outputs on a CPU must be equal."""

Forward = Callable[[Any, Tensor], Tensor]


def use_memory_saving_layers(model: Any) -> None:
    """Let a model that is trained in bf16 keep fewer numbers, if that changes no result of the model.

    The forward passes of norms and gated layers are replaced. Frozen weights (all weights but those of the adapters)
    whose values bf16 can hold are kept in bf16. The replacements take effect under autocast only and, on a CPU, only
    with gradients.

    A layer is recognised by its parts, by the arguments of its forward pass, and by a capability check of its outputs
    and gradients. Then the outputs and gradients of the whole model are compared, because other parts may read the
    output of a norm in another type. If they differ, all replacements are undone, and the reason is said in one line.
    Raises UserError if the model cannot compute in bf16 at all.
    """
    if _device(model).type == "cpu":
        _sparse_if_tied(model)
    with evaluating(model):
        try:
            expected = _outcome(model)
        except Exception as error:  # the code of the model may raise anything
            if is_out_of_memory(error):
                raise
            raise ModelError(
                f"the model cannot be trained in bf16 ({type(error).__name__}: {reason_of(error)}); set "
                "model.precision to fp32"
            ) from error
        changes, frozen = _changes(model), _held_by_bf16(model)
        if not changes and not frozen:
            return
        exact = _outcome(model, autocast=False) if model.dtype == torch.float32 else expected
        for part, forward in changes:
            part.forward = MethodType(forward, part)  # a copy of the model binds the method to the parts of the copy
        for weight, wide in frozen:
            weight.data = wide.bfloat16()
        # a part that is no linear layer may read the output of a norm, or a part may multiply a frozen weight in fp32
        if reason := attempt(lambda: _why_not(model, expected, exact)):
            for part, _ in changes:
                del part.forward
            for weight, wide in frozen:
                weight.data = wide
            say(f"layers of this model keep all that they compute for the backward pass: {reason}")


def _changes(model: nn.Module) -> list[tuple[Any, Forward]]:
    """The parts of a model whose forward pass can be replaced, each with the forward pass that replaces it."""
    works: dict[tuple[type, str], bool] = {}
    changes = []
    for part in model.modules():
        forward = _norm if _is_norm(part) else _gated if _is_gated(part) else None
        if forward is None or "forward" in vars(part) or _taken(type(part).forward) != _taken(forward):
            continue
        description = (type(part), repr(part))  # parts of one class may have other parts inside
        if description not in works:
            works[description] = all(_same(part, forward, scale) for scale in _CHECK_SCALES)
        if works[description]:
            changes.append((part, forward))
    return changes


def _held_by_bf16(model: Any) -> list[tuple[nn.Parameter, Tensor]]:
    """The frozen fp32 weights of linear layers whose values bf16 can hold, each with its values.

    In bf16 these weights need no cast under autocast. Autocast would cast them in every pass, because it keeps only the
    casts of trained weights.
    """
    tied, layers = model.get_input_embeddings().weight, [part for part in model.modules() if type(part) is nn.Linear]
    frozen = [p for part in layers for p in part.parameters() if not p.requires_grad and p is not tied]
    return [(p, p.data) for p in frozen if p.dtype == torch.float32 and torch.equal(p.bfloat16().float(), p)]


def _taken(forward: Callable[..., Tensor]) -> list[tuple[str, Any]]:
    """The names and the kinds of the parameters of a forward pass, without the part itself."""
    return [(parameter.name, parameter.kind) for parameter in inspect.signature(forward).parameters.values()][1:]


def _device(part: nn.Module) -> torch.device:
    return next(part.parameters()).device


def _active(x: Tensor) -> bool:
    device = x.device.type
    return torch.is_autocast_enabled(device) and (device == "cuda" or (device == "cpu" and torch.is_grad_enabled()))


def _sparse_if_tied(model: Any) -> None:
    """Let a tied input embedding give a sparse gradient. The gradient of the output embedding is dense, and so is their
    sum."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if type(embedding) is nn.Embedding and type(head) is nn.Linear and head.weight is embedding.weight:
        embedding.sparse = True


def fuses(device: torch.device) -> bool:
    """Whether norms are computed by the fused kernel of torch on a device. The kernel adds in another order. A CPU has
    none."""
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
    return MemorySavingNorm.apply(hidden_states, part.weight, part.variance_epsilon)


class MemorySavingNorm(torch.autograd.Function):
    """w·x/√(mean x² + ε) of rows x in fp32, in bf16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        if fuses(x.device):
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
        if fuses(x.device):
            wanted = list(ctx.needs_input_grad[:2])
            return *torch.ops.aten._fused_rms_norm_backward(slope, x, weight.shape, inverse, weight, wanted), None
        normed, of_weight = x * inverse, None
        if ctx.needs_input_grad[1]:
            of_weight = (slope * normed).flatten(0, -2).sum(0)
        slope = slope.mul_(weight)  # now the gradient of the normed rows
        along = (slope * normed).mean(-1, keepdim=True)
        return slope.sub_(normed.mul_(along)).mul_(inverse), of_weight, None


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
        return MemorySavingGated.apply(gate, up, down.weight.to(x.dtype))
    return down(MemorySavingGated.apply(gate, up))


def _is_plain(layer: Any) -> bool:
    """Whether a layer multiplies by its weight and does nothing else. A layer of another kind may have adapters."""
    return type(layer) is nn.Linear and layer.bias is None


def casts_itself(model: nn.Module) -> set[nn.Module]:
    """The linear layers of a changed model whose weights are cast in each pass. Autocast casts the weights of other
    layers once for all passes."""
    gated: list[Any] = [x for x in model.modules() if getattr(vars(x).get("forward"), "__func__", None) is _gated]
    return {layer.down_proj for layer in gated if _is_plain(layer.down_proj)}


def cast_layers(model: Any) -> None:
    """Let autocast cast the trained weights of linear layers now. Otherwise their memory would lie between tensors that
    are freed soon."""
    excluded = {model.get_output_embeddings(), *casts_itself(model)}
    for layer in model.modules():
        if type(layer) is nn.Linear and layer not in excluded and layer.weight.requires_grad:
            nn.functional.linear(layer.weight.new_zeros(1, layer.in_features), layer.weight)


class MemorySavingGated(torch.autograd.Function):
    """silu(gate)·up or, with a weight W, (silu(gate)·up) Wᵀ. The product silu(gate)·up is computed again in the
    backward pass."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, weight: Tensor | None = None) -> Tensor:
        ctx.save_for_backward(gate, up, weight)
        product = nn.functional.silu(gate).mul_(up)
        return product if weight is None else nn.functional.linear(product, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        gate, up, weight = ctx.saved_tensors
        active, of_weight = nn.functional.silu(gate), None
        if weight is not None and ctx.needs_input_grad[2]:
            of_weight = grad.flatten(0, -2).T @ (active * up).flatten(0, -2)
        slope = grad if weight is None else grad @ weight
        return torch.ops.aten.silu_backward(slope * up, gate), active.mul_(slope), of_weight


# Capability checks ---------------------------------------------------------------------------------------------------


def _same(part: Any, forward: Forward, scale: float) -> bool:
    """Whether another forward pass of a part has the outputs, as linear layers under autocast read them, and the
    gradients of the original forward pass, for rows of numbers of a size."""
    width = part.weight.shape[0] if forward is _norm else getattr(part.gate_proj, "in_features", 0)
    device, generator = _device(part), torch.Generator().manual_seed(0)
    x, slope = (torch.randn(1, _CHECK_TOKENS, width, generator=generator).to(device) for _ in range(2))
    x = (scale * x).requires_grad_()
    inputs = [x, *(parameter for parameter in part.parameters() if parameter.requires_grad)]

    def results(call: Callable[[Tensor], Tensor]) -> list[Tensor]:
        with torch.enable_grad(), torch.autocast(device.type, dtype=torch.bfloat16):
            out = call(x).to(torch.bfloat16)
        return [out.detach(), *torch.autograd.grad(out, inputs, slope.to(out.dtype), materialize_grads=True)]

    def differs() -> str:
        expected, changed = results(part), results(lambda x: forward(part, x))
        if not fuses(device) and not torch.equal(changed[0], expected[0]):
            return "its outputs would differ"
        pairs = zip(changed, expected, strict=True)
        close = all(_distance(found, wanted) <= _UNIT * float(wanted.float().norm()) for found, wanted in pairs)
        return "" if close else "its outputs or gradients would differ"

    reason = attempt(differs)  # the device may lack an operation
    if reason:
        say(f"{type(part).__name__} keeps all that it computes for the backward pass: {reason}")
    return not reason


def _why_not(model: Any, expected: list[Tensor], exact: list[Tensor]) -> str:
    """The reason why the changed model is not as good as before; "" if it is.

    expected, exact: the results of `_outcome` before the change, in bf16 and in fp32.
    """
    changed = _outcome(model)
    if not fuses(changed[0].device) and not torch.equal(changed[0], expected[0]):
        return "another part reads a norm's output in fp32"
    return "" if all(map(as_good, changed, expected, exact)) else "their bf16 would be less exact than the model's own"


def as_good(changed: Tensor, expected: Tensor, exact: Tensor) -> bool:
    """Whether numbers of the changed model are about as near to the exact numbers of fp32 as the numbers of the model
    before."""
    error, usual = _distance(changed, exact), _distance(expected, exact)
    return error <= max(MAX_ERROR_RATIO * usual, _UNIT * float(exact.norm()))


def _distance(one: Tensor, other: Tensor) -> float:
    return float((one.double() - other.double()).norm())


def _outcome(model: Any, autocast: bool = True) -> list[Tensor]:
    """The logits of a model for a few tokens, in bf16 if under autocast, and gradients in fp32: those of a weighted sum
    of the logits with respect to the output of each call of the input embedding."""
    device, generator = _device(model), torch.Generator().manual_seed(0)
    ids = torch.arange(3, 3 + _CHECK_TOKENS, device=device)[None] % model.config.get_text_config().vocab_size
    embedded: list[Tensor] = []

    def begin(part: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[-1].clone()  # a model may change the embeddings in place

    hook = model.get_input_embeddings().register_forward_hook(begin)
    try:
        with torch.enable_grad(), torch.autocast(device.type, dtype=torch.bfloat16, enabled=autocast):
            logits = model(input_ids=ids, use_cache=False).logits
    finally:
        hook.remove()
    slope = torch.randn(logits.shape, generator=generator).to(device, logits.dtype)
    slopes = torch.autograd.grad(logits, embedded, slope, materialize_grads=True)
    logits = logits.detach()
    return [logits.to(torch.bfloat16) if autocast else logits, *(gradient.float() for gradient in slopes)]
