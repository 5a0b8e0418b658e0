"""The published alternatives to GRPO: golden values with their arithmetic, and enumeration."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from dph.errors import SettingsError
from dph.measure.passk import pass_at_k
from dph.objective import Advantage, GroupView
from dph.types import Outcome, Verdict

LOST = None  # a response whose judging failed


def group(
    outcomes: Sequence[int | None],
    *,
    logprobs: Sequence[Sequence[float]] | None = None,
    reference: Sequence[Sequence[float]] | None = None,
    styles: Sequence[str] = (),
) -> GroupView:
    """A group whose responses are correct (1), wrong (0) or not judged (None)."""
    kinds = {1: Outcome.CORRECT, 0: Outcome.WRONG, None: Outcome.INFRA_ERROR}
    names = list(styles) or ["direct"] * len(outcomes)
    return GroupView(
        rewards=torch.tensor([float(outcome or 0) for outcome in outcomes], dtype=torch.float64),
        verdicts=[Verdict(kinds[outcome], float(outcome or 0)) for outcome in outcomes],
        old_logprobs=[torch.tensor(values) for values in logprobs or [[-0.5]] * len(outcomes)],
        texts=[f"{index} {name}" for index, name in enumerate(names)],
        style_of=lambda text: text.split()[1],
        answer_of=lambda text: text.split()[1],
        ref_logprobs=None if reference is None else [torch.tensor(values) for values in reference],
    )


def advantages(name: str, view: GroupView, **options: str) -> list[float]:
    return Advantage(name, options)(view).tolist()


def test_maxrl_divides_by_the_mean():
    # m = 1/4: correct (1 − ¼)/¼ = 3, wrong (0 − ¼)/¼ = −1.
    assert advantages("maxrl", group([1, 0, 0, 0])) == pytest.approx([3, -1, -1, -1])
    assert advantages("maxrl", group([0, 0])) == [0, 0]
    assert advantages("maxrl", group([1, 0, LOST]))[:2] == pytest.approx([1, -1])


def graded(*rewards: float) -> GroupView:
    """Wrong responses with these rewards, in fp32 as training has them."""
    view = group([0] * len(rewards))
    return replace(view, rewards=torch.tensor(rewards, dtype=torch.float32))


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([0.5, 0.25, 0.0, 0.25], [1, 0, -1, 0]),  # not negative: (r − m)/m with m = ¼
        ([1, -1, 1.001, -1], [0.9995, -1, 1.0005, -1]),  # m = 0.00025, m̄ = 1.00025; divided by m: ±4000
        ([1, -0.3, -0.3, -0.3], [0.975 / 0.475, *[-0.325 / 0.475] * 3]),  # m = 0.025, m̄ = 0.475
        ([1, -1, -1, -1], [1.5, -0.5, -0.5, -0.5]),  # m = −½, m̄ = 1: a success teaches, whatever m
        ([0, -1, 0, -0.5], [0, 0, 0, 0]),  # no success
        ([1e30, -1e30, 0, 0], [2, -2, 0, 0]),
    ],
)
def test_maxrl_is_bounded_for_rewards_below_zero(rewards, expected):
    assert advantages("maxrl", graded(*rewards)) == pytest.approx(expected, rel=1e-6)


def test_maxrl_estimates_the_gradient_of_the_expansion_of_log_p():
    """A policy of one parameter: correct with probability p = σ(θ). The mean over all 2^G groups of
    (1/G)·Σ A·∂log π equals the derivative of Σ_{k=1}^{G−1} −(1 − p)^k/k, which is Σ (1 − p)^{k−1}·p(1 − p)."""
    size, p = 4, 0.3
    total = 0.0
    for outcomes in itertools.product([0, 1], repeat=size):
        weight = math.prod(p if outcome else 1 - p for outcome in outcomes)
        values = advantages("maxrl", group(outcomes))
        slopes = [1 - p if outcome else -p for outcome in outcomes]  # ∂ log σ(θ), ∂ log(1 − σ(θ))
        total += weight * sum(a * s for a, s in zip(values, slopes, strict=True)) / size
    expected = sum((1 - p) ** (k - 1) * p * (1 - p) for k in range(1, size))
    assert total == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("outcomes", [(1, 0, 0, 0), (1, 1, 0, 0, 0), (0, 1, 1, 1), (1, 0, LOST, 0, 0)])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_passk_is_the_mean_over_all_subsets_that_contain_the_response(outcomes, k):
    judged = [index for index, outcome in enumerate(outcomes) if outcome is not None]
    subsets = list(itertools.combinations(judged, k))
    success = {subset: float(any(outcomes[i] for i in subset)) for subset in subsets}
    mean = sum(success.values()) / len(subsets)
    spread = math.sqrt(sum((value - mean) ** 2 for value in success.values()) / len(subsets))
    found = advantages("passk", group(outcomes), k=str(k))
    for index in judged:
        own = [value for subset, value in success.items() if index in subset]
        expected = (sum(own) / len(own) - mean) / spread if spread else 0.0
        assert found[index] == pytest.approx(expected, abs=1e-12)
    assert mean == pytest.approx(pass_at_k(len(judged), sum(outcomes[i] for i in judged), k))


def test_passk_of_groups_that_every_subset_solves_or_none_is_zero():
    assert advantages("passk", group([1, 1, 1])) == [0, 0, 0]
    assert advantages("passk", group([0, 0])) == [0, 0]
    assert advantages("passk", group([1, 1, 1, 0]), k="2") == [0, 0, 0, 0]
    with pytest.raises(SettingsError, match="k must be at least 1, but is 0"):
        advantages("passk", group([1, 0]), k="0")


def test_w_reinforce_has_no_baseline():
    assert advantages("w_reinforce", group([1, 0])) == pytest.approx([0.1, -1])
    assert advantages("w_reinforce", group([0, 0]), positive="0") == [-1, -1]


def test_f_grpo_weighs_by_the_share_of_failures():
    view = group([1, 1, 1, 0])
    plain = advantages("group", view)
    assert advantages("f_grpo", view, gamma="2") == pytest.approx([value / 16 for value in plain])  # (1 − ¾)² = 1/16
    assert advantages("f_grpo", view, gamma="0") == plain


def test_gated_leaves_solved_groups_alone():
    assert advantages("gated", group([1, 1, 1, 0])) == advantages("group", group([1, 1, 1, 0]))  # ¾ is not above ¾
    assert advantages("gated", group([1, 1, 1, 1, 0])) == [0] * 5
    assert advantages("gated", group([1, 1, 1, 0, LOST]), above="0.7")[:4] == [0] * 4  # judged ones count
    assert advantages("gated", group([1, 0]), above="0.4") == [0, 0]
    assert any(advantages("gated", group([1, 1, 1, 1, 0]), above="1"))


def test_rs_grpo_has_zero_mean_weight_and_the_published_form():
    # β = 2, r = (1, 0): V = ½·log((e² + 1)/2); A = (e^{2r}·2/(e² + 1) − 1)/2, that is ±½·(e² − 1)/(e² + 1) = ±½·tanh 1.
    assert advantages("rs_grpo", group([1, 0])) == pytest.approx([math.tanh(1) / 2, -math.tanh(1) / 2])
    assert advantages("rs_grpo", group([1, 0, LOST]))[:2] == pytest.approx([math.tanh(1) / 2, -math.tanh(1) / 2])
    small = advantages("rs_grpo", group([1, 0, 0, 0]), beta="1e-6")
    assert small == pytest.approx([0.75, -0.25, -0.25, -0.25], abs=1e-5)  # r − mean
    with pytest.raises(SettingsError, match="beta must be above 0"):
        advantages("rs_grpo", group([1, 0]), beta="0")


def test_diff_smoothing_adds_and_subtracts_the_log_probability():
    view = group([1, 0], logprobs=[[-1.0, -2.0], [-4.0]])
    plain = advantages("group", view)
    # correct: Â + 0.1·3; wrong: Â − 0.2·4
    expected = [plain[0] + 0.3, plain[1] - 0.8]
    assert advantages("diff_smoothing", view, correct="0.1", wrong="0.2") == pytest.approx(expected)


def test_unlikeliness_ranks_by_mean_log_probability():
    view = group([1, 1, 0, LOST], logprobs=[[-1.0, -1.0], [-3.0], [-2.0], [-9.0]])
    # means −1, −3, −2 of the three judged: ranks 2, 0, 1; rewards 1 − ½·⅔ = ⅔, 1, 0; mean 5/9, std (n − 1) of these.
    rewards = torch.tensor([2 / 3, 1.0, 0.0], dtype=torch.float64)
    expected = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
    assert advantages("unlikeliness", view, beta="0.5")[:3] == pytest.approx(expected.tolist())
    alike = group([1, 1, 0], logprobs=[[-1.0]] * 3)
    assert advantages("unlikeliness", alike)[0] == advantages("unlikeliness", alike)[1]


def test_mara_makes_every_good_response_equally_good_at_the_optimum():
    """π* ∝ π_ref·exp(r̃/β) gives all good responses the probability that the anchor gets."""
    reference, beta = [[-1.0], [-3.0], [-2.0], [-0.5]], 0.4
    view = group([1, 1, 0, 0], reference=reference)
    # The anchor is response 0; response 1 gets 1 + 0.4·(−1 + 3) = 1.8; the mean of (1, 1.8, 0, 0) is 0.7.
    found = torch.tensor(advantages("mara", view, beta=str(beta)), dtype=torch.float64)
    assert found.tolist() == pytest.approx([0.3, 1.1, -0.7, -0.7])
    optimum = (torch.tensor(reference, dtype=torch.float64)[:, 0] + found / beta).softmax(0)
    assert float(optimum[0]) == pytest.approx(float(optimum[1]), rel=1e-9)
    assert advantages("mara", group([0, 0], reference=[[-1.0], [-2.0]]), beta="0.4") == [0, 0]
    with pytest.raises(SettingsError, match="needs the option 'beta'"):
        Advantage("mara")
    assert Advantage("mara", {"beta": "1"}).needs_reference


def test_uniqueness_weighs_every_response_by_the_size_of_its_kind():
    view = group([1, 1, 1, 1, 0, LOST], styles=["plan", "plan", "plan", "cte", "cte", "cte"])
    plain = advantages("group", view)
    # f = 3 (plan), 2 (cte, one of them wrong; the one that was not judged is not counted); alpha 1
    expected = [plain[0] / 3] * 3 + [plain[3] / 2, plain[4] / 2]
    for by in ("style", "answer"):
        assert advantages("uniqueness", view, alpha="1", by=by)[:5] == pytest.approx(expected)
    assert advantages("uniqueness", view, alpha="0") == plain
    assert advantages("uniqueness", view, by="text") == plain  # every text is another one
    # Â = ½, ½, ½, −3/2 and f = 3, 3, 1, 3: by √3 less for all but the third
    view = group([1, 1, 1, 0], styles=["a", "a", "b", "a"])
    expected = [0.5 / math.sqrt(3), 0.5 / math.sqrt(3), 0.5, -1.5 / math.sqrt(3)]
    assert advantages("uniqueness", view) == pytest.approx(expected, rel=3e-6)  # eps over the std of ½
    with pytest.raises(SettingsError, match="must be style, answer or text"):
        advantages("uniqueness", view, by="mood")
    with pytest.raises(SettingsError, match="alpha must not be negative"):
        advantages("uniqueness", view, alpha="-1")
