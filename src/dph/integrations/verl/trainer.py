# pyright: reportMissingImports=false
"""verl's synchronous trainer (verl 0.9.1, V1) with whole groups on each rank, and with DPH-RL's objective.

    trainer.v1.trainer_mode=shared_prefix_sync    verl's mode `sync`, with whole groups
    trainer.v1.trainer_mode=dph_sync              the same, with judged advantages and stored responses

Both add unbiased pass@k to the validation and a gate on the sampler. A synchronous trainer of your own takes
`GroupedBatchMixin`, `PassAtKMixin` and `SamplerGateMixin`.
They run in verl's driver, which reads from verl's TransferQueue and puts into it: verdicts, stored responses.
"""

import copy
import math
import os
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from tensordict import TensorDict
from torch import Tensor
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.model import compute_position_id_with_mask
from verl.utils.seqlen_balancing import calculate_workload, log_seqlen_unbalance
from verl.utils.tensordict_utils import list_of_dict_to_tensordict
from verl.workers.utils.padding import response_from_nested

from dph.config import OverlongConfig
from dph.config.sampling import sampling_facts
from dph.engine import (
    CheckedSet,
    Ledger,
    Rehearsal,
    RehearsalSet,
    Rendering,
    Shaping,
    check_deviation,
    check_facts,
    coverage_shares,
    dated_template,
    open_set,
    rendering_facts,
    warn,
)
from dph.errors import UserError
from dph.integrations.sampler import check_sampler
from dph.integrations.verl.engine import IS_REHEARSAL, MINIBATCHES, DPHActorRolloutRefWorker, DPHLoss
from dph.integrations.verl.ordering import group_load, grouped_order, mixed_order
from dph.integrations.verl.settings import TRAINER_MODE, VENDOR, DPHSettings, configured, drawn_by
from dph.objective import Advantage
from dph.types import Completion, Group, Outcome, Problem, Rollout, Verdict


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


def _plain(config: Any) -> Any:
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
        block = _plain(OmegaConf.select(self.config, "dph", default=OmegaConf.create({})))
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


# Verdicts ------------------------------------------------------------------------------------------------------------


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


# Stored responses ----------------------------------------------------------------------------------------------------


def put_rows(
    batch: KVBatchMeta, stored: Sequence[Rehearsal], ranks: int, minibatches: int, step: int
) -> tuple[KVBatchMeta, KVBatchMeta]:
    """Put stored responses, perhaps none, next to a step's rollouts; copies with an empty mask pad them, so that every
    mini-batch of every rank gets equally many. Returns all rows in the order of the update, and the stored ones."""
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


# The trainer modes ----------------------------------------------------------------------------------------------------


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
        self._stored: tuple[CheckedSet, RehearsalSet] | None = None
        """The stored responses with what is known of them, and in the order in which steps take them."""
        super().__init__(config)

    # Set-up ----------------------------------------------------------------------------------------------------

    def _init_tokenizer(self) -> None:
        super()._init_tokenizer()
        if self._dph.rows:
            rollout = self.config.actor_rollout_ref.rollout
            path = Path(self._dph.rehearsal)
            checked = open_set(path)
            sampling = sampling_facts(drawn_by(rollout, _plain(self.config.dph)))
            rendering = Rendering(self._dph.date, _plain(self.config.data.get("apply_chat_template_kwargs")) or {})
            if dated_template(template := str(self.tokenizer.chat_template), rendering.date) != template:
                raise UserError(
                    "the chat template writes today's date, so that prompts change from day to day; start training "
                    "with `python -m dph.integrations.verl`, which puts dph.date in its place"
                )
            facts = {**rendering_facts(rendering, self.tokenizer), **sampling}
            check_facts(checked.run, facts)  # the weights are compared before the first update
            self._stored = checked, RehearsalSet(checked.stored, self._dph.seed)

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

    # A step ----------------------------------------------------------------------------------------------------

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
        if self._stored is None:
            return super()._update_actor(batch, metrics)
        cursor = (self.global_steps - 1) * self._dph.rows  # of the step alone, so that a resumed run takes the same
        stored = self._stored[1].take(cursor, self._dph.rows)
        mixed, added = put_rows(batch, stored, ranks, minibatches, self.global_steps)
        try:
            if len(added) and self._dph.check_rows and self.global_steps <= 1:  # before the first update of a run
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
