"""The built-in sampler. It runs the transformers model, computes a group's prompt once and drops finished rows."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from dph.config import SamplerConfig
from dph.models.policy import Policy
from dph.process.progress import say
from dph.sampling.plain_decode import PlainDecoder
from dph.sampling.protocol import StreamingSampler, register_sampler
from dph.sampling.seeding import derive_key, uniforms
from dph.sampling.shared_decode import SharedDecoder, longest_shared, why_not_shared
from dph.types import Completion, SamplingParams

_COMPACT_BELOW = 0.75
"""Finished rows are dropped from the batch once fewer than this fraction of its rows are still running."""


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


class HFSampler(StreamingSampler):
    """Samples from a Policy in this process."""

    def __init__(self, policy: Policy, rows: int = 256) -> None:
        """
        Args:
            policy: each call samples from its current weights.
            rows: most responses that are decoded together.
        """
        self._policy, self._rows = policy, rows
        self._shared: bool | None = None

    def stream(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[int]
    ) -> Iterator[tuple[int, list[Completion]]]:
        """See StreamingSampler.stream. Prompts of similar length are decoded together."""
        if any(len(prompt) == 0 for prompt in prompts):
            raise ValueError("cannot sample from a prompt without tokens")
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        at_once = max(1, self._rows // params.n)
        was_training = self._policy.model.training
        self._policy.model.eval()
        try:
            for start in range(0, len(order), at_once):
                chosen = order[start : start + at_once]
                groups = self._decode([prompts[i] for i in chosen], params, [keys[i] for i in chosen])
                yield from ((chosen[place], group) for place, group in groups)
        finally:
            self._policy.model.train(was_training)

    @torch.inference_mode()
    def _decode(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[int]
    ) -> Iterator[tuple[int, list[Completion]]]:
        """Yield (index, responses) for each prompt as soon as its last response has ended."""
        device, n, total = self._policy.device, params.n, len(prompts) * params.n
        eos = torch.tensor(sorted(self._policy.eos_ids), device=device)
        row_keys = torch.tensor([derive_key(key, i) for key in keys for i in range(n)], device=device)
        tokens = torch.zeros(total, params.max_tokens, dtype=torch.long, device=device)
        logprobs = torch.zeros(total, params.max_tokens, dtype=torch.float32, device=device)
        lengths, left = [0] * total, [n] * len(prompts)
        rows = torch.arange(total, device=device)  # rows still in the batch; some of them may have ended
        running = torch.ones(total, dtype=torch.bool, device=device)
        decoder = self._decoder(prompts, params)
        for step in range(params.max_tokens):
            chosen, chosen_logprobs = draw(decoder.logits, params, row_keys[rows], step)
            tokens[rows, step], logprobs[rows, step] = chosen, chosen_logprobs
            last = step == params.max_tokens - 1
            ending = running if last else running & torch.isin(chosen, eos)
            running = running & ~ending
            for row in rows[ending].tolist():
                lengths[row] = step + 1
                left[row // n] -= 1
                if left[row // n] == 0:
                    start = row // n * n
                    yield row // n, self._completions(tokens, logprobs, lengths, range(start, start + n))
            alive = int(running.sum())
            if alive == 0:
                return
            if alive < _COMPACT_BELOW * len(rows):
                keep = running.nonzero().squeeze(1)
                decoder.select(keep)
                rows, chosen, running = rows[keep], chosen[keep], running[keep]
            decoder.step(chosen)

    def _completions(self, tokens: Tensor, logprobs: Tensor, lengths: Sequence[int], rows: range) -> list[Completion]:
        found = []
        for row in rows:
            ids, values = (x[row, : lengths[row]].tolist() for x in (tokens, logprobs))
            found.append(Completion(ids, values, "stop" if ids[-1] in self._policy.eos_ids else "length"))
        return found

    def _decoder(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> Decoder:
        """The fast decoder if it reproduces the model's logits, otherwise the plain one."""
        if self._shared is None:
            reason = why_not_shared(self._policy)
            self._shared = not reason
            if reason:
                say(f"the sampler keeps a copy of the prompt for each response, because of this model: {reason}")
        longest = max(map(len, prompts)) + params.max_tokens
        if self._shared and longest <= longest_shared(self._policy):
            return SharedDecoder(self._policy, prompts, params.n)
        return PlainDecoder(self._policy, prompts, params.n)


def draw(logits: Tensor, params: SamplingParams, keys: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """Choose the next token of each row, and return its log-probability under the untruncated distribution.

    The token is found by inverting the cumulative distribution at a uniform number, which depends only on the row's key
    and the step.

    Args:
        logits: [R, V].
        params: temperature and top-p. Temperature 0 takes the most likely token; log-probabilities are then those at
            temperature 1.
        keys: int64 [R], the rows' random keys.
        step: index of the token within its response.
    Returns:
        Tokens, int64 [R], and their log-probabilities in nats, float32 [R].
    """
    if params.temperature > 0 and params.temperature != 1.0:
        logits = logits / params.temperature
    logprobs = logits.log_softmax(-1)
    if params.temperature == 0:
        chosen = logprobs.argmax(-1)
    else:
        numbers = uniforms(keys, torch.tensor(step, device=keys.device))
        probs = logprobs.to(numbers.dtype).exp()
        chosen = _invert(probs, numbers) if params.top_p >= 1 else _invert_nucleus(probs, numbers, params.top_p)
    return chosen, logprobs.gather(1, chosen[:, None]).squeeze(1)


def _invert(probs: Tensor, numbers: Tensor) -> Tensor:
    cumulative = probs.cumsum(-1)
    targets = numbers[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, targets, right=True).squeeze(1).clamp(max=probs.shape[1] - 1)


def _invert_nucleus(probs: Tensor, numbers: Tensor, top_p: float) -> Tensor:
    """As `_invert`, over the smallest set of most likely tokens whose total probability reaches top_p."""
    ordered, tokens = probs.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    kept = torch.where(before < top_p, ordered, torch.zeros_like(ordered))
    return tokens.gather(1, _invert(kept, numbers)[:, None]).squeeze(1)


@register_sampler("hf")
def _make(policy: Policy, config: SamplerConfig, **_: object) -> HFSampler:
    return HFSampler(policy, config.rows)
