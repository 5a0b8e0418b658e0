# pyright: reportMissingImports=false
"""Stored responses beside a step's rollouts in verl's TransferQueue, dealt so that every mini-batch of every rank gets
equally many.
"""

import copy
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from torch import Tensor
from transfer_queue import KVBatchMeta
from verl.utils.model import compute_position_id_with_mask
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from dph.engine import Rehearsal, even_weights
from dph.integrations.verl.engine import IS_REHEARSAL, ROW_WEIGHT
from dph.integrations.verl.ordering import mixed_order, stored_places


def put_rows(
    batch: KVBatchMeta, stored: Sequence[Rehearsal], ranks: int, minibatches: int, step: int, *, even: bool = False
) -> tuple[KVBatchMeta, KVBatchMeta]:
    """Put stored responses, perhaps none, next to a step's rollouts; copies with an empty mask pad them, so that every
    mini-batch of every rank gets equally many. Returns all rows in the order of the update, and the stored ones.

    even: whether, within a mini-batch, each problem with stored responses counts alike, and so does each of the stored
    responses of a problem (`even_weights`).
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
    order = mixed_order(len(batch), lengths, ranks, minibatches)
    weights = [1.0] * count
    if even:
        places = stored_places(order, len(batch), len(stored), ranks, minibatches)
        for its in places:
            for index, weight in zip(its, even_weights([stored[index].problem_id for index in its]), strict=True):
                weights[index] = weight
    if count:
        rows = [_fields(template, row, group, counts=index < len(stored)) for index, row in enumerate(padded)]
        if even:
            rows = [row | {ROW_WEIGHT: torch.tensor([one])} for row, one in zip(rows, weights, strict=True)]
        tq.kv_batch_put(keys, batch.partition_id, fields=list_of_dict_to_tensordict(rows), tags=tags)
    flags = {IS_REHEARSAL: torch.zeros(len(batch), 1, dtype=torch.int64)}
    if even:
        flags[ROW_WEIGHT] = torch.ones(len(batch), 1)
    tq.kv_batch_put(batch.keys, batch.partition_id, fields=TensorDict(flags, batch_size=len(batch)))
    mixed = KVBatchMeta(
        keys=batch.keys + keys,
        tags=batch.tags + tags,
        partition_id=batch.partition_id,
        fields=None if batch.fields is None else [*batch.fields, *flags],  # the columns that workers fetch
        extra_info=batch.extra_info,
    )
    mixed.reorder(order)
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
