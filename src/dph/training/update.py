"""The optimizer updates of one step on mixed mini-batches (eq. 7), and the metrics that they report."""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import KW_ONLY, asdict, dataclass, replace
from functools import partial

import torch
from torch import Tensor

from dph.errors import is_out_of_memory
from dph.models.batch import Tokens
from dph.models.policy import Policy
from dph.objective.objective import LossCounts, Objective, mean_metrics, rehearsal_diagnostics, sampler_correction
from dph.process.distributed import World
from dph.process.progress import doing, say
from dph.sampling.seeding import derive_key, uniforms
from dph.training.optim import Optimizer
from dph.training.rows import Batch, Row, batches
from dph.types import of_policy, on_all

Groups = Sequence[Sequence[Row]]
"""The rows of some prompts, a list for each prompt."""


def recomputes_old(rule: str, engine: str, precision: str) -> bool:
    """Whether the trainer recomputes log π_old, or takes what the sampler reported.

    Args:
        rule: the setting `rollout.old_logprobs`. "auto" recomputes unless the numbers are the same: the built-in
            sampler in fp32 computes the trainer's own numbers, and other samplers do not.
        engine: the setting `sampler.engine`.
        precision: the setting `model.precision`.

    >>> [recomputes_old("auto", *how) for how in (("hf", "fp32"), ("hf", "bf16"), ("vllm", "fp32"))]
    [False, True, True]
    """
    return rule == "recompute" or (rule == "auto" and (engine != "hf" or precision != "fp32"))


def count_rows(rows: Sequence[Row]) -> LossCounts:
    """The denominators that rows contribute to a mini-batch (`LossCounts`). A row counts as often as its weight says.

    >>> rows = [Row([1, 2], [3, 4, 5]), Row([1, 2], [6], weight=0.0), Row([7], [8, 9], is_rehearsal=True)]
    >>> count_rows(rows)
    LossCounts(exp_tokens=3.0, pef_tokens=2.0, exp_sequences=1.0, pef_sequences=1.0)
    """
    counted = [row for row in rows if row.weight > 0 and row.counted > 0]
    exp, pef = ([row for row in counted if row.is_rehearsal is kind] for kind in (False, True))
    tokens = [sum(row.weight * row.counted for row in rows) for rows in (exp, pef)]
    return LossCounts(*tokens, *(sum(row.weight for row in rows) for rows in (exp, pef)))


def split_by_gradient(groups: Groups, objective: Objective) -> tuple[list[list[Row]], list[list[Row]]]:
    """Divide groups into those that have a gradient under this objective, and those that only the metrics need.

    A rollout with an advantage of 0 has a gradient only if the objective learns everywhere. Groups stay whole, because
    their rows are computed together; rows of weight 0 are left out. If no row has a gradient, the first group is
    treated as if it had one. Its gradient is zero, and lets the optimizer advance its moments.

    >>> from dph.config import LossConfig
    >>> groups = [[Row([1], [2], advantage=1.0), Row([1], [3], advantage=-1.0)], [Row([4], [5], advantage=0.0)]]
    >>> moving, still = split_by_gradient(groups, Objective(LossConfig(eta=0.0)))
    >>> len(moving), len(still)
    (1, 1)
    """

    def learns(row: Row) -> bool:
        return objective.config.eta > 0 if row.is_rehearsal else objective.learns_everywhere or row.advances

    counted = [rows for group in groups if (rows := [row for row in group if row.weight > 0])]
    moves = [any(map(learns, group)) for group in counted]
    if moves and not any(moves):
        moves[0] = True
    moving = [group for group, has in zip(counted, moves, strict=True) if has]
    return moving, [group for group, has in zip(counted, moves, strict=True) if not has]


@dataclass
class Updater:
    """Applies the objective to mini-batches, and steps the optimizer once for each of them."""

    policy: Policy
    objective: Objective
    optimizer: Optimizer
    _: KW_ONLY
    temperature: float
    """The temperature of sampling. The log-probabilities of training are taken at the same temperature."""
    token_budget: int
    """Tokens per micro-batch."""
    importance_cap: float = 0.0
    """The largest importance weight of a token that another engine than the trainer sampled; 0 gives all tokens the
    weight 1."""
    own_reference: Policy | None = None
    """A model of its own for π_ref, if training needs π_ref on rollouts. A policy with adapters needs none."""
    world: World
    reduced_budget: int = 0
    """Tokens per micro-batch after memory ran out with `token_budget`, in this run or before it was resumed; else 0."""

    def update(self, minibatches: Sequence[Groups], *, recompute_old: bool) -> dict[str, float]:
        """Take one optimizer step for each mini-batch, in order.

        Args:
            minibatches: the groups of this process in each mini-batch.
            recompute_old: whether to take log π_old from the policy as it is now, and not from the sampler. The first
                mini-batch has log π_old from its own forward pass, before any weight changes.
        Returns:
            Metrics over all mini-batches and all processes (docs/reference/metrics.md).
        """
        if recompute_old:
            minibatches = [
                _filled(groups, "sampled_logprobs", _is_rollout, lambda rows: [row.old_logprobs for row in rows])
                for groups in minibatches
            ]
            later = [_filled(groups, "old_logprobs", _is_rollout, self.logprobs) for groups in minibatches[1:]]
            minibatches = [*minibatches[:1], *later]
        if self.objective.needs_reference:
            minibatches = [
                _filled(groups, "ref_logprobs", lambda row: row.ref_logprobs is None, self.reference_logprobs)
                for groups in minibatches
            ]
        totals: dict[str, float] = {}
        norms: list[float] = []
        log_ratios = [torch.empty(0)]
        loss = 0.0
        for index, groups in enumerate(minibatches):
            doing(f"update {index + 1} of {len(minibatches)}")
            if self.objective.policy.select is not None:
                select = partial(self._selected, moved=index > 0)
                groups = _filled(groups, "selected", lambda row: _is_rollout(row) and row.weight > 0, select)
            sums, ratios, norm = self._step(groups, on_policy=recompute_old and index == 0)
            loss += sums.pop("loss", 0.0)
            for name, value in sums.items():
                totals[name] = totals.get(name, 0.0) + value
            norms.append(norm)
            log_ratios += ratios
        means = mean_metrics({name: torch.tensor(value, dtype=torch.float64) for name, value in totals.items()})
        spread = rehearsal_diagnostics(self.world.joined(torch.cat(log_ratios)), self.objective.divergence)
        means |= {f"pef/{name}": spread.pop(name) for name in ("forgotten", "pull_weight") if name in spread}
        return {
            **dict(sorted(means.items())),
            "loss": loss / max(1, len(norms)),
            "grad_norm": sum(norms) / max(1, len(norms)),
            "skipped_updates": sum(not math.isfinite(norm) for norm in norms),
            **{f"pef/{name}": value for name, value in spread.items()},
        }

    def _step(self, groups: Groups, *, on_policy: bool) -> tuple[dict[str, float], list[Tensor], float]:
        """Take an optimizer step on a mini-batch.

        Returns the sums of the metrics over all processes, log u of the rehearsal tokens of each micro-batch of this
        process, and the norm of the gradient. If memory runs out, the mini-batch is computed again in micro-batches of
        half the size.
        """
        counts = LossCounts(**self.world.sum_values(asdict(count_rows([row for group in groups for row in group]))))
        try:
            accumulated = self._accumulate(groups, counts, on_policy)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error) or self.reduced_budget:
                raise
            accumulated = None
        if accumulated is None:  # outside the handler, which holds on to the tensors of the failed attempt
            self.reduced_budget = max(1, self.token_budget // 2)
            say(f"out of memory: continuing with optim.tokens_per_microbatch {self.reduced_budget}")
            self.optimizer.clear()
            accumulated = self._accumulate(groups, counts, on_policy)
        sums, log_ratios = accumulated
        self.world.sum_gradients(self.optimizer.parameters)
        norm = self.optimizer.step()
        names = sorted({name for names in self.world.gather(sorted(sums)) for name in names})
        return self.world.sum_values({name: float(sums.get(name, 0.0)) for name in names}), log_ratios, norm

    def _accumulate(
        self, groups: Groups, counts: LossCounts, on_policy: bool
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Add up the gradient of a mini-batch, micro-batch by micro-batch.

        Returns the sums of the metrics of this process, and log u of the rehearsal tokens of each micro-batch, in nats.

        on_policy: whether the policy as it is now is the one whose log-probabilities count as log π_old.
        """
        sums: dict[str, Tensor] = {}
        log_ratios: list[Tensor] = []
        moving, still = split_by_gradient(groups, self.objective)
        with self.policy.casting_once():
            for rows, learns in ((moving, True), (still, False)):
                for _, batch in batches(self.policy, rows, self.budget):
                    logprobs, terms = self._pass(batch, counts, on_policy, learns)
                    for name, value in terms.items():
                        sums[name] = sums[name] + value if name in sums else value
                    if batch.ref_logprobs is not None and bool(batch.is_rehearsal.any()):
                        counted = (batch.response_mask * batch.is_rehearsal[:, None]).bool()
                        log_ratios.append((logprobs - batch.ref_logprobs)[counted].cpu())
        return sums, log_ratios

    def _pass(
        self, batch: Batch, counts: LossCounts, on_policy: bool, learns: bool
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The log-probabilities of a micro-batch, [B, T] in nats and without gradient, and the sums of its metrics.

        learns: whether the gradient of the micro-batch is added to the gradients of the parameters.
        """
        entropy_mode = "gradient" if self.objective.config.entropy_coef else "value"
        importance, gaps = None, {}
        with torch.set_grad_enabled(learns):
            logprobs, entropy = self.policy.logprobs(batch, self.temperature, entropy=entropy_mode)
            if on_policy:
                batch = replace(batch, old_logprobs=logprobs.detach())
            if batch.sampled_logprobs is not None:
                mask = batch.response_mask * ~batch.is_rehearsal[:, None]
                importance, gaps = sampler_correction(
                    batch.old_logprobs, batch.sampled_logprobs, mask, self.importance_cap
                )
            loss, terms = self.objective(logprobs, batch, counts, entropy, importance)
        if learns:
            loss.backward()
        return logprobs.detach(), terms | gaps

    def reference_logprobs(self, rows: Sequence[Tokens]) -> list[list[float]]:
        """log π_ref of every response token of every row, in nats. π_ref is the model `own_reference` or, for a policy
        with adapters, the policy with its adapters switched off."""
        policy = self.own_reference or self.policy
        with self.policy.reference() if self.own_reference is None else nullcontext():
            return policy.response_logprobs(rows, self.temperature, self.budget)

    def logprobs(self, rows: Sequence[Tokens]) -> list[list[float]]:
        """log π of every response token of every row under the policy as it is, in nats."""
        return self.policy.response_logprobs(rows, self.temperature, self.budget)

    def _selected(self, rows: Sequence[Row], *, moved: bool) -> list[Sequence[bool]]:
        """Which tokens of the rollouts of this process the policy loss selects among the rollouts of all processes: of
        those that the policy wrote.

        The random numbers of the selection depend on the response and on the number of optimizer steps that were taken.
        A resumed run, and a run with another number of processes, therefore draw the same numbers.

        moved: whether the policy is not the one of log π_old any more.
        """
        assert self.objective.policy.select is not None
        columns = [
            [row.old_logprobs for row in rows],
            [row.token_advantages for row in rows],
            [self._random(row) for row in rows],
        ]
        if moved and self.objective.policy.selects_by_policy:
            columns.append(self.logprobs(rows))
        marks = [row.written for row in rows]
        old, advantages, uniform, *now = (
            self.world.joined(torch.tensor([value for row in column for value in row], dtype=torch.float32))
            for column in (list(map(of_policy, values, marks)) for values in columns)
        )
        sizes = [row.counted for row in rows]
        before = sum(self.world.gather(sum(sizes))[: self.world.rank])
        current = {"logprobs": now[0]} if now else {}
        chosen = self.objective.policy.select(old, advantages, uniform, **current)[before : before + sum(sizes)]
        return [on_all(part.tolist(), of_row, False) for part, of_row in zip(chosen.split(sizes), marks, strict=True)]

    def _random(self, row: Row) -> list[float]:
        """A number in [0, 1) for each token of a response."""
        key = derive_key(self.optimizer.steps_taken, "select", *row.prompt_ids, "response", *row.response_ids)
        return uniforms(torch.tensor([key]), torch.arange(len(row.response_ids))).tolist()

    @property
    def budget(self) -> int:
        """Tokens per micro-batch."""
        return self.reduced_budget or self.token_budget


def _is_rollout(row: Row) -> bool:
    return not row.is_rehearsal


def _filled(
    groups: Groups, field: str, where: Callable[[Row], bool], values: Callable[[list[Row]], Iterable[object]]
) -> list[list[Row]]:
    """The groups, in which a field of some rows has other values.

    field: the name of the field. where: whether a row gets another value. values: computes the values of these rows, in
    order, from all of them.
    """
    computed = iter(values([row for group in groups for row in group if where(row)]))
    return [[replace(row, **{field: next(computed)}) if where(row) else row for row in group] for group in groups]
