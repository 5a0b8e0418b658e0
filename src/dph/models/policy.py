"""A policy: a causal language model with its tokenizer, from which it has log-probabilities, token ids, hashes and
files."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from dph.config import EvaluatedModelConfig, ReferenceModelConfig, SupervisedModelConfig
from dph.errors import ModelError
from dph.models.adapters import refuse_adapters
from dph.models.attention import using
from dph.models.batch import Inputs, R, Tokens, by_prompt, collate_tokens, microbatches, packed_microbatches
from dph.models.capability import GrowingCheck, replaced, scale, with_first_layers
from dph.models.chat import (
    PLAIN,
    Rendering,
    check_variables,
    encode_problem,
    known_ids,
    prompt_ids,
    text_of,
    token_ids,
    tokenizer_hash,
)
from dph.models.device import choose_precision, computed_in
from dph.models.loading import load_model
from dph.models.logprobs import Entropy, chunked_logprobs, token_logprobs
from dph.models.memory_saving import cast_layers, use_memory_saving_layers
from dph.models.saving import save_model, weight_hash
from dph.models.sharing import Sharing, shared_attention
from dph.models.traits import (
    Arguments,
    check_runs,
    context_of,
    evaluating,
    is_causal,
    plain_head,
    recomputing,
    rotary_limit,
    without_wrapped_autocast,
)
from dph.process.progress import say
from dph.types import Message, Problem

T = TypeVar("T")


class Policy:
    """A causal language model and its tokenizer on one device: the distribution of a token given the tokens before it.

    log π(y_t | x, y_<t) is the prediction of a forward pass over x and y_<t without dropout or other noise of training,
    whatever mode the model is in. A pass over the whole row gives the same numbers: a model that is not causal is
    refused, and so are rows in which a rotary embedding depends on the length of the row.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        precision: str = "fp32",
        shared_prefix: bool = True,
        rendering: Rendering = PLAIN,
    ) -> None:
        """
        Args:
            model: a transformers causal language model, possibly wrapped by peft.
            precision: of the computation, "fp32", or "bf16" for autocast.
            shared_prefix: whether the common prefix of rows is computed once, if the model allows it.
            rendering: the date and the variables for the chat template of the tokenizer.
        Raises:
            UserError: the tokenizer has no EOS token, an end token of the model is not a token id, or a variable does
                not occur in the chat template.
        """
        if tokenizer.eos_token_id is None:
            raise ModelError("the tokenizer has no EOS token, so no response could ever end; set one in its config")
        self.model, self.tokenizer = model, tokenizer
        eos = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
        ids = [i for i in (eos if isinstance(eos, (list, tuple)) else [eos]) if i is not None]
        if not all(isinstance(i, int) and not isinstance(i, bool) and abs(i) < 1 << 31 for i in ids):
            what = f"eos_token_id of the model's generation_config.json is {eos!r:.100}"
            raise ModelError(f"{what}, which is not a token id; correct it")
        self.eos_ids = frozenset([*ids, int(tokenizer.eos_token_id)])
        check_variables(tokenizer, rendering)
        self.precision, self.shared_prefix, self.rendering = precision, shared_prefix, rendering
        self._said_sharing = self._said_budget = False

    @classmethod
    def load(cls, config: EvaluatedModelConfig, seed: int = 0) -> "Policy":
        """Load a model by its name on a hub or from a folder. Raises UserError with the reason if that fails.

        seed: of the initial weights of adapters, which are the same in every process and on every device.
        """
        precision = choose_precision(config) if config.precision == "auto" else config.precision
        model, tokenizer = load_model(config, seed)
        shared = not isinstance(config, ReferenceModelConfig) or config.shared_prefix
        rendering = Rendering.of(config)
        policy = cls(model, tokenizer, precision=computed_in(precision), shared_prefix=shared, rendering=rendering)
        _ = policy.head  # refuses a model that cannot be a policy
        return policy

    @classmethod
    def to_train(cls, model: SupervisedModelConfig, seed: int = 0, checkpoint: Path | None = None) -> "Policy":
        """Load the policy that training begins with, or the policy in the folder of a checkpoint.

        Adapters are added to the model of the settings in both cases. `dph.training.checkpoints.restore` later restores
        the adapters of a checkpoint into them. Raises UserError as `load` does, and for a folder of adapters.
        """
        if checkpoint is None or model.lora_rank:
            policy = cls.load(model, seed)
            refuse_adapters(model.path, policy.model)
        else:
            policy = cls.load(replace(model, path=str(checkpoint / "model")))
        policy.save_memory()
        return policy

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def config(self) -> Any:
        """The text config of the model."""
        return self.model.config.get_text_config()

    @property
    def context_length(self) -> int:
        """The length of the longest sequence that the model accepts, in tokens."""
        return context_of(self.config)

    @property
    def causal_lm(self) -> Any:
        """The model as the class of transformers, with adapters in its layers."""
        return self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model

    def trainable(self) -> list[tuple[str, torch.nn.Parameter]]:
        """The names and the parameters that the optimizer updates, in a fixed order."""
        return [(name, p) for name, p in self.model.named_parameters() if p.requires_grad]

    def save_memory(self) -> None:
        """Let a policy that is trained in bf16 keep fewer numbers for the backward pass (see
        `dph.models.memory_saving`)."""
        if self.precision == "bf16":
            use_memory_saving_layers(self.model)

    @cached_property
    def arguments(self) -> Arguments:
        """The names of the arguments of the model's forward pass."""
        return Arguments.of(self.model)

    def check_length(self, tokens: int) -> None:
        """Raise UserError if the model defines no probability of sequences of this many tokens, because the probability
        of a token depends on the length of the sequence or on later tokens."""
        _ = self.head  # refuses a model that cannot be a policy
        reason = ""
        if tokens > (limit := rotary_limit(self.config)):
            reason = f"beyond {limit} this model's rotary embedding depends on the sequence's length"
        elif tried := self._causality.failure_at(scale(tokens, self.context_length)):
            reason = f"this model ({self.config.model_type}) {tried}"
        if reason:
            raise ModelError(
                f"a sequence may have {tokens} tokens, but {reason}; lower the limits of prompts and responses"
            )

    @cached_property
    def _causality(self) -> GrowingCheck:
        """A capability check of whether the model predicts each token from earlier tokens only."""

        def check(longest: int) -> str:
            causal = self.run_check(lambda: is_causal(self._states, int(self.config.vocab_size), longest))
            return "" if causal else f"predicts a token also from later ones in sequences of {longest} tokens"

        return GrowingCheck(check)

    def run_check(self, check: Callable[[], T]) -> T:
        """The result of a capability check, for which the model computes in fp32 with its first layers only."""

        def exact() -> T:
            with self.in_precision("fp32"):
                return check()

        autocast = torch.autocast(self.device.type, enabled=False)
        with self.evaluating(), autocast, without_wrapped_autocast(self.model):
            return with_first_layers(self.model, exact)

    @cached_property
    def head(self) -> Any:
        """The output embedding, or None (see `plain_head`). Raises UserError if the model cannot be a policy. The check
        is made in fp32, because in bf16 the rounding error of a pretrained model can be a tenth of its logits."""
        with self.evaluating():
            check_runs(self.model)
        head = self.run_check(lambda: plain_head(self.model, self.causal_lm))
        if head is None:
            say("this model transforms the outputs of its output embedding, so all logits are in memory at once")
        return head

    def evaluating(self) -> AbstractContextManager[None]:
        """Context in which all parts of the model are in evaluation mode."""
        return evaluating(self.model)

    @contextmanager
    def in_precision(self, precision: str) -> Iterator[None]:
        """Context in which the policy computes in another precision, "fp32" or "bf16".

        For "fp32", weights of 16 bits are replaced by wider copies in the context. They have the same values.
        """
        narrow = [p for p in self.model.parameters() if precision == "fp32" and p.dtype.itemsize == 2]
        with torch.inference_mode(False):
            wider = [(parameter, "data", parameter.data.float()) for parameter in narrow]
        with replaced([(self, "precision", precision), *wider]):
            yield

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, dtype=torch.bfloat16) if self.precision == "bf16" else nullcontext()

    @contextmanager
    def casting_once(self) -> Iterator[None]:
        """Context in which all passes under autocast use one cast of each weight. No weight may change in it. If any
        pass has gradients, the first must have them, because the casts keep the history with which they were made."""
        with self.autocast():  # keeps the casts until it ends
            if self.precision == "bf16" and self.device.type == "cpu":
                cast_layers(self.model)
            with torch.autocast(self.device.type, enabled=False):
                yield

    def cut(self, groups: Sequence[Sequence[R]], token_budget: int) -> tuple[list[list[R]], bool]:
        """Cut groups, each the rows of one prompt, into micro-batches of at most `token_budget` tokens. Returns them
        and whether to pack them, which is so if packing saves tokens and the model allows it."""
        shared = self._shares(groups, token_budget)
        if not shared:
            return microbatches([row for group in groups for row in group], token_budget), False
        batches = packed_microbatches(groups, token_budget)
        if len(batches) > 1 and not self._said_budget:
            computed = sum(len(by_prompt(batch)) for batch in batches)
            if computed > 2 * len(groups):
                self._said_budget = True
                say(
                    f"each prompt is computed {computed / len(groups):.1f} times, because a micro-batch of "
                    f"{token_budget} tokens does not hold all its responses; raise optim.tokens_per_microbatch if "
                    "memory allows"
                )
        return batches, True

    def collate(self, rows: Sequence[Tokens], *, shared: bool = False) -> Inputs:
        """The model inputs for rows, padded or packed (see `collate_tokens`), on the model's device."""
        return collate_tokens(rows, self.device, shared=shared, context=self.context_length)

    @torch.no_grad()
    def response_logprobs(self, rows: Sequence[Tokens], temperature: float, token_budget: int) -> list[list[float]]:
        """For each row, log π of each response token at a temperature, in nats, computed by the forward pass of
        training in micro-batches of up to `token_budget` tokens."""
        by_row: dict[int, list[float]] = {}
        batches, shared = self.cut(by_prompt(rows), token_budget)
        with self.casting_once():
            for batch in batches:
                logprobs, _ = self.logprobs(self.collate(batch, shared=shared), temperature)
                for row, values in zip(batch, logprobs.float().cpu().tolist(), strict=True):
                    by_row[id(row)] = values[: len(row.response_ids)]
        return [by_row[id(row)] for row in rows]

    @cached_property
    def sharing(self) -> Sharing:
        """Whether the model can share prefixes, and for which rows, by capability checks in fp32. On a GPU the checks
        use the reference for attention, because they are about the model. The kernels have a check of their own."""

        def within(check: Callable[[], str]) -> str:
            with nullcontext() if self.device.type == "cpu" else using("gather"):
                return self.run_check(check)

        return Sharing(self._response_outputs, self.config, torch.float32, within=within)

    def _shares(self, groups: Sequence[Sequence[Tokens]], token_budget: int) -> bool:
        """Whether a prompt is computed once for all its rows. If the model cannot, the reason is reported once."""
        if not self.shared_prefix or all(len(group) == 1 for group in groups):
            return False
        lengths = [row.length for group in groups for row in group]
        obstacle = self.sharing.obstacle(max(lengths), min(sum(lengths), token_budget))
        if obstacle is not None and not self._said_sharing:
            self._said_sharing = True
            say(f"this model computes the prompt again for each response: {obstacle} ({self.config.model_type})")
        return obstacle is None

    def logprobs(
        self, batch: Inputs, temperature: float = 1.0, *, entropy: Entropy = "none"
    ) -> tuple[Tensor, Tensor | None]:
        """log π_θ(y_t | x, y_<t) of every response token.

        Args:
            batch: B rows with up to T response tokens, either packed, or padded on the right, where no token attends to
                a later token.
            temperature: divides the logits, as in sampling.
            entropy: whether to return also the entropy of the distribution of each token, as a "value" or with
                "gradient".
        Returns:
            Log-probabilities in nats, float32 [B, T], and entropies in nats, float32 [B, T], or None. Both are 0 beyond
                the tokens of a row.
        Raises:
            ValueError: a tensor of the batch has another shape or type than `Inputs` documents.
            UserError: the model cannot be a policy, or defines no probability of sequences of this length.
        """
        targets = batch.targets()
        head = self.head
        self.check_length(batch.input_ids.shape[1] if batch.layout is None else batch.layout.longest)
        with self.autocast(), self.evaluating(), recomputing(self.model):
            predicted = self._predict(batch)
            if head is None:
                flat, entropies = token_logprobs(predicted, batch.states, targets, temperature, entropy)
            else:
                size = head.weight.shape[0]
                flat, entropies = chunked_logprobs(head, size, predicted, batch.states, targets, temperature, entropy)
        logprobs = _spread(flat, batch.present)
        return logprobs, None if entropies is None else _spread(entropies, batch.present)

    def _response_outputs(self, rows: Sequence[Tokens], shared: bool) -> Tensor:
        """As `_predict`, for each response token of the rows, which are packed if `shared` is set and padded
        otherwise."""
        batch = self.collate(rows, shared=shared)
        return self._predict(batch)[batch.states]

    def _states(self, ids: Tensor) -> Tensor:
        """As `_predict`, for all tokens of rows of ids [B, L]: [B·L, …]."""
        ids = ids.to(self.device)
        indices = torch.arange(ids.numel(), device=self.device)
        return self._predict(Inputs(ids, None, None, indices, indices, ids, torch.ones_like(ids, dtype=torch.bool)))

    def _predict(self, batch: Inputs) -> Tensor:
        """The last hidden states [U, H] of the sources, or their logits [U, V] if the model transforms logits."""
        plain = self.head is not None
        decoder = self.causal_lm.get_decoder() if plain else self.model
        arguments: dict[str, Any] = {}
        if batch.layout is not None:
            arguments = {"position_ids": batch.position_ids, "prefix_layout": batch.layout}
            if not plain:
                arguments["logits_to_keep"] = batch.sources
        with nullcontext() if batch.layout is None else shared_attention(decoder):
            output = decoder(input_ids=batch.input_ids, use_cache=False, **arguments)
        if plain:
            return output.last_hidden_state.flatten(0, 1)[batch.sources]
        logits = output.logits.flatten(0, 1)
        return logits if "logits_to_keep" in arguments else logits[batch.sources]

    def reference(self) -> AbstractContextManager[Any]:
        """Context in which the adapters of a policy are switched off, so that the policy is its own reference."""
        if not hasattr(self.model, "disable_adapter"):
            raise RuntimeError("only a policy with adapters can be its own reference")
        return self.model.disable_adapter()

    # Texts -----------------------------------------------------------------------------------------------------

    def encode_prompt(self, prompt: str | Sequence[Message]) -> list[int]:
        """The token ids of a prompt (see `dph.models.chat.prompt_ids`). Raises UserError if the chat template rejects
        the prompt, and for a token id outside the vocabulary of the model."""
        return known_ids(self.tokenizer, prompt_ids(self.tokenizer, prompt, self.rendering), self._vocabulary)

    def encode_problem(self, problem: Problem) -> list[int]:
        """The token ids of the prompt of a problem, with the template variables of the problem. An error names the
        problem."""
        return encode_problem(self.tokenizer, problem, self.rendering, self._vocabulary)

    def encode_response(self, text: str) -> list[int]:
        """Token ids of a response, ending with EOS. Raises UserError for ids outside the vocabulary of the model."""
        ids = token_ids(self.tokenizer, text)
        return known_ids(self.tokenizer, [*ids, int(self.tokenizer.eos_token_id)], self._vocabulary)

    def encode_foreign(self, text: str) -> list[int]:
        """Token ids of a text that others wrote, such as the result of a query. What looks like a special token in it
        is ordinary text."""
        return known_ids(self.tokenizer, token_ids(self.tokenizer, text, foreign=True), self._vocabulary)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of a response without special tokens."""
        return text_of(self.tokenizer, token_ids, special=False)

    @property
    def _vocabulary(self) -> int:
        """The number of tokens that the model has."""
        return int(self.config.vocab_size)

    # Files -----------------------------------------------------------------------------------------------------

    def save(self, path: Path, state: Mapping[str, Tensor] | None = None) -> None:
        """Write the model, with adapters merged into the weights, and the tokenizer into a folder, as
        AutoModelForCausalLM and vLLM load them. state: the weights to write in place of the model's own, under the
        names of `merged_state`."""
        save_model(self.causal_lm, self.tokenizer, path, state)

    def weight_hash(self) -> str:
        """A hash of the names and values of all weights, without adapters. The type of the weights does not change
        it."""
        return weight_hash(self.causal_lm)

    def tokenizer_hash(self) -> str:
        """A hash of everything that determines how text is tokenised."""
        return tokenizer_hash(self.tokenizer)


def _spread(flat: Tensor, present: Tensor) -> Tensor:
    """The values [K, …] at the positions of [B, T] that are present, and 0 at the others."""
    return flat.new_zeros(present.shape + flat.shape[1:]).index_put((present,), flat)
