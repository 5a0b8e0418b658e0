"""The built-in sampler. It runs the transformers model, computes a group's prompt once and drops finished rows.

`draw` chooses the next token from logits, the same one on every machine for the same random key.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

import torch
from torch import Tensor

from dph.config import TrainingSamplerConfig
from dph.config.sampling import SamplingParams
from dph.errors import ModelError
from dph.models.capability import GrowingCheck, scale
from dph.models.policy import Policy
from dph.process.progress import say
from dph.sampling.decoders import PlainDecoder, Start, StateDecoder, WholeDecoder, why_not
from dph.sampling.protocol import Sampler, register_sampler
from dph.sampling.seeding import derive_key, uniforms
from dph.sampling.shared_decode import SharedDecoder, longest_shared, why_not_shared
from dph.sampling.static_decode import StaticDecoder
from dph.sampling.stopping import Stopping
from dph.types import Completion

T = TypeVar("T")

_BLOCK = 256
"""Tokens are found in two steps, first the block, of this many tokens, then the token: running sums over a whole
vocabulary in float64 would take much of the time of a decoding step on a CPU (benchmarks/speed/drawing.py)."""
CANDIDATES = (1024, 8192)
"""On a CPU, sorting a whole vocabulary takes much longer than finding this many most likely tokens."""
LOOK_EVERY = {"cpu": 1}
LOOK_EVERY_OTHERWISE = 8
"""Each time after this many tokens the sampler looks which responses have ended. A look waits for the device."""
COMPACT_BELOW = 0.9
"""Finished rows are dropped from the batch once fewer than this fraction of its rows are still running."""


class HFSampler(Sampler):
    """Samples from a Policy in this process."""

    def __init__(self, policy: Policy, rows: int = 256, *, graphs: bool = True, decoder: str = "auto") -> None:
        """
        Args:
            policy: each call samples from its current weights.
            rows: most responses that are decoded together.
            graphs: on a GPU, replay the steps as CUDA graphs if a check shows that this is exact.
            decoder: "auto" for the fastest exact way with a cache, or "whole" for decoding without one.
        """
        self._policy, self._rows, self._graphs = policy, rows, graphs
        self._decoder = decoder
        self.checks: dict[Start, GrowingCheck] = {}

    def stream(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[int]
    ) -> Iterator[tuple[int, list[Completion]]]:
        """See Sampler.stream. Prompts of similar length are decoded together."""
        if any(len(prompt) == 0 for prompt in prompts):
            raise ValueError("cannot sample from a prompt without tokens")
        if params.turns > 1:
            raise ValueError("a sampler draws single turns; dph.sampling.rollouts.sample_groups draws several")
        self._policy.check_length(max(map(len, prompts), default=0) + params.max_tokens)
        with self._policy.evaluating():
            for start, chosen in self._batches(prompts, params):
                groups = self._decode(start, [prompts[i] for i in chosen], params, [keys[i] for i in chosen])
                yield from ((chosen[place], group) for place, group in _within(self._computing, groups))

    def _batches(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> Iterator[tuple[Start, list[int]]]:
        """Cut the prompts, by length, into batches; yield how to decode each batch, and the indices of its prompts."""
        at_once = max(1, self._rows // params.n)

        def way(index: int) -> tuple[Start, int]:
            """Prompts are decoded together only if they agree in this."""
            length = len(prompts[index])
            start, ragged = self.way(length + params.max_tokens)
            return start, 0 if ragged else length

        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        for (start, _), alike in groupby(order, way):
            chosen = list(alike)
            for first in range(0, len(chosen), at_once):
                yield start, chosen[first : first + at_once]

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Context of decoding, without gradients. Autocast casts the weights once in it, and not for every token, which
        it does only outside of inference mode."""
        with torch.inference_mode() if self._policy.precision == "fp32" else torch.no_grad(), self._policy.autocast():
            yield

    def _decode(
        self, start: Start, prompts: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[int]
    ) -> Iterator[tuple[int, list[Completion]]]:
        """Yield (index, responses) for each prompt as soon as its last response has ended."""
        device, n, total = self._policy.device, params.n, len(prompts) * params.n
        eos = torch.tensor(sorted(self._policy.eos_ids), device=device)
        row_keys = torch.tensor([derive_key(key, i) for key in keys for i in range(n)], device=device)
        tokens = torch.zeros(total, params.max_tokens, dtype=torch.long, device=device)
        logprobs = torch.zeros(total, params.max_tokens, dtype=torch.float32, device=device)
        lengths = torch.zeros(total, dtype=torch.long, device=device)  # 0 until a response has ended
        texts = Stopping(self._policy.decode, params.stop, total) if params.stop else None
        left, look = list(range(len(prompts))), LOOK_EVERY.get(device.type, LOOK_EVERY_OTHERWISE)
        rows = torch.arange(total, device=device)  # rows still in the batch; some of them may have ended
        running = torch.ones(total, dtype=torch.bool, device=device)
        decoder = start(self._policy, prompts, n)
        for step in range(params.max_tokens):
            with torch.autocast(device.type, enabled=False):
                chosen, chosen_logprobs = draw(decoder.logits, params, row_keys[rows], step)
            tokens[rows, step], logprobs[rows, step] = chosen, chosen_logprobs
            last = step == params.max_tokens - 1
            ending = running if last else running & torch.isin(chosen, eos)
            running = running & ~ending
            lengths.index_add_(0, rows, ending * (step + 1))
            if last or (step + 1) % look == 0:
                if texts is not None:
                    texts.look(rows.tolist(), tokens[rows, step // look * look : step + 1].tolist(), lengths)
                    running = running & (lengths[rows] == 0)
                ended_at = lengths.tolist()
                for index in [index for index in left if all(ended_at[index * n : index * n + n])]:
                    left.remove(index)
                    places, stopped = range(index * n, index * n + n), texts.stopped if texts is not None else ()
                    yield index, self._completions(tokens, logprobs, ended_at, places, stopped)
                alive = ended_at.count(0)
                if alive == 0:
                    return
                if alive < COMPACT_BELOW * len(rows):
                    keep = running.nonzero().squeeze(1)
                    decoder.select(keep)
                    rows, chosen, running = rows[keep], chosen[keep], running[keep]
            decoder.step(chosen)

    def _completions(
        self, tokens: Tensor, logprobs: Tensor, lengths: Sequence[int], rows: range, stopped: Collection[int]
    ) -> list[Completion]:
        """The responses of rows, some of which a stop string ended."""
        completions = []
        for row in rows:
            ids, values = (x[row, : lengths[row]].tolist() for x in (tokens, logprobs))
            ended = row in stopped or ids[-1] in self._policy.eos_ids
            completions.append(Completion(ids, values, "stop" if ended else "length"))
        return completions

    def way(self, longest: int) -> tuple[Start, bool]:
        """How to decode rows of up to `longest` tokens: the fastest way that reproduces the model's logits, and whether
        it takes prompts of different lengths together.

        Raises UserError if no way with a cache does, unless decoding without one was chosen.
        """
        if self._decoder == "whole":
            return WholeDecoder, True
        if self.works(SharedDecoder, longest) and longest <= longest_shared(self._policy):
            return (StaticDecoder if self.replays(longest) else SharedDecoder), True
        for start in (PlainDecoder, StateDecoder):
            if self.works(start, longest):
                return start, start is PlainDecoder
        raise ModelError(
            f"the built-in sampler cannot decode this model ({self._policy.model.config.model_type}) with a cache: "
            f"{self.checks[PlainDecoder].failure}; set sampler.decoder to whole, which computes every row anew for "
            "each token and is slow, or use another sampler"
        )

    def works(self, start: Start, longest: int) -> bool:
        """Whether a way to decode reproduces the model's logits; it is tried when rows get longer than before."""
        check = self.checks.setdefault(start, GrowingCheck(partial(self._try, start)))
        return not check.failure_at(scale(longest, self._policy.context_length))

    def _try(self, start: Start, longest: int) -> str:
        """Why rows of `longest` tokens cannot be decoded in a way; empty if they can. The log says which ways are used,
        and why others are not."""
        first = not self.checks[start].sizes
        used, unused = _SAID[start]
        if start in (SharedDecoder, StaticDecoder):
            reason = why_not_shared(self._policy, start, longest)
        else:
            reason = why_not(start, self._policy, ragged=start is PlainDecoder, longest=longest)
        if reason and unused:
            say(f"the sampler {unused}, because of this model: {reason}")
        elif first and not reason:
            say(f"the sampler {used}")
        return reason

    def replays(self, longest: int) -> bool:
        """Whether a CUDA graph can replay the steps of decoding with shared prompts."""
        return self._graphs and self._policy.device.type == "cuda" and self.works(StaticDecoder, longest)


_SAID: dict[Start, tuple[str, str]] = {
    SharedDecoder: (
        "computes each prompt once for all of its responses",
        "keeps a copy of the prompt for each response",
    ),
    StaticDecoder: ("replays its steps as graphs", "starts every kernel by itself, which is slow for small models"),
    PlainDecoder: ("decodes with a cache", "decodes only prompts of equal length together"),
    StateDecoder: ("decodes with the cache that the model makes", ""),
}
"""For each way with a cache: the message if it is used, and if it is not."""


def _within(context: Callable[[], AbstractContextManager[Any]], items: Iterator[T]) -> Iterator[T]:
    """The items of a generator, which runs within a context. Whoever takes an item is outside of it."""
    while True:
        with context():
            try:
                item = next(items)
            except StopIteration:
                return
        yield item


# The next token -------------------------------------------------------------------------------------------------------


def draw(logits: Tensor, params: SamplingParams, keys: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """Choose the next token of each row, and return its log-probability under the untruncated distribution.

    The token is found by inverting the cumulative distribution at a uniform number, which depends only on the row's key
    and the step.

    Args:
        logits: [R, V].
        params: temperature, min-p and top-p. Temperature 0 takes the most likely token; log-probabilities are then
            those at temperature 1.
        keys: int64 [R], the rows' random keys.
        step: index of the token within its response.
    Returns:
        Tokens, int64 [R], and their log-probabilities in nats, float32 [R].
    """
    if params.temperature > 0 and params.temperature != 1.0:
        logits = logits / params.temperature
    probs = logits.softmax(-1)
    if params.temperature == 0:
        chosen = logits.argmax(-1, keepdim=True)
    else:
        numbers = uniforms(keys, torch.full((), step, device=keys.device))  # no copy, which would wait for a GPU
        kept = _at_least(probs, params.min_p) if params.min_p > 0 else probs
        chosen = _invert(kept, numbers) if params.top_p >= 1 else _invert_nucleus(kept, numbers, params.top_p)
    # softmax adds up a row with more rounding than `sum`
    return chosen.squeeze(1), (probs.gather(1, chosen) / probs.sum(-1, keepdim=True)).log().squeeze(1)


def _invert(weights: Tensor, numbers: Tensor) -> Tensor:
    """The first token, [R, 1], at which the running sum of the row's weights [R, V] exceeds its number times the sum of
    all. The numbers [R] lie in [0, 1); a token without weight is never chosen."""
    size = weights.shape[1]
    if size <= 2 * _BLOCK:
        return _inverted(weights.to(numbers.dtype), numbers[:, None])[0]
    whole = size // _BLOCK * _BLOCK
    blocks = weights[:, :whole].unflatten(1, (-1, _BLOCK)).sum(-1)
    blocks = torch.cat([blocks, weights[:, whole:].sum(-1, keepdim=True)], 1).to(numbers.dtype)
    block, fraction = _inverted(blocks, numbers[:, None])
    places = block * _BLOCK + torch.arange(_BLOCK, device=weights.device)
    inside = weights.gather(1, places.clamp(max=size - 1)).to(numbers.dtype).masked_fill(places >= size, 0.0)
    place = block * _BLOCK + _inverted(inside, fraction)[0]
    return place.clamp_(max=size - 1)  # logits of a model that has diverged have no sum


def _inverted(weights: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Invert the running sums of weights [R, N] at numbers [R, 1].

    Returns the places, and the parts of their weights that lie below the numbers, in [0, 1]; both [R, 1].
    """
    sums = weights.cumsum(-1)
    total = sums[:, -1:].contiguous()
    targets = numbers * total
    last = torch.searchsorted(sums, total)  # the last place with a weight: rounding must not lead beyond it
    place = torch.minimum(torch.searchsorted(sums, targets, right=True), last).clamp_(max=weights.shape[1] - 1)
    weight = weights.gather(1, place)
    below = targets - (sums.gather(1, place) - weight)
    return place, (below / weight).clamp_(0, 1)


def _at_least(probs: Tensor, min_p: float) -> Tensor:
    """Min-p: the distribution [R, V] of the tokens with at least this share of the most likely token's probability."""
    kept = torch.where(probs >= min_p * probs.amax(-1, keepdim=True), probs, torch.zeros_like(probs))
    return kept / kept.sum(-1, keepdim=True)


def _invert_nucleus(probs: Tensor, numbers: Tensor, top_p: float) -> Tensor:
    """As `_invert`, over the smallest set of most likely tokens whose total probability reaches top_p."""
    ordered, tokens = _most_likely(probs.to(numbers.dtype), top_p)
    before = ordered.cumsum(-1) - ordered
    kept = torch.where(before < top_p, ordered, torch.zeros_like(ordered))
    return tokens.gather(1, _invert(kept, numbers))


def _most_likely(probs: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """Probabilities and tokens by falling probability, then by token: all, or fewer that hold the set of every row."""
    for count in CANDIDATES if probs.device.type == "cpu" else ():
        if probs.shape[1] < 2 * count:
            break
        values, tokens = probs.topk(count, sorted=False)
        certain = torch.where(values > values.amin(-1, keepdim=True), values, torch.zeros_like(values)).sum(-1)
        if bool((certain >= top_p).all()):
            tokens, order = tokens.sort(-1)
            values, order = values.gather(1, order).sort(dim=-1, descending=True, stable=True)
            return values, tokens.gather(1, order)
    return probs.sort(dim=-1, descending=True, stable=True)


@register_sampler("hf")
def _make(policy: Policy, config: TrainingSamplerConfig, **_: object) -> HFSampler:
    return HFSampler(policy, config.rows, decoder=config.decoder)
