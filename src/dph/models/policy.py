"""A policy: a causal language model with its tokenizer, and the log-probabilities that training reads."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers.utils import logging as transformers_logging

from dph.config import ModelConfig
from dph.errors import UserError
from dph.models.arguments import Arguments
from dph.models.attention import using
from dph.models.batch import Inputs, R, Tokens, collate_tokens, microbatches
from dph.models.identity import merged_state, save_model, save_tokenizer, tokenizer_hash, weight_hash
from dph.models.lean import casts_itself, make_lean
from dph.models.loading import load_model
from dph.models.logprobs import Entropy, chunked_logprobs, token_logprobs
from dph.models.modes import evaluating, recomputing
from dph.models.packing import group_by_prompt
from dph.models.precision import choose_precision, computed_in
from dph.models.prefix import shared_attention
from dph.models.sharing import Sharing
from dph.models.template import render_prompt
from dph.models.traits import Traits, check_runs, context_of, examine_model, is_causal
from dph.models.trial import scale, with_first_layers
from dph.process.progress import say
from dph.types import Message, as_text

T = TypeVar("T")

_ROWS_TRIED = 16


class Policy:
    """A causal language model and its tokenizer on one device: the distribution of a token given the tokens before it.

    log π(y_t | x, y_<t) is what the model's own forward pass over x and y_<t predicts, in evaluation mode: dropout and
    other noise of training never run, whatever mode the model is in. The logits that a forward pass over the whole row
    has at each token are the same numbers, because a model that is not causal is refused. The one exception are models
    with a "longrope" embedding, which rotate rows longer than their original context by other frequencies. In a row
    that crosses this length, tokens up to it are predicted by a forward pass over the row's beginning, and later ones
    by a forward pass over the whole row. Sampling and training both do so. So the probability of a token depends
    neither on the tokens after it nor on the rows it is batched with.
    """

    def __init__(self, model: Any, tokenizer: Any, *, precision: str = "fp32", shared_prefix: bool = True) -> None:
        """
        Args:
            model: a transformers causal language model, possibly wrapped by peft.
            tokenizer: its tokenizer; it must have an EOS token.
            precision: of the computation, "fp32", or "bf16" for autocast.
            shared_prefix: compute the common prefix of rows once, if the model allows it.

        Raises UserError if the tokenizer has no EOS token or the model's end tokens are not token ids.
        """
        if tokenizer.eos_token_id is None:
            raise UserError("the tokenizer has no EOS token, so no response could ever end; set one in its config")
        self.model, self.tokenizer, self.precision = model, tokenizer, precision
        self.shared_prefix = shared_prefix
        self._told_sharing = self._told_budget = False
        self._causal = 0  # tokens of the longest rows for which this was tried
        eos = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
        ids = [i for i in (eos if isinstance(eos, (list, tuple)) else [eos]) if i is not None]
        if not all(isinstance(i, int) for i in ids):
            raise UserError(f"eos_token_id of the model's generation_config.json is {eos!r}, which is not a token id")
        self.eos_ids = frozenset([*ids, int(tokenizer.eos_token_id)])

    @classmethod
    def load(cls, config: ModelConfig, seed: int = 0) -> "Policy":
        """Load a model by hub name or from a directory. Raises UserError with the reason if that fails.

        seed: seed of the adapters' initial weights, which are the same in every process and on every device.
        """
        precision = choose_precision(config) if config.precision == "auto" else config.precision
        model, tokenizer = load_model(config, seed)
        policy = cls(model, tokenizer, precision=computed_in(precision), shared_prefix=config.shared_prefix)
        _ = policy.traits  # refuses a model that cannot be a policy
        return policy

    def keep_less(self) -> None:
        """Keep fewer numbers for the backward pass, where `dph.models.lean` can; for a policy that will be trained."""
        if self.precision == "bf16":
            make_lean(self.model)

    # Text ------------------------------------------------------------------------------------------------------

    def encode_prompt(self, prompt: str | Sequence[Message]) -> list[int]:
        """Token ids of a prompt; the tokenizer's chat template is applied if it has one.

        Raises UserError if the template fails or does not end (see `render_prompt`), or a token id is outside the
        model's vocabulary.
        """
        if getattr(self.tokenizer, "chat_template", None):
            text = render_prompt(self.tokenizer, prompt)
            return self._known(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        return self._known(self.tokenizer(as_text(prompt))["input_ids"])

    def encode_response(self, text: str) -> list[int]:
        """Token ids of a response, ending with EOS. Raises UserError for ids outside the model's vocabulary."""
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return self._known([*ids, int(self.tokenizer.eos_token_id)])

    def _known(self, ids: list[int]) -> list[int]:
        """Return the ids if each has an embedding. On a GPU, a larger id would kill the process without a reason."""
        if ids and max(ids) >= self._vocabulary:
            raise UserError(
                f"the tokenizer produced token id {max(ids)}, but the model has only {self._vocabulary} tokens: they "
                "do not belong together"
            )
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of a response without special tokens."""
        return self.tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    # Model -----------------------------------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def _vocabulary(self) -> int:
        return int(self.model.config.get_text_config().vocab_size)

    @property
    def context_length(self) -> int:
        """Longest sequence that the model accepts, in tokens."""
        return context_of(self.model.config.get_text_config())

    @cached_property
    def arguments(self) -> Arguments:
        """Which arguments the model's forward pass takes."""
        return Arguments.of(self.model)

    def check_length(self, tokens: int) -> None:
        """Raise UserError if sequences of this many tokens have no probability that the model defines."""
        if tokens > self.traits.limit:
            raise UserError(
                f"a sequence may have {tokens} tokens, but beyond {self.traits.limit} this model's rotary embedding "
                "changes with every token; lower the limits of prompts and responses"
            )
        if tokens > self._causal:
            causal = partial(is_causal, self._states, self._vocabulary, switch=self.traits.switch)
            longer = scale(tokens, min(self.context_length, self.traits.limit))
            # What begins only beyond these tokens does not matter; what begins just before them, few rows show
            trials = (partial(causal, longest=longer), partial(causal, longest=tokens, rows=_ROWS_TRIED))
            if not any(map(self.in_trial, trials)):
                raise UserError(
                    f"a sequence may have {tokens} tokens, but in sequences of that length this model "
                    f"({self.model.config.model_type}) predicts a token also from later ones; lower the limits of "
                    "prompts and responses"
                )
            self._causal = tokens

    def in_trial(self, trial: Callable[[], T]) -> T:
        """What a trial of the model returns: it computes in fp32, with the model's first layers."""

        def exact() -> T:
            with self.in_precision("fp32"):
                return trial()

        with self.evaluating(), torch.autocast(self.device.type, enabled=False):
            return with_first_layers(self.model, exact)

    def trainable(self) -> list[tuple[str, torch.nn.Parameter]]:
        """Names and parameters that the optimizer updates, in a fixed order."""
        return [(name, p) for name, p in self.model.named_parameters() if p.requires_grad]

    @cached_property
    def traits(self) -> Traits:
        """How the model computes its logits. Raises UserError if it cannot be a policy; see `examine_model`.

        The trial is made in fp32: in bf16 the rounding error of a pretrained model can be a tenth of its logits.
        """
        with self.evaluating():
            check_runs(self.model)
        found = self.in_trial(lambda: examine_model(self.model, self._causal_lm()))
        if found.head is None:
            say("this model transforms the outputs of its output embedding, so all logits are in memory at once")
        return found

    def evaluating(self) -> AbstractContextManager[None]:
        """Context in which all parts of the model are in evaluation mode."""
        return evaluating(self.model)

    @contextmanager
    def in_precision(self, precision: str) -> Iterator[None]:
        """Context in which the policy computes in another precision, "fp32" or "bf16".

        For "fp32", weights of 16 bits are replaced by wider copies in the context. They have the same values.
        """
        before, self.precision = self.precision, precision
        narrow = [p for p in self.model.parameters() if precision == "fp32" and p.dtype.itemsize == 2]
        kept = [parameter.data for parameter in narrow]
        try:
            with torch.inference_mode(False):
                for parameter in narrow:
                    parameter.data = parameter.data.float()
            yield
        finally:
            for parameter, data in zip(narrow, kept, strict=True):
                parameter.data = data
            self.precision = before

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, dtype=torch.bfloat16) if self.precision == "bf16" else nullcontext()

    @contextmanager
    def casting_once(self) -> Iterator[None]:
        """Context in which all passes under autocast use one cast of each weight.

        No weight may change in it. If passes with gradients are made, the first one must be, because the casts keep
        the history that they were made with.
        """
        with self.autocast():  # keeps the casts until it ends
            if self.precision == "bf16" and self.device.type == "cpu":
                self._cast_layers()
            with torch.autocast(self.device.type, enabled=False):
                yield

    def _cast_layers(self) -> None:
        """Let autocast cast the trained weights of linear layers now, instead of among tensors that are freed soon."""
        others = {self.model.get_output_embeddings(), *casts_itself(self.model)}
        for part in self.model.modules():
            if type(part) is torch.nn.Linear and part not in others and part.weight.requires_grad:
                torch.nn.functional.linear(part.weight.new_zeros(1, part.in_features), part.weight)

    def cut(self, rows: Sequence[R], token_budget: int) -> tuple[list[list[R]], bool]:
        """Cut rows into micro-batches of at most `token_budget` tokens.

        Returns the micro-batches and whether to pack them, which is the case if packing saves tokens and the model
        allows it.
        """
        shared = self.shares(rows, token_budget)
        parts = microbatches(rows, token_budget, shared=shared)
        if shared and len(parts) > 1 and not self._told_budget:
            self._check_budget(rows, parts, token_budget)
        return parts, shared

    def collate(self, rows: Sequence[Tokens], *, shared: bool = False) -> Inputs:
        """The model inputs for rows, padded or packed (see `collate_tokens`), on the model's device."""
        return collate_tokens(rows, self.device, shared=shared, context=self.context_length)

    @torch.no_grad()
    def response_logprobs(self, rows: Sequence[Tokens], temperature: float, token_budget: int) -> list[list[float]]:
        """Log-probability of every response token of every row, from the forward pass that training uses.

        Args:
            rows: prompts and responses.
            temperature: divides the logits, as in sampling.
            token_budget: largest micro-batch, in tokens.
        Returns:
            For each row, in order, one value in nats per response token.
        """
        results: dict[int, list[float]] = {}
        index = {id(row): position for position, row in enumerate(rows)}
        parts, shared = self.cut(rows, token_budget)
        with self.casting_once():
            for part in parts:
                logprobs, _ = self.logprobs(self.collate(part, shared=shared), temperature)
                for row, values in zip(part, logprobs.float().cpu().tolist(), strict=True):
                    results[index[id(row)]] = values[: len(row.response_ids)]
        return [results[position] for position in range(len(rows))]

    def _check_budget(self, rows: Sequence[Tokens], parts: Sequence[Sequence[Tokens]], token_budget: int) -> None:
        """Warn once if micro-batches are so small that prompts are computed several times."""
        computed, prompts = sum(len(group_by_prompt(part)) for part in parts), len(group_by_prompt(rows))
        if computed > 2 * prompts:
            self._told_budget = True
            say(
                f"each prompt is computed {computed / prompts:.1f} times, because a micro-batch of {token_budget} "
                "tokens does not hold all its responses; raise optim.tokens_per_microbatch if memory allows"
            )

    @cached_property
    def sharing(self) -> Sharing:
        """Whether, and for which rows, the model can share prefixes; trials in fp32 tell.

        They are about the model, so a GPU uses the reference for attention, whose kernels have a trial of their own.
        """

        def within(trial: Callable[[], str]) -> str:
            with nullcontext() if self.device.type == "cpu" else using("gather"):
                return self.in_trial(trial)

        return Sharing(self._response_outputs, self.model.config.get_text_config(), torch.float32, within=within)

    def shares(self, rows: Sequence[Tokens], token_budget: int = 1 << 62) -> bool:
        """Whether rows with the same prompt compute it once. If the model cannot do so, report the reason once.

        token_budget: largest micro-batch, in tokens.
        """
        if not self.shared_prefix or len(group_by_prompt(rows)) == len(rows):
            return False
        lengths = [row.length for row in rows]
        obstacle = self.sharing.obstacle(max(lengths), min(sum(lengths), token_budget))
        if obstacle is not None and not self._told_sharing:
            self._told_sharing = True
            kind = self.model.config.get_text_config().model_type
            say(f"this model computes the prompt again for each response: {obstacle} ({kind})")
        return obstacle is None

    def logprobs(
        self, batch: Inputs, temperature: float = 1.0, *, entropy: Entropy = "none"
    ) -> tuple[Tensor, Tensor | None]:
        """Log-probability of every response token, log π_θ(y_t | x, y_<t), at a temperature.

        Rows are packed or padded on the right. Right padding needs no attention mask, because a token of a causal model
        never attends to later ones.

        Args:
            batch: B rows with up to T response tokens.
            temperature: divides the logits, as in sampling.
            entropy: whether to also return the entropy, in nats, of each token's distribution: "none", "value" (without
                gradient) or "gradient".
        Returns:
            Log-probabilities in nats, float32 [B, T], and entropies [B, T] or None; 0 where a row has no token.
        """
        targets = batch.response_ids[batch.present]
        head = self.traits.head
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

    @torch.no_grad()
    def next_logits(self, rows: Sequence[Sequence[int]], token_budget: int) -> Tensor:
        """Logits of the token after each row, from the forward pass that training uses.

        Args:
            rows: token ids, at least one in each row.
            token_budget: largest micro-batch, in tokens.
        Returns:
            float32 [rows, V].
        """
        asked = [Tokens(row, [0]) for row in rows]  # the forward pass does not read a response's last token
        self.check_length(max(map(len, rows)))
        found: dict[int, Tensor] = {}
        with self.autocast(), self.evaluating():
            for part in microbatches(asked, token_budget):
                predicted = self._predict(self.collate(part))
                logits = predicted if self.traits.head is None else self.traits.head(predicted)
                found |= {id(row): values for row, values in zip(part, logits.float(), strict=True)}
        return torch.stack([found[id(row)] for row in asked])

    def _response_outputs(self, rows: Sequence[Tokens], shared: bool) -> Tensor:
        """As `_predict`, for each response token of the rows, packed or padded."""
        batch = self.collate(rows, shared=shared)
        return self._predict(batch)[batch.states]

    def _states(self, ids: Tensor) -> Tensor:
        """As `_predict`, for all tokens of rows [B, L] of ids: [B·L, …]."""
        ids = ids.to(self.device)
        every = torch.arange(ids.numel(), device=self.device)
        return self._outputs(Inputs(ids, None, None, every, every, ids, torch.ones_like(ids, dtype=torch.bool)))

    def _predict(self, batch: Inputs) -> Tensor:
        """Last hidden states [U, H] of the sources, or their logits [U, V] if the model transforms logits."""
        switch = self.traits.switch
        width = batch.input_ids.shape[1] if batch.layout is None else batch.layout.longest
        if width <= switch:
            return self._outputs(batch)
        # Tokens that a row's first `switch` tokens predict must not depend on how long the row becomes
        row, place = batch.sources // width, batch.sources % width
        parts, order = [], []
        for columns, chosen in ((switch, place < switch), (width, place >= switch)):
            order.append(chosen.nonzero().squeeze(1))
            if len(order[-1]):
                rows, index = row[chosen].unique(return_inverse=True)
                ids = batch.input_ids[rows, :columns]
                parts.append(self._outputs(replace(batch, input_ids=ids, sources=index * columns + place[chosen])))
        return torch.cat(parts)[torch.cat(order).argsort()]

    def _outputs(self, batch: Inputs) -> Tensor:
        """As `_predict`, by one forward pass over all inputs."""
        plain = self.traits.head is not None
        decoder = self._causal_lm().get_decoder() if plain else self.model
        more: dict[str, Any] = {}
        if batch.layout is not None:
            more = {"position_ids": batch.position_ids, "prefix_layout": batch.layout}
            if not plain:
                more["logits_to_keep"] = batch.sources
        with nullcontext() if batch.layout is None else shared_attention(decoder):
            output = decoder(input_ids=batch.input_ids, use_cache=False, **more)
        if plain:
            return output.last_hidden_state.flatten(0, 1)[batch.sources]
        logits = output.logits.flatten(0, 1)
        return logits if "logits_to_keep" in more else logits[batch.sources]

    def reference(self) -> AbstractContextManager[Any]:
        """Context in which a policy with adapters is its own reference: the adapters are switched off."""
        if not hasattr(self.model, "disable_adapter"):
            raise RuntimeError("only a policy with adapters can be its own reference")
        return self.model.disable_adapter()

    def _causal_lm(self) -> Any:
        return self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model

    # Storage ---------------------------------------------------------------------------------------------------

    def save(self, path: Path, state: Mapping[str, Tensor] | None = None) -> None:
        """Write the model, adapters merged, and the tokenizer. AutoModelForCausalLM and vLLM can load them.

        state: what to write instead of `merged_state()`, under the same names.
        """
        transformers_logging.disable_progress_bar()
        save_model(self._causal_lm(), self.merged_state() if state is None else state, path)
        save_tokenizer(self.tokenizer, path)

    def merged_state(self) -> dict[str, Tensor]:
        """The model's weights by name, adapters merged."""
        return merged_state(self._causal_lm())

    def weight_hash(self) -> str:
        """Hash of the names and values of all weights, without adapters; not of the type in which they are kept."""
        return weight_hash(self._causal_lm())

    def tokenizer_hash(self) -> str:
        """Hash of everything that determines how text is tokenised."""
        return tokenizer_hash(self.tokenizer)


def _spread(flat: Tensor, present: Tensor) -> Tensor:
    """Scatter values [K, …] to the positions of [B, T] that are present; the rest is 0."""
    return flat.new_zeros(present.shape + flat.shape[1:]).index_put((present,), flat)
