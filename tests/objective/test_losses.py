"""Oracles for the objective: a scalar re-implementation, hand-computed values, equivalences, finite differences."""

import itertools
import math
from dataclasses import astuple, replace
from typing import Literal

import pytest
import torch

from dph.config import LossConfig
from dph.errors import SettingsError
from dph.objective import LossCounts, Objective, TokenBatch, mean_metrics, ppo_clip, rehearsal_diagnostics
from dph.objective.divergences import get_divergence
from dph.objective.policy_losses import kl_loss, masked_log_ratio

LENGTHS = [3, 1, 4, 2, 4, 3, 0]
REHEARSAL = [False, True, False, False, True, True, False]
CONFIGS = [
    LossConfig(aggregation=aggregation, reduction=reduction, dr_grpo_length=6, **extra)
    for aggregation, reduction, extra in itertools.product(
        ("token", "sequence", "dr_grpo"),
        ("pooled", "per_set"),
        (
            {"divergence": "forward_kl", "dual_clip": 1.4},
            {"divergence": "alpha", "alpha": 0.2, "kl": "k3", "kl_coef": 0.3, "entropy_coef": 0.1},
            {"divergence": "js", "estimator": "definition", "js_scale": 2.0, "eta": 0.7},
            {"divergence": "js", "estimator": "definition", "js_ratio": 0.335, "eta": 0.2},
        ),
    )
]


def make_batch(seed=0, dtype=torch.float64):
    """Seven ragged rows of both sets, mixed; the last one is masked out altogether."""
    generator = torch.Generator().manual_seed(seed)

    def noise(*shape, scale):
        return scale * torch.randn(*shape, generator=generator, dtype=dtype)

    shape = (len(LENGTHS), max(LENGTHS))
    old = -1.0 - noise(*shape, scale=0.5).abs()
    mask = (torch.arange(shape[1])[None] < torch.tensor(LENGTHS)[:, None]).to(dtype)
    batch = TokenBatch(
        old_logprobs=old,
        ref_logprobs=old + noise(*shape, scale=0.6),
        response_mask=mask,
        advantages=noise(shape[0], scale=1.5) * ~torch.tensor(REHEARSAL),
        is_rehearsal=torch.tensor(REHEARSAL),
    )
    return old + noise(*shape, scale=0.4), batch, noise(*shape, scale=1.0).abs()


def take(batch, rows, width=None):
    columns = slice(width)
    ref = batch.ref_logprobs
    return TokenBatch(
        old_logprobs=batch.old_logprobs[rows, columns],
        ref_logprobs=None if ref is None else ref[rows, columns],
        response_mask=batch.response_mask[rows, columns],
        advantages=batch.advantages[rows],
        is_rehearsal=batch.is_rehearsal[rows],
    )


def scalar_loss(logprobs, batch, config, entropy):
    """The objective once more, one token at a time, in plain floats and without any of the package's functions."""
    rows = range(len(LENGTHS))
    tokens = {row: [t for t in range(max(LENGTHS)) if batch.response_mask[row, t]] for row in rows}
    live = [row for row in rows if tokens[row]]
    by_set = {kind: [row for row in live if bool(batch.is_rehearsal[row]) == kind] for kind in (False, True)}
    if config.aggregation == "token":
        n = {kind: sum(len(tokens[row]) for row in members) for kind, members in by_set.items()}
    else:
        n = {kind: len(members) for kind, members in by_set.items()}
    pooled = config.reduction == "pooled"
    lam = config.eta * n[True] / n[False] if pooled else config.eta
    if config.js_ratio:
        lam = config.eta * config.js_ratio
    total = 0.0
    for row in live:
        for t in tokens[row]:
            lp, old, ref = (float(x[row, t]) for x in (logprobs, batch.old_logprobs, batch.ref_logprobs))
            u, advantage = math.exp(lp - ref), float(batch.advantages[row])
            if batch.is_rehearsal[row]:
                if config.estimator == "definition":
                    value = config.js_scale * 0.5 * (math.log(2 / (1 + u)) + (u - 1) / 2)
                elif config.divergence == "forward_kl":
                    value = u - 1 - math.log(u)
                else:
                    a = config.alpha
                    value = (u ** (1 - a) - (1 - a) * u - a) / (a * (a - 1))
                value *= config.eta
            else:
                rho = math.exp(lp - old)
                clipped = min(max(rho, 1 - config.clip_low), 1 + config.clip_high)
                objective = min(rho * advantage, clipped * advantage)
                if config.dual_clip and advantage < 0:
                    objective = max(objective, config.dual_clip * advantage)
                value = -objective
                if config.kl == "k3":
                    value += config.kl_coef * (1 / u - 1 + math.log(u))
                if config.estimator == "definition":
                    g = 0.5 * math.log(2 * u / (1 + u))
                    value += lam * config.js_scale * (rho * (g - 0.25) + 0.25)
                value -= config.entropy_coef * float(entropy[row, t])
            if config.aggregation == "sequence":
                value /= len(tokens[row])
            elif config.aggregation == "dr_grpo":
                value /= config.dr_grpo_length
            total += value / (sum(n.values()) if pooled else n[bool(batch.is_rehearsal[row])])
    return total


def label(config):
    return f"{config.aggregation}-{config.reduction}-{config.divergence}-{config.estimator}"


@pytest.mark.parametrize("config", CONFIGS, ids=label)
def test_agrees_with_the_scalar_loss(config):
    logprobs, batch, entropy = make_batch()
    loss, sums = Objective(config)(logprobs, batch, LossCounts.of(batch), entropy)
    assert float(loss) == pytest.approx(scalar_loss(logprobs, batch, config, entropy), rel=1e-12)
    assert float(sums["loss"]) == float(loss)


@pytest.mark.parametrize("config", CONFIGS, ids=label)
@pytest.mark.parametrize("parts", [[[0, 1, 2, 3, 4, 5, 6]], [[6, 3], [1, 4, 5], [2], [0]], [[i] for i in range(7)]])
def test_cut_order_and_padding_of_micro_batches_change_nothing(config, parts):
    logprobs, batch, entropy = make_batch()
    whole = logprobs.clone().requires_grad_()
    loss, sums = Objective(config)(whole, batch, LossCounts.of(batch), entropy)
    loss.backward()

    cut = logprobs.clone().requires_grad_()
    micro = [take(batch, rows, max(1, max(LENGTHS[row] for row in rows))) for rows in parts]
    counts = LossCounts(*map(sum, zip(*(astuple(LossCounts.of(part)) for part in micro), strict=True)))
    assert counts == LossCounts.of(batch)
    total, added = 0.0, dict.fromkeys(sums, 0.0)
    for rows, part in zip(parts, micro, strict=True):
        width = part.response_mask.shape[1]
        piece, piece_sums = Objective(config)(cut[rows, :width], part, counts, entropy[rows, :width])
        piece.backward()
        total += piece.item()
        added = {name: added[name] + float(piece_sums[name]) for name in sums}
    # fp64, another order of summation
    assert total == pytest.approx(loss.item(), rel=1e-12)
    assert added == pytest.approx({name: float(value) for name, value in sums.items()}, rel=1e-12, abs=1e-12)
    torch.testing.assert_close(cut.grad, whole.grad, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("config", CONFIGS, ids=label)
def test_masking_equals_dropping_even_over_garbage(config):
    logprobs, batch, entropy = make_batch()
    kept = [0, 2, 4, 5]
    dropped = take(batch, kept, 3)
    expected, _ = Objective(config)(logprobs[kept, :3], dropped, LossCounts.of(dropped), entropy[kept, :3])

    out = torch.ones_like(batch.response_mask)
    out[kept, :3] = 0
    mask = batch.response_mask * (1 - out)

    def garbage(x, value):
        return torch.where(mask.bool(), x, value).requires_grad_()

    masked = replace(
        batch,
        response_mask=mask,
        old_logprobs=garbage(batch.old_logprobs, -math.inf),
        ref_logprobs=garbage(batch.ref_logprobs, math.nan),
    )
    policy, entropies = garbage(logprobs, -math.inf), garbage(entropy, math.nan)
    loss, sums = Objective(config)(policy, masked, LossCounts.of(masked), entropies)
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    assert policy.grad is not None
    assert torch.isfinite(policy.grad).all()
    assert (policy.grad[~mask.bool()] == 0).all()
    assert all(math.isfinite(value) for value in sums.values())


@pytest.mark.parametrize("config", [*CONFIGS[:3], *CONFIGS[-3:]], ids=label)
def test_gradient_by_finite_differences(config):
    logprobs, batch, entropy = make_batch(seed=3)
    ratio = (logprobs - batch.old_logprobs).exp()
    for edge in (0.8, 1.28, 1.4):  # the loss has kinks there; the seed keeps ten steps away from them
        assert ((ratio - edge).abs() > 1e-5).all()
    counts = LossCounts.of(batch)
    assert torch.autograd.gradcheck(
        lambda lp, h: Objective(config)(lp, batch, counts, h)[0],
        (logprobs.clone().requires_grad_(), entropy.clone().requires_grad_()),
    )


def test_golden_ppo_clip():
    # ρ = 1.5, 0.5, 1.1 with A = 1 and then A = −2; clips 0.2 / 0.28, dual clip 1.2
    ratio = torch.tensor([[1.5, 0.5, 1.1]] * 2, dtype=torch.float64)
    loss = ppo_clip(
        ratio.log(),
        torch.zeros(2, 3, dtype=torch.float64),
        torch.tensor([1.0, -2.0], dtype=torch.float64),
        torch.ones(2, 3),
        clip_low=0.2,
        clip_high=0.28,
        dual_clip=1.2,
    )
    expected = [
        [-1.28, -0.5, -1.1],  # A > 0: −min(ρ, 1.28)
        [2.4, 1.6, 2.2],  # A = −2: 2·max(ρ, 0.8) = 3, 1.6, 2.2, and the dual clip holds the first at 1.2·2
    ]
    torch.testing.assert_close(loss, torch.tensor(expected, dtype=torch.float64))


def test_importance_weights_per_token_are_factors_on_the_advantages():
    """w · loss(A) = loss(w·A) for w ≥ 0, clips and dual clip included: so token-level advantages [B, T] carry them."""
    torch.manual_seed(3)
    logprobs, old, weights = torch.randn(4, 6), torch.randn(4, 6), torch.rand(4, 6)
    advantages, mask = torch.randn(4), torch.ones(4, 6)
    clips = {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": 3.0}
    plain = ppo_clip(logprobs, old, advantages, mask, **clips)
    weighted = ppo_clip(logprobs, old, weights * advantages[:, None], mask, **clips)
    torch.testing.assert_close(weighted, weights * plain)


def test_golden_objective():
    # One D_exp row of two tokens (ρ = 1.1, A = 1; f does not matter), one D_pef row of one token with u = 2.
    batch = TokenBatch(
        old_logprobs=torch.zeros(2, 2),
        ref_logprobs=torch.zeros(2, 2),
        response_mask=torch.tensor([[1.0, 1.0], [1.0, 0.0]]),
        advantages=torch.tensor([1.0, 0.0]),
        is_rehearsal=torch.tensor([False, True]),
    )
    logprobs = torch.tensor([[1.1, 1.1], [2.0, 1.0]]).log()
    counts = LossCounts.of(batch)
    assert counts == LossCounts(exp_tokens=2, pef_tokens=1, exp_sequences=1, pef_sequences=1)
    js_of_two = 0.16989903679539747  # 2 log 2 − 3 log 1.5
    sums: dict[str, torch.Tensor] = {}
    cases: list[tuple[Literal["pooled", "per_set"], float]] = [
        ("pooled", (-2.2 + 0.2 * js_of_two) / 3),
        ("per_set", -2.2 / 2 + 0.2 * js_of_two / 1),
    ]
    for reduction, expected in cases:
        loss, sums = Objective(LossConfig(reduction=reduction))(logprobs, batch, counts)
        assert float(loss) == pytest.approx(expected, rel=1e-6)  # fp32
    means = mean_metrics(sums)
    assert means["exp/tokens"] == 2 and means["pef/tokens"] == 1
    assert means["exp/policy_loss"] == pytest.approx(-1.1, rel=1e-6)
    assert means["pef/divergence"] == pytest.approx(js_of_two, rel=1e-6)
    assert means["pef/log_ratio"] == pytest.approx(math.log(2), rel=1e-6)
    assert means["pef/pull_weight"] == pytest.approx(2 * math.log(4 / 3), rel=1e-6)  # u·log(2u/(u+1))
    assert means["exp/old_kl"] == pytest.approx(0.1 - math.log(1.1), rel=1e-5)  # ρ − 1 − log ρ


@pytest.mark.parametrize("config", CONFIGS, ids=label)
def test_both_halves_of_js_weigh_the_same(config):
    counts = LossCounts(exp_tokens=900, pef_tokens=100, exp_sequences=64, pef_sequences=8)
    w_exp, w_pef, js_lambda = Objective(config).weights(counts)
    if config.js_ratio:  # the other reading of eq. 16: the sizes of the data sets
        assert js_lambda == pytest.approx(0.2 * 0.335, rel=1e-12)
        return
    n_exp, n_pef = (900, 100) if config.aggregation == "token" else (64, 8)
    # the total weight of N equal tokens (rows) of each half in the loss
    assert w_exp * js_lambda * n_exp == pytest.approx(w_pef * n_pef, rel=1e-12)


def test_pooled_weakens_eta_by_the_mix_and_per_set_does_not():
    counts = LossCounts(exp_tokens=8000, pef_tokens=1000)
    pooled, per_set = (Objective(LossConfig(eta=0.2, reduction=r)).weights(counts)[1] for r in ("pooled", "per_set"))
    assert pooled * 1000 == pytest.approx(0.2 / 9)
    assert per_set * 1000 == pytest.approx(0.2)


@pytest.mark.parametrize("name", ["forward_kl", "reverse_kl", "js", "alpha"])
@pytest.mark.parametrize("official", [False, True])
def test_rehearsal_vanishes_at_the_reference_for_every_sample(name, official):
    _, batch, _ = make_batch(dtype=torch.float32)
    assert batch.ref_logprobs is not None
    for row in (1, 4, 5):
        single = take(batch, [row])
        assert single.ref_logprobs is not None
        logprobs = single.ref_logprobs.clone().requires_grad_()
        config = LossConfig(divergence=name, official=official, eta=1.0)
        loss, _ = Objective(config)(logprobs, single, LossCounts.of(single))
        loss.backward()
        assert loss.item() == 0.0
        assert logprobs.grad is not None
        assert (logprobs.grad == 0).all()


def test_the_set_is_read_off_each_row_and_not_off_the_first():
    """Trap: the authors' code takes the loss of a whole micro-batch from its first row."""
    logprobs, batch, _ = make_batch()
    counts, config = LossCounts.of(batch), CONFIGS[0]
    swapped = replace(batch, is_rehearsal=~batch.is_rehearsal)
    loss, _ = Objective(config)(logprobs, batch, counts)
    other, _ = Objective(config)(logprobs, swapped, LossCounts.of(swapped))
    assert not math.isclose(loss.item(), other.item(), rel_tol=0.1)
    front = [1, 4, 5, 0, 2, 3, 6]  # a D_pef row first
    again, _ = Objective(config)(logprobs[front], take(batch, front), counts)
    assert again.item() == pytest.approx(loss.item(), rel=1e-12)


def test_grpo_is_dapo_with_equal_clips():
    logprobs, batch, _ = make_batch()
    ratio = (logprobs - batch.old_logprobs).exp()
    advantages = batch.advantages[:, None]
    # GRPO as its paper writes it: min(ρA, clip(ρ, 1 ± ε)A)
    grpo = -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages) * batch.response_mask
    ours = ppo_clip(logprobs, batch.old_logprobs, batch.advantages, batch.response_mask, clip_low=0.2, clip_high=0.2)
    torch.testing.assert_close(ours, grpo)
    # and DAPO differs exactly where a good token has moved beyond 1.2
    dapo = ppo_clip(logprobs, batch.old_logprobs, batch.advantages, batch.response_mask, clip_low=0.2, clip_high=0.28)
    beyond = (ratio > 1.2) & (advantages > 0) & batch.response_mask.bool()
    assert beyond.any()
    assert torch.equal(dapo != grpo, beyond)


def test_clipped_tokens_have_no_gradient_and_are_counted():
    ratio = torch.tensor([[1.3, 0.7, 1.3, 0.7, 4.0, 1.0]])
    advantages = torch.tensor([1.0])
    for sign, stopped, high, low, dual in ((1.0, [0, 2, 4], 3, 0, 0), (-1.0, [1, 3, 4], 0, 2, 1)):
        logprobs = ratio.log().requires_grad_()
        batch = TokenBatch(
            torch.zeros(1, 6), None, torch.ones(1, 6), sign * advantages, torch.zeros(1, dtype=torch.bool)
        )
        loss, sums = Objective(LossConfig(dual_clip=3.0))(logprobs, batch, LossCounts.of(batch))
        loss.backward()
        assert logprobs.grad is not None
        assert (logprobs.grad[0] == 0).nonzero()[:, 0].tolist() == stopped
        counted = (float(sums["exp/clipped_high"]), float(sums["exp/clipped_low"]), float(sums["exp/dual_clipped"]))
        assert counted == (high, low, dual)


def test_kl_and_entropy_leave_rehearsal_rows_alone():
    logprobs, batch, entropy = make_batch()
    rows = [1, 4, 5]
    only_pef = take(batch, rows)
    counts = LossCounts.of(only_pef)
    plain, _ = Objective(LossConfig())(logprobs[rows], only_pef, counts)
    config = LossConfig(kl="k2", kl_coef=5.0, entropy_coef=5.0)
    with_terms, _ = Objective(config)(logprobs[rows], only_pef, counts, entropy[rows])
    assert plain.item() == with_terms.item()


def test_golden_kl_estimators():
    log_ratio = torch.tensor([[math.log(2.0)]], dtype=torch.float64)  # u = 2
    zero, one, old = torch.zeros(1, 1), torch.ones(1, 1), torch.tensor([[math.log(4.0)]], dtype=torch.float64)
    cases: list[tuple[Literal["k1", "k2", "k3", "k3_is"], float]] = [
        ("k1", 0.6931471805599453),
        ("k2", 0.2402265069591007),  # ½ (log 2)²
        ("k3", 0.1931471805599453),  # ½ − 1 + log 2
        ("k3_is", 0.09657359027997264),  # ρ = 2/4
    ]
    for kind, expected in cases:
        assert kl_loss(log_ratio, zero, one, kind, old).item() == pytest.approx(expected, rel=1e-12)
    with pytest.raises(ValueError, match="needs old_logprobs"):
        kl_loss(log_ratio, zero, one, "k3_is")


@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("jump", [-200.0, 150.0])
def test_a_policy_that_ran_away_gives_finite_gradients_in_fp32(advantage, jump):
    config = LossConfig(divergence="js", estimator="definition", kl="k3_is", kl_coef=0.1)
    # e^150 overflows; on D_pef, where nothing is clamped, f is promised up to ℓ = 80
    logprobs = torch.tensor([[-1.0 + jump], [-1.0 + min(jump, 80.0)]], requires_grad=True)
    batch = TokenBatch(
        torch.full((2, 1), -1.0),
        torch.full((2, 1), -1.0),
        torch.ones(2, 1),
        torch.tensor([advantage, 0.0]),
        torch.tensor([False, True]),
    )
    loss, _ = Objective(config)(logprobs, batch, LossCounts.of(batch))
    loss.backward()
    assert math.isfinite(loss.item())
    assert logprobs.grad is not None
    assert torch.isfinite(logprobs.grad).all()


def test_bf16_logprobs_are_computed_with_in_fp32():
    logprobs, batch, _ = make_batch(dtype=torch.float32)
    coarse = logprobs.bfloat16().requires_grad_()
    counts = LossCounts.of(batch)
    loss, _ = Objective(LossConfig())(coarse, batch, counts)
    expected, _ = Objective(LossConfig())(coarse.detach().float(), batch, counts)
    assert loss.dtype == torch.float32
    assert loss.item() == expected.item()
    loss.backward()
    assert coarse.grad is not None and coarse.grad.dtype == torch.bfloat16


def test_a_batch_of_one_set_only_and_an_empty_one():
    logprobs, batch, _ = make_batch()
    exp_rows = [0, 2, 3]
    without_ref = replace(take(batch, exp_rows), ref_logprobs=None)
    counts = LossCounts.of(without_ref)
    for reduction in ("pooled", "per_set"):
        loss, sums = Objective(LossConfig(reduction=reduction))(logprobs[exp_rows], without_ref, counts)
        # without D_pef rows both reductions are the mean over D_exp tokens, and there are no D_pef means
        assert loss.item() == pytest.approx(float(sums["exp/policy_loss"]) / counts.exp_tokens, rel=1e-12)
        assert not [name for name in mean_metrics(sums) if name.startswith("pef/") and name != "pef/tokens"]
    nothing = replace(batch, response_mask=torch.zeros_like(batch.response_mask))
    for config in CONFIGS:
        loss, _ = Objective(replace(config, entropy_coef=0.0))(logprobs, nothing, LossCounts.of(nothing))
        assert loss.item() == 0.0


def test_eta_zero_is_policy_optimisation_without_a_reference():
    logprobs, batch, _ = make_batch()
    rows = [0, 1, 2, 3]
    mixed = replace(take(batch, rows), ref_logprobs=None)
    loss, sums = Objective(LossConfig(eta=0.0, reduction="per_set"))(logprobs[rows], mixed, LossCounts.of(mixed))
    assert loss.item() == pytest.approx(float(sums["exp/policy_loss"] / sums["exp/tokens"]), rel=1e-12)


def test_metric_keys_depend_on_the_settings_only():
    """Ranks add their sums up, so one without D_pef rows must have the same keys."""
    logprobs, batch, entropy = make_batch()
    counts = LossCounts.of(batch)
    for config in CONFIGS:
        keys = [
            set(Objective(config)(logprobs[rows], take(batch, rows), counts, entropy[rows])[1])
            for rows in ([0, 2], [1, 4], [0, 1])
        ]
        assert keys[0] == keys[1] == keys[2]


def test_which_settings_need_a_live_reference_model():
    assert not Objective(LossConfig()).needs_reference
    assert Objective(LossConfig(kl="k3", kl_coef=0.01)).needs_reference
    assert Objective(LossConfig(estimator="definition")).needs_reference
    assert not Objective(LossConfig(estimator="definition", eta=0.0)).needs_reference


def test_missing_inputs_are_bugs_of_the_caller():
    logprobs, batch, _ = make_batch()
    counts = LossCounts.of(batch)
    with pytest.raises(ValueError, match="needs ref_logprobs"):
        Objective(LossConfig())(logprobs, replace(batch, ref_logprobs=None), counts)
    with pytest.raises(ValueError, match="no entropy"):
        Objective(LossConfig(entropy_coef=0.1))(logprobs, batch, counts)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clip_low": 1.5}, "clip_low is 1.5"),
        ({"clip_high": -0.1}, "clip_high is -0.1"),
        ({"dual_clip": 0.5}, "dual_clip must be greater than 1"),
        ({"eta": -0.1}, "eta is -0.1"),
        ({"aggregation": "dr_grpo", "dr_grpo_length": 0}, "dr_grpo_length is 0"),
        ({"divergence": "forward_kl", "estimator": "definition"}, "for loss.divergence 'js' only"),
        ({"js_scale": 2.0}, "applies to loss.estimator 'definition'"),
        ({"kl_coef": 0.1}, "loss.kl is 'none'"),
        ({"divergence": "jeffreys"}, "no divergence is named 'jeffreys'"),
    ],
)
def test_contradictory_settings_are_told_in_one_sentence(settings, message):
    logprobs, batch, _ = make_batch()
    with pytest.raises(SettingsError, match=message):
        Objective(LossConfig(**settings))(logprobs, batch, LossCounts.of(batch))


def test_masked_log_ratio_keeps_nan_out_of_the_backward_pass():
    logprobs = torch.tensor([[0.5, -math.inf, -math.inf]], requires_grad=True)
    other = torch.tensor([[0.25, -math.inf, 3.0]])
    log_ratio = masked_log_ratio(logprobs, other, torch.tensor([[1.0, 0.0, 0.0]]))
    log_ratio.exp().sum().backward()
    assert log_ratio.tolist() == [[0.25, 0.0, 0.0]]
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [[pytest.approx(math.exp(0.25)), 0.0, 0.0]]


def test_rehearsal_diagnostics():
    log_ratio = torch.tensor([[0.0, -1.0, -2.0], [-3.0, -4.0, 99.0]], dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    found = rehearsal_diagnostics(log_ratio[mask.bool()], get_divergence("forward_kl"))
    mean_pull = sum(math.expm1(-i) for i in range(5)) / 5
    assert found == pytest.approx({
        "log_ratio_q01": -3.96,  # of −4, −3 … 0, which are a quarter of the way apart
        "log_ratio_q10": -3.6,
        "log_ratio_q50": -2.0,
        "log_ratio_q90": -0.4,
        "log_ratio_q99": -0.04,
        "forgotten": 0.4,  # e^−3 = 0.0498 and e^−4; e^−2 = 0.135 is not below 0.1
        "pull_weight": mean_pull,
    })  # fmt: skip
    assert rehearsal_diagnostics(torch.zeros(0), get_divergence("js")) == {}


def test_the_sums_of_forgetting_agree_with_the_diagnostics():
    log_ratio = torch.tensor([[0.3, -2.0, -2.5, -6.0]])  # u = 0.135 is not forgotten, 0.082 and 0.0025 are
    batch = TokenBatch(torch.zeros(1, 4), torch.zeros(1, 4), torch.ones(1, 4), torch.zeros(1), torch.tensor([True]))
    means = mean_metrics(Objective(LossConfig())(log_ratio, batch, LossCounts.of(batch))[1])
    found = rehearsal_diagnostics(log_ratio[0], get_divergence("js"))
    assert means["pef/forgotten"] == found["forgotten"] == 0.5
    assert means["pef/pull_weight"] == pytest.approx(found["pull_weight"], rel=1e-6)  # fp32
