"""The verifiers as plain reward functions, for the trainers of others (docs/guides/rewards.md).

judge = reward_function("math")
judge(completions=[r"\\boxed{4}"], answer=["4"])      # [1.0]; None if the judging itself failed
await judge.ascore(r"\\boxed{4}", "4")                # 1.0

They judge in killable worker processes, for callers with threads, event loops and forks. Reward functions with equal
options share one verifier, and so one pool of workers, in each process. A forked process makes its own. Pending calls
of `ascore` and `averdict` wait in one queue: they hold neither threads nor processes.
"""

import asyncio
import json
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dph.errors import DataError, UserError
from dph.registry import settings_of
from dph.types import Outcome, Problem, Verdict
from dph.verifiers.protocol import VERIFIERS, Verifier

__all__ = ["RewardFunction", "reward_function"]

_LOG = logging.getLogger("dph")
_WORKERS = 2
_NOT_META = {"prompts", "completions", "completion_ids"}  # columns that TRL adds
_RESPONDING = {None, "assistant"}  # roles
_TEXTS = {"text", "output_text"}  # types of the parts of a message

_Item = tuple[Problem, str]


class RewardFunction:
    """Rewards of responses: 1 for a correct one and 0 for a wrong one, or what the verifier's own scheme gives.

    A reward is None if the judging itself failed, or if the gold answer cannot be used: such a response must
    leave its group. A response that exceeds its time or memory is wrong. Objects can be pickled, and be used by any
    number of threads and event loops.
    """

    def __init__(self, kind: str, *, answer_column: str = "answer", **options: Any) -> None:
        """
        Args:
            kind: name of a verifier: "math", "sql", "exact", "function" (your own, as function="FILE.py:NAME"), or one
                that a plug-in registered.
            answer_column: the column of a batch that holds the gold answers.
            options: of the verifier, such as policy="typed", timeout=5.0 (seconds), workers=2 (the default).
        """
        self.__name__ = kind  # trainers log rewards under this name
        self._kind, self._options, self._answers = kind, options, answer_column
        self._text = with_calls if options.get("reward") == "paper" else text_of
        self._key = f"{kind} {json.dumps(self._options, sort_keys=True, default=repr)}"
        self._shared()

    def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """The rewards of a batch, as TRL asks for them.

        Args:
            completions: texts, or conversations whose last message is the response (see `text_of`).
            columns: lists with one entry per completion: the gold answers, and what else the verifier needs, such as
                `db` for SQL. Other values are ignored.

        Raises UserError for completions, gold answers or prompts of another form or number.
        """
        if self._answers not in columns:
            raise UserError(
                f"the reward function needs a column {self._answers!r} with the gold answers; the data set has: "
                f"{', '.join(columns)} (answer_column= names another)"
            )
        count = len(_listed("completions", completions))
        answers = _listed(self._answers, columns[self._answers], count)
        prompts = columns.get("prompts")
        prompts = [""] * count if prompts is None else _listed("prompts", prompts, count)
        used = {
            name: values
            for name, values in columns.items()
            if _is_list(values) and len(values) == count and name not in (*_NOT_META, self._answers)
        }
        rows = enumerate(zip(completions, answers, prompts, strict=True))
        items = [
            _item(self._text(completion), answer, {name: values[row] for name, values in used.items()}, prompt)
            for row, (completion, answer, prompt) in rows
        ]
        return [_reward(verdict) for verdict in self._judge(items)]

    def score(self, response: str, answer: Any, prompt: Any = "", **meta: Any) -> float | None:
        """The reward of one response. prompt: text or messages; with it, an answer copied from the question, or in a
        unit that the question excludes, is wrong. meta: what else the verifier needs, such as db="path" for SQL."""
        return _reward(self.verdict(response, answer, prompt, **meta))

    def verdict(self, response: str, answer: Any, prompt: Any = "", **meta: Any) -> Verdict:
        """The verdict on one response: outcome, reward and detail."""
        [verdict] = self._judge([_item(self._text(response), answer, meta, prompt)])
        return verdict

    async def ascore(self, response: str, answer: Any, prompt: Any = "", **meta: Any) -> float | None:
        """As `score`, without blocking the event loop."""
        return _reward(await self.averdict(response, answer, prompt, **meta))

    async def averdict(self, response: str, answer: Any, prompt: Any = "", **meta: Any) -> Verdict:
        """As `verdict`, without blocking the event loop."""
        pending = self._shared().threads.submit(self._judge, [_item(self._text(response), answer, meta, prompt)])
        [verdict] = await asyncio.wrap_future(pending)
        return verdict

    def workers(self) -> list[int]:
        """Process ids of the workers that judge, if the verifier has any."""
        workers = getattr(self._shared().verifier, "workers", None)
        return workers() if workers else []

    def close(self) -> None:
        """Stop the worker processes of all reward functions with these options; a further call starts them again."""
        self._shared().verifier.close()

    def _shared(self) -> "_Shared":
        with _lock:
            if self._key not in _made:
                _made[self._key] = _Shared(self._kind, self._options)
            return _made[self._key]

    def _judge(self, items: Sequence[_Item]) -> list[Verdict]:
        shared = self._shared()
        try:
            verdicts = shared.verifier.verify(items)
        except OSError as error:  # no memory or no descriptors left, for example
            verdicts = [Verdict(Outcome.INFRA_ERROR, 0.0, str(error))] * len(items)
        for verdict in verdicts:
            if not verdict.scored and verdict.outcome not in shared.reported:
                shared.reported.add(verdict.outcome)
                message = "a response was not judged and has no reward (%s: %s: %s); not repeated"
                _LOG.warning(message, self._kind, verdict.outcome, verdict.detail)
        return verdicts


reward_function = RewardFunction


class _Shared:
    """The verifier and threads that reward functions with equal options share in one process."""

    def __init__(self, kind: str, options: Mapping[str, Any]) -> None:
        make = VERIFIERS[kind]
        names = settings_of(make)
        if unknown := sorted(set(options) - set(names)):
            raise UserError(f"the verifier {kind!r} has no option {unknown[0]!r}; it has: {', '.join(names) or 'none'}")
        defaults = {"workers": _WORKERS} if "workers" in names else {}
        self.verifier: Verifier = make(**{**defaults, **options})
        workers = options.get("workers", _WORKERS)
        self.threads = ThreadPoolExecutor(workers, thread_name_prefix="dph-reward")
        self.reported: set[Outcome] = set()
        """Kinds of failure whose first one was reported."""


def _item(response: str, answer: Any, meta: Mapping[str, Any], prompt: Any = "") -> _Item:
    if not isinstance(prompt, str):
        turns = prompt if isinstance(prompt, list | tuple) else [] if prompt is None else [prompt]
        prompt = tuple({**turn, "content": text} for turn, text in zip(turns, map(_content, turns), strict=True))
    return Problem("", prompt, answer, "", meta), response


def _is_list(values: Any) -> bool:
    return hasattr(values, "__len__") and not isinstance(values, str | bytes | Mapping)


def _listed(name: str, values: Any, count: int | None = None) -> Any:
    """The values of a column, of which there must be `count`."""
    if not _is_list(values):
        raise DataError(f"{name!r} must be a list with one entry for each completion, not {values!r:.60}")
    if count is not None and len(values) != count:
        raise DataError(f"the column {name!r} has {len(values)} entries, but there are {count} completions")
    return values


def text_of(completion: Any) -> str:
    """The text of a completion as trainers give it: a text, a message, or a conversation, in which the response is the
    model's last message. It is empty if that message only calls tools. Raises UserError for what is none of these."""
    if isinstance(completion, str):
        return completion
    messages = completion if isinstance(completion, list | tuple) else [completion]
    own = (one for one in reversed(messages) if not isinstance(one, Mapping) or one.get("role") in _RESPONDING)
    return _content(next(own, {}))


def with_calls(completion: Any) -> str:
    """The text of a completion after its tool calls, for the scheme `paper`, which pays for a call of a SQL tool."""
    messages = completion if isinstance(completion, list | tuple) else [completion]
    calls = [call for one in messages if isinstance(one, Mapping) for call in one.get("tool_calls") or ()]
    said = "".join(f"<tool_call>{json.dumps(call.get('function', call))}</tool_call>\n" for call in calls)
    return said + text_of(completion)


def _content(message: Any) -> str:
    """The text of a message, its text parts joined."""
    content = message.get("content") or "" if isinstance(message, Mapping) else None
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        raise DataError(f"a text or a list of messages with 'role' and 'content' is needed, not {message!r:.60}")
    parts = [part if isinstance(part, Mapping) else {"text": part} for part in content]
    return "".join(str(part.get("text") or "") for part in parts if part.get("type", "text") in _TEXTS)


def _reward(verdict: Verdict) -> float | None:
    return verdict.reward if verdict.scored else None


_made: dict[str, _Shared] = {}
_lock = threading.Lock()
_of_parents: list[dict[str, _Shared]] = []


def _after_fork() -> None:
    """Start anew in a forked process: threads and workers belong to the parent, and its locks may be held."""
    global _made, _lock
    _of_parents.append(_made)  # kept, so that nothing of the parent is finalized here
    _made, _lock = {}, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
