"""f-divergences between the trained and the reference policy, by their generators (arXiv 2509.07430, eq. 6, Table 5).

    D_f(π_θ‖π_ref) = E_{y ~ π_ref}[ f(u) ],   u = π_θ(y) / π_ref(y),   ℓ = log u

The expectation is over the *reference* policy, so responses stored once before training estimate it, and training needs
neither a reference model nor further sampling.

Centred generators. f and f + c·(u − 1) define the same divergence because u − 1 has mean zero under π_ref. We choose
the one with f(1) = f′(1) = 0: value and gradient then vanish at π_θ = π_ref for every single sample and not only on
average, and the variance is lowest there.

Gradient. For one sample ∇f(u) = u·f′(u)·∇log π_θ. The factor u·f′(u) is the *pull weight*: negative pulls the
sample's probability up. Its limit as u → 0 is the pull on a token that the policy has almost forgotten:

    name          centred f(u)                            u·f′(u)             as u → 0
    forward_kl    u − 1 − log u                           u − 1               −1: pulled back at full strength
    reverse_kl    u log u − u + 1                         u log u             0
    js            u log u − (u+1) log((u+1)/2)            u log(2u/(u+1))     0
    alpha         (u^(1−α) − (1−α)u − α) / (α(α−1))       (u − u^(1−α)) / α   0, more slowly as α → 1

Bias. For three reasons the sum over stored tokens is not an unbiased estimate of a divergence between sequences:
stored responses are samples of π_ref *conditioned on being correct*, so E[u − 1] = 0 holds only approximately; sampling
with top-p < 1 truncates π_ref while the log-probabilities belong to the whole distribution; and for all generators
but forward KL's logarithm the divergences of tokens do not add up to the divergence of the sequence.

Everything is computed from ℓ and never from u = exp(ℓ) alone: values and gradients are finite in fp32 for ℓ in
[−200, 80]. Masked positions have to be replaced *before* f is applied (`policy_losses.masked_log_ratio`).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from dph.errors import SettingsError
from dph.process.user_code import ask, is_ours
from dph.registry import Registry

LOG_2 = math.log(2.0)


@dataclass(frozen=True, slots=True)
class Divergence:
    """A generator and its pull weight. Both are elementwise functions of ℓ = log(π_θ/π_ref), a tensor of any shape.

    >>> squared = Divergence("squared", f=lambda ratio: ratio**2 / 2, pull_weight=lambda ratio: ratio)
    >>> squared.f(torch.tensor([0.0, 2.0]))
    tensor([0., 2.])
    """

    name: str
    f: Callable[[Tensor], Tensor]
    """ℓ ↦ f(u), in nats."""
    pull_weight: Callable[[Tensor], Tensor]
    """ℓ ↦ u·f′(u), the weight on ∇log π_θ, which equals the derivative of f with respect to ℓ."""


DIVERGENCES: Registry[Callable[..., Divergence]] = Registry("divergence")
register_divergence = DIVERGENCES.register
"""Decorator that makes a divergence available under a name. The function that is decorated returns a `Divergence`. Its
keyword-only parameters are the settings of the divergence: `alpha` and `official` come from the fields of these names
in `LossConfig`, other settings from `loss.divergence_options`."""


def get_divergence(
    name: str, options: Mapping[str, str] | None = None, *, alpha: float = 0.5, official: bool = False
) -> Divergence:
    """The divergence with a name.

    Args:
        name: forward_kl, forward_kl_raw, reverse_kl, js, alpha, or a name that a plug-in registered.
        options: further settings of the divergence, as text.
        alpha: the order of the α-divergence, between 0 (the limit reverse KL) and 1 (the limit forward KL).
        official: whether to take the formula of the authors' code where it differs from ours (forward_kl).

    Raises:
        UserError: the name is unknown, the divergence does not take an option, or α is out of range.

    >>> kl = get_divergence("forward_kl")
    >>> log_ratios = torch.tensor([0.0, 2.0]).log()  # u = 0, a token that is forgotten, and u = 2
    >>> kl.f(log_ratios)  # u − 1 − log u: infinite, and 1 − log 2
    tensor([   inf, 0.3069])
    >>> kl.pull_weight(log_ratios)  # u − 1
    tensor([-1.,  1.])
    """
    factory, what = DIVERGENCES[name], f"divergence {name!r}"
    bound = DIVERGENCES.bind(name, options or {}, alpha=alpha, official=official)
    divergence = ask(what, factory, bound, lambda value: isinstance(value, Divergence), "a Divergence")

    def checked(function: Callable[[Tensor], Tensor], ratio: Tensor) -> Tensor:
        alike = lambda values: isinstance(values, Tensor) and values.shape == ratio.shape  # noqa: E731
        return ask(what, factory, lambda: function(ratio), alike, f"a tensor {list(ratio.shape)}")

    if is_ours(factory):
        return divergence
    return replace(divergence, f=partial(checked, divergence.f), pull_weight=partial(checked, divergence.pull_weight))


def log_ratio_to_mixture(log_ratio: Tensor) -> Tensor:
    """log π_θ − log m = log(2u/(u+1)) with m = (π_θ + π_ref)/2, computed from ℓ, of any shape.

    At −ℓ the same function gives log π_ref − log m. The values lie between −∞ and log 2, and the derivative is 1/(1+u).
    """
    return LOG_2 - F.softplus(-log_ratio)


def _forward_kl(log_ratio: Tensor) -> Tensor:
    return torch.expm1(log_ratio) - log_ratio


def _forward_kl_clamped(log_ratio: Tensor) -> Tensor:
    log_ratio = log_ratio.clamp(-20.0, 20.0)
    return (torch.expm1(log_ratio) - log_ratio).clamp(-10.0, 10.0)


def _forward_kl_clamped_pull(log_ratio: Tensor) -> Tensor:
    inside = (log_ratio.abs() <= 20.0) & (_forward_kl(log_ratio) <= 10.0)
    return torch.where(inside, torch.expm1(log_ratio), torch.zeros_like(log_ratio))


@register_divergence("forward_kl")
def forward_kl(*, official: bool = False) -> Divergence:
    """KL(π_ref‖π_θ), the divergence of DPH-F: f = u − 1 − log u.

    official: clamp ℓ to ±20 and the value to 10, as the authors' code does. A token with ℓ below about −11 then gets no
    pull at all.
    """
    if official:
        return Divergence("forward_kl", _forward_kl_clamped, _forward_kl_clamped_pull)
    return Divergence("forward_kl", _forward_kl, torch.expm1)


@register_divergence("forward_kl_raw")
def forward_kl_raw() -> Divergence:
    """KL(π_ref‖π_θ) without centring: f = −log u, which is supervised training on the stored responses.

    This divergence pulls with weight −1 even at u = 1. If each prompt has one stored response, it keeps raising the
    probability of that response, and so narrows the policy in the end. `forward_kl` has the same expectation without
    this effect.
    """
    return Divergence("forward_kl_raw", torch.neg, lambda log_ratio: -torch.ones_like(log_ratio))


@register_divergence("reverse_kl")
def reverse_kl() -> Divergence:
    """KL(π_θ‖π_ref) from samples of π_ref: f = u log u − u + 1."""
    return Divergence(
        "reverse_kl",
        f=lambda log_ratio: log_ratio.exp() * log_ratio - torch.expm1(log_ratio),
        pull_weight=lambda log_ratio: log_ratio.exp() * log_ratio,
    )


def _js(log_ratio: Tensor) -> Tensor:
    # u·log(π_θ/m) + log(π_ref/m): each factor is bounded above by log 2, so nothing large cancels.
    return log_ratio.exp() * log_ratio_to_mixture(log_ratio) + log_ratio_to_mixture(-log_ratio)


@register_divergence("js")
def js() -> Divergence:
    """The divergence of DPH-JS: f = u log u − (u+1) log((u+1)/2).

    This is *twice* the textbook Jensen-Shannon divergence, as in the paper's Table 5 and its code; the published η are
    calibrated to it. Its pull weight is never below −0.232 (at u = 0.30) and fades for forgotten tokens.
    """
    return Divergence("js", _js, lambda log_ratio: log_ratio.exp() * log_ratio_to_mixture(log_ratio))


def _alpha(log_ratio: Tensor, alpha: float) -> Tensor:
    beta = 1.0 - alpha
    return (beta * torch.expm1(log_ratio) - torch.expm1(beta * log_ratio)) / (alpha * beta)


def _alpha_pull(log_ratio: Tensor, alpha: float) -> Tensor:
    return torch.exp((1.0 - alpha) * log_ratio) * torch.expm1(alpha * log_ratio) / alpha


@register_divergence("alpha")
def alpha_divergence(*, alpha: float = 0.5) -> Divergence:
    """α-divergence, 0 < α < 1: f = (u^(1−α) − (1−α)u − α) / (α(α−1)).

    The limit α → 1 is forward KL, and α → 0 is reverse KL. The paper tries α = 0.2, 0.5 and 0.8. Raises UserError for α
    outside (0, 1).
    """
    if not 0.0 < alpha < 1.0:
        raise SettingsError(
            f"alpha must lie strictly between 0 and 1, but is {alpha}; "
            "use divergence 'forward_kl' for the limit 1 and 'reverse_kl' for 0"
        )
    return Divergence(f"alpha({alpha})", partial(_alpha, alpha=alpha), partial(_alpha_pull, alpha=alpha))


def js_reference_half(*, scale: float = 1.0, official: bool = False) -> Divergence:
    """The first half of JS by its definition, ½·KL(π_ref‖m) with m = (π_θ + π_ref)/2, from samples of π_ref (eqs. 14,
    15).

        f = scale · ½·[(log π_ref − log m) + (u − 1)/2]

    The second term in the bracket centres the generator, as everywhere in this file, and changes neither the expected
    value nor the expected gradient.

    scale: multiplies the value. official: use the authors' k3 estimator of KL(π_ref‖m), which is the same formula with
    the clamps of their forward KL.
    """

    def f(log_ratio: Tensor) -> Tensor:
        if official:
            return 0.5 * scale * _forward_kl_clamped(-log_ratio_to_mixture(-log_ratio))
        return 0.5 * scale * (log_ratio_to_mixture(-log_ratio) + 0.5 * torch.expm1(log_ratio))

    def pull_weight(log_ratio: Tensor) -> Tensor:
        if official:
            # chain rule through log m − log π_ref, whose derivative with respect to ℓ is u/(1+u)
            weight = _forward_kl_clamped_pull(-log_ratio_to_mixture(-log_ratio))
            return 0.5 * scale * weight * torch.sigmoid(log_ratio)
        return 0.5 * scale * (0.5 * log_ratio.exp() - torch.sigmoid(log_ratio))

    return Divergence("js_reference_half", f, pull_weight)
