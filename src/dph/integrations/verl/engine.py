# pyright: reportMissingImports=false
"""verl's training processes: the objective as verl's loss, with the denominators of both sets over all ranks; and an
FSDP2 engine with prompts computed once for all of their responses.

verl uses that engine if the environment says VERL_ENGINE_VENDOR=dph; the strategy stays `fsdp2`. It differs from
verl's in two places: it cuts a batch into micro-batches of whole groups, and packs their rows (see
`dph.models.packing`).
"""

import itertools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_name
from verl.utils.metric import AggregationType, Metric
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.engine.utils import postprocess_batch_func
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker
from verl.workers.utils.padding import no_padding_2_padding

from dph.config import LossConfig
from dph.engine import (
    Entropy,
    Sharing,
    Tokens,
    by_prompt,
    has_noise,
    load_plugin,
    pack,
    packed_microbatches,
    packed_tokens,
    shared_attention,
    token_logprobs,
)
from dph.integrations.shared_prefix import PrefixSharing, first_of, have_common_prompts, packed_arguments
from dph.integrations.verl.settings import VENDOR
from dph.objective import LossCounts, Objective, TokenBatch

IS_REHEARSAL = "dph_rehearsal"
"""Column [B]: 1 for stored responses, 0 for rollouts. Batches without stored responses lack it."""
ROW_WEIGHT = "dph_row_weight"
"""Column [B]: how much each row counts within its set. Batches without a bank lack it."""
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


def row_weights(data: Any) -> Tensor | None:
    """float [B]: how much each row counts within its set; None if all count alike."""
    if ROW_WEIGHT not in data:
        return None
    return torch.stack([row.reshape(()) for row in data[ROW_WEIGHT].unbind()])


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
        counts = LossCounts.of(TokenBatch(mask, None, mask, mask, rehearsal_flags(data), None, row_weights(data)))
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
        """A micro-batch's loss, times the number of ranks, over which the engines average gradients, and metrics by
        name: means per token over the mini-batch and all ranks.

        Args:
            model_output: nested log_probs at the sampling temperature, in nats, and perhaps entropy, over whole
                sequences.
            data: the micro-batch, nested columns; log π_ref is in old_log_probs on stored rows, and in ref_log_prob on
                rollouts, if there is a reference model.
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
        batch = TokenBatch(
            stored, reference, padded["response_mask"], padded["advantages"], flags, row_weights=row_weights(data)
        )
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


# Shared prompts -------------------------------------------------------------------------------------------------------

PACKED = "dph_rows"
"""The rows of a micro-batch that is computed packed, as a tuple; one without is computed as verl does."""
_NOISE = "dropout, whose noise differs from response to response; set the rates in the model's config to 0"
_FIXED_SIZE = "micro-batches of a fixed number of rows cut groups; set use_dynamic_bsz=True"


def not_exact(model: Any, engine: Any) -> dict[str, bool]:
    """Settings of verl's HFModelConfig and FSDPEngineConfig with which packed rows would not be exact, or were not
    tried, and whether a configuration has them."""
    return {
        f"strategy {engine.strategy!r} was not tried with packed rows; use fsdp2": engine.strategy != "fsdp2",
        "Ulysses cuts rows; set ulysses_sequence_parallel_size=1": engine.ulysses_sequence_parallel_size > 1,
        "fused kernels predict one token from each position, a packed prompt several": model.use_fused_kernels,
        _FIXED_SIZE: not engine.use_dynamic_bsz,
        "pad_to_length pads rows that are not packed": engine.pad_to_length,
        "enable_activation_offload recomputes layers without the packed layout": model.enable_activation_offload,
    }


@dataclass(frozen=True, slots=True)
class IndexedTokens(Tokens):
    """A row with its place in the batch."""

    index: int


def jagged_rows(data: Any) -> list[IndexedTokens] | None:
    """The rows of a batch, or None if it does not hold each row as a prompt and then a response, without padding."""
    names = ("prompts", "responses", "input_ids", "position_ids")
    if not all(name in data and data[name].is_nested and data[name].dim() == 2 for name in names):
        return None
    prompts, responses, ids, positions = (data[name] for name in names)
    lengths = prompts.offsets().diff() + responses.offsets().diff()
    starts = ids.offsets()[:-1]
    if not ids.offsets().diff().equal(lengths):
        return None
    counted = torch.arange(len(ids.values()), device=starts.device) - starts.repeat_interleave(lengths)
    if not positions.values().equal(counted.to(positions.dtype)):
        return None
    same: dict[tuple[int, ...], tuple[int, ...]] = {}  # one object for each prompt, so that equal ones are found fast
    pairs = zip(_pieces(prompts), _pieces(responses), strict=True)
    return [IndexedTokens(same.setdefault(prompt, prompt), response, i) for i, (prompt, response) in enumerate(pairs)]


def _pieces(nested: Any) -> list[tuple[int, ...]]:
    values, offsets = nested.values().tolist(), nested.offsets().tolist()
    return [tuple(values[start:end]) for start, end in itertools.pairwise(offsets)]


def in_parts(parts: Sequence[list[IndexedTokens]], count: int) -> list[list[IndexedTokens]]:
    """The same rows in `count` micro-batches: the largest are halved. FSDP's ranks wait for each other in every forward
    pass, so all of them need the same number."""
    out = list(parts)
    while len(out) < count:
        out.sort(key=lambda part: packed_tokens(part) if len(part) > 1 else 0)
        largest = out.pop()
        half = len(largest) // 2
        out += [largest[:half], largest[half:]]
    return out


def whole_sequences(values: Tensor, rows: Sequence[Tokens], ids: Any) -> Tensor:
    """Values [K] of all response tokens, row by row, as verl keeps them: nested as the token ids, at the token that
    predicts each, and 0 elsewhere."""
    starts = ids.offsets()[:-1].tolist()
    places = [
        start + len(row.prompt_ids) - 1 + step
        for start, row in zip(starts, rows, strict=True)
        for step in range(len(row.response_ids))
    ]
    flat = values.new_zeros(len(ids.values())).index_copy(0, torch.tensor(places, device=values.device), values)
    return torch.nested.nested_tensor_from_jagged(flat, ids.offsets())


@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device=["cuda"], vendor=VENDOR)
class SharedPrefixEngine(FSDPEngineWithLMHead):
    """Computes each prompt of a micro-batch once, in passes for log-probabilities and in the update."""

    def __init__(self, model_config: Any, engine_config: Any, *args: Any, **kwargs: Any) -> None:
        """Raises UserError for settings under which packed rows would not be computed exactly."""
        self._prompts = PrefixSharing("verl", remedy=f", or leave VERL_ENGINE_VENDOR={VENDOR} out")
        self._prompts.refuse(not_exact(model_config, engine_config))
        super().__init__(model_config, engine_config, *args, **kwargs)

    # Micro-batches -----------------------------------------------------------------------------------------------

    def forward_backward_batch(
        self, data: TensorDict, loss_function: Callable[..., Any] | None, forward_only: bool = False
    ) -> Any:
        rows = self._shareable(data)
        if rows is None:
            return super().forward_backward_batch(data, loss_function, forward_only)
        tokens = self._over_ranks([int(data["loss_mask"].sum())], torch.distributed.ReduceOp.SUM)
        tu.assign_non_tensor(data, sp_size=1, batch_num_tokens=tokens[0], dp_size=self.get_data_parallel_size())
        parts = packed_microbatches(by_prompt(rows), int(data["max_token_len_per_gpu"]))
        parts = in_parts(parts, self._over_ranks([len(parts)], torch.distributed.ReduceOp.MAX)[0])
        self._prompts.count(len(parts), sum(row.length for row in rows), sum(map(packed_tokens, parts)))
        self._prompts.tell_saved()  # for the first batch of this rank
        keep_output = forward_only or tu.get_non_tensor_data(data=data, key="return_model_output", default=False)
        outputs, indices = [], [[row.index for row in part] for part in parts]
        for number, (part, its) in enumerate(zip(parts, indices, strict=True), 1):
            micro_batch = tu.index_select_tensor_dict(data, its)
            tu.assign_non_tensor(micro_batch, **{PACKED: tuple(part)})
            last = number == len(parts)
            sync = nullcontext() if forward_only else self._gradient_sync_context(is_last_micro_batch=last)
            with torch.set_grad_enabled(not forward_only), sync:
                loss, found = self.forward_step(micro_batch, loss_function, forward_only)
                if not forward_only:
                    (loss if self.scaler is None else self.scaler.scale(loss)).backward()
            if not keep_output:  # verl drops it in training too, because it holds the memory of a whole mini-batch
                del found["model_output"]
            outputs.append(found)
        return postprocess_batch_func(output_lst=outputs, indices=indices, data=data)

    def _over_ranks(self, values: list[int], operation: Any) -> list[int]:
        """Values reduced over the data-parallel ranks, which must all call this."""
        total = torch.tensor(values, device=get_device_name())
        torch.distributed.all_reduce(total, op=operation, group=self.get_data_parallel_group())
        return total.tolist()

    def _largest(self, sizes: list[int]) -> list[int]:
        return self._over_ranks(sizes, torch.distributed.ReduceOp.MAX)

    def _shareable(self, data: TensorDict) -> list[IndexedTokens] | None:
        """The rows of a batch if they can be packed and any rank has several with the same prompt."""
        own_temperature = "each row has a temperature of its own, and rows share the logits after their prompt; use one"
        dynamic = tu.get_non_tensor_data(data=data, key="use_dynamic_bsz", default=True)
        self._prompts.refuse({own_temperature: isinstance(data["temperature"], Tensor), _FIXED_SIZE: not dynamic})
        rows = jagged_rows(data)
        lengths = [row.length for row in rows or ()]
        sizes = [max(lengths, default=0), min(sum(lengths), int(data["max_token_len_per_gpu"]))]
        in_model = self._prompts.in_model(self.module, self._examine, sizes, self._largest)
        obstacle = first_of(
            {
                **self._obstacles(data),
                "rows that are not a prompt and then a response at positions 0, 1, 2 …": rows is None,
                _NOISE: has_noise(self.module),
                in_model or "": in_model is not None,
            }
        )
        saves = rows is not None and have_common_prompts([rows])
        any_obstacle, any_saves = self._largest([obstacle is not None, saves])
        if obstacle is not None:
            self._prompts.count(1, sum(lengths), sum(lengths), obstacle)
        return rows if any_saves and not any_obstacle else None

    def _examine(self) -> list[Sharing]:
        """The capability check of the model."""
        return [Sharing(self._try_rows, self.module.config.get_text_config(), self._autocast_dtype)]

    def _obstacles(self, data: TensorDict) -> dict[str, bool]:
        """Why a batch with tokens alone could not be packed, and whether this one could not."""
        names = ("distillation_use_topk", "distillation_only", "calculate_sum_pi_squared")
        others = [getattr(one, "data", one) for one in data.get("multi_modal_inputs", [])]
        return {
            **{
                f"{name}, which needs the logits of every token": bool(
                    tu.get_non_tensor_data(data=data, key=name, default=False)
                )
                for name in names
            },
            "images or inputs other than tokens": any(
                inputs is not None and len(list(inputs.keys())) > 0 for inputs in others
            ),
        }

    def _try_rows(self, rows: Sequence[Tokens], shared: bool) -> Tensor:
        """Log-probabilities of all response tokens, packed or as verl computes them."""

        def nested(lists: list[list[int]]) -> Tensor:
            return torch.nested.as_nested_tensor([torch.tensor(one) for one in lists], layout=torch.jagged)

        columns = {
            "prompts": nested([list(row.prompt_ids) for row in rows]),
            "responses": nested([list(row.response_ids) for row in rows]),
            "input_ids": nested([[*row.prompt_ids, *row.response_ids] for row in rows]),
            "position_ids": nested([list(range(row.length)) for row in rows]),
        }
        data = TensorDict(columns, batch_size=len(rows))
        tu.assign_non_tensor(data, temperature=1.0, use_remove_padding=self.use_remove_padding)
        if shared:
            tu.assign_non_tensor(data, **{PACKED: tuple(rows)})
        _, found = self.forward_step(data, None, True)
        sequences = found["model_output"]["log_probs"].unbind()
        return torch.cat([x[len(row.prompt_ids) - 1 : -1] for x, row in zip(sequences, rows, strict=True)])

    # A micro-batch -----------------------------------------------------------------------------------------------

    def forward_step(self, micro_batch: TensorDict, loss_function: Any, forward_only: bool) -> Any:
        if PACKED not in micro_batch:
            return super().forward_step(micro_batch, loss_function, forward_only)
        model: Any = self.module.get_base_model() if hasattr(self.module, "get_base_model") else self.module
        with shared_attention(model.get_decoder()):
            return super().forward_step(micro_batch, loss_function, forward_only)

    def prepare_model_inputs(self, micro_batch: TensorDict) -> tuple[dict[str, Any], dict[str, Any]]:
        if PACKED not in micro_batch:
            return super().prepare_model_inputs(micro_batch)
        packed, device = pack(micro_batch[PACKED]), micro_batch["input_ids"].device
        inputs = {**packed_arguments(packed, device), "attention_mask": None}
        inputs["logits_to_keep"] = packed.sources.to(device)
        return inputs, {"states": packed.states.to(device)}

    def prepare_model_outputs(
        self, output: Any, output_args: dict[str, Any], micro_batch: TensorDict, logits_processor_func: Any
    ) -> dict[str, Tensor]:
        if PACKED not in micro_batch:
            return super().prepare_model_outputs(output, output_args, micro_batch, logits_processor_func)
        entropy: Entropy = "none"
        if tu.get_non_tensor_data(data=micro_batch, key="calculate_entropy", default=False):
            entropy = "gradient" if torch.is_grad_enabled() else "value"
        temperature = max(float(micro_batch["temperature"]), 1e-8)  # as verl, which calls greedy sampling 0
        targets = micro_batch["responses"].values()
        logits, states = output.logits.squeeze(0), output_args["states"]
        logprobs, entropies = token_logprobs(logits, states, targets, temperature, entropy)
        ids = micro_batch["input_ids"]
        outputs = {"log_probs": logprobs} if entropies is None else {"log_probs": logprobs, "entropy": entropies}
        return {name: whole_sequences(values, micro_batch[PACKED], ids) for name, values in outputs.items()}
