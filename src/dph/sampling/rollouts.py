"""Sampling and judging: from problems to groups of rollouts. Every stage that samples uses this code."""

import base64
from array import array
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from dph.config import SamplingConfig, TrainingSamplerConfig
from dph.config.sampling import SamplingParams
from dph.errors import DataError, JudgeError, counted
from dph.models.chat import own_variables, unused_variables
from dph.models.fitting import fitting_rows
from dph.models.policy import Policy
from dph.process.distributed import World
from dph.process.progress import doing, say
from dph.runs.chunks import Chunks
from dph.runs.directory import RunDir
from dph.sampling.protocol import Sampler
from dph.sampling.seeding import derive_key
from dph.sampling.turns import Conversations, Response, check_tool
from dph.types import TEMPLATE_COLUMN, Completion, Group, Outcome, Problem, Rollout, Verdict
from dph.verifiers import Verifiers
from dph.verifiers.golds import WEAK, tried_golds

S = TypeVar("S", bound=TrainingSamplerConfig)


@dataclass(frozen=True, slots=True)
class Prompted:
    """A problem and the token ids of its prompt."""

    problem: Problem
    prompt_ids: Sequence[int]
    draw: int = 0
    """Distinguishes repeated draws for one problem: its position in training's endless order of problems."""


def encode_problems(
    policy: Policy, problems: Sequence[Problem], params: SamplingParams, max_prompt_tokens: int
) -> list[Prompted]:
    """Tokenise the prompts. Problems whose prompt is empty or too long are left out, and their number is reported.

    Raises UserError if no problem is left, if responses leave no room for a prompt in the model's context, or if a tool
    is asked for that no problem has.
    """
    check_tool(policy, problems, params)
    limit = longest_prompt(policy.context_length, max_prompt_tokens, params)
    encoded = [Prompted(problem, policy.encode_problem(problem)) for problem in problems]
    say_unused_variables(policy.tokenizer, problems)
    fitting = [item for item in encoded if 0 < len(item.prompt_ids) <= limit]
    if len(fitting) < len(encoded):
        gone = len(encoded) - len(fitting)
        say(f"left out: {gone} of {counted(len(encoded), 'problem')}, whose prompt is empty or over {limit} tokens")
    if not fitting:
        raise DataError(f"no problem has a prompt of at most {limit} tokens; raise rollout.max_prompt_tokens")
    return fitting


def say_unused_variables(tokenizer: Any, problems: Sequence[Problem]) -> None:
    """Say which variables of problems' own columns the chat template does not have, so that they change nothing."""
    unused = [name for problem in problems for name in unused_variables(tokenizer, own_variables(problem))]
    if unused:
        names, of = ", ".join(dict.fromkeys(unused)), "the tokenizer's chat template does not use"
        say(f"without effect: the column {TEMPLATE_COLUMN} sets variables that {of}: {names}")


def longest_prompt(context: int, max_prompt_tokens: int, params: SamplingParams) -> int:
    """Tokens of the longest prompt that is used. Raises UserError if responses leave no room in the context."""
    if context <= params.most_tokens:
        results = params.turns - 1
        more = f" with {counted(results, 'result')} of up to {params.tool_tokens} tokens" if results else ""
        raise DataError(
            f"rollout.max_tokens {params.max_tokens}{more} leaves no room for a prompt in the model's context of "
            f"{context} tokens; lower it"
        )
    return min(max_prompt_tokens, context - params.most_tokens)


def usable_problems(verifiers: Verifiers, problems: Sequence[Problem], *, training: bool = True) -> list[Problem]:
    """Problems whose gold answer can be judged against. The others are left out and reported once.

    Problems with a doubtful gold answer (see `Verifiers.flags`) are kept and reported, unless they are to be skipped,
    or their gold's result is another one each time and they are for training.

    Raises UserError if no problem is left.
    """
    skip = tuple(WEAK) if verifiers.skip_weak else ("changes",) if training else ()
    kept, lines = tried_golds(verifiers, problems, skip=skip)
    for line in lines:
        say(line)
    if not kept:
        raise JudgeError(f"no problem is left: none has a gold answer that can be judged against; {lines[0]}")
    return kept


def still_usable(chunks: Chunks, verifiers: Verifiers, problems: Sequence[Problem], *, training: bool) -> list[Problem]:
    """As `usable_problems`; a resumed run keeps the problems that it began with and asks nothing again, because a gold
    query that takes about as long as it may can fail the next time."""

    def ids() -> list[str]:
        return [problem.id for problem in usable_problems(verifiers, problems, training=training)]

    usable = set(chunks.once("usable", ids))
    return [problem for problem in problems if problem.id in usable]


def settled_rows(
    config: S,
    policy: Policy,
    items: Sequence[Prompted],
    rollout: SamplingConfig,
    run: RunDir,
    world: World,
    step: int = 0,
) -> S:
    """A sampler's settings with a number of rows: the one asked for, or one that fits (see `fitting_rows`), which the
    run keeps, since a batch's rounding depends on its rows."""
    if config.rows:
        return config

    def choose() -> int:
        longest = max(len(item.prompt_ids) for item in items) + rollout.most_tokens - rollout.max_tokens
        rows = fitting_rows(policy, longest, rollout.max_tokens, step=step)
        say(f"up to {rows} responses are decoded at once")
        return rows

    return replace(config, rows=world.decided(lambda: run.kept("sampler_rows", choose)))


def sample_groups(
    policy: Policy,
    sampler: Sampler,
    verifiers: Verifiers,
    items: Sequence[Prompted],
    params: SamplingParams,
    seed: int,
    *purpose: str | int,
) -> list[Group]:
    """Draw `params.n` responses for each problem and judge them.

    The randomness of a response depends only on (seed, purpose, draw, problem id, sample index). A thread judges
    complete groups while others are still being generated.

    Returns the groups in the order of `items`.
    """
    keys = [derive_key(seed, *purpose, item.draw, item.problem.id) for item in items]
    conversations = Conversations(policy, sampler, verifiers.tool if params.turns > 1 else None, params)
    drawn: dict[int, list[Response]] = {}
    verdicts: dict[int, list[Verdict]] = {}
    waiting: deque[int] = deque()

    def judge_waiting() -> None:
        """Judge the responses that arrived while the thread was busy, together."""
        taken = [waiting.popleft() for _ in range(len(waiting))]
        pairs = [(items[i].problem, _judged(verifiers, items[i].problem, one)) for i in taken for one in drawn[i]]
        judged = iter(verifiers.verify(pairs) if pairs else [])
        verdicts.update({index: [next(judged) for _ in drawn[index]] for index in taken})

    thread, judging = ThreadPoolExecutor(1, "dph-judging"), []
    try:
        problems, prompts = [item.problem for item in items], [item.prompt_ids for item in items]
        for index, responses in conversations.stream(problems, prompts, keys):
            drawn[index] = responses
            waiting.append(index)
            judging.append(thread.submit(judge_waiting))
            doing(f"sampled {len(drawn)} of {counted(len(items), 'prompt')}")
        for judged in judging:
            judged.result()
    finally:
        thread.shutdown(cancel_futures=True)
    return [
        Group(
            item.problem,
            item.prompt_ids,
            [
                Rollout(one.completion, one.text, verdict, one.transcript)
                for one, verdict in zip(drawn[index], verdicts[index], strict=True)
            ],
        )
        for index, item in enumerate(items)
    ]


def _judged(verifiers: Verifiers, problem: Problem, response: Response) -> str:
    """The text of a response that is judged."""
    return response.judged(pays_for_calls=response.paid_call and verifiers.pays_for_calls(problem))


def rollouts_as_json(group: Group) -> list[list[Any]]:
    """The rollouts of a group as JSON. Token ids and log-probabilities are packed, because there are many; the latter
    are rounded to fp32, in which samplers compute them."""
    return [
        [
            _packed("i", rollout.completion.token_ids),
            _packed("f", rollout.completion.logprobs),
            rollout.completion.finish_reason,
            rollout.text,
            rollout.verdict.outcome,
            float(rollout.verdict.reward),
            rollout.verdict.detail,
            *_tool_part(rollout),
        ]
        for rollout in group.rollouts
    ]


def group_from_json(item: Prompted, rollouts: Sequence[Sequence[Any]]) -> Group:
    """The group of a problem from `rollouts_as_json`; its numbers stay in arrays, which are smaller than lists."""
    return Group(
        item.problem,
        item.prompt_ids,
        [
            Rollout(
                Completion(_unpacked("i", ids), _unpacked("f", logprobs), reason, *_written(tool)),
                text,
                Verdict(Outcome(outcome), reward, detail),
                *tool[2:],
            )
            for ids, logprobs, reason, text, outcome, reward, detail, *tool in rollouts
        ],
    )


def _tool_part(rollout: Rollout) -> list[Any]:
    """What the JSON of a response that called a tool has besides: its mask, failed calls and transcript."""
    completion = rollout.completion
    if completion.written is None:
        return []
    return [_packed("b", completion.written), completion.failed_calls, rollout.transcript]


def _written(tool: Sequence[Any]) -> tuple[list[bool] | None, int]:
    """The mask and the number of failed calls in what `_tool_part` returned."""
    return ([bool(mark) for mark in _unpacked("b", tool[0])], tool[1]) if tool else (None, 0)


def _packed(typecode: str, numbers: Sequence[float]) -> str:
    return base64.b64encode(array(typecode, numbers).tobytes()).decode()


def _unpacked(typecode: str, text: str) -> "array[Any]":
    return array(typecode, base64.b64decode(text))


def unjudged_fault(lost: int, of: int, reasons: Sequence[str], most: float) -> str:
    """Why sampling must stop, as too many responses could not be judged; "" if their share is at most `most`."""
    if lost <= most * of:
        return ""
    why = "; ".join(reasons) or "see the messages above"
    return (
        f"{lost} of {counted(of, 'response')} could not be judged ({why}); check the "
        "reward function or the verifier's processes, then continue with --resume, or raise --max-unjudged"
    )


def refuse_unjudged(groups: Sequence[Group], most: float) -> None:
    """Raises JudgeError if the judging itself failed for more than this share of the responses."""
    verdicts = [rollout.verdict for group in groups for rollout in group.rollouts]
    lost = [verdict.detail for verdict in verdicts if verdict.outcome is Outcome.INFRA_ERROR]
    if fault := unjudged_fault(len(lost), len(verdicts), sorted(set(lost))[:2], most):
        raise JudgeError(fault)
