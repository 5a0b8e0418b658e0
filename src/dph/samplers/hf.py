"""The built-in sampler: transformers' own forward pass, the prompt computed once a group, finished rows dropped."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from dph.models.policy import Policy
from dph.seeding import derive_key, uniforms
from dph.types import Completion, SamplingParams

_COMPACT_BELOW = 0.75
"""Finished rows are dropped from the batch once fewer than this share of its rows is still running."""

_GROW_TOKENS = 64
"""Key/value buffers grow by this many positions at a time."""


class BufferedLayer(DynamicLayer):
    """A key/value cache layer that writes into a buffer with room to spare instead of copying itself at every token."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Append states [B, heads, new, dim]; return all states so far as views of the buffers."""
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
        larger = buffer.new_empty(batch, heads, end + _GROW_TOKENS, dim)
        larger[..., : self._used, :] = buffer[..., : self._used, :]
        return larger

    def _show(self) -> tuple[Tensor, Tensor]:
        keys, values = (buffer[..., : self._used, :] for buffer in self._buffers)
        self.keys, self.values = keys, values
        return keys, values


@dataclass(slots=True)
class _Running:
    """Rows that are still being generated."""

    rows: Tensor
    """int64 [R]: index of each running row among all rows of the batch."""
    logits: Tensor
    """float32 [R, V] for the next token."""
    positions: Tensor
    """int64 [R]: position id of the next token."""
    mask: Tensor
    """int64 [R, P]: attention mask over the padded prompt."""

    def select(self, keep: Tensor) -> "_Running":
        return _Running(self.rows[keep], self.logits[keep], self.positions[keep], self.mask[keep])


class HFSampler:
    """Samples from a Policy in this process."""

    def __init__(self, policy: Policy, rows: int = 256) -> None:
        """
        Args:
            policy: sampled as it is at each call, so its current weights count.
            rows: responses decoded together at most.
        """
        self._policy, self._rows = policy, rows

    def sample(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[int]
    ) -> list[list[Completion]]:
        """See Sampler.sample. Prompts of like length are decoded together."""
        if any(len(prompt) == 0 for prompt in prompts):
            raise ValueError("a prompt without tokens cannot be sampled from")
        results: dict[int, list[Completion]] = {}
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        at_once = max(1, self._rows // params.n)
        was_training = self._policy.model.training
        self._policy.model.eval()
        try:
            for start in range(0, len(order), at_once):
                chosen = order[start : start + at_once]
                groups = self._decode([prompts[i] for i in chosen], params, [keys[i] for i in chosen])
                results.update(zip(chosen, groups, strict=True))
        finally:
            self._policy.model.train(was_training)
        return [results[index] for index in range(len(prompts))]

    @torch.inference_mode()
    def _decode(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[int]
    ) -> list[list[Completion]]:
        device, total = self._policy.device, len(prompts) * params.n
        eos = torch.tensor(sorted(self._policy.eos_ids), device=device)
        row_keys = torch.tensor([derive_key(key, i) for key in keys for i in range(params.n)], device=device)
        tokens = torch.zeros(total, params.max_tokens, dtype=torch.long, device=device)
        logprobs = torch.zeros(total, params.max_tokens, dtype=torch.float32, device=device)
        lengths = torch.full((total,), params.max_tokens, device=device)
        cache, running = self._prefill(prompts, params.n)
        for step in range(params.max_tokens):
            chosen, chosen_logprobs = draw(running.logits, params, row_keys[running.rows], step)
            tokens[running.rows, step], logprobs[running.rows, step] = chosen, chosen_logprobs
            ended = torch.isin(chosen, eos) & (lengths[running.rows] == params.max_tokens)
            lengths[running.rows[ended]] = step + 1
            alive = lengths[running.rows] > step + 1
            alive_count = int(alive.sum())
            if alive_count == 0 or step == params.max_tokens - 1:
                break
            if alive_count < _COMPACT_BELOW * len(alive):
                keep = alive.nonzero().squeeze(1)
                cache.batch_select_indices(keep)
                running, chosen = running.select(keep), chosen[keep]
            running.logits = self._forward(chosen[:, None], running, cache, step)
            running.positions = running.positions + 1
        finished = torch.isin(tokens.gather(1, lengths[:, None] - 1).squeeze(1), eos)
        rows = zip(tokens.tolist(), logprobs.tolist(), lengths.tolist(), finished.tolist(), strict=True)
        flat = [Completion(t[:n], p[:n], "stop" if done else "length") for t, p, n, done in rows]
        return [flat[i : i + params.n] for i in range(0, total, params.n)]

    def _prefill(self, prompts: Sequence[Sequence[int]], repeats: int) -> tuple[Cache, _Running]:
        """Run the prompts once, padded on the left, and repeat cache and logits for each response of the group."""
        device, width = self._policy.device, max(map(len, prompts))
        ids = torch.zeros(len(prompts), width, dtype=torch.long)
        mask = torch.zeros(len(prompts), width, dtype=torch.long)
        for index, prompt in enumerate(prompts):
            ids[index, width - len(prompt) :] = torch.tensor(prompt)
            mask[index, width - len(prompt) :] = 1
        ids, mask = ids.to(device), mask.to(device)
        cache = Cache(layer_class_to_replicate=BufferedLayer)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        with self._policy.autocast():
            logits = self._policy.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits[:, -1]
        cache.batch_repeat_interleave(repeats)

        def repeated(x: Tensor) -> Tensor:
            return x.repeat_interleave(repeats, dim=0)

        rows = torch.arange(len(prompts) * repeats, device=device)
        return cache, _Running(rows, repeated(logits.float()), repeated(positions[:, -1] + 1), repeated(mask))

    def _forward(self, token: Tensor, running: _Running, cache: Cache, step: int) -> Tensor:
        """Logits [R, V] after one more token [R, 1]."""
        generated = running.mask.new_ones(token.shape[0], step + 1)
        with self._policy.autocast():
            output = self._policy.model(
                input_ids=token,
                attention_mask=torch.cat([running.mask, generated], dim=1),
                position_ids=running.positions[:, None],
                past_key_values=cache,
                use_cache=True,
            )
        return output.logits[:, -1].float()


def draw(logits: Tensor, params: SamplingParams, keys: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """Choose the next token of each row, and its log-probability under the untruncated distribution.

    Sampling inverts the cumulative distribution at the row's own uniform number for this position.

    Args:
        logits: [R, V].
        params: temperature (0 = the most likely token, log-probability at temperature 1) and top-p.
        keys: int64 [R], the rows' random keys.
        step: index of the token within its response.
    Returns:
        int64 [R] and float32 [R].
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
    """As _invert, over the smallest set of most likely tokens whose probability reaches top_p."""
    ordered, tokens = probs.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered
    kept = torch.where(before < top_p, ordered, torch.zeros_like(ordered))
    return tokens.gather(1, _invert(kept, numbers)[:, None]).squeeze(1)
