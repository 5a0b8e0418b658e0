"""From the problems of a split to judged responses."""

from collections.abc import Sequence
from dataclasses import dataclass

from dph.models.policy import Policy
from dph.process.progress import progress
from dph.sampling.protocol import Sampler
from dph.sampling.rollouts import Prompted, encode_problems, greedy, sample_groups
from dph.types import Group, Problem, SamplingParams
from dph.verifiers import Verifiers

_SAMPLES_AT_ONCE = 1024
_PROBLEMS_AT_ONCE = 16
"""A batch holds so many samples, but never fewer problems than this."""


@dataclass(frozen=True, slots=True)
class Evaluator:
    """How held-out problems are answered: by which policy, with which settings, judged by whom."""

    policy: Policy
    sampler: Sampler
    verifiers: Verifiers
    params: SamplingParams
    max_prompt_tokens: int
    seed: int
    with_greedy: bool = True
    """Whether each problem gets a greedy response too."""

    def responses(
        self, problems: Sequence[Problem], label: str, *, quiet: bool = False
    ) -> list[tuple[Group, Group | None]]:
        """Judged samples of every problem, in order, each with its greedy response where one is wanted.

        label: what the progress bar says; quiet hides it.
        """
        items = encode_problems(self.policy, problems, self.max_prompt_tokens, self.params.max_tokens)
        found: list[tuple[Group, Group | None]] = []
        at_once = max(_PROBLEMS_AT_ONCE, _SAMPLES_AT_ONCE // self.params.n)
        with progress(label, len(items), quiet=quiet) as shown:
            for start in range(0, len(items), at_once):
                part = items[start : start + at_once]
                sampled = self._sample(part, self.params, "eval")
                best = self._sample(part, greedy(self.params), "greedy") if self.with_greedy else [None] * len(part)
                found += zip(sampled, best, strict=True)
                shown.advance(len(part))
        return found

    def _sample(self, items: Sequence[Prompted], params: SamplingParams, purpose: str) -> list[Group]:
        return sample_groups(self.policy, self.sampler, self.verifiers, items, params, self.seed, purpose)
