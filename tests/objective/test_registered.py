"""Advantages and policy losses by name: what they see, what they may return, and that training uses it."""

import math
from dataclasses import replace

import pytest
import torch

from dph.config import AdvantageConfig, LossConfig
from dph.errors import SettingsError
from dph.objective import (
    ADVANTAGES,
    Advantage,
    GroupView,
    LossCounts,
    Objective,
    TokenBatch,
    group_advantages,
    register_advantage,
    register_policy_loss,
)
from dph.objective.policy_losses import per_token
from dph.runs.directory import read_metrics
from dph.stages.train import train
from dph.types import Outcome, Verdict
from helpers import train_config

CORRECT, WRONG, LOST = (
    Verdict(outcome, float(outcome is Outcome.CORRECT))
    for outcome in (Outcome.CORRECT, Outcome.WRONG, Outcome.INFRA_ERROR)
)


def view(*verdicts: Verdict, lengths=(2, 3, 1)) -> GroupView:
    return GroupView(
        rewards=torch.tensor([verdict.reward for verdict in verdicts]),
        verdicts=verdicts,
        old_logprobs=[torch.full((length,), -0.5) for length in lengths[: len(verdicts)]],
        texts=[f"text {index}" for index in range(len(verdicts))],
        style_of=lambda text: text[-1],
    )


def test_the_view_says_who_is_correct_and_valid():
    group = view(CORRECT, LOST, WRONG)
    assert group.valid.tolist() == [True, False, True]
    assert group.correct.tolist() == [True, False, False]


def test_the_default_is_grpo_and_its_settings_are_options():
    group = view(CORRECT, LOST, WRONG)
    expected = group_advantages(group.rewards[None], group.valid[None])[0]
    assert torch.equal(Advantage()(group), expected)
    centred = Advantage("group", {"normalize_std": "false"})(group)
    assert centred.tolist() == [0.5, 0.0, -0.5]
    with pytest.raises(SettingsError, match="no advantage is named 'gae'"):
        Advantage("gae")
    with pytest.raises(SettingsError, match="must be true or false, not"):
        Advantage("group", {"normalize_std": "perhaps"})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (torch.zeros(2), r"returned the shape \[2\], not a tensor \[3\]"),
        (torch.zeros(3, 2), r"the shape \[3, 2\], not a tensor"),
        (torch.tensor([0.0, math.nan, math.nan]), "a value that is not finite"),
    ],
)
def test_advantages_of_a_wrong_form_are_refused(values, message):
    register_advantage("test_constant")(_constant)
    _constant.values = values  # type: ignore[attr-defined]
    with pytest.raises(SettingsError, match=message):
        Advantage("test_constant")(view(CORRECT, LOST, WRONG))


def _constant(group: GroupView) -> torch.Tensor:
    return _constant.values  # type: ignore[attr-defined]


@pytest.mark.parametrize("lost", [math.nan, 7.0])
def test_whatever_a_function_returns_a_lost_verdict_has_no_advantage(lost):
    register_advantage("test_constant")(_constant)
    _constant.values = torch.tensor([0.5, lost, 1.0])  # type: ignore[attr-defined]
    assert Advantage("test_constant")(view(CORRECT, LOST, WRONG)).tolist() == [0.5, 0, 1]
    _constant.values = torch.tensor([[0.5] * 3, [lost] * 3, [1.0] * 3])  # type: ignore[attr-defined]
    assert Advantage("test_constant")(view(CORRECT, LOST, WRONG))[1].tolist() == [0, 0, 0]


@register_policy_loss("test_reinforce")
def _reinforce(logprobs, old_logprobs, advantages, mask, *, scale: float = 1.0):
    return -scale * per_token(advantages) * logprobs * mask


def test_a_policy_loss_takes_the_place_of_ppo_clip():
    logprobs = torch.tensor([[-1.0, -2.0], [-3.0, 0.0]], requires_grad=True)
    mask = torch.tensor([[1.0, 1.0], [1.0, 0.0]])
    batch = TokenBatch(logprobs.detach(), None, mask, torch.tensor([2.0, -1.0]), torch.zeros(2, dtype=torch.bool))
    objective = Objective(LossConfig(eta=0.0, policy="test_reinforce", policy_options={"scale": "0.5"}))
    loss, _ = objective(logprobs, batch, LossCounts.of(batch))
    # −½·(2·(−1) + 2·(−2) − 1·(−3))/3 = 0.5; the gradient of a token is −½·A/3
    assert loss.item() == pytest.approx(0.5)
    loss.backward()
    assert logprobs.grad is not None
    assert logprobs.grad.flatten().tolist() == pytest.approx([-1 / 3, -1 / 3, 1 / 6, 0.0])
    with pytest.raises(SettingsError, match="no policy loss is named 'ppo'"):
        Objective(LossConfig(policy="ppo"))


def test_training_by_tokens_equals_training_by_responses(tmp_path):
    """An advantage [G, T] that repeats GRPO's is GRPO; one that is 0 on the first token is not."""

    @register_advantage("test_repeated")
    def repeated(group: GroupView, *, first: float = 1.0):
        longest = max(map(len, group.old_logprobs))
        values = ADVANTAGES["group"](group)[:, None].repeat(1, longest)
        values[:, 0] *= first
        return values

    settings = {
        "plain": AdvantageConfig(),
        "repeated": AdvantageConfig("test_repeated"),
        "changed": AdvantageConfig("test_repeated", {"first": "0"}),
    }
    lines = {
        name: read_metrics(train(replace(train_config(tmp_path / name, "grpo", {"steps": 2}), advantage=advantage)))
        for name, advantage in settings.items()
    }
    assert lines["plain"] == lines["repeated"] != lines["changed"]


def test_an_advantage_that_asks_for_it_gets_the_reference_policys_logprobs(tmp_path):
    seen = []

    @register_advantage("test_reference", reference=True)
    def watching(group: GroupView):
        assert group.ref_logprobs is not None
        seen.append(
            [(new - ref).abs().max().item() for new, ref in zip(group.old_logprobs, group.ref_logprobs, strict=True)]
        )
        return ADVANTAGES["group"](group)

    config = train_config(tmp_path, "grpo", {"steps": 2, "optim": {"lr": 1e-2}})
    train(replace(config, advantage=AdvantageConfig("test_reference")))
    groups = config.rollout.prompts
    assert max(map(max, seen[:groups])) < 1e-5  # before the first update the policy is the reference
    assert max(map(max, seen[groups:])) > 1e-3  # afterwards it has moved
