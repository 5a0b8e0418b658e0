"""Samplers: their protocol, and the registry by name."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dph.config.sampling import SamplingParams
from dph.errors import SettingsError
from dph.process.user_code import ask
from dph.registry import Registry
from dph.types import Completion


class Sampler:
    """Generates responses with the current policy.

    A subclass implements `sample`, or `stream` if it can hand out the responses to one prompt while it generates
    others. The other methods do nothing unless a sampler holds weights, memory or processes of its own.
    """

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
        groups = dict(self.stream(prompts, params, keys))
        return [groups[index] for index in range(len(prompts))]

    def stream(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[int]
    ) -> Iterator[tuple[int, list[Completion]]]:
        """As `sample`, but yield (index of the prompt, its responses), in any order, once per prompt, as soon as they
        are complete, so that judging can start early."""
        yield from enumerate(self.sample(prompts, params, keys))

    def weights_changed(self) -> None:
        """Note that the policy's weights have changed; a sampler with a copy of them copies them at its next call."""

    def rest(self) -> None:
        """Give up a device's memory, while the policy is updated; the next call takes it again."""

    def close(self) -> None:
        """Release memory and processes; the next call acquires them again."""


def checked(what: str, sampler: Sampler) -> Sampler:
    """A plug-in's sampler; from now on, whatever `stream` raises, and responses in another form, become one sentence.

    what: names the sampler in messages.
    """
    original = sampler.stream

    def stream(
        prompts: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[int]
    ) -> Iterator[tuple[int, list[Completion]]]:
        def right(responses: Any) -> bool:
            each = [isinstance(one, Completion) and len(one.token_ids) == len(one.logprobs) for one in responses]
            return len(each) == params.n and all(each)

        wanted = f"{params.n} Completion, each with a log-probability for every token"
        groups, drawn = original(prompts, params, keys), 0
        while pair := ask(what, sampler, lambda: next(groups, None)):
            yield pair[0], ask(what, sampler, lambda pair=pair: pair[1], right, wanted)
            drawn += 1
        if drawn != len(prompts):
            raise SettingsError(f"{what} returned responses to {drawn} prompts, not to {len(prompts)}")

    sampler.stream = stream  # type: ignore[method-assign]
    return sampler


SAMPLERS: Registry[Callable[..., Sampler]] = Registry("sampler engine")
register_sampler = SAMPLERS.register
"""Decorator: make a sampler available as `sampler.engine`. `dph.build.make_sampler` calls the decorated factory as
factory(policy, config, model=…, longest=…, training=…)."""
