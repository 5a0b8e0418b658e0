# pyright: reportMissingImports=false
"""verl's training worker; it counts both sets over all ranks before a mini-batch's first forward pass.

Stored responses may be computed before the rollouts of their update are there (`FILL`). Their gradient waits in memory,
and is added to that of the rollouts before the optimizer's step. The gradient of the objective is a sum over both sets
with weights that depend on the counts alone (see `dph.objective.objective`), so the step is that of one mixed batch.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from verl.experimental.separation.engine_workers import DetachActorWorker
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker

from dph.integrations.verl.loss import COUNTS, count
from dph.objective import LossCounts

MINIBATCHES = "dph_minibatches"
"""Number of mini-batches of a step, in the batch's extra information."""


FILL = "dph_fill"
"""True in the extra information of a batch of stored responses whose update will come later."""
FILLED = "dph_filled"
"""Tokens and sequences of the stored responses of this update that were computed before, over all ranks."""


class DPHTrainingWorker(TrainingWorker):
    """Adds the denominators of `dph.objective` to each mini-batch."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waiting: dict[str, Tensor] = {}
        """By parameter name, η times the gradient of the sum of divergences over stored responses."""

    def train_mini_batch(self, data: Any) -> Any:
        """verl passes the rows of a mini-batch without stored ones; the number of mini-batches is right with both."""
        minibatches = tu.pop(data, key=MINIBATCHES, default=None)
        if minibatches is not None:
            tu.pop(data, key="mini_batch_size", default=None)
            tu.assign_non_tensor(data, num_mini_batch=minibatches)
        return super().train_mini_batch(data)

    def train_batch(self, data: Any) -> Any:
        own = count(data)
        values = [own.exp_tokens, own.pef_tokens, own.exp_sequences, own.pef_sequences]
        total = torch.tensor(values, dtype=torch.float64, device=self.device_name)
        torch.distributed.all_reduce(total, group=self.engine.get_data_parallel_group())
        counts = LossCounts(*total.tolist())
        if tu.pop(data, key=FILL, default=False):
            return self._fill(data)
        tokens, sequences = tu.pop(data, key=FILLED, default=(0, 0))
        counts += LossCounts(pef_tokens=tokens, pef_sequences=sequences)
        _assign_counts(data, counts)
        if not self._waiting:
            return super().train_batch(data)
        with self._before_the_step(lambda: self._add_waiting(self.loss_fn.rehearsal_weight(counts))):
            return super().train_batch(data)

    def _fill(self, data: Any) -> Any:
        """Compute the gradient of stored responses for the next update; no parameter changes.

        Counts of 1 give it the weight η. Its metrics are sums.
        """
        _assign_counts(data, LossCounts(pef_tokens=1, pef_sequences=1))
        tu.assign_non_tensor(data, update_lr_scheduler=False)
        with self._before_the_step(self._keep_waiting):
            return super().train_batch(data)

    @contextmanager
    def _before_the_step(self, task: Callable[[], bool]) -> Iterator[None]:
        """Context in which a task runs before each optimizer step; the step is left out where it returns False."""
        step = self.engine.optimizer_step
        self.engine.optimizer_step = lambda: step() if task() else 0.0
        try:
            yield
        finally:
            self.engine.optimizer_step = step

    def _keep_waiting(self) -> bool:
        for name, parameter in self.engine.module.named_parameters():
            if parameter.grad is not None:
                kept = self._waiting.get(name)
                self._waiting[name] = parameter.grad.detach().clone() if kept is None else kept + parameter.grad
        return False

    def _add_waiting(self, weight: float) -> bool:
        for name, parameter in self.engine.module.named_parameters():
            if name in self._waiting:
                kept = weight * self._waiting[name]
                parameter.grad = kept if parameter.grad is None else parameter.grad + kept
        self._waiting = {}
        return True


def _assign_counts(data: Any, counts: LossCounts) -> None:
    fields = (counts.exp_tokens, counts.pef_tokens, counts.exp_sequences, counts.pef_sequences)
    tu.assign_non_tensor(data, **{COUNTS: fields})


class DPHActorRolloutRefWorker(ActorRolloutRefWorker):
    """verl's worker with our training worker inside."""

    actor_worker_cls = DPHTrainingWorker


class DPHDetachActorWorker(DetachActorWorker):
    """verl's worker for trainers that have rollouts elsewhere, with our training worker inside."""

    actor_worker_cls = DPHTrainingWorker
