"""What the losses' *expected gradients* are, by enumerating every action of a small vocabulary in fp64."""

import pytest
import torch

from dph.objective.divergences import js_reference_half, log_ratio_to_mixture
from dph.objective.policy_losses import JS_BASELINE, js_definition_policy_term, kl_loss, masked_log_ratio, ppo_clip

REF = torch.tensor([0.1, 0.4, 0.2, 0.25, 0.05], dtype=torch.float64)
OLD = torch.tensor([0.3, 0.2, 0.1, 0.3, 0.1], dtype=torch.float64)
MASK = torch.ones(5, 1)
TIGHT = {"rtol": 0, "atol": 1e-13}  # fp64, sums of five terms of order one


@pytest.fixture
def logits():
    return torch.tensor([0.4, -0.3, 0.8, -1.0, 0.2], dtype=torch.float64, requires_grad=True)


def kl(p, q):
    return (p * (p / q).log()).sum()


def gradient(value, logits):
    return torch.autograd.grad(value, logits)[0]


def expected_gradient(loss_of, sampler, logits):
    """Σ_a sampler(a)·∇loss(a): one row per action, each a response of one token."""
    logprobs = logits.log_softmax(-1)
    return gradient((sampler * loss_of(logprobs[:, None])[:, 0]).sum(), logits)


def on_policy(logits):
    return logits.softmax(-1).detach()


def ref_column():
    return REF.log()[:, None]


def first_half(logprobs):
    """Of JS by its definition, on samples of π_ref."""
    return js_reference_half().f(masked_log_ratio(logprobs, ref_column(), MASK))


def test_k1_as_a_loss_has_no_expected_gradient(logits):
    found = expected_gradient(lambda lp: kl_loss(lp, ref_column(), MASK, "k1"), on_policy(logits), logits)
    torch.testing.assert_close(found, torch.zeros_like(found), **TIGHT)


def test_k2_has_the_gradient_of_reverse_kl(logits):
    found = expected_gradient(lambda lp: kl_loss(lp, ref_column(), MASK, "k2"), on_policy(logits), logits)
    torch.testing.assert_close(found, gradient(kl(logits.softmax(-1), REF), logits), **TIGHT)


def test_k3_has_the_value_of_reverse_kl_and_the_gradient_of_forward_kl(logits):
    sampler = on_policy(logits)
    found = expected_gradient(lambda lp: kl_loss(lp, ref_column(), MASK, "k3"), sampler, logits)
    torch.testing.assert_close(found, gradient(kl(REF, logits.softmax(-1)), logits), **TIGHT)
    assert not torch.allclose(found, gradient(kl(logits.softmax(-1), REF), logits), atol=1e-2)
    value = (sampler * kl_loss(sampler.log()[:, None], ref_column(), MASK, "k3")[:, 0]).sum()
    torch.testing.assert_close(value, kl(sampler, REF), **TIGHT)


def test_k3_with_importance_weights_is_reverse_kl_even_off_policy(logits):
    def loss(lp):
        return kl_loss(lp, ref_column(), MASK, "k3_is", OLD.log()[:, None])

    torch.testing.assert_close(
        expected_gradient(loss, OLD, logits), gradient(kl(logits.softmax(-1), REF), logits), **TIGHT
    )
    value = (OLD * loss(logits.detach().log_softmax(-1)[:, None])[:, 0]).sum()
    torch.testing.assert_close(value, kl(on_policy(logits), REF), **TIGHT)


def js_halves(policy):
    middle = (policy + REF) / 2
    return 0.5 * kl(REF, middle), 0.5 * kl(policy, middle)


@pytest.mark.parametrize("baseline", [0.0, JS_BASELINE, -1.0])
def test_both_halves_of_js_by_its_definition_have_the_right_gradient(logits, baseline):
    def second(lp):
        return js_definition_policy_term(lp, OLD.log()[:, None], ref_column(), MASK, baseline=baseline)

    first_exact, second_exact = (gradient(js_halves(logits.softmax(-1))[half], logits) for half in (0, 1))
    found = expected_gradient(first_half, REF, logits)
    torch.testing.assert_close(found, first_exact, **TIGHT)
    torch.testing.assert_close(expected_gradient(second, OLD, logits), second_exact, **TIGHT)
    value = (OLD * second(logits.detach().log_softmax(-1)[:, None])[:, 0]).sum()
    torch.testing.assert_close(value, js_halves(on_policy(logits))[1], **TIGHT)


def test_differentiating_the_logarithm_alone_would_undo_the_first_half(logits):
    """The mistake that ρ in the second half guards against: E_θ[∇g] = −∇(first half)."""
    found = expected_gradient(lambda lp: 0.5 * log_ratio_to_mixture(lp - ref_column()), on_policy(logits), logits)
    torch.testing.assert_close(found, -gradient(js_halves(logits.softmax(-1))[0], logits), **TIGHT)


def test_the_official_second_half_is_biased_as_derived(logits):
    """E_θ[∇k3] = E_θ[(m/π_θ − 1)·∇(log m − log π_θ)] = −Σ m ∇log π_θ − Σ π_θ ∇log m, not the half's gradient."""
    found = expected_gradient(
        lambda lp: js_definition_policy_term(lp, OLD.log()[:, None], ref_column(), MASK, scale=2.0, official=True),
        on_policy(logits),
        logits,
    )
    policy = logits.softmax(-1)
    middle = (policy + REF) / 2
    expected = gradient(-(middle.detach() * policy.log()).sum() - (policy.detach() * middle.log()).sum(), logits)
    torch.testing.assert_close(found, expected, **TIGHT)
    assert not torch.allclose(found, 2 * gradient(js_halves(logits.softmax(-1))[1], logits), atol=1e-2)


def test_js_terms_vanish_at_the_reference_sample_by_sample():
    logprobs = REF.log()[:, None].clone().requires_grad_()
    for loss in (
        js_definition_policy_term(logprobs, REF.log()[:, None], ref_column(), MASK),
        first_half(logprobs),
    ):
        torch.testing.assert_close(loss.detach(), torch.zeros_like(loss), **TIGHT)
        (slope,) = torch.autograd.grad(loss.sum(), logprobs)
        torch.testing.assert_close(slope, torch.zeros_like(slope), **TIGHT)


def test_unclipped_policy_loss_has_the_policy_gradient(logits):
    """With wide clips, Σ_a π_old(a)·∇(−ρA) = −∇E_{π_θ}[A], off-policy too."""
    advantages = torch.tensor([1.0, -0.5, 2.0, 0.0, -1.0], dtype=torch.float64)
    found = expected_gradient(
        lambda lp: ppo_clip(lp, OLD.log()[:, None], advantages, MASK, clip_low=1.0, clip_high=1e9), OLD, logits
    )
    torch.testing.assert_close(found, -gradient((logits.softmax(-1) * advantages).sum(), logits), **TIGHT)
