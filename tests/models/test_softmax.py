"""Log-probabilities, entropies and the gradient of logits, in blocks of rows: exact values, and any size of a block."""

import math

import pytest
import torch

from dph.models import softmax
from dph.models.logprobs import token_logprobs
from dph.models.softmax import Normalized, logit_gradient, logprobs_of

ROWS, VOCABULARY = 9, 13


def given(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits, and tokens of which some share a row, in no order; one row predicts nothing."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(ROWS, VOCABULARY, generator=generator, dtype=torch.float64)
    states = torch.tensor([7, 0, 1, 1, 2, 6, 4, 5, 1])
    return logits.to(dtype), states, torch.randint(VOCABULARY, (len(states),), generator=generator)


def plain(logits: torch.Tensor, states: torch.Tensor, targets: torch.Tensor, temperature: float) -> list[torch.Tensor]:
    """The same by log_softmax."""
    every = (logits / temperature).log_softmax(-1)
    return [every[states, targets], -(every.exp() * every).sum(-1)[states]]


def test_a_row_by_hand() -> None:
    """Logits log 1, log 2, log 5: p = 1/8, 2/8, 5/8; at T = 1/2 the squares, p = 1/30, 4/30, 25/30."""
    logits = torch.tensor([[1.0, 2.0, 5.0]]).double().log()
    known = Normalized.empty(logits, entropy=True)
    known.fill(logits, 1.0)
    assert known.entropies is not None
    assert float(known.entropies) == pytest.approx(-sum(p * math.log(p) for p in (1 / 8, 2 / 8, 5 / 8)), abs=1e-15)
    state = torch.zeros(1, dtype=torch.int64)
    found = logprobs_of(logits, known, state, torch.tensor([1]), 1.0)
    assert float(found) == pytest.approx(math.log(2 / 8), abs=1e-15)
    known.fill(logits, 0.5)
    found = logprobs_of(logits, known, state, torch.tensor([0]), 0.5)
    assert float(found) == pytest.approx(math.log(1 / 30), abs=1e-15)
    slope = logit_gradient(logits, known, state, torch.tensor([0]), 0.5, torch.tensor([3.0]).double(), None)
    assert slope[0].tolist() == pytest.approx([6 * (29 / 30), -6 * 4 / 30, -6 * 25 / 30], abs=1e-14)  # g/T = 6


@pytest.mark.parametrize("rows", [1, 2, 4, 100])
@pytest.mark.parametrize("entropy", ["none", "value", "gradient"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("on_gpu", [False, True])
def test_blocks_of_any_size_give_the_plain_values_and_gradients(
    rows: int, entropy: str, temperature: float, on_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(softmax, "_ELEMENTS_ON_CPU", rows * VOCABULARY)
    if on_gpu:  # the functions that are compiled there
        monkeypatch.setattr(softmax, "compiled", lambda function, *_: function)
    logits, states, targets = given()
    slopes = torch.linspace(-1, 1, len(states), dtype=torch.float64)

    def results(x: torch.Tensor, values: torch.Tensor, entropies: torch.Tensor | None) -> list[torch.Tensor]:
        total = (slopes * values).sum()
        if entropy == "gradient":
            assert entropies is not None
            total = total + (slopes.flip(0) * entropies).sum()
        gradient = torch.autograd.grad(total, x)[0]
        return [values.detach(), gradient, *([] if entropies is None else [entropies.detach()])]

    x, y = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    values, entropies = token_logprobs(x, states, targets, temperature, entropy)  # type: ignore[arg-type]
    assert (entropies is None) == (entropy == "none")
    assert entropies is None or entropies.requires_grad == (entropy == "gradient")
    expected = results(y, *plain(y, states, targets, temperature))
    found = results(x, values, entropies)
    for value, truth in zip(found, expected[: len(found)], strict=True):
        assert float((value - truth).abs().max()) < 1e-13


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_logits_of_any_type_have_fp32_values_and_a_gradient_rounded_once(dtype: torch.dtype) -> None:
    logits, states, targets = given(dtype)
    expected = plain(logits.double(), states, targets, 0.7)
    x, exact = logits.clone().requires_grad_(), logits.double().requires_grad_()
    values, entropies = token_logprobs(x, states, targets, 0.7, "value")
    assert entropies is not None and values.dtype == entropies.dtype == torch.float32
    for found, truth in zip((values, entropies), expected, strict=True):
        assert float((found - truth).detach().abs().max()) < 2e-6
    values.sum().backward()
    plain(exact, states, targets, 0.7)[0].sum().backward()
    assert x.grad is not None and exact.grad is not None and x.grad.dtype == dtype
    allowed = torch.finfo(dtype).eps / 2 * exact.grad.abs() + 1e-6
    assert bool(((x.grad.double() - exact.grad).abs() <= allowed).all())
    assert torch.equal(x.detach(), logits)  # nothing is computed in place


def test_the_entropy_of_a_large_vocabulary_has_no_rounding_of_its_length() -> None:
    """Summed over 49,152 probabilities, in fp32, it is as exact as a number of its size."""
    logits = 3 * torch.randn(4, 49152, generator=torch.Generator().manual_seed(0))
    truth = plain(logits.double(), torch.arange(4), torch.arange(4), 1.0)
    known = Normalized.empty(logits, entropy=True)
    known.fill(logits, 1.0)
    assert known.entropies is not None
    assert float((known.entropies - truth[1]).abs().max()) < 4e-6  # entropies of 6 nats: an ulp is 5e-7


def test_a_token_that_is_excluded_has_no_probability_and_no_gradient() -> None:
    logits = torch.tensor([[0.0, -math.inf, 0.0]]).requires_grad_()
    states, targets = torch.tensor([0]), torch.tensor([2])
    values, _ = token_logprobs(logits, states, targets, 1.0, "none")
    values.sum().backward()
    assert float(values.detach()) == pytest.approx(-math.log(2))
    assert logits.grad is not None and logits.grad[0].tolist() == pytest.approx([-0.5, 0.0, 0.5])


def test_no_rows() -> None:
    nothing = torch.zeros(0, dtype=torch.int64)
    logits = torch.zeros(0, VOCABULARY).requires_grad_()
    values, entropies = token_logprobs(logits, nothing, nothing, 1.0, "value")
    values.sum().backward()
    assert values.shape == (0,) and entropies is not None and logits.grad is not None
