# pyright: reportMissingImports=false
"""verl's synchronous trainer (verl 0.9.1, V1) with whole groups on each rank, and with DPH-RL's objective.

    trainer.v1.trainer_mode=shared_prefix_sync    verl's mode `sync`, with whole groups
    trainer.v1.trainer_mode=dph_sync              the same, with judged advantages and stored responses

Both add unbiased pass@k to the validation and a gate on the sampler. A synchronous trainer of your own takes the
classes of `dph.integrations.verl.mixins`. All of them run in verl's driver, which reads from verl's TransferQueue and
puts into it: verdicts (`judged`), stored responses (`stored_rows`), and what enters the bank (`bank`).
"""

from pathlib import Path
from typing import Any

import ray
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.workers.utils.padding import response_from_nested

from dph.config.sampling import sampling_facts
from dph.engine import (
    Presampled,
    RehearsalSet,
    Rendering,
    check_deviation,
    check_facts,
    dated_template,
    rendering_facts,
)
from dph.errors import UserError
from dph.integrations.verl.bank import DriverBank
from dph.integrations.verl.engine import MINIBATCHES, DPHActorRolloutRefWorker, DPHLoss
from dph.integrations.verl.judged import (
    JudgedReplayBuffer,
    check_unjudged,
    is_scored,
    judged_advantages,
    outcome_metrics,
    per_token,
    read_judged,
)
from dph.integrations.verl.mixins import GroupedBatchMixin, PassAtKMixin, SamplerGateMixin, plain
from dph.integrations.verl.settings import TRAINER_MODE, configured, drawn_by
from dph.integrations.verl.stored_rows import put_rows


@register_trainer("shared_prefix_sync")
class SharedPrefixTrainerSync(GroupedBatchMixin, SamplerGateMixin, PassAtKMixin, PPOTrainerSync):
    """verl's synchronous trainer, with whole groups on each rank."""


@register_trainer(TRAINER_MODE)
class DPHTrainerSync(GroupedBatchMixin, SamplerGateMixin, PassAtKMixin, PPOTrainerSync):
    """Synchronous, colocated training with judged advantages, and with stored responses, which leave the batch again
    after the update: none of verl's metrics includes them."""

    def __init__(self, config: Any) -> None:
        plain: Any = OmegaConf.to_container(config, resolve=True)
        self._dph, self._loss, self._advantage = configured(plain)
        self._stored: tuple[Presampled, RehearsalSet] | None = None
        """The stored responses with what is known of them, and in the order in which steps take them."""
        self._bank: DriverBank | None = None
        """Takes the place of that order."""
        super().__init__(config)

    # Set-up ----------------------------------------------------------------------------------------------------

    def _init_tokenizer(self) -> None:
        super()._init_tokenizer()
        if self._dph.begins_with_stored:
            rollout = self.config.actor_rollout_ref.rollout
            path = Path(self._dph.rehearsal)
            presampled = Presampled.open(path)
            stored = presampled.stored
            sampling = sampling_facts(drawn_by(rollout, plain(self.config.dph)))
            rendering = Rendering(self._dph.date, plain(self.config.data.get("apply_chat_template_kwargs")) or {})
            if dated_template(template := str(self.tokenizer.chat_template), rendering.date) != template:
                raise UserError(
                    "the chat template writes today's date, so that prompts change from day to day; start training "
                    "with `python -m dph.integrations.verl`, which puts dph.date in its place"
                )
            facts = {**rendering_facts(rendering, self.tokenizer), **sampling}
            check_facts(presampled.run, facts)  # the weights are compared before the first update
            self._stored = presampled, RehearsalSet(stored, self._dph.seed)

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        if self._dph.bank.key:
            presampled = self._stored[0] if self._stored else None
            self._bank = DriverBank(self._dph, self.train_dataset, presampled, self._checkpoints)

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        for role in self.role_worker_mapping:
            if str(role) in ("actor", "actor_rollout", "actor_rollout_ref"):
                self.role_worker_mapping[role] = ray.remote(DPHActorRolloutRefWorker)

    def _build_replay_buffer(self) -> Any:
        """verl 0.9.1's buffer of synchronous trainers, with our filter of groups."""
        sampler, data = self.config.trainer.v1.sampler, self.config.data
        if (sampler.get("custom_sampler") or {}).get("path"):
            raise UserError(f"trainer mode {TRAINER_MODE!r} has a replay buffer of its own; leave custom_sampler out")
        metric, refills = self._resolve_filter_groups_metric(), bool(sampler.get("sync_refill_failed_groups", False))
        filters = self.config.algorithm.get("filter_groups") or {}
        whole = data.get("gen_batch_size") or data.train_batch_size
        return JudgedReplayBuffer(
            responses=data.train_batch_size * self.config.actor_rollout_ref.rollout.n,
            max_unjudged=self._dph.max_unjudged,
            trainer_mode=self.trainer_mode,
            trainer_config=self.config.trainer.v1.get(self.trainer_mode, {}),
            max_off_policy_threshold=sampler.max_off_policy_threshold,
            max_off_policy_strategy=sampler.max_off_policy_strategy,
            sampler_kwargs=sampler.sampler_kwargs,
            refill_fn=self._add_prompts_to_generate,
            filter_groups_metric=metric,
            sync_refill_failed_groups=refills,
            train_batch_size=data.train_batch_size,
            gen_batch_size=1 if metric is not None or refills else whole,
            max_inflight_gen_batches=1 if metric is None else filters.get("max_inflight_gen_batches", 1),
        )

    def on_init_end(self) -> None:
        self.actor_rollout_wg.set_loss_fn(DPHLoss(self._loss, self._dph.plugins))
        super().on_init_end()

    def _val_metrics_update(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Validation over the responses that could be judged; verl would count one without a verdict as wrong."""
        return super()._val_metrics_update(*args, **{**kwargs, "expected_acc_counts": None})

    # Checkpoints -----------------------------------------------------------------------------------------------

    @property
    def _checkpoints(self) -> Path:
        return Path(self.config.trainer.default_local_dir).absolute()

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if self._bank is None:
            return
        checkpoint = self._checkpoints / f"global_step_{self.global_steps}"
        if self.config.trainer.resume_mode == "resume_path":
            checkpoint = Path(self.config.trainer.resume_from_path).absolute()
        self._bank.start(checkpoint if self.global_steps else None)

    def _save_checkpoint(self) -> None:
        if self._bank is not None:  # first, because a checkpoint is whole when verl has noted its step
            self._bank.save(self._checkpoints / f"global_step_{self.global_steps}")
        super()._save_checkpoint()

    # A step ----------------------------------------------------------------------------------------------------

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, Any]) -> KVBatchMeta:
        """verl's step; then its responses enter the bank."""
        batch = super().step(metrics, timing_raw)
        if self._bank is not None:
            metrics.update(self._bank.admit(self.global_steps))
            if self.global_steps >= self.total_training_steps:
                self._bank.finish(self.global_steps)
        return batch

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """Advantages over the responses that could be judged; the others are left out of loss and metrics."""
        batch = super()._compute_advantage(batch, metrics)  # with verl's rollout correction
        limit = self.config.data.max_response_length
        how = {"reference": self._advantage.needs_reference, "stop": self._dph.sampling.stop}
        judged = read_judged(batch, limit, self.tokenizer, **how)
        advantages = judged_advantages(self._advantage, judged, self._dph, limit)
        masks = [row.mask * (value is not None) for row, value in zip(judged, advantages, strict=True)]
        columns = {
            "advantages": [
                mask * per_token(value, row.own) for mask, value, row in zip(masks, advantages, judged, strict=True)
            ],
            "response_mask": masks,
            "loss_mask": masks,
        }
        nested = {name: torch.nested.as_nested_tensor(rows, layout=torch.jagged) for name, rows in columns.items()}
        tq.kv_batch_put(batch.keys, batch.partition_id, fields=TensorDict(nested, batch_size=len(batch)))
        rows = list(zip(batch.tags, judged, strict=True))
        verdicts = [(row.outcome, row.rollout.verdict.scored) for tag, row in rows if not tag.get("is_padding")]
        for tag, row in rows:
            tag["is_padding"] = not row.rollout.verdict.scored
        if self._bank is not None:
            self._bank.see(batch, judged)
        dropped = self.replay_buffer.take_dropped()
        verdicts += [(str(info.get("outcome", "")), is_scored(info)) for info in dropped]
        metrics.update(outcome_metrics(verdicts))
        check_unjudged(sum(not scored for _, scored in verdicts), len(verdicts), self._dph.max_unjudged)
        return batch

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """verl's update, on rollouts and this step's stored responses together."""
        ranks, rows = self._ranks_and_minibatch()
        if rows % ranks:
            raise UserError(
                f"a mini-batch of {rows} responses (ppo_mini_batch_size × rollout.n) does not divide evenly over "
                f"{ranks} data-parallel ranks; change one of them"
            )
        minibatches = len(batch) // rows
        batch.extra_info[MINIBATCHES] = minibatches
        if self._bank is not None:
            stored = self._bank.draw(self._dph.rows)
        elif self._stored is not None:
            cursor = (self.global_steps - 1) * self._dph.rows  # of the step alone, so that a resumed run takes the same
            stored = self._stored[1].take(cursor, self._dph.rows)
        else:
            return super()._update_actor(batch, metrics)
        even = self._bank is not None  # rows of the bank: each problem counts alike, and each way to solve it
        mixed, added = put_rows(batch, stored, ranks, minibatches, self.global_steps, even=even)
        try:
            first = self.global_steps <= 1  # before the first update of a run
            if self._stored is not None and len(added) and self._dph.check_rows and first:
                metrics["dph/ref_deviation"] = deviation = self._deviation(added, ranks)
                check_deviation(self._stored[0], deviation, self._dph.tolerance)
            super()._update_actor(mixed, metrics)
        finally:
            if len(added):
                tq.kv_clear(keys=added.keys, partition_id=added.partition_id)
        metrics["dph/rehearsal_rows"] = len(stored)
        return batch

    def _deviation(self, added: KVBatchMeta, ranks: int) -> float:
        """Mean |stored − recomputed| log π_ref over a few stored rows, in nats per token."""
        count = min(len(added), -(-self._dph.check_rows // ranks) * ranks)
        rows = added.select_keys(added.keys[: count - count % ranks])
        rows.extra_info = {
            "calculate_entropy": False,
            "compute_loss": False,
            "temperature": self.config.actor_rollout_ref.rollout.temperature,
        }
        self.actor_rollout_wg.compute_log_prob(rows)
        data = tq.kv_batch_get(rows.keys, rows.partition_id, select_fields=["log_probs", "responses", "old_log_probs"])
        recomputed = response_from_nested(data["log_probs"], data["responses"]).values()
        return float((recomputed - data["old_log_probs"].values()).abs().mean())
