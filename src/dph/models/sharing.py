"""Whether a model can compute the common prefix of rows once, and the attention of a model over rows that are packed
so.

A token of a suffix attends to the whole prefix and to its own suffix up to itself (see `dph.models.packing`).
`dph.models.attention` has the ways to compute this attention. This module registers it with the attention interface of
transformers under `NAME`. A model uses it inside the context `shared_attention`, and receives the layout of the packed
rows as the keyword argument `prefix_layout`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

from dph.models.attention import implementation
from dph.models.capability import GrowingCheck, Unsupported, attempt, differing, random_ids, replaced, scale
from dph.models.packing import PrefixLayout, Tokens
from dph.models.traits import attention_window, context_of, rotary_limit

NAME = "dph_shared_prefix"
_TOLERANCE, _COARSE_TOLERANCE = 1e-4, 0.05
"""The largest allowed difference between packed and plain outputs, relative to the size of the outputs, in 32 and in 16
bits. Rounding causes a difference of 1e-5 or less in 32 bits."""
_SHORT, _RESPONSE = 9, 8
"""The number of tokens of the longest of the short rows of a check, and of each response to the long prompts of a
check."""


class Sharing:
    """Whether a model can share prefixes, and for which rows.

    Some models compute other outputs for packed rows than for plain rows, or fail: models whose layers carry a state
    along the sequence, bias scores by distance, or bypass the attention interface of transformers, and models that
    beyond some length read the place of a token in the batch instead of its position. A capability check compares
    packed with plain rows. The check is made again when rows or batches get longer.
    """

    def __init__(
        self,
        compute: Callable[[Sequence[Tokens], bool], Tensor],
        config: Any,
        dtype: torch.dtype,
        *,
        within: Callable[[Callable[[], str]], str] = lambda action: action(),
        failure: str = "",
    ) -> None:
        """
        Args:
            compute: returns the outputs of the model for every response token of some rows, row by row. The flag asks
                for packed rows.
            config: the text config of the model.
            dtype: the type in which the model computes. It sets the tolerance of the check.
            within: runs a check, and may prepare the model for it.
            failure: the reason why no rows can share prefixes, if that is known without a check.
        """
        self._compute, self._vocabulary = compute, int(config.vocab_size)
        self._tolerance = _TOLERANCE if dtype.itemsize >= 4 else _COARSE_TOLERANCE
        self._window, self._limit = attention_window(config), rotary_limit(config)
        self._context = context_of(config)
        self._check = GrowingCheck(lambda *sizes: attempt(lambda: within(partial(self._try, *sizes))), failure)

    def obstacle(self, longest: int, tokens: int) -> str | None:
        """The reason why rows cannot share prefixes; None if they can. A check is made if none of this size was made
        yet.

        Args:
            longest: the number of tokens of the longest row.
            tokens: the number of tokens of the largest micro-batch, or a larger number.
        """
        if not self._check.failure and longest > self._window:
            return f"its attention window of {self._window} tokens is shorter than the sequences"
        if not self._check.failure and longest > self._limit:
            return f"its rotary embedding is another for sequences of more than {self._limit} tokens"
        most = min(self._window, self._context)
        return self._check.failure_at(scale(longest, most), scale(max(longest, tokens), 1 << 62)) or None

    @torch.no_grad()
    def _try(self, longest: int, tokens: int) -> str:
        """The reason why outputs are wrong for rows of up to `longest` tokens, packed into `tokens` tokens; "" if they
        are right."""
        short, long = _rows_of_check(self._vocabulary, longest, tokens)
        if not short:
            return f"its attention window has only {longest} tokens"
        if not self._agrees([[row for rows in short for row in rows]]):
            return "its layers mix tokens in other ways than causal attention"
        if not self._agrees(long):
            return f"packed rows differ from plain ones when rows have {longest} tokens or micro-batches {tokens}"
        return ""

    def _agrees(self, parts: Sequence[Sequence[Tokens]]) -> bool:
        """Whether packed rows have the same outputs as plain rows, which are computed part by part."""
        if not parts:
            return True
        packed = self._compute([row for part in parts for row in part], True).double()
        plain = torch.cat([self._compute(part, False).double() for part in parts])
        return len(differing(packed, plain, self._tolerance)) == 0


def _rows_of_check(vocabulary: int, longest: int, tokens: int) -> tuple[list[list[Tokens]], list[list[Tokens]]]:
    """Two lists of groups of rows, each group with one prompt: short rows, and as many of the longest rows as fill a
    micro-batch."""
    ids = random_ids(vocabulary)
    prompt = ids(5)
    short = [[Tokens(prompt, [1 % vocabulary, *ids(2)]), Tokens(prompt, [2 % vocabulary, *ids(3)])]]
    short = [rows for rows in (*short, [Tokens(ids(3), ids(2))]) if rows[-1].length <= longest]
    long: list[list[Tokens]] = []
    response = min(_RESPONSE, longest // 4)
    while longest > _SHORT and tokens > 0:
        prompt = ids(longest - response)
        long.append([Tokens(prompt, [first % vocabulary, *ids(response - 1)]) for first in (1, 2)])
        tokens -= longest + response
    return short, long


# Attention ------------------------------------------------------------------------------------------------------------


class NotShareable(Unsupported):
    """The attention of a model cannot be split into prefix and suffixes. The message is the reason."""


_HARMLESS = frozenset({"position_ids", "use_cache"})
"""Keyword arguments that models hand on to attention and that do not change it. `refuse_unknown` treats all others."""


def refuse_unknown(arguments: Mapping[str, Any]) -> None:
    """Raise NotShareable if a model hands its attention an argument that could change it: caps on scores, sinks,
    biases, indices of selected tokens, or any argument that is not known here."""
    for name, value in sorted(arguments.items()):
        if name not in _HARMLESS and not name.startswith("output_") and value is not None and value is not False:
            raise NotShareable(f"its attention uses {name}")


def shared_prefix_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    prefix_layout: PrefixLayout | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **arguments: Any,
) -> tuple[Tensor, None]:
    """Attention over N packed tokens, with the signature of the attention interface of transformers.

    Args:
        module: the layer that calls; not read.
        query: [1, H, N, D].
        key, value: [1, G, N, D], H a multiple of G.
        attention_mask: must be None.
        prefix_layout: which tokens attend to which.
        scaling: multiplies the scores; None means 1/√D.
        dropout: must be 0.
        sliding_window: the attention window of the layer, in tokens; None means no window.
        arguments: other arguments of the model, which must be harmless.
    Returns:
        Outputs [1, N, H, D], and None in place of the attention weights.
    Raises:
        NotShareable: the model needs more than causal softmax attention.
    """
    if prefix_layout is None or query.shape[0] != 1:
        raise NotShareable("its layers do not pass their keyword arguments on to attention")
    if dropout or attention_mask is not None or query.shape[-1] != value.shape[-1]:
        raise NotShareable("its attention uses dropout, a mask or values of another width")
    refuse_unknown(arguments)
    if sliding_window is not None and prefix_layout.longest > sliding_window:
        raise NotShareable(f"its attention window has only {sliding_window} tokens")
    if torch.is_autocast_enabled(query.device.type):
        dtype = torch.get_autocast_dtype(query.device.type)
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out = implementation(q, k)(q, k, v, prefix_layout, scale)
    return out[None], None


AttentionInterface.register(NAME, shared_prefix_attention)


def attending_by(name: str, configs: Sequence[Any]) -> AbstractContextManager[None]:
    """Context in which the models with these configs use an attention that is registered with transformers under a
    name."""
    return replaced((config, "_attn_implementation", name) for config in configs)


@contextmanager
def shared_attention(decoder: torch.nn.Module) -> Iterator[None]:
    """Context in which a transformers decoder uses `shared_prefix_attention`. Layers with gradient checkpointing use it
    also when they recompute their activations in the backward pass, after the context has ended."""
    modules: list[Any] = list(decoder.modules())
    configs = list({id(part.config): part.config for part in modules if hasattr(part, "config")}.values())
    name = "_gradient_checkpointing_func"

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), attending_by(NAME, configs)

    recomputing = [part for part in modules if getattr(part, "gradient_checkpointing", False)]
    with (
        replaced((part, name, partial(getattr(part, name), context_fn=contexts)) for part in recomputing),
        attending_by(NAME, configs),
    ):
        yield
