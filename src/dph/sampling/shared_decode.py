"""Decoding with one copy of each prompt: the n responses of a group share the keys and values of their prompt.

If every response had a copy, one decoding step of a group would read n·P cached positions and compute one dot product
with each. Here, one matrix product computes the n queries against the P positions. The scores over the prompt (shared)
and over a response's own tokens go through one softmax, and each part of its weights is multiplied with its values. The
function is registered with transformers' attention interface; the rest of the model is transformers' own code.
`why_not_shared` tests whether this works for a model.

On a GPU, a CUDA graph replays the steps (`StaticDecoder`). A step of a small model is hundreds of short kernels. If
Python starts each of them, a GPU waits most of the time; a graph starts them all at once.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from transformers import AttentionInterface
from transformers.cache_utils import Cache, DynamicLayer

from dph.errors import reason_of
from dph.models.batch import padded
from dph.models.policy import Policy
from dph.models.sharing import NotShareable, attending_by, refuse_unknown
from dph.models.traits import attention_window
from dph.process.progress import say
from dph.sampling.decoders import PROBED, BufferedLayer, Start, why_not

_NAME = "dph_shared_decode"
PREFILL_TOKENS = 4096
"""Most prompt tokens, padding included, in one forward pass."""
FIRST_TOKENS = 256
"""Places for generated tokens in fixed buffers at first."""


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


# Fixed steps ----------------------------------------------------------------------------------------------------------


class _FixedLayer(Layer):
    """As `Layer`, with buffers that do not move; see `StaticDecoder`."""

    length: int
    at: Tensor
    """int64 [1]: the place at which the next states are written."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Write the rows' states [R, heads, 1, dim]. Return the whole buffers, whose unused places are zeros."""
        states = (key_states, value_states)
        if not self.buffers or self.buffers[0].shape[2] < self.length:
            self.enlarge(states, self.length)
        for buffer, state in zip(self.buffers, states, strict=True):
            buffer.index_copy_(2, self.at, state.to(buffer.dtype))
        keys, values = self.buffers
        return keys, values


class StaticDecoder(SharedDecoder):
    """As `SharedDecoder`, in steps that a CUDA graph replays: the same kernels on the same memory for every token.

    A graph holds addresses and shapes, so nothing may move from step to step, and nothing in a step may wait for the
    device:

    * The buffers of generated tokens have their length from the start. A step writes at an index that is itself a
      tensor, and masks the places after it. When the buffers are full, they double, and a new graph is recorded.
    * A row that has ended keeps its slot until half of all slots are such; then the buffers shrink.
    * Weights that bf16 casts are cast before the first step. Autocast's own copies live only as long as its context.

    On a CPU the same step runs without a graph. The first step of each graph runs plainly, too, and serves as its
    warm-up.
    """

    layer_type = _FixedLayer

    def __init__(self, policy: Policy, prompts: Sequence[Sequence[int]], repeats: int) -> None:
        """Run each prompt once; each gets `repeats` rows."""
        super().__init__(policy, prompts, repeats)
        self._cast = _weights_to_cast(policy) if policy.precision == "bf16" else {}
        self.graph: Any = None
        self._last: Any = None
        self._pool: Any = None
        self.records = policy.device.type == "cuda"
        self._used = 0
        self.at = torch.zeros(1, dtype=torch.long, device=policy.device)
        self._resize(FIRST_TOKENS)
        self._fill_slots()

    def step(self, tokens: Tensor) -> None:
        """Append one token to each row; tokens: int64 [R]."""
        if self._used == self._length:
            self._resize(2 * self._length)
        self.tokens.index_copy_(0, self._live, tokens)
        if self.graph is not None:
            self.graph.replay()
        else:
            self.compute()
            if self.records and self._used + 1 < self._length:  # otherwise the buffers double next
                self.record()
        self._used += 1
        self.logits = self.next_logits.index_select(0, self._live)

    def select(self, keep: Tensor) -> None:
        """Keep only these rows; keep: int64 indices in ascending order."""
        logits, self._live = self.logits[keep], self._live[keep]
        if 2 * len(self._live) <= len(self.tokens):
            self.logits = self.next_logits
            super().select(self._live)
            self.logits = logits
            self._fill_slots()
        self.logits = logits

    def _resize(self, length: int) -> None:
        """Give the buffers this length, when the next step writes to them."""
        self._length, self.graph = length, None
        self._numbers = torch.arange(length, device=self.at.device)
        for layer in self.layers:
            assert isinstance(layer, _FixedLayer)
            layer.length, layer.at = length, self.at

    def _fill_slots(self) -> None:
        """Give each row a slot, which a step reads and writes at fixed addresses."""
        self.graph = None
        self._live = torch.arange(len(self.logits), device=self.logits.device)
        self.tokens = torch.zeros_like(self._live)
        self.next_logits = self.logits.clone()

    def compute(self) -> None:
        """Compute the next logits of all slots from their tokens, and advance."""
        self.unused = self._numbers > self.at
        places = self._policy.arguments.taken(cache=self._cache, position_ids=self.positions[:, None])
        arguments = {"input_ids": self.tokens[:, None], "use_cache": True, **places}
        with self._autocast(), attending(self._policy, self):
            output = functional_call(self._policy.model, self._cast, (), arguments, tie_weights=False)
        self.next_logits.copy_(output.logits[:, -1])
        self.positions.add_(1)
        self.at.add_(1)

    def _autocast(self) -> Any:
        """Autocast without a cache, because a graph outlives what is in the cache."""
        device, enabled = self._policy.device.type, self._policy.precision == "bf16"
        return torch.autocast(device, dtype=torch.bfloat16, enabled=enabled, cache_enabled=False)

    def record(self) -> None:
        """Record the step as a graph. If that fails, as when memory runs out, later steps run plainly.

        All graphs of a decoder take the memory of a step's own numbers from one pool, which is free again when the
        decoder is. A pool lives as long as one of its graphs, so the last one is kept until the next is recorded.
        Other threads, such as a reward function's, may use the GPU meanwhile.
        """
        place = self._policy.device
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        settings = {"pool": self._pool, "stream": recording_stream(place), "capture_error_mode": "thread_local"}
        graph = torch.cuda.CUDAGraph()
        try:
            # A recording that fails leaves its stream behind as the current one; the outer context puts ours back
            with torch.cuda.stream(torch.cuda.current_stream(place)), torch.cuda.graph(graph, **settings):
                self.compute()
        except RuntimeError as error:
            self.records = False
            say_unrecorded(reason_of(error))
        else:
            self.graph = self._last = graph


@cache
def recording_stream(device: torch.device) -> Any:
    """The stream on which all graphs of a device are recorded: each stream gets a workspace of cuBLAS that stays."""
    return torch.cuda.Stream(device)


@cache
def say_unrecorded(reason: str) -> None:
    say(f"sampling starts every kernel by itself, because a step could not be recorded: {reason}")


def _weights_to_cast(policy: Policy) -> dict[str, Tensor]:
    """The fp32 weights of linear layers in bf16, by name."""
    return {
        f"{name}.{part}": value.detach().to(torch.bfloat16)
        for name, module in policy.model.named_modules()
        if isinstance(module, torch.nn.Linear)
        for part, value in module.named_parameters(recurse=False)
        if value.dtype == torch.float32
    }
