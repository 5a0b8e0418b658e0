"""The split on torch's kernels for variable lengths, run on a CPU with kernels of the same schemas."""

import pytest
import torch

import fake_varlen
from dph.models.attention import IMPLEMENTATIONS, using
from dph.models.batch import Tokens
from dph.models.packing import pack
from helpers import random_policy
from shared_rows import EXACT, SHARING, error, evaluated, grouped_rows, ungrouped_rows


@pytest.mark.parametrize("name", SHARING)
def test_every_architecture_computes_the_same(name):
    policy, rows = random_policy(name, **SHARING[name]), grouped_rows()
    expected = evaluated(policy, rows, shared=False)
    with fake_varlen.installed(), using("varlen"):
        assert error(evaluated(policy, rows, shared=True), expected) <= EXACT


def test_rows_that_share_nothing_need_one_call_of_the_kernel():
    policy, rows, calls = random_policy("llama"), ungrouped_rows(), []

    def counted(*args, **more):
        calls.append(args)
        return fake_varlen.forward(*args, **more)

    expected = evaluated(policy, rows, shared=False)
    with fake_varlen.installed(counted), using("varlen"):
        assert error(evaluated(policy, rows, shared=True), expected) <= EXACT
    assert len(calls) == policy.model.config.num_hidden_layers


@pytest.mark.parametrize("width", [4, 8, 12])
def test_a_stem_of_no_token_and_heads_of_any_width(width):
    """With one target for each token, a prompt of one token leaves branches without a stem between others with one."""
    rows = [Tokens(prompt, [token, 1, 2]) for prompt in ([3, 4], [5], [6, 7, 8]) for token in (1, 2)]
    layout = pack(rows, one_target=True).layout
    assert [group.stem[1] for group in layout.branches] == [1, 2] and layout.sequences.tokens == 3 + 6 * 3
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(layout.sequences.tokens, heads, width, generator=generator) for heads in (4, 2, 2, 4)]
    found = []
    for name in ("gather", "varlen"):
        q, k, v = (x.clone().requires_grad_() for x in inputs[:3])
        with fake_varlen.installed():
            out = IMPLEMENTATIONS[name](q, k, v, layout, 0.7)
            found.append([out.detach(), *torch.autograd.grad(out, (q, k, v), inputs[3])])
    for expected, value in zip(*found, strict=True):
        assert float((value - expected).abs().max()) <= EXACT


def test_bfloat16_is_as_exact_as_the_reference():
    layout = pack([Tokens([1] * 60, [token, *range(20)]) for token in range(4)]).layout
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(layout.sequences.tokens, heads, 16, generator=generator) for heads in (4, 2, 2, 4)]

    def run(name, dtype):
        q, k, v = (x.bfloat16().to(dtype).requires_grad_() for x in inputs[:3])
        out = IMPLEMENTATIONS[name](q, k, v, layout, 0.25)
        assert out.dtype == dtype
        return [x.detach().float() for x in (out, *torch.autograd.grad(out, (q, k, v), inputs[3].bfloat16().to(dtype)))]

    exact, usual = run("gather", torch.float32), run("gather", torch.bfloat16)
    with fake_varlen.installed():
        found = run("varlen", torch.bfloat16)
    for value, other, truth in zip(found, usual, exact, strict=True):
        # 1.5: the target for a GPU; the two parts are rounded, and then their sum
        assert 0 < float((value - truth).norm()) <= 1.5 * float((other - truth).norm())
