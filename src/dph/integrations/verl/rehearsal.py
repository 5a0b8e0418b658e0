# pyright: reportMissingImports=false
"""Stored responses in verl's TransferQueue: put beside a step's rollouts for the update, and removed afterwards."""

import copy
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transfer_queue as tq
from tensordict import TensorDict
from torch import Tensor
from transfer_queue import KVBatchMeta
from verl.utils.model import compute_position_id_with_mask
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from dph.errors import UserError
from dph.integrations.verl.loss import IS_REHEARSAL
from dph.integrations.verl.mixing import mixed_order, padded_count
from dph.integrations.verl.settings import DPHSettings
from dph.models.language_model import tokenizer_hash
from dph.rehearsal.check import CheckedSet, check_facts, open_set
from dph.rehearsal.store import Rehearsal


def open_stored(settings: DPHSettings, tokenizer: Any, temperature: float, top_p: float) -> CheckedSet:
    """The set that the settings name. Raises UserError if it is not complete, is empty, or does not fit this run.

    The trainer compares the model before the first update, by recomputing log-probabilities.
    """
    path = Path(settings.rehearsal)
    checked = open_set(path)
    facts = {"tokenizer_hash": tokenizer_hash(tokenizer), "temperature": float(temperature), "top_p": float(top_p)}
    check_facts(checked.run.manifest, facts, path)
    if not checked.stored:
        raise UserError(f"the rehearsal set of {path} is empty; lower its threshold, or set dph.rows=0")
    return checked


def put_rows(
    batch: KVBatchMeta, stored: Sequence[Rehearsal], ranks: int, minibatches: int, step: int
) -> tuple[KVBatchMeta, KVBatchMeta]:
    """Put stored responses, perhaps none, beside a step's rollouts.

    Copies with an empty mask pad them, so that every mini-batch of every rank gets equally many.

    Returns:
        All rows in the order of the update, and the stored ones only.
    """
    template = tq.kv_batch_get(keys=[batch.keys[0]], partition_id=batch.partition_id)[0]
    template = {name: template[name] for name in template.keys()}  # noqa: SIM118 (a TensorDict)
    own = _put(template, stored, ranks * minibatches, step, batch.partition_id)
    flags = TensorDict({IS_REHEARSAL: torch.zeros(len(batch), 1, dtype=torch.int64)}, batch_size=len(batch))
    tq.kv_batch_put(batch.keys, batch.partition_id, fields=flags)
    mixed = KVBatchMeta(
        keys=batch.keys + own.keys,
        tags=batch.tags + own.tags,
        partition_id=batch.partition_id,
        fields=None if batch.fields is None else [*batch.fields, IS_REHEARSAL],  # the columns that workers fetch
        extra_info=batch.extra_info,
    )
    lengths = [tag["response_len"] for tag in own.tags]
    mixed.reorder(mixed_order(len(batch), lengths, ranks, minibatches))
    return mixed, own


def _put(
    template: dict[str, Any], stored: Sequence[Rehearsal], multiple: int, step: int, partition: str
) -> KVBatchMeta:
    """Put stored responses into the queue, with the columns of a template, padded to a multiple of `multiple`."""
    group = f"pef{uuid.uuid4().hex}"
    count = padded_count(len(stored), multiple)
    rows = [_fields(template, stored[i % len(stored)], group, counts=i < len(stored)) for i in range(count)]
    tags = [_tag(stored[i % len(stored)], step) for i in range(count)]
    keys = [f"{group}_{index}_0" for index in range(count)]
    if count:
        tq.kv_batch_put(keys, partition, fields=list_of_dict_to_tensordict(rows), tags=tags)
    return KVBatchMeta(keys=keys, tags=tags, partition_id=partition, extra_info={})


def remove_rows(own: KVBatchMeta) -> None:
    """Remove the stored rows from the queue."""
    if not len(own):
        return
    tq.kv_clear(keys=own.keys, partition_id=own.partition_id)


def _tag(row: Rehearsal, step: int) -> dict[str, Any]:
    lengths = {"prompt_len": len(row.prompt_ids), "response_len": len(row.response_ids), "seq_len": row.length}
    return {"status": "success", "is_padding": True, "global_steps": step, **lengths}


def _fields(template: dict[str, Any], row: Rehearsal, group: str, *, counts: bool) -> dict[str, Any]:
    """A stored response with every column that the rollouts of this batch have.

    verl's other columns are filled with zeros where they have one value per token, and copied where they do not.
    """
    assert row.ref_logprobs is not None
    prompt, response = torch.tensor(list(row.prompt_ids)), torch.tensor(list(row.response_ids))
    ids = torch.cat([prompt, response])
    reference = torch.tensor(list(row.ref_logprobs), dtype=torch.float32)
    mask = torch.full_like(response, int(counts))
    per_token = {
        "prompts": prompt,
        "responses": response,
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "position_ids": _position_ids(template["position_ids"], ids),
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

    fields = {name: fill(name, value) for name, value in template.items()}
    fields[IS_REHEARSAL] = torch.ones(1, dtype=torch.int64)
    return fields


def _position_ids(template: Tensor, ids: Tensor) -> Tensor:
    """0, 1, 2 …, with the leading dimensions of verl's rows (multimodal models have several)."""
    positions = compute_position_id_with_mask(torch.ones_like(ids)[None])[0].to(template.dtype)
    return positions.expand(*template.shape[:-1], -1).clone()
