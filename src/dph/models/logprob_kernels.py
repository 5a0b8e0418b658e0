"""A fused kernel for log-probabilities on a GPU, if one is installed: cut-cross-entropy (Apple, arXiv 2411.09009).

It never writes logits to memory. It gives no entropies, so it serves passes that read log-probabilities only. In an
update, whose metrics contain the entropy, our chunks compute both with the same number of matrix products. Liger's
fused kernel gives no entropies either, and only its newest versions have gradients for tokens of different weight.
"""

from functools import cache

import torch
from torch import Tensor

from dph.errors import reason_of
from dph.models.linear_logprobs import linear_logprobs
from dph.process.progress import say

_LONGER = 3.0
"""The kernel may have this many times the error of our chunks in the same type, and one rounding."""
_TRIAL = (300, 128, 1000)
"""Tokens, width and vocabulary of the trial."""


@cache
def fused(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the kernel is used on a device for hidden states of a type. The first call says why, if it is there."""
    if device.type != "cuda" or dtype not in (torch.bfloat16, torch.float16):
        return False
    reason = why_not_fused(device, dtype)
    if reason == "":
        say(f"log-probabilities without entropies use cut-cross-entropy on {device}")
    elif reason is not None:
        say(f"cut-cross-entropy is installed but not used on {device}: {reason}")
    return reason == ""


def fused_logprobs(hidden: Tensor, weight: Tensor, states: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Log-probabilities [K], float32, by the kernel; the arguments are those of `linear_logprobs`."""
    from cut_cross_entropy import linear_cross_entropy  # type: ignore[import-not-found]

    chosen = hidden[states]
    if temperature != 1.0:
        chosen = chosen / temperature
    # filter_eps: without it, gradients below a threshold would be left out
    return -linear_cross_entropy(chosen, weight, targets, reduction="none", filter_eps=None).float()


def why_not_fused(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why the kernel cannot be used; empty if it is as exact as our chunks, None if it is not installed."""
    try:
        import cut_cross_entropy  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        return None
    except Exception as error:  # Triton may fail to find a compiler
        return reason_of(error)
    tokens, width, vocabulary = _TRIAL
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(count, width, generator=generator) for count in (tokens, vocabulary))
    targets = torch.randint(vocabulary, (tokens,), generator=generator).to(device)
    slope, states = torch.randn(tokens, generator=generator).to(device), torch.arange(tokens, device=device)

    def run(way: str, kind: torch.dtype) -> list[Tensor]:
        h, w = (x.to(device, dtype).to(kind).requires_grad_() for x in (hidden, weight * width**-0.5))
        if way == "fused":
            found = fused_logprobs(h, w, states, targets, 0.7)
        else:
            found, _ = linear_logprobs(h, w, None, states, targets, 0.7, "none", tokens)
        return [found.detach(), *torch.autograd.grad(found, (h, w), slope)]

    with torch.inference_mode(False), torch.enable_grad(), torch.autocast(device.type, enabled=False):
        exact, usual = run("chunks", torch.float32), run("chunks", dtype)
        try:
            found = run("fused", dtype)
        except Exception as error:  # kernels and compilers raise anything
            return reason_of(error)
    names = ("values", "gradients of hidden states", "gradients of the head")
    for what, value, other, truth in zip(names, found, usual, exact, strict=True):
        off, allowed = _error(value, truth), _LONGER * _error(other, truth) + torch.finfo(dtype).eps
        if not off <= allowed:
            return f"its {what} are off by {off:.1g} of the largest, where {allowed:.1g} is rounding"
    return ""


def _error(found: Tensor, exact: Tensor) -> float:
    return float((found.float() - exact).abs().max() / exact.abs().max())
