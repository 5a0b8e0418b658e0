"""Losses on rollouts, per token: PPO-clip (arXiv 2509.07430, eq. 5) and published alternatives, by name; KL estimators,
and the policy half of JS (eqs. 13–17).

All of them return [B, T] with zeros outside the mask; `Objective` sums them. Log-probabilities are taken at the
sampling temperature, and the arithmetic is in fp32 at least.

A policy loss takes log-probabilities, advantages and the mask of a micro-batch, and returns one value per token. The
loss sees whole responses, so that it may combine the tokens of a response, for example in a ratio of sequences. The
keyword-only parameters of the loss are its settings: `clip_low`, `clip_high` and `dual_clip` come from the fields of
these names in `LossConfig`, other settings from `loss.policy_options`. A dual clip that is on, and that the loss does
not take, is refused.

A loss that treats some tokens of the mini-batch differently is registered with a function that selects these tokens.
The selection sees all rollout tokens of the mini-batch, over micro-batches and processes, before the first micro-batch
is computed: `select(old_logprobs [K], advantages [K], uniform [K], **settings) → bool [K]`. `uniform` is a random
number in [0, 1) for each token. The loss takes the result as `selected`, bool [B, T]. A selection with a keyword-only
parameter `logprobs` is given log π_θ [K] as it is before the update, which costs a forward pass, or None if that is
log π_old.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from dph.errors import SettingsError
from dph.objective.divergences import get_divergence, log_ratio_to_mixture
from dph.process.user_code import ask
from dph.registry import Registry, settings_of

JS_BASELINE = 0.25
"""Baseline of the policy half of JS: the constant for which its gradient vanishes at π_θ = π_ref sample by sample."""

MAX_LOG_RATIO = 20.0
"""Log-ratios of rollouts are clamped to ± this before exp, as in verl: a step beyond e^20 is lost, but not NaN."""

PolicyLossFunction = Callable[..., Tensor]
"""(logprobs [B, T], old_logprobs [B, T], advantages [B] or [B, T], mask [B, T], **settings) → [B, T], 0 outside the
mask."""

Selection = Callable[..., Tensor]
"""(old_logprobs [K], advantages [K], uniform [K], **settings) → bool [K]"""


def masked_log_ratio(logprobs: Tensor, other: Tensor, mask: Tensor) -> Tensor:
    """log π_θ − log π_other of each token, and 0 outside the mask, in fp32 or better. All tensors are [B, T].

    Masked positions are set to 0 before a function is applied to the difference. Their log-probabilities may be −inf or
    NaN, and 0 · exp(inf) in a backward pass is NaN.

    >>> masked_log_ratio(torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.5, -torch.inf]]), torch.tensor([[1, 0]]))
    tensor([[0.5000, 0.0000]])
    """
    dtype = torch.promote_types(logprobs.dtype, torch.float32)
    return torch.where(mask.bool(), logprobs.to(dtype) - other.to(dtype), 0.0)


def per_token(advantages: Tensor) -> Tensor:
    """Advantages [B] as [B, 1], so that they broadcast over tokens; advantages [B, T] as they are.

    >>> per_token(torch.tensor([1.0, -1.0])).shape
    torch.Size([2, 1])
    """
    return advantages if advantages.ndim == 2 else advantages[:, None]


def importance_ratio(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor) -> Tensor:
    """The importance ratio ρ = π_θ/π_old of each token, and 1 outside the mask. All tensors are [B, T], in nats.

    >>> old = torch.tensor([[0.5, 0.2]]).log()
    >>> importance_ratio(torch.tensor([[0.25, 0.4]]).log(), old, torch.ones(1, 2))
    tensor([[0.5000, 2.0000]])
    """
    return masked_log_ratio(logprobs, old_logprobs, mask).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def sequence_ratio(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor) -> Tensor:
    """s = (Π_t ρ_t)^(1/T): the geometric mean of the token ratios of each response (GSPO), [B, 1]. The ratio of a
    response without tokens is 1. The arguments are [B, T], in nats.

    >>> old = torch.tensor([[0.5, 0.2]]).log()
    >>> sequence_ratio(torch.tensor([[0.25, 0.4]]).log(), old, torch.ones(1, 2))  # √(½ · 2)
    tensor([[1.]])
    """
    log_ratio = masked_log_ratio(logprobs, old_logprobs, mask).sum(-1, keepdim=True)
    return (log_ratio / mask.sum(-1, keepdim=True).clamp(min=1)).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


@dataclass(frozen=True, slots=True)
class Traits:
    """Facts of a policy loss that training and its metrics need."""

    select: Selection | None = None
    """The function that chooses tokens of the whole mini-batch, which the loss takes as `selected`."""
    needs_advantage: bool = False
    """Whether a response with an advantage of 0 has no gradient, so that training leaves its backward pass out."""
    clip_ratio: Callable[[Tensor, Tensor, Tensor], Tensor] | None = importance_ratio
    """The ratio that the loss compares with its clips, for the metrics: (logprobs, old_logprobs, mask), each [B, T], →
    [B, T], or [B, 1] for a ratio of whole responses. None if the clips of the loss stop no gradient."""


POLICY_LOSSES: Registry[PolicyLossFunction] = Registry("policy loss", Traits)
register_policy_loss = POLICY_LOSSES.register
"""Decorator that makes a policy loss available under a name. Its keyword arguments are the fields of `Traits`."""


class PolicyLoss:
    """A policy loss with its settings, and its selection of tokens if it has one, built once for a training run."""

    def __init__(self, name: str, options: Mapping[str, str], **clips: float) -> None:
        """
        Args:
            name: the name under which the loss was registered.
            options: the settings of the loss and of its selection, as text.
            clips: clip_low, clip_high and dual_clip; the loss is given those that it takes.

        Raises:
            UserError: nobody registered the name, neither the loss nor the selection takes an option, or a dual clip is
                set that the loss does not take.
        """
        settings = settings_of(POLICY_LOSSES[name])
        if clips.get("dual_clip") and "dual_clip" not in settings:
            raise SettingsError(
                f"policy loss {name!r} has no dual clip, but loss.dual_clip is {clips['dual_clip']}; set it to 0, or "
                "use a policy loss that has one, such as ppo_clip"
            )
        self._name = name
        self.traits: Traits = POLICY_LOSSES.traits(name)
        self.clips: dict[str, Any] = {key: value for key, value in clips.items() if key in settings}
        """Those of `clip_low`, `clip_high` and `dual_clip` that the loss takes."""
        self.select: Selection | None = None
        """The function that chooses tokens of the whole mini-batch; None if the loss treats all tokens alike."""
        self.selects_by_policy = False
        """Whether the selection takes `logprobs`."""
        filled = dict(self.clips)
        if self.traits.select is not None:
            of_selection = settings_of(self.traits.select)
            shared = {key: text for key, text in options.items() if key in of_selection}
            options = {key: text for key, text in options.items() if key not in of_selection or key in settings}
            select = POLICY_LOSSES.bind(name, shared, self.traits.select, **clips, logprobs=None)
            self.select = partial(self._checked, "the selection of ", select)
            self.selects_by_policy = "logprobs" in of_selection
            filled["selected"] = None
        function = POLICY_LOSSES.bind(name, options, **filled)
        self.function: PolicyLossFunction = partial(self._checked, "", function)

    def _checked(
        self, prefix: str, function: Callable[..., Tensor], first: Tensor, *others: Any, **named: Any
    ) -> Tensor:
        """The tensor that the loss or its selection returns, which has the shape of the first argument. Raises
        SettingsError if the function raises an error, or returns something else."""
        return ask(
            f"{prefix}policy loss {self._name!r}",
            POLICY_LOSSES[self._name],
            lambda: function(first, *others, **named),
            lambda values: isinstance(values, Tensor) and values.shape == first.shape,
            f"a tensor {list(first.shape)}",
        )

    @torch.no_grad()
    def sums(self, logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """Sums over the tokens of the mask that say how far π_θ is from π_old on rollouts, and how many tokens lie
        beyond a clip, so that they have no gradient. The arguments are those of a policy loss."""
        ratio = importance_ratio(logprobs, old_logprobs, mask)
        clips = self.clips if self.traits.clip_ratio else {}
        high, low = clips.get("clip_high", math.inf), clips.get("clip_low", math.inf)
        dual = clips.get("dual_clip") or math.inf
        compared = (self.traits.clip_ratio or importance_ratio)(logprobs, old_logprobs, mask)
        advantages = per_token(advantages)
        up, down = (advantages > 0) & mask.bool(), (advantages < 0) & mask.bool()
        return {
            "exp/ratio": (ratio * mask).sum(),
            "exp/old_kl": (ratio - 1 - ratio.log()).sum(),
            "exp/clipped_high": ((compared > 1 + high) & up).to(mask.dtype).sum(),
            "exp/clipped_low": ((compared < 1 - low) & down).to(mask.dtype).sum(),
            "exp/dual_clipped": ((compared > dual) & down).to(mask.dtype).sum(),
        }


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

    Args:
        logprobs, old_logprobs: [B, T], log-probabilities in nats under π_θ, with gradient, and under π_old.
        advantages: [B], or [B, T] if they differ by token.
        mask: [B, T], 1 for the tokens that count, else 0.
        clip_low, clip_high: GRPO has 0.2 and 0.2, DAPO ("clip-higher") 0.2 and 0.28.
        dual_clip: c > 1 bounds the loss of negative advantages by −c·A (arXiv 1912.09729); 0 is off.

    >>> old = torch.tensor([[0.5, 0.5]]).log()
    >>> new = torch.tensor([[0.55, 0.75]]).log()  # ρ = 1.1, and ρ = 1.5, which is clipped to 1.2
    >>> ppo_clip(new, old, torch.tensor([2.0]), torch.ones(1, 2), clip_low=0.2, clip_high=0.2)
    tensor([[-2.2000, -2.4000]])
    """
    ratio = importance_ratio(logprobs, old_logprobs, mask)
    advantages = per_token(advantages).to(ratio.dtype)
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    loss = torch.maximum(-ratio * advantages, -clipped * advantages)
    if dual_clip:
        loss = torch.where(advantages < 0, torch.minimum(loss, -dual_clip * advantages), loss)
    return loss * mask


@register_policy_loss("gspo", needs_advantage=True, clip_ratio=sequence_ratio)
def gspo(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, *, clip_low: float, clip_high: float
) -> Tensor:
    """GSPO (arXiv 2507.18071): importance ratios of whole responses, normalised by length, instead of tokens.

    The loss is −min(s·A, clip(s, 1 − clip_low, 1 + clip_high)·A) at every token, [B, T], where s is the geometric mean
    of the token ratios of the response. With `loss.aggregation = "sequence"` a response counts once, as in the paper.
    """
    s = sequence_ratio(logprobs, old_logprobs, mask)
    advantages = per_token(advantages)
    return torch.maximum(-s * advantages, -s.clamp(1 - clip_low, 1 + clip_high) * advantages) * mask


@register_policy_loss("cispo", needs_advantage=True, clip_ratio=None)
def cispo(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, *, clip_high: float) -> Tensor:
    """CISPO (MiniMax-M1, arXiv 2506.13585): REINFORCE with clipped importance weights; no token loses its gradient.

    The loss is −sg[min(ρ, 1 + clip_high)]·A·log π_θ per token, [B, T], where sg stops the gradient. There is no lower
    clip. log π_θ is taken relative to log π_old, which changes no gradient and keeps masked tokens finite.
    """
    weight = importance_ratio(logprobs, old_logprobs, mask).detach().clamp(max=1 + clip_high)
    return -weight * per_token(advantages) * masked_log_ratio(logprobs, old_logprobs, mask) * mask


def _covariance(logprobs: Tensor, advantages: Tensor) -> Tensor:
    """Each token's part in the covariance of advantage and log-probability over the mini-batch, [K].

    Entropy falls if both rise together (arXiv 2505.22617). The authors' code takes the tokens of a micro-batch; ours
    takes the whole mini-batch, so that the choice is the same for every way of cutting it. log π_θ is the
    policy's before the update: log π_old in the first one of a step.
    """
    return (advantages - advantages.mean()) * (logprobs - logprobs.mean())


def largest(
    old_logprobs: Tensor,
    advantages: Tensor,
    uniform: Tensor,
    *,
    logprobs: Tensor | None = None,
    share: float = 2e-4,
) -> Tensor:
    """Select the `share` of the tokens with the largest part in the covariance, and at least one token.

    The arguments are [K]; the result is bool [K]. logprobs: log π_θ; None if it is log π_old.
    """
    count = max(1, int(len(old_logprobs) * share))
    chosen = torch.zeros(len(old_logprobs), dtype=torch.bool)
    parts = _covariance(old_logprobs if logprobs is None else logprobs, advantages)
    chosen[parts.topk(min(count, len(old_logprobs))).indices] = True
    return chosen


def random_within(
    old_logprobs: Tensor,
    advantages: Tensor,
    uniform: Tensor,
    *,
    logprobs: Tensor | None = None,
    share: float = 2e-4,
    low: float = 1.0,
    high: float = 5.0,
    clip_low: float = 1.0,
    clip_high: float = torch.inf,
) -> Tensor:
    """Select `share` of all tokens, and at least one, at random from the tokens whose part in the covariance lies
    between low and high.

    Tokens that PPO clips are left out, because they have no gradient. The arguments are [K]; the result is bool [K].
    logprobs: log π_θ; None if it is log π_old.
    """
    logprobs = old_logprobs if logprobs is None else logprobs
    parts = _covariance(logprobs, advantages)
    ratio = importance_ratio(logprobs, old_logprobs, torch.ones_like(logprobs))
    clipped = ((ratio > 1 + clip_high) & (advantages > 0)) | ((ratio < 1 - clip_low) & (advantages < 0))
    candidates = ((parts > low) & (parts < high) & ~clipped).nonzero().flatten()
    chosen = torch.zeros(len(old_logprobs), dtype=torch.bool)
    count = max(1, int(len(old_logprobs) * share))
    chosen[candidates[uniform[candidates].argsort()[:count]]] = True
    return chosen


@register_policy_loss("kl_cov", select=largest)
def kl_cov(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    selected: Tensor,
    kl_coef: float = 1.0,
) -> Tensor:
    """KL-Cov (arXiv 2505.22617): a penalty on the few tokens that make the entropy fall.

    The loss is −ρ·A without clipping, plus kl_coef·|log π_θ − log π_old| on selected tokens, [B, T]. The penalty has no
    gradient at π_θ = π_old, so that it does nothing in the first update on a batch of rollouts.
    """
    loss = -importance_ratio(logprobs, old_logprobs, mask) * per_token(advantages)
    penalty = kl_coef * masked_log_ratio(logprobs, old_logprobs, mask).abs()
    return (loss + torch.where(selected.bool(), penalty, 0.0)) * mask


@register_policy_loss("clip_cov", select=random_within, needs_advantage=True)
def clip_cov(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    selected: Tensor,
    clip_low: float,
    clip_high: float,
) -> Tensor:
    """Clip-Cov (arXiv 2505.22617): PPO-clip in which selected tokens have no gradient, [B, T]."""
    loss = ppo_clip(logprobs, old_logprobs, advantages, mask, clip_low=clip_low, clip_high=clip_high)
    return torch.where(selected.bool(), loss.detach(), loss)


def kl_loss(
    logprobs: Tensor,
    ref_logprobs: Tensor,
    mask: Tensor,
    kind: Literal["k1", "k2", "k3", "k3_is"],
    old_logprobs: Tensor | None = None,
) -> Tensor:
    """Estimators of KL(π_θ‖π_ref) per token on rollouts, [B, T] (eq. 13).

    With ℓ = log π_θ − log π_ref, and rollouts of π_θ itself, the kinds are:

        kind    loss                 its expected gradient
        k1      ℓ                    zero
        k2      ½ℓ²                  ∇KL(π_θ‖π_ref)
        k3      expm1(−ℓ) + ℓ        ∇KL(π_ref‖π_θ): forward KL's, though the value estimates reverse KL
        k3_is   ρ·(expm1(−ℓ) + ℓ)    ∇KL(π_θ‖π_ref), also for rollouts of an older policy (needs old_logprobs)

    GRPO implementations and the paper's RKL runs use k3. Raises ValueError for k3_is without `old_logprobs`.
    """
    log_ratio = masked_log_ratio(logprobs, ref_logprobs, mask)
    if kind == "k1":
        return log_ratio * mask
    if kind == "k2":
        return 0.5 * log_ratio.square() * mask
    log_ratio = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    loss = (torch.expm1(-log_ratio) + log_ratio) * mask
    if kind == "k3":
        return loss
    if old_logprobs is None:
        raise ValueError("kl_loss of kind 'k3_is' needs old_logprobs")
    return importance_ratio(logprobs, old_logprobs, mask) * loss


def js_definition_policy_term(
    logprobs: Tensor,
    old_logprobs: Tensor,
    ref_logprobs: Tensor,
    mask: Tensor,
    *,
    scale: float = 1.0,
    baseline: float = JS_BASELINE,
    official: bool = False,
) -> Tensor:
    """The second half of JS by its definition, ½·KL(π_θ‖m) with m = (π_θ + π_ref)/2, on rollouts (eqs. 14, 17), [B, T].

    With g = ½·log(π_θ/m) and ρ = π_θ/π_old, the term is scale·[ρ·(g − b) + b]. The expectation of the term under π_old
    is the value of the half. The gradient of the term, through ρ *and* g, is on average ∇E_{π_θ}[g] = E_{π_θ}[g·∇log
    π_θ + ∇g]. Differentiating g alone would give minus the gradient of the first half.

    scale: multiplies the term. baseline: b, which changes no expectation. official: use the authors' k3 estimate of
    KL(π_θ‖m), differentiated through m, with its clamps, which is biased as a gradient.
    """
    to_mixture = log_ratio_to_mixture(masked_log_ratio(logprobs, ref_logprobs, mask))
    if official:
        k3 = get_divergence("forward_kl", official=True).f(-to_mixture)
        return 0.5 * scale * k3 * mask
    ratio = importance_ratio(logprobs, old_logprobs, mask)
    return scale * (ratio * (0.5 * to_mixture - baseline) + baseline) * mask
