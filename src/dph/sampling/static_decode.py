"""Decoding with one copy of each prompt in steps of fixed shapes, which a CUDA graph replays on a GPU.

A step of a small model is hundreds of short kernels. If Python starts each of them, a GPU waits most of the time; a
graph starts them all at once.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from dph.errors import reason_of
from dph.models.policy import Policy
from dph.process.progress import say
from dph.sampling.shared_decode import Layer, SharedDecoder, attending

FIRST_TOKENS = 256
"""Places for generated tokens in fixed buffers at first."""


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
