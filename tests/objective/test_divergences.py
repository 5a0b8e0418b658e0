"""Oracles for the generators: enumeration of small vocabularies, derivatives, limits and golden values."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dph.config import LossConfig
from dph.errors import SettingsError
from dph.objective import Objective
from dph.objective.divergences import (
    Divergence,
    get_divergence,
    js_reference_half,
    log_ratio_to_mixture,
    register_divergence,
)

CENTRED = [("forward_kl", 0.5), ("reverse_kl", 0.5), ("js", 0.5), ("alpha", 0.2), ("alpha", 0.5), ("alpha", 0.8)]
LEAST = 0.3020171355721027  # root of log(2u/(1+u)) + 1/(1+u), by bisection
EPS32 = torch.finfo(torch.float32).eps


def kl(p, q):
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


def mixture(p, q):
    return [(a + b) / 2 for a, b in zip(p, q, strict=True)]


def jsd(p, q):
    return 0.5 * kl(p, mixture(p, q)) + 0.5 * kl(q, mixture(p, q))


def alpha_divergence(p, q, alpha):
    # Σ q f(p/q) for f of Table 5: the linear term sums to (1 − α) and the constant to α.
    return (1 - sum(b**alpha * a ** (1 - alpha) for a, b in zip(p, q, strict=True))) / (alpha * (1 - alpha))


# Textbook definitions with p = π_θ and q = π_ref; `js` is twice the textbook's.
EXACT = {
    "forward_kl": lambda p, q: kl(q, p),
    "forward_kl_raw": lambda p, q: kl(q, p),
    "reverse_kl": kl,
    "js": lambda p, q: 2 * jsd(p, q),
    "alpha": lambda p, q: alpha_divergence(p, q, 0.3),
}

distributions = st.lists(st.floats(0.01, 1.0), min_size=5, max_size=5).map(lambda w: [x / sum(w) for x in w])


@pytest.mark.parametrize("name", EXACT)
@settings(deadline=None)
@given(p=distributions, q=distributions)
def test_expectation_under_the_reference_is_the_divergence(name, p, q):
    log_ratio = torch.tensor(p, dtype=torch.float64).log() - torch.tensor(q, dtype=torch.float64).log()
    f = get_divergence(name, alpha=0.3).f(log_ratio)
    # fp64; sums of five terms below 100
    assert float((torch.tensor(q, dtype=torch.float64) * f).sum()) == pytest.approx(EXACT[name](p, q), abs=1e-12)


@pytest.mark.parametrize("name", EXACT)
def test_expected_pull_is_the_gradient_of_the_divergence(name):
    logits = torch.tensor([0.3, -1.0, 0.7, 0.1], dtype=torch.float64, requires_grad=True)
    ref = torch.tensor([0.1, 0.4, 0.2, 0.3], dtype=torch.float64)
    logprobs = logits.log_softmax(-1)
    weight = get_divergence(name, alpha=0.3).pull_weight(logprobs.detach() - ref.log())
    (expected_pull,) = torch.autograd.grad((ref * weight * logprobs).sum(), logits, retain_graph=True)
    step = 1e-6
    for i in range(4):
        shifted = [logits.detach().clone() for _ in range(2)]
        shifted[0][i] += step
        shifted[1][i] -= step
        up, down = (EXACT[name](x.softmax(-1).tolist(), ref.tolist()) for x in shifted)
        # central differences: error step² plus rounding 1e-16/step
        assert float(expected_pull[i]) == pytest.approx((up - down) / (2 * step), abs=1e-8)


@pytest.mark.parametrize(("name", "alpha"), CENTRED)
def test_centred_generators_vanish_with_their_slope_at_one(name, alpha):
    log_ratio = torch.zeros(3, requires_grad=True)
    divergence = get_divergence(name, alpha=alpha)
    f = divergence.f(log_ratio)
    f.sum().backward()
    assert f.tolist() == [0.0] * 3
    assert log_ratio.grad is not None
    assert log_ratio.grad.tolist() == [0.0] * 3
    assert divergence.pull_weight(torch.zeros(1)).tolist() == [0.0]


def test_raw_forward_kl_pulls_even_at_one():
    raw = get_divergence("forward_kl_raw")
    assert raw.pull_weight(torch.tensor([0.0, 3.0, -50.0])).tolist() == [-1.0, -1.0, -1.0]
    assert raw.f(torch.tensor([2.0])).tolist() == [-2.0]


@pytest.mark.parametrize(("name", "alpha"), CENTRED)
@settings(deadline=None)
@given(value=st.floats(-200, 80, width=32))
def test_fp32_is_nonnegative_finite_and_as_good_as_fp64(name, alpha, value):
    divergence = get_divergence(name, alpha=alpha)
    low, high = (torch.tensor(value, dtype=dtype, requires_grad=True) for dtype in (torch.float32, torch.float64))
    f, exact = divergence.f(low), divergence.f(high)
    f.backward()
    exact.backward()
    assert low.grad is not None and high.grad is not None
    # A sum of terms up to (1 + u)(1 + |ℓ|) over α(1 − α) ≥ 0.16, where exp of a float32 itself has relative error
    # (1 + |ℓ|)·EPS: no formula in fp32 can be better than a few of these units.
    unit = EPS32 * (1 + math.exp(value)) * (1 + abs(value)) ** 2 / 0.16
    assert torch.isfinite(f) and torch.isfinite(low.grad)
    assert f.item() >= -EPS32 * (1 + math.exp(value))  # js: one rounding of log 2 on each side
    assert abs(f.item() - exact.item()) <= unit
    assert abs(float(low.grad) - float(high.grad)) <= unit
    assert abs(float(divergence.pull_weight(low.detach())) - float(high.grad)) <= unit


@pytest.mark.parametrize("divergence", [
    *(get_divergence(name, alpha=alpha) for name, alpha in [*CENTRED, ("forward_kl_raw", 0.5)]),
    get_divergence("forward_kl", official=True),
    js_reference_half(),
    js_reference_half(scale=2.0, official=True),
])  # fmt: skip
def test_pull_weight_is_the_derivative(divergence):
    log_ratio = torch.linspace(-30, 30, 601, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(divergence.f(log_ratio).sum(), log_ratio)
    # fp64; relative because u reaches e^30
    torch.testing.assert_close(divergence.pull_weight(log_ratio.detach()), slope, rtol=1e-12, atol=1e-12)


def test_golden_values_at_two():
    log_ratio = torch.tensor(2.0, dtype=torch.float64).log()
    golden = {
        "forward_kl": 0.3068528194400547,  # 2 − 1 − log 2 = 1 − 0.6931471805599453
        "forward_kl_raw": -0.6931471805599453,  # −log 2
        "reverse_kl": 0.3862943611198906,  # 2 log 2 − 2 + 1
        "js": 0.16989903679539747,  # 2·0.6931471805599453 − 3·log 1.5 = 1.3862943611198906 − 3·0.4054651081081644
        "alpha": 0.3431457505076194,  # α = ½: (√2 − 1 − ½)/(−¼) = 6 − 4·1.4142135623730951
    }
    for name, value in golden.items():
        assert float(get_divergence(name).f(log_ratio)) == pytest.approx(value, rel=1e-14)


def test_golden_pull_weights_at_one_half():
    log_ratio = torch.tensor(0.5, dtype=torch.float64).log()
    golden = {
        "forward_kl": -0.5,  # ½ − 1
        "reverse_kl": -0.34657359027997264,  # ½ log ½
        "js": -0.2027325540540822,  # ½ log(1/1.5) = −½·0.4054651081081644
        "alpha": -0.41421356237309515,  # α = ½: (½ − √½)/½ = 1 − √2
    }
    for name, value in golden.items():
        assert float(get_divergence(name).pull_weight(log_ratio)) == pytest.approx(value, rel=1e-14)


def test_what_is_left_of_the_pull_on_forgotten_tokens():
    forgotten = torch.tensor([-60.0])
    assert get_divergence("forward_kl").pull_weight(forgotten).tolist() == [-1.0]  # e^−60 is below half an ulp of 1
    for name in ("reverse_kl", "js"):
        assert abs(float(get_divergence(name).pull_weight(forgotten))) < 1e-23  # 60·e^−60 = 5e-25
    # alpha: −u^(1−α)/α, so a larger α holds on longer
    pulls = [
        -float(get_divergence("alpha", alpha=alpha).pull_weight(torch.tensor([-3.0]))) for alpha in (0.2, 0.5, 0.8)
    ]
    assert pulls == sorted(pulls)


def test_js_pulls_with_less_than_a_quarter_of_forward_kl():
    log_ratio = torch.linspace(-12, 0, 120001, dtype=torch.float64)
    weight = get_divergence("js").pull_weight(log_ratio)
    # d/du u·log(2u/(1+u)) = log(2u/(1+u)) + 1/(1+u) = 0 at u = LEAST, where the weight is −u/(1+u).
    assert float(log_ratio[weight.argmin()].exp()) == pytest.approx(LEAST, abs=1e-4)  # the grid's step
    assert float(weight.min()) == pytest.approx(-LEAST / (1 + LEAST), abs=1e-8)  # flat there: step² left


@pytest.mark.parametrize(("limit", "alpha"), [("forward_kl", 1 - 1e-7), ("reverse_kl", 1e-7)])
def test_alpha_divergence_tends_to_both_kl(limit, alpha):
    log_ratio = torch.linspace(-5, 3, 81, dtype=torch.float64)
    near, end = get_divergence("alpha", alpha=alpha), get_divergence(limit)
    # first order in 1e-7 with a factor of up to u·ℓ²/2 = 90; cancellation 1e-16/1e-7 is smaller
    torch.testing.assert_close(near.f(log_ratio), end.f(log_ratio), rtol=0, atol=2e-5)
    torch.testing.assert_close(near.pull_weight(log_ratio), end.pull_weight(log_ratio), rtol=0, atol=2e-5)


def test_alpha_one_half_is_symmetric():
    p = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    q = torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)
    f = get_divergence("alpha", alpha=0.5).f
    assert float((q * f((p / q).log())).sum()) == pytest.approx(float((p * f((q / p).log())).sum()), rel=1e-12)


def test_official_forward_kl_is_the_clamped_k3():
    log_ratio = torch.linspace(-40, 40, 801, dtype=torch.float64)
    clamped = log_ratio.clamp(-20, 20)
    expected = (clamped.exp() - clamped - 1).clamp(-10, 10)
    official = get_divergence("forward_kl", official=True)
    torch.testing.assert_close(official.f(log_ratio), expected)
    # e^−12 + 12 − 1 > 10: the clamp takes away the pull exactly where a token is most forgotten
    assert official.pull_weight(torch.tensor([-12.0, -10.0])).tolist() == pytest.approx([0.0, math.expm1(-10.0)])


def test_log_ratio_to_mixture_is_the_log_ratio_to_the_mean_policy():
    p, q = torch.tensor([0.6, 0.4], dtype=torch.float64), torch.tensor([0.1, 0.9], dtype=torch.float64)
    log_ratio, middle = (p / q).log(), (p + q) / 2
    torch.testing.assert_close(log_ratio_to_mixture(log_ratio), (p / middle).log())
    torch.testing.assert_close(log_ratio_to_mixture(-log_ratio), (q / middle).log())


@settings(deadline=None)
@given(p=distributions, q=distributions)
def test_first_half_of_js_by_its_definition(p, q):
    log_ratio = torch.tensor(p, dtype=torch.float64).log() - torch.tensor(q, dtype=torch.float64).log()
    weights = torch.tensor(q, dtype=torch.float64)
    exact = 0.5 * kl(q, mixture(p, q))
    assert float((weights * js_reference_half().f(log_ratio)).sum()) == pytest.approx(exact, abs=1e-12)
    assert float((weights * js_reference_half(scale=2.0).f(log_ratio)).sum()) == pytest.approx(2 * exact, abs=1e-12)


def test_first_half_of_js_is_centred_and_equals_the_official_one_inside_its_clamps():
    log_ratio = torch.linspace(-30, 2.5, 200, dtype=torch.float64)  # k3 of log m − log π_ref stays below 10 here
    torch.testing.assert_close(js_reference_half().f(log_ratio), js_reference_half(official=True).f(log_ratio))
    one = torch.zeros(1, requires_grad=True)
    js_reference_half().f(one).sum().backward()
    assert one.grad is not None
    assert one.grad.tolist() == [0.0]
    assert js_reference_half().pull_weight(torch.zeros(1)).tolist() == [0.0]


def test_a_divergence_can_be_registered():
    @register_divergence("test_squared_log")
    def squared_log(*, scale: float = 1.0):
        return Divergence("test_squared_log", f=lambda x: 0.5 * scale * x**2, pull_weight=lambda x: scale * x)

    assert float(get_divergence("test_squared_log").f(torch.tensor(3.0))) == 4.5
    config = LossConfig(divergence="test_squared_log", divergence_options={"scale": "2"})
    assert float(Objective(config).divergence.f(torch.tensor(3.0))) == 9


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (LossConfig(divergence="js", divergence_options={"scale": "2"}), "does not take the option 'scale'"),
        (LossConfig(divergence="alpha", divergence_options={"alpha": "0.2"}), "does not take the option 'alpha'"),
        (LossConfig(divergence="js", alpha=0.2), "loss.alpha is the order of"),
    ],
)
def test_settings_that_a_divergence_does_not_take_are_refused(config, message):
    with pytest.raises(SettingsError, match=message):
        Objective(config)


def test_mistakes_are_told_in_one_sentence():
    with pytest.raises(SettingsError, match="no divergence is named 'jsd'"):
        get_divergence("jsd")
    for alpha in (0.0, 1.0, -0.1, math.nan):
        with pytest.raises(SettingsError, match="strictly between 0 and 1"):
            get_divergence("alpha", alpha=alpha)
