# pyright: reportMissingImports=false
"""What the driver reads from verl's TransferQueue and puts into it: verdicts, DAPO's filter, stored responses."""

import copy
import math
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
import transfer_queue as tq
from tensordict import TensorDict
from torch import Tensor
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.utils.model import compute_position_id_with_mask
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from dph.errors import UserError
from dph.integrations.verl.ordering import mixed_order
from dph.integrations.verl.worker import IS_REHEARSAL
from dph.rehearsal.store import Rehearsal
from dph.types import Completion, Outcome, Rollout, Verdict

# Verdicts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JudgedResponse:
    """One response of a step."""

    group: str
    """verl's id of the draw: one prompt, asked once for a whole group."""
    rollout: Rollout
    """Its tokens, with log π_old, and its verdict: INFRA_ERROR if the judging itself failed, and for padding rows."""
    outcome: str
    """The outcome that our verifiers gave; empty with another reward function."""
    reference: list[float]
    """Log-probabilities under the reference model; empty without one."""
    mask: Tensor
    """int64 [length]: verl's response mask."""
    padding: bool


def reward_info(extra_fields: Any) -> dict[str, Any]:
    """What the reward function returned besides the score, from verl's column extra_fields."""
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


def read_judged(batch: KVBatchMeta, limit: int, tokenizer: Any, *, reference: bool = False) -> list[JudgedResponse]:
    """The rows of a batch, in its order. Raises UserError for agent loops with several trajectories per session.

    limit: length of the longest response, in tokens; one that long that does not end with the end token was cut off.
    reference: read the log-probabilities of the reference model, too.
    """
    fields = ["uid", "responses", "response_mask", "rm_scores", "extra_fields", "old_log_probs"]
    fields += ["ref_log_prob"] * reference
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    columns = [list(data[name]) for name in fields] + [[None] * len(batch)] * (not reference)
    rows = []
    every = zip(batch.keys, batch.tags, *columns, strict=True)
    for key, tag, uid, responses, mask, scores, extra, old, ref in every:
        if not key.endswith("_0"):
            raise UserError("trainer mode dph_sync does not support agent loops with several trajectories per session")
        info, padding = reward_info(extra), bool(tag.get("is_padding", False))
        reward, ids, verdict = float(scores.sum()), responses.tolist(), Verdict(Outcome.INFRA_ERROR, 0.0)
        outcome = str(info.get("outcome", ""))
        if is_scored(info) and not padding:  # with another reward function a reward of at least 1 is correct
            verdict = Verdict(Outcome(outcome or ("correct" if reward >= 1 else "wrong")), reward)
        cut_off = len(ids) >= limit and ids[-1] != tokenizer.eos_token_id
        completion = Completion(ids, old.float().tolist(), "length" if cut_off else "stop")
        rollout = Rollout(completion, tokenizer.decode(ids, skip_special_tokens=True), verdict)
        references = [] if ref is None else ref.float().tolist()
        rows.append(JudgedResponse(str(getattr(uid, "data", uid)), rollout, outcome, references, mask, padding))
    return rows


# DAPO's filter of groups ---------------------------------------------------------------------------------------------


def constant_value(metric: str, infos: Sequence[Mapping[str, Any]]) -> float | None:
    """The value that all judged responses of a group share, or None if they differ; NaN without a judged response."""
    values = {float(info[metric]) for info in infos if is_scored(info)} or {math.nan}
    return values.pop() if len(values) == 1 else None


class JudgedReplayBuffer(ReplayBuffer):
    """Drops groups whose judged responses are all correct or all wrong; verl would count failed judgings as wrong."""

    _max_unjudged: float
    _responses: int
    _dropped: list[dict[str, Any]]

    @classmethod
    def of(cls, buffer: ReplayBuffer, responses: int, max_unjudged: float) -> Self:
        """The same buffer, as verl's trainer made it, with this filter.

        responses: of an update. max_unjudged: share of a step's responses that may fail to be judged.
        """
        made = cls.__new__(cls)
        made.__dict__ |= vars(buffer)
        made._max_unjudged, made._responses, made._dropped = max_unjudged, responses, []
        return made

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


# Stored responses ----------------------------------------------------------------------------------------------------


def put_rows(
    batch: KVBatchMeta, stored: Sequence[Rehearsal], ranks: int, minibatches: int, step: int
) -> tuple[KVBatchMeta, KVBatchMeta]:
    """Put stored responses, perhaps none, next to a step's rollouts. Copies with an empty mask pad them, so that every
    mini-batch of every rank gets equally many.

    Returns all rows in the order of the update, and the stored ones only.
    """
    template = tq.kv_batch_get(keys=[batch.keys[0]], partition_id=batch.partition_id)[0]
    template = {name: template[name] for name in template.keys()}  # noqa: SIM118 (a TensorDict)
    cells = ranks * minibatches
    group, count = f"pef{uuid.uuid4().hex}", -(-len(stored) // cells) * cells
    padded = [stored[index % len(stored)] for index in range(count)]
    lengths = [len(row.response_ids) for row in padded]
    tags: list[dict[str, Any]] = [
        {"status": "success", "is_padding": True, "global_steps": step}  # verl's metrics leave padding out
        | {"prompt_len": len(row.prompt_ids), "response_len": length, "seq_len": row.length}
        for row, length in zip(padded, lengths, strict=True)
    ]
    keys = [f"{group}_{index}_0" for index in range(count)]
    if count:
        rows = [_fields(template, row, group, counts=index < len(stored)) for index, row in enumerate(padded)]
        tq.kv_batch_put(keys, batch.partition_id, fields=list_of_dict_to_tensordict(rows), tags=tags)
    flags = TensorDict({IS_REHEARSAL: torch.zeros(len(batch), 1, dtype=torch.int64)}, batch_size=len(batch))
    tq.kv_batch_put(batch.keys, batch.partition_id, fields=flags)
    mixed = KVBatchMeta(
        keys=batch.keys + keys,
        tags=batch.tags + tags,
        partition_id=batch.partition_id,
        fields=None if batch.fields is None else [*batch.fields, IS_REHEARSAL],  # the columns that workers fetch
        extra_info=batch.extra_info,
    )
    mixed.reorder(mixed_order(len(batch), lengths, ranks, minibatches))
    return mixed, KVBatchMeta(keys=keys, tags=tags, partition_id=batch.partition_id, extra_info={})


def _fields(template: Mapping[str, Any], row: Rehearsal, group: str, *, counts: bool) -> dict[str, Any]:
    """A stored response with every column that the rollouts of this batch have: zeros in verl's other columns with one
    value per token, copies of the rest."""
    prompt, response = torch.tensor(list(row.prompt_ids)), torch.tensor(list(row.response_ids))
    ids = torch.cat([prompt, response])
    positions = compute_position_id_with_mask(torch.ones_like(ids)[None])[0].to(template["position_ids"].dtype)
    reference = torch.tensor(list(row.ref_logprobs), dtype=torch.float32)
    mask = torch.full_like(response, int(counts))
    per_token = {
        "prompts": prompt,
        "responses": response,
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        # 0, 1, 2 …, with the leading dimensions of verl's rows (multimodal models have several)
        "position_ids": positions.expand(*template["position_ids"].shape[:-1], -1).clone(),
        "response_mask": mask,
        "loss_mask": mask,
        "old_log_probs": reference,
        "rollout_log_probs": reference,
        "ref_log_prob": reference,
        "rollout_is_weights": torch.ones_like(reference),
        "multi_modal_inputs": {},
        "uid": group,
    }
    sizes = {len(template["responses"]): len(response), len(template["input_ids"]): len(ids)}

    def fill(name: str, value: Any) -> Any:
        if name in per_token:
            return per_token[name]
        if isinstance(value, Tensor) and value.ndim and len(value) in sizes:
            return value.new_zeros((sizes[len(value)], *value.shape[1:]))
        return value.clone() if isinstance(value, Tensor) else copy.deepcopy(value)

    return {name: fill(name, value) for name, value in template.items()} | {
        IS_REHEARSAL: torch.ones(1, dtype=torch.int64)
    }
