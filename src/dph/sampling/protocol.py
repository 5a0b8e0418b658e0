"""The sampler protocols, and the registry of samplers by name."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from dph.registry import Registry
from dph.types import Completion, SamplingParams


class Sampler(Protocol):
    """Generates responses with the current policy."""

    def sample(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[int]
    ) -> list[list[Completion]]:
        """Draw `params.n` responses for each prompt.

        Args:
            prompts: token ids of each prompt.
            params: number of responses, temperature (0 decodes greedily), top-p and length limit.
            keys: one random key per prompt (see `seeding.derive_key`). The i-th response to a prompt depends only on
                the prompt, its key, i, `params` and the policy.
        Returns:
            The responses to each prompt, in the order of the prompts.
        """
        ...


SAMPLERS: Registry[Callable[..., Sampler]] = Registry("sampler engine")
register_sampler = SAMPLERS.register
"""Decorator: make a sampler available as `sampler.engine`. `dph.build.make_sampler` calls the decorated factory as
factory(policy, config, model=…, longest=…, training=…)."""


@runtime_checkable
class StreamingSampler(Sampler, Protocol):
    """A sampler that yields each prompt's responses as soon as they are complete, so that judging can start early.

    A subclass implements only `stream`.
    """

    def sample(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[int]
    ) -> list[list[Completion]]:
        """See Sampler.sample."""
        results = dict(self.stream(prompts, params, keys))
        return [results[index] for index in range(len(prompts))]

    def stream(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[int]
    ) -> Iterator[tuple[int, list[Completion]]]:
        """As Sampler.sample, but yield (index of the prompt, its responses), in any order, once per prompt."""
        ...


@runtime_checkable
class ClosingSampler(Protocol):
    """A sampler that holds memory or processes of its own."""

    def close(self) -> None:
        """Release them; the next call to `sample` acquires them again."""
        ...


@runtime_checkable
class FollowingSampler(Protocol):
    """A sampler that keeps its own copy of the policy's weights."""

    def weights_changed(self) -> None:
        """Note that the policy's weights have changed; the next call to `sample` copies them first."""
        ...


@runtime_checkable
class RestingSampler(Protocol):
    """A sampler that can give up a device's memory for a while."""

    def rest(self) -> None:
        """Give it up until the next call to `sample`, which takes it again."""
        ...


def rest(sampler: Sampler) -> None:
    """Let a sampler give up the device's memory while the policy is updated."""
    if isinstance(sampler, RestingSampler):
        sampler.rest()


def weights_changed(sampler: Sampler) -> None:
    """Tell a sampler that the policy's weights have changed."""
    if isinstance(sampler, FollowingSampler):
        sampler.weights_changed()


def close(sampler: Sampler) -> None:
    """Release a sampler's memory and processes, if it has any."""
    if isinstance(sampler, ClosingSampler):
        sampler.close()


def stream(
    sampler: Sampler, prompts: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[int]
) -> Iterator[tuple[int, list[Completion]]]:
    """Yield (index, responses) for each prompt: early if the sampler streams, otherwise once all are complete."""
    if isinstance(sampler, StreamingSampler):
        yield from sampler.stream(prompts, params, keys)
    else:
        yield from enumerate(sampler.sample(prompts, params, keys))
