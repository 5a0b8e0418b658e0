"""Whether a model can compute the common prefix of rows once, and its attention over such packed rows.

A token of a suffix attends to the whole prefix and to its own suffix up to itself (see `dph.models.packing`).
`dph.models.attention` has the ways to compute this. Here it is registered with transformers' attention interface under
`NAME`. A model uses it inside the context `shared_attention` and receives the layout as the keyword argument
`prefix_layout`.
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
"""Largest allowed difference between packed and plain outputs, relative to their size, in 32 and in 16 bits; rounding
causes 1e-5 or less in 32."""
_SHORT, _RESPONSE = 9, 8
"""Tokens of the longest of a check's short rows, and of the responses to its long prompts."""


class Sharing:
    """Whether, and for which rows, a model can share prefixes.

    A model whose layers carry a state along the sequence, bias scores by distance, bypass transformers' attention
    interface or, beyond some length, read a token's place in the batch instead of its position, computes other outputs
    for packed rows, or fails. A capability check compares packed with plain rows, and again when rows or batches get
    longer.
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
            compute: the model's outputs for every response token of rows, row by row; the flag asks for packed rows.
            config: the model's text config.
            dtype: the type in which it computes, which sets the tolerance.
            within: runs a check; it may prepare the model for it.
            failure: why no rows can share prefixes, if that is known without a check.
        """
        self._compute, self._vocabulary = compute, int(config.vocab_size)
        self._tolerance = _TOLERANCE if dtype.itemsize >= 4 else _COARSE_TOLERANCE
        self._window, self._limit = attention_window(config), rotary_limit(config)
        self._context = context_of(config)
        self._check = GrowingCheck(lambda *sizes: attempt(lambda: within(partial(self._try, *sizes))), failure)

    def obstacle(self, longest: int, tokens: int) -> str | None:
        """Why rows cannot share prefixes; None if they can. Makes a check if one of this size was not made yet.

        Args:
            longest: tokens of the longest row.
            tokens: tokens of the largest micro-batch, or more.
        """
        if not self._check.failure and longest > self._window:
            return f"its attention window of {self._window} tokens is shorter than the sequences"
        if not self._check.failure and longest > self._limit:
            return f"its rotary embedding is another for sequences of more than {self._limit} tokens"
        most = min(self._window, self._context)
        return self._check.failure_at(scale(longest, most), scale(max(longest, tokens), 1 << 62)) or None

    @torch.no_grad()
    def _try(self, longest: int, tokens: int) -> str:
        """Why outputs of rows of up to `longest` tokens, packed into `tokens`, are wrong; empty if they are right."""
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
    """Groups of rows with the same prompt: short ones, and as many of the longest as fill a micro-batch."""
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
    """The model's attention cannot be split into prefix and suffixes; the message is the reason."""


_HARMLESS = frozenset({"position_ids", "use_cache"})
"""Keyword arguments that models hand on to attention and that do not change it. For others see `refuse_unknown`."""


def refuse_unknown(arguments: Mapping[str, Any]) -> None:
    """Raise NotShareable if a model hands its attention anything that could change it: caps on scores, sinks, biases,
    indices of selected tokens, and whatever else a new model may think of."""
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
    """Attention over N packed tokens, with the signature of transformers' attention interface: outputs [1, N, H, D] of
    query [1, H, N, D], key and value [1, G, N, D], and no attention weights.

    scaling: multiplies the scores; 1/√D if None. Raises NotShareable if the model needs anything but causal softmax.
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
    """Context in which the models with these configs use an attention that is registered with transformers."""
    return replaced((config, "_attn_implementation", name) for config in configs)


@contextmanager
def shared_attention(decoder: torch.nn.Module) -> Iterator[None]:
    """Context in which a transformers decoder uses `shared_prefix_attention`; layers with gradient checkpointing also
    use it when they recompute in the backward pass, after the context ended."""
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
