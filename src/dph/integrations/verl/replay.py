# pyright: reportMissingImports=false
"""verl's replay buffer, with DAPO's group filter over the responses that could be judged."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from dph.integrations.verl.judged import check_unjudged, is_scored, reward_info


def constant_value(metric: str, infos: Sequence[Mapping[str, Any]]) -> float | None:
    """The value that all judged responses of a group share, or None where they differ.

    A group without any judged response counts as constant (NaN), because nothing can be learned from it.
    """
    values = {float(info[metric]) for info in infos if is_scored(dict(info))}
    if len(values) > 1:
        return None
    return values.pop() if values else float("nan")


class JudgedReplayBuffer(ReplayBuffer):
    """Drops groups whose judged responses are all correct or all wrong; verl would count failed judgings as wrong."""

    def __init__(self, *, max_unjudged: float, responses: int, **its_own: Any) -> None:
        """
        Args:
            max_unjudged: share of a step's responses that may fail to be judged.
            responses: of an update.
        """
        super().__init__(**its_own)
        self._max_unjudged, self._responses = max_unjudged, responses
        self._dropped: list[dict[str, Any]] = []

    @classmethod
    def build(cls, config: Any, metric: str | None, refill: Callable[[int], int], max_unjudged: float) -> Self:
        """The buffer with the arguments that verl's trainer gives its own in synchronous mode."""
        sampler, data = config.trainer.v1.sampler, config.data
        refills = bool(sampler.get("sync_refill_failed_groups", False))
        exact = metric is not None or refills
        return cls(
            max_unjudged=max_unjudged,
            responses=data.train_batch_size * config.actor_rollout_ref.rollout.n,
            trainer_mode="sync",
            trainer_config=config.trainer.v1.get("sync", {}),
            max_off_policy_threshold=sampler.max_off_policy_threshold,
            max_off_policy_strategy=sampler.max_off_policy_strategy,
            sampler_kwargs=sampler.sampler_kwargs,
            refill_fn=refill,
            filter_groups_metric=metric,
            sync_refill_failed_groups=refills,
            train_batch_size=data.train_batch_size,
            gen_batch_size=1 if exact else (data.get("gen_batch_size", None) or data.train_batch_size),
            max_inflight_gen_batches=config.algorithm.filter_groups.get("max_inflight_gen_batches", 1) if metric else 1,
        )

    def take_dropped(self) -> list[dict[str, Any]]:
        """What the reward function returned for each response of the groups dropped since the last call."""
        taken, self._dropped = self._dropped, []
        return taken

    def _dapo_filtered_keys(self, partition_id: str) -> tuple[set[str], Counter[float]]:
        """Finished groups without signal, and the number of them for each shared value.

        Raises UserError once so many of their responses could not be judged that these are too many even if all that
        the step keeps can be; while nothing can be judged, verl would sample without end.
        """
        if partition_id == "val" or self.filter_groups_metric is None or self.filter_groups_metric == "reward":
            return super()._dapo_filtered_keys(partition_id)
        known = self._dapo_classification_cache[partition_id]
        finished = self.finished_keys[partition_id]
        for gone in known.keys() - finished:
            del known[gone]
        members: dict[str, list[str]] = {}
        for key in self.partitions[partition_id]:
            group = key.split("_")[0]
            if group in finished and group not in known:
                members.setdefault(group, []).append(key)
        for group, keys in members.items():
            data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=["extra_fields"])
            infos = [reward_info(x) for x in data["extra_fields"]]
            known[group] = constant_value(self.filter_groups_metric, infos)
            self._dropped += infos if known[group] is not None else []
        failed = sum(not is_scored(info) for info in self._dropped)
        total = len(self._dropped) + self._responses
        check_unjudged(failed, total, self._max_unjudged)
        filtered = {group: value for group, value in known.items() if value is not None}
        return set(filtered), Counter(filtered.values())
