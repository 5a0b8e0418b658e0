"""Decoding with one copy of each prompt: the n responses of a group share the keys and values of their prompt.

If every response had a copy, one decoding step of a group would read n·P cached positions and compute one dot product
with each. Here, one matrix product computes the n queries against the P positions. The scores over the prompt (shared)
and over a response's own tokens go through one softmax, and each part of its weights is multiplied with its values. The
function is registered with transformers' attention interface; the rest of the model is transformers' own code.
`why_not_shared` tests whether this works for a model.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.cache_utils import Cache, DynamicLayer

from dph.models.batch import padded
from dph.models.policy import Policy
from dph.models.sharing import NotShareable, attending_by, refuse_unknown
from dph.models.traits import attention_window
from dph.sampling.decoders import PROBED, BufferedLayer, Start, why_not

_NAME = "dph_shared_decode"
PREFILL_TOKENS = 4096
"""Most prompt tokens, padding included, in one forward pass."""


class Layer(BufferedLayer):
    """Keys and values of one layer: of the prompts [G, heads, …] and, apart from them, of the generated tokens."""

    def __init__(
        self, keys: Sequence[Tensor], values: Sequence[Tensor], width: int, stored: torch.dtype | None
    ) -> None:
        """
        Args:
            keys, values: pieces [g, heads, p, dim], right-padded prompts of p ≤ width positions; G prompts in all.
            width: length P of the longest prompt.
            stored: type to which autocast would cast keys and values for every token; None without autocast.
        """
        super().__init__(stored)
        self.prompt_keys, self.prompt_values = (
            torch.cat([_widened(piece.to(dtype=stored), width) for piece in pieces]) for pieces in (keys, values)
        )

    def get_seq_length(self) -> int:
        return self.prompt_values.shape[2] + self.used


class SharedDecoder:
    """Decodes the responses of a few prompts together; see `Decoder` in `dph.sampling.decoders`."""

    layer_type: type[Layer] = Layer
    unused: Tensor | None = None
    """bool [T], True for places without a generated token; None if these are the last ones, by the layer's count."""

    def __init__(self, policy: Policy, prompts: Sequence[Sequence[int]], repeats: int) -> None:
        """Run each prompt once; each gets `repeats` rows."""
        self._policy, device = policy, policy.device
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        width = int(lengths.max())
        pieces = [_prefill(policy, part) for part in _parts(prompts)]
        self.logits = torch.cat([logits for logits, _ in pieces]).repeat_interleave(repeats, dim=0)
        caches: list[list[Any]] = [cache.layers for _, cache in pieces]
        stored = torch.bfloat16 if policy.precision == "bf16" else None
        self.layers: list[Layer] = []
        while caches[0]:
            parts = [layers.pop(0) for layers in caches]  # each layer's memory is free before the next is copied
            keys, values = [part.keys for part in parts], [part.values for part in parts]
            self.layers.append(self.layer_type(keys, values, width, stored))
        self._cache = Cache(layers=list(self.layers))
        self._shortest, self._padding = int(lengths.min()), None
        if self._shortest < width:
            places = torch.arange(self._shortest, width)
            self._padding = (places >= lengths[:, None])[:, None, None].to(device)  # [G, 1, 1, P - shortest]
        self.positions = lengths.repeat_interleave(repeats).to(device)
        self._group = torch.arange(len(prompts), device=device).repeat_interleave(repeats)
        self._places()

    def step(self, tokens: Tensor) -> None:
        """Append one token to each row; tokens: int64 [R]."""
        with self._policy.autocast(), attending(self._policy, self):
            output = self._policy.model(
                input_ids=tokens[:, None],
                use_cache=True,
                **self._policy.arguments.taken(cache=self._cache, position_ids=self.positions[:, None]),
            )
        self.logits = output.logits[:, -1].float()
        self.positions = self.positions + 1

    def select(self, keep: Tensor) -> None:
        """Keep only these rows; keep: int64 indices in ascending order."""
        self.logits, self.positions, group = self.logits[keep], self.positions[keep], self._group[keep]
        groups, self._group = group.unique_consecutive(return_inverse=True)
        fewer = len(groups) < self.layers[0].prompt_values.shape[0]
        for layer in self.layers:
            layer.select(keep)
            if fewer:
                layer.prompt_keys, layer.prompt_values = layer.prompt_keys[groups], layer.prompt_values[groups]
        if fewer and self._padding is not None:
            self._padding = self._padding[groups]
        self._places()

    def _places(self) -> None:
        """Assign each row a slot of its group. All groups have as many slots as the largest has rows; a slot that has
        none repeats the first row."""
        counts = torch.bincount(self._group)
        self._slots, total = int(counts.max()), len(self._group)
        if self._slots * len(counts) == total:
            self._place = None
        else:
            first = counts.cumsum(0) - counts
            numbers = torch.arange(total, device=first.device)
            self._place = self._group * self._slots + numbers - first[self._group]
            self._row = numbers.new_zeros(len(counts) * self._slots).index_copy_(0, self._place, numbers)

    def attend(self, layer_index: int, query: Tensor, scaling: float) -> Tensor:
        """Attention of each row's new token over the row's prompt and generated tokens.

        A product with a part of a buffer would copy this part, so whole buffers are multiplied.

        Args:
            layer_index: the layer whose keys and values are read.
            query: [R, heads, 1, dim].
            scaling: multiplies the scores.
        Returns:
            [R, 1, heads, dim].
        """
        layer = self.layers[layer_index]
        keys, values = layer.buffers  # [R, key/value heads, T, dim]
        rows, heads, _, dim = query.shape
        groups, kv_heads, width = layer.prompt_values.shape[:3]
        shape = (groups, self._slots, kv_heads, heads // kv_heads)

        def gathered(x: Tensor) -> Tensor:
            """[R, kv, rep, d] → [G, kv, slots·rep, d]"""
            x = x if self._place is None else x.index_select(0, self._row)
            return x.view(*shape, -1).transpose(1, 2).reshape(groups, kv_heads, -1, x.shape[-1])

        def scattered(x: Tensor) -> Tensor:
            """[G, kv, slots·rep, d] → [R·kv, rep, d]"""
            x = x.view(groups, kv_heads, self._slots, shape[3], -1).transpose(1, 2).flatten(0, 1)
            return (x if self._place is None else x.index_select(0, self._place)).flatten(0, 1)

        query = (query * scaling).to(keys.dtype).view(rows, kv_heads, -1, dim)
        response = query @ keys.transpose(2, 3)
        if self.unused is None:
            response[..., layer.used :] = -torch.inf
        else:
            response.masked_fill_(self.unused, -torch.inf)
        prompt = gathered(query) @ layer.prompt_keys.transpose(2, 3)
        if self._padding is not None:
            prompt[..., self._shortest :].masked_fill_(self._padding, -torch.inf)
        weights = torch.cat([prompt, gathered(response)], dim=-1).softmax(-1).to(values.dtype)
        of_prompt = scattered(weights[..., :width] @ layer.prompt_values)
        mixed = torch.baddbmm(of_prompt, scattered(weights[..., width:]), values.flatten(0, 1))
        return mixed.reshape(rows, 1, heads, dim)


_current: ContextVar[SharedDecoder] = ContextVar("dph_shared_decoder")


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """`SharedDecoder.attend` with the signature of transformers' attention interface."""
    if attention_mask is not None:
        raise NotShareable("its attention uses a mask")
    refuse_unknown(kwargs)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return _current.get().attend(module.layer_idx, query, scale), None


AttentionInterface.register(_NAME, _attention)


@contextmanager
def attending(policy: Policy, decoder: SharedDecoder) -> Iterator[None]:
    """Context in which the model uses the decoder's attention."""
    token = _current.set(decoder)
    try:
        with attending_by(_NAME, [policy.config]):
            yield
    finally:
        _current.reset(token)


def _parts(prompts: Sequence[Sequence[int]]) -> list[Sequence[Sequence[int]]]:
    """Cut prompts into consecutive parts; each part is one forward pass."""
    parts: list[list[Sequence[int]]] = []
    for prompt in prompts:
        longest = max(len(prompt), *map(len, parts[-1])) if parts else 0
        if parts and longest * (len(parts[-1]) + 1) <= PREFILL_TOKENS:
            parts[-1].append(prompt)
        else:
            parts.append([prompt])
    return list(parts)


def _prefill(policy: Policy, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Cache]:
    """Logits [g, V] after each prompt, and the cache. Right padding needs no mask in a causal model."""
    device, ids = policy.device, padded(prompts, max(map(len, prompts)), torch.long)
    last = torch.tensor([len(prompt) - 1 for prompt in prompts])
    kept, place = last.unique(return_inverse=True)
    cache = Cache(layer_class_to_replicate=DynamicLayer)
    with policy.autocast():
        arguments = policy.arguments.taken(cache=cache, logits_to_keep=kept.to(device))
        logits = policy.model(input_ids=ids.to(device), use_cache=True, **arguments).logits
    return logits[torch.arange(len(prompts)), place].float(), cache


def _widened(x: Tensor, width: int) -> Tensor:
    """[g, heads, p, dim] zero-padded to [g, heads, width, dim]."""
    return x if x.shape[2] == width else torch.nn.functional.pad(x, (0, 0, 0, width - x.shape[2]))


def longest_shared(policy: Policy) -> int:
    """Longest sequence, in tokens, in which every layer attends to all earlier tokens; 0 if unknown."""
    config = policy.model.config.get_text_config()
    types = set(getattr(config, "layer_types", None) or ())
    if not types <= {"full_attention", "sliding_attention", "chunked_attention"}:
        return 0
    return attention_window(config)


def why_not_shared(policy: Policy, start: Start = SharedDecoder, longest: int = PROBED) -> str:
    """Why a model cannot decode with shared prompts; empty if it can. See `why_not`.

    start: starts this decoder, or one that extends it.
    """
    window = longest_shared(policy)
    if window < PROBED:
        return f"its attention window has only {window} tokens" if window else "it has layers without a plain cache"
    if policy.arguments.cache is None:
        return "its forward pass takes no cache"
    return why_not(start, policy, ragged=True, longest=min(window, longest))
