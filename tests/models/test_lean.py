"""Layers that keep fewer numbers: the same results, gradients as exact, less memory."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from transformers.models.llama.modeling_llama import LlamaMLP

from architectures import any_policy, evaluated, some_rows
from dph.config import ModelConfig
from dph.config.sampling import SamplingParams
from dph.errors import ModelError
from dph.models import lean
from dph.models.adapters import merged_state
from dph.models.fitting import kept_bytes
from dph.models.lean import make_lean
from dph.models.policy import Policy
from dph.sampling.generate import HFSampler
from dph.training.run_loop import load_policy
from helpers import random_policy, random_rows


def policy_of(name: str = "llama", **changes: object) -> Policy:
    policy = random_policy(name, hidden_size=64, **changes)
    policy.precision = "bf16"
    return policy


def changed(model: nn.Module) -> list[str]:
    return [type(part).__name__ for part in model.modules() if "forward" in vars(part)]


def run(policy: Policy) -> tuple[torch.Tensor, dict[str, torch.Tensor], int]:
    """Log-probabilities, gradients of a weighted sum of them, and the bytes kept for the backward pass."""
    policy.model.zero_grad()
    rows = random_rows(policy, 6)
    logprobs, _ = policy.logprobs(policy.collate(rows))
    slopes = torch.linspace(-1, 1, logprobs.numel()).reshape(logprobs.shape)
    (logprobs * slopes).sum().backward()
    gradients = {name: p.grad.clone() for name, p in policy.model.named_parameters() if p.grad is not None}
    return logprobs.detach(), gradients, kept_bytes(policy, rows)


def error(found: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> float:
    """Distance of all gradients, relative to the size of the exact ones."""
    distance = sum(float((found[name] - value).double().pow(2).sum()) for name, value in exact.items())
    return (distance / sum(float(value.double().pow(2).sum()) for value in exact.values())) ** 0.5


def compared(name: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log-probabilities of a model before and after its change, and in fp32; checks its gradients and memory."""
    policy = policy_of(name)
    before, usual, more = run(policy)
    with policy.in_precision("fp32"):
        true, exact, _ = run(policy)
    make_lean(policy.model)
    after, found, less = run(policy)
    assert len(changed(policy.model)) == 7 + (4 if name == "qwen3" else 0), "two norms and a gated layer in each of two"
    assert found.keys() == exact.keys()
    assert 0 < error(found, exact) < 1.2 * error(usual, exact)
    assert less < 0.75 * more
    return before, after, true


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "mistral"])
def test_a_model_has_the_same_logprobs_and_gradients_as_exact_with_less_memory(name: str) -> None:
    before, after, _ = compared(name)
    assert torch.equal(before, after)


NOT_CAUSAL = pytest.mark.skipif(
    transformers.__version__.startswith("5.9."), reason="zamba2 is not causal in transformers 5.9, and is refused"
)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of transformers' own code in recurrent layers
@pytest.mark.parametrize("name", ["bamba", "granitemoehybrid", "mamba2", pytest.param("zamba2", marks=NOT_CAUSAL)])
def test_a_model_with_gated_norms_trains_as_before(name: str) -> None:
    policy = any_policy(name)
    policy.model.eval()
    rows, results = some_rows(), []
    _, exact = evaluated(policy, rows)
    policy.precision = "bf16"
    for _ in range(2):
        logprobs, gradients = evaluated(policy, rows)
        results.append((torch.cat(logprobs), float((gradients - exact).norm() / exact.norm())))
        policy.keep_less()
    (before, usual), (after, found) = results
    assert torch.equal(before, after) and 0 < found < 1.2 * usual


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_input_embedding_adds_the_gradient_of_the_tokens_that_were_read(tied: bool) -> None:
    policy = policy_of(tie_word_embeddings=tied)
    with policy.in_precision("fp32"):
        _, exact, _ = run(policy)
    make_lean(policy.model)
    assert policy.model.get_input_embeddings().sparse == tied
    with policy.in_precision("fp32"):
        _, found, _ = run(policy)
    assert {value.layout for value in found.values()} == {torch.strided}
    assert found.keys() == exact.keys() and error(found, exact) < 1e-6
    twice, _ = policy.logprobs(policy.collate(random_rows(policy, 6)))
    twice.sum().backward()  # onto a gradient that is there
    assert all(p.grad is not None and p.grad.layout == torch.strided for p in policy.model.parameters())


def test_other_computations_are_those_of_the_model() -> None:
    policy = policy_of()
    ids = torch.tensor([[3, 4, 5, 6]])

    def results() -> list[torch.Tensor]:
        found = [policy.model(input_ids=ids).logits]  # fp32, with gradients
        with torch.no_grad(), policy.autocast():
            found.append(policy.model(input_ids=ids).logits)
        with torch.autocast("cpu", dtype=torch.float16):
            found.append(policy.model(input_ids=ids).logits)
        return found

    before = results()
    make_lean(policy.model)
    for value, expected in zip(results(), before, strict=True):
        assert value.dtype == expected.dtype and torch.equal(value, expected)


def test_a_norm_has_the_gradients_of_its_formula() -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight, slope = (torch.randn(shape, generator=generator) for shape in ((2, 5, 16), (16,), (2, 5, 16)))
    slope = slope.bfloat16()

    def gradients(dtype: torch.dtype, function: Any) -> tuple[torch.Tensor, ...]:
        given = [value.to(dtype).requires_grad_() for value in (x, weight)]
        out = function(*given)
        return torch.autograd.grad(out, given, slope.to(out.dtype))

    def formula(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3)

    exact = gradients(torch.float64, formula)
    found = gradients(torch.float32, lambda x, weight: lean.LeanNorm.apply(x, weight, 1e-3))
    for value, expected in zip(found, exact, strict=True):
        assert value.dtype == torch.float32
        torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-5)


def test_a_gated_layer_has_the_gradients_of_autograd_bit_for_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(7, 24, generator=generator).bfloat16().requires_grad_() for _ in range(2)]
    slope = torch.randn(7, 24, generator=generator).bfloat16()
    expected = nn.functional.silu(given[0]) * given[1]
    found = lean.LeanGated.apply(*given)
    assert torch.equal(found, expected)
    pairs = zip(torch.autograd.grad(found, given, slope), torch.autograd.grad(expected, given, slope), strict=True)
    assert all(torch.equal(value, other) for value, other in pairs)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_gated_layer_with_its_output_has_the_gradients_of_autograd_bit_for_bit(frozen: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 7, 24), (2, 7, 24), (16, 24))
    given = [torch.randn(shape, generator=generator).bfloat16().requires_grad_() for shape in shapes]
    given[2].requires_grad_(not frozen)
    slope = torch.randn(2, 7, 16, generator=generator).bfloat16()
    expected = nn.functional.linear(nn.functional.silu(given[0]) * given[1], given[2])
    found = lean.LeanGated.apply(*given)
    assert torch.equal(found, expected)
    wanted = given[: 2 if frozen else 3]
    pairs = zip(torch.autograd.grad(found, wanted, slope), torch.autograd.grad(expected, wanted, slope), strict=True)
    assert all(torch.equal(value, other) for value, other in pairs)


def test_adapters_of_a_gated_layer_are_used() -> None:
    policy = policy_of()
    assert lean.casts_itself(policy.model) == set()
    make_lean(policy.model)
    assert lean.casts_itself(policy.model) == {layer.mlp.down_proj for layer in policy.model.model.layers}

    class Doubled(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(input)

    before, layer = run(policy)[0], policy.model.model.layers[0].mlp
    doubled = Doubled(*layer.down_proj.weight.shape[::-1], bias=False)
    doubled.weight = layer.down_proj.weight
    layer.down_proj = doubled
    assert lean.casts_itself(policy.model) == {policy.model.model.layers[1].mlp.down_proj}
    plain = policy_of()
    plain.model.load_state_dict(policy.model.state_dict())
    plain.model.model.layers[0].mlp.down_proj = doubled
    after = run(policy)[0]
    assert torch.equal(after, run(plain)[0]) and not torch.equal(after, before)


def test_frozen_norms_get_no_gradient() -> None:
    policy = policy_of()
    make_lean(policy.model)
    for name, parameter in policy.model.named_parameters():
        parameter.requires_grad_("norm" not in name)
    _, gradients, _ = run(policy)
    assert gradients and not any("norm" in name for name in gradients)


class Reads(nn.Module):
    """Reads a norm's output in fp32."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 3 * x.float()


def test_a_model_that_reads_a_norm_in_fp32_is_left_as_it_is() -> None:
    policy = policy_of()
    policy.model.lm_head = Reads()
    make_lean(policy.model)
    assert changed(policy.model) == []


@pytest.mark.parametrize("name", ["gemma2", "gpt2"])
def test_layers_of_another_kind_are_left_as_they_are(name: str) -> None:
    policy = policy_of(name)
    make_lean(policy.model)
    assert changed(policy.model) == []


class Shifted(nn.Module):
    """Has the parts of a norm, and another formula."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.ones(64)), 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (1 + self.weight) * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


def test_a_norm_with_another_formula_is_left_as_it_is() -> None:
    policy = policy_of()
    policy.model.model.norm = Shifted()
    make_lean(policy.model)
    assert len(changed(policy.model)) == 6 and "forward" not in vars(policy.model.model.norm)


class Small(Shifted):
    """Adds ε to the root, which shows among small numbers only."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        root = hidden_states.pow(2).mean(-1, keepdim=True).sqrt() + self.variance_epsilon
        return self.weight * (hidden_states / root)


class Detached(Shifted):
    """Has the outputs of a norm, and other gradients: the root counts as a constant."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        root = torch.rsqrt(hidden_states.detach().pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * (hidden_states * root)


class Gated(Shifted):
    """A norm that may take a second argument."""

    def forward(self, hidden_states: torch.Tensor, gate: torch.Tensor | None = None) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        hidden_states = hidden_states if gate is None else hidden_states * nn.functional.silu(gate)
        root = torch.rsqrt(hidden_states.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * (hidden_states * root)


class Named(Gated):
    """A norm that callers may call by another name of its argument."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().forward(x)


@pytest.mark.parametrize("norm", [Small, Detached, Gated, Named])
def test_a_norm_of_another_kind_is_left_as_it_is(norm: type[nn.Module]) -> None:
    policy = policy_of()
    policy.model.model.norm = norm()
    make_lean(policy.model)
    assert len(changed(policy.model)) == 6 and "forward" not in vars(policy.model.model.norm)


class Limited(LlamaMLP):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x).clamp(max=30)) * self.up_proj(x))


def test_a_gated_layer_with_a_limit_and_one_with_another_activation_are_left_as_they_are() -> None:
    policy = policy_of()
    first, second = policy.model.model.layers
    first.mlp.__class__, second.mlp.act_fn = Limited, nn.GELU()
    make_lean(policy.model)
    assert changed(policy.model) == ["LlamaRMSNorm"] * 5


def test_a_model_in_training_mode_is_changed_without_its_noise() -> None:
    policy = policy_of(attention_dropout=0.5)
    policy.model.train()
    make_lean(policy.model)
    assert len(changed(policy.model)) == 7 and policy.model.training


class Fails(Reads):
    """Raises an error as soon as a norm's output is in bf16."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype == torch.bfloat16:
            raise self.error
        return super().forward(x)


def test_a_model_that_fails_with_the_changed_layers_is_left_as_it_is_and_says_so(capsys: Any) -> None:
    policy = policy_of()
    policy.model.lm_head = Fails(RuntimeError("mixed types"))
    make_lean(policy.model)
    assert changed(policy.model) == []
    assert capsys.readouterr().err.count("mixed types") == 1


@pytest.mark.parametrize("error", [torch.OutOfMemoryError(), TypeError("two arguments")])
def test_memory_that_runs_out_in_a_trial_and_wrong_arguments_are_not_taken_for_an_answer(error: Exception) -> None:
    policy = policy_of()
    policy.model.lm_head = Fails(error)
    with pytest.raises(type(error)):
        make_lean(policy.model)


def test_memory_that_runs_out_in_the_trial_of_a_layer_is_not_taken_for_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*given: Any) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(lean.LeanNorm, "apply", fail)
    with pytest.raises(torch.OutOfMemoryError):
        make_lean(policy_of().model)


def test_a_model_that_cannot_compute_in_bf16_is_refused() -> None:
    policy = policy_of()
    policy.model.lm_head = Fails(RuntimeError("mixed types"))
    policy.model.model.norm = nn.Linear(64, 64)
    with pytest.raises(ModelError, match=r"in bf16 .*mixed types"):
        policy.keep_less()


def test_a_copy_of_a_model_computes_with_its_own_weights() -> None:
    policy = policy_of()
    make_lean(policy.model)
    other = copy.deepcopy(policy)
    with torch.no_grad():
        for parameter in other.model.parameters():
            parameter.mul_(1.5)
    plain = policy_of()
    plain.model.load_state_dict(other.model.state_dict())
    assert torch.equal(run(other)[0], run(plain)[0])
    assert not torch.equal(run(other)[0], run(policy)[0])


def test_only_a_model_that_is_trained_is_changed(tmp_path: Path) -> None:
    policy_of().save(tmp_path / "model")
    model = ModelConfig(path=str(tmp_path / "model"), device="cpu", precision="bf16")
    assert changed(Policy.load(model).model) == []
    assert len(changed(load_policy(model, 0, None).model)) == 7
    assert len(changed(load_policy(model, 0, tmp_path).model)) == 7, "from a checkpoint"
    assert changed(load_policy(replace(model, precision="fp32"), 0, None).model) == []


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft asks
@pytest.mark.parametrize("exact", [True, False])
def test_frozen_weights_are_kept_in_bf16_if_it_holds_their_values(
    exact: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same log-probabilities, gradients of the adapters, hash, sampled tokens and exported weights, bit for bit."""
    base = policy_of(tie_word_embeddings=True)
    if exact:  # as in nearly every published model
        for parameter in base.model.parameters():
            parameter.data = parameter.data.bfloat16().float()
    base.save(tmp_path / "base")
    config = ModelConfig(str(tmp_path / "base"), device="cpu", precision="bf16", lora_rank=2)
    policy = load_policy(config, 0, None)
    monkeypatch.setattr(lean, "_held_by_bf16", lambda _: [])
    wide = load_policy(config, 0, None)
    with torch.no_grad():
        for (_, one), (_, other) in zip(policy.trainable(), wide.trainable(), strict=True):
            other.copy_(one.normal_(0.0, 0.3, generator=torch.Generator().manual_seed(one.numel())))
    narrow = {name for name, p in policy.model.named_parameters() if p.dtype == torch.bfloat16}
    projections = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    assert {name.split(".")[-3] for name in narrow} == (set(projections) if exact else set())
    (found, slopes, _), (expected, others, _) = run(policy), run(wide)
    assert torch.equal(found, expected) and slopes.keys() == others.keys()
    assert all(torch.equal(slopes[name], value) for name, value in others.items())
    drawn = [HFSampler(one).sample([[3, 4, 5]], SamplingParams(3, max_tokens=8), [7]) for one in (policy, wide)]
    assert drawn[0] == drawn[1]
    assert policy.weight_hash() == wide.weight_hash()
    states = [merged_state(one.causal_lm) for one in (policy, wide)]
    assert all(torch.equal(states[0][name], value) for name, value in states[1].items())
    assert {value.dtype for value in states[0].values()} == {torch.float32}


def test_frozen_weights_that_a_model_reads_in_another_way_stay_as_they_are() -> None:
    policy = policy_of()
    for parameter in policy.model.parameters():
        parameter.data = parameter.data.bfloat16().float()
    layer = policy.model.model.layers[0].self_attn.o_proj
    layer.requires_grad_(False)

    def exact(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            return nn.functional.linear(x.float(), layer.weight)

    layer.forward = exact
    make_lean(policy.model)
    assert layer.weight.dtype == torch.float32
    del layer.forward
    make_lean(policy.model)
    assert layer.weight.dtype == torch.bfloat16


def test_layers_that_recompute_their_activations_have_the_same_gradients() -> None:
    policy = policy_of()
    make_lean(policy.model)
    _, expected, _ = run(policy)
    enable = getattr(policy.model, "activation_checkpointing_enable", None)
    (enable or policy.model.gradient_checkpointing_enable)()
    _, found, _ = run(policy)
    assert all(torch.equal(found[name], value) for name, value in expected.items())


# As on a GPU --------------------------------------------------------------------------------------------------------


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Norms by torch's fused operations; a CPU lacks that of the backward pass, which is given by its formula."""

    def backward(grad, x, shape, inverse, weight, wanted):
        normed, slope = x * inverse, grad * weight
        of_x = inverse * (slope - normed * (slope * normed).mean(-1, keepdim=True))
        found = (of_x, (grad * normed).flatten(0, -2).sum(0))
        return tuple(one if wants else torch.empty(0) for one, wants in zip(found, wanted, strict=True))

    library = torch.library.Library("aten", "IMPL")
    library.impl("_fused_rms_norm_backward", backward, "CPU")
    monkeypatch.setattr(lean, "fuses", lambda device: True)
    yield
    library._destroy()


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_fused_norms_are_as_exact_as_the_model(name: str, fused: None) -> None:
    before, after, true = compared(name)
    assert (after - true).norm() < 1.5 * (before - true).norm()


def test_a_fused_norm_that_is_off_is_left_as_it_is(fused: None, monkeypatch: pytest.MonkeyPatch) -> None:
    aten = torch.ops.aten

    class Scaled:
        def _fused_rms_norm(self, *given):
            out, inverse = aten._fused_rms_norm(*given)
            return 1.02 * out, inverse

        def __getattr__(self, name):
            return getattr(aten, name)

    monkeypatch.setattr(torch.ops, "aten", Scaled())
    policy = policy_of()
    make_lean(policy.model)
    assert changed(policy.model) == ["LlamaMLP"] * 2


def test_a_missing_operation_leaves_norms_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lean, "fuses", lambda device: True)  # without the fixture there is no backward pass
    policy = policy_of()
    make_lean(policy.model)
    assert changed(policy.model) == ["LlamaMLP"] * 2


def test_a_changed_model_must_be_about_as_exact_as_its_own_bf16(fused: None) -> None:
    exact = torch.zeros(4)
    assert lean.as_good(exact + 0.014, exact + 0.01, exact)
    assert not lean.as_good(exact + 0.016, exact + 0.01, exact)
