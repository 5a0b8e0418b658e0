"""The published alternatives to PPO-clip: values and gradients by hand, and the selection over a mini-batch. Truncated
importance sampling between two engines, by enumeration over a small vocabulary.
"""

import math
from dataclasses import replace

import pytest
import torch

from dph.config import LossConfig, TrainConfig, from_dict, merge_settings
from dph.errors import SettingsError
from dph.objective import (
    POLICY_LOSSES,
    Advantage,
    GroupView,
    LossCounts,
    Objective,
    TokenBatch,
    ppo_clip,
    register_policy_loss,
    sampler_correction,
)
from dph.objective.policy_losses import largest, random_within
from dph.types import Outcome, Verdict


def loss_of(config: LossConfig, logprobs, old, advantages, selected=None):
    """The objective on one micro-batch without rehearsal, and the gradient of the log-probabilities."""
    logprobs = torch.tensor(logprobs, dtype=torch.float64, requires_grad=True)
    mask = torch.ones_like(logprobs)
    batch = TokenBatch(
        torch.tensor(old, dtype=torch.float64),
        None,
        mask,
        torch.tensor(advantages, dtype=torch.float64),
        torch.zeros(len(old), dtype=torch.bool),
        None if selected is None else torch.tensor(selected),
    )
    value, _ = Objective(config)(logprobs, batch, LossCounts.of(batch))
    value.backward()
    assert logprobs.grad is not None
    return value.item(), logprobs.grad


def test_gspo_uses_the_geometric_mean_of_a_responses_ratios():
    config = LossConfig(policy="gspo", aggregation="sequence", clip_low=0.2, clip_high=0.3, eta=0.0)
    # log ratios 0.3 and −0.1: s = exp(0.1), within the clip; the value is −s·A, its gradient −s·A/2 for each token.
    value, slope = loss_of(config, [[-0.7, -1.1]], [[-1.0, -1.0]], [2.0])
    assert value == pytest.approx(-2 * math.exp(0.1))
    assert slope.tolist()[0] == pytest.approx([-math.exp(0.1)] * 2)
    # s = exp(0.5) > 1.3: clipped, no gradient.
    value, slope = loss_of(config, [[-0.5, -0.5]], [[-1.0, -1.0]], [2.0])
    assert value == pytest.approx(-2 * 1.3)
    assert slope.abs().max() == 0


def test_cispo_clips_the_weight_and_keeps_the_gradient():
    config = LossConfig(policy="cispo", clip_high=1.0, eta=0.0)
    # ρ = e > 2: the gradient is −2·A of one token; PPO-clip would have none.
    _, slope = loss_of(config, [[0.0]], [[-1.0]], [3.0])
    assert slope.tolist() == [[-6.0]]
    # ρ = exp(−2): there is no lower clip.
    _, slope = loss_of(config, [[-3.0]], [[-1.0]], [-3.0])
    assert slope.item() == pytest.approx(3 * math.exp(-2))


def test_kl_cov_punishes_selected_tokens_and_clips_none():
    config = LossConfig(policy="kl_cov", policy_options={"kl_coef": "0.5"}, eta=0.0)
    value, slope = loss_of(config, [[-0.5, -0.5]], [[-1.0, -1.0]], [1.0], [[True, False]])
    rho = math.exp(0.5)
    assert value == pytest.approx((-rho + 0.5 * 0.5 - rho) / 2)  # the mean over two tokens
    assert slope.tolist()[0] == pytest.approx([(-rho + 0.5) / 2, -rho / 2])


def test_clip_cov_takes_the_gradient_from_selected_tokens():
    config = LossConfig(policy="clip_cov", clip_high=0.2, eta=0.0)
    value, slope = loss_of(config, [[-1.0, -1.0]], [[-1.0, -1.0]], [2.0], [[True, False]])
    assert value == pytest.approx(-2.0)
    assert slope.tolist() == [[0.0, -1.0]]


@pytest.mark.parametrize("name", ["kl_cov", "clip_cov"])
def test_a_batch_without_its_selection_is_refused(name):
    with pytest.raises(ValueError, match="the batch has no selection"):
        loss_of(LossConfig(policy=name, eta=0.0), [[-1.0]], [[-1.0]], [1.0])


def test_options_go_to_the_loss_and_to_its_selection():
    objective = Objective(LossConfig(policy="kl_cov", policy_options={"share": "0.5", "kl_coef": "2"}, eta=0.0))
    assert objective.policy.select is not None
    chosen = objective.policy.select(
        torch.tensor([-1.0, -3.0, -2.0, -2.0]), torch.tensor([1.0, -1.0, 0.0, 0.0]), torch.rand(4)
    )
    # parts (A − 0)·(log π + 2): 1, 1, 0, 0
    assert chosen.tolist() == [True, True, False, False]
    with pytest.raises(SettingsError, match="does not take the option 'mood'"):
        Objective(LossConfig(policy="kl_cov", policy_options={"mood": "1"}, eta=0.0))


def test_selections_take_a_share_of_all_tokens():
    generator = torch.Generator().manual_seed(0)
    logprobs, advantages, uniform = (torch.rand(1000, generator=generator) for _ in range(3))
    parts = (advantages - advantages.mean()) * (logprobs - logprobs.mean())
    chosen = largest(logprobs, advantages, uniform, share=0.01)
    assert chosen.sum() == 10
    assert parts[chosen].min() >= parts[~chosen].max()
    drawn = random_within(logprobs, advantages, uniform, share=0.01, low=0.05, high=0.1)
    assert drawn.sum() == 10
    assert ((parts[drawn] > 0.05) & (parts[drawn] < 0.1)).all()
    assert random_within(logprobs, advantages, uniform, low=5.0, high=9.0).sum() == 0


def test_dr_grpo_is_the_published_objective():
    """arXiv 2503.20783: A = r − mean, and the mean over responses of Σ_t over a constant length, here 8.

    Rewards 1, 0, 0, 0 give advantages ¾, −¼, −¼, −¼; with the policy unchanged a token's gradient is −A/(4·8).
    """
    settings = from_dict(TrainConfig, merge_settings("train", ["dr_grpo"], []))
    verdicts = [Verdict(Outcome.CORRECT if reward else Outcome.WRONG, reward) for reward in (1.0, 0.0, 0.0, 0.0)]
    lengths = [3, 1, 2, 4]
    view = GroupView(
        torch.tensor([1.0, 0, 0, 0]), verdicts, [torch.zeros(n) for n in lengths], [""] * 4, lambda _: None
    )
    advantages = Advantage(settings.advantage.name, settings.advantage.options)(view)
    assert advantages.tolist() == [0.75, -0.25, -0.25, -0.25]
    mask = torch.tensor([[float(t < n) for t in range(4)] for n in lengths])
    logprobs = torch.full((4, 4), -0.5, requires_grad=True)
    batch = TokenBatch(logprobs.detach(), None, mask, advantages, torch.zeros(4, dtype=torch.bool))
    value, _ = Objective(replace(settings.loss, dr_grpo_length=8))(logprobs, batch, LossCounts.of(batch))
    value.backward()
    assert value.item() == pytest.approx(-(0.75 * 3 - 0.25 * (1 + 2 + 4)) / 32)
    assert logprobs.grad is not None
    torch.testing.assert_close(logprobs.grad, -advantages[:, None] * mask / 32)
    published = settings.loss
    assert (published.clip_low, published.clip_high, published.kl, published.eta) == (0.2, 0.2, "none", 0)


# Every loss against scalars, token by token -------------------------------------------------------------------------

CLIPS = {"clip_low": 0.2, "clip_high": 0.28}
CLIPPED = ("clipped_high", "clipped_low", "dual_clipped")
LOSSES = [name for name in POLICY_LOSSES if POLICY_LOSSES[name].__module__.startswith("dph.")]
PEF, KL_COEF = 0.7, 0.3


def options_of(name):
    return {"kl_coef": str(KL_COEF)} if name == "kl_cov" else {}


def scalar_policy_loss(name, log_ratios, advantages, selected, dual):
    """One response: the loss of each token, the gradient of their sum, and which clip took each token's gradient."""
    ratios = [math.exp(value) for value in log_ratios]
    if name == "gspo":
        ratios = [math.exp(sum(log_ratios) / len(log_ratios))] * len(log_ratios)
    losses, slopes, clipped = [], [], []
    for log_ratio, rho, a, chosen in zip(log_ratios, ratios, advantages, selected, strict=True):
        if name == "kl_cov":
            losses.append(-rho * a + chosen * KL_COEF * abs(log_ratio))
            slopes.append(-rho * a + chosen * KL_COEF * (1 if log_ratio > 0 else -1))
            clipped.append("")
        elif name == "cispo":
            weight = min(rho, 1 + CLIPS["clip_high"])
            losses.append(-weight * a * log_ratio)
            slopes.append(-weight * a)
            clipped.append("")
        else:
            beyond = ""
            if a > 0 and rho > 1 + CLIPS["clip_high"]:
                beyond, value = "clipped_high", -(1 + CLIPS["clip_high"]) * a
            elif a < 0 and rho < 1 - CLIPS["clip_low"]:
                beyond, value = "clipped_low", -(1 - CLIPS["clip_low"]) * a
            elif a < 0 and dual and rho > dual:
                beyond, value = "dual_clipped", -dual * a
            else:
                value = -rho * a
            losses.append(value)
            slopes.append(0.0 if beyond or (name == "clip_cov" and chosen) else -rho * a)
            clipped.append(beyond)
    return losses, slopes, clipped


def random_batch(seed, rows=9, steps=6):
    """Rollouts far from π_old and stored rows, mixed, of different lengths; advantages of all signs, and 0."""
    generator = torch.Generator().manual_seed(seed)

    def noise(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    lengths = torch.randint(1, steps + 1, (rows,), generator=generator)
    mask = (torch.arange(steps)[None] < lengths[:, None]).double()
    old = -1 - noise(rows, steps).abs()
    advantages = noise(rows) * (torch.arange(rows) % 4 != 3)
    stored = torch.arange(rows) % 3 == 2
    selected = (torch.rand(rows, steps, generator=generator) < 0.4) & ~stored[:, None]
    batch = TokenBatch(old, old + 0.3 * noise(rows, steps), mask, advantages, stored, selected)
    return (old + 0.8 * noise(rows, steps)).requires_grad_(), batch


@pytest.mark.parametrize("dual", [0.0, 1.6])
@pytest.mark.parametrize("name", LOSSES)
def test_value_gradient_and_clip_metrics_are_those_of_the_scalar_loss(name, dual):
    if dual and name != "ppo_clip":
        with pytest.raises(SettingsError, match=f"'{name}' has no dual clip"):
            Objective(LossConfig(policy=name, dual_clip=dual))
        return
    config = LossConfig(policy=name, policy_options=options_of(name), dual_clip=dual, eta=PEF, reduction="per_set")
    seen = set()
    for seed in range(4):
        logprobs, batch = random_batch(seed)
        assert batch.ref_logprobs is not None and batch.selected is not None
        counts = LossCounts.of(batch)
        loss, sums = Objective(config)(logprobs, batch, counts)
        (slope,) = torch.autograd.grad(loss, logprobs)
        expected, total, tokens = torch.zeros_like(slope), 0.0, dict.fromkeys(("", *CLIPPED), 0)
        for row in range(len(batch.advantages)):
            size = int(batch.response_mask[row].sum())
            if batch.is_rehearsal[row]:  # js: f = u log u − (u + 1) log((u + 1)/2), u·f′ = u log(2u/(u + 1))
                u = [math.exp(float(v)) for v in (logprobs.detach() - batch.ref_logprobs)[row, :size]]
                expected[row, :size] = torch.tensor(
                    [PEF * v * math.log(2 * v / (v + 1)) / counts.pef_tokens for v in u], dtype=torch.float64
                )
                continue
            log_ratios = (logprobs.detach() - batch.old_logprobs)[row, :size].tolist()
            losses, slopes, clipped = scalar_policy_loss(
                name, log_ratios, [float(batch.advantages[row])] * size, batch.selected[row, :size].tolist(), dual
            )
            expected[row, :size] = torch.tensor(slopes, dtype=torch.float64) / counts.exp_tokens
            total += sum(losses)
            for beyond in clipped:
                tokens[beyond] += 1
        assert float(sums["exp/policy_loss"]) == pytest.approx(total, rel=1e-12)
        torch.testing.assert_close(slope, expected, rtol=1e-12, atol=1e-14)
        assert {key: float(sums[f"exp/{key}"]) for key in CLIPPED} == {key: tokens[key] for key in CLIPPED}
        seen |= {key for key in CLIPPED if tokens[key]}
    clips = {"ppo_clip", "clip_cov", "gspo"}
    assert seen == ({"clipped_high", "clipped_low"} | ({"dual_clipped"} if dual else set()) if name in clips else set())


@pytest.mark.parametrize("name", LOSSES)
def test_a_micro_batch_of_stored_rows_only_needs_no_selection(name):
    logprobs, batch = random_batch(0)
    assert batch.ref_logprobs is not None
    rows = batch.is_rehearsal
    stored = TokenBatch(
        batch.old_logprobs[rows],
        batch.ref_logprobs[rows],
        batch.response_mask[rows],
        batch.advantages[rows],
        rows[rows],
    )
    counts = LossCounts.of(batch)
    found, sums = Objective(LossConfig(policy=name))(logprobs[rows], stored, counts)
    expected, _ = Objective(LossConfig())(logprobs[rows], stored, counts)
    assert float(found.detach()) == float(expected.detach()) and float(sums["exp/policy_loss"]) == 0
    assert torch.equal(*(torch.autograd.grad(value, logprobs, retain_graph=True)[0] for value in (found, expected)))


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_that_needs_an_advantage_has_no_gradient_without(name):
    logprobs, batch = random_batch(1)
    objective = Objective(LossConfig(policy=name, policy_options=options_of(name), eta=0.0))
    batch = replace(batch, advantages=torch.zeros(len(batch.advantages)))
    loss, _ = objective(logprobs, batch, LossCounts.of(batch))
    (slope,) = torch.autograd.grad(loss, logprobs)
    assert objective.learns_everywhere is (name == "kl_cov") is bool(slope.any())


@pytest.mark.parametrize("jump", [-300.0, 150.0])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("name", LOSSES)
def test_a_policy_that_ran_away_gives_finite_gradients(name, advantage, jump):
    logprobs = torch.tensor([[-1.0 + jump, -1.0]], requires_grad=True)
    mask = torch.ones(1, 2)
    batch = TokenBatch(-mask, None, mask, torch.tensor([advantage]), torch.tensor([False]), mask.bool())
    loss, _ = Objective(LossConfig(policy=name, eta=0.0))(logprobs, batch, LossCounts.of(batch))
    (slope,) = torch.autograd.grad(loss, logprobs)
    assert math.isfinite(float(loss.detach())) and bool(slope.isfinite().all())


def test_clip_cov_leaves_out_tokens_that_ppo_clips():
    # A = 1, 1, −1, −1; log π_θ − log π_old = 0.5, 0, −0.5, 0: the first and the third are clipped at 1.28 and 0.8.
    old, advantages = torch.tensor([-1.0, -1.0, -3.0, -3.0]), torch.tensor([1.0, 1.0, -1.0, -1.0])
    now = old + torch.tensor([0.5, 0.0, -0.5, 0.0])
    select = Objective(
        LossConfig(policy="clip_cov", policy_options={"share": "1", "low": "0", "high": "9"}, eta=0.0)
    ).policy.select
    assert select is not None
    assert select(old, advantages, torch.rand(4)).tolist() == [True] * 4
    assert select(old, advantages, torch.rand(4), logprobs=now).tolist() == [False, True, False, True]
    # Not clipped on the side that lowers the loss: ρ = e^½ with A < 0
    assert select(old, -advantages, torch.rand(4), logprobs=now).sum() == 0  # parts below 0
    away = Objective(LossConfig(policy="clip_cov", policy_options={"share": "1", "low": "-9", "high": "9"}, eta=0.0))
    assert away.policy.select is not None
    assert away.policy.select(old, -advantages, torch.rand(4), logprobs=now).tolist() == [True] * 4


def test_kl_cov_ranks_by_the_policy_as_it_is():
    # parts of A = 1, 1, −1, −1 by log π_θ, of mean −2.5: −1.5, 1.5, −0.5, 0.5; by log π_old, of mean −2: 1, −1, 1, −1
    old, now = torch.tensor([-1.0, -3.0, -3.0, -1.0]), torch.tensor([-4.0, -1.0, -2.0, -3.0])
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.0])
    assert largest(old, advantages, torch.rand(4), logprobs=now, share=0.5).tolist() == [False, True, False, True]
    assert largest(old, advantages, torch.rand(4), share=0.5).tolist() == [True, False, True, False]


# Plug-ins -----------------------------------------------------------------------------------------------------------


@register_policy_loss("test_pull")
def _pull(logprobs, old_logprobs, advantages, mask, **_):
    return (logprobs - old_logprobs) ** 2 * mask


@register_policy_loss("test_halved", needs_advantage=True)
def _halved(logprobs, old_logprobs, advantages, mask, *, clip_low, clip_high, dual_clip):
    return 0.5 * ppo_clip(
        logprobs, old_logprobs, advantages, mask, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip
    )


def test_a_plug_in_may_learn_without_advantage_unless_it_says_otherwise():
    assert Objective(LossConfig(policy="test_pull", eta=0.0)).learns_everywhere
    assert not Objective(LossConfig(policy="test_halved", eta=0.0)).learns_everywhere


def test_a_plug_in_with_clips_is_given_them_and_has_the_metrics_of_tokens():
    logprobs, batch = random_batch(2)
    config = LossConfig(policy="test_halved", dual_clip=1.6)
    _, found = Objective(config)(logprobs, batch, LossCounts.of(batch))
    _, plain = Objective(replace(config, policy="ppo_clip"))(logprobs, batch, LossCounts.of(batch))
    assert float(found["exp/policy_loss"]) == float(plain["exp/policy_loss"]) / 2
    assert [float(found[f"exp/{key}"]) for key in CLIPPED] == [float(plain[f"exp/{key}"]) for key in CLIPPED]
    assert all(float(found[f"exp/{key}"]) > 0 for key in CLIPPED)


def test_a_plug_in_without_clips_refuses_a_dual_clip_and_counts_nothing():
    with pytest.raises(SettingsError, match="'test_pull' has no dual clip"):
        Objective(LossConfig(policy="test_pull", dual_clip=3.0))
    objective = Objective(LossConfig(policy="test_pull", clip_high=0.1))
    assert objective.unused == ["loss.clip_high"]
    logprobs, batch = random_batch(2)
    _, sums = objective(logprobs, batch, LossCounts.of(batch))
    assert [float(sums[f"exp/{key}"]) for key in CLIPPED] == [0, 0, 0]


@pytest.mark.parametrize("key", ["mood", "dual_clip", "clip_high", "advantages", "selected", "_"])
@pytest.mark.parametrize("name", [*LOSSES, "test_pull", "test_halved"])
def test_options_of_unknown_names_are_refused(name, key):
    with pytest.raises(SettingsError, match=f"does not take the option '{key}'"):
        Objective(LossConfig(policy=name, policy_options={key: "1"}))


def test_an_option_that_loss_and_selection_share_reaches_both():
    def select(old_logprobs, advantages, uniform, *, share: float = 0.1):
        return uniform < share

    @register_policy_loss("test_shared_option", select=select)
    def shared(logprobs, old_logprobs, advantages, mask, *, selected, share: float = 0.1):
        return share * selected * logprobs * mask

    objective = Objective(LossConfig(policy="test_shared_option", policy_options={"share": "0.5"}, eta=0.0))
    assert objective.policy.select is not None and not objective.policy.selects_by_policy
    assert objective.policy.select(torch.zeros(3), torch.zeros(3), torch.tensor([0.05, 0.4, 0.6])).tolist() == [1, 1, 0]
    mask = torch.ones(1, 2)
    batch = TokenBatch(mask, None, mask, torch.zeros(1), torch.tensor([False]), mask.bool())
    _, sums = objective(torch.full((1, 2), -3.0), batch, LossCounts.of(batch))
    assert float(sums["exp/policy_loss"]) == -3.0  # 2·½·(−3)


def test_a_refused_registration_leaves_the_loss_as_it_was():
    with pytest.raises(SettingsError, match="there is already a policy loss"):
        register_policy_loss("kl_cov", needs_advantage=True)(_pull)
    assert Objective(LossConfig(policy="kl_cov", eta=0.0)).learns_everywhere


SAMPLER = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
TRAINER = torch.tensor([0.4, 0.3, 0.1, 0.2], dtype=torch.float64)


def every_token(cap):
    """Each token of the vocabulary as one sample: expectations are sums weighed by the sampler's probabilities."""
    old, sampled, mask = TRAINER.log()[None], SAMPLER.log()[None], torch.ones(1, 4)
    weights, _ = sampler_correction(old, sampled, mask, cap)
    return weights[0]


def test_without_a_cap_expectations_are_the_trainers():
    values = torch.tensor([1.0, -2.0, 3.0, 5.0], dtype=torch.float64)
    assert float((SAMPLER * every_token(1e9) * values).sum()) == pytest.approx(float((TRAINER * values).sum()))


def test_the_cap():
    """Ratios are 0.8, 1, 2/3 and 4."""
    assert every_token(2.0).tolist() == pytest.approx([0.8, 1, 2 / 3, 2])
    assert every_token(0.0).tolist() == [1, 1, 1, 1]


def test_the_kl_estimate_is_unbiased():
    total = 0.0
    for token in range(4):
        part = torch.tensor([[token]])
        _, sums = sampler_correction(TRAINER.log()[part], SAMPLER.log()[part], torch.ones(1, 1), 2.0)
        total += float(SAMPLER[token] * sums["exp/sampler_kl"])
        assert float(sums["exp/sampler_kl"]) >= 0
        assert float(sums["exp/sampler_gap"]) == pytest.approx(abs(math.log(TRAINER[token] / SAMPLER[token])))
    assert total == pytest.approx(float((SAMPLER * (SAMPLER / TRAINER).log()).sum()))


def test_what_is_masked_does_not_count():
    old = torch.tensor([[-1.0, -torch.inf, -3.0]])
    sampled = torch.tensor([[-1.5, 0.0, torch.nan]])
    weights, sums = sampler_correction(old, sampled, torch.tensor([[1.0, 0.0, 0.0]]), 0.0)
    assert torch.isfinite(weights).all() and {name: float(v) for name, v in sums.items()} == {
        "exp/sampler_gap": 0.5,
        "exp/sampler_kl": pytest.approx(math.exp(0.5) - 1.5),
        "exp/importance": 1.0,
    }


REF = torch.tensor([0.1, 0.25, 0.6, 0.05], dtype=torch.float64)
ADVANTAGES = torch.tensor([1.0, -0.5, 0.25, 2.0], dtype=torch.float64)


def kl(p, q):
    return (p * (p / q).log()).sum()


EXACT = {
    "policy loss": (LossConfig(eta=0.0), lambda pi: -(pi * ADVANTAGES).sum()),
    "KL": (LossConfig(eta=0.0, kl="k3_is", kl_coef=0.7), lambda pi: -(pi * ADVANTAGES).sum() + 0.7 * kl(pi, REF)),
    "JS": (
        LossConfig(eta=0.6, estimator="definition", reduction="per_set"),
        lambda pi: -(pi * ADVANTAGES).sum() + 0.6 * 0.5 * kl(pi, (pi + REF) / 2),
    ),
    "entropy": (
        LossConfig(eta=0.0, entropy_coef=0.4),
        lambda pi: -(pi * ADVANTAGES).sum() + 0.4 * (pi * pi.log()).sum(),
    ),
}
"""Terms of the objective on rollouts, with the expectation whose gradient each must have."""


@pytest.mark.parametrize("term", EXACT)
def test_every_term_on_rollouts_of_another_engine_has_the_gradient_of_the_trainers_expectation(term):
    """Every token of the vocabulary once: the mean over rows is the expectation under a uniform sampler."""
    config, exact = EXACT[term]
    logits = TRAINER.log().requires_grad_()
    logprobs, old = logits.log_softmax(-1)[:, None], TRAINER.log()[:, None]
    batch = TokenBatch(old, REF.log()[:, None], torch.ones(4, 1), ADVANTAGES, torch.zeros(4, dtype=torch.bool))
    uniform = torch.full((4, 1), 0.25, dtype=torch.float64).log()
    importance, _ = sampler_correction(old, uniform, torch.ones(4, 1), cap=1e9)
    entropy = -(logprobs.exp() * logprobs).sum().expand(4, 1) if config.entropy_coef else None
    loss, _ = Objective(config)(logprobs, batch, LossCounts.of(batch), entropy, importance)
    (found,) = torch.autograd.grad(loss, logits)
    (expected,) = torch.autograd.grad(exact(logits.softmax(-1)), logits)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)  # fp64, sums of four terms of order one
