"""The published alternatives to PPO-clip: values and gradients by hand, and the selection over a mini-batch."""

import math
from dataclasses import replace

import pytest
import torch

from dph.config import LossConfig, TrainConfig, from_dict, merge_settings
from dph.errors import UserError
from dph.objective import Advantage, GroupView, LossCounts, Objective, TokenBatch
from dph.objective.methods.covariance import largest, random_within
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
    assert objective.select is not None
    chosen = objective.select(
        torch.tensor([-1.0, -3.0, -2.0, -2.0]), torch.tensor([1.0, -1.0, 0.0, 0.0]), torch.rand(4)
    )
    # parts (A − 0)·(log π + 2): 1, 1, 0, 0
    assert chosen.tolist() == [True, True, False, False]
    with pytest.raises(UserError, match="does not take the option 'mood'"):
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
