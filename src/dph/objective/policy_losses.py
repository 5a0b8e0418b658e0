"""The policy loss on rollouts, per token: PPO-clip (arXiv 2509.07430, eq. 5), and the registry for others.

A policy loss takes log-probabilities, advantages and the mask of a micro-batch, and returns one value per token. It
sees whole responses, so it may combine the tokens of one (a sequence-level ratio, say). Its keyword-only parameters
are its settings: `clip_low`, `clip_high` and `dual_clip` come from the fields of these names in `LossConfig`, others
from `loss.policy_options`:

    @register_policy_loss("reinforce")
    def reinforce(logprobs, old_logprobs, advantages, mask, *, scale: float = 1.0):
        return -scale * per_token(advantages) * logprobs * mask

A loss that treats some tokens of the mini-batch differently is registered with a function that selects them. It sees
all rollout tokens of the mini-batch, over micro-batches and processes, before the first micro-batch is computed:
`select(old_logprobs [K], advantages [K], uniform [K], **settings) → bool [K]`, with `uniform` a random number in [0, 1)
for each token. The loss takes what was selected as `selected`, bool [B, T].
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from dph.objective.token_losses import importance_ratio, per_token
from dph.registry import Added, Registry, bind, settings_of

PolicyLoss = Callable[..., Tensor]
"""(logprobs [B, T], old_logprobs [B, T], advantages [B] or [B, T], mask [B, T], **settings) → [B, T], 0 outside the
mask."""

Selection = Callable[..., Tensor]
"""(old_logprobs [K], advantages [K], uniform [K], **settings) → bool [K]"""

POLICY_LOSSES: Registry[PolicyLoss] = Registry("policy loss")
_SELECTIONS: dict[str, Selection] = {}


def register_policy_loss(name: str, *, select: Selection | None = None) -> Callable[[Added], Added]:
    """Decorator: make a policy loss available under a name.

    select: chooses tokens of the whole mini-batch, which the loss takes as `selected`.
    """

    def add(function: Added) -> Added:
        if select is not None:
            _SELECTIONS[name] = select
        return POLICY_LOSSES.register(name)(function)

    return add


def selects_tokens(name: str) -> bool:
    """Whether a policy loss treats some tokens of the mini-batch differently."""
    return name in _SELECTIONS


def bound_policy_loss(name: str, options: Mapping[str, str], **clips: float) -> tuple[PolicyLoss, Selection | None]:
    """A policy loss and its selection, if it has one, with their settings filled in.

    Raises UserError for a name that nobody registered, and for options that neither takes.
    """
    select = _SELECTIONS.get(name)
    if select is None:
        return POLICY_LOSSES.bind(name, options, **clips), None
    theirs = {key: text for key, text in options.items() if key in settings_of(select)}
    rest = {key: text for key, text in options.items() if key not in theirs}
    loss = POLICY_LOSSES.bind(name, rest, **clips, selected=None)
    return loss, bind(select, f"policy loss {name!r}", theirs)


@register_policy_loss("ppo_clip")
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
