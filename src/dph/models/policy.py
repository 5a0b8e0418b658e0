"""A policy: a causal language model with its tokenizer, and the log-probabilities that training reads."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from dph.config import ModelConfig
from dph.models.attention import using
from dph.models.batch import Inputs, R, Tokens, by_prompt, collate_tokens, microbatches, packed_microbatches
from dph.models.language_model import LanguageModel
from dph.models.lean import cast_layers, make_lean
from dph.models.loading import load_model
from dph.models.logprobs import Entropy, chunked_logprobs, token_logprobs
from dph.models.precision import choose_precision, computed_in
from dph.models.sharing import Sharing, shared_attention
from dph.models.traits import (
    Arguments,
    Causality,
    check_runs,
    evaluating,
    plain_head,
    recomputing,
    without_wrapped_autocast,
)
from dph.models.trial import with_first_layers
from dph.process.progress import say

T = TypeVar("T")


class Policy(LanguageModel):
    """A causal language model and its tokenizer on one device: the distribution of a token given the tokens before it.

    log π(y_t | x, y_<t) is what the model's own forward pass over x and y_<t predicts, in evaluation mode: dropout and
    other noise of training never run, whatever mode the model is in. The logits that a forward pass over the whole row
    has at each token are the same numbers, because a model that is not causal is refused, and so are rows in which a
    rotary embedding depends on the row's length. So the probability of a token depends neither on the tokens after it
    nor on the rows it is batched with.
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
        super().__init__(model, tokenizer)
        self.precision, self.shared_prefix = precision, shared_prefix
        self._said_sharing = self._said_budget = False

    @classmethod
    def load(cls, config: ModelConfig, seed: int = 0) -> "Policy":
        """Load a model by hub name or from a directory. Raises UserError with the reason if that fails.

        seed: seed of the adapters' initial weights, which are the same in every process and on every device.
        """
        precision = choose_precision(config) if config.precision == "auto" else config.precision
        model, tokenizer = load_model(config, seed)
        policy = cls(model, tokenizer, precision=computed_in(precision), shared_prefix=config.shared_prefix)
        _ = policy.head  # refuses a model that cannot be a policy
        return policy

    def keep_less(self) -> None:
        """Keep fewer numbers for the backward pass, where `dph.models.lean` can; for a policy that will be trained."""
        if self.precision == "bf16":
            make_lean(self.model)

    @cached_property
    def arguments(self) -> Arguments:
        """Which arguments the model's forward pass takes."""
        return Arguments.of(self.model)

    def check_length(self, tokens: int) -> None:
        """Raise UserError if sequences of this many tokens have no probability that the model defines."""
        if not self._causality.vouches_for(tokens):
            _ = self.head  # refuses a model that cannot be a policy
            self._causality.check(tokens)

    @cached_property
    def _causality(self) -> Causality:
        return Causality(self._states, self.config, self.in_trial)

    def in_trial(self, trial: Callable[[], T]) -> T:
        """What a trial of the model returns: it computes in fp32, with the model's first layers."""

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
                cast_layers(self.model)
            with torch.autocast(self.device.type, enabled=False):
                yield

    def cut(self, groups: Sequence[Sequence[R]], token_budget: int) -> tuple[list[list[R]], bool]:
        """Cut groups, each the rows of one prompt, into micro-batches of at most `token_budget` tokens.

        Returns the micro-batches and whether to pack them, which is the case if packing saves tokens and the model
        allows it.
        """
        shared = self._shares(groups, token_budget)
        if not shared:
            return microbatches([row for group in groups for row in group], token_budget), False
        parts = packed_microbatches(groups, token_budget)
        if len(parts) > 1 and not self._said_budget:
            self._check_budget(len(groups), parts, token_budget)
        return parts, True

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
        parts, shared = self.cut(by_prompt(rows), token_budget)
        with self.casting_once():
            for batch in parts:
                logprobs, _ = self.logprobs(self.collate(batch, shared=shared), temperature)
                for row, values in zip(batch, logprobs.float().cpu().tolist(), strict=True):
                    results[index[id(row)]] = values[: len(row.response_ids)]
        return [results[position] for position in range(len(rows))]

    def _check_budget(self, prompts: int, parts: Sequence[Sequence[Tokens]], token_budget: int) -> None:
        """Warn once if micro-batches are so small that prompts are computed several times."""
        computed = sum(len(by_prompt(batch)) for batch in parts)
        if computed > 2 * prompts:
            self._said_budget = True
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

        return Sharing(self._response_outputs, self.config, torch.float32, within=within)

    def _shares(self, groups: Sequence[Sequence[Tokens]], token_budget: int) -> bool:
        """Whether groups, each the rows of one prompt, compute it once. If the model cannot, report the reason once."""
        if not self.shared_prefix or all(len(group) == 1 for group in groups):
            return False
        lengths = [row.length for group in groups for row in group]
        obstacle = self.sharing.obstacle(max(lengths), min(sum(lengths), token_budget))
        if obstacle is not None and not self._said_sharing:
            self._said_sharing = True
            kind = self.config.model_type
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
        by_row: dict[int, Tensor] = {}
        with self.autocast(), self.evaluating():
            for batch in microbatches(asked, token_budget):
                predicted = self._predict(self.collate(batch))
                logits = predicted if self.head is None else self.head(predicted)
                by_row |= {id(row): values for row, values in zip(batch, logits.float(), strict=True)}
        return torch.stack([by_row[id(row)] for row in asked])

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


def _spread(flat: Tensor, present: Tensor) -> Tensor:
    """Scatter values [K, …] to the positions of [B, T] that are present; the rest is 0."""
    return flat.new_zeros(present.shape + flat.shape[1:]).index_put((present,), flat)
