# pyright: reportMissingImports=false
"""Trainer modes of verl that keep the responses to a prompt on one rank, for the engine with shared prompts.

    trainer.v1.trainer_mode=shared_prefix_sync

trains as verl's mode `sync` and adds unbiased pass@k to its validation. `GroupedBatchMixin` and `PassAtKMixin` do so for
a synchronous trainer of your own.
"""

import os
from typing import TYPE_CHECKING, Any

import torch
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.seqlen_balancing import calculate_workload, log_seqlen_unbalance

from dph.integrations.verl.grouping import group_load, grouped_order
from dph.integrations.verl.passk import PassAtKMixin
from dph.integrations.verl.settings import VENDOR

if TYPE_CHECKING:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer as _Trainer
else:
    _Trainer = object


class GroupedBatchMixin(_Trainer):
    """Orders the rows of a step so that each mini-batch of each rank holds whole groups.

    It does so where verl uses the engine with shared prompts (VERL_ENGINE_VENDOR=dph); elsewhere the order is verl's.
    """

    @property
    def trainer_mode(self) -> str:
        """verl's mode that this trainer behaves like; verl reads its settings under this name."""
        return "sync"

    @trainer_mode.setter
    def trainer_mode(self, value: str) -> None:
        pass

    def _balance_batch(
        self, batch: KVBatchMeta, metrics: dict[str, Any], logging_prefix: str = "global_seqlen", **more: Any
    ) -> KVBatchMeta:
        """As verl's method, which pads the batch: rows in the order in which they are cut."""
        batch = super()._balance_batch(batch, metrics, logging_prefix=logging_prefix, **more)
        if os.environ.get("VERL_ENGINE_VENDOR") != VENDOR:
            return batch
        rollout, actor = self.config.actor_rollout_ref.rollout, self.config.actor_rollout_ref.actor
        ranks, rows = max(self.actor_rollout_wg._dispatch_info["actor"]) + 1, actor.ppo_mini_batch_size * rollout.n
        minibatches = len(batch) // rows if len(batch) % rows == 0 and rows % ranks == 0 else 1
        groups: dict[str, list[int]] = {}
        for index, key in enumerate(batch.keys):
            groups.setdefault(key.rsplit("_", 2)[0], []).append(index)
        members = list(groups.values())
        prompts, whole = (_work([tag[name] for tag in batch.tags]) for name in ("prompt_len", "seq_len"))
        loads = [group_load(prompts[part[0]], [whole[index] for index in part]) for part in members]
        cells = grouped_order(members, loads, ranks, minibatches)
        shares = [[index for cell in rank for index in cell] for rank in cells]
        lengths = [int(tag["seq_len"]) for tag in batch.tags]
        metrics.update(log_seqlen_unbalance(seqlen_list=lengths, partitions=shares, prefix=logging_prefix))
        metrics.update(_facts(batch.keys, cells, dict(zip(groups, loads, strict=True))))
        batch.reorder([index for share in shares for index in share])
        return batch


def _work(lengths: list[int]) -> list[float]:
    """verl's estimate of the work of rows of these lengths."""
    return calculate_workload(torch.tensor(lengths, dtype=torch.int64)).tolist()


def _facts(keys: list[str], cells: list[list[list[int]]], loads: dict[str, float]) -> dict[str, float]:
    """How often each prompt is computed, and the work of the busiest rank over the mean, for the log."""
    prompts = [[{keys[index].rsplit("_", 2)[0] for index in cell} for cell in rank] for rank in cells]
    work = [sum(loads[group] for cell in rank for group in cell) for rank in prompts]
    computed = sum(len(cell) for rank in prompts for cell in rank)
    return {
        "shared_prefix/computed_per_prompt": computed / len(loads),
        "shared_prefix/rank_imbalance": max(work) / (sum(work) / len(work)),
    }


@register_trainer("shared_prefix_sync")
class SharedPrefixTrainerSync(GroupedBatchMixin, PassAtKMixin, PPOTrainerSync):
    """verl's synchronous trainer, with whole groups on each rank."""
