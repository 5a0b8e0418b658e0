# pyright: reportMissingImports=false
"""verl's synchronous trainer with DPH-RL's objective (verl 0.9.1, V1): trainer mode `dph_sync`.

Up to the advantages, a step is verl's own. The advantages are computed here, over the responses that could be judged.
Then stored responses join the update; they leave the batch again afterwards, so none of verl's metrics includes them.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import ray
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from tensordict import TensorDict
from torch import Tensor
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.workers.utils.padding import response_from_nested

from dph.build import load_plugin
from dph.errors import UserError
from dph.integrations.verl.grouped import GroupedBatchMixin
from dph.integrations.verl.judged import JudgedResponse, check_unjudged, is_scored, read_judged
from dph.integrations.verl.loss import DPHLoss
from dph.integrations.verl.passk import PassAtKMixin
from dph.integrations.verl.rehearsal import open_stored, put_rows, remove_rows
from dph.integrations.verl.replay import JudgedReplayBuffer
from dph.integrations.verl.settings import TRAINER_MODE, loss_config, make_advantage, read_settings
from dph.integrations.verl.worker import MINIBATCHES, DPHActorRolloutRefWorker
from dph.objective.advantages import GroupView
from dph.rehearsal.check import CheckedSet, check_deviation
from dph.rehearsal.store import RehearsalSet
from dph.training.rollouts import overlong_penalty


@register_trainer(TRAINER_MODE)
class DPHTrainerSync(GroupedBatchMixin, PassAtKMixin, PPOTrainerSync):
    """Synchronous, colocated training with judged advantages and stored responses."""

    def __init__(self, config: Any) -> None:
        plain: Any = OmegaConf.to_container(config, resolve=True)
        self._dph = read_settings(plain)
        for plugin in self._dph.plugins:
            load_plugin(plugin)
        self._loss = loss_config(plain, self._dph)
        self._advantage = make_advantage(plain, self._dph)
        self._stored: tuple[CheckedSet, RehearsalSet] | None = None
        self._checked = False
        super().__init__(config)

    # Set-up ----------------------------------------------------------------------------------------------------

    def _init_tokenizer(self) -> None:
        super()._init_tokenizer()
        if self._dph.rows:
            rollout = self.config.actor_rollout_ref.rollout
            checked = open_stored(self._dph, self.tokenizer, rollout.temperature, rollout.top_p)
            self._stored = checked, RehearsalSet(checked.stored, self._dph.seed)

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        for role in self.role_worker_mapping:
            if str(role) in ("actor", "actor_rollout", "actor_rollout_ref"):
                self.role_worker_mapping[role] = ray.remote(DPHActorRolloutRefWorker)

    def _build_replay_buffer(self) -> Any:
        return JudgedReplayBuffer.build(
            self.config, self._resolve_filter_groups_metric(), self._add_prompts_to_generate, self._dph.max_unjudged
        )

    def on_init_end(self) -> None:
        self.actor_rollout_wg.set_loss_fn(DPHLoss(self._loss, self._dph.plugins))
        super().on_init_end()

    def _val_metrics_update(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Validation over the responses that could be judged; verl would count one without a verdict as wrong."""
        return super()._val_metrics_update(*args, **{**kwargs, "expected_acc_counts": None})

    # A step ----------------------------------------------------------------------------------------------------

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """Advantages over the responses that could be judged; the others are left out of loss and metrics."""
        batch = super()._compute_advantage(batch, metrics)  # with verl's rollout correction
        limit, eos = self.config.data.max_response_length, self.tokenizer.eos_token_id
        judged = read_judged(batch, limit, eos, reference=self._advantage.needs_reference)
        advantages, keep = self._advantages(judged)
        masks = [row.mask * bool(kept) for row, kept in zip(judged, keep, strict=True)]
        columns = {
            "advantages": [mask * value for mask, value in zip(masks, advantages, strict=True)],
            "response_mask": masks,
            "loss_mask": masks,
        }
        nested = {name: torch.nested.as_nested_tensor(rows, layout=torch.jagged) for name, rows in columns.items()}
        tq.kv_batch_put(batch.keys, batch.partition_id, fields=TensorDict(nested, batch_size=len(batch)))
        for tag, row in zip(batch.tags, judged, strict=True):
            tag["is_padding"] = row.padding or not row.scored
        verdicts = [(row.outcome, row.scored) for row in judged if not row.padding]
        dropped = self.replay_buffer.take_dropped()
        verdicts += [(str(info.get("outcome", "")), is_scored(info)) for info in dropped]
        metrics.update(outcome_metrics(verdicts))
        check_unjudged(sum(not scored for _, scored in verdicts), len(verdicts), self._dph.max_unjudged)
        return batch

    def _advantages(self, judged: list[JudgedResponse]) -> tuple[list[Tensor], list[bool]]:
        """Advantage of each row, for all of its tokens or for each, and whether its tokens count."""
        limit = self.config.data.max_response_length
        groups: dict[str, list[int]] = {}
        for index, row in enumerate(judged):
            groups.setdefault(row.group, []).append(index)
        advantages = [torch.zeros(())] * len(judged)
        for members in groups.values():
            rows = [judged[index] for index in members]
            rewards = [row.reward + overlong_penalty(row.length, limit, self._dph.overlong) for row in rows]
            values = self._advantage(group_view(rows, rewards, self.tokenizer))
            for index, value in zip(members, values, strict=True):
                kept = value if value.ndim == 0 else value[: judged[index].length]
                advantages[index] = kept if judged[index].scored else torch.zeros_like(kept)
        keep = [row.scored and not (self._dph.mask_truncated and row.truncated) for row in judged]
        return advantages, keep

    @property
    def _ranks(self) -> int:
        """Data-parallel ranks of the actor."""
        return max(self.actor_rollout_wg._dispatch_info["actor"]) + 1

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """verl's update, on rollouts and this step's stored responses together."""
        actor = self.config.actor_rollout_ref.actor
        ranks = self._ranks
        rows = actor.ppo_mini_batch_size * self.config.actor_rollout_ref.rollout.n
        if rows % ranks:
            raise UserError(
                f"a mini-batch of {rows} responses (ppo_mini_batch_size × rollout.n) does not divide evenly over "
                f"{ranks} data-parallel ranks; change one of them"
            )
        minibatches = len(batch) // rows
        batch.extra_info[MINIBATCHES] = minibatches
        if self._stored is None:
            return super()._update_actor(batch, metrics)
        cursor = (self.global_steps - 1) * self._dph.rows  # of the step alone, so that a resumed run takes the same
        stored = self._stored[1].take(cursor, self._dph.rows)
        mixed, own = put_rows(batch, stored, ranks, minibatches, self.global_steps)
        try:
            self._check_model(own, metrics)
            super()._update_actor(mixed, metrics)
        finally:
            remove_rows(own)
        metrics["dph/rehearsal_rows"] = len(stored)
        return batch

    def _check_model(self, own: KVBatchMeta, metrics: dict[str, Any]) -> None:
        """Compare stored with recomputed log-probabilities of a few rows, before the first update of a run."""
        if self._checked or self.global_steps > 1 or not self._dph.check_rows or not len(own):
            return
        assert self._stored is not None
        self._checked = True
        metrics["dph/ref_deviation"] = deviation = self._deviation(own, self._ranks)
        check_deviation(self._stored[0], deviation, self._dph.tolerance)

    def _deviation(self, own: KVBatchMeta, ranks: int) -> float:
        """Mean |stored − recomputed| log π_ref over a few rows, in nats per token."""
        count = min(len(own), -(-self._dph.check_rows // ranks) * ranks)
        part = own.select_keys(own.keys[: count - count % ranks])
        part.extra_info = {
            "calculate_entropy": False,
            "compute_loss": False,
            "temperature": self.config.actor_rollout_ref.rollout.temperature,
        }
        self.actor_rollout_wg.compute_log_prob(part)
        data = tq.kv_batch_get(part.keys, part.partition_id, select_fields=["log_probs", "responses", "old_log_probs"])
        now = response_from_nested(data["log_probs"], data["responses"]).values()
        return float((now - data["old_log_probs"].values()).abs().mean())


def group_view(rows: Sequence[JudgedResponse], rewards: Sequence[float], tokenizer: Any) -> GroupView:
    """What an advantage sees of a group; verl's trainer has neither the problem nor its styles.

    rewards: of each response, the length penalty included.
    """
    references = [row.ref_logprobs for row in rows]
    return GroupView(
        rewards=torch.tensor(rewards),
        verdicts=[row.verdict for row in rows],
        old_logprobs=[row.old_logprobs.float() for row in rows],
        texts=[tokenizer.decode(row.response, skip_special_tokens=True) for row in rows],
        style_of=lambda _: None,
        ref_logprobs=None if None in references else [one.float() for one in references if one is not None],
    )


def outcome_metrics(verdicts: Sequence[tuple[str, bool]]) -> dict[str, float]:
    """Share of each outcome among a step's responses, and of those whose judging failed.

    verdicts: outcome of each response, dropped groups included, and whether it could be judged.
    """
    counts, total = Counter(outcome for outcome, _ in verdicts), max(1, len(verdicts))
    shares = {f"dph/outcome/{name}": counts[name] / total for name in sorted(counts) if name}
    return {"dph/unscored": sum(not scored for _, scored in verdicts) / total, **shares}
