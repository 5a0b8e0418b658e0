# pyright: reportMissingImports=false
"""The judged responses of a step in verl's trainer: verdicts and advantages read from its TransferQueue, and the replay
buffer that drops groups without signal, as DAPO does, by responses that could be judged.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transfer_queue as tq
from torch import Tensor
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from dph.config import OverlongConfig
from dph.engine import Shaping
from dph.errors import UserError
from dph.integrations.verl.settings import DPHSettings
from dph.objective import Advantage
from dph.types import Completion, Group, Outcome, Problem, Rollout, Verdict


@dataclass(frozen=True, slots=True)
class JudgedResponse:
    """One response of a step."""

    group: str
    """verl's id of the draw: one prompt, asked once for a whole group."""
    rollout: Rollout
    """The model's own tokens, with log π_old, and its verdict: INFRA_ERROR if the judging itself failed, and for
    padding rows. The text has the results of tools too."""
    outcome: str
    """The outcome that our verifiers gave; empty with another reward function."""
    reference: list[float]
    """Log-probabilities of these tokens under the reference model; empty without one."""
    own: Tensor
    """bool [length]: which tokens of the response are the model's own, and not the result of a tool."""
    mask: Tensor
    """int64 [length]: verl's response mask."""


def reward_info(extra_fields: Any) -> dict[str, Any]:
    """The other values of the reward function, from verl's column extra_fields."""
    fields = getattr(extra_fields, "data", extra_fields)
    info = fields.get("reward_extra_info", {}) if isinstance(fields, dict) else {}
    return info if isinstance(info, dict) else {}


def is_scored(info: Mapping[str, Any]) -> bool:
    """Whether a response could be judged; reward functions that do not say so always judge."""
    return bool(info.get("scored", 1.0))


def check_unjudged(failed: int, total: int, limit: float) -> None:
    if failed > limit * total:
        raise UserError(
            f"the judging of {failed} of a step's {total} responses failed "
            f"(dph.max_unjudged={limit}); fix the verifiers' environment and resume"
        )


def read_judged(
    batch: KVBatchMeta, limit: int, tokenizer: Any, *, reference: bool = False, stop: Sequence[str] = ()
) -> list[JudgedResponse]:
    """The rows of a batch, in its order, with `reference` also the reference model's log-probabilities. A response of
    `limit` tokens without the end token or a stop string was cut off. Raises UserError for several trajectories per
    session."""
    fields = ["uid", "responses", "loss_mask", "response_mask", "rm_scores", "extra_fields", "old_log_probs"]
    fields += ["ref_log_prob"] * reference
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    columns = [list(data[name]) for name in fields] + [[None] * len(batch)] * (not reference)
    rows = []
    every = zip(batch.keys, batch.tags, *columns, strict=True)
    for key, tag, uid, responses, sampled, mask, scores, extra, old, ref in every:
        if not key.endswith("_0"):
            raise UserError("trainer mode dph_sync does not support agent loops with several trajectories per session")
        info = reward_info(extra)
        reward, ids, verdict = float(scores.sum()), responses.tolist(), Verdict(Outcome.INFRA_ERROR, 0.0)
        own = sampled.bool()
        outcome = str(info.get("outcome", ""))
        if is_scored(info) and not tag.get("is_padding"):
            # with another reward function a reward of at least 1 is correct
            verdict = Verdict(Outcome(outcome or ("correct" if reward >= 1 else "wrong")), reward)
        text = tokenizer.decode(ids, skip_special_tokens=True)
        ended = ids[-1:] == [tokenizer.eos_token_id] or any(string in text for string in stop)
        cut_off = len(ids) >= limit and not ended
        logprobs = old[own].float().tolist()
        completion = Completion(responses[own].tolist(), logprobs, "length" if cut_off else "stop")
        rollout = Rollout(completion, text, verdict)
        references = [] if ref is None else ref[own].float().tolist()
        rows.append(JudgedResponse(str(getattr(uid, "data", uid)), rollout, outcome, references, own, mask))
    return rows


def per_token(value: float | Sequence[float] | None, own: Tensor) -> Tensor:
    """[length]: an advantage, one for all of the model's own tokens or one for each, and 0 elsewhere."""
    values = torch.zeros(len(own))
    values[own] = torch.tensor(value or 0.0)
    return values


def judged_advantages(
    advantage: Advantage, judged: Sequence[JudgedResponse], settings: DPHSettings, limit: int
) -> list[float | Sequence[float] | None]:
    """The advantage of each response, of at most `limit` tokens, in its group: one for all of its tokens or one for
    each, by the native engine's shaping; None for one that leaves the loss."""
    members: dict[str, list[JudgedResponse]] = {}
    for one in judged:
        members.setdefault(one.group, []).append(one)
    shaping = Shaping(
        advantage,
        OverlongConfig(buffer=settings.overlong_buffer, penalty=settings.overlong_penalty),
        limit,
        settings.mask_truncated,
        style=lambda *_: None,
        reference_logprobs=lambda _: [one.reference for group in members.values() for one in group],
    )
    unknown = Problem("", "", "", "")  # verl's driver does not hold the problems
    groups = [Group(unknown, [], [one.rollout for one in group]) for group in members.values()]
    rows = dict(zip(members, map(iter, shaping.rows(groups)), strict=True))
    return [(row := next(rows[one.group])) and row.advantage for one in judged]


def outcome_metrics(verdicts: Sequence[tuple[str, bool]]) -> dict[str, float]:
    """Share of each outcome among a step's responses, and of those whose judging failed, from the outcome of each and
    whether it could be judged."""
    counts, total = Counter(outcome for outcome, _ in verdicts), max(1, len(verdicts))
    shares = {f"dph/outcome/{name}": counts[name] / total for name in sorted(counts) if name}
    return {"dph/unscored": sum(not scored for _, scored in verdicts) / total, **shares}


# DAPO's filter of groups ---------------------------------------------------------------------------------------------


def constant_value(metric: str, infos: Sequence[Mapping[str, Any]]) -> float | None:
    """The value that all judged responses of a group share, or None if they differ; NaN without a judged response."""
    values = {float(info[metric]) for info in infos if is_scored(info)} or {math.nan}
    return values.pop() if len(values) == 1 else None


class JudgedReplayBuffer(ReplayBuffer):
    """Drops groups whose judged responses are all correct or all wrong; verl would count failed judgings as wrong."""

    def __init__(self, *args: Any, responses: int, max_unjudged: float, **kwargs: Any) -> None:
        """responses: of an update; max_unjudged: the share of a step's responses whose judging may fail; the others are
        verl's."""
        super().__init__(*args, **kwargs)
        self._max_unjudged, self._responses = max_unjudged, responses
        self._dropped: list[dict[str, Any]] = []

    def take_dropped(self) -> list[dict[str, Any]]:
        """The values of the reward function for each response of the groups dropped since the last call."""
        taken, self._dropped = self._dropped, []
        return taken

    def _dapo_filtered_keys(self, partition_id: str) -> tuple[set[str], Counter[float]]:
        """Finished groups without signal, and the number of them for each shared value. Raises UserError once too many
        of their responses could not be judged, even if all others can be: verl would sample without end."""
        if partition_id == "val" or self.filter_groups_metric is None or self.filter_groups_metric == "reward":
            return super()._dapo_filtered_keys(partition_id)
        classified = self._dapo_classification_cache[partition_id]
        finished = self.finished_keys[partition_id]
        for gone in classified.keys() - finished:
            del classified[gone]
        members: dict[str, list[str]] = {}
        for key in self.partitions[partition_id]:
            group = key.split("_")[0]
            if group in finished and group not in classified:
                members.setdefault(group, []).append(key)
        for group, keys in members.items():
            data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=["extra_fields"])
            infos = [reward_info(x) for x in data["extra_fields"]]
            classified[group] = constant_value(self.filter_groups_metric, infos)
            self._dropped += infos if classified[group] is not None else []
        failed = sum(not is_scored(info) for info in self._dropped)
        check_unjudged(failed, len(self._dropped) + self._responses, self._max_unjudged)
        filtered = {group: value for group, value in classified.items() if value is not None}
        return set(filtered), Counter(filtered.values())
