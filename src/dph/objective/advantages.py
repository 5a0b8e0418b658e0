"""Advantages: GRPO's, relative to the group (arXiv 2509.07430, eq. 9), and published alternatives, by name.

An advantage is a function of one group of rollouts. The function returns one value for each rollout, or one value for
each token of each rollout. The keyword-only parameters of the function are the settings of the advantage
(`advantage.options`).

In the formulas, r is the reward of a response, p the share of correct responses in the group, G the number of judged
responses, and Â GRPO's advantage (r − mean)/std. Responses that could not be judged are left out of all of these
numbers, and their advantage is 0.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb, sqrt
from typing import Any

import torch
from torch import Tensor

from dph.errors import SettingsError
from dph.process.user_code import ask
from dph.registry import Registry
from dph.types import Verdict


@dataclass(frozen=True, slots=True)
class GroupView:
    """The G rollouts of one prompt, as an advantage sees them.

    >>> from dph.types import Outcome, Verdict
    >>> group = GroupView(
    ...     rewards=torch.tensor([1.0, 0.0]),
    ...     verdicts=[Verdict(Outcome.CORRECT, 1.0), Verdict(Outcome.WRONG, 0.0)],
    ...     old_logprobs=[torch.tensor([-0.1, -0.2]), torch.tensor([-0.3])],
    ...     texts=["6 × 7 = 42", "41"],
    ... )
    >>> group.correct
    tensor([ True, False])
    >>> group.centred  # the mean reward is 0.5
    tensor([ 0.5000, -0.5000])
    """

    rewards: Tensor
    """float [G], the length penalty included."""
    verdicts: Sequence[Verdict]
    """How each response was judged."""
    old_logprobs: Sequence[Tensor]
    """For each response [T_i], log-probabilities in nats of its tokens under the policy that generated it."""
    texts: Sequence[str]
    style_of: Callable[[str], str | None] = lambda _: None
    """Solution style of a response's text, "other" for none of the known ones; None if the task has no styles."""
    answer_of: Callable[[str], str | None] = lambda _: None
    """The answer in a response's text (its query, its number), in one way of writing; None for a text without answer,
    and if the problem's verifier reads no answer."""
    ref_logprobs: Sequence[Tensor] | None = None
    """For each response [T_i] under the reference policy; None unless the advantage asked for it."""

    @property
    def valid(self) -> Tensor:
        """bool [G]: False if the judging itself failed; such a rollout is left out of the loss."""
        return torch.tensor([verdict.scored for verdict in self.verdicts])

    @property
    def correct(self) -> Tensor:
        """bool [G]: True for the responses that were judged correct."""
        return torch.tensor([verdict.correct for verdict in self.verdicts])

    @property
    def centred(self) -> Tensor:
        """[G] Rewards minus their mean over the judged responses: exactly 0 if these are equal, 0 for the others."""
        return group_advantages(self.rewards, self.valid, normalize_std=False)


@dataclass(frozen=True, slots=True)
class Reads:
    """The parts of a `GroupView` that an advantage reads and that not every engine has."""

    reference: bool = False
    """Whether the advantage reads `ref_logprobs`. Training then holds a reference model."""
    logprobs: bool = False
    """Whether the advantage reads `old_logprobs`. Some engines compute advantages before they have them."""
    problems: Callable[[Mapping[str, str]], bool] = lambda _options: False
    """Whether the advantage, with these options, reads styles or answers. Both need the problem, which the trainers of
    other libraries do not hand on."""


ADVANTAGES: Registry[Callable[..., Tensor]] = Registry("advantage", Reads)
register_advantage = ADVANTAGES.register
"""Decorator that makes an advantage available under a name.

The function takes a `GroupView` and, by keyword, the advantage's settings. It returns a tensor [G], or [G, T] with T at
least the number of tokens of the longest response. The keyword arguments of the decorator are the fields of `Reads`.
"""


class Advantage:
    """An advantage with its settings, built once for a training run and called for every group.

    >>> from dph.types import Outcome, Verdict
    >>> group = GroupView(
    ...     rewards=torch.tensor([1.0, 0.0, 0.0, 0.0]),
    ...     verdicts=[Verdict(Outcome.CORRECT, 1.0)] + 3 * [Verdict(Outcome.WRONG, 0.0)],
    ...     old_logprobs=4 * [torch.tensor([-0.5])],
    ...     texts=["42", "41", "40", "39"],
    ... )
    >>> Advantage("group")(group)  # GRPO: (r − 1/4)/std, with std 1/2
    tensor([ 1.5000, -0.5000, -0.5000, -0.5000])
    >>> Advantage("w_reinforce", {"positive": "0.5"})(group)
    tensor([ 0.5000, -1.0000, -1.0000, -1.0000])
    """

    def __init__(self, name: str = "group", options: Mapping[str, str] | None = None) -> None:
        """
        Args:
            name: the name under which the advantage was registered.
            options: the settings of the advantage, as text; settings that are left out have their defaults.

        Raises:
            UserError: nobody registered the name, or the advantage does not take an option.
        """
        self._name = name
        self._function = ADVANTAGES.bind(name, options or {})
        reads: Reads = ADVANTAGES.traits(name)
        self.needs_reference, self.needs_logprobs = reads.reference, reads.logprobs
        self.needs_problems = reads.problems(options or {})

    def __call__(self, group: GroupView) -> Tensor:
        """The advantages of a group, [G] or [G, T]. All are finite; those of responses that could not be judged are 0.

        Raises SettingsError if the registered function raises an error, returns a tensor of another shape, or returns a
        value that is not finite for a judged response.
        """
        what, count = f"advantage {self._name!r}", len(group.verdicts)
        longest = max(map(len, group.old_logprobs), default=0)

        def fits(values: Any) -> bool:
            if not isinstance(values, Tensor) or values.ndim not in (1, 2) or values.shape[0] != count:
                return False
            return values.ndim == 1 or values.shape[1] >= longest

        wanted = f"a tensor [{count}] or [{count}, {longest}]"
        values = ask(what, ADVANTAGES[self._name], lambda: self._function(group), fits, wanted)
        valid = group.valid if values.ndim == 1 else group.valid[:, None]
        if not bool((values.isfinite() | ~valid).all()):
            raise SettingsError(f"{what} returned a value that is not finite for a response that was judged")
        return torch.where(valid, values, 0.0)


def group_advantages(
    rewards: Tensor, valid: Tensor | None = None, *, normalize_std: bool = True, eps: float = 1e-6
) -> Tensor:
    """A = (r − mean)/(std + eps) over the rollouts of each prompt, where std is the unbiased one (n − 1).

    Args:
        rewards: float [P, G] for P prompts with G rollouts each, or [G] for one prompt.
        valid: bool, of the same shape; False if the judging failed. Such a rollout leaves its group: mean and std
            ignore it, its reward may be anything, NaN included, and its advantage is 0. None: all rollouts are valid.
        normalize_std: whether to divide by the standard deviation; Dr. GRPO does not.
        eps: is added to the standard deviation.
    Returns:
        A tensor with the shape and dtype of `rewards`, computed in fp64. With the division, n valid rollouts have
        advantages of at most (n − 1)/√n in size. A group with fewer than two valid rollouts, or with equal rewards,
        gets 0.

    >>> rewards = torch.tensor([1.0, 0.0, 0.0, 0.0])
    >>> group_advantages(rewards, normalize_std=False)  # the mean is 1/4
    tensor([ 0.7500, -0.2500, -0.2500, -0.2500])
    >>> group_advantages(rewards)  # std = √((0.75² + 3·0.25²)/3) = 1/2
    tensor([ 1.5000, -0.5000, -0.5000, -0.5000])
    >>> group_advantages(rewards, torch.tensor([True, True, False, False]), normalize_std=False)
    tensor([ 0.5000, -0.5000,  0.0000,  0.0000])
    """
    if valid is None:
        valid = torch.ones_like(rewards, dtype=torch.bool)
    count, dtype = valid.sum(-1, keepdim=True), rewards.dtype
    rewards = rewards.double()  # the square of a reward of 1e20 is not a number of fp32
    # Relative to the group's smallest reward, so that equal rewards give exactly 0: the rounding error of a mean
    # (6e-8 in fp32) divided by eps would otherwise be an advantage of a few hundredths.
    lowest = rewards.masked_fill(~valid, torch.inf).amin(-1, keepdim=True)
    shifted = (rewards - lowest).masked_fill(~valid, 0.0)
    mean = shifted.sum(-1, keepdim=True) / count.clamp(min=1)
    centred = (shifted - mean).masked_fill(~valid, 0.0)
    if not normalize_std:
        return centred.to(dtype)
    variance = centred.square().sum(-1, keepdim=True) / (count - 1).clamp(min=1)
    return torch.where(variance > 0, centred / (variance.sqrt() + eps), 0.0).to(dtype)


@register_advantage("group")
def grpo(group: GroupView, *, normalize_std: bool = True, eps: float = 1e-6) -> Tensor:
    """Â, the advantage of GRPO (arXiv 2402.03300), [G]: `group_advantages` of one group."""
    return group_advantages(group.rewards, group.valid, normalize_std=normalize_std, eps=eps)


@register_advantage("maxrl")
def maxrl(group: GroupView) -> Tensor:
    """MaxRL (arXiv 2602.02710): the gradient of log p instead of p, up to the order that a group can estimate.

    A = (r − m)/m̄, [G], where m is the mean reward of the group and m̄ the mean of |r|. All advantages are 0 if no reward
    is above 0. With binary rewards, (1/G)·Σ A·∇log π is an unbiased estimate of ∇E[Σ_{k<G} −(1 − p)^k/k], which is the
    expansion of log p up to the order that G samples reach. The rarer a success is, the more it weighs: as 1/p, where
    it weighs as 1/√p in GRPO.

    The paper divides by m, which is the same if no reward is negative. If some are negative, because of a length
    penalty for example, m may be as good as 0. Divided by m̄, advantages lie between −(G − 1) and G − 1 for any rewards.
    """
    judged = group.rewards[group.valid].double()
    if not bool((judged > 0).any()):
        return torch.zeros_like(group.rewards)
    return (group.centred / judged.abs().mean()).to(group.rewards.dtype)


@register_advantage("passk")
def passk(group: GroupView, *, k: int = 4) -> Tensor:
    """Pass@k training (arXiv 2508.10751, analytical form): a response earns the rewards of the k-subsets that hold it.

    A subset of k responses has the reward R = 1 if any of them is correct, and else 0. The advantage of a response is
    the mean of (R − R̄)/σ over the subsets that contain the response. With w wrong responses of G, the advantages [G]
    are, all 0 if σ = 0:

        R̄ = 1 − C(w, k)/C(G, k),  σ = √(R̄·(1 − R̄)),
        correct: (1 − R̄)/σ,       wrong: (1 − C(w − 1, k − 1)/C(G − 1, k − 1) − R̄)/σ.

    In a group of fewer than k judged responses, k is the number of judged responses. Raises UserError for k < 1.
    """
    if k < 1:
        raise SettingsError(f"advantage.options k must be at least 1, but is {k}")
    correct = group.correct
    count = int(group.valid.sum())
    k, wrong = min(k, count), count - int(correct.sum())
    mean = 1 - comb(wrong, k) / comb(count, k)
    spread = sqrt(mean * (1 - mean))
    if spread == 0:
        return torch.zeros_like(group.rewards)
    with_wrong = 1 - comb(wrong - 1, k - 1) / comb(count - 1, k - 1)
    values = group.rewards.new_tensor([(with_wrong - mean) / spread, (1 - mean) / spread])
    return values[correct.long()]


@register_advantage("rs_grpo")
def rs_grpo(group: GroupView, *, beta: float = 2.0) -> Tensor:
    """RS-GRPO (arXiv 2509.24261): the risk-seeking objective (1/β)·log E[exp(β·r)] instead of the mean reward.

    A = (exp(β(r − V)) − 1)/β, [G], with V = (1/β)·log mean exp(β·r) over the group. The advantages lie between −1/β
    and (G − 1)/β. In the limit β → 0 they are r − mean; a large β looks at the best response alone. Raises UserError
    for β ≤ 0 and for an infinite β.
    """
    if not 0 < beta < torch.inf:
        raise SettingsError(f"advantage.options beta must be above 0, and finite, but is {beta}")
    valid, rewards = group.valid, group.rewards.double()
    if not bool(valid.any()):
        return torch.zeros_like(group.rewards)
    # With x = exp(β(r − max r)) − 1 it is (x − mean x)/(1 + mean x)/β: nothing overflows, and equal rewards give 0.
    x = (beta * (rewards - rewards[valid].max())).expm1()
    mean = x[valid].mean()
    return ((x - mean) / (1 + mean) / beta).to(group.rewards.dtype)


@register_advantage("f_grpo")
def f_grpo(group: GroupView, *, gamma: float = 1.0) -> Tensor:
    """F-GRPO (arXiv 2602.06717): groups that mostly succeed move the policy less.

    A = (1 − p)^gamma · Â, [G]. gamma = 0 is GRPO. Raises UserError for a negative gamma.
    """
    if not gamma >= 0:
        raise SettingsError(f"advantage.options gamma must not be negative, but is {gamma}")
    p = group.correct[group.valid].to(group.rewards.dtype).mean()
    return (1 - p) ** gamma * grpo(group)


@register_advantage("gated")
def gated(group: GroupView, *, above: float = 0.75) -> Tensor:
    """GRPO that leaves solved prompts alone, after the view of collapse as overtraining of arXiv 2606.15455.

    A = Â if p ≤ `above`, and else 0, [G]. above = 1 is GRPO. The gate of the paper weighs a prompt by a posterior of
    the prompt's pass rate over many steps; this gate sees the present group alone.
    """
    solved = group.correct[group.valid].to(group.rewards.dtype).mean() > above
    return torch.where(solved, 0.0, grpo(group))


@register_advantage("w_reinforce")
def w_reinforce(group: GroupView, *, positive: float = 0.1) -> Tensor:
    """W-REINFORCE (arXiv 2506.01347): REINFORCE on rewards of ±1 in which correct responses weigh little.

    A = `positive` for correct responses and −1 for wrong ones, [G]. There is neither a baseline nor a standard
    deviation, so that groups of equal rewards train too. positive = 0 is the paper's negative sample reinforcement,
    positive = 1 is plain REINFORCE.
    """
    return group.rewards.new_tensor([-1.0, positive])[group.correct.long()]


@register_advantage("diff_smoothing", logprobs=True)
def diff_smoothing(group: GroupView, *, correct: float = 0.01, wrong: float = 0.01) -> Tensor:
    """Differential smoothing (arXiv 2511.19942): likely correct responses gain less, likely wrong ones lose less.

    A = Â − `correct`·log π_old(y) for a correct response y, and Â + `wrong`·log π_old(y) for a wrong one, [G]. log
    π_old(y) is the sum over the tokens of the response, in nats. The paper's analysis takes the probability of the base
    model, and the paper's algorithm that of the old policy; this is the algorithm. Groups of equal rewards train too.
    """
    logprobs = torch.stack([values.sum() for values in group.old_logprobs]).to(group.rewards.dtype)
    return grpo(group) + group.rewards.new_tensor([wrong, -correct])[group.correct.long()] * logprobs


@register_advantage("unlikeliness", logprobs=True)
def unlikeliness(group: GroupView, *, beta: float = 0.25) -> Tensor:
    """Unlikeliness reward (arXiv 2506.02355): correct responses that the policy finds likely are rewarded less.

    A is Â of the rewards r·(1 − β·rank/G), [G]. The rank orders the G responses of the group by their mean log π_old
    per token: 0 is the least likely response, G − 1 the most likely. Equally likely responses have the mean of their
    ranks. The authors train with a KL penalty of 0.1 and two epochs per batch.
    """
    means = torch.stack([values.mean() if len(values) else torch.tensor(0.0) for values in group.old_logprobs])
    valid = group.valid
    below = ((means[None] < means[:, None]) & valid[None]).sum(-1)
    equal = ((means[None] == means[:, None]) & valid[None]).sum(-1)
    rank = below + (equal - 1) / 2
    rewards = group.rewards * (1 - beta * rank / valid.sum().clamp(min=1))
    return group_advantages(rewards, valid)


@register_advantage("uniqueness", problems=lambda options: options.get("by", "style") != "text")
def uniqueness(group: GroupView, *, alpha: float = 0.5, by: str = "style") -> Tensor:
    """Uniqueness-aware advantages (arXiv 2601.08763): the more common a response's kind, the less it moves the policy.

    A = Â·f^(−alpha), [G], where f is the number of responses of the same kind in the group, correct or not. alpha = 0
    is GRPO.

    by: what makes two responses of one kind: the solution style ("style"), the answer in one way of writing ("answer",
    for SQL the normalised query), or the text ("text"). In the paper a language model decides.

    Raises UserError for another `by`, for a negative alpha, and if the task has no styles but `by` asks for them.
    """
    if not alpha >= 0:
        raise SettingsError(f"advantage.options alpha must not be negative, but is {alpha}")
    if by == "style":
        kinds = [style for text in group.texts if (style := group.style_of(text)) is not None]
        if len(kinds) < len(group.texts):
            raise SettingsError("this task has no solution styles; set advantage.options by to answer or text")
    elif by in ("answer", "text"):
        kinds = [(group.answer_of(text) if by == "answer" else None) or text for text in group.texts]
    else:
        raise SettingsError(f"advantage.options by must be style, answer or text, not {by!r}")
    counts = Counter(kind for kind, judged in zip(kinds, group.valid.tolist(), strict=True) if judged)
    weight = torch.tensor([max(1, counts[kind]) ** -alpha for kind in kinds])
    return grpo(group) * weight.to(group.rewards.dtype)


@register_advantage("mara", reference=True)
def mara(group: GroupView, *, beta: float, threshold: float = 1.0) -> Tensor:
    """MARA, mode-anchored reward augmentation (arXiv 2510.20817): all good responses become equally good under KL.

    Centred advantages of augmented rewards, [G]. For a good response y (r ≥ threshold) the reward becomes

        r(z) + β·(log π_ref(z) − log π_ref(y)),

    z the group's good response of highest log π_ref; others keep theirs. The optimum under KL(π‖π_ref) at the same β
    (`loss.kl_coef`) then gives all good responses the same probability. The rewards are centred and not divided by
    their standard deviation, which would change their weight against the KL term.
    """
    assert group.ref_logprobs is not None, "registered with reference=True"
    good = (group.rewards >= threshold) & group.valid
    rewards = group.rewards
    if good.any():
        reference = torch.stack([values.sum() for values in group.ref_logprobs]).to(rewards.dtype)
        anchor = int(torch.where(good, reference, -torch.inf).argmax())
        rewards = torch.where(good, rewards[anchor] + beta * (reference[anchor] - reference), rewards)
    return group_advantages(rewards, group.valid, normalize_std=False)
