"""The choice between ways to compute attention: what passes its check is used, and one line says what and why. The
split on torch's kernels for variable lengths, run on a CPU with kernels of the same schemas.
"""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import fake_varlen
from dph.models import attention
from dph.models.attention import IMPLEMENTATIONS, choose, implementation, try_attention, using
from dph.models.batch import Tokens
from dph.models.packing import pack
from helpers import random_policy
from shared_rows import EXACT, SHARING, error, evaluated, grouped_rows, ungrouped_rows

CPU = torch.device("cpu")
SIZES = (4, 2, 16)
"""Query heads, key heads, width of a head."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("heads", [(4, 4, 8), (4, 2, 16), (3, 1, 12)])
def test_correct_implementations_pass_their_check(dtype, heads):
    assert try_attention("split", CPU, dtype, *heads) is None
    with fake_varlen.installed():
        assert try_attention("varlen", CPU, dtype, *heads) is None


def unjoined(*args, **more):
    """A kernel whose λ is half of the right one."""
    out, lse, *rest = fake_varlen.forward(*args, **more)
    return out, lse / 2, *rest


def own_lambda(*args, **more):
    """A backward kernel that ignores the λ it is given, as one does that recomputes it from its own keys."""
    grad, query, key, value, _, _, *sizes = args
    out, lse, *_ = fake_varlen.forward(query, key, value, *sizes[:6], return_debug_mask=False, **more)
    return fake_varlen.backward(grad, query, key, value, out, lse, *sizes, **more)


@pytest.mark.parametrize(
    ("kernels", "wrong"),
    [({"forward": unjoined}, "outputs"), ({"backward": own_lambda}, "gradients of queries")],
)
def test_wrong_kernels_fail_their_check(kernels, wrong):
    with fake_varlen.installed(**kernels):
        failure = try_attention("varlen", CPU, torch.bfloat16, *SIZES)
    assert failure is not None and f"its {wrong} are off by" in failure


def test_the_first_that_passes_is_chosen():
    # flex cannot compute gradients on a CPU, and without the fake there are no kernels for variable lengths
    with fake_varlen.installed():
        assert choose(CPU, torch.bfloat16, *SIZES) == ("varlen", {})
        name, failures = choose(CPU, torch.float32, *SIZES)
    assert name == "gather" and "backward on CPU" in failures["flex"]
    name, failures = choose(CPU, torch.bfloat16, *SIZES)
    assert name == "gather" and list(failures) == ["varlen", "flex"]
    assert "_flash_attention_forward" in failures["varlen"]
    assert choose(CPU, torch.float64, *SIZES) == ("gather", {})


def test_a_check_is_made_once_for_each_kind_of_input(monkeypatch, caplog):
    tried = []

    def counted(*args):
        tried.append(args)
        return "flex", {"varlen": "no kernel"}

    monkeypatch.setattr(attention, "choose", counted)
    attention.chosen.cache_clear()

    def heads(count, dtype=torch.bfloat16) -> Any:
        return SimpleNamespace(device=torch.device("cuda", 0), dtype=dtype, shape=(100, count, 64))

    with caplog.at_level("INFO", logger="dph"):
        found = [implementation(heads(8), heads(2)) for _ in range(3)]
        implementation(heads(8, torch.float32), heads(2, torch.float32))
    attention.chosen.cache_clear()
    assert found == [IMPLEMENTATIONS["flex"]] * 3
    assert tried == [(torch.device("cuda", 0), dtype, 8, 2, 64) for dtype in (torch.bfloat16, torch.float32)]
    assert caplog.messages[0] == (
        "attention over shared prompts in bfloat16 on cuda:0: flex; varlen cannot be used: no kernel"
    )


def test_a_cpu_uses_its_own_way_unless_another_is_asked_for():
    q = torch.zeros(1, 1, 8)
    assert implementation(q, q) is IMPLEMENTATIONS["split"]
    with using("gather"):
        assert implementation(q, q) is IMPLEMENTATIONS["gather"]
    assert implementation(q, q) is IMPLEMENTATIONS["split"]


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
def test_a_prefix_of_no_token_and_heads_of_any_width(width):
    """With one target for each token, a prompt of one token leaves suffixes without a prefix among others."""
    rows = [Tokens(prompt, [token, 1, 2]) for prompt in ([3, 4], [5], [6, 7, 8]) for token in (1, 2)]
    layout = pack(rows, one_target=True).layout
    assert [group.prefix[1] for group in layout.suffixes] == [1, 2] and layout.sequences.tokens == 3 + 6 * 3
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
