"""The training objective: PPO-clip on D_exp, an f-divergence to π_ref on D_pef (arXiv 2509.07430, eqs. 5–7, 10, 14–17).

    L = w_exp · Σ_{t ∈ D_exp} [ ω_t·(ℓ_clip,t + β·kl_t + λ·js_t) − c·H_t ]  +  w_pef · Σ_{t ∈ D_pef} f(u_t)

    reduction   w_exp              w_pef              λ (JS by its definition only)
    pooled      1/(N_exp + N_pef)  η/(N_exp + N_pef)  η·N_pef/N_exp
    per_set     1/N_exp            η/N_pef            η
    (either, with loss.js_ratio r: λ = η·r)

N counts the response tokens of the *whole mini-batch*, over all of its micro-batches and all ranks. The two
aggregations by sequence count sequences instead. A row of the bank (`dph.rehearsal.bank`) has a weight, which
multiplies its part of the sum and its part of N; all other rows have the weight 1. Every micro-batch contributes its
sums divided by these global counts. The contributions therefore add up to the loss of the mini-batch, however the
mini-batch is cut, ordered or padded. (A trainer that averages gradients over ranks multiplies by the number of ranks.)
The set that a row belongs to is a property of the row.

ω_t is 1 if the trainer sampled the rollouts itself. If another engine sampled them, ω_t is the importance weight of
token t (`sampler_correction`). The weight is on every term that is meant as an expectation over the sampled token under
π_old. The entropy H_t is such an expectation already, computed from all tokens of the vocabulary, so that a weight
would only add noise to it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dph.config import LossConfig
from dph.errors import SettingsError
from dph.objective.divergences import DIVERGENCES, Divergence, get_divergence, js_reference_half
from dph.objective.policy_losses import PolicyLoss, js_definition_policy_term, kl_loss, masked_log_ratio
from dph.registry import settings_of
from dph.shapes import check_tensor

FORGOTTEN_BELOW = 0.1
"""A rehearsal token counts as forgotten when u = π_θ/π_ref is below this."""


@dataclass(frozen=True)
class TokenBatch:
    """The inputs of the loss: B rows with T response positions. `dph.training.rows.Batch` adds the inputs of the model.

    A rollout with an advantage of 1, and a stored response, of two tokens each:

    >>> batch = TokenBatch(
    ...     old_logprobs=torch.full((2, 2), -1.0),
    ...     ref_logprobs=torch.full((2, 2), -1.0),
    ...     response_mask=torch.ones(2, 2),
    ...     advantages=torch.tensor([1.0, 0.0]),
    ...     is_rehearsal=torch.tensor([False, True]),
    ... )
    """

    old_logprobs: Tensor
    """float [B, T]: log-probabilities in nats under the policy that generated the rollouts. They are not read on D_pef
    rows."""
    ref_logprobs: Tensor | None
    """float [B, T]: log-probabilities in nats under π_ref. On D_exp rows they are read only if
    `Objective.needs_reference`."""
    response_mask: Tensor
    """[B, T]: nonzero on the response tokens that count."""
    advantages: Tensor
    """float [B], or [B, T] if they differ by token. They are finite, and without effect on D_pef rows."""
    is_rehearsal: Tensor
    """bool [B]: True for D_pef rows."""
    selected: Tensor | None = None
    """bool [B, T]: the tokens that `PolicyLoss.select` chose among the D_exp tokens of the mini-batch; None if the
    policy loss selects none."""
    row_weights: Tensor | None = None
    """float [B]: how much each row counts within its set, above 0 for each row with tokens in the mask; None if all
    rows count alike."""


@dataclass(frozen=True, slots=True)
class LossCounts:
    """The denominators of a mini-batch. They are added over its micro-batches and ranks before the first loss. A row
    counts as often as its weight says.

    >>> mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    >>> batch = TokenBatch(mask, mask, mask, torch.zeros(2), torch.tensor([False, True]))
    >>> LossCounts.of(batch)
    LossCounts(exp_tokens=2, pef_tokens=3, exp_sequences=1, pef_sequences=1)
    """

    exp_tokens: float = 0.0
    """Tokens of D_exp rows."""
    pef_tokens: float = 0.0
    """Tokens of D_pef rows."""
    exp_sequences: float = 0.0
    """Rows of D_exp with at least one token in the mask."""
    pef_sequences: float = 0.0
    """Rows of D_pef with at least one token in the mask."""

    @classmethod
    def of(cls, batch: TokenBatch) -> "LossCounts":
        """The counts of one batch."""
        mask = batch.response_mask.bool()
        pef = batch.is_rehearsal.bool()
        tokens, rows = mask.sum(-1), mask.any(-1)
        if batch.row_weights is not None:
            tokens, rows = tokens * batch.row_weights, rows * batch.row_weights
        counts = [tokens[~pef].sum(), tokens[pef].sum(), rows[~pef].sum(), rows[pef].sum()]
        return cls(*torch.stack(counts).tolist())


class Objective:
    """The objective of one training run, called for every micro-batch.

    A rollout with an advantage of 1, and a stored response, of two tokens each. At π_θ = π_old = π_ref the policy loss
    of a token is −1 and the divergence is 0. The reduction per set divides the sum −2 by the 2 tokens of the rollout:

    >>> logprobs = torch.full((2, 2), -1.0)
    >>> flags = torch.tensor([False, True])
    >>> batch = TokenBatch(logprobs, logprobs, torch.ones(2, 2), torch.tensor([1.0, 0.0]), flags)
    >>> objective = Objective(LossConfig(divergence="forward_kl", eta=0.2))
    >>> loss, sums = objective(logprobs, batch, LossCounts.of(batch))
    >>> loss
    tensor(-1.)
    >>> mean_metrics(sums)["pef/divergence"]
    0.0
    """

    def __init__(self, config: LossConfig) -> None:
        """Raises UserError if the settings name a divergence or a policy loss that nobody registered, or hold an option
        that the divergence or the policy loss does not take."""
        self.config = config
        self.divergence = _divergence(config)
        """The divergence on D_pef: the chosen generator, or the first half of JS by its definition."""
        clips = {"clip_low": config.clip_low, "clip_high": config.clip_high, "dual_clip": config.dual_clip}
        self.policy = PolicyLoss(config.policy, config.policy_options, **clips)
        """The policy loss on D_exp."""

    @property
    def needs_reference(self) -> bool:
        """Whether D_exp rows need `ref_logprobs`, so that training has to hold a reference model."""
        return self.config.kl != "none" or (self.config.estimator == "definition" and self.config.eta > 0)

    @property
    def learns_everywhere(self) -> bool:
        """Whether a rollout with an advantage of 0 may still have a gradient: through KL, JS by its definition, the
        entropy, or a policy loss that was not registered with `needs_advantage`."""
        return self.needs_reference or bool(self.config.entropy_coef) or not self.policy.traits.needs_advantage

    @property
    def unused(self) -> list[str]:
        """The names of the clips that the settings change and that the policy loss does not take."""
        default = LossConfig()
        names = [name for name in ("clip_low", "clip_high") if name not in self.policy.clips]
        return [f"loss.{name}" for name in names if getattr(self.config, name) != getattr(default, name)]

    def weights(self, counts: LossCounts) -> tuple[float, float, float]:
        """w_exp, w_pef (with η) and λ, from the global counts. The N of a set without tokens counts as 1.

        λ gives both halves of JS the same weight in the mini-batch. The paper says that λ depends only on "the dataset
        size" and on η (eq. 16, whose formula is lost). With `loss.js_ratio` r, λ = η·r: of the whole data sets' sizes.
        """
        config = self.config
        if config.aggregation == "token":
            n_exp, n_pef = counts.exp_tokens, counts.pef_tokens
        else:
            n_exp, n_pef = counts.exp_sequences, counts.pef_sequences
        given = config.eta * config.js_ratio
        if config.reduction == "pooled":
            total = max(n_exp + n_pef, 1.0)
            return 1.0 / total, config.eta / total, given or config.eta * n_pef / max(n_exp, 1.0)
        return 1.0 / max(n_exp, 1.0), config.eta / max(n_pef, 1.0), given or config.eta

    def __call__(
        self,
        logprobs: Tensor,
        batch: TokenBatch,
        counts: LossCounts,
        entropy: Tensor | None = None,
        importance: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The contribution of one micro-batch to the objective (eq. 7), and detached sums for metrics.

        Args:
            logprobs: float [B, T], log π_θ of the response tokens, in nats, with gradient.
            batch: the other tensors of the micro-batch.
            counts: the counts of the whole mini-batch, over micro-batches and ranks.
            entropy: float [B, T], entropies of π_θ in nats, with gradient if entropy_coef ≠ 0. KL and entropy apply to
                D_exp rows only.
            importance: float [B, T], the weights ω of the tokens of rollouts; None gives every token the weight 1.
        Returns:
            The loss (a scalar), and sums that add up over micro-batches and ranks, which `mean_metrics` divides. The
            keys depend only on the settings and on whether entropy is given, so that all ranks have the same keys.
        Raises:
            ValueError: a tensor has another shape or type than documented, or the batch lacks what the settings need.
        """
        _check_shapes(logprobs, batch, entropy, importance)
        config, (w_exp, w_pef, js_lambda) = self.config, self.weights(counts)
        mask = batch.response_mask.bool()
        pef_rows = batch.is_rehearsal.bool()[:, None]
        dtype = torch.promote_types(logprobs.dtype, torch.float32)
        exp, pef = (mask & ~pef_rows).to(dtype), (mask & pef_rows).to(dtype)
        share = _token_weights(mask.to(dtype), config)
        if batch.row_weights is not None:
            share = share * batch.row_weights.to(dtype)[:, None]
        sums = {"exp/tokens": exp.sum(), "pef/tokens": pef.sum()}

        weigh = 1.0 if importance is None else importance
        chosen = {} if self.policy.select is None else {"selected": _selected(batch, exp)}
        loss_exp = weigh * self.policy.function(logprobs, batch.old_logprobs, batch.advantages, exp, **chosen)
        sums["exp/policy_loss"] = loss_exp.sum()
        sums |= self.policy.sums(logprobs, batch.old_logprobs, batch.advantages, exp)
        if config.kl != "none":
            kl = weigh * kl_loss(logprobs, _ref(batch), exp, config.kl, batch.old_logprobs)
            loss_exp = loss_exp + config.kl_coef * kl
            sums["exp/kl_loss"] = kl.sum()
        if config.estimator == "definition" and config.eta > 0:
            js = weigh * js_definition_policy_term(
                logprobs, batch.old_logprobs, _ref(batch), exp, scale=config.js_scale, official=config.official
            )
            loss_exp = loss_exp + js_lambda * js
            sums["exp/js_policy_term"] = js.sum()
        if entropy is not None:
            entropy = torch.where(exp.bool(), entropy.to(dtype), 0.0)
            loss_exp = loss_exp - config.entropy_coef * entropy
            sums["exp/entropy"] = entropy.sum()
        elif config.entropy_coef:
            raise ValueError("loss.entropy_coef is set, but the objective was given no entropy")
        loss = w_exp * (share * loss_exp).sum()

        if config.eta > 0:
            # A micro-batch without D_pef rows may come without ref_logprobs; its sums are 0 either way.
            ref = torch.zeros_like(logprobs) if batch.ref_logprobs is None and not pef.any() else _ref(batch)
            log_ratio = masked_log_ratio(logprobs, ref, pef)
            f = self.divergence.f(log_ratio) * pef
            loss = loss + w_pef * (share * f).sum()
            sums |= {"pef/divergence": f.sum(), "pef/log_ratio": log_ratio.sum()}
            sums["pef/pull_weight"] = (self.divergence.pull_weight(log_ratio.detach()) * pef).sum()
            sums["pef/forgotten"] = (log_ratio.detach().exp() < FORGOTTEN_BELOW).to(dtype).sum()
        sums["loss"] = loss
        return loss, {name: value.detach() for name, value in sums.items()}


def _check_shapes(logprobs: Tensor, batch: TokenBatch, entropy: Tensor | None, importance: Tensor | None) -> None:
    """Raises ValueError unless every tensor has the shape and the type that `TokenBatch` and `Objective` document."""
    if logprobs.ndim != 2 or not logprobs.dtype.is_floating_point:
        found = f"{str(logprobs.dtype).removeprefix('torch.')} {list(logprobs.shape)}"
        raise ValueError(f"logprobs must be a float tensor [B, T], but is {found}")
    sizes = {"B": logprobs.shape[0], "T": logprobs.shape[1]}
    check_tensor("old_logprobs", batch.old_logprobs, "float", sizes, "BT")
    check_tensor("response_mask", batch.response_mask, "mask", sizes, "BT")
    check_tensor("advantages", batch.advantages, "float", sizes, "B", "BT")
    check_tensor("is_rehearsal", batch.is_rehearsal, "bool", sizes, "B")
    if batch.ref_logprobs is not None:
        check_tensor("ref_logprobs", batch.ref_logprobs, "float", sizes, "BT")
    if batch.selected is not None:
        check_tensor("selected", batch.selected, "bool", sizes, "BT")
    if batch.row_weights is not None:
        check_tensor("row_weights", batch.row_weights, "float", sizes, "B")
    if entropy is not None:
        check_tensor("entropy", entropy, "float", sizes, "BT")
    if importance is not None:
        check_tensor("importance", importance, "float", sizes, "BT")


def _divergence(config: LossConfig) -> Divergence:
    if config.alpha != LossConfig().alpha and "alpha" not in settings_of(DIVERGENCES[config.divergence]):
        raise SettingsError(
            f"loss.alpha is the order of loss.divergence 'alpha' only, not of {config.divergence!r}; leave it out"
        )
    if config.estimator == "definition":
        return js_reference_half(scale=config.js_scale, official=config.official)
    return get_divergence(config.divergence, config.divergence_options, alpha=config.alpha, official=config.official)


def _token_weights(mask: Tensor, config: LossConfig) -> Tensor:
    """float [B, T]: the weight of each token in the sum over its row."""
    if config.aggregation == "sequence":
        return mask / mask.sum(-1, keepdim=True).clamp(min=1)
    if config.aggregation == "dr_grpo":
        return mask / config.dr_grpo_length
    return mask


def _selected(batch: TokenBatch, exp: Tensor) -> Tensor:
    if batch.selected is not None:
        return batch.selected
    if exp.any():
        raise ValueError("this policy loss selects tokens of the whole mini-batch, but the batch has no selection")
    return torch.zeros_like(exp, dtype=torch.bool)  # stored rows only: nothing was there to select from


def _ref(batch: TokenBatch) -> Tensor:
    if batch.ref_logprobs is None:
        raise ValueError("the loss needs ref_logprobs, but the batch has none")
    return batch.ref_logprobs


@torch.no_grad()
def sampler_correction(
    old_logprobs: Tensor, sampled_logprobs: Tensor, mask: Tensor, cap: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Importance weights of tokens for rollouts of an engine whose probabilities differ from the trainer's by rounding,
    and sums for metrics.

    The weight of a token is min(π_old / π_sampler, cap). Up to the cap, the mean of a term over the tokens of the
    sampler is then the expectation of the term under π_old at the same prefix. This holds for the policy loss, the KL
    penalty and the policy half of JS. How often a prefix occurs is not corrected.

    Args:
        old_logprobs: float [B, T], in nats, under the policy that is trained, as it was when the tokens were sampled.
        sampled_logprobs: float [B, T], in nats, under the sampler.
        mask: [B, T], nonzero on the tokens that count.
        cap: the largest weight; 0 leaves all weights at 1.
    Returns:
        The weights, float [B, T], and sums over the tokens that count: of |log π_old − log π_sampler|
        ("exp/sampler_gap"), of the unbiased and never negative estimate of KL(π_sampler‖π_old) ("exp/sampler_kl"), and
        of the weights ("exp/importance").

    >>> old, sampled = torch.tensor([[0.5, 0.9]]).log(), torch.tensor([[0.4, 0.3]]).log()
    >>> weights, _ = sampler_correction(old, sampled, torch.ones(1, 2), cap=2.0)
    >>> weights  # 0.5/0.4, and 0.9/0.3 = 3, which is capped
    tensor([[1.2500, 2.0000]])
    """
    counts = mask.bool()
    gap = torch.where(counts, old_logprobs - sampled_logprobs, 0.0)
    ratio = gap.exp()
    weights = ratio.clamp(max=cap) if cap else torch.ones_like(ratio)
    sums = {
        "exp/sampler_gap": gap.abs().sum(),
        "exp/sampler_kl": (ratio - 1 - gap).sum(),
        "exp/importance": torch.where(counts, weights, 0.0).sum(),
    }
    return weights, sums


def mean_metrics(sums: Mapping[str, Tensor]) -> dict[str, float]:
    """Means per token, from sums of an `Objective` that were added over micro-batches. The token counts and "loss" stay
    as they are. A set without tokens has no means.

    >>> mean_metrics({"exp/tokens": torch.tensor(4.0), "exp/ratio": torch.tensor(5.0), "pef/tokens": torch.tensor(0.0)})
    {'exp/tokens': 4.0, 'exp/ratio': 1.25, 'pef/tokens': 0.0}
    """
    values = {name: float(value) for name, value in sums.items()}
    means: dict[str, float] = {}
    for name, value in values.items():
        if name == "loss" or name.endswith("/tokens"):
            means[name] = value
        elif tokens := values[name.split("/")[0] + "/tokens"]:
            means[name] = value / tokens
    return means


@torch.no_grad()
def rehearsal_diagnostics(log_ratios: Tensor, divergence: Divergence) -> dict[str, float]:
    """Numbers that say how far the policy is from π_ref on the stored responses.

    Args:
        log_ratios: float [K], log u = log π_θ − log π_ref of every rehearsal token that counts, in nats.
        divergence: the divergence that training uses on D_pef.
    Returns:
        Quantiles of log u ("log_ratio_q01" … "log_ratio_q99"), the share of forgotten tokens, whose u is below 0.1
        ("forgotten"), and the mean pull weight u·f′(u) of the divergence ("pull_weight"). The divergences js and alpha
        lose their pull on tokens that are already forgotten, and these numbers show it. Empty without tokens.

    >>> log_ratios = torch.tensor([0.0, 0.05]).log()  # infinitely forgotten, and u = 0.05
    >>> numbers = rehearsal_diagnostics(log_ratios, get_divergence("forward_kl"))
    >>> numbers["forgotten"], round(numbers["pull_weight"], 3)  # the mean of 0 − 1 and 0.05 − 1
    (1.0, -0.975)
    """
    if log_ratios.numel() == 0:
        return {}
    quantiles = (0.01, 0.1, 0.5, 0.9, 0.99)
    found = torch.quantile(log_ratios, log_ratios.new_tensor(quantiles)).tolist()
    return {
        **{f"log_ratio_q{round(100 * level):02d}": value for level, value in zip(quantiles, found, strict=True)},
        "forgotten": float((log_ratios.exp() < FORGOTTEN_BELOW).to(log_ratios.dtype).mean()),
        "pull_weight": float(divergence.pull_weight(log_ratios).mean()),
    }
