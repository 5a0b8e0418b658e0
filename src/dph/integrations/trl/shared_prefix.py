# pyright: reportMissingImports=false
"""Prompts computed once for all of their responses, in any GRPO trainer of TRL (see `dph.integrations.shared_prefix`).

Packed rows go through TRL's own call of the model, so that wrappers, adapters, precision, output embedding and
temperature are TRL's too. That call takes one target per token, and its positions count the padding on the left; the
packed rows have both.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from trl import GRPOTrainer

from dph.config.sampling import SamplingParams, named_params, transformers_names
from dph.engine import HFSampler, Policy, Sharing, Tokens, group_by_prompt, has_noise, pack, shared_attention
from dph.errors import UserError
from dph.integrations.shared_prefix import (
    PrefixSharing,
    SharedPrefixReport,
    first_of,
    have_common_prompts,
    packed_arguments,
)
from dph.integrations.trl.columns import CheckedRewardsMixin
from dph.integrations.trl.members import SHARED_PREFIX, missing

ATTRIBUTES = (
    *("_buffered_inputs", "_step", "_tokenizer", "num_generations", "loss_type", "top_entropy_quantile"),
    *("_entropy_bonus_enabled", "aux_loss_enabled", "use_vllm", "eos_token_ids"),
)
"""Attributes of a TRL trainer that are read here; if transformers generates, it also has a `generation_config`."""
_SUPPORTED = {
    *("_from_model_config", "disable_compile", "transformers_version", "use_cache"),  # do not change what is drawn
    *("bos_token_id", "eos_token_id", "pad_token_id", "max_length"),
    *transformers_names().values(),
}
"""Settings of transformers' generation that the sampler has too."""
_NEUTRAL = {"do_sample": True} | dict.fromkeys(
    ("repetition_penalty", "encoder_repetition_penalty", "typical_p", "num_beams", "num_beam_groups", "guidance_scale"),
    1,
)
"""Settings that it does not have, with the value that changes nothing; of all others None, 0 and False do not."""


def not_exact(args: Any, parallelism: Any) -> dict[str, bool]:
    """Settings that change a model in ways that its trial on a few tokens does not see, and whether a trainer has them.
    args: of the trainer; parallelism: accelerate's ParallelismConfig, if there is one."""
    cut = parallelism is not None and bool(parallelism.cp_enabled or parallelism.sp_enabled)
    reentrant = args.gradient_checkpointing and (args.gradient_checkpointing_kwargs or {}).get("use_reentrant")
    checkpointing = "gradient checkpointing with use_reentrant=True recomputes layers without the packed layout"
    return {
        "use_liger_kernel replaces parts of the model after it was checked": bool(args.use_liger_kernel),
        "context and sequence parallelism cut the rows into pieces": cut,
        checkpointing: bool(reentrant),
    }


_SCATTERED = (
    "no two rows of a micro-batch have the same prompt; set per_device_train_batch_size to a multiple of "
    "num_generations, whole_groups to True, and a loss_type other than bnpo"
)
_NOISE = (
    "dropout or NEFTune, whose noise differs from response to response; set disable_dropout=True, dropout rates in the "
    "model's config to 0, and neftune_noise_alpha to None"
)


class SharedPrefixMixin(CheckedRewardsMixin, GRPOTrainer):
    """Computes each prompt of a micro-batch once, in passes for log-probabilities and in the update:
    `class Trainer(SharedPrefixMixin, GRPOTrainer): pass`. Loss, advantages, metrics and everything else remain TRL's.
    """

    def __init__(
        self,
        *args: Any,
        shared_prefix: bool = True,
        whole_groups: bool = True,
        shared_generation: bool = False,
        **kwargs: Any,
    ) -> None:
        """
        Args:
            shared_prefix: False trains as TRL does.
            whole_groups: bring the responses to a prompt into the same micro-batches of an optimizer step, unless the
                loss depends on which rows a micro-batch holds.
            shared_generation: if TRL would generate with transformers, sample with `dph.sampling`, which keeps a
                prompt once for all of its responses.

        Raises UserError for settings under which packed rows would not be computed exactly.
        """
        super().__init__(*args, **kwargs)
        self.shared_prefix, self.whole_groups = shared_prefix, whole_groups
        self.shared_generation = shared_generation
        self._sampler: HFSampler | None = None
        remedy, speaks = "; change this, or give shared_prefix=False", self.accelerator.is_main_process
        self._prompts = PrefixSharing("TRL", remedy=remedy, scattered=_SCATTERED, speaks=speaks)
        parallelism = getattr(self.accelerator, "parallelism_config", None)
        read = ATTRIBUTES + ("generation_config",) * (shared_generation and not self.use_vllm)
        if (shared_prefix or shared_generation) and (lacks := missing(SHARED_PREFIX, self, read)):
            self._prompts.report.reasons[lacks] = 0
            self._prompts.tell(f"prompts are computed once for each response, as in TRL, because {lacks}")
            self.shared_prefix = self.shared_generation = shared_prefix = False
        if shared_prefix:
            self._prompts.refuse(not_exact(self.args, parallelism))
        rows, responses = self.args.per_device_train_batch_size, self.num_generations
        if shared_prefix and rows % responses:
            self._prompts.tell(
                f"a micro-batch has {rows} rows, so that the {responses} responses to a prompt are in several, each of "
                "which computes the prompt; set per_device_train_batch_size to a multiple of num_generations"
            )

    def shared_prefix_report(self) -> SharedPrefixReport:
        """The tokens that this process computed so far, and why it did not share prompts if it did not."""
        report = self._prompts.report
        return replace(report, reasons=report.reasons.copy())

    def log(self, logs: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        if self._prompts.report.passes:
            self._prompts.tell_saved()
            logs["shared_prefix/saved"] = self._prompts.report.saved
        super().log(logs, *args, **kwargs)

    # Log-probabilities -----------------------------------------------------------------------------------------------

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        if not self.shared_prefix:
            return super()._get_per_token_logps_and_entropies(*args, **kwargs)
        return self._shared_logprobs(*args, **kwargs)

    def _shared_logprobs(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        **modal: Any,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        call = (model, input_ids, attention_mask, logits_to_keep, batch_size, compute_entropy, compute_aux_loss)
        size, width = batch_size or len(input_ids), input_ids.shape[1]
        in_model = self._obstacle(model, [width, size * width])
        rows = unpadded_rows(input_ids, attention_mask, logits_to_keep)
        obstacle = first_of(
            {
                "images or inputs other than tokens": any(value is not None for value in modal.values()),
                "the router's auxiliary loss, over all tokens; router_aux_loss_coef=0.0 omits it": compute_aux_loss,
                in_model or "": in_model is not None,
                "holes in the attention mask, or a prompt without its last token": rows is None,
            }
        )
        # As many forward passes as TRL makes, on every process: with FSDP and ZeRO-3 they wait for each other
        parts = [slice(start, start + size) for start in range(0, len(input_ids), size)]
        if obstacle is not None or rows is None or not have_common_prompts(rows[part] for part in parts):
            self._prompts.count(len(parts), input_ids.numel(), input_ids.numel(), obstacle)
            return super()._get_per_token_logps_and_entropies(*call, **modal)
        found = [self._packed(model, rows[part], attention_mask[part], logits_to_keep) for part in parts]
        logprobs, entropies, tokens = zip(*found, strict=True)
        self._prompts.count(len(parts), input_ids.numel(), sum(tokens))
        return torch.cat(logprobs), torch.cat(entropies) if compute_entropy else None, None

    def _packed(self, model: Any, rows: Sequence[Tokens], mask: Tensor, steps: int) -> tuple[Tensor, Tensor, int]:
        """Log-probabilities and entropies [B, T] by one forward pass over the packed rows, 0 where a row has no token;
        and the tokens of the packed rows.

        mask: [B, L], the attention mask of the padded rows. steps: T, their last columns, which hold responses.
        """
        device = self.accelerator.device
        width = mask.shape[1] - steps
        packed = pack(rows, one_target=True, first_positions=[width - len(row.prompt_ids) for row in rows])
        model = getattr(model, "_orig_mod", model)  # every packed row has another layout, which would compile again
        places = packed.sources[packed.states]
        targets = torch.full_like(packed.input_ids, -100)
        targets[0, places] = torch.tensor([token for row in rows for token in row.response_ids], dtype=torch.long)
        with self.accelerator.autocast(), shared_attention(self._plain(model).get_decoder()):
            output = model(**packed_arguments(packed, device), shift_labels=targets.to(device), fused_lm_head=True)
        present, places = mask[:, width:].bool(), places.to(device)

        def by_row(values: Tensor) -> Tensor:  # [1, N] → [B, T]
            return values.new_zeros(present.shape).index_put((present,), values[0, places])

        entropies = output.log_probs if output.entropy is None else output.entropy
        return by_row(output.log_probs), by_row(entropies), packed.input_ids.numel()

    def _obstacle(self, model: Any, sizes: Sequence[int]) -> str | None:
        """Why rows of up to the first number of tokens cannot be packed into micro-batches of the second for a model;
        None if they can. All processes call this together."""
        plain = self._plain(model)
        if has_noise(plain):
            return _NOISE
        return self._prompts.in_model(plain, lambda: self._examine(model, plain), sizes, self._largest)

    def _largest(self, sizes: Sequence[int]) -> list[int]:
        """The largest of each number over all processes."""
        return self.accelerator.gather(torch.tensor([sizes], device=self.accelerator.device)).amax(0).tolist()

    def _plain(self, model: Any) -> Any:
        """A model without what distributes and compiles it."""
        return self.accelerator.unwrap_model(model, keep_torch_compile=False)

    def _examine(self, model: Any, plain: Any) -> list[Sharing]:
        """The check whether a model can share prefixes: trials, unless its settings exclude it."""
        config, mixed = plain.config.get_text_config(), self.accelerator.mixed_precision != "no"
        dtype = torch.bfloat16 if mixed else next(plain.parameters()).dtype
        packed = partial(Sharing, partial(self._try_rows, model), config, dtype)
        adapters = getattr(plain, "peft_config", {}).values()
        if any(getattr(one, "is_prompt_learning", False) for one in adapters):
            return [packed(failure="its adapter puts tokens before each row")]
        if any(hasattr(part, "_checkpoint_wrapped_module") for part in plain.modules()):
            return [packed(failure="layers in torch's checkpoint wrapper are recomputed without the packed layout")]
        sharded = self.is_fsdp_enabled or self.is_deepspeed_enabled or isinstance(plain, FSDPModule)
        if dtype.itemsize == 2 and not sharded:
            # The layers by themselves, in fp32: rounding to 16 bits would hide a small error
            try:
                policy = Policy(plain, self._tokenizer)
                _ = policy.head
            except UserError as error:
                return [packed(failure=str(error))]
            return [policy.sharing, packed()]
        return [packed()]

    def _try_rows(self, model: Any, rows: Sequence[Tokens], shared: bool) -> Tensor:
        """Log-probabilities of all response tokens, packed or as TRL computes them."""
        ids, mask, steps = padded_rows(rows, self._tokenizer.pad_token_id, self.accelerator.device)
        if shared:
            found, *_ = self._packed(model, rows, mask, steps)
        else:
            found, *_ = super()._get_per_token_logps_and_entropies(model, ids, mask, steps)
        return found[mask[:, -steps:].bool()]

    # Micro-batches ---------------------------------------------------------------------------------------------------

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """As TRL's method, with the responses to a prompt in the same micro-batches."""
        before = getattr(self, "_buffered_inputs", None)
        inputs = super()._prepare_inputs(generation_batch)
        if not self.shared_prefix or self._buffered_inputs is before or not self._may_regroup():
            return inputs
        parts, window = self._buffered_inputs, self.args.gradient_accumulation_steps
        self._buffered_inputs = [
            part for start in range(0, len(parts), window) for part in group_rows(parts[start : start + window])
        ]
        return self._buffered_inputs[self._step % len(parts)]

    def _may_regroup(self) -> bool:
        """Whether rows can move between the micro-batches of an optimizer step without changing its gradient."""
        one, other = self.args.steps_per_generation, self.args.gradient_accumulation_steps
        return (
            (self.whole_groups and max(one, other) % min(one, other) == 0)
            and (self.loss_type != "bnpo" and not self._entropy_bonus_enabled and self.top_entropy_quantile == 1.0)
            and not self.aux_loss_enabled
            and all(isinstance(value, Tensor | None) for value in self._buffered_inputs[0].values())
        )

    # Generation ------------------------------------------------------------------------------------------------------

    def _generate_single_turn(self, prompt_ids: list[list[int]], *args: Any, **kwargs: Any) -> Any:
        if self.shared_generation and not (self.use_vllm or self.use_transformers_continuous_batching):
            try:
                if any(args[:2]):
                    raise UserError("of images or inputs other than tokens")
                return self._sample_shared(prompt_ids), None
            except UserError as error:
                self._prompts.tell(f"transformers generates, because {error}")
        return super()._generate_single_turn(prompt_ids, *args, **kwargs)

    def _sample_shared(self, prompts: list[list[int]]) -> list[list[int]]:
        """Responses of this package's sampler. Raises UserError if it cannot take transformers' place."""
        from trl.models import unwrap_model_for_generation

        if self.is_fsdp_enabled or self.is_deepspeed_enabled or self.accelerator.mixed_precision == "fp16":
            raise UserError("the sampler was not tried with FSDP, DeepSpeed or fp16")
        chosen = self.generation_config
        with unwrap_model_for_generation(
            self.model_wrapped,
            self.accelerator,
            generation_kwargs=self.generation_kwargs,
            gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
        ) as model:
            params = generation_params(model, chosen)
            if unknown := unknown_setting(model, chosen) or another_order(params):
                raise UserError(f"the sampler does not support {unknown}")
            if self._sampler is None:
                precision = "bf16" if self.accelerator.mixed_precision == "bf16" else "fp32"
                policy = Policy(model, self._tokenizer, precision=precision)
                policy.eos_ids = frozenset(self.eos_token_ids)
                self._sampler = HFSampler(policy)
            return sample_groups(self._sampler, prompts, params)


# Rows of token ids as TRL's tensors hold them: prompts padded on the left, responses on the right ---------------------


def padded_rows(rows: Sequence[Tokens], pad: int, device: torch.device) -> tuple[Tensor, Tensor, int]:
    """Token ids [B, L], attention mask [B, L], and the number of last columns that hold responses."""
    width, steps = (max(len(getattr(row, name)) for row in rows) for name in ("prompt_ids", "response_ids"))
    ids = torch.full((len(rows), width + steps), pad)
    mask = torch.zeros_like(ids)
    for index, row in enumerate(rows):
        columns = slice(width - len(row.prompt_ids), width + len(row.response_ids))
        ids[index, columns] = torch.tensor([*row.prompt_ids, *row.response_ids])
        mask[index, columns] = 1
    return ids.to(device), mask.to(device), steps


def unpadded_rows(ids: Tensor, mask: Tensor, steps: int) -> list[Tokens] | None:
    """The rows of padded tensors, as `padded_rows` returns them; None if the mask has another shape than padding, which
    leaves one piece of each row, with the last token of its prompt."""
    seen = mask.bool().cpu()
    width = seen.shape[1] - steps
    pieces = (seen[:, 1:] & ~seen[:, :-1]).sum(1) + seen[:, 0]
    if width == 0 or not bool(seen[:, width - 1].all() and (pieces == 1).all()):
        return None
    columns = (slice(None, width), slice(width, None))
    return [
        Tokens(*(row[column][present[column]].tolist() for column in columns))
        for row, present in zip(ids.cpu(), seen, strict=True)
    ]


def group_rows(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of TRL's micro-batches in as many of the same size, those with the same prompt next to each other."""
    by_row = [name for name, value in parts[0].items() if value is not None and value.ndim > 0]
    every = {name: torch.cat([part[name] for part in parts]) for name in by_row}
    ids, mask = every["prompt_ids"], every["prompt_mask"]
    prompts = [Tokens(row[seen].tolist(), []) for row, seen in zip(ids.cpu(), mask.bool().cpu(), strict=True)]
    order = torch.tensor([index for group in group_by_prompt(prompts) for index in group], device=ids.device)
    size = len(order) // len(parts)
    return [
        {**one, **{name: value[order[index * size : (index + 1) * size]] for name, value in every.items()}}
        for index, one in enumerate(parts)
    ]


# Responses by this package's sampler, which computes and stores the prompt of a group once ----------------------------


def unknown_setting(model: Any, chosen: Any, more: Collection[str] = ()) -> str | None:
    """A setting of transformers' generation, with its value, that the sampler does not have and that is not one `more`;
    None if there is none. The model's own generation config holds for all that the call's, `chosen`, leaves open."""
    settings = model.generation_config.to_diff_dict() | chosen.to_diff_dict()
    changed = (pair for pair in settings.items() if pair[1] not in (None, _NEUTRAL.get(pair[0], False)))
    known = {*_SUPPORTED, *more}
    return min((f"{name}={value!r}" for name, value in changed if name not in known), default=None)


def generation_params(model: Any, chosen: Any) -> SamplingParams:
    """The sampling parameters by which transformers generates, as `unknown_setting` reads the two configs."""
    asked = {name: value for name, value in chosen.to_dict().items() if value is not None}
    return named_params(model.generation_config.to_dict() | asked, transformers_names())


def another_order(params: SamplingParams) -> str | None:
    """Two truncations that transformers applies in another order than the sampler, in words; None if there are none."""
    return f"min_p={params.min_p!r} after top_p" if len(params.truncations) > 1 else None


def sample_groups(sampler: HFSampler, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[list[int]]:
    """A response to each prompt, in order; equal prompts form a group, whatever `params.n` is. The random keys come
    from torch's generator, whose state TRL saves with its checkpoints."""
    responses: list[list[int]] = [[] for _ in prompts]
    groups = group_by_prompt([Tokens(prompt, []) for prompt in prompts])
    for count in sorted({len(group) for group in groups}):
        alike = [group for group in groups if len(group) == count]
        keys = torch.randint(1 << 62, (len(alike),)).tolist()
        sampled = sampler.sample([prompts[group[0]] for group in alike], replace(params, n=count), keys)
        for group, completions in zip(alike, sampled, strict=True):
            for row, completion in zip(group, completions, strict=True):
                responses[row] = list(completion.token_ids)
    return responses
