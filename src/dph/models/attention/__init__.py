"""Attention over packed rows, in which a common prefix is stored once. There are four ways to compute the same
function.

`split_cpu` splits attention into two parts on a CPU. `varlen` does so on a GPU for 16-bit types. `flex` compiles a
kernel for the mask. `gathered` copies keys and is the reference for the others. All read one `PrefixLayout`. On a GPU,
a check against the reference decides which way is used.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from dph.models.attention import flex, split_cpu, varlen
from dph.models.capability import attempt, plainly, relative_error
from dph.models.packing import Bucket, PrefixLayout, Tokens, pack
from dph.process.progress import say

Attention = Callable[[Tensor, Tensor, Tensor, PrefixLayout, float], Tensor]


def gathered(q: Tensor, k: Tensor, v: Tensor, layout: PrefixLayout, scale: float) -> Tensor:
    """Attention over N packed tokens by the public attention function of torch, on any device. It is the reference for
    the other ways. Within it, every suffix has a copy of the keys of its prefix. Arguments and result as in
    `split_cpu.attend`."""
    repeats = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(repeats, dim=1) if repeats > 1 else x for x in (k, v))
    out = torch.zeros_like(q)
    for bucket in layout.buckets:
        queries, keys, values = (bucket.take(x).transpose(1, 2) for x in (q, k, v))
        outputs = scaled_dot_product_attention(queries, keys, values, is_causal=True, scale=scale)
        out = _with(out, bucket, outputs)
    for group in layout.suffixes:
        prefix = slice(group.prefix[0], sum(group.prefix))
        count, width = group.bucket.shape
        keys, values = (
            torch.cat([x[prefix].expand(count, -1, -1, -1), group.bucket.take(x)], dim=1).transpose(1, 2)
            for x in (k, v)
        )
        mask = torch.ones(width, group.prefix[1] + width, dtype=torch.bool, device=q.device).tril(group.prefix[1])
        queries = group.bucket.take(q).transpose(1, 2)
        outputs = scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=scale)
        out = _with(out, group.bucket, outputs)
    return out


def _with(x: Tensor, bucket: Bucket, outputs: Tensor) -> Tensor:
    """A copy of flat outputs [N, H, D] into which the sequences [B, H, L, D] of a bucket are written. It can be
    differentiated."""
    return x.index_copy(0, bucket.places, bucket.kept(outputs.transpose(1, 2)))


IMPLEMENTATIONS: dict[str, Attention] = {
    "split": split_cpu.attend,
    "varlen": varlen.attend,
    "flex": flex.attend,
    "gather": gathered,
}
"""The ways to compute attention over packed rows, by name. "gather" runs anywhere and is the reference."""

_MAX_ERROR_RATIO = 3.0
"""An implementation may have this many times the error of the reference in the same type, and in addition `_MIN_ERROR`
or, if that is larger, the rounding unit of the type."""
_MIN_ERROR = 5e-6
"""Relative to the largest value. In fp32, adding some hundred products in another order changes the sum by about a
tenth of this number."""


_forced: list[str] = []


def implementation(q: Tensor, k: Tensor) -> Attention:
    """The way to compute attention for queries [N, H, D] and keys [N, G, D].

    On a CPU it is "split". On another device it is the first of "varlen" (for 16-bit types), "flex" and "gather" that
    passes its check. The check is made once in a process.
    """
    if _forced:
        return IMPLEMENTATIONS[_forced[-1]]
    return IMPLEMENTATIONS[chosen(q.device, q.dtype, q.shape[1], k.shape[1], q.shape[2])]


@contextmanager
def using(name: str) -> Iterator[None]:
    """Context in which the implementation with this name in `IMPLEMENTATIONS` is used, without a check."""
    _forced.append(name)
    try:
        yield
    finally:
        _forced.pop()


@cache
def chosen(device: torch.device, dtype: torch.dtype, heads: int, shared: int, width: int) -> str:
    """The name of the implementation that is used. On a GPU, the first call makes the check and says the result in one
    line. Arguments as in `try_attention`."""
    if device.type == "cpu":
        return "split"
    name, failures = choose(device, dtype, heads, shared, width)
    said = "; ".join([name, *(f"{way} cannot be used: {why}" for way, why in failures.items())])
    say(f"attention over shared prompts in {str(dtype).removeprefix('torch.')} on {device}: {said}")
    return name


def choose(device: torch.device, dtype: torch.dtype, heads: int, shared: int, width: int) -> tuple[str, dict[str, str]]:
    """The name of the fastest implementation that passes its check on a GPU, and for each faster one the reason why it
    cannot be used. Arguments as in `try_attention`."""
    failures: dict[str, str] = {}
    for name in _CANDIDATES.get(dtype, ()):
        if (failure := try_attention(name, device, dtype, heads, shared, width)) is None:
            return name, failures
        failures[name] = failure
    return "gather", failures


_CANDIDATES = {torch.bfloat16: ("varlen", "flex"), torch.float16: ("varlen", "flex"), torch.float32: ("flex",)}


def try_attention(
    name: str, device: torch.device, dtype: torch.dtype, heads: int, shared: int, width: int
) -> str | None:
    """The reason why an implementation cannot be used; None if its outputs and gradients are as exact as those of the
    reference.

    Args:
        name: of the implementation in `IMPLEMENTATIONS`.
        device, dtype: the device, and the type of queries, keys and values.
        heads, shared: the numbers of query heads and of key heads.
        width: the numbers in a head.
    """
    exact_type = torch.float64 if dtype == torch.float32 else torch.float32

    def check(layout: PrefixLayout) -> str:
        generator, tokens = torch.Generator().manual_seed(0), layout.sequences.tokens
        shapes = [(tokens, count, width) for count in (heads, shared, shared, heads)]
        inputs = [torch.randn(shape, generator=generator).to(device, dtype) for shape in shapes]
        exact = _run("gather", [x.to(exact_type) for x in inputs], layout)
        usual = _run("gather", inputs, layout)
        for what, value, plain, truth in zip(_COMPARED, _run(name, inputs, layout), usual, exact, strict=True):
            allowed = _MAX_ERROR_RATIO * relative_error(plain, truth) + max(_MIN_ERROR, torch.finfo(dtype).eps)
            error = relative_error(value, truth)
            if not error <= allowed:
                return f"its {what} are off by {error:.2g} of the largest, but {allowed:.2g} is rounding"
        return ""

    with plainly(device), torch.enable_grad():
        layouts = (_layout_of_check(lengths).to(device) for lengths in _CHECKS)
        return next(filter(None, (attempt(partial(check, layout), of_kernels=True) for layout in layouts)), None)


_COMPARED = ("outputs", "gradients of queries", "gradients of keys", "gradients of values")
_CHECKS = (
    {150: (70, 140, 1), 5: (9,), 40: (30, 30, 30, 2)},  # some groups end within a block of 128, some rows are alone
    {300: (20, 131), 260: (50, 12)},
)
"""The rows of each check: the length of each prompt in tokens, and the lengths of the responses to it."""


def _layout_of_check(lengths: dict[int, tuple[int, ...]]) -> PrefixLayout:
    return pack(
        [
            Tokens([prompt] * prompt, [index, *[prompt] * (response - 1)])
            for prompt, responses in lengths.items()
            for index, response in enumerate(responses)
        ]
    ).layout


def _run(name: str, inputs: Sequence[Tensor], layout: PrefixLayout) -> tuple[Tensor, ...]:
    """The outputs of an implementation, and the gradients of queries, keys and values. inputs: queries, keys, values,
    and the gradient of the outputs."""
    q, k, v = (x.detach().clone().requires_grad_() for x in inputs[:3])
    out = IMPLEMENTATIONS[name](q, k, v, layout, q.shape[-1] ** -0.5)
    return out.detach(), *torch.autograd.grad(out, (q, k, v), inputs[3])
