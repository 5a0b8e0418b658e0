"""One step's optimizer updates on mixed mini-batches (eq. 7), and the metrics they report."""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace

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

Groups = Sequence[Sequence[Row]]
"""The rows of some prompts, those of one prompt together."""


def recomputes_old(rule: str, engine: str, precision: str) -> bool:
    """Whether the trainer recomputes log π_old, because the sampler's own numbers are not exact.

    Args:
        rule: `rollout.old_logprobs`, "auto", "sampler" or "recompute".
        engine: the sampler's name; the built-in one in fp32 computes the trainer's own numbers.
        precision: of the policy.
    """
    return rule == "recompute" or (rule == "auto" and (engine != "hf" or precision != "fp32"))


def count_rows(rows: Sequence[Row]) -> LossCounts:
    """Denominators of rows; see `LossCounts`."""
    counted = [row for row in rows if row.weight > 0 and len(row.response_ids) > 0]
    exp = [len(row.response_ids) for row in counted if not row.is_rehearsal]
    pef = [len(row.response_ids) for row in counted if row.is_rehearsal]
    return LossCounts(sum(exp), sum(pef), len(exp), len(pef))


def split_by_gradient(groups: Groups, objective: Objective) -> tuple[list[list[Row]], list[list[Row]]]:
    """The groups that have a gradient under this objective, and those that only the metrics need.

    A rollout without advantage has a gradient only if the objective learns everywhere. A row without weight has none,
    and none of its tokens counts. Groups are kept whole, because their rows are computed together. If no row has a
    gradient, the first group is treated as if it had one: its zero gradient lets the optimizer advance its moments.
    """

    def learns(row: Row) -> bool:
        return objective.config.eta > 0 if row.is_rehearsal else objective.learns_everywhere or row.advances

    counted = [rows for group in groups if (rows := [row for row in group if row.weight > 0])]
    moves = [any(map(learns, group)) for group in counted]
    if moves and not any(moves):
        moves[0] = True
    moving = [group for group, has in zip(counted, moves, strict=True) if has]
    return moving, [group for group, has in zip(counted, moves, strict=True) if not has]


class Updater:
    """Applies the objective to mini-batches, each given as groups."""

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
        self.optimizer = optimizer
        self._policy, self._own_reference, self._objective, self._world = policy, own_reference, objective, world
        self._temperature, self._token_budget, self._cap = temperature, token_budget, importance_cap

    def update(self, minibatches: Sequence[Groups], *, recompute_old: bool) -> dict[str, float]:
        """One optimizer step for each mini-batch, in order.

        Args:
            minibatches: this process's groups of each.
            recompute_old: take log π_old from the policy as it is now instead of from the sampler. The first
                mini-batch has it from its own forward pass, because no weight has changed until then.
        Returns:
            Metrics over all mini-batches and processes.
        """
        if recompute_old:
            minibatches = [_with(g, "sampled_logprobs", _is_rollout, lambda row: row.old_logprobs) for g in minibatches]
        later = [self._with_old(groups) if recompute_old else groups for groups in minibatches[1:]]
        prepared = [self._with_reference(groups) for groups in [*minibatches[:1], *later]]
        totals: dict[str, float] = {}
        norms, skipped = [], 0
        log_ratios: list[Tensor] = []
        loss = 0.0
        for index, groups in enumerate(prepared):
            doing(f"update {index + 1} of {len(prepared)}")
            groups = self._with_selection(groups, moved=index > 0)
            sums, norm = self._step(groups, recompute_old and index == 0, log_ratios)
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

    def _step(self, groups: Groups, on_policy: bool, log_ratios: list[Tensor]) -> tuple[dict[str, float], float]:
        counts = LossCounts(**self._world.sum_values(asdict(count_rows([row for group in groups for row in group]))))
        try:
            sums = self._accumulate(groups, counts, on_policy, log_ratios)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error) or self.reduced_budget:
                raise
            sums = None
        if sums is None:  # outside the handler, which holds on to the tensors of the failed attempt
            self.reduced_budget = max(1, self._token_budget // 2)
            say(f"out of memory: continuing with optim.tokens_per_microbatch {self.reduced_budget}")
            self.optimizer.clear()
            sums = self._accumulate(groups, counts, on_policy, log_ratios)
        self._world.sum_gradients(self.optimizer.parameters)
        norm = self.optimizer.step()
        names = sorted({name for names in self._world.gather(sorted(sums)) for name in names})
        reduced = self._world.sum_values({name: float(sums.get(name, 0.0)) for name in names})
        return reduced, norm

    def _accumulate(
        self, groups: Groups, counts: LossCounts, on_policy: bool, log_ratios: list[Tensor]
    ) -> dict[str, Tensor]:
        """Add the gradient of a mini-batch, micro-batch by micro-batch; returns the sums of its metrics.

        on_policy: the policy is the one whose log-probabilities count as log π_old.
        log_ratios: grows by log u of the rehearsal tokens of each micro-batch, unless this fails.
        """
        sums: dict[str, Tensor] = {}
        new_ratios: list[Tensor] = []
        moving, still = split_by_gradient(groups, self._objective)
        with self._policy.casting_once():
            for some, learns in ((moving, True), (still, False)):
                for _, batch in batches(self._policy, some, self.budget):
                    logprobs, terms = self._pass(batch, counts, on_policy, learns)
                    for name, value in terms.items():
                        sums[name] = sums[name] + value if name in sums else value
                    if batch.ref_logprobs is not None and bool(batch.is_rehearsal.any()):
                        counted = (batch.response_mask * batch.is_rehearsal[:, None]).bool()
                        new_ratios.append((logprobs - batch.ref_logprobs)[counted].cpu())
        log_ratios += new_ratios
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
            loss, terms = self._objective(logprobs, batch, counts, entropy, importance)
        if learns:
            loss.backward()
        return logprobs.detach(), terms | gaps

    def _importance(self, batch: Batch) -> tuple[Tensor | None, dict[str, Tensor]]:
        """Weights of the tokens where the sampler's probabilities are not the trainer's, and sums for metrics."""
        if batch.sampled_logprobs is None:
            return None, {}
        mask = batch.response_mask * ~batch.is_rehearsal[:, None]
        return sampler_correction(batch.old_logprobs, batch.sampled_logprobs, mask, self._cap)

    def reference_logprobs(self, rows: Sequence[Tokens]) -> list[list[float]]:
        """log π_ref of every response token of every row, in nats: of a model of its own or, for a policy with
        adapters, of the policy with its adapters switched off."""
        policy = self._own_reference or self._policy
        with self._policy.reference() if self._own_reference is None else nullcontext():
            return policy.response_logprobs(rows, self._temperature, self.budget) if rows else []

    def _with_old(self, groups: Groups) -> Groups:
        rollouts = [row for group in groups for row in group if _is_rollout(row)]
        if not rollouts:
            return groups
        logprobs = iter(self._policy.response_logprobs(rollouts, self._temperature, self.budget))
        return _with(groups, "old_logprobs", _is_rollout, lambda _: next(logprobs))

    def _with_reference(self, groups: Groups) -> Groups:
        if not self._objective.needs_reference:
            return groups

        def lacks(row: Row) -> bool:
            return row.ref_logprobs is None

        logprobs = iter(self.reference_logprobs([row for group in groups for row in group if lacks(row)]))
        return _with(groups, "ref_logprobs", lacks, lambda _: next(logprobs))

    def _with_selection(self, groups: Groups, *, moved: bool) -> Groups:
        """The groups with the tokens marked that the policy loss selects among the rollouts of all processes.

        moved: the policy is not the one of log π_old any more.

        The random numbers depend only on the response and the number of optimizer steps taken: resumed runs and other
        numbers of processes draw the same.
        """
        if self._objective.select is None:
            return groups

        def counts(row: Row) -> bool:
            return _is_rollout(row) and row.weight > 0

        rollouts = [row for group in groups for row in group if counts(row)]
        sizes = [len(row.response_ids) for row in rollouts]
        columns = [
            [row.old_logprobs for row in rollouts],
            [row.token_advantages for row in rollouts],
            [self._random(row) for row in rollouts],
        ]
        if moved and self._objective.selects_by_policy:
            columns.append(self._policy.response_logprobs(rollouts, self._temperature, self.budget) if rollouts else [])
        old, advantages, uniform, *now = (
            self._world.joined(torch.tensor([value for row in column for value in row], dtype=torch.float32))
            for column in columns
        )
        before = sum(self._world.gather(sum(sizes))[: self._world.rank])
        current = {"logprobs": now[0]} if now else {}
        chosen = self._objective.select(old, advantages, uniform, **current)[before : before + sum(sizes)]
        marks = iter(chosen.split(sizes))
        return _with(groups, "selected", counts, lambda _: next(marks).tolist())

    def _random(self, row: Row) -> list[float]:
        """A number in [0, 1) for each token of a response."""
        key = derive_key(self.optimizer.steps_taken, "select", *row.prompt_ids, "response", *row.response_ids)
        return uniforms(torch.tensor([key]), torch.arange(len(row.response_ids))).tolist()

    @property
    def budget(self) -> int:
        """Tokens per micro-batch."""
        return self.reduced_budget or self._token_budget

    def _diagnose(self, log_ratios: Sequence[Tensor]) -> dict[str, float]:
        """Quantiles of log u on D_pef over the step and all processes, and what `rehearsal_diagnostics` adds."""
        every = self._world.joined(torch.cat([*log_ratios, torch.empty(0)]))
        metrics = rehearsal_diagnostics(every, self._objective.divergence)
        return {f"pef/{name}": value for name, value in metrics.items()}


def _is_rollout(row: Row) -> bool:
    return not row.is_rehearsal


def _with(groups: Groups, field: str, where: Callable[[Row], bool], value: Callable[[Row], object]) -> list[list[Row]]:
    """The groups with a field of some rows replaced, in the order of the rows."""
    return [[replace(row, **{field: value(row)}) if where(row) else row for row in group] for group in groups]
