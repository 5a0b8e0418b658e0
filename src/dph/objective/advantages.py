"""Group-relative advantages (GRPO; arXiv 2509.07430, eq. 9), and the registry for others.

An advantage sees one group of rollouts and returns one value for each, or one for each of its tokens. Its keyword-only
parameters are its settings (`advantage.options`):

    @register_advantage("centred")
    def centred(group: GroupView, *, scale: float = 1.0) -> Tensor:
        return scale * group.centred
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dph.registry import Added, Registry
from dph.types import Verdict


@dataclass(frozen=True, slots=True)
class GroupView:
    """One prompt's G rollouts, as an advantage sees them."""

    rewards: Tensor
    """float [G], the length penalty included."""
    verdicts: Sequence[Verdict]
    """How each response was judged."""
    old_logprobs: Sequence[Tensor]
    """For each response [T_i], log-probabilities in nats of its tokens under the policy that generated it."""
    texts: Sequence[str]
    style_of: Callable[[str], str | None]
    """Solution style of a response's text, "other" for none of the known ones; None where the task has no styles."""
    answer_of: Callable[[str], str | None] = lambda _: None
    """What a response's text answers (its query, its number), in one way of writing; None for a text without answer,
    and where the problem's verifier reads no answer."""
    ref_logprobs: Sequence[Tensor] | None = None
    """For each response [T_i] under the reference policy, where the advantage asked for it."""

    @property
    def valid(self) -> Tensor:
        """bool [G]: False where the judging itself failed; such a rollout is left out of the loss."""
        return torch.tensor([verdict.scored for verdict in self.verdicts])

    @property
    def correct(self) -> Tensor:
        """bool [G]"""
        return torch.tensor([verdict.correct for verdict in self.verdicts])

    @property
    def centred(self) -> Tensor:
        """[G] Rewards minus their mean over the judged responses: exactly 0 if these are equal, 0 for the others."""
        return group_advantages(self.rewards[None], self.valid[None], normalize_std=False)[0]

    @property
    def styles(self) -> list[str | None]:
        """Solution style of each response."""
        return [self.style_of(text) for text in self.texts]


AdvantageFunction = Callable[..., Tensor]
"""(GroupView, **settings) → [G], or [G, T] with T at least the tokens of the longest response."""

ADVANTAGES: Registry[AdvantageFunction] = Registry("advantage")


def register_advantage(name: str, *, reference: bool = False, logprobs: bool = False) -> Callable[[Added], Added]:
    """Decorator: make an advantage available under a name.

    Args:
        reference: it reads `GroupView.ref_logprobs`, so that training holds a reference model.
        logprobs: it reads `GroupView.old_logprobs`, which not every engine has when it computes advantages.
    """

    def add(function: Added) -> Added:
        if reference:
            _NEED_REFERENCE.add(name)
        if logprobs:
            _NEED_LOGPROBS.add(name)
        return ADVANTAGES.register(name)(function)

    return add


_NEED_REFERENCE: set[str] = set()
_NEED_LOGPROBS: set[str] = set()


class Advantage:
    """An advantage with its settings, built once for a training run."""

    def __init__(self, name: str = "group", options: Mapping[str, str] | None = None) -> None:
        """Raises UserError for a name that nobody registered, and for options that it does not take."""
        self._name = name
        self._function = ADVANTAGES.bind(name, options or {})
        self.needs_reference, self.needs_logprobs = name in _NEED_REFERENCE, name in _NEED_LOGPROBS

    def __call__(self, group: GroupView) -> Tensor:
        """Advantages of a group, [G] or [G, T]. Raises ValueError where they have another shape or are not finite."""
        values = self._function(group)
        if values.ndim not in (1, 2) or values.shape[0] != len(group.verdicts):
            raise ValueError(f"advantage {self._name!r} returned the shape {list(values.shape)}, not [G] or [G, T]")
        longest = max(map(len, group.old_logprobs), default=0)
        if values.ndim == 2 and values.shape[1] < longest:
            raise ValueError(f"advantage {self._name!r} returned {values.shape[1]} tokens of {longest}")
        if not bool(values[group.valid].isfinite().all()):
            raise ValueError(f"advantage {self._name!r} returned a value that is not finite")
        return values


def group_advantages(
    rewards: Tensor, valid: Tensor | None = None, *, normalize_std: bool = True, eps: float = 1e-6
) -> Tensor:
    """A = (r − mean) / (std + eps) over the rollouts of each prompt; std is the unbiased one (n − 1).

    Args:
        rewards: float [P, G], P prompts with G rollouts each.
        valid: bool [P, G]; False where judging failed. Such a rollout leaves its group: mean and std ignore it, its
            reward may be anything, NaN included, and its advantage is 0. The trainer also masks it out of the loss.
        normalize_std: False leaves the division out (Dr. GRPO).
    Returns:
        [P, G] in the dtype of `rewards`, computed in fp64; between −(n − 1)/√n and (n − 1)/√n for n valid rollouts if
        divided by the std. A group with fewer than two valid rollouts, or with equal rewards, gets 0.
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
def group(view: GroupView, *, normalize_std: bool = True, eps: float = 1e-6) -> Tensor:
    """GRPO's advantage of one group; see `group_advantages`."""
    return group_advantages(view.rewards[None], view.valid[None], normalize_std=normalize_std, eps=eps)[0]
