# pyright: reportMissingImports=false
"""What any synchronous trainer of verl (0.9.1, V1) can take: whole groups on each rank (`GroupedBatchMixin`), a gate on
the sampler (`SamplerGateMixin`), and unbiased pass@k in the validation (`PassAtKMixin`).
"""

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils.seqlen_balancing import calculate_workload, log_seqlen_unbalance

from dph.engine import Ledger, coverage_shares, warn
from dph.integrations.sampler import check_sampler
from dph.integrations.verl.ordering import group_load, grouped_order
from dph.integrations.verl.settings import VENDOR, DPHSettings, drawn_by


class GroupedBatchMixin(PPOTrainer):
    """Orders the rows of a step so that each mini-batch of each rank holds whole groups, if verl uses the engine with
    shared prompts (VERL_ENGINE_VENDOR=dph)."""

    trainer_mode = property(lambda self: "sync", lambda self, name: None)
    """verl's mode that this trainer behaves like, whatever its own name; verl reads its settings under this name."""

    def _ranks_and_minibatch(self) -> tuple[int, int]:
        """Data-parallel ranks of the actor, and the responses of a mini-batch over all of them."""
        rollout, actor = self.config.actor_rollout_ref.rollout, self.config.actor_rollout_ref.actor
        return max(self.actor_rollout_wg._dispatch_info["actor"]) + 1, actor.ppo_mini_batch_size * rollout.n

    def _balance_batch(
        self, batch: KVBatchMeta, metrics: dict[str, Any], logging_prefix: str = "global_seqlen", **more: Any
    ) -> KVBatchMeta:
        batch = super()._balance_batch(batch, metrics, logging_prefix=logging_prefix, **more)
        if os.environ.get("VERL_ENGINE_VENDOR") != VENDOR:
            return batch
        ranks, rows = self._ranks_and_minibatch()
        minibatches = len(batch) // rows if len(batch) % rows == 0 and rows % ranks == 0 else 1
        names = [key.rsplit("_", 2)[0] for key in batch.keys]
        groups: dict[str, list[int]] = {}
        for index, name in enumerate(names):
            groups.setdefault(name, []).append(index)
        prompts, whole = (_work([tag[name] for tag in batch.tags]) for name in ("prompt_len", "seq_len"))
        loads = {name: group_load(prompts[its[0]], [whole[index] for index in its]) for name, its in groups.items()}
        cells = grouped_order(list(groups.values()), list(loads.values()), ranks, minibatches)
        shares = [[index for cell in rank for index in cell] for rank in cells]
        lengths = [int(tag["seq_len"]) for tag in batch.tags]
        metrics.update(log_seqlen_unbalance(seqlen_list=lengths, partitions=shares, prefix=logging_prefix))
        computed = [[name for cell in rank for name in {names[index] for index in cell}] for rank in cells]
        work = [sum(loads[name] for name in rank) for rank in computed]
        metrics["shared_prefix/computed_per_prompt"] = sum(map(len, computed)) / len(groups)
        metrics["shared_prefix/rank_imbalance"] = max(work) / (sum(work) / len(work))
        batch.reorder([index for share in shares for index in share])
        return batch


def plain(config: Any) -> Any:
    """A part of verl's configuration in plain containers; None without one."""
    return None if config is None else OmegaConf.to_container(config, resolve=True)


def _work(lengths: list[int]) -> list[float]:
    """verl's estimate of the work of rows of these lengths."""
    return calculate_workload(torch.tensor(lengths, dtype=torch.int64)).tolist()


class SamplerGateMixin(PPOTrainer):
    """Prints how far the sampler's log-probabilities are from the trainer's, and ends a step before its update if the
    mean difference is more than `dph.max_gap`, for example because the sampler has not the newest adapters."""

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        batch = super()._compute_old_log_prob(batch, metrics)
        rollout = self.config.actor_rollout_ref.rollout
        block = plain(OmegaConf.select(self.config, "dph", default=OmegaConf.create({})))
        truncated = drawn_by(rollout, block).truncations.keys() - {"top_p"}
        if not rollout.calculate_log_probs or rollout.top_k > 0 or truncated:
            return batch  # what top-k and min-p leave of the distribution has no useful bound
        names = ["rollout_log_probs", "old_log_probs", "response_mask"]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
        sampled, trained, mask = (data[name].values() for name in names)
        # The sampler divides by the share of tokens that top-p leaves, which is at least top_p
        allowed = block.get("max_gap", DPHSettings().max_gap)
        explained = allowed - math.log(rollout.top_p)
        warn(check_sampler(sampled[mask.bool()], trained[mask.bool()], explained))
        return batch


class PassAtKMixin(PPOTrainer):
    """Logs, for each data source of which all values are 0 or 1, `val-core/SOURCE/NAME/pass@K` for K = 2, 4, … up to
    the number of responses, with its interval over problems, and cover@τ (see
    `dph.measure.passk.coverage_shares`). NAME is verl's core variable: `acc`, or `reward` without it. A problem
    counts if it has at least K values (None is none). If the reward function returns the key `problem`, an id, the log
    has `lost` too: problems that an earlier validation of this process solved and that this one did not."""

    _ledgers: dict[str, Ledger] | None = None

    def _val_metrics_update(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        self._ledgers = self._ledgers or {}
        passes = validation_passes(args[0], args[1], args[2], self._ledgers)
        return super()._val_metrics_update(*args, **kwargs) | passes


def validation_passes(
    sources: Sequence[str],
    groups: Sequence[str],
    values: Mapping[str, Sequence[Any]],
    ledgers: dict[str, Ledger],
) -> dict[str, float]:
    """What `PassAtKMixin` logs, by verl's name of it, from the data source, the group and the named values of each
    response. The ledger of each source takes them into account."""
    metrics: dict[str, float] = {}
    ids = values["problem"] if "problem" in values else [None] * len(sources)
    for source in dict.fromkeys(sources):
        indices = [index for index, other in enumerate(sources) if other == source]
        name = "acc" if any(values["acc"][index] is not None for index in indices if "acc" in values) else "reward"
        found: dict[tuple[str, Any], list[float]] = {}  # by group and problem
        for index in indices:
            if values[name][index] is not None:
                found.setdefault((groups[index], ids[index]), []).append(float(values[name][index]))
        if found and all(value in (0, 1) for group in found.values() for value in group):
            visits = [(problem, int(sum(each)), len(each)) for (_, problem), each in found.items()]
            shares = coverage_shares([judged for *_, judged in visits], [correct for _, correct, _ in visits])
            if shares and all(problem is not None for problem, *_ in visits):
                shares["lost"] = ledgers.setdefault(source, Ledger({})).note(visits)["coverage/lost"]
            metrics |= {f"val-core/{source}/{name}/{measure}": value for measure, value in shares.items()}
    return metrics
