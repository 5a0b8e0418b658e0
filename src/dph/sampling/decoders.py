"""Ways to decode, and the test of whether a way reproduces a model's own logits.

`HFSampler` uses the first that passes of `SharedDecoder` (`dph.sampling.shared_decode`), `PlainDecoder` and
`StateDecoder`. `WholeDecoder` must be asked for.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from dph.models.capability import MAX_ERROR_RATIO, Unsupported, attempt, random_ids, with_first_layers
from dph.models.policy import Policy
from dph.models.traits import agree

GROW_TOKENS = 16
"""Buffers of keys and values grow by an eighth of their length, at least by this many positions."""
_TOKENS_AT_ONCE = 16384
"""Most tokens in one forward pass without a cache."""
_LONG_TOLERANCE = 1e-3
"""Largest difference of logits after long prompts, as `agree` takes it. A router that chooses another expert for one of
many tokens because of rounding changes them by less."""
_PROMPTS = {True: [[[3, 4, 5, 6, 7], [5, 3]]], False: [[[3, 4, 5, 6, 7], [5, 3, 4, 4, 6]], [[5, 3], [4, 6]]]}
"""Prompts that the test decodes together: of different lengths, or of equal length."""
_TOKENS = ((6, 3, 5, 4), (4, 7, 3), (3, 6, 4))
"""Tokens that the test appends to its rows at each step. In place of the last one of the first step comes the padding
token, which some models treat in a special way."""
_KEPT = (0, 2, 3)  # the rows that are left after the test's first step
PROBED = 5 + len(_TOKENS)
"""Longest row of the test, in tokens."""
_RESPONSES = 16
"""Responses to each prompt from which the ratio of errors in bf16 is estimated. A single row's varies by a factor of
ten if a model has outliers; the mean of the logarithm over 96 rows varied by 15 percent with SmolLM2-135M."""
_ROUNDING = 2.0**-9
"""Error relative to the logits that bf16 has in any case: half a unit in the last of its eight places."""


class Decoder(Protocol):
    """R rows in generation: `repeats` responses for each of a few prompts, grouped by prompt."""

    logits: Tensor
    """float32 [R, V]: logits of each row's next token."""

    def step(self, tokens: Tensor) -> None:
        """Append one token to each row; tokens: int64 [R]."""
        ...

    def select(self, keep: Tensor) -> None:
        """Keep only these rows; keep: int64 indices in ascending order."""
        ...


Start = Callable[[Policy, Sequence[Sequence[int]], int], Decoder]
"""Starts a decoder with a policy, prompts and the number of responses to each prompt."""


class BufferedLayer(DynamicLayer):
    """Keys and values of one layer, written into buffers that grow, instead of copying all of them at every token."""

    def __init__(self, stored: torch.dtype | None = None) -> None:
        """stored: type of the buffers; None for the type of the states."""
        super().__init__()
        self.stored, self.used = stored, 0
        self.buffers: list[Tensor] = []

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Append states [B, heads, new, dim]. Return all keys and values so far, as views of the buffers."""
        states, end = (key_states, value_states), self.used + key_states.shape[2]
        if not self.buffers or end > self.buffers[0].shape[2]:
            self.enlarge(states, max(end, self.used + max(GROW_TOKENS, self.used // 8)))
        for buffer, state in zip(self.buffers, states, strict=True):
            buffer[:, :, self.used : end] = state
        self.used = end
        self.is_initialized = True
        self.keys, self.values = (buffer[:, :, :end] for buffer in self.buffers)
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return self.used

    def select(self, rows: Tensor) -> None:
        """Continue with these rows, some of which may be equal."""
        self.buffers = [buffer[rows] for buffer in self.buffers]
        self.keys = self.values = None  # views of the buffers of before

    def enlarge(self, states: tuple[Tensor, Tensor], length: int) -> None:
        """Give the buffers, which begin with those for states like these, this length."""
        larger = [state.new_zeros(*state.shape[:2], length, state.shape[3], dtype=self.stored) for state in states]
        for buffer, before in zip(larger, self.buffers, strict=False):
            buffer[:, :, : before.shape[2]] = before
        self.buffers = larger


class PlainDecoder:
    """Decodes with the model's own attention. Each response has a copy of its prompt's keys and values.

    This works for models whose layers keep keys and values, and which honour positions and masks that are given to
    them. If `SharedDecoder` applies, it is several times faster.
    """

    def __init__(self, policy: Policy, prompts: Sequence[Sequence[int]], repeats: int) -> None:
        """Run the left-padded prompts once, then repeat the cache for each response of a group."""
        self._policy, device, width = policy, policy.device, max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in prompts], device=device)
        missing = torch.tensor([[width - len(prompt)] for prompt in prompts], device=device)
        self._mask = (torch.arange(width, device=device) >= missing).long()
        self._positions = (self._mask.cumsum(1) - 1).clamp(min=0)
        self._cache = Cache(layer_class_to_replicate=BufferedLayer)
        self._run(ids, logits_to_keep=1)
        self._positions = self._positions[:, -1:]
        self.select(torch.arange(len(prompts), device=device).repeat_interleave(repeats))

    def step(self, tokens: Tensor) -> None:
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(tokens), 1)], dim=1)
        self._positions = self._positions + 1
        self._run(tokens[:, None])

    def select(self, keep: Tensor) -> None:
        layers: list[Any] = self._cache.layers
        for layer in layers:
            layer.select(keep)
        self.logits, self._positions, self._mask = self.logits[keep], self._positions[keep], self._mask[keep]

    def _run(self, ids: Tensor, **others: Any) -> None:
        arguments = {"cache": self._cache, "attention_mask": self._mask, "position_ids": self._positions, **others}
        with self._policy.autocast():
            output = self._policy.model(input_ids=ids, use_cache=True, **self._policy.arguments.taken(**arguments))
        self.logits: Tensor = output.logits[:, -1].float()


class StateDecoder:
    """Decodes with the cache that the model makes for itself, for prompts of equal length.

    A layer with a recurrent or convolutional state keeps this state instead of keys and values, and some models count
    positions in a way of their own. Each model's code fills and reads its own cache, and rows of equal length need
    neither padding nor masks nor positions.
    """

    def __init__(self, policy: Policy, prompts: Sequence[Sequence[int]], repeats: int) -> None:
        """Run the prompts once, then repeat their state for each response of a group."""
        self._policy, self._cache = policy, {}
        self._run(torch.tensor(prompts, device=policy.device))
        self.select(torch.arange(len(prompts), device=policy.device).repeat_interleave(repeats))

    def step(self, tokens: Tensor) -> None:
        self._run(tokens[:, None])

    def select(self, keep: Tensor) -> None:
        for cache in self._cache.values():
            cache.reorder_cache(keep)
        self.logits = self.logits[keep]

    def _run(self, ids: Tensor) -> None:
        with self._policy.autocast():
            output = self._policy.model(input_ids=ids, use_cache=True, **self._cache)
        self.logits: Tensor = output.logits[:, -1].float()
        name = self._policy.arguments.cache
        if name is None:
            raise Unsupported("its forward pass takes no cache")
        self._cache: dict[str, Any] = {name: output[name]}


class WholeDecoder:
    """Decodes without a cache: every step runs the model's plain forward pass over all tokens of each row.

    This works for every model that training accepts, and is slow: the time for a response grows with the square of its
    length.
    """

    def __init__(self, policy: Policy, prompts: Sequence[Sequence[int]], repeats: int) -> None:
        self._policy = policy
        self._rows = [list(prompt) for prompt in prompts for _ in range(repeats)]
        self.logits = plain_logits(policy, prompts).repeat_interleave(repeats, dim=0)

    def step(self, tokens: Tensor) -> None:
        for row, token in zip(self._rows, tokens.tolist(), strict=True):
            row.append(token)
        self.logits = plain_logits(self._policy, self._rows)

    def select(self, keep: Tensor) -> None:
        self._rows = [self._rows[row] for row in keep.tolist()]
        self.logits = self.logits[keep]


# The test -------------------------------------------------------------------------------------------------------------


@torch.inference_mode()
def why_not(start: Start, policy: Policy, *, ragged: bool, longest: int = PROBED) -> str:
    """Why a model cannot be decoded in a way; empty if it can.

    The test decodes a few tokens of two responses to each of two prompts, drops a row on the way, and compares all
    logits with the plain forward pass's. So nothing needs to be known about the model's cache, masks and positions. It
    does the same with long prompts. The comparison is made in fp32, because its rounding is small. With bf16, whose
    error depends on the model and may be as large as its logits, the decoder's own error must also be like the
    plain pass's. See `dph.models.capability`.

    Args:
        start: starts the decoder.
        ragged: whether prompts of different length are decoded together.
        longest: tokens of the longest row of the test.
    """

    vocabulary = policy.config.vocab_size

    def fit(rows: Sequence[Sequence[int]]) -> list[list[int]]:
        return [[token % vocabulary for token in row] for row in rows]

    def short() -> str:
        padding = getattr(policy.config, "pad_token_id", None)
        steps = [_TOKENS[0] if padding is None else (*_TOKENS[0][:-1], padding), *_TOKENS[1:]]
        for prompts in _PROMPTS[ragged]:
            for logits, rows in _decoded(start, policy, fit(prompts), 2, fit(steps), _KEPT):
                if not agree(logits, plain_logits(policy, rows)):
                    return "its logits differ from its plain forward pass's"
        return ""

    def long() -> str:
        ids, room = random_ids(vocabulary, seed=1), longest - len(_TOKENS)
        prompts = [ids(length) for length in (sorted({5, room // 4 + 1, room}) if ragged else [room, room])]
        *_, (logits, rows) = _decoded(start, policy, prompts, 1, (ids(len(prompts)) for _ in _TOKENS))
        if agree(logits, plain_logits(policy, rows), _LONG_TOLERANCE):
            return ""
        return f"its logits differ from its plain forward pass's in rows of {longest} tokens"

    def coarse() -> str:
        if _error(start, policy, ragged) <= MAX_ERROR_RATIO:
            return ""
        return f"in {policy.precision} its logits have a larger error than its plain forward pass's"

    def tried() -> str:
        reason = policy.run_check(short) or (policy.run_check(long) if longest > PROBED else "")
        return reason or ("" if policy.precision == "fp32" else with_first_layers(policy.model, coarse))

    with policy.evaluating():
        return attempt(tried)


def _decoded(
    start: Start,
    policy: Policy,
    prompts: Sequence[Sequence[int]],
    repeats: int,
    steps: Iterable[Sequence[int]],
    kept: Sequence[int] = (),
) -> Iterator[tuple[Tensor, list[list[int]]]]:
    """Decode tokens after prompts; yield the logits and the rows that they continue, at first and after each step.

    Args:
        start, policy, prompts, repeats: make the decoder.
        steps: for each step, the next token of each row.
        kept: the rows that are left after the first step; all if empty.
    """
    decoder = start(policy, prompts, repeats)
    rows = [list(prompt) for prompt in prompts for _ in range(repeats)]
    yield decoder.logits, rows
    for number, tokens in enumerate(steps):
        decoder.step(torch.tensor(tokens, device=policy.device))
        rows = [[*row, token] for row, token in zip(rows, tokens, strict=True)]
        yield decoder.logits, rows
        if kept and number == 0:
            decoder.select(torch.tensor(kept, device=policy.device))
            rows = [rows[row] for row in kept]


def _error(start: Start, policy: Policy, ragged: bool) -> float:
    """Error of a decoder's logits in the policy's precision, as a multiple of the plain pass's: root mean squares over
    the vocabulary, geometric mean over rows of random tokens. The prompts' own logits need no decoder."""
    ids = random_ids(policy.config.vocab_size)
    decoded: list[tuple[Tensor, list[list[int]]]] = []
    for prompts in _PROMPTS[ragged]:
        steps = (ids(len(prompts) * _RESPONSES) for _ in _TOKENS)
        results = _decoded(start, policy, [ids(len(prompt)) for prompt in prompts], _RESPONSES, steps)
        # a decoder may write the next step's logits into the same place
        decoded += [(logits.clone(), rows) for logits, rows in islice(results, 1, None)]
    plain = [plain_logits(policy, rows) for _, rows in decoded]
    with policy.in_precision("fp32"):
        exact = [plain_logits(policy, rows) for _, rows in decoded]
    logarithms: list[Tensor] = []
    for (logits, _), rounded, true in zip(decoded, plain, exact, strict=True):
        least = _ROUNDING**2 * true.square().sum(-1)
        error, usual = (torch.maximum((each - true).square().sum(-1), least) for each in (logits, rounded))
        logarithms.append(0.5 * (error / usual).log())
    return float(torch.cat(logarithms).mean().exp())


def plain_logits(policy: Policy, rows: Sequence[Sequence[int]]) -> Tensor:
    """Logits [rows, V] of the token after each row, from the model's plain forward pass over rows of one length."""
    last = policy.arguments.taken(logits_to_keep=1)
    logits: list[Tensor] = []
    with policy.autocast():
        for length, alike in groupby(rows, key=len):
            for ids in torch.tensor(list(alike), device=policy.device).split(max(1, _TOKENS_AT_ONCE // length)):
                logits.append(policy.model(input_ids=ids, use_cache=False, **last).logits[:, -1])
    return torch.cat(logits).float()
