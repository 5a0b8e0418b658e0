"""One step's optimizer updates on mixed mini-batches (eq. 7), and what they report."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from dph.config.schema import LossConfig, TrainConfig
from dph.errors import is_out_of_memory
from dph.models.batch import Batch, Row
from dph.models.packing import group_by_prompt
from dph.models.policy import Policy
from dph.objective.correction import sampler_correction
from dph.objective.losses import (
    LossCounts,
    hybrid_loss,
    mean_metrics,
    needs_rollout_ref,
    rehearsal_diagnostics,
    rehearsal_divergence,
)
from dph.process.distributed import World
from dph.process.progress import say
from dph.rehearsal.store import reference_logprobs
from dph.training.optim import Optimizer


def count_rows(rows: Sequence[Row]) -> LossCounts:
    """Denominators of rows; see LossCounts."""
    counted = [row for row in rows if row.weight > 0 and len(row.response_ids) > 0]
    exp = [len(row.response_ids) for row in counted if not row.is_rehearsal]
    pef = [len(row.response_ids) for row in counted if row.is_rehearsal]
    return LossCounts(sum(exp), sum(pef), len(exp), len(pef))


def split_by_gradient(rows: Sequence[Row], config: LossConfig) -> tuple[list[Row], list[Row]]:
    """Rows whose prompts have a gradient in this loss, and rows that only the metrics need.

    A rollout without advantage has a gradient through KL, JS by its definition or entropy alone; a row without weight
    has none, and none of its tokens counts. Prompts are kept whole, as their rows are computed together. If no row has
    a gradient, one prompt is taken for one that has: its zeros let the optimizer step on with its moments.
    """
    everywhere = needs_rollout_ref(config) or bool(config.entropy_coef)
    counted = [row for row in rows if row.weight > 0]

    def learns(row: Row) -> bool:
        return bool(config.eta) if row.is_rehearsal else everywhere or row.advantage != 0

    groups = [[counted[index] for index in indices] for indices in group_by_prompt(counted)]
    moves = [any(learns(row) for row in group) for group in groups]
    if not any(moves):
        moves[:1] = [True] * len(moves[:1])
    moving = [row for group, has in zip(groups, moves, strict=True) if has for row in group]
    still = [row for group, has in zip(groups, moves, strict=True) if not has for row in group]
    return moving, still


def _keeping_sampled(row: Row) -> Row:
    return row if row.is_rehearsal else replace(row, sampled_logprobs=row.old_logprobs)


class Updater:
    """Applies the objective to mini-batches of rows."""

    def __init__(
        self,
        policy: Policy,
        reference: Policy | None,
        optimizer: Optimizer,
        config: TrainConfig,
        world: World,
        token_budget: int = 0,
    ) -> None:
        """
        Args:
            reference: π_ref, where the objective needs it on rollouts; a policy with adapters is its own.
            token_budget: replaces that of the settings when it is not 0.
        """
        self.reduced_budget = token_budget
        """Tokens per micro-batch where memory ran out with those of the settings; else 0."""
        self._policy, self._reference, self._optimizer = policy, reference, optimizer
        self._config, self._world = config, world
        self._loss = config.loss
        self._temperature = config.rollout.temperature

    def update(self, minibatches: Sequence[Sequence[Row]], *, recompute_old: bool) -> dict[str, float]:
        """One optimizer step for each mini-batch, in order.

        Args:
            minibatches: this process's rows of each.
            recompute_old: take log π_old from the policy as it is now instead of from the sampler. The first
                mini-batch has it from its own forward pass, as no weight has changed until then.
        Returns:
            Metrics over all mini-batches and processes.
        """
        if recompute_old:
            minibatches = [[_keeping_sampled(row) for row in rows] for rows in minibatches]
        later = [self._with_old(rows) if recompute_old else rows for rows in minibatches[1:]]
        prepared = [self._with_reference(rows) for rows in [*minibatches[:1], *later]]
        totals: dict[str, float] = {}
        norms, skipped = [], 0
        seen: list[tuple[Tensor, Tensor, Tensor]] = []
        loss = 0.0
        for index, rows in enumerate(prepared):
            sums, norm = self._step(rows, recompute_old and index == 0, seen)
            loss += sums.pop("loss", 0.0)
            for name, value in sums.items():
                totals[name] = totals.get(name, 0.0) + value
            norms.append(norm)
            skipped += not math.isfinite(norm)
        metrics = mean_metrics({name: torch.tensor(value, dtype=torch.float64) for name, value in totals.items()})
        metrics["loss"] = loss / max(1, len(norms))
        metrics["grad_norm"] = sum(norms) / max(1, len(norms))
        metrics["skipped_updates"] = skipped
        metrics.update(self._diagnose(seen))
        return metrics

    def _step(
        self, rows: Sequence[Row], on_policy: bool, seen: list[tuple[Tensor, Tensor, Tensor]]
    ) -> tuple[dict[str, float], float]:
        config = self._config
        own = count_rows(rows)
        fields = {name: float(getattr(own, name)) for name in LossCounts.__dataclass_fields__}
        counts = LossCounts(**self._world.sum_values(fields))
        try:
            sums = self._accumulate(rows, counts, on_policy, seen)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error) or self.reduced_budget:
                raise
            sums = None
        if sums is None:  # outside the handler, which holds on to the tensors of the failed attempt
            self.reduced_budget = max(1, config.optim.tokens_per_microbatch // 2)
            say(f"out of memory: going on with optim.tokens_per_microbatch {self.reduced_budget}")
            self._optimizer.clear()
            sums = self._accumulate(rows, counts, on_policy, seen)
        self._world.sum_gradients(self._optimizer.parameters)
        norm = self._optimizer.step()
        names = sorted({name for names in self._world.gather(sorted(sums)) for name in names})
        reduced = self._world.sum_values({name: float(sums.get(name, 0.0)) for name in names})
        return reduced, norm

    def _accumulate(
        self, rows: Sequence[Row], counts: LossCounts, on_policy: bool, seen: list[tuple[Tensor, Tensor, Tensor]]
    ) -> dict[str, Tensor]:
        """Add the gradient of a mini-batch, micro-batch by micro-batch; returns the sums of its metrics. `seen` grows
        by what the diagnosis of the step needs, unless this fails.

        on_policy: the policy is the one whose log-probabilities are to count as log π_old.
        """
        sums: dict[str, Tensor] = {}
        found: list[tuple[Tensor, Tensor, Tensor]] = []
        entropy_mode = "gradient" if self._loss.entropy_coef else "value"
        for part, learns in zip(split_by_gradient(rows, self._loss), (True, False), strict=True):
            for _, batch in self._policy.microbatches(part, self._budget):
                with torch.set_grad_enabled(learns):
                    logprobs, entropy = self._policy.logprobs(batch, self._temperature, entropy=entropy_mode)
                    if on_policy:
                        batch = replace(batch, old_logprobs=logprobs.detach())
                    batch, gaps = self._corrected(batch)
                    loss, parts = hybrid_loss(logprobs, batch, counts, self._loss, entropy)
                    parts |= gaps
                if learns:
                    loss.backward()
                for name, value in parts.items():
                    sums[name] = sums[name] + value if name in sums else value
                if batch.ref_logprobs is not None and bool(batch.is_rehearsal.any()):
                    mask = batch.response_mask * batch.is_rehearsal[:, None]
                    found.append((logprobs.detach(), batch.ref_logprobs, mask))
        seen += found
        return sums

    def _corrected(self, batch: Batch) -> tuple[Batch, dict[str, Tensor]]:
        """The batch with advantages weighed token by token, where the sampler's probabilities are not the trainer's."""
        if batch.sampled_logprobs is None:
            return batch, {}
        mask = batch.response_mask * ~batch.is_rehearsal[:, None]
        cap = self._config.rollout.importance_cap
        weights, sums = sampler_correction(batch.old_logprobs, batch.sampled_logprobs, mask, cap)
        return replace(batch, advantages=batch.advantages[:, None] * weights), sums

    def _with_old(self, rows: Sequence[Row]) -> list[Row]:
        values = self._rollout_logprobs(self._policy, rows)
        return [row if row.is_rehearsal else replace(row, old_logprobs=next(values)) for row in rows]

    def _with_reference(self, rows: Sequence[Row]) -> list[Row]:
        if not needs_rollout_ref(self._config.loss):
            return list(rows)
        if self._reference is not None:
            values = self._rollout_logprobs(self._reference, rows)
        else:
            with self._policy.reference():
                values = self._rollout_logprobs(self._policy, rows)
        return [row if row.is_rehearsal else replace(row, ref_logprobs=next(values)) for row in rows]

    def _rollout_logprobs(self, policy: Policy, rows: Sequence[Row]) -> Iterator[list[float]]:
        """Log-probabilities under a policy of those rows that are rollouts, in order."""
        fresh = [row for row in rows if not row.is_rehearsal]
        return iter(reference_logprobs(policy, fresh, self._temperature, self._budget) if fresh else [])

    @property
    def _budget(self) -> int:
        return self.reduced_budget or self._config.optim.tokens_per_microbatch

    def _diagnose(self, seen: Sequence[tuple[Tensor, Tensor, Tensor]]) -> dict[str, float]:
        """Quantiles of log u on D_pef over the step and all processes."""
        if self._config.rehearsal.rows == 0:
            return {}
        own = torch.cat([(new - ref)[mask.bool()] for new, ref, mask in seen]).cpu() if seen else torch.empty(0)
        every = torch.cat([torch.as_tensor(values) for values in self._world.gather(own)])
        divergence = rehearsal_divergence(self._config.loss)
        line = every[None]
        found = rehearsal_diagnostics(line, torch.zeros_like(line), torch.ones_like(line), divergence)
        return {f"pef/{name}": value for name, value in found.items()}
