"""The rehearsal divergence of whole distributions (loss.estimator top_k): mathematics, storage, and a run."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from dph.config import LossConfig
from dph.divergences import get_divergence
from dph.errors import UserError
from dph.losses import LossCounts, TokenBatch, hybrid_loss
from dph.models.batch import collate
from dph.models.logprobs import token_logprobs
from dph.rehearsal import Rehearsal, read_rehearsal, reference_top, write_rehearsal
from dph.rehearsal_check import recheck
from dph.runs import read_metrics
from dph.stages.presample import presample
from dph.stages.train import train
from dph.token_losses import rehearsal_loss, top_k_rehearsal_loss
from helpers import presample_config, random_rows, tiny_policy, train_config

NAMES = ["forward_kl", "forward_kl_raw", "reverse_kl", "js", "alpha"]


def distributions(vocabulary: int = 6, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of π_θ with gradient and log π_ref, [1, 2, V] in fp64."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(1, 2, vocabulary, generator=generator, dtype=torch.float64, requires_grad=True)
    ref = torch.randn(1, 2, vocabulary, generator=generator, dtype=torch.float64).log_softmax(-1)
    return logits, ref


def without(vocabulary: int, last: int) -> torch.Tensor:
    """Tokens 0 … V−1−last: with one token in the rest nothing is hidden."""
    return torch.arange(vocabulary - last)


@pytest.mark.parametrize("name", NAMES)
def test_value_and_gradient_are_the_expectation_over_the_references_token(name):
    logits, ref = distributions()
    divergence, mask = get_divergence(name), torch.ones(1, 2, dtype=torch.float64)
    top = without(6, 1)  # the rest is the one last token
    exact = top_k_rehearsal_loss(logits.log_softmax(-1)[..., top], ref[..., top], mask, divergence)
    (gradient,) = torch.autograd.grad(exact.sum(), logits)
    # By enumeration: every token that π_ref might have drawn, with its probability.
    log_policy = logits.log_softmax(-1)
    drawn = [rehearsal_loss(log_policy[..., a], ref[..., a], mask, divergence) for a in range(6)]
    expected = sum(ref[..., a].exp() * drawn[a] for a in range(6))
    (by_draws,) = torch.autograd.grad(expected.sum(), logits)
    torch.testing.assert_close(exact, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(gradient, by_draws, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["forward_kl", "js", "alpha", "reverse_kl"])
def test_taking_tokens_together_hides_but_never_adds(name):
    logits, ref = distributions(vocabulary=8)
    mask, divergence = torch.ones(1, 2, dtype=torch.float64), get_divergence(name)
    policy = logits.detach().log_softmax(-1)
    values = [top_k_rehearsal_loss(policy[..., :k], ref[..., :k], mask, divergence).sum().item() for k in range(1, 8)]
    assert all(a <= b + 1e-12 for a, b in pairwise(values))  # data processing inequality
    assert values[0] >= 0 and values[0] < values[-1]


def test_golden_value():
    # π_ref = (1/2, 1/4, 1/4), π_θ = (1/4, 1/2, 1/4), top 1: Σ p log(p/q) = ½ log 2 + ½ log(½ / ¾) = ½ log 4/3.
    new, ref = torch.tensor([[[0.25]]]).log(), torch.tensor([[[0.5]]]).log()
    found = top_k_rehearsal_loss(new, ref, torch.ones(1, 1), get_divergence("forward_kl"))
    assert found.item() == pytest.approx(0.5 * math.log(4 / 3), rel=1e-6)


def test_masked_places_have_neither_value_nor_gradient():
    top = torch.zeros(2, 3, 4, requires_grad=True)  # log 1 for each of four: garbage
    ref = torch.full((2, 3, 4), -torch.inf)
    mask = torch.zeros(2, 3)
    mask[0, 1] = 1
    with torch.no_grad():
        top[0, 1] = torch.tensor([0.4, 0.3, 0.1, 0.1]).log()
        ref[0, 1] = torch.tensor([0.1, 0.3, 0.4, 0.1]).log()
    loss = top_k_rehearsal_loss(top, ref, mask, get_divergence("js"))
    loss.sum().backward()
    assert loss[0, 1] > 0 and loss.sum() == loss[0, 1]
    assert top.grad is not None and top.grad.isfinite().all() and (top.grad != 0).any(-1).sum() == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_that_is_certain_stays_finite(name):
    """Both nearly all on one stored token: the rest is rounding, and nothing becomes infinite."""
    top = torch.tensor([[[0.0, -40.0]]], requires_grad=True)
    loss = top_k_rehearsal_loss(top, torch.tensor([[[-1e-7, -20.0]]]), torch.ones(1, 1), get_divergence(name))
    loss.sum().backward()
    assert loss.isfinite().all() and top.grad is not None and top.grad.isfinite().all()


def test_the_objective_takes_it_on_stored_responses_only():
    policy, ref = distributions()[0].detach().log_softmax(-1).repeat(2, 1, 1), distributions()[1].repeat(2, 1, 1)
    token = policy[..., 0]
    batch = TokenBatch(
        token, ref[..., 0], torch.ones(2, 2), torch.tensor([0.5, 0.0]), torch.tensor([False, True]), ref[..., :3]
    )
    counts = LossCounts.of(batch)
    config = LossConfig(divergence="js", eta=0.5, reduction="per_set", estimator="top_k")
    loss, sums = hybrid_loss(token, batch, counts, config, top=policy[..., :3])
    each = top_k_rehearsal_loss(policy[1:, :, :3], ref[1:, :, :3], torch.ones(1, 2), get_divergence("js"))
    assert loss.item() == pytest.approx(-0.5 + 0.5 * each.mean().item(), rel=1e-6)  # ρ = 1, so −A on rollouts
    assert sums["pef/divergence"].item() == pytest.approx(each.sum().item(), rel=1e-6)
    with pytest.raises(ValueError, match="needs the reference's likeliest tokens"):
        hybrid_loss(token, batch, counts, config)


# From the model to the file and back --------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_likeliest_tokens_of_a_plain_forward_pass(shared, temperature, monkeypatch):
    policy = tiny_policy()
    rows = random_rows(policy, 5)
    rows += [replace(row, response_ids=row.response_ids[:-1] + row.response_ids[:1]) for row in rows]
    monkeypatch.setattr("dph.models.logprobs._LOGIT_ELEMENTS_AT_ONCE", 300)  # several chunks
    policy.shared_prefix = shared
    found = reference_top(policy, rows, temperature, 200, 3)
    for row, (ids, values) in zip(rows, found, strict=True):
        logits = policy.model(torch.tensor([[*row.prompt_ids, *row.response_ids]])).logits[0, :-1]
        expected = (logits[len(row.prompt_ids) - 1 :].double() / temperature).log_softmax(-1).topk(3)
        assert ids == expected.indices.tolist()
        torch.testing.assert_close(torch.tensor(values).double(), expected.values, rtol=0, atol=1e-5)


@pytest.mark.parametrize("shared", [False, True])
def test_the_forward_pass_of_training_gives_them_beside_the_responses_own(shared):
    policy = tiny_policy()
    rows = random_rows(policy, 4)
    top = reference_top(policy, rows[:2], 1.0, 1000, 3)
    rows[:2] = [
        replace(row, is_rehearsal=True, top_ids=ids, top_logprobs=values)
        for row, (ids, values) in zip(rows[:2], top, strict=True)
    ]
    batch = collate(rows, shared=shared)
    logprobs, entropy, found = policy.logprobs_with_top(batch, entropy="value")
    plain, plain_entropy = policy.logprobs(batch, entropy="value")
    assert found is not None and entropy is not None and plain_entropy is not None
    torch.testing.assert_close(logprobs, plain, rtol=0, atol=1e-6)
    torch.testing.assert_close(entropy, plain_entropy, rtol=0, atol=1e-6)
    assert batch.top_logprobs is not None
    held = batch.top_logprobs.isfinite()
    torch.testing.assert_close(found[held], batch.top_logprobs[held], rtol=0, atol=1e-5)
    assert (found[~held] == 0).all() and held[2:].sum() == 0
    assert policy.logprobs_with_top(collate(rows[2:], shared=shared))[2] is None


def test_gradients_reach_the_stored_tokens():
    logits = torch.randn(2, 5, requires_grad=True)
    states, targets = torch.tensor([0, 1, 0, 0, 1]), torch.tensor([1, 2, 3, 4, 0])
    found, _ = token_logprobs(logits, states, targets, 0.7, "none")
    (gradient,) = torch.autograd.grad((found * torch.arange(1.0, 6)).sum(), logits)
    plain = (logits / 0.7).log_softmax(-1)[states, targets]
    (expected,) = torch.autograd.grad((plain * torch.arange(1.0, 6)).sum(), logits)
    torch.testing.assert_close(gradient, expected)


def test_stored_tops_survive_the_file(tmp_path):
    row = Rehearsal("a", [1, 2], [3, 4], [-0.5, 0.0], "x", [[3, 5], [4, 1]], [[-0.5, -1.0], [-0.25, -2.0]])
    write_rehearsal(tmp_path / "r.parquet", [row, row])
    assert read_rehearsal(tmp_path / "r.parquet") == [row, row]
    assert read_rehearsal(tmp_path / "r.parquet")[0].row().top_ids == row.top_ids


@pytest.mark.parametrize(
    "damage",
    [
        {"top_ids": [[3, 5]]},
        {"top_ids": [[3, 5], [4]]},
        {"top_ids": [[3, 5], []]},
        {"top_ids": [[3, -5], [4, 1]]},
        {"top_ids": None},
        {"top_logprobs": [[-0.5, 1.0], [-0.25, -2.0]]},
        {"top_logprobs": [[-0.5, math.nan], [-0.25, -2.0]]},
    ],
)
def test_damaged_tops_are_refused(tmp_path, damage):
    row = Rehearsal("a", [1, 2], [3, 4], [-0.5, 0.0], "x", [[3, 5], [4, 1]], [[-0.5, -1.0], [-0.25, -2.0]])
    write_rehearsal(tmp_path / "r.parquet", [row, replace(row, **damage)])
    with pytest.raises(UserError, match="is damaged in row 2"):
        read_rehearsal(tmp_path / "r.parquet")


def test_tokens_that_the_model_does_not_have():
    row = Rehearsal("a", [1], [2], [-0.5], "x", [[3, 10_000]], [[-0.5, -1.0]])
    with pytest.raises(UserError, match="tokens beyond the model's"):
        recheck(tiny_policy(), [row], 1.0, 1000)


# Runs ---------------------------------------------------------------------------------------------------------------


def test_a_run_from_presampling_to_training(tmp_path):
    presample(presample_config(tmp_path / "set", top_k=3))
    stored = read_rehearsal(tmp_path / "set" / "rehearsal.parquet")
    assert stored and all(len(part) == 3 for row in stored for part in row.top_ids or ())
    settings = {"loss": {"estimator": "top_k"}, "rehearsal": {"path": str(tmp_path / "set")}}
    config = train_config(tmp_path / "run", "dph_js", settings)
    rows = read_metrics(train(config))
    assert rows[-1]["step"] == config.steps and all(math.isfinite(row["pef/divergence"]) for row in rows if row["step"])


def test_a_set_without_them_is_refused(tmp_path):
    config = train_config(tmp_path / "run", "dph_js")
    with pytest.raises(UserError, match=r"needs the reference's likeliest tokens, but .* --top-k 8"):
        train(replace(config, loss=replace(config.loss, estimator="top_k")))


def test_more_tokens_than_the_model_has(tmp_path):
    with pytest.raises(UserError, match=r"top_k is 10000, but the model has only \d+ tokens"):
        presample(presample_config(tmp_path / "set", top_k=10_000))
