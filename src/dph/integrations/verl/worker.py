# pyright: reportMissingImports=false
"""verl's training processes: the objective as verl's loss, with the denominators of both sets over all ranks."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from verl.utils import tensordict_utils as tu
from verl.utils.metric import AggregationType, Metric
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker
from verl.workers.utils.padding import no_padding_2_padding

from dph.build import load_plugin
from dph.config import LossConfig
from dph.objective import LossCounts, Objective, TokenBatch

IS_REHEARSAL = "dph_rehearsal"
"""Column [B]: 1 for stored responses, 0 for rollouts. Batches without stored responses lack it."""
MINIBATCHES = "dph_minibatches"
"""Number of mini-batches of a step, in the batch's extra information."""
COUNTS = "dph_counts"
"""The mini-batch's denominators over all ranks, as a tuple in the order of LossCounts."""


def rehearsal_flags(data: Any) -> Tensor:
    """bool [B]: which rows are stored responses."""
    if IS_REHEARSAL in data:
        rows = data[IS_REHEARSAL].unbind()  # nested, as every column that went through the TransferQueue
        return torch.stack([row.reshape(()) for row in rows]).bool()
    return torch.zeros(len(data), dtype=torch.bool, device=data["response_mask"].device)


class DPHTrainingWorker(TrainingWorker):
    """Adds the denominators of `dph.objective` to each mini-batch, before its first forward pass."""

    def train_mini_batch(self, data: Any) -> Any:
        """verl passes the rows of a mini-batch without stored ones; the number of mini-batches is right with both."""
        minibatches = tu.pop(data, key=MINIBATCHES, default=None)
        if minibatches is not None:
            tu.pop(data, key="mini_batch_size", default=None)
            tu.assign_non_tensor(data, num_mini_batch=minibatches)
        return super().train_mini_batch(data)

    def train_batch(self, data: Any) -> Any:
        mask = data["response_mask"].to_padded_tensor(0)
        counts = LossCounts.of(TokenBatch(mask, None, mask, mask, rehearsal_flags(data)))
        values = [counts.exp_tokens, counts.pef_tokens, counts.exp_sequences, counts.pef_sequences]
        total = torch.tensor(values, dtype=torch.float64, device=self.device_name)
        torch.distributed.all_reduce(total, group=self.engine.get_data_parallel_group())
        tu.assign_non_tensor(data, **{COUNTS: tuple(total.tolist())})
        return super().train_batch(data)


class DPHActorRolloutRefWorker(ActorRolloutRefWorker):
    """verl's worker with our training worker inside."""

    actor_worker_cls = DPHTrainingWorker


class DPHLoss:
    """The loss function of verl's engines. It is sent to every training process, which builds the objective once."""

    def __init__(self, config: LossConfig, plugins: Sequence[str] = ()) -> None:
        """plugins: Python files or modules that register divergences and policy losses."""
        self._config, self._plugins = config, plugins

    @cached_property
    def _objective(self) -> Objective:
        for plugin in self._plugins:
            load_plugin(plugin)
        return Objective(self._config)

    def __call__(self, model_output: Any, data: Any, dp_group: object = None) -> tuple[Tensor, dict[str, Any]]:
        """One micro-batch's loss, times the number of ranks, because the engines average gradients over them.

        On stored rows the column old_log_probs holds log π_ref; on rollouts log π_ref comes from the reference model
        (column ref_log_prob), if there is one.

        Args:
            model_output: nested log_probs at the sampling temperature, in nats, and perhaps entropy, over whole
                sequences.
            data: the micro-batch, a TensorDict with nested columns.
        Returns:
            The loss, and metrics by name: means per token over the mini-batch and all ranks.
        """
        if self._config.eta > 0 and IS_REHEARSAL not in data:
            raise RuntimeError(f"the column {IS_REHEARSAL} did not reach the training process")
        logprobs = no_padding_2_padding(model_output["log_probs"], data)
        entropy = model_output.get("entropy")
        entropy = None if entropy is None else no_padding_2_padding(entropy, data)
        optional = [name for name in ("ref_log_prob", "rollout_is_weights") if name in data]
        padded = data.select("response_mask", "old_log_probs", "advantages", *optional).to_padded_tensor()
        flags = rehearsal_flags(data)
        reference = stored = padded["old_log_probs"]
        if "ref_log_prob" in optional:
            reference = torch.where(flags[:, None], stored, padded["ref_log_prob"])
        importance = padded["rollout_is_weights"] if "rollout_is_weights" in optional else None
        batch = TokenBatch(stored, reference, padded["response_mask"], padded["advantages"], flags)
        counts = LossCounts(*data[COUNTS])
        loss, sums = self._objective(logprobs, batch, counts, entropy, importance)
        scale = int(data["dp_size"])
        metrics: dict[str, Any] = {}  # contributions that verl adds up over micro-batches and averages over ranks
        tokens = {"exp": counts.exp_tokens, "pef": counts.pef_tokens}
        for name, value in sums.items():
            share = 1.0 if name == "loss" or name.endswith("/tokens") else tokens[name.split("/")[0]]
            if share:
                key = "hybrid_loss" if name == "loss" else name
                metrics[key] = Metric(value=float(value) * scale / share, aggregation=AggregationType.SUM)
        return loss * scale, metrics
