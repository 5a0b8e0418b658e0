"""The training objective: PPO-clip on D_exp, an f-divergence to π_ref on D_pef (arXiv 2509.07430, eqs. 5–7, 10, 14–17).

    L = w_exp · Σ_{t ∈ D_exp} [ ℓ_clip,t + β·kl_t + λ·js_t − c·H_t ]  +  w_pef · Σ_{t ∈ D_pef} f(u_t)

    reduction   w_exp              w_pef              λ (JS by its definition only)
    pooled      1/(N_exp + N_pef)  η/(N_exp + N_pef)  η·N_pef/N_exp
    per_set     1/N_exp            η/N_pef            η

N counts response tokens (sequences for the two aggregations by sequence) of the *whole mini-batch*: over all of its
micro-batches and all ranks. Every micro-batch contributes its sums over these global counts, so the contributions add
up to the mini-batch's loss however it is cut, ordered or padded. (A trainer that averages gradients over ranks
multiplies by their number.) Which set a row belongs to is a property of the row.

The terms themselves, per token, are in `dph.objective.token_losses`; the generators f in `dph.objective.divergences`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from dph.config.schema import LossConfig
from dph.errors import UserError
from dph.objective.divergences import Divergence, get_divergence, js_reference_half
from dph.objective.token_losses import (
    importance_ratio,
    js_definition_policy_term,
    kl_loss,
    masked_log_ratio,
    per_token,
    policy_loss,
    rehearsal_loss,
)

FORGOTTEN_BELOW = 0.1
"""A rehearsal token counts as forgotten when u = π_θ/π_ref is below this."""


class LossBatch(Protocol):
    """What the loss reads of a batch; B rows, T response positions."""

    @property
    def old_logprobs(self) -> Tensor:
        """[B, T] under the policy that made the rollouts; not read on D_pef rows."""
        ...

    @property
    def ref_logprobs(self) -> Tensor | None:
        """[B, T] under π_ref; on D_exp rows read only if `needs_rollout_ref`."""
        ...

    @property
    def response_mask(self) -> Tensor:
        """[B, T], nonzero on response tokens that count."""
        ...

    @property
    def advantages(self) -> Tensor:
        """[B], or [B, T] where they differ by token; finite; without effect on D_pef rows."""
        ...

    @property
    def is_rehearsal(self) -> Tensor:
        """bool [B]: True for D_pef rows."""
        ...


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """The plainest `LossBatch`, for engines that have no batch class of ours."""

    old_logprobs: Tensor
    ref_logprobs: Tensor | None
    response_mask: Tensor
    advantages: Tensor
    is_rehearsal: Tensor


@dataclass(frozen=True, slots=True)
class LossCounts:
    """Denominators of a mini-batch: add them over its micro-batches and ranks before the first `hybrid_loss`."""

    exp_tokens: float = 0.0
    pef_tokens: float = 0.0
    exp_sequences: float = 0.0
    """Rows of D_exp with at least one token in the mask."""
    pef_sequences: float = 0.0

    @classmethod
    def of(cls, batch: LossBatch) -> "LossCounts":
        """Count one batch."""
        mask = batch.response_mask.bool()
        pef = batch.is_rehearsal.bool()
        tokens, rows = mask.sum(-1), mask.any(-1)
        counts = [tokens[~pef].sum(), tokens[pef].sum(), rows[~pef].sum(), rows[pef].sum()]
        return cls(*torch.stack(counts).tolist())

    def __add__(self, other: "LossCounts") -> "LossCounts":
        return LossCounts(
            self.exp_tokens + other.exp_tokens,
            self.pef_tokens + other.pef_tokens,
            self.exp_sequences + other.exp_sequences,
            self.pef_sequences + other.pef_sequences,
        )


class TermWeights(NamedTuple):
    """Factors on the sums of the objective; see the head of this file."""

    exp: float
    pef: float
    js_lambda: float


def term_weights(counts: LossCounts, config: LossConfig) -> TermWeights:
    """w_exp, w_pef (η included) and λ from the global counts; a set that is absent has no say (its N counts as 1).

    λ makes both halves of JS weigh the same in the mini-batch. The paper says that it depends on the sizes of the sets
    and η only (eq. 16); its formula is lost, so this one is our reading.
    """
    if config.aggregation == "token":
        n_exp, n_pef = counts.exp_tokens, counts.pef_tokens
    else:
        n_exp, n_pef = counts.exp_sequences, counts.pef_sequences
    if config.reduction == "pooled":
        total = max(n_exp + n_pef, 1.0)
        return TermWeights(1.0 / total, config.eta / total, config.eta * n_pef / max(n_exp, 1.0))
    return TermWeights(1.0 / max(n_exp, 1.0), config.eta / max(n_pef, 1.0), config.eta)


def check_loss_config(config: LossConfig) -> None:
    """Raises UserError for settings that exclude each other or are out of range."""
    get_divergence(config.divergence, alpha=config.alpha, official=config.official)
    if config.clip_high < 0 or not 0 <= config.clip_low <= 1:
        raise UserError(
            f"loss.clip_low must lie in [0, 1] and loss.clip_high must not be negative, "
            f"but they are {config.clip_low} and {config.clip_high}"
        )
    if config.dual_clip and config.dual_clip <= 1:
        raise UserError(f"loss.dual_clip must be greater than 1, or 0 for off, but is {config.dual_clip}")
    if config.eta < 0:
        raise UserError(f"loss.eta must not be negative, but is {config.eta}; 0 trains without rehearsal")
    if config.aggregation == "dr_grpo" and config.dr_grpo_length < 1:
        raise UserError(
            f"loss.aggregation 'dr_grpo' needs loss.dr_grpo_length (the largest response length in tokens), "
            f"but it is {config.dr_grpo_length}"
        )
    if config.estimator == "definition" and config.divergence != "js":
        raise UserError(
            f"loss.estimator 'definition' exists for loss.divergence 'js' only, not for {config.divergence!r}; "
            "use estimator 'generator'"
        )
    if config.estimator != "definition" and config.js_scale != 1.0:
        raise UserError("loss.js_scale applies to loss.estimator 'definition' only; scale loss.eta instead")
    if config.kl == "none" and config.kl_coef:
        raise UserError(f"loss.kl_coef is {config.kl_coef} but loss.kl is 'none'; choose an estimator such as 'k3'")


def needs_rollout_ref(config: LossConfig) -> bool:
    """Whether D_exp rows need ref_logprobs, that is, whether training needs a live reference model."""
    return config.kl != "none" or (config.estimator == "definition" and config.eta > 0)


def rehearsal_divergence(config: LossConfig) -> Divergence:
    """What is applied on D_pef: the chosen generator, or the first half of JS by its definition."""
    if config.estimator == "definition":
        return js_reference_half(scale=config.js_scale, official=config.official)
    return get_divergence(config.divergence, alpha=config.alpha, official=config.official)


def _token_weights(mask: Tensor, config: LossConfig) -> Tensor:
    """[B, T]: share of each token in its row's part of the sum."""
    if config.aggregation == "sequence":
        return mask / mask.sum(-1, keepdim=True).clamp(min=1)
    if config.aggregation == "dr_grpo":
        return mask / config.dr_grpo_length
    return mask


def hybrid_loss(
    logprobs: Tensor,
    batch: LossBatch,
    counts: LossCounts,
    config: LossConfig,
    entropy: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """One micro-batch's contribution to the objective (eq. 7), and detached sums for metrics.

    logprobs: [B, T] log π_θ of the response tokens, with gradient.
    counts: of the whole mini-batch, over micro-batches and ranks; see `LossCounts`.
    entropy: [B, T] entropies of π_θ (with gradient where entropy_coef ≠ 0); KL and entropy apply to D_exp rows only.
    Returns the loss (scalar) and sums that add up over micro-batches and ranks; `mean_metrics` divides them. Which keys
    there are depends on the config and on whether entropy is given, so all ranks have the same.
    Raises UserError for contradictory settings, ValueError where the batch lacks what the settings need.
    """
    check_loss_config(config)
    weights = term_weights(counts, config)
    mask = batch.response_mask.bool()
    pef_rows = batch.is_rehearsal.bool()[:, None]
    dtype = torch.promote_types(logprobs.dtype, torch.float32)
    exp, pef = (mask & ~pef_rows).to(dtype), (mask & pef_rows).to(dtype)
    share = _token_weights(mask.to(dtype), config)
    sums = {"exp/tokens": exp.sum(), "pef/tokens": pef.sum()}

    loss_exp = policy_loss(
        logprobs,
        batch.old_logprobs,
        batch.advantages,
        exp,
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        dual_clip=config.dual_clip,
    )
    sums["exp/policy_loss"] = loss_exp.sum()
    sums |= _policy_sums(logprobs, batch, exp, config)
    if config.kl != "none":
        kl = kl_loss(logprobs, _ref(batch), exp, config.kl, batch.old_logprobs)
        loss_exp = loss_exp + config.kl_coef * kl
        sums["exp/kl_loss"] = kl.sum()
    if config.estimator == "definition" and config.eta > 0:
        js = js_definition_policy_term(
            logprobs, batch.old_logprobs, _ref(batch), exp, scale=config.js_scale, official=config.official
        )
        loss_exp = loss_exp + weights.js_lambda * js
        sums["exp/js_policy_term"] = js.sum()
    if entropy is not None:
        entropy = torch.where(exp.bool(), entropy.to(dtype), 0.0)
        loss_exp = loss_exp - config.entropy_coef * entropy
        sums["exp/entropy"] = entropy.sum()
    elif config.entropy_coef:
        raise ValueError("loss.entropy_coef is set, but hybrid_loss was given no entropy")
    loss = weights.exp * (share * loss_exp).sum()

    if config.eta > 0:
        f, rehearsal_sums = _rehearsal_terms(logprobs, batch, pef, config)
        loss = loss + weights.pef * (share * f).sum()
        sums |= rehearsal_sums
    sums["loss"] = loss
    return loss, {name: value.detach() for name, value in sums.items()}


def _rehearsal_terms(
    logprobs: Tensor, batch: LossBatch, pef: Tensor, config: LossConfig
) -> tuple[Tensor, dict[str, Tensor]]:
    """f(u) of every token of D_pef, [B, T] and 0 elsewhere, and the sums for its metrics."""
    divergence = rehearsal_divergence(config)
    # A micro-batch without D_pef rows may come without ref_logprobs; its sums are 0 either way.
    ref = torch.zeros_like(logprobs) if batch.ref_logprobs is None and not pef.any() else _ref(batch)
    f = rehearsal_loss(logprobs, ref, pef, divergence)
    with torch.no_grad():
        log_ratio = masked_log_ratio(logprobs, ref, pef)
        return f, {
            "pef/divergence": f.sum(),
            "pef/log_ratio": log_ratio.sum(),
            "pef/pull_weight": (divergence.pull_weight(log_ratio) * pef).sum(),
            "pef/forgotten": (log_ratio.exp() < FORGOTTEN_BELOW).to(pef.dtype).sum(),
        }


def _ref(batch: LossBatch) -> Tensor:
    if batch.ref_logprobs is None:
        raise ValueError("the loss needs ref_logprobs, but the batch has none")
    return batch.ref_logprobs


@torch.no_grad()
def _policy_sums(logprobs: Tensor, batch: LossBatch, exp: Tensor, config: LossConfig) -> dict[str, Tensor]:
    """How far π_θ is from π_old on rollouts, and how many tokens the clips keep from moving on."""
    ratio = importance_ratio(logprobs, batch.old_logprobs, exp)
    advantages = per_token(batch.advantages)
    up, down = advantages > 0, advantages < 0
    return {
        "exp/ratio": (ratio * exp).sum(),
        "exp/old_kl": (ratio - 1 - ratio.log()).sum(),
        "exp/clipped_high": ((ratio > 1 + config.clip_high) & up).to(exp.dtype).sum(),
        "exp/clipped_low": ((ratio < 1 - config.clip_low) & down).to(exp.dtype).sum(),
        "exp/dual_clipped": ((ratio > config.dual_clip) & down).to(exp.dtype).sum() * bool(config.dual_clip),
    }


def mean_metrics(sums: dict[str, Tensor]) -> dict[str, float]:
    """Means per token from added-up sums of `hybrid_loss`; token counts and "loss" stay as they are.

    A set without tokens yields no means.
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
def rehearsal_diagnostics(
    logprobs: Tensor,
    ref_logprobs: Tensor,
    mask: Tensor,
    divergence: Divergence,
    quantiles: Sequence[float] = (0.01, 0.1, 0.5, 0.9, 0.99),
) -> dict[str, float]:
    """How the policy stands to D_pef: quantiles of log u, share of forgotten tokens (u < 0.1), mean pull weight.

    All tensors [B, T]. js and alpha lose their pull on tokens that are already forgotten; these numbers show it. Keys:
    log_ratio_q01 … log_ratio_q99, forgotten, pull_weight; empty where the mask is.
    """
    log_ratio = masked_log_ratio(logprobs, ref_logprobs, mask)[mask.bool()]
    if log_ratio.numel() == 0:
        return {}
    levels = torch.tensor(quantiles, dtype=log_ratio.dtype, device=log_ratio.device)
    out = {
        f"log_ratio_q{round(100 * level):02d}": value
        for level, value in zip(quantiles, torch.quantile(log_ratio, levels).tolist(), strict=True)
    }
    out["forgotten"] = float((log_ratio.exp() < FORGOTTEN_BELOW).to(log_ratio.dtype).mean())
    out["pull_weight"] = float(divergence.pull_weight(log_ratio).mean())
    return out
