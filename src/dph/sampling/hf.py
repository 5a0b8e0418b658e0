"""The built-in sampler. It runs the transformers model, computes a group's prompt once and drops finished rows."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

import torch
from torch import Tensor

from dph.config import SamplerConfig
from dph.errors import ModelError
from dph.models.policy import Policy
from dph.models.trial import GrowingTrial, scale
from dph.process.progress import say
from dph.sampling.decoders import PlainDecoder, Start, StateDecoder, WholeDecoder, why_not
from dph.sampling.drawing import draw
from dph.sampling.protocol import Sampler, register_sampler
from dph.sampling.seeding import derive_key
from dph.sampling.shared_decode import SharedDecoder, longest_shared, why_not_shared
from dph.sampling.static_decode import StaticDecoder, why_not_static
from dph.types import Completion, SamplingParams

T = TypeVar("T")

LOOK_EVERY = {"cpu": 1}
LOOK_EVERY_OTHERWISE = 8
"""After so many tokens the sampler looks which responses have ended. A look waits for the device."""
COMPACT_BELOW = 0.75
"""Finished rows are dropped from the batch once fewer than this fraction of its rows are still running."""


class HFSampler(Sampler):
    """Samples from a Policy in this process."""

    def __init__(self, policy: Policy, rows: int = 256, *, graphs: bool = True, decoder: str = "auto") -> None:
        """
        Args:
            policy: each call samples from its current weights.
            rows: most responses that are decoded together.
            graphs: on a GPU, replay the steps as CUDA graphs if a trial shows that this is exact.
            decoder: "auto" for the fastest exact way with a cache, or "whole" for decoding without one.
        """
        self._policy, self._rows, self._graphs = policy, rows, graphs
        self._decoder = decoder
        self.trials: dict[Start, GrowingTrial] = {}

    def stream(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[int]
    ) -> Iterator[tuple[int, list[Completion]]]:
        """See Sampler.stream. Prompts of similar length are decoded together."""
        if any(len(prompt) == 0 for prompt in prompts):
            raise ValueError("cannot sample from a prompt without tokens")
        self._policy.check_length(max(map(len, prompts), default=0) + params.max_tokens)
        with self._policy.evaluating():
            for start, chosen in self._batches(prompts, params):
                groups = self._decode(start, [prompts[i] for i in chosen], params, [keys[i] for i in chosen])
                yield from ((chosen[place], group) for place, group in _within(self._computing, groups))

    def _batches(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> Iterator[tuple[Start, list[int]]]:
        """Cut the prompts, by length, into batches; yield how to decode each batch, and the indices of its prompts."""
        at_once = max(1, self._rows // params.n)

        def kind(index: int) -> tuple[Start, int]:
            """Prompts are decoded together only if they agree in this."""
            length = len(prompts[index])
            start, ragged = self.way(length + params.max_tokens)
            return start, 0 if ragged else length

        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        for (start, _), alike in groupby(order, kind):
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
                ended_at = lengths.tolist()
                for index in [index for index in left if all(ended_at[index * n : index * n + n])]:
                    left.remove(index)
                    yield index, self._completions(tokens, logprobs, ended_at, range(index * n, index * n + n))
                alive = ended_at.count(0)
                if alive == 0:
                    return
                if alive < COMPACT_BELOW * len(rows):
                    keep = running.nonzero().squeeze(1)
                    decoder.select(keep)
                    rows, chosen, running = rows[keep], chosen[keep], running[keep]
            decoder.step(chosen)

    def _completions(self, tokens: Tensor, logprobs: Tensor, lengths: Sequence[int], rows: range) -> list[Completion]:
        completions = []
        for row in rows:
            ids, values = (x[row, : lengths[row]].tolist() for x in (tokens, logprobs))
            completions.append(Completion(ids, values, "stop" if ids[-1] in self._policy.eos_ids else "length"))
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
            f"{self.trials[PlainDecoder].failure}; set sampler.decoder to whole, which computes every row anew for "
            "each token and is slow, or use another sampler"
        )

    def works(self, start: Start, longest: int) -> bool:
        """Whether a way to decode reproduces the model's logits; it is tried when rows get longer than before."""
        trial = self.trials.setdefault(start, GrowingTrial(partial(self._try, start)))
        return not trial.failure_at(scale(longest, self._policy.context_length))

    def _try(self, start: Start, longest: int) -> str:
        """Why rows of `longest` tokens cannot be decoded in a way; empty if they can. The log says which ways are used,
        and why others are not."""
        first = not self.trials[start].sizes
        if start is SharedDecoder:
            reason = why_not_shared(self._policy, longest)
        elif start is StaticDecoder:
            reason = why_not_static(self._policy, min(longest, longest_shared(self._policy)))
        else:
            reason = why_not(start, self._policy, ragged=start is PlainDecoder, longest=longest)
        if reason and start in _WITHOUT:
            say(f"the sampler {_WITHOUT[start]}, because of this model: {reason}")
        elif first and not reason:
            say(f"the sampler {_WITH[start]}")
        return reason

    def replays(self, longest: int) -> bool:
        """Whether a CUDA graph can replay the steps of decoding with shared prompts."""
        return self._graphs and self._policy.device.type == "cuda" and self.works(StaticDecoder, longest)


_WITH: dict[Start, str] = {
    SharedDecoder: "computes each prompt once for all of its responses",
    StaticDecoder: "replays its steps as graphs",
    PlainDecoder: "decodes with a cache",
    StateDecoder: "decodes with the cache that the model makes",
}
_WITHOUT: dict[Start, str] = {
    SharedDecoder: "keeps a copy of the prompt for each response",
    StaticDecoder: "starts every kernel by itself, which is slow for small models",
    PlainDecoder: "decodes only prompts of equal length together",
}


def _within(context: Callable[[], AbstractContextManager[Any]], items: Iterator[T]) -> Iterator[T]:
    """The items of a generator, which runs within a context. Whoever takes an item is outside of it."""
    while True:
        with context():
            try:
                item = next(items)
            except StopIteration:
                return
        yield item


@register_sampler("hf")
def _make(policy: Policy, config: SamplerConfig, **_: object) -> HFSampler:
    return HFSampler(policy, config.rows, decoder=config.decoder)
