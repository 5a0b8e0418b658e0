"""The fused kernel of another package: used on a GPU only, and only if it computes what our chunks compute."""

import sys
import types

import pytest
import torch

from dph.models.logprob_kernels import fused, fused_logprobs, why_not_fused
from dph.models.logprobs import token_logprobs

CPU = torch.device("cpu")


def package(function):
    """A stand-in for cut-cross-entropy, with the arguments that its function has in its first version."""
    module = types.ModuleType("cut_cross_entropy")
    module.__dict__["linear_cross_entropy"] = function
    return module


def right(e, c, targets, *, ignore_index=-100, softcap=None, reduction="mean", shift=False, filter_eps="high"):
    assert reduction == "none" and filter_eps is None
    return torch.nn.functional.cross_entropy((e @ c.T).float(), targets, reduction="none")


def wrong(e, c, targets, **more):
    return right(e, c, targets, **more) + (e.float() ** 2).mean(-1)


def failing(*_, **__):
    raise RuntimeError("no compiler\nfor this card")


@pytest.mark.parametrize(
    ("function", "reason"), [(right, ""), (wrong, "its values are off by"), (failing, "no compiler for this card")]
)
def test_the_kernel_is_used_if_it_is_as_exact_as_our_chunks(monkeypatch, function, reason):
    monkeypatch.setitem(sys.modules, "cut_cross_entropy", package(function))
    found = why_not_fused(CPU, torch.bfloat16)
    assert found is not None and found.startswith(reason) and bool(found) == bool(reason)


def test_without_the_package_there_is_nothing_to_say(monkeypatch):
    monkeypatch.setitem(sys.modules, "cut_cross_entropy", None)
    assert why_not_fused(CPU, torch.bfloat16) is None
    assert not fused(torch.device("cuda", 7), torch.bfloat16)
    fused.cache_clear()


def test_a_cpu_and_fp32_never_use_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cut_cross_entropy", package(right))
    assert not fused(CPU, torch.bfloat16) and not fused(torch.device("cuda", 0), torch.float32)


def test_its_values_are_log_probabilities_at_the_temperature(monkeypatch):
    monkeypatch.setitem(sys.modules, "cut_cross_entropy", package(right))
    generator = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(5, 4, generator=generator), torch.randn(9, 4, generator=generator)
    states, targets = torch.tensor([4, 0, 0, 2]), torch.tensor([8, 1, 2, 3])
    expected, _ = token_logprobs(hidden @ weight.T, states, targets, 0.7, "none")
    found = fused_logprobs(hidden, weight, states, targets, 0.7)
    assert float((found - expected).abs().max()) <= 1e-6
