# pyright: reportMissingImports=false
"""verl's training worker; it counts both sets over all ranks before a mini-batch's first forward pass."""

from typing import Any

import torch
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker

from dph.integrations.verl.loss import COUNTS, count

MINIBATCHES = "dph_minibatches"
"""Number of mini-batches of a step, in the batch's extra information."""


class DPHTrainingWorker(TrainingWorker):
    """Adds the denominators of `dph.objective` to each mini-batch."""

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
        tu.assign_non_tensor(data, **{COUNTS: tuple(total.tolist())})
        return super().train_batch(data)


class DPHActorRolloutRefWorker(ActorRolloutRefWorker):
    """verl's worker with our training worker inside."""

    actor_worker_cls = DPHTrainingWorker
