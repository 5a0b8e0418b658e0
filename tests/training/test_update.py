"""Optimizer steps on mixed mini-batches against a loss written out in plain torch over transformers' own logits."""

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from dph.config import LossConfig, OptimConfig, RehearsalConfig, RolloutConfig, TrainConfig
from dph.models.batch import by_prompt
from dph.objective import Objective, register_policy_loss
from dph.process.distributed import World
from dph.training.optim import Optimizer, learning_rate
from dph.training.rows import collate
from dph.training.update import Updater, split_by_gradient
from helpers import gradient, random_rows, relative_difference, tiny_policy

CASES = {
    "grpo": LossConfig(eta=0.0, clip_high=0.2),
    "grpo_kl": LossConfig(eta=0.0, kl="k3", kl_coef=0.3),
    "dph_f": LossConfig(eta=0.4, divergence="forward_kl"),
    "dph_js": LossConfig(eta=0.4, divergence="js", reduction="per_set"),
    "dph_js_def": LossConfig(eta=0.4, estimator="definition"),
    "rows_and_kl": LossConfig(eta=0.4, divergence="js", reduction="per_set", kl="k3", kl_coef=0.3),
    "entropy": LossConfig(eta=0.0, entropy_coef=0.1),
    "sequence": LossConfig(eta=0.4, divergence="reverse_kl", aggregation="sequence", reduction="per_set"),
}
TEMPERATURE = 0.8
ROUNDING = 4e-6
"""Relative difference of fp32 gradients whose terms are added in different orders, on any processor."""


class Recorder:
    """In place of an optimizer: keeps each step's gradient instead of stepping."""

    steps_taken = 0

    def __init__(self, policy):
        self.policy, self.gradients = policy, []
        self.parameters = [parameter for _, parameter in policy.trainable()]

    def step(self):
        self.gradients.append(gradient(self.policy))
        self.policy.model.zero_grad(set_to_none=True)
        return float(self.gradients[-1].norm())


def settings(loss, budget=10_000, rows=1, cap=0.0, **optim):
    return TrainConfig(
        loss=loss,
        rollout=RolloutConfig(temperature=TEMPERATURE, importance_cap=cap),
        optim=OptimConfig(tokens_per_microbatch=budget, **optim),
        rehearsal=RehearsalConfig(rows=rows if loss.eta else 0),
    )


def update(policy, minibatches, config, reference=None, optimizer: Any = None, recompute_old=False):
    optimizer = optimizer or Recorder(policy)
    objective = Objective(config.loss if config.rehearsal.rows else replace(config.loss, eta=0.0))
    updater = Updater(
        policy,
        objective,
        optimizer,
        temperature=config.rollout.temperature,
        token_budget=config.optim.tokens_per_microbatch,
        importance_cap=config.rollout.importance_cap,
        own_reference=reference,
        world=World(),
    )
    metrics = updater.update([by_prompt(rows) for rows in minibatches], recompute_old=recompute_old)
    return metrics, optimizer


def split(rows, config):
    """The rows that have a gradient, and the others."""
    return [
        [row for group in groups for row in group] for groups in split_by_gradient(by_prompt(rows), Objective(config))
    ]


def mixed_rows(policy, config=None, count=14):
    rows = random_rows(policy, count, seed=3, rehearsal_every=3)
    return rows if config is None or config.eta else [row for row in rows if not row.is_rehearsal]


def written_out(policy, reference, rows, config, cap=None):
    """The mini-batch's loss with gradient: full padded batch, transformers' logits, no function of the package.

    cap: log π_old is the policy's own, the rows' is the sampler's, and tokens are weighed by the truncated ratio.
    """
    width = max(row.length for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    for index, row in enumerate(rows):
        ids[index, : row.length] = torch.tensor([*row.prompt_ids, *row.response_ids])
    mask = torch.tensor([[int(j < row.length) for j in range(width)] for row in rows])

    def token_logits(model):
        logits = model(ids, attention_mask=mask).logits / TEMPERATURE
        return [
            logits[index, len(row.prompt_ids) - 1 : row.length - 1].log_softmax(-1) for index, row in enumerate(rows)
        ]

    def of_tokens(every):
        return [e[range(len(row.response_ids)), list(row.response_ids)] for e, row in zip(every, rows, strict=True)]

    distributions = token_logits(policy.model)
    new = of_tokens(distributions)
    with torch.no_grad():
        ref = of_tokens(token_logits(reference.model)) if reference else [None] * len(rows)
    by_sequence = config.aggregation == "sequence"
    own = [torch.tensor([float(mark) for mark in marks_of(row)]) for row in rows]
    sizes = {
        kind: sum(
            1 if by_sequence else int(mine.sum())
            for row, mine in zip(rows, own, strict=True)
            if row.is_rehearsal is kind
        )
        for kind in (False, True)
    }
    if config.reduction == "pooled":
        weight = {False: 1 / sum(sizes.values()), True: config.eta / sum(sizes.values())}
        js_lambda = config.eta * sizes[True] / sizes[False]
    else:
        weight = {False: 1 / max(1, sizes[False]), True: config.eta / max(1, sizes[True])}
        js_lambda = config.eta
    loss = torch.zeros(())
    for row, logprobs, ref_logprobs, distribution, mine in zip(rows, new, ref, distributions, own, strict=True):
        share = mine / (mine.sum() if by_sequence else 1.0)
        if row.is_rehearsal:
            log_u = logprobs - torch.tensor(row.ref_logprobs)
            u = log_u.exp()
            if config.estimator == "definition":
                f = -0.5 * torch.log((1 + u) / 2)  # ½·log(π_ref/m); centring adds what has no mean under π_ref
                f = f + 0.25 * (u - 1)
            else:
                f = {
                    "forward_kl": u - 1 - log_u,
                    "reverse_kl": u * log_u - u + 1,
                    "js": u * log_u - (u + 1) * torch.log((u + 1) / 2),
                }[config.divergence]
            loss = loss + weight[True] * (share * f).sum()
            continue
        old, advantage, importance = torch.tensor(row.old_logprobs), torch.tensor(row.advantage), torch.tensor(1.0)
        if cap is not None:
            old, sampled = logprobs.detach(), old
            importance = (old - sampled).exp().clamp(max=cap)
        rho = (logprobs - old).exp()
        clipped = rho.clamp(1 - config.clip_low, 1 + config.clip_high)
        term = -torch.minimum(rho * advantage, clipped * advantage)
        if config.kl == "k3":
            term = term + config.kl_coef * ((ref_logprobs - logprobs).exp() - 1 + logprobs - ref_logprobs)
        if config.estimator == "definition":
            g = 0.5 * torch.log(2 / (1 + (ref_logprobs - logprobs).exp()))
            term = term + js_lambda * (rho * (g - 0.25) + 0.25)
        term = importance * term
        if config.entropy_coef:
            term = term + config.entropy_coef * (distribution.exp() * distribution).sum(-1)
        loss = loss + weight[False] * (share * term).sum()
    return loss


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient_equal_those_written_out(case):
    config = CASES[case]
    policy, reference = (
        tiny_policy(0),
        tiny_policy(1) if config.kl != "none" or config.estimator == "definition" else None,
    )
    rows = mixed_rows(policy, config)
    metrics, recorder = update(policy, [rows], settings(config), reference)
    loss = written_out(policy, reference, rows, config)
    loss.backward()
    # fp32, summed over some 50 tokens in another order and with an attention mask: 1e-5 of the largest entry
    assert metrics["loss"] == pytest.approx(float(loss.detach()), rel=1e-5, abs=1e-6)
    assert relative_difference(recorder.gradients[0], gradient(policy)) <= 1e-5
    assert metrics["grad_norm"] == pytest.approx(float(gradient(policy).norm()), rel=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_the_cut_into_microbatches_changes_nothing(case):
    config = CASES[case]
    policy, reference = tiny_policy(0), tiny_policy(1)
    rows = mixed_rows(policy, config)
    whole, reference_run = update(policy, [rows], settings(config), reference)
    for budget in (1, 30, 80):
        metrics, recorder = update(policy, [rows[::-1]], settings(config, budget), reference)
        assert relative_difference(recorder.gradients[0], reference_run.gradients[0]) <= ROUNDING
        assert metrics.keys() == whole.keys()
        for name, value in whole.items():
            assert metrics[name] == pytest.approx(value, rel=2e-5, abs=2e-6), name


@pytest.mark.parametrize("name", ["kl_cov", "clip_cov"])
def test_tokens_are_selected_over_the_whole_minibatch(name):
    """Whatever the cut and the order of rows, the same tokens are selected, a share of all."""
    policy = tiny_policy(0)
    options = {"share": "0.3"} | ({"low": "-9", "high": "9"} if name == "clip_cov" else {})
    config = LossConfig(policy=name, policy_options=options, eta=0.0, clip_high=0.2)
    rows = mixed_rows(policy, config)
    whole, reference = update(policy, [rows], settings(config))
    for budget in (1, 30):
        metrics, recorder = update(policy, [rows[::-1]], settings(config, budget))
        assert relative_difference(recorder.gradients[0], reference.gradients[0]) <= ROUNDING
        assert metrics["loss"] == pytest.approx(whole["loss"], rel=2e-5)
    _, none = update(policy, [rows], settings(replace(config, policy_options=options | {"share": "1e-9"})))
    assert not torch.allclose(none.gradients[0], reference.gradients[0], rtol=1e-2)


@pytest.mark.parametrize("name", ["kl_cov", "clip_cov"])
def test_micro_batches_of_stored_rows_only_change_nothing(name):
    """With rehearsal, a budget of one token puts every prompt into a micro-batch of its own."""
    policy = tiny_policy(0)
    options = {"share": "0.3"} | ({"low": "-9", "high": "9"} if name == "clip_cov" else {})
    config = LossConfig(policy=name, policy_options=options, eta=0.4)
    rows = mixed_rows(policy)
    whole, reference = update(policy, [rows], settings(config))
    metrics, recorder = update(policy, [rows], settings(config, 1))
    assert relative_difference(recorder.gradients[0], reference.gradients[0]) <= ROUNDING
    assert metrics["loss"] == pytest.approx(whole["loss"], rel=2e-5)
    stored = [row for row in rows if row.is_rehearsal]
    plain = LossConfig(eta=0.4)
    gradients = [update(policy, [stored], settings(loss))[1].gradients[0] for loss in (config, plain)]
    assert torch.equal(*gradients) and gradients[0].any()


def flat(values):
    return list(itertools.chain.from_iterable(values))


def test_tokens_are_selected_by_the_policy_before_each_update():
    """log π_θ of a later mini-batch, in the order of the tokens; the first one has it from log π_old."""
    policy = tiny_policy()
    config = settings(LossConfig(policy="clip_cov", eta=0.0), lr=1e-2)
    rows = mixed_rows(policy, config.loss, count=12)
    minibatches = [rows[:6], rows[6:]]
    optimizer = Optimizer(policy.trainable(), config.optim, 10)
    objective = Objective(config.loss)
    updater = Updater(policy, objective, optimizer, temperature=TEMPERATURE, token_budget=100, world=World())
    given, expected = [], []
    select = objective.policy.select
    assert select is not None

    def watched(old, advantages, uniform, **more):
        part = minibatches[len(given)]
        given.append(more)
        expected.append(flat(policy.response_logprobs(part, TEMPERATURE, 100)))
        assert old.tolist() == pytest.approx(flat(row.old_logprobs for row in part))
        return select(old, advantages, uniform, **more)

    objective.policy.select = watched
    updater.update([by_prompt(rows) for rows in minibatches], recompute_old=False)
    assert given[0] == {}
    assert given[1]["logprobs"].tolist() == pytest.approx(expected[1], abs=1e-5)
    old = flat(row.old_logprobs for row in minibatches[1])
    assert max(abs(a - b) for a, b in zip(expected[1], old, strict=True)) > 0.1


def test_rehearsal_rows_never_change_the_gradient_of_exploration():
    """With the reduction per_set; a row's loss is that of its own set, whatever else is in its micro-batch."""
    policy = tiny_policy()
    config = CASES["dph_js"]
    rows = mixed_rows(policy)
    parts = [[row for row in rows if row.is_rehearsal is kind] for kind in (False, True)]
    gradients = []
    for chosen in (rows, *parts):
        _, recorder = update(policy, [chosen], settings(config))
        gradients += recorder.gradients
    assert relative_difference(gradients[0], gradients[1] + gradients[2]) <= ROUNDING
    assert float(gradients[2].norm()) > 0.01 * float(gradients[1].norm()) > 0
    changed = [replace(row, advantage=9.0, old_logprobs=[-9.0] * len(row.response_ids)) for row in parts[1]]
    _, recorder = update(policy, [parts[0] + changed], settings(config))
    assert relative_difference(recorder.gradients[0], gradients[0]) <= ROUNDING


def test_rows_without_weight_do_not_count():
    policy, config = tiny_policy(), settings(CASES["dph_js"])
    rows = mixed_rows(policy)
    _, without = update(policy, [rows[2:]], config)
    _, weightless = update(policy, [[replace(row, weight=0.0) for row in rows[:2]] + rows[2:]], config)
    assert relative_difference(weightless.gradients[0], without.gradients[0]) <= ROUNDING


def without_advantage(rows, above=-math.inf):
    """The rows, without advantage where it is above a number."""
    return [replace(row, advantage=0.0) if row.advantage > above else row for row in rows]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("above", [0.0, -math.inf])
def test_rows_without_gradient_are_not_passed_back_and_change_no_number(monkeypatch, case, above):
    config = CASES[case]
    policy, reference = tiny_policy(0), tiny_policy(1)
    rows = without_advantage(mixed_rows(policy, config), above)
    found, recorder = update(policy, [rows], settings(config), reference)
    moving, still = split(rows, config)
    everything = config.kl != "none" or config.estimator == "definition" or config.entropy_coef > 0
    assert (not still) is everything and len(moving) + len(still) == len(rows)
    assert all(row.advantage == 0 and not row.is_rehearsal for row in still)
    monkeypatch.setattr("dph.training.update.split_by_gradient", lambda groups, _: (groups, []))
    expected, whole = update(policy, [rows], settings(config), reference)
    # the same rows in other micro-batches: fp32 sums in another order
    assert relative_difference(recorder.gradients[0], whole.gradients[0]) <= ROUNDING
    assert found == {name: pytest.approx(value, rel=2e-5, abs=2e-6) for name, value in expected.items()}


@register_policy_loss("test_towards_old")
def _towards_old(logprobs, old_logprobs, advantages, mask):
    return 0.5 * (logprobs - old_logprobs) ** 2 * mask


def test_a_plug_in_that_learns_without_advantage_gets_its_gradient():
    policy = tiny_policy()
    config = LossConfig(policy="test_towards_old", eta=0.0)
    rows = without_advantage(mixed_rows(policy, config))
    rows[0] = replace(rows[0], advantage=1.0)
    assert [len(part) for part in split(rows, config)] == [len(rows), 0]
    _, recorder = update(policy, [rows], settings(config, budget=30))
    tokens = sum(len(row.response_ids) for row in rows)
    loss = sum(
        0.5 * ((new - torch.tensor(row.old_logprobs)) ** 2).sum() / tokens
        for row in rows
        for new in [policy.logprobs(collate([row]), TEMPERATURE)[0][0]]
    )
    policy.model.zero_grad(set_to_none=True)
    assert isinstance(loss, torch.Tensor)
    loss.backward()
    assert relative_difference(recorder.gradients[0], gradient(policy)) <= 1e-5


@pytest.mark.parametrize("name", ["ppo_clip", "gspo", "cispo", "clip_cov", "kl_cov"])
def test_which_losses_leave_groups_without_advantage_out(name):
    """Their gradient is the same either way; only kl_cov moves selected tokens of such groups."""
    policy = tiny_policy()
    config = LossConfig(policy=name, policy_options={"share": "1"} if name == "kl_cov" else {}, eta=0.0)
    rows = without_advantage(mixed_rows(policy, config), 0.0)
    moving, still = split(rows, config)
    assert bool(still) is (name != "kl_cov") and all(row.advantage == 0 for row in still)
    gradients = [
        update(policy, [part], settings(replace(config, aggregation="dr_grpo")))[1].gradients[0] * len(part)
        for part in (rows, moving)
    ]
    assert relative_difference(*gradients) <= ROUNDING


def test_moments_go_on_where_no_row_has_an_advantage():
    """As they do with a gradient of zeros: the weights move, by the moments of the steps before."""
    policies = [tiny_policy(), tiny_policy()]
    config = settings(CASES["grpo"], lr=1e-2)
    rows = mixed_rows(policies[0], config.loss)
    optimizers = [Optimizer(policy.trainable(), config.optim, 10) for policy in policies]
    for policy, optimizer in zip(policies, optimizers, strict=True):
        update(policy, [rows], config, optimizer=optimizer)
    before = policies[0].weight_hash()
    metrics, _ = update(policies[0], [without_advantage(rows)], config, optimizer=optimizers[0])
    for parameter in optimizers[1].parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizers[1].step()
    assert metrics["grad_norm"] == 0
    assert policies[0].weight_hash() == policies[1].weight_hash() != before


def test_the_first_minibatch_has_old_logprobs_from_its_own_forward_pass(monkeypatch):
    policy, config = tiny_policy(), settings(CASES["dph_f"])
    rows = mixed_rows(policy)
    calls = []
    monkeypatch.setattr(policy, "response_logprobs", lambda *_: calls.append(1))
    metrics, _ = update(policy, [rows], config, recompute_old=True)
    assert not calls and metrics["exp/ratio"] == 1 and metrics["exp/old_kl"] == 0


def test_old_logprobs_recomputed_are_those_of_the_policy_before_the_first_step():
    policies = [tiny_policy(), tiny_policy()]
    rows = mixed_rows(policies[0], count=12)
    minibatches = [rows[:6], rows[6:]]
    config = settings(CASES["dph_f"], lr=1e-2)
    exact = [
        [
            row
            if row.is_rehearsal
            else replace(row, old_logprobs=policies[1].response_logprobs([row], TEMPERATURE, 1)[0])
            for row in part
        ]
        for part in minibatches
    ]
    optimizers = [Optimizer(policy.trainable(), config.optim, 10) for policy in policies]
    found = [
        update(policies[0], minibatches, config, optimizer=optimizers[0], recompute_old=True)[0],
        update(policies[1], exact, config, optimizer=optimizers[1])[0],
    ]
    for name, value in found[1].items():
        assert found[0][name] == pytest.approx(value, rel=1e-4, abs=1e-5), name
    first = update(tiny_policy(), minibatches[:1], config, recompute_old=True)[0]
    assert first["exp/ratio"] == pytest.approx(1, abs=1e-6) and first["exp/old_kl"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("case", ["dph_f", "grpo_kl", "dph_js_def", "entropy"])
@pytest.mark.parametrize("cap", [1.1, 100.0])
def test_tokens_of_another_sampler_are_weighed(case, cap):
    policy, config = tiny_policy(), settings(CASES[case], budget=60, cap=cap)
    reference = tiny_policy(1) if case in ("grpo_kl", "dph_js_def") else None
    rows = mixed_rows(policy, config.loss)
    metrics, recorder = update(policy, [rows], config, reference, recompute_old=True)
    loss = written_out(policy, reference, rows, config.loss, cap=cap)
    loss.backward()
    assert metrics["loss"] == pytest.approx(float(loss.detach()), abs=1e-6)
    assert relative_difference(recorder.gradients[0], gradient(policy)) <= 1e-5
    policy.model.zero_grad()
    rollouts = [row for row in rows if not row.is_rehearsal]
    exact = policy.response_logprobs(rollouts, TEMPERATURE, 10_000)
    gaps = torch.tensor(
        [a - b for own, row in zip(exact, rollouts, strict=True) for a, b in zip(own, row.old_logprobs, strict=True)]
    )
    assert metrics["exp/sampler_gap"] == pytest.approx(float(gaps.abs().mean()), rel=1e-5)
    assert metrics["exp/importance"] == pytest.approx(float(gaps.exp().clamp(max=cap).mean()), rel=1e-5)
    assert float(gaps.exp().max()) > 1.1 and metrics["exp/sampler_kl"] > 0


def test_a_second_minibatch_is_weighed_by_the_policy_before_the_first_step():
    """With the sampler's numbers off by log 2 on every rollout, weights are 1/2 throughout: half the advantage."""
    policies = [tiny_policy(), tiny_policy()]
    config = settings(CASES["grpo"], cap=2.0, lr=1e-2)
    rows = mixed_rows(policies[0], CASES["grpo"], count=12)
    exact = policies[0].response_logprobs(rows, TEMPERATURE, 10_000)
    off = [replace(row, old_logprobs=[v + math.log(2) for v in own]) for row, own in zip(rows, exact, strict=True)]
    one_each: list[Any] = list(zip(rows, exact, strict=True))
    half = [replace(row, old_logprobs=own, advantage=row.advantage / 2) for row, own in one_each]
    optimizers = [Optimizer(policy.trainable(), config.optim, 10) for policy in policies]
    weighed, _ = update(policies[0], [off[:4], off[4:]], config, optimizer=optimizers[0], recompute_old=True)
    plain, _ = update(policies[1], [half[:4], half[4:]], config, optimizer=optimizers[1])
    assert weighed["exp/importance"] == pytest.approx(0.5, rel=1e-5)
    for name in ("loss", "grad_norm", "exp/policy_loss", "exp/ratio"):
        assert weighed[name] == pytest.approx(plain[name], rel=1e-4, abs=1e-6)


def test_a_reference_is_asked_only_where_the_objective_needs_it():
    policy = tiny_policy()

    class Untouchable:
        def response_logprobs(self, *_args):
            raise AssertionError("the reference was asked")

    for name, config in CASES.items():
        rows = mixed_rows(policy, config)
        if name in ("grpo_kl", "dph_js_def", "rows_and_kl"):
            with pytest.raises(AssertionError, match="was asked"):
                update(policy, [rows], settings(config), Untouchable())
            with pytest.raises(RuntimeError, match="can be its own reference"):
                update(policy, [rows], settings(config))
        else:
            update(policy, [rows], settings(config), Untouchable())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_changes_no_weight(bad):
    policy, config = tiny_policy(), settings(CASES["grpo"])
    optimizer = Optimizer(policy.trainable(), config.optim, 10)
    rows = mixed_rows(policy, config.loss)
    before = policy.weight_hash()
    metrics, _ = update(policy, [[replace(rows[0], advantage=bad), *rows[1:]]], config, optimizer=optimizer)
    assert policy.weight_hash() == before and metrics["skipped_updates"] == 1 and optimizer.state() == {}
    metrics, _ = update(policy, [rows], config, optimizer=optimizer)
    assert policy.weight_hash() != before and metrics["skipped_updates"] == 0 and optimizer.steps_taken == 2


def test_an_empty_minibatch_changes_no_weight():
    policy, config = tiny_policy(), settings(CASES["grpo"], weight_decay=0.5)
    optimizer = Optimizer(policy.trainable(), config.optim, 10)
    before = policy.weight_hash()
    metrics, _ = update(policy, [[], []], config, optimizer=optimizer)
    assert policy.weight_hash() == before and (metrics["loss"], metrics["grad_norm"]) == (0, 0)


def test_quantiles_on_the_rehearsal_set_cover_all_minibatches():
    policy, config = tiny_policy(), settings(CASES["dph_js"], budget=30)
    rows = mixed_rows(policy)
    metrics, _ = update(policy, [rows[:7], rows[7:]], config)
    stored = [row for row in rows if row.is_rehearsal]
    new = policy.response_logprobs(stored, TEMPERATURE, 1)
    log_u = torch.tensor(
        [
            a - b
            for row, line in zip(stored, new, strict=True)
            for a, b in zip(line, row.ref_logprobs or (), strict=True)
        ]
    )
    for name, level in (("q01", 0.01), ("q50", 0.5), ("q99", 0.99)):
        assert metrics[f"pef/log_ratio_{name}"] == pytest.approx(float(log_u.quantile(level)), abs=1e-5)
    assert metrics["pef/forgotten"] == pytest.approx(float((log_u < math.log(0.1)).float().mean()), abs=1e-6)
    assert metrics["pef/tokens"] == len(log_u)


# The optimizer ------------------------------------------------------------------------------------------------------


def test_learning_rates_by_hand():
    config = OptimConfig(lr=1.0, warmup_steps=4)
    assert [learning_rate(config, step, 12) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    linear = replace(config, schedule="linear")
    assert [learning_rate(linear, step, 12) for step in (3, 4, 8, 12)] == [1.0, 1.0, 0.5, 0.0]
    cosine = replace(config, schedule="cosine")  # .05 + .95·½(1 + cos πx): 1 at 0, .525 half way, .05 at the end
    assert [learning_rate(cosine, step, 12) for step in (4, 8, 12)] == pytest.approx([1.0, 0.525, 0.05])


@pytest.mark.parametrize("clip", [0.0, 0.5, 100.0])
def test_steps_are_those_of_adamw_with_clipping(clip):
    config = OptimConfig(lr=0.1, warmup_steps=3, beta1=0.8, beta2=0.9, weight_decay=0.2, grad_clip=clip)
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
    optimizer = Optimizer([("w", weight)], config, 10)
    w, m, v = torch.tensor([1.0, -2.0, 3.0]), torch.zeros(3), torch.zeros(3)
    for step, grad in enumerate(torch.tensor([[3.0, 4.0, 0.0], [0.1, 0.0, -0.2], [-1.0, 2.0, 2.0]]), 1):
        weight.grad = grad.clone()
        assert optimizer.step() == pytest.approx(float(grad.norm()))
        grad = grad * min(1.0, clip / (float(grad.norm()) + 1e-6)) if clip else grad  # torch's own ε in clipping
        lr = 0.1 * min(1.0, step / 3)
        w = w * (1 - lr * 0.2)
        m, v = 0.8 * m + 0.2 * grad, 0.9 * v + 0.1 * grad**2
        w = w - lr * (m / (1 - 0.8**step)) / ((v / (1 - 0.9**step)).sqrt() + 1e-8)
        torch.testing.assert_close(weight.detach(), w, rtol=1e-6, atol=1e-6)  # fp32
        assert weight.grad is None


def test_optimizer_state_goes_on_with_the_same_trajectory():
    def run(first, second):
        torch.manual_seed(0)
        policy = tiny_policy()
        config = OptimConfig(lr=1e-2, warmup_steps=5)
        optimizer = Optimizer(policy.trainable(), config, 10)
        rows = mixed_rows(policy)
        update(policy, [rows[:7]] * first, settings(CASES["dph_f"]), optimizer=optimizer)
        if second:
            state, steps = optimizer.state(), optimizer.steps_taken
            optimizer = Optimizer(policy.trainable(), config, 10)
            optimizer.load_state(state, steps)
            update(policy, [rows[:7]] * second, settings(CASES["dph_f"]), optimizer=optimizer)
        return policy.weight_hash()

    assert run(2, 2) == run(4, 0) != run(3, 0)


# Tokens that a tool wrote ------------------------------------------------------------------------------------------


def marks_of(row):
    return row.written or [True] * len(row.response_ids)


def with_tool(rows, value=0.0):
    """The rows, in which a tool wrote every third token and the one after it, but neither the first nor the last. These
    tokens have this log-probability."""
    marked = []
    for row in rows:
        last = len(row.response_ids) - 1
        written = [place % 3 == 0 or place in (0, last) for place in range(last + 1)]
        changes = {
            name: [old if own else value for old, own in zip(getattr(row, name), written, strict=True)]
            for name in ("old_logprobs", "ref_logprobs")
            if getattr(row, name)
        }
        marked.append(replace(row, written=None if all(written) else written, **changes))
    assert sum(row.written is not None for row in marked) >= len(rows) // 2
    return marked


@pytest.mark.parametrize("recomputed", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_tokens_of_a_tool_have_no_part_in_loss_and_gradient(case, recomputed):
    config, cap = CASES[case], 1.5 if recomputed else None
    needs = config.kl != "none" or config.estimator == "definition"
    policy, reference = tiny_policy(0), tiny_policy(1) if needs else None
    rows = with_tool(mixed_rows(policy, config))
    metrics, recorder = update(policy, [rows], settings(config, cap=cap or 0.0), reference, recompute_old=recomputed)
    loss = written_out(policy, reference, rows, config, cap)
    loss.backward()
    assert metrics["loss"] == pytest.approx(float(loss.detach()), rel=1e-5, abs=1e-6)
    assert relative_difference(recorder.gradients[0], gradient(policy)) <= 1e-5
    kinds = {"exp/tokens": False, "pef/tokens": True}
    for name, kind in kinds.items():
        own = sum(sum(marks_of(row)) for row in rows if row.is_rehearsal is kind)
        assert metrics[name] == own
    _, unmasked = update(policy, [[replace(row, written=None) for row in rows]], settings(config), reference)
    assert relative_difference(unmasked.gradients[0], recorder.gradients[0]) > 0.01


@pytest.mark.parametrize("aggregation", ["token", "sequence", "dr_grpo"])
@pytest.mark.parametrize("name", ["ppo_clip", "gspo", "cispo", "kl_cov", "clip_cov"])
def test_what_stands_at_tokens_of_a_tool_changes_no_bit(name, aggregation):
    """Log-probabilities, advantages and references there are without effect, with any policy loss and divergence."""
    options = {"share": "0.3"} if name.endswith("cov") else {}
    more = {"policy_options": options, "aggregation": aggregation, "dr_grpo_length": 8}
    config = LossConfig(policy=name, eta=0.4, divergence="js", clip_high=0.2, **more)  # type: ignore[arg-type]
    policy = tiny_policy(0)
    found = []
    for value in (0.0, -3.0, -90.0):
        rows = [
            row
            if row.is_rehearsal
            else replace(row, advantage=[row.advantage if own else value for own in marks_of(row)])
            for row in with_tool(mixed_rows(policy, config), value)
        ]
        metrics, recorder = update(policy, [rows], settings(config))
        found.append((metrics, recorder.gradients[0]))
    for metrics, one in found[1:]:
        assert metrics == found[0][0] and torch.equal(one, found[0][1])
    assert found[0][1].any()


@pytest.mark.parametrize("case", CASES)
def test_masks_survive_any_cut_into_microbatches(case):
    config = CASES[case]
    policy, reference = tiny_policy(0), tiny_policy(1)
    rows = with_tool(mixed_rows(policy, config))
    rows += [replace(row, advantage=-0.5) for row in rows[1:4]]  # rows that share prompts, and are packed
    whole, reference_run = update(policy, [rows], settings(config), reference)
    for budget in (1, 30, 80):
        metrics, recorder = update(policy, [rows[::-1]], settings(config, budget), reference)
        assert relative_difference(recorder.gradients[0], reference_run.gradients[0]) <= ROUNDING
        assert metrics == {name: pytest.approx(value, rel=2e-5, abs=2e-6) for name, value in whole.items()}


def test_equal_tokens_of_which_a_tool_wrote_others_stay_apart():
    """Rows of one prompt with equal tokens are packed as one; each keeps its own mask."""
    policy, config = tiny_policy(0), settings(LossConfig(eta=0.0))
    row = mixed_rows(policy, config.loss)[0]
    row = replace(row, response_ids=[5, 6, 7, 8], old_logprobs=[-1.0] * 4, advantage=1.0)
    masks = [[True, False, False, True], [True, True, False, True], None]
    _, together = update(policy, [[replace(row, written=mask) for mask in masks]], config)
    alone = [update(policy, [[replace(row, written=mask)]], config)[1].gradients[0] for mask in masks]
    counts = [2, 3, 4]
    weighted = [count * one for count, one in zip(counts, alone, strict=True)]
    expected = torch.stack(weighted).sum(0) / sum(counts)
    assert relative_difference(together.gradients[0], expected) <= ROUNDING
