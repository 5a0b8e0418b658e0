"""Theorem 1's two sides against closed forms, rollouts and the bound that it extends."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from eq18 import DISCOUNTS, broken, example
from theory import (
    DIVERGENCES,
    MDP,
    alpha_constant,
    alpha_divergence,
    evaluate,
    improved_policy,
    js_floor,
    random_mdp,
    random_policy,
    reference_floor,
    rehearse,
    softmax,
    state_gap,
    success_floor,
    surrogate,
    theorem_1,
    total_variation,
)


def _setting(discount: float, seed: int = 0):
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, states=5, actions=3, discount=discount)
    return mdp, random_policy(rng, states=5, actions=3), random_policy(rng, states=5, actions=3)


def test_return_of_a_two_state_chain():
    # From state 0 to state 1 with reward 1, then state 1 for ever with reward 2:
    # J = 1 + γ·2/(1 − γ) = 1 + 0.5·2/0.5 = 3; d = (1 − γ)(1, γ/(1 − γ)) = (0.5, 0.5).
    transition = np.array([[[0.0, 1.0]], [[0.0, 1.0]]])
    mdp = MDP(transition, np.array([[1.0], [2.0]]), np.array([1.0, 0.0]), 0.5)
    got = evaluate(mdp, np.ones((2, 1)))
    assert got.expected_return == pytest.approx(3.0)
    assert got.occupancy == pytest.approx([0.5, 0.5])
    assert got.advantage == pytest.approx(np.zeros((2, 1)))


@pytest.mark.parametrize("discount", [0.0, 0.4, 0.9])
def test_performance_difference_lemma(discount: float):
    # Lemma 2: J(π) − J(π_old) = E_{s ~ d_π, a ~ π}[A_old] / (1 − γ).
    mdp, old_policy, policy = _setting(discount)
    old, new = evaluate(mdp, old_policy), evaluate(mdp, policy)
    gain = (new.occupancy[:, None] * policy * old.advantage).sum() / (1 - discount)
    assert new.expected_return - old.expected_return == pytest.approx(gain)


def test_the_surrogate_is_the_return_without_a_future():
    mdp, old_policy, policy = _setting(0.0)
    assert surrogate(mdp, policy, evaluate(mdp, old_policy)) == pytest.approx(evaluate(mdp, policy).expected_return)


@pytest.mark.parametrize("name", DIVERGENCES)
def test_constants_bound_total_variation_and_are_tight(name: str):
    rng = np.random.default_rng(1)
    p, q = random_policy(rng, states=4000, actions=2), random_policy(rng, states=4000, actions=2)
    near = softmax(np.log(q) + 0.01 * rng.normal(size=q.shape))
    measure = DIVERGENCES[name]
    for left in (p, near):
        ratio = 4 * (np.abs(left - q).sum(1) / 2) ** 2 / (measure.constant * measure.by_state(left, q))
        assert ratio.max() <= 1 + 1e-6
    assert ratio.max() > 0.99  # a smaller constant would be wrong: near q = ½ the inequality is met with equality


def _binary_pairs():
    grid = np.linspace(0.001, 0.999, 400)
    p, q = (axis.ravel() for axis in np.meshgrid(grid, grid))
    far = np.abs(p - q) > 4e-3
    return np.stack([p, 1 - p], -1)[far], np.stack([q, 1 - q], -1)[far]


@pytest.mark.parametrize("alpha", [-3.0, -1.5, -1.0, 0.2, 0.8, 1.5, 2.0, 2.5, 4.0])
def test_alpha_is_bounded_as_kl_is_from_minus_one_to_two_and_not_beyond(alpha: float):
    p, q = _binary_pairs()
    ratio = alpha_divergence(p, q, alpha) / total_variation(p, q) ** 2
    assert ratio.min() >= 4 / alpha_constant(alpha)
    assert (ratio.min() >= 2.0) == (-1 <= alpha <= 2)  # with KL's constant


def test_alpha_is_the_expectation_of_the_package_s_generator():
    import torch

    from dph.objective.divergences import get_divergence

    p, q = random_policy(np.random.default_rng(0), states=50, actions=4), np.full((50, 4), 0.25)
    for alpha in (0.2, 0.8):
        values = get_divergence("alpha", alpha=alpha).f(torch.from_numpy(np.log(p / q)))
        assert alpha_divergence(p, q, alpha) == pytest.approx((q * values.numpy()).sum(-1))


def test_the_floor_of_js_is_met_by_mirror_images_and_by_nothing_lower():
    p, q = _binary_pairs()
    js, variation = DIVERGENCES["js"].by_state(p, q), total_variation(p, q)
    assert (js >= js_floor(variation) * (1 - 1e-9)).all() and (js_floor(variation) >= variation**2).all()
    v = np.array([[0.3], [0.9]])
    mirrored = np.hstack([0.5 + v / 2, 0.5 - v / 2])
    assert DIVERGENCES["js"].by_state(mirrored, mirrored[:, ::-1]) == pytest.approx(js_floor(v[:, 0]))


def test_success_is_at_least_what_the_stored_correct_responses_say():
    rng = np.random.default_rng(2)
    reference, policy = random_policy(rng, states=3000, actions=12), random_policy(rng, states=3000, actions=12)
    correct = rng.random((3000, 12)) < 0.4
    correct[:, 0] = True
    success = (policy * correct).sum(1)
    assert (success >= success_floor(reference, policy, correct) - 1e-12).all()
    # With equality if the policy scales all correct responses alike: here by a half, and the others fill the rest.
    halved = np.where(correct, reference / 2, 0)
    halved[~correct] = 0
    some = ~correct.all(1)
    rest = np.where(correct, 0, reference)[some]
    halved[some] += rest / rest.sum(1, keepdims=True) * (1 - halved[some].sum(1, keepdims=True))
    floor = success_floor(reference[some], halved[some], correct[some])
    assert floor == pytest.approx((halved * correct).sum(1)[some])


@pytest.mark.parametrize("seed", range(20))
def test_the_bound_that_the_theorem_extends_always_holds(seed: int):
    mdp, old_policy, policy = _setting(0.1 + 0.04 * seed, seed)
    assert theorem_1(mdp, policy, old_policy, policy, "forward_kl").classic_slack >= 0


@pytest.mark.parametrize("name", DIVERGENCES)
def test_the_theorem_fails_by_delta_without_a_future(name: str):
    mdp, old_policy, _ = _setting(0.0)
    expert = improved_policy(mdp, old_policy, 0.1)
    bound = theorem_1(mdp, old_policy, old_policy, expert, name)
    assert bound.delta > 0
    assert bound.slack == pytest.approx(-bound.delta)


@pytest.mark.parametrize("discount", DISCOUNTS)
@pytest.mark.parametrize("name", DIVERGENCES)
def test_the_theorem_is_false_at_every_discount_below_one(name: str, discount: float):
    """π = π_old, so eq. 8 claims J(π) ≥ J(π) + ε_f; and by the form of ε_f no other constant in C_f's place helps."""
    shift, bound = broken(discount, name)
    assert bound.surrogate == pytest.approx(bound.expected_return, rel=1e-12)
    assert bound.old_penalty == pytest.approx(0, abs=1e-12)
    assert bound.delta == pytest.approx(shift, rel=1e-9)  # q·1 + (1 − q)·0 − 1/2 by hand, q = 1/2 + shift
    assert bound.bonus > 0 and bound.slack == pytest.approx(-bound.bonus, rel=1e-9)
    penalty = []
    for h in (1e-2, 1e-3):  # the penalty falls with the square of the shift, δ with the shift
        mdp, policy, pef = example(max(discount, 0.3), h)
        small = theorem_1(mdp, policy, policy, pef, name)
        penalty.append((small.delta / (1 - mdp.discount) - small.bonus) / small.delta)
    assert penalty[1] == pytest.approx(penalty[0] / 10, rel=0.1)


@pytest.mark.parametrize("discount", [0.0, 0.3, 0.9, 0.99])
@pytest.mark.parametrize("name", DIVERGENCES)
def test_the_return_is_at_least_what_closeness_to_the_reference_says(name: str, discount: float):
    for seed in range(40):
        mdp, policy, pef = _setting(discount, seed)
        if seed % 2:  # half of the states outside D_pef, where the reference is the policy
            pef[:2] = policy[:2]
        assert evaluate(mdp, policy).expected_return >= reference_floor(mdp, policy, pef, name) - 1e-9
    mdp, policy, _ = _setting(discount)
    assert reference_floor(mdp, policy, policy, name) == pytest.approx(evaluate(mdp, policy).expected_return)


def test_lemma_3_holds_and_is_met():
    """Over random processes; with equality if the one step on which the policies differ decides the state for good."""
    for seed in range(60):
        mdp, policy, other = _setting(0.5, seed)
        values = np.random.default_rng(seed).normal(size=5)
        alpha = total_variation(policy, other).max()
        for steps in (0, 1, 2, 5, 20):
            bound = 2 * (1 - (1 - alpha) ** steps) * np.abs(values).max()
            assert abs(state_gap(mdp, policy, other, values, steps)) <= bound + 1e-12
    # State 0: the first action stays, the second leads to state 1 for good. π always stays, the other leaves with
    # chance 0.1, so after three steps it is in state 1 with chance 1 − 0.9³ = 0.271; f = 1 in state 0 and −1 in 1.
    stay = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]])
    mdp = MDP(stay, np.zeros((2, 2)), np.array([1.0, 0.0]), 0.5)
    policy, other = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.9, 0.1], [1.0, 0.0]])
    assert state_gap(mdp, policy, other, np.array([1.0, -1.0]), 3) == pytest.approx(2 * 0.271)


def test_nothing_is_added_where_the_reference_is_the_policy():
    mdp, old_policy, policy = _setting(0.7)
    bound = theorem_1(mdp, policy, old_policy, policy, "js")
    assert bound.bonus == pytest.approx(0.0, abs=1e-9)


def test_rehearsal_moves_only_rehearsed_states_and_reaches_the_reference():
    _, policy, pef = _setting(0.5)
    rehearsed = np.array([True, False, True, False, False])
    got = rehearse(policy, pef, 1.0, rehearsed)
    assert got[rehearsed] == pytest.approx(pef[rehearsed])
    assert got[~rehearsed] == pytest.approx(policy[~rehearsed])


def test_the_example_prints_a_row_a_setting_and_draws(tmp_path, monkeypatch, capsys):
    script = Path(__file__).parents[2] / "examples" / "theorem1" / "run.py"
    figure = tmp_path / "theorem1.png"
    monkeypatch.setattr(sys, "argv", [str(script), "--trials", "3", "--out", str(figure)])
    runpy.run_path(str(script), run_name="__main__")
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 2 + 2 * 2 * 7  # a heading; coverages × pulls × discounts
    assert figure.stat().st_size > 10_000
