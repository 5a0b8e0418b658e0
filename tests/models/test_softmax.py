"""Log-probabilities, entropies and the gradient of logits, in blocks of rows: exact values, and any size of a block."""

import math

import pytest
import torch

from dph.models import logprobs as module
from dph.models.logprobs import logit_gradient, logprobs_of, normalize, numbers_like, token_logprobs

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
    known = numbers_like(logits, "value")
    normalize(known, logits, 1.0)
    assert float(known[2]) == pytest.approx(-sum(p * math.log(p) for p in (1 / 8, 2 / 8, 5 / 8)), abs=1e-15)
    state = torch.zeros(1, dtype=torch.int64)
    found = logprobs_of(logits, known, state, torch.tensor([1]), 1.0)
    assert float(found) == pytest.approx(math.log(2 / 8), abs=1e-15)
    normalize(known, logits, 0.5)
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
    monkeypatch.setattr(module, "ELEMENTS_ON_CPU", rows * VOCABULARY)
    if on_gpu:  # the functions that are compiled there
        monkeypatch.setattr(module, "compiled", lambda function, *_: function)
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
    known = numbers_like(logits, "value")
    normalize(known, logits, 1.0)
    assert float((known[2] - truth[1]).abs().max()) < 4e-6  # entropies of 6 nats: an ulp is 5e-7


def test_a_token_that_is_excluded_has_no_probability_and_no_gradient() -> None:
    logits = torch.tensor([[0.0, -math.inf, 0.0]]).requires_grad_()
    states, targets = torch.tensor([0]), torch.tensor([2])
    values, _ = token_logprobs(logits, states, targets, 1.0, "none")
    values.sum().backward()
    assert float(values.detach()) == pytest.approx(-math.log(2))
    assert logits.grad is not None and logits.grad[0].tolist() == pytest.approx([-0.5, 0.0, 0.5])


def masked(dtype: torch.dtype) -> torch.Tensor:
    """Logits of which many are −∞, some are large, and some differ by more than any exponential can tell."""
    gone, generator = -math.inf, torch.Generator().manual_seed(1)
    logits = 3 * torch.randn(7, VOCABULARY, generator=generator, dtype=torch.float64)
    logits[1, 3:] = gone
    logits[2, :-1] = gone  # one token is certain
    logits[3] = torch.tensor([3e4, 3e4, 3e4 - 128, *[-3e4] * 5, *[gone] * 5])
    logits[4] = 2.0**100
    logits[4, 1::2] = gone
    logits[5] += 4096
    logits[6, :3] = torch.tensor([2.0**100, -(2.0**100), gone])
    return logits.to(dtype)


@pytest.mark.parametrize("rows", [1, 3, 100])
@pytest.mark.parametrize("entropy", ["value", "gradient"])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_masked_and_large_logits_have_the_entropies_and_gradients_of_the_tokens_that_are_left(
    rows: int, entropy: str, temperature: float, on_gpu: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ELEMENTS_ON_CPU", rows * VOCABULARY)
    if on_gpu:
        monkeypatch.setattr(module, "compiled", lambda function, *_: function)
    logits = masked(dtype).requires_grad_()
    states = torch.arange(len(logits)).repeat(2)
    finite = logits.detach().isfinite()
    targets = torch.cat([finite.int().argmax(-1), VOCABULARY - 1 - finite.flip(-1).int().argmax(-1)])
    values, entropies = token_logprobs(logits, states, targets, temperature, entropy)  # type: ignore[arg-type]
    assert entropies is not None
    found = [values.detach(), entropies.detach()]
    slopes = torch.linspace(-1, 1, len(states), dtype=torch.float64)
    total = (slopes * values).sum() + ((slopes.flip(0) * entropies).sum() if entropy == "gradient" else 0)
    gradient = torch.autograd.grad(total, logits)[0]
    exact = torch.zeros_like(gradient, dtype=torch.float64)
    for state, row in enumerate(logits.detach().double()):
        left = finite[state]
        x = row[left].requires_grad_()
        every = (x / temperature).log_softmax(-1)
        own = (states == state).nonzero()[:, 0]
        logprobs = every[left.cumsum(0)[targets[own]] - 1]
        spread = torch.special.entr(every.exp()).sum()
        torch.testing.assert_close(found[0][own].double(), logprobs.detach(), rtol=2e-6, atol=2e-6)
        torch.testing.assert_close(found[1][own].double(), spread.detach().expand(2), rtol=0, atol=2e-6)
        whole = slopes[own] @ logprobs
        if entropy == "gradient":
            whole = whole - slopes.flip(0)[own].sum() * (every.exp() * every.clamp(min=-1e5)).sum()
        exact[state, left] = torch.autograd.grad(whole, x)[0]
    allowed = torch.finfo(dtype).eps / 2 * exact.abs() + 4e-6
    assert bool(((gradient.double() - exact).abs() <= allowed).all())


def test_an_entropy_by_hand_with_a_masked_token() -> None:
    """Logits 0, log 3, −∞: p = 1/4, 3/4, 0. The gradient of H is −p(log p + H)."""
    logits = torch.tensor([[0.0, math.log(3), -math.inf]], dtype=torch.float64).requires_grad_()
    one = torch.tensor([0])
    _, entropies = token_logprobs(logits, one, one, 1.0, "gradient")
    assert entropies is not None
    expected = math.log(4) - 0.75 * math.log(3)
    assert float(entropies.detach()) == pytest.approx(expected, abs=1e-15)
    slope = torch.autograd.grad(entropies.sum(), logits)[0][0].tolist()
    by_hand = [-0.25 * (math.log(1 / 4) + expected), -0.75 * (math.log(3 / 4) + expected), 0.0]
    assert slope == pytest.approx(by_hand, abs=1e-15)


def test_no_rows() -> None:
    nothing = torch.zeros(0, dtype=torch.int64)
    logits = torch.zeros(0, VOCABULARY).requires_grad_()
    values, entropies = token_logprobs(logits, nothing, nothing, 1.0, "value")
    values.sum().backward()
    assert values.shape == (0,) and entropies is not None and logits.grad is not None
