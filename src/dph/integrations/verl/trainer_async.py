# pyright: reportMissingImports=false
"""verl's trainer with rollouts on GPUs of their own, with DPH-RL's objective: trainer mode `dph_separate_async`.

A step has several updates, each on as many prompts as have been answered first. Each update has its own stored
responses. Those of the next update are computed while the trainer waits for rollouts: their gradient needs neither
sampler nor judge, and is exact for any policy, because they are samples of π_ref. It waits in the training processes
(see `worker`). What the wait was too short for joins the rollouts, so the update does not depend on how long it was.
"""

from typing import Any

from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_separate_async import HybridEngineMode, PPOTrainerSeparateAsync

from dph.errors import UserError
from dph.integrations.verl.rehearsal import put_alone, remove_rows
from dph.integrations.verl.replay import FillingReplayBuffer
from dph.integrations.verl.settings import ASYNC_MODE
from dph.integrations.verl.trainer import RehearsalMixin
from dph.integrations.verl.worker import FILL, FILLED, MINIBATCHES, DPHDetachActorWorker
from dph.rehearsal.store import Rehearsal


class FillingMixin(RehearsalMixin):
    """Computes stored responses of an update before its rollouts are there."""

    worker_class = DPHDetachActorWorker

    def __init__(self, config: Any) -> None:
        """Raises UserError for settings under which an update would use its stored responses more than once."""
        if config.actor_rollout_ref.actor.ppo_epochs != 1:
            raise UserError(f"trainer mode {ASYNC_MODE!r} works only with actor_rollout_ref.actor.ppo_epochs=1")
        super().__init__(config)
        self._filled: list[Rehearsal] = []
        """Those of the next update that were computed."""
        self._sums: dict[str, float] = {}
        """Of their metrics, and tokens."""
        self._fill_metrics: dict[str, Any] = {}

    def _build_replay_buffer(self) -> Any:
        metric, limit = self._resolve_filter_groups_metric(), self._dph.max_unjudged
        return FillingReplayBuffer.build(self.config, metric, self._add_prompts_to_generate, limit, self._fill)

    def _may_fill(self) -> bool:
        """Whether the training processes are free and an update follows."""
        return self.config.trainer.critic_warmup <= self.global_steps

    def _fill(self) -> bool:
        """Compute a few stored responses of the next update; False if there is nothing to compute."""
        if self._stored is None or not self._may_fill():
            return False
        stored = self._rows_of_update()[len(self._filled) :][: self._dph.fill_rows]
        if not stored:
            return False
        own = put_alone(stored, self._ranks, self.global_steps, "train")
        found: dict[str, Any] = {}
        try:
            self._check_model(own, self._fill_metrics)
            own.extra_info = {MINIBATCHES: 1, FILL: True}
            self._train(own, found)
        finally:
            remove_rows(own)
        self._filled += stored
        for name in (name for name in found if name.startswith("actor/pef/")):
            self._sums[name] = self._sums.get(name, 0.0) + float(found[name])
        return True

    def _not_computed(self, stored: list[Rehearsal]) -> list[Rehearsal]:
        return stored[len(self._filled) :]

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """As in the synchronous trainer, with the stored responses that were computed before."""
        filled, tokens = self._filled, sum(len(row.response_ids) for row in self._filled)
        if filled:
            batch.extra_info[FILLED] = (tokens, len(filled))
        batch = super()._update_actor(batch, metrics)
        batch.extra_info.pop(FILLED, None)
        metrics.update(self._fill_metrics)
        metrics["dph/filled_rows"] = len(filled)
        total = metrics.get("actor/pef/tokens", 0.0) + tokens
        for name, value in self._sums.items():
            share = 1.0 if name.endswith("/tokens") else total
            metrics[name] = metrics.get(name, 0.0) + value / share
        self._filled, self._sums, self._fill_metrics = [], {}, {}
        return batch


@register_trainer(ASYNC_MODE)
class DPHTrainerSeparateAsync(FillingMixin, PPOTrainerSeparateAsync):
    """Asynchronous training with rehearsal, with rollouts on GPUs of their own."""

    base_mode = "separate_async"

    def _may_fill(self) -> bool:
        return super()._may_fill() and self.current_mode is HybridEngineMode.TRAINER
