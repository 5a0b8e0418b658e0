"""The policy loss on rollouts, per token: PPO-clip (arXiv 2509.07430, eq. 5), and the registry for others.

A policy loss takes log-probabilities, advantages and the mask of a micro-batch, and returns one value per token. It
sees whole responses, so it may combine the tokens of one (a sequence-level ratio, say). Its keyword-only parameters
are its settings: `clip_low`, `clip_high` and `dual_clip` come from the fields of these names in `LossConfig`, others
from `loss.policy_options`. A dual clip that is on and that the loss does not take is refused:

    @register_policy_loss("reinforce")
    def reinforce(logprobs, old_logprobs, advantages, mask, *, scale: float = 1.0):
        return -scale * per_token(advantages) * logprobs * mask

A loss that treats some tokens of the mini-batch differently is registered with a function that selects them. It sees
all rollout tokens of the mini-batch, over micro-batches and processes, before the first micro-batch is computed:
`select(old_logprobs [K], advantages [K], uniform [K], **settings) → bool [K]`, with `uniform` a random number in [0, 1)
for each token. The loss takes what was selected as `selected`, bool [B, T]. A selection with a keyword-only parameter
`logprobs` is given log π_θ [K] as it is before the update, which costs a forward pass, or None if that is log π_old.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dph.errors import UserError
from dph.objective.token_losses import importance_ratio, per_token
from dph.registry import Added, Registry, settings_of

PolicyLoss = Callable[..., Tensor]
"""(logprobs [B, T], old_logprobs [B, T], advantages [B] or [B, T], mask [B, T], **settings) → [B, T], 0 outside the
mask."""

Selection = Callable[..., Tensor]
"""(old_logprobs [K], advantages [K], uniform [K], **settings) → bool [K]"""

ClipRatio = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(logprobs [B, T], old_logprobs [B, T], mask [B, T]) → [B, T], or [B, 1] for a ratio of whole responses."""

POLICY_LOSSES: Registry[PolicyLoss] = Registry("policy loss")


@dataclass(frozen=True, slots=True)
class Traits:
    """What training and its metrics have to know of a policy loss. The defaults hold for a loss that says nothing."""

    select: Selection | None = None
    needs_advantage: bool = False
    clip_ratio: ClipRatio | None = importance_ratio


_TRAITS: dict[str, Traits] = {}


def register_policy_loss(
    name: str,
    *,
    select: Selection | None = None,
    needs_advantage: bool = False,
    clip_ratio: ClipRatio | None = importance_ratio,
) -> Callable[[Added], Added]:
    """Decorator: make a policy loss available under a name.

    Args:
        select: chooses tokens of the whole mini-batch, which the loss takes as `selected`.
        needs_advantage: a response whose advantage is 0 has no gradient, so training leaves out its backward pass.
        clip_ratio: what the loss compares with its clips, for the metrics; None if its clips stop no gradient.
    """

    def add(function: Added) -> Added:
        added = POLICY_LOSSES.register(name)(function)
        _TRAITS[name] = Traits(select, needs_advantage, clip_ratio)
        return added

    return add


def selects_tokens(name: str) -> bool:
    """Whether a policy loss treats some tokens of the mini-batch differently."""
    return _TRAITS.get(name, Traits()).select is not None


@dataclass(frozen=True, slots=True)
class BoundPolicyLoss:
    """A policy loss with its settings filled in."""

    function: PolicyLoss
    clips: Mapping[str, float]
    """Those of `clip_low`, `clip_high` and `dual_clip` that it takes."""
    traits: Traits
    select: Selection | None
    """The selection with its settings, if it has one."""
    selects_by_policy: bool
    """Whether the selection takes `logprobs`."""


def bound_policy_loss(name: str, options: Mapping[str, str], **clips: float) -> BoundPolicyLoss:
    """A policy loss and its selection, if it has one, with their settings filled in.

    Raises UserError for a name that nobody registered, for options that neither takes, and for a dual clip that the
    loss does not take.
    """
    settings = settings_of(POLICY_LOSSES[name])
    if clips.get("dual_clip") and "dual_clip" not in settings:
        raise UserError(
            f"policy loss {name!r} has no dual clip, but loss.dual_clip is {clips['dual_clip']}; set it to 0, or use "
            "a policy loss that has one, such as ppo_clip"
        )
    taken = {key: value for key, value in clips.items() if key in settings}
    traits = _TRAITS.get(name, Traits())
    if traits.select is None:
        return BoundPolicyLoss(POLICY_LOSSES.bind(name, options, **taken), taken, traits, None, False)
    theirs = {key: text for key, text in options.items() if key in settings_of(traits.select)}
    rest = {key: text for key, text in options.items() if key not in theirs or key in settings}
    loss = POLICY_LOSSES.bind(name, rest, **taken, selected=None)
    select = POLICY_LOSSES.bind(name, theirs, traits.select, **clips, logprobs=None)
    return BoundPolicyLoss(loss, taken, traits, select, "logprobs" in settings_of(traits.select))


@register_policy_loss("ppo_clip", needs_advantage=True)
def ppo_clip(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float = 0.0,
) -> Tensor:
    """PPO-clip per token (eq. 5): −min(ρ·A, clip(ρ, 1 − clip_low, 1 + clip_high)·A), [B, T].

    advantages: [B], or [B, T] where they differ by token.
    dual_clip: c > 1 bounds the loss of negative advantages by −c·A (arXiv 1912.09729); 0 is off.
    GRPO has clip_low = clip_high = 0.2, DAPO ("clip-higher") 0.2 and 0.28.
    """
    ratio = importance_ratio(logprobs, old_logprobs, mask)
    advantages = per_token(advantages).to(ratio.dtype)
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    loss = torch.maximum(-ratio * advantages, -clipped * advantages)
    if dual_clip:
        loss = torch.where(advantages < 0, torch.minimum(loss, -dual_clip * advantages), loss)
    return loss * mask
