"""From the problems of a split to judged responses."""

from collections.abc import Sequence
from dataclasses import dataclass

from dph.config.sampling import SamplingParams
from dph.models.policy import Policy
from dph.sampling.protocol import Sampler
from dph.sampling.rollouts import Prompted, encode_problems, sample_groups
from dph.types import Group, Problem
from dph.verifiers import Verifiers

_SAMPLES_AT_ONCE = 1024
_PROBLEMS_AT_ONCE = 16


def problems_at_once(n: int) -> int:
    """Problems of a batch, with n samples each: 1024 samples, but never fewer than 16 problems."""
    return max(_PROBLEMS_AT_ONCE, _SAMPLES_AT_ONCE // n)


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
    purpose: str = "eval"
    """Of the samples, for their random keys."""

    def responses(self, problems: Sequence[Problem]) -> list[tuple[Group, Group | None]]:
        """Judged samples of every problem, in order, each with its greedy response if one is wanted."""
        items = encode_problems(self.policy, problems, self.params, self.max_prompt_tokens)
        answered: list[tuple[Group, Group | None]] = []
        at_once = problems_at_once(self.params.n)
        for start in range(0, len(items), at_once):
            batch = items[start : start + at_once]
            sampled = self.sampled(batch)
            best = self.decoded(batch) if self.with_greedy else [None] * len(batch)
            answered += zip(sampled, best, strict=True)
        return answered

    def sampled(self, items: Sequence[Prompted]) -> list[Group]:
        """Judged samples of one batch."""
        return sample_groups(self.policy, self.sampler, self.verifiers, items, self.params, self.seed, self.purpose)

    def decoded(self, items: Sequence[Prompted]) -> list[Group]:
        """Judged greedy responses of one batch."""
        params = self.params.greedy()
        return sample_groups(self.policy, self.sampler, self.verifiers, items, params, self.seed, "greedy")
