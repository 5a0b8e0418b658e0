"""Decides whether a model can compute a shared prefix once: reads its settings and compares packed with plain rows."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dph.models.batch import Tokens
from dph.models.traits import context_length, rotary_limit
from dph.models.trial import attempt, differing, scale

_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-4}
"""Largest allowed difference between packed and plain outputs, relative to their size; rounding causes 1e-5 or less."""
_COARSE_TOLERANCE = 0.05
"""The same for computation in 16 bits."""
_SHORT = 9
"""Tokens of the longest of a trial's short rows."""
_RESPONSE = 8
"""Tokens of the responses to a trial's long prompts."""


class Sharing:
    """Whether, and for which rows, a model can share prefixes.

    A model whose layers carry a state along the sequence, bias scores by distance or bypass transformers' attention
    interface computes other outputs for packed rows, or fails. So does one that reads a token's place in the batch
    instead of its position, beyond some length. No list of model names is needed: a trial compares packed with plain
    rows, at first and whenever rows or batches get longer than those of the last trial.
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
            compute: returns the model's outputs for every response token of rows, row by row; the flag says whether to
                pack the rows.
            config: the model's text config.
            dtype: the type in which it computes, which sets the tolerance.
            within: runs a trial; it may prepare the model for it.
            failure: why no rows can share prefixes, if that is known without a trial.
        """
        self._compute, self._within, self._vocabulary = compute, within, int(config.vocab_size)
        self._tolerance = _TOLERANCE.get(dtype, _COARSE_TOLERANCE)
        self._window, self._limit = attention_window(config), rotary_limit(config)
        self._context = context_length(config)
        self._failure, self._tried = failure, (0, 0)

    def obstacle(self, longest: int, tokens: int) -> str | None:
        """Why rows cannot share prefixes; None if they can. Makes a trial if one of this size was not made yet.

        Args:
            longest: tokens of the longest row.
            tokens: tokens of the largest micro-batch, or more.
        """
        if not self._failure and longest > self._window:
            return f"its attention window of {self._window} tokens is shorter than the sequences"
        if not self._failure and longest > self._limit:
            return f"its rotary embedding is another for sequences of more than {self._limit} tokens"
        size = scale(longest, self._longest), scale(max(longest, tokens), 1 << 62)
        if not self._failure and (size[0] > self._tried[0] or size[1] > self._tried[1]):
            self._tried = max(size[0], self._tried[0]), max(size[1], self._tried[1])
            trial = partial(self._try, *self._tried)
            self._failure = attempt(lambda: self._within(trial))
        return self._failure or None

    @property
    def _longest(self) -> int:
        return min(self._window, self._context)

    @torch.no_grad()
    def _try(self, longest: int, tokens: int) -> str:
        """Why packed outputs are wrong for rows of up to `longest` tokens, packed into `tokens`; empty if they are
        right."""
        short, long = _trial_rows(self._vocabulary, longest, tokens)
        if not short:
            return f"its attention window has only {longest} tokens"
        if not self._agrees([[row for rows in short for row in rows]]):
            return "its layers mix tokens in other ways than causal attention"
        if not self._agrees(long):
            return f"packed rows differ from plain ones when rows have {longest} tokens or micro-batches {tokens}"
        return ""

    def _agrees(self, parts: Sequence[Sequence[Tokens]]) -> bool:
        """Whether the outputs of rows that are packed are those of plain rows, which are computed part by part."""
        if not parts:
            return True
        packed = self._compute([row for part in parts for row in part], True).double()
        plain = torch.cat([self._compute(part, False).double() for part in parts])
        return len(differing(packed, plain, self._tolerance)) == 0


def _trial_rows(vocabulary: int, longest: int, tokens: int) -> tuple[list[list[Tokens]], list[list[Tokens]]]:
    """Groups of rows with the same prompt: short ones, and as many of the longest as fill a micro-batch."""
    generator = torch.Generator().manual_seed(0)

    def ids(count: int) -> list[int]:
        return torch.randint(vocabulary, (count,), generator=generator).tolist()

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


def attention_window(config: Any) -> int:
    """Size, in tokens, of the smallest attention window or chunk of any layer, from the model's text config.

    The kinds of layers decide if the config lists them: transformers makes the masks by them.
    """
    kinds = getattr(config, "layer_types", None)
    slides = "sliding_attention" in kinds if kinds else getattr(config, "use_sliding_window", True)
    cuts = "chunked_attention" in kinds if kinds else True
    sizes = [slides and getattr(config, "sliding_window", None), cuts and getattr(config, "attention_chunk_size", None)]
    return min([int(size) for size in sizes if size], default=1 << 40)


def has_noise(model: torch.nn.Module) -> bool:
    """Whether dropout (as a layer, or as a rate that the model's code reads) or NEFTune is active in any part."""
    for part in model.modules():
        if part.training:
            layer = isinstance(part, torch.nn.modules.dropout._DropoutNd)
            names = (name for name in vars(part) if "drop" in name or "neftune" in name or (layer and name == "p"))
            if any(isinstance(rate := getattr(part, name), float) and rate > 0 for name in names):
                return True
    return False
