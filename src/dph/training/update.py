"""One step's optimizer updates on mixed mini-batches (eq. 7), and the metrics they report."""

import math
from collections.abc import Sequence
from dataclasses import asdict, replace

import torch
from torch import Tensor

from dph.errors import is_out_of_memory
from dph.models.packing import group_by_prompt
from dph.models.policy import Policy
from dph.objective.objective import LossCounts, Objective, mean_metrics, rehearsal_diagnostics, sampler_correction
from dph.process.distributed import World
from dph.process.progress import doing, say
from dph.sampling.seeding import derive_key, uniforms
from dph.training.optim import Optimizer
from dph.training.reference import Reference
from dph.training.rows import Batch, Row, advantage_by_token, batches


def count_rows(rows: Sequence[Row]) -> LossCounts:
    """Denominators of rows; see `LossCounts`."""
    counted = [row for row in rows if row.weight > 0 and len(row.response_ids) > 0]
    exp = [len(row.response_ids) for row in counted if not row.is_rehearsal]
    pef = [len(row.response_ids) for row in counted if row.is_rehearsal]
    return LossCounts(sum(exp), sum(pef), len(exp), len(pef))


def split_by_gradient(rows: Sequence[Row], objective: Objective) -> tuple[list[Row], list[Row]]:
    """Rows whose prompts have a gradient under this objective, and rows that only the metrics need.

    A rollout without advantage has a gradient only if the objective learns everywhere. A row without weight
    has none, and none of its tokens counts. Prompts are kept whole, because their rows are computed together. If no row
    has a gradient, the first prompt is treated as if it had one: its zero gradient lets the optimizer advance its
    moments.
    """
    counted = [row for row in rows if row.weight > 0]

    def learns(row: Row) -> bool:
        return objective.config.eta > 0 if row.is_rehearsal else objective.learns_everywhere or row.advances

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
        objective: Objective,
        optimizer: Optimizer,
        *,
        temperature: float,
        token_budget: int,
        reduced_budget: int = 0,
        importance_cap: float = 0.0,
        own_reference: Policy | None = None,
        world: World,
    ) -> None:
        """
        Args:
            temperature: of sampling; log-probabilities of training are taken at the same.
            token_budget: tokens per micro-batch.
            reduced_budget: replaces it where memory has run out before; else 0.
            importance_cap: largest weight of a token whose sampler is not the trainer; 0 weighs all alike.
            own_reference: π_ref, where training needs it on rollouts; a policy with adapters needs none.
        """
        self.reduced_budget = reduced_budget
        """Tokens per micro-batch where memory ran out with those of the settings; else 0."""
        self.reference = Reference(policy, own_reference, temperature, lambda: self.budget)
        self._policy, self._objective, self._optimizer, self._world = policy, objective, optimizer, world
        self._temperature, self._token_budget, self._cap = temperature, token_budget, importance_cap

    def update(self, minibatches: Sequence[Sequence[Row]], *, recompute_old: bool) -> dict[str, float]:
        """One optimizer step for each mini-batch, in order.

        Args:
            minibatches: this process's rows of each.
            recompute_old: take log π_old from the policy as it is now instead of from the sampler. The first
                mini-batch has it from its own forward pass, because no weight has changed until then.
        Returns:
            Metrics over all mini-batches and processes.
        """
        if recompute_old:
            minibatches = [[_keeping_sampled(row) for row in rows] for rows in minibatches]
        later = [self._with_old(rows) if recompute_old else rows for rows in minibatches[1:]]
        prepared = [self._with_reference(rows) for rows in [*minibatches[:1], *later]]
        totals: dict[str, float] = {}
        norms, skipped = [], 0
        log_ratios: list[Tensor] = []
        loss = 0.0
        for index, rows in enumerate(prepared):
            doing(f"update {index + 1} of {len(prepared)}")
            rows = self._with_selection(rows, moved=index > 0)
            sums, norm = self._step(rows, recompute_old and index == 0, log_ratios)
            loss += sums.pop("loss", 0.0)
            for name, value in sums.items():
                totals[name] = totals.get(name, 0.0) + value
            norms.append(norm)
            skipped += not math.isfinite(norm)
        means = mean_metrics({name: torch.tensor(value, dtype=torch.float64) for name, value in totals.items()})
        rehearsed = self._diagnose(log_ratios)
        means |= {name: rehearsed.pop(name) for name in ("pef/forgotten", "pef/pull_weight") if name in rehearsed}
        return {
            **dict(sorted(means.items())),
            "loss": loss / max(1, len(norms)),
            "grad_norm": sum(norms) / max(1, len(norms)),
            "skipped_updates": skipped,
            **rehearsed,
        }

    def _step(self, rows: Sequence[Row], on_policy: bool, log_ratios: list[Tensor]) -> tuple[dict[str, float], float]:
        counts = LossCounts(**self._world.sum_values(asdict(count_rows(rows))))
        try:
            sums = self._accumulate(rows, counts, on_policy, log_ratios)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error) or self.reduced_budget:
                raise
            sums = None
        if sums is None:  # outside the handler, which holds on to the tensors of the failed attempt
            self.reduced_budget = max(1, self._token_budget // 2)
            say(f"out of memory: continuing with optim.tokens_per_microbatch {self.reduced_budget}")
            self._optimizer.clear()
            sums = self._accumulate(rows, counts, on_policy, log_ratios)
        self._world.sum_gradients(self._optimizer.parameters)
        norm = self._optimizer.step()
        names = sorted({name for names in self._world.gather(sorted(sums)) for name in names})
        reduced = self._world.sum_values({name: float(sums.get(name, 0.0)) for name in names})
        return reduced, norm

    def _accumulate(
        self, rows: Sequence[Row], counts: LossCounts, on_policy: bool, log_ratios: list[Tensor]
    ) -> dict[str, Tensor]:
        """Add the gradient of a mini-batch, micro-batch by micro-batch; returns the sums of its metrics.

        on_policy: the policy is the one whose log-probabilities count as log π_old.
        log_ratios: grows by log u of the rehearsal tokens of each micro-batch, unless this fails.
        """
        sums: dict[str, Tensor] = {}
        found: list[Tensor] = []
        with self._policy.casting_once():
            for part, learns in zip(split_by_gradient(rows, self._objective), (True, False), strict=True):
                for _, batch in batches(self._policy, part, self.budget):
                    logprobs, parts = self._pass(batch, counts, on_policy, learns)
                    for name, value in parts.items():
                        sums[name] = sums[name] + value if name in sums else value
                    if batch.ref_logprobs is not None and bool(batch.is_rehearsal.any()):
                        counted = (batch.response_mask * batch.is_rehearsal[:, None]).bool()
                        found.append((logprobs - batch.ref_logprobs)[counted].cpu())
        log_ratios += found
        return sums

    def _pass(
        self, batch: Batch, counts: LossCounts, on_policy: bool, learns: bool
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """A micro-batch's log-probabilities, without gradient, and sums of its metrics.

        learns: its gradient is added to that of the parameters.
        """
        entropy_mode = "gradient" if self._objective.config.entropy_coef else "value"
        with torch.set_grad_enabled(learns):
            logprobs, entropy = self._policy.logprobs(batch, self._temperature, entropy=entropy_mode)
            if on_policy:
                batch = replace(batch, old_logprobs=logprobs.detach())
            importance, gaps = self._importance(batch)
            loss, parts = self._objective(logprobs, batch, counts, entropy, importance)
        if learns:
            loss.backward()
        return logprobs.detach(), parts | gaps

    def _importance(self, batch: Batch) -> tuple[Tensor | None, dict[str, Tensor]]:
        """Weights of the tokens where the sampler's probabilities are not the trainer's, and sums for metrics."""
        if batch.sampled_logprobs is None:
            return None, {}
        mask = batch.response_mask * ~batch.is_rehearsal[:, None]
        return sampler_correction(batch.old_logprobs, batch.sampled_logprobs, mask, self._cap)

    def _with_old(self, rows: Sequence[Row]) -> list[Row]:
        rollouts = [row for row in rows if not row.is_rehearsal]
        if not rollouts:
            return list(rows)
        values = iter(self._policy.response_logprobs(rollouts, self._temperature, self.budget))
        return [row if row.is_rehearsal else replace(row, old_logprobs=next(values)) for row in rows]

    def _with_reference(self, rows: Sequence[Row]) -> list[Row]:
        if not self._objective.needs_reference:
            return list(rows)
        lacking = [row for row in rows if row.ref_logprobs is None]
        values = iter(self.reference.logprobs(lacking))
        return [row if row.ref_logprobs is not None else replace(row, ref_logprobs=next(values)) for row in rows]

    def _with_selection(self, rows: Sequence[Row], *, moved: bool) -> list[Row]:
        """The rows with the tokens marked that the policy loss selects among the rollouts of all processes.

        moved: the policy is not the one of log π_old any more.

        The random numbers depend only on the response and the number of optimizer steps taken: resumed runs and other
        numbers of processes draw the same.
        """
        if self._objective.select is None:
            return list(rows)
        rollouts = [row for row in rows if not row.is_rehearsal and row.weight > 0]
        sizes = [len(row.response_ids) for row in rollouts]
        columns = [
            [row.old_logprobs for row in rollouts],
            [advantage_by_token(row) for row in rollouts],
            [self._random(row) for row in rollouts],
        ]
        if moved and self._objective.selects_by_policy:
            columns.append(self._policy.response_logprobs(rollouts, self._temperature, self.budget) if rollouts else [])
        old, advantages, uniform, *now = (
            self._world.joined(torch.tensor([value for row in column for value in row], dtype=torch.float32))
            for column in columns
        )
        before = sum(self._world.gather(sum(sizes))[: self._world.rank])
        given = {"logprobs": now[0]} if now else {}
        chosen = self._objective.select(old, advantages, uniform, **given)[before : before + sum(sizes)]
        marked = zip(rollouts, chosen.split(sizes), strict=True)
        stored = [row for row in rows if row.is_rehearsal]
        return stored + [replace(row, selected=mark.tolist()) for row, mark in marked]

    def _random(self, row: Row) -> list[float]:
        """A number in [0, 1) for each token of a response."""
        key = derive_key(self._optimizer.steps_taken, "select", *row.prompt_ids, "response", *row.response_ids)
        return uniforms(torch.tensor([key]), torch.arange(len(row.response_ids))).tolist()

    @property
    def budget(self) -> int:
        """Tokens per micro-batch."""
        return self.reduced_budget or self._token_budget

    def _diagnose(self, log_ratios: Sequence[Tensor]) -> dict[str, float]:
        """Quantiles of log u on D_pef over the step and all processes, and what `rehearsal_diagnostics` adds."""
        every = self._world.joined(torch.cat([*log_ratios, torch.empty(0)]))
        found = rehearsal_diagnostics(every, self._objective.divergence)
        return {f"pef/{name}": value for name, value in found.items()}
