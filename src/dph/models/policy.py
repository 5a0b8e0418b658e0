"""A policy: a causal language model with its tokenizer: log-probabilities, texts as token ids, hashes, and files."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers.utils import logging as transformers_logging

from dph.config import EvaluatedModelConfig, ReferenceModelConfig
from dph.errors import ModelError
from dph.models.adapters import merged_state, ties_embeddings
from dph.models.attention import using
from dph.models.batch import Inputs, R, Tokens, by_prompt, collate_tokens, microbatches, packed_microbatches
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
from dph.models.lean import cast_layers, make_lean
from dph.models.loading import as_os_errors, load_model, save_tokenizer
from dph.models.logprobs import Entropy, chunked_logprobs, token_logprobs
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
from dph.models.trial import GrowingTrial, replaced, scale, with_first_layers
from dph.process.progress import say
from dph.types import Message, Problem

T = TypeVar("T")


class Policy:
    """A causal language model and its tokenizer on one device: the distribution of a token given the tokens before it.

    log π(y_t | x, y_<t) is what the model's forward pass over x and y_<t predicts without dropout or other noise of
    training, whatever mode the model is in. A pass over the whole row gives the same numbers: a model that is not
    causal is refused, and so are rows in which a rotary embedding depends on the row's length.
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
            shared_prefix: compute the common prefix of rows once, if the model allows it.
            rendering: date and variables of the tokenizer's chat template.

        Raises UserError if the tokenizer has no EOS token, the model's end tokens are not token ids, or the chat
        template does not have a variable.
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
        """Load a model by hub name or from a directory. Raises UserError with the reason if that fails.

        seed: seed of the adapters' initial weights, which are the same in every process and on every device.
        """
        precision = choose_precision(config) if config.precision == "auto" else config.precision
        model, tokenizer = load_model(config, seed)
        shared = not isinstance(config, ReferenceModelConfig) or config.shared_prefix
        rendering = Rendering.of(config)
        policy = cls(model, tokenizer, precision=computed_in(precision), shared_prefix=shared, rendering=rendering)
        _ = policy.head  # refuses a model that cannot be a policy
        return policy

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def config(self) -> Any:
        """The model's text config."""
        return self.model.config.get_text_config()

    @property
    def context_length(self) -> int:
        """Longest sequence that the model accepts, in tokens."""
        return context_of(self.config)

    @property
    def causal_lm(self) -> Any:
        """The model as transformers' class, with adapters in its layers."""
        return self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model

    def trainable(self) -> list[tuple[str, torch.nn.Parameter]]:
        """Names and parameters that the optimizer updates, in a fixed order."""
        return [(name, p) for name, p in self.model.named_parameters() if p.requires_grad]

    def keep_less(self) -> None:
        """Keep fewer numbers for the backward pass, if `dph.models.lean` can; for a policy that will be trained."""
        if self.precision == "bf16":
            make_lean(self.model)

    @cached_property
    def arguments(self) -> Arguments:
        """Which arguments the model's forward pass takes."""
        return Arguments.of(self.model)

    def check_length(self, tokens: int) -> None:
        """Raise UserError if the model defines no probability of sequences of this many tokens, because the
        probability of a token depends on the sequence's length or on later tokens."""
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
    def _causality(self) -> GrowingTrial:
        """Whether the model predicts each token from earlier ones only; trials at the lengths of the rows tell."""

        def trial(longest: int) -> str:
            causal = self.in_trial(lambda: is_causal(self._states, int(self.config.vocab_size), longest))
            return "" if causal else f"predicts a token also from later ones in sequences of {longest} tokens"

        return GrowingTrial(trial)

    def in_trial(self, trial: Callable[[], T]) -> T:
        """The result of a trial of the model: it computes in fp32, with the model's first layers."""

        def exact() -> T:
            with self.in_precision("fp32"):
                return trial()

        autocast = torch.autocast(self.device.type, enabled=False)
        with self.evaluating(), autocast, without_wrapped_autocast(self.model):
            return with_first_layers(self.model, exact)

    @cached_property
    def head(self) -> Any:
        """The output embedding, or None; see `plain_head`. Raises UserError if the model cannot be a policy.

        The trial is made in fp32: in bf16 the rounding error of a pretrained model can be a tenth of its logits.
        """
        with self.evaluating():
            check_runs(self.model)
        head = self.in_trial(lambda: plain_head(self.model, self.causal_lm))
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
        pass has gradients, the first must, because the casts keep the history that they were made with."""
        with self.autocast():  # keeps the casts until it ends
            if self.precision == "bf16" and self.device.type == "cpu":
                cast_layers(self.model)
            with torch.autocast(self.device.type, enabled=False):
                yield

    def cut(self, groups: Sequence[Sequence[R]], token_budget: int) -> tuple[list[list[R]], bool]:
        """Cut groups, each the rows of one prompt, into micro-batches of at most `token_budget` tokens. Returns them,
        and whether to pack them: if packing saves tokens and the model allows it."""
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
        """For each row, log π of each response token at a temperature, in nats, by the forward pass of training in
        micro-batches of up to `token_budget` tokens."""
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
        """Whether, and for which rows, the model can share prefixes; trials in fp32 tell.

        They are about the model, so a GPU uses the reference for attention, whose kernels have a trial of their own.
        """

        def within(trial: Callable[[], str]) -> str:
            with nullcontext() if self.device.type == "cpu" else using("gather"):
                return self.in_trial(trial)

        return Sharing(self._response_outputs, self.config, torch.float32, within=within)

    def _shares(self, groups: Sequence[Sequence[Tokens]], token_budget: int) -> bool:
        """Whether groups, each the rows of one prompt, compute it once. If the model cannot, report the reason once."""
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
            batch: B rows with up to T response tokens, packed, or padded on the right: no token attends to later ones.
            temperature: divides the logits, as in sampling.
            entropy: also return the entropy of each token's distribution, as a "value" or with "gradient".
        Returns:
            Log-probabilities in nats, float32 [B, T], and entropies [B, T] or None; 0 beyond a row's tokens.
        """
        targets = batch.response_ids[batch.present]
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
        """As `_predict`, for each response token of the rows, packed or padded."""
        batch = self.collate(rows, shared=shared)
        return self._predict(batch)[batch.states]

    def _states(self, ids: Tensor) -> Tensor:
        """As `_predict`, for all tokens of rows [B, L] of ids: [B·L, …]."""
        ids = ids.to(self.device)
        every = torch.arange(ids.numel(), device=self.device)
        return self._predict(Inputs(ids, None, None, every, every, ids, torch.ones_like(ids, dtype=torch.bool)))

    def _predict(self, batch: Inputs) -> Tensor:
        """Last hidden states [U, H] of the sources, or their logits [U, V] if the model transforms logits."""
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
        """Context in which a policy with adapters is its own reference: the adapters are switched off."""
        if not hasattr(self.model, "disable_adapter"):
            raise RuntimeError("only a policy with adapters can be its own reference")
        return self.model.disable_adapter()

    # Texts -----------------------------------------------------------------------------------------------------

    def encode_prompt(self, prompt: str | Sequence[Message]) -> list[int]:
        """Token ids of a prompt, as `dph.models.chat.prompt_ids`. Raises UserError if the chat template rejects it, and
        for a token id outside the model's vocabulary."""
        return known_ids(self.tokenizer, prompt_ids(self.tokenizer, prompt, self.rendering), self._vocabulary)

    def encode_problem(self, problem: Problem) -> list[int]:
        """The same of a problem, with its own variables of the chat template; an error names the problem."""
        return encode_problem(self.tokenizer, problem, self.rendering, self._vocabulary)

    def encode_response(self, text: str) -> list[int]:
        """Token ids of a response, ending with EOS. Raises UserError for ids outside the model's vocabulary."""
        ids = token_ids(self.tokenizer, text)
        return known_ids(self.tokenizer, [*ids, int(self.tokenizer.eos_token_id)], self._vocabulary)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of a response without special tokens."""
        return text_of(self.tokenizer, token_ids, special=False)

    @property
    def _vocabulary(self) -> int:
        """How many tokens the model has."""
        return int(self.config.vocab_size)

    # Files -----------------------------------------------------------------------------------------------------

    def save(self, path: Path, state: Mapping[str, Tensor] | None = None) -> None:
        """Write the model, adapters merged, and the tokenizer, as AutoModelForCausalLM and vLLM load them. Embeddings
        that differ, as after adapters of one were merged, are not tied in the config: loading would read one for both.

        state: what to write instead of `merged_state`, under the same names.
        """
        transformers_logging.disable_progress_bar()
        model, state = self.causal_lm, merged_state(self.causal_lm) if state is None else state
        configs = [model.config, model.config.get_text_config()]
        wrong = [x for x in configs if getattr(x, "tie_word_embeddings", False) and not ties_embeddings(model, state)]
        with replaced((config, "tie_word_embeddings", False) for config in wrong), as_os_errors(path):
            model.save_pretrained(path, state_dict=dict(state))
        save_tokenizer(self.tokenizer, path)

    def weight_hash(self) -> str:
        """Hash of the names and values of all weights, without adapters; not of the type in which they are kept."""
        digest = hashlib.blake2b(digest_size=16)
        for name, parameter in sorted(self.causal_lm.named_parameters()):
            if "lora_" in name:
                continue
            digest.update(name.replace(".base_layer", "").encode())
            digest.update(parameter.detach().to("cpu").float().contiguous().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def tokenizer_hash(self) -> str:
        """Hash of everything that determines how text is tokenised."""
        return tokenizer_hash(self.tokenizer)


def _spread(flat: Tensor, present: Tensor) -> Tensor:
    """Scatter values [K, …] to the positions of [B, T] that are present; the rest is 0."""
    return flat.new_zeros(present.shape + flat.shape[1:]).index_put((present,), flat)
