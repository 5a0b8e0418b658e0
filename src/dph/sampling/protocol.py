"""What a sampler is, and the table of samplers by name."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from dph.registry import Registry
from dph.types import Completion, SamplingParams


class Sampler(Protocol):
    """Generates responses of the current policy."""

    def sample(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[int]
    ) -> list[list[Completion]]:
        """Draw `params.n` responses for each prompt.

        Args:
            prompts: token ids.
            params: temperature 0 decodes greedily.
            keys: one random key per prompt (see `seeding.derive_key`); the i-th response of a prompt depends on its
                key, i and the policy only.
        Returns:
            For each prompt its responses, in the order of the prompts.
        """
        ...


SAMPLERS: Registry[Callable[..., Sampler]] = Registry("sampler engine")
register_sampler = SAMPLERS.register
"""Decorator: make a sampler available as `sampler.engine`. The factory is called as `make_sampler` describes:
factory(policy, config, model=…, longest=…, training=…)."""


@runtime_checkable
class StreamingSampler(Sampler, Protocol):
    """A sampler that hands out each prompt's responses when they are complete, so that judging need not wait. One that
    inherits from this needs `stream` alone."""

    def sample(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[int]
    ) -> list[list[Completion]]:
        """See Sampler.sample."""
        results = dict(self.stream(prompts, params, keys))
        return [results[index] for index in range(len(prompts))]

    def stream(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[int]
    ) -> Iterator[tuple[int, list[Completion]]]:
        """As Sampler.sample: yields (index of the prompt, its responses), in any order, each prompt once."""
        ...


@runtime_checkable
class ClosingSampler(Protocol):
    """A sampler that holds memory or processes beside the policy."""

    def close(self) -> None:
        """Give them back; a further call to sample takes them anew."""
        ...


@runtime_checkable
class FollowingSampler(Protocol):
    """A sampler with weights of its own, which follow the policy's."""

    def weights_changed(self) -> None:
        """The policy's weights are others since the last call to sample; a further call takes them over."""
        ...


def weights_changed(sampler: Sampler) -> None:
    """Say that the policy has been updated."""
    if isinstance(sampler, FollowingSampler):
        sampler.weights_changed()


def close(sampler: Sampler) -> None:
    """Give back what a sampler holds beside the policy."""
    if isinstance(sampler, ClosingSampler):
        sampler.close()


def stream(
    sampler: Sampler, prompts: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[int]
) -> Iterator[tuple[int, list[Completion]]]:
    """(index, responses) of each prompt as soon as the sampler has them, at the latest when all are there."""
    if isinstance(sampler, StreamingSampler):
        yield from sampler.stream(prompts, params, keys)
    else:
        yield from enumerate(sampler.sample(prompts, params, keys))
