"""Ways to decode, and the test of whether a way reproduces a model's own logits.

`HFSampler` uses the first that passes of `SharedDecoder` (`dph.sampling.shared_decode`), `PlainDecoder` and
`StateDecoder`. `WholeDecoder` must be asked for.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from dph.models.policy import Policy
from dph.models.traits import agree
from dph.models.trial import MAX_ERROR_RATIO, Unsupported, attempt, with_first_layers

GROW_TOKENS = 64
"""Key/value buffers grow by this many positions at a time."""
_TOKENS_AT_ONCE = 16384
"""Most tokens, padding included, in one forward pass of a decoder without a cache."""
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
ten, where real models have outliers; the mean of the logarithm over 96 rows varied by 15 percent with SmolLM2-135M."""
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
    """A key/value cache layer that appends to a preallocated buffer instead of copying the cache at every token."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Append states [B, heads, new, dim]. Return all keys and values so far, as views of the buffers."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._used, self._buffers = 0, [key_states[..., :0, :], value_states[..., :0, :]]
        end = self._used + key_states.shape[-2]
        if end > self._buffers[0].shape[-2]:
            self._buffers = [self._grown(buffer, end) for buffer in self._buffers]
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[..., self._used : end, :] = states
        self._used = end
        return self._show()

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._buffers = [buffer.repeat_interleave(repeats, dim=0) for buffer in self._buffers]
        self._show()

    def batch_select_indices(self, indices: Tensor) -> None:
        self._buffers = [buffer[indices] for buffer in self._buffers]
        self._show()

    def _grown(self, buffer: Tensor, end: int) -> Tensor:
        batch, heads, _, dim = buffer.shape
        larger = buffer.new_empty(batch, heads, end + GROW_TOKENS, dim)
        larger[..., : self._used, :] = buffer[..., : self._used, :]
        return larger

    def _show(self) -> tuple[Tensor, Tensor]:
        keys, values = (buffer[..., : self._used, :] for buffer in self._buffers)
        self.keys, self.values = keys, values
        return keys, values


class PlainDecoder:
    """Decodes with the model's own attention. Each response has a copy of its prompt's keys and values.

    This works for models whose layers keep keys and values, and which honour positions and masks that are given to
    them. Where `SharedDecoder` applies, it is several times faster.
    """

    def __init__(self, policy: Policy, prompts: Sequence[Sequence[int]], repeats: int) -> None:
        """Run the left-padded prompts once, then repeat the cache for each response of a group."""
        self._policy = policy
        device, width = policy.device, max(map(len, prompts))
        ids = torch.zeros(len(prompts), width, dtype=torch.long)
        mask = torch.zeros(len(prompts), width, dtype=torch.long)
        for index, prompt in enumerate(prompts):
            ids[index, width - len(prompt) :] = torch.tensor(prompt)
            mask[index, width - len(prompt) :] = 1
        ids, mask = ids.to(device), mask.to(device)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        self._cache = Cache(layer_class_to_replicate=BufferedLayer)
        with policy.autocast():
            last = policy.arguments.taken(logits_to_keep=1)
            logits = policy.model(input_ids=ids, use_cache=True, **self._taken(mask, positions), **last).logits[:, -1]
        self._cache.batch_repeat_interleave(repeats)
        self.logits = logits.float().repeat_interleave(repeats, dim=0)
        self._positions = (positions[:, -1] + 1).repeat_interleave(repeats)
        self._mask = mask.repeat_interleave(repeats, dim=0)

    def step(self, tokens: Tensor) -> None:
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(tokens), 1)], dim=1)
        with self._policy.autocast():
            output = self._policy.model(
                input_ids=tokens[:, None], use_cache=True, **self._taken(self._mask, self._positions[:, None])
            )
        self.logits = output.logits[:, -1].float()
        self._positions = self._positions + 1

    def _taken(self, mask: Tensor, positions: Tensor) -> dict[str, Any]:
        return self._policy.arguments.taken(cache=self._cache, attention_mask=mask, position_ids=positions)

    def select(self, keep: Tensor) -> None:
        self._cache.batch_select_indices(keep)
        self.logits, self._positions, self._mask = self.logits[keep], self._positions[keep], self._mask[keep]


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
        self._take(torch.arange(len(prompts), device=policy.device).repeat_interleave(repeats))

    def step(self, tokens: Tensor) -> None:
        self._run(tokens[:, None])

    def select(self, keep: Tensor) -> None:
        self._take(keep)

    def _take(self, rows: Tensor) -> None:
        """Continue with these rows, some of which may be equal."""
        for cache in self._cache.values():
            cache.reorder_cache(rows)
        self.logits = self.logits[rows]

    def _run(self, ids: Tensor) -> None:
        with self._policy.autocast():
            output = self._policy.model(input_ids=ids, use_cache=True, **self._cache)
        self.logits: Tensor = output.logits[:, -1].float()
        name = self._policy.arguments.cache
        if name is None:
            raise Unsupported("its forward pass takes no cache")
        self._cache: dict[str, Any] = {name: output[name]}


class WholeDecoder:
    """Decodes without a cache: every step runs the forward pass of training over all tokens of each row.

    This works for every model that training accepts, and is slow: the time for a response grows with the square of its
    length.
    """

    def __init__(self, policy: Policy, prompts: Sequence[Sequence[int]], repeats: int) -> None:
        self._policy = policy
        self._rows = [list(prompt) for prompt in prompts]
        logits = policy.next_logits(self._rows, _TOKENS_AT_ONCE)
        self._rows = [list(row) for row in self._rows for _ in range(repeats)]
        self.logits = logits.repeat_interleave(repeats, dim=0)

    def step(self, tokens: Tensor) -> None:
        for row, token in zip(self._rows, tokens.tolist(), strict=True):
            row.append(token)
        self.logits = self._policy.next_logits(self._rows, _TOKENS_AT_ONCE)

    def select(self, keep: Tensor) -> None:
        self._rows = [self._rows[row] for row in keep.tolist()]
        self.logits = self.logits[keep]


# The test -------------------------------------------------------------------------------------------------------------


@torch.inference_mode()
def why_not(start: Start, policy: Policy, *, ragged: bool, longest: int = PROBED) -> str:
    """Why a model cannot be decoded in a way; empty if it can.

    The test decodes a few tokens of two responses to each of two prompts, drops a row on the way, and compares all
    logits with those of the plain forward pass. So nothing needs to be known about the model's cache, masks and
    positions. It does the same with long prompts. The comparison is made in fp32, where rounding is small. With bf16,
    whose error depends on the model and may be as large as its logits, the decoder's own error must also be like the
    plain pass's. See `dph.models.trial`.

    Args:
        start: starts the decoder.
        ragged: whether prompts of different length are decoded together.
        longest: tokens of the longest row of the test.
    """

    def short() -> str:
        for logits, rows in _trial(start, policy, ragged):
            if not agree(logits, _plain_logits(policy, rows)):
                return "its logits differ from those of its plain forward pass"
        return ""

    def long() -> str:
        logits, rows = _long_trial(start, policy, ragged, longest)
        if agree(logits, _plain_logits(policy, rows), _LONG_TOLERANCE):
            return ""
        return f"its logits differ from those of its plain forward pass in rows of {longest} tokens"

    def coarse() -> str:
        if _error(start, policy, ragged) <= MAX_ERROR_RATIO:
            return ""
        return f"in {policy.precision} its logits have a larger error than those of its plain forward pass"

    def tried() -> str:
        reason = policy.in_trial(short) or (policy.in_trial(long) if longest > PROBED else "")
        return reason or ("" if policy.precision == "fp32" else with_first_layers(policy.model, coarse))

    with policy.evaluating():
        return attempt(tried)


def _trial(start: Start, policy: Policy, ragged: bool) -> Iterator[tuple[Tensor, list[list[int]]]]:
    """Decode a few tokens; yield the logits and the rows that they continue, at each step."""
    config = policy.model.config.get_text_config()
    vocabulary, padding = config.vocab_size, getattr(config, "pad_token_id", None)
    steps = [_TOKENS[0] if padding is None else (*_TOKENS[0][:-1], padding), *_TOKENS[1:]]
    steps = [[token % vocabulary for token in tokens] for tokens in steps]
    for prompts in _PROMPTS[ragged]:
        rows = [[token % vocabulary for token in prompt] for prompt in prompts]
        decoder = start(policy, rows, 2)
        rows = [row for row in rows for _ in range(2)]
        yield decoder.logits, rows
        for number, tokens in enumerate(steps):
            rows = _appended(decoder, rows, tokens)
            yield decoder.logits, rows
            if number == 0:
                decoder.select(torch.tensor(_KEPT, device=policy.device))
                rows = [rows[row] for row in _KEPT]


def _long_trial(start: Start, policy: Policy, ragged: bool, longest: int) -> tuple[Tensor, list[list[int]]]:
    """Decode a few tokens after prompts of which the longest leave just room for them; return the last logits and the
    rows that they continue."""
    vocabulary, generator = policy.model.config.get_text_config().vocab_size, torch.Generator().manual_seed(1)
    room = longest - len(_TOKENS)
    lengths = sorted({5, room // 4 + 1, room}) if ragged else [room, room]
    prompts = [torch.randint(vocabulary, (length,), generator=generator).tolist() for length in lengths]
    decoder = start(policy, prompts, 1)
    rows = prompts
    for _ in _TOKENS:
        rows = _appended(decoder, rows, torch.randint(vocabulary, (len(rows),), generator=generator).tolist())
    return decoder.logits, rows


def _appended(decoder: Decoder, rows: Sequence[list[int]], tokens: Sequence[int]) -> list[list[int]]:
    """The rows with a token more each, which the decoder has decoded."""
    decoder.step(torch.tensor(tokens, device=decoder.logits.device))
    return [[*row, token] for row, token in zip(rows, tokens, strict=True)]


def _error(start: Start, policy: Policy, ragged: bool) -> float:
    """Error of a decoder's logits in the policy's precision, as a multiple of the plain pass's: root mean squares over
    the vocabulary, geometric mean over rows of random tokens."""
    decoded = list(_random_trial(start, policy, ragged))
    plain = [_plain_logits(policy, rows) for _, rows in decoded]
    with policy.in_precision("fp32"):
        exact = [_plain_logits(policy, rows) for _, rows in decoded]
    logarithms: list[Tensor] = []
    for (logits, _), rounded, true in zip(decoded, plain, exact, strict=True):
        least = _ROUNDING**2 * true.square().sum(-1)
        error, usual = (torch.maximum((each - true).square().sum(-1), least) for each in (logits, rounded))
        logarithms.append(0.5 * (error / usual).log())
    return float(torch.cat(logarithms).mean().exp())


def _random_trial(start: Start, policy: Policy, ragged: bool) -> Iterator[tuple[Tensor, list[list[int]]]]:
    """As `_trial`, with random tokens, more responses, and without the prompts' own logits, which need no decoder."""
    vocabulary, generator = policy.model.config.get_text_config().vocab_size, torch.Generator().manual_seed(0)
    for prompts in _PROMPTS[ragged]:
        rows = [torch.randint(vocabulary, (len(prompt),), generator=generator).tolist() for prompt in prompts]
        decoder = start(policy, rows, _RESPONSES)
        rows = [row for row in rows for _ in range(_RESPONSES)]
        for _ in _TOKENS:
            rows = _appended(decoder, rows, torch.randint(vocabulary, (len(rows),), generator=generator).tolist())
            yield decoder.logits.clone(), rows  # a decoder may write the next step's into the same place


def _plain_logits(policy: Policy, rows: Sequence[Sequence[int]]) -> Tensor:
    """Logits [rows, V] of the token after each row, from the model's plain forward pass over rows of one length."""
    last = policy.arguments.taken(logits_to_keep=1)
    with policy.autocast():
        parts = [torch.tensor(list(equal), device=policy.device) for _, equal in groupby(rows, key=len)]
        own = [policy.model(input_ids=ids, use_cache=False, **last).logits[:, -1] for ids in parts]
    return torch.cat(own).float()
