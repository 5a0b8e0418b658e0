"""The plain data that every stage passes on: problems, completions, verdicts, rollouts and groups.

Everything here is frozen and JSON-able, and knows nothing of torch.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any, Literal, NotRequired, TypedDict, TypeVar

FinishReason = Literal["stop", "length"]
V = TypeVar("V")

TEMPLATE_COLUMN = "chat_template_kwargs"
"""Column of a row, and key of a problem's meta, with variables of the chat template for its prompt alone."""


class Message(TypedDict):
    """One turn of a chat, as tokenizers' chat templates take it."""

    role: str
    content: str
    name: NotRequired[str]


def as_messages(prompt: str | Sequence[Message]) -> list[Message]:
    """A prompt as a chat; plain text becomes one message of the user."""
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [*prompt]


def as_text(prompt: str | Sequence[Message]) -> str:
    """A prompt as plain text; the messages of a chat are separated by blank lines."""
    return prompt if isinstance(prompt, str) else "\n\n".join(message["content"] for message in prompt)


@dataclass(frozen=True, slots=True)
class Problem:
    """One verifiable problem."""

    id: str
    """Unique within its problem set, and stable: seeds of sampling are derived from it."""
    prompt: str | tuple[Message, ...]
    """Plain text, or a chat that goes through the tokenizer's chat template."""
    answer: Any
    """What the verifier compares with (gold SQL, a number, a list of accepted answers); JSON-able."""
    verifier: str
    """Name of the verifier that judges responses: "sql", "math", "exact", or one that a plug-in registered."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """What the verifier or a report needs besides: database path, question kind, difficulty; JSON-able."""


def problem_json(problem: Problem) -> str:
    """A problem without its prompt as text, for a column of another engine's data set that verifiers read."""
    facts = {"id": problem.id, "answer": problem.answer, "verifier": problem.verifier, "meta": dict(problem.meta)}
    return json.dumps(facts, ensure_ascii=False)


def read_problem(text: str) -> Problem:
    """The problem that `problem_json` wrote, with an empty prompt."""
    return Problem(prompt="", **json.loads(text))


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval."""

    estimate: float
    low: float
    high: float
    level: float


class Outcome(StrEnum):
    """How the judging of one response ended."""

    CORRECT = "correct"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"
    ERROR = "error"
    TIMEOUT = "timeout"
    INFRA_ERROR = "infra_error"
    GOLD_ERROR = "gold_error"


UNSCORED = frozenset({Outcome.INFRA_ERROR, Outcome.GOLD_ERROR})
"""Outcomes that say nothing about the response: such rows leave the group instead of counting as wrong."""


UNPARSED = "unparsed"
"""The detail of a verdict on an answer that the verifier could not read: it is wrong, and metrics count it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verifier's judgement of one response."""

    outcome: Outcome
    reward: float
    detail: str = ""

    @property
    def correct(self) -> bool:
        return self.outcome is Outcome.CORRECT

    @property
    def scored(self) -> bool:
        """False if the judging itself failed."""
        return self.outcome not in UNSCORED


def of_policy(values: Sequence[V], written: Sequence[bool] | None) -> Sequence[V]:
    """The values of the tokens that the policy wrote. values: one for each token of a response. written: whether the
    policy wrote each token; None if it wrote all.

    >>> of_policy([5, 6, 7], [True, False, True]), of_policy([5, 6, 7], None)
    ([5, 7], [5, 6, 7])
    """
    return values if written is None else [value for value, own in zip(values, written, strict=True) if own]


def on_all(values: Sequence[V], written: Sequence[bool] | None, otherwise: V) -> Sequence[V]:
    """The opposite of `of_policy`: a value for each token of a response, from the values of the tokens that the policy
    wrote. otherwise: the value of the tokens that a tool wrote.

    >>> on_all([5, 7], [True, False, True], 0)
    [5, 0, 7]
    """
    if written is None:
        return values
    own = iter(values)
    return [next(own) if mark else otherwise for mark in written]


@dataclass(frozen=True, slots=True)
class Completion:
    """One response: tokens, and which of them the policy wrote. It wrote all, unless it called a tool, whose results
    stand in the response too.

    >>> completion = Completion([5, 6, 7, 8, 9], [-0.1, 0.0, -0.2, 0.0, -0.3], "stop", [True, False, True, False, True])
    >>> completion.length, completion.calls, completion.own_logprobs
    (3, 2, [-0.1, -0.2, -0.3])
    """

    token_ids: Sequence[int]
    """The response's tokens; the closing EOS is included when it was generated."""
    logprobs: Sequence[float]
    """Log-probability of each token under the *untruncated* distribution at the sampling temperature
    (at temperature 1 for greedy decoding); same length as token_ids. 0 for a token that a tool wrote."""
    finish_reason: FinishReason
    written: Sequence[bool] | None = None
    """Whether the policy wrote each token; a tool wrote the others. None: the policy wrote all."""
    failed_calls: int = 0
    """How many calls of a tool failed."""

    @property
    def length(self) -> int:
        """The number of tokens that the policy wrote."""
        return len(self.token_ids) if self.written is None else sum(self.written)

    @property
    def own_logprobs(self) -> Sequence[float]:
        """The log-probabilities of the tokens that the policy wrote."""
        return of_policy(self.logprobs, self.written)

    @property
    def calls(self) -> int:
        """How often the policy called a tool: after each result it goes on writing."""
        marks = self.written or ()
        return sum(before and not mark for before, mark in pairwise(marks))


@dataclass(frozen=True, slots=True)
class Rollout:
    """A completion with its text and verdict."""

    completion: Completion
    text: str
    """What is judged: the text of the response or, if it called a tool, of what it says after the last result."""
    verdict: Verdict
    transcript: str = ""
    """The text of the whole response if it called a tool."""

    @property
    def reward(self) -> float:
        return self.verdict.reward


@dataclass(frozen=True, slots=True)
class Group:
    """All rollouts of one problem; advantages are relative to the group."""

    problem: Problem
    prompt_ids: Sequence[int]
    rollouts: Sequence[Rollout]

    @property
    def counts(self) -> tuple[int, int]:
        """How many responses are correct, and how many could be judged."""
        verdicts = [rollout.verdict for rollout in self.rollouts]
        return sum(verdict.correct for verdict in verdicts), sum(verdict.scored for verdict in verdicts)
