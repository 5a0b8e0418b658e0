"""Sampling and judging: from problems to groups of rollouts. Every stage that generates uses this one path."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from dph.errors import UserError
from dph.models.policy import Policy
from dph.progress import say
from dph.samplers.protocol import Sampler
from dph.seeding import derive_key
from dph.types import Group, Problem, Rollout, SamplingParams, Verdict
from dph.verifiers import Verifiers


class _Verifies(Protocol):
    def verify(self, items: Sequence[tuple[Problem, str]]) -> list[Verdict]: ...


@dataclass(frozen=True, slots=True)
class Prompted:
    """A problem with its prompt as token ids."""

    problem: Problem
    prompt_ids: Sequence[int]
    draw: int = 0
    """Tells several draws for one problem apart: position in the endless order of training."""


def encode_problems(
    policy: Policy, problems: Sequence[Problem], max_prompt_tokens: int, max_tokens: int
) -> list[Prompted]:
    """Tokenise prompts; problems whose prompt is too long are left out and counted.

    Raises UserError when nothing is left, and when a response of max_tokens could not fit into the model's context.
    """
    room = policy.context_length - max_tokens
    if room < 1:
        raise UserError(
            f"rollout.max_tokens {max_tokens} leaves no room for a prompt in the model's context of "
            f"{policy.context_length} tokens; lower it"
        )
    limit = min(max_prompt_tokens, room)
    encoded = [Prompted(problem, policy.encode_prompt(problem.prompt)) for problem in problems]
    fitting = [item for item in encoded if 0 < len(item.prompt_ids) <= limit]
    if len(fitting) < len(encoded):
        gone = len(encoded) - len(fitting)
        say(f"{gone} of {len(encoded)} problems are left out: prompt empty or over {limit} tokens")
    if not fitting:
        raise UserError(f"no problem has a prompt of at most {limit} tokens; raise rollout.max_prompt_tokens")
    return fitting


def usable_problems(verifiers: Verifiers, problems: Sequence[Problem]) -> list[Problem]:
    """Problems whose gold answer can be judged against; the others are left out and reported once."""
    broken = verifiers.check(problems)
    for problem_id, reason in list(broken.items())[:5]:
        say(f"problem {problem_id} is left out: {reason}")
    if len(broken) > 5:
        say(f"… and {len(broken) - 5} further problems are left out")
    kept = [problem for problem in problems if problem.id not in broken]
    if not kept:
        raise UserError(f"no problem is left: none of the {len(problems)} gold answers can be judged against")
    return kept


def sample_groups(
    policy: Policy,
    sampler: Sampler,
    verifiers: _Verifies,
    items: Sequence[Prompted],
    params: SamplingParams,
    seed: int,
    *purpose: str | int,
) -> list[Group]:
    """Draw `params.n` responses for each problem and judge them.

    The randomness of a response is keyed by (seed, purpose, draw, problem id, sample index) and by nothing else.
    """
    keys = [derive_key(seed, *purpose, item.draw, item.problem.id) for item in items]
    drawn = sampler.sample([item.prompt_ids for item in items], params, keys)
    texts = [[policy.decode(completion.token_ids) for completion in group] for group in drawn]
    pairs = [(item.problem, text) for item, group in zip(items, texts, strict=True) for text in group]
    verdicts = iter(verifiers.verify(pairs))
    return [
        Group(
            item.problem,
            item.prompt_ids,
            [Rollout(c, text, next(verdicts)) for c, text in zip(completions, group_texts, strict=True)],
        )
        for item, completions, group_texts in zip(items, drawn, texts, strict=True)
    ]


def greedy(params: SamplingParams) -> SamplingParams:
    """The same limits, one response, decoded greedily."""
    return replace(params, n=1, temperature=0.0, top_p=1.0)
