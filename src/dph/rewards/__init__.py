"""The verifiers as plain reward functions, for the trainers of others (docs/guides/rewards.md).

judge = reward_function("math")
judge(completions=[r"\\boxed{4}"], answer=["4"])      # [1.0]; None if the judging itself failed
await judge.ascore(r"\\boxed{4}", "4")                # 1.0

They judge in killable worker processes, for callers with threads, event loops and forks. Reward functions with equal
options share one verifier, and so one pool of workers, in each process. A forked process makes its own. Pending calls
of `ascore` and `averdict` wait in one queue: they hold neither threads nor processes.
"""

import asyncio
import hashlib
import json
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from dph.columns import OF_VERIFIERS, ignored, is_empty, is_named
from dph.errors import DataError, SettingsError, UserError
from dph.process.progress import warn
from dph.registry import check_option, settings_of
from dph.rewards.unjudged import UnjudgedWatch, refuse_unjudgeable
from dph.types import Outcome, Problem, Verdict
from dph.verifiers.exact import plain
from dph.verifiers.function_worker import split_reference
from dph.verifiers.protocol import VERIFIERS, Verifier

__all__ = ["RewardFunction", "reward_function"]

_WORKERS = 2
_NOT_META = {"prompts", "completions", "completion_ids"}  # columns that TRL adds
_WHO = "the verifier %s does not read them"
_RESPONDING = {None, "assistant"}  # roles
_TEXTS = {"text", "input_text", "output_text"}  # types of the parts of a message

_Item = tuple[Problem, str]


class RewardFunction:
    """Rewards of responses: 1 for a correct one and 0 for a wrong one, or what the verifier's own scheme gives.

    A reward is None if the judging itself failed, or if the gold answer cannot be used: such a response must
    leave its group. A response that exceeds its time or memory is wrong. Objects can be pickled, and be used by any
    number of threads and event loops.

    >>> judge = RewardFunction("exact")
    >>> judge(completions=["It is\\n4", "It is\\n5"], answer=["4", "4"])
    [1.0, 0.0]
    >>> judge.score("4", ["4", "four"])
    1.0
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
        if not isinstance(answer_column, str):
            raise SettingsError(f"answer_column must be a column's name, not {answer_column!r:.60}")
        self._text = with_calls if options.get("reward") == "paper" else text_of
        self._watch = UnjudgedWatch()
        content = ""
        if kind == "function" and isinstance(file := options.get("function"), str):
            path, name = split_reference(file)
            options["function"] = f"{path}:{name}"  # whatever the working directory is later
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        self._key = f"{kind} {content} {json.dumps(options, sort_keys=True, default=id)}"
        self._shared()

    def __reduce__(self) -> Any:
        """A copy, also in another process, has its own key."""
        return partial(RewardFunction, self._kind, answer_column=self._answers, **self._options), ()

    def __call__(self, completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """The rewards of a batch, as TRL asks for them.

        Args:
            completions: texts, or conversations whose last message is the response (see `text_of`).
            columns: lists with one entry per completion: the gold answers, and what else the verifier needs, such as
                `db` for SQL. Other columns are ignored, and logged once.

        Raises UserError for completions, gold answers or prompts of another form or number, and after batches of which
        nothing could be judged (see `dph.rewards.unjudged`).
        """
        items, verdicts = self._verdicts(completions, columns)
        self._watch.note(_with_gold(items, verdicts))
        return [_reward(verdict) for verdict in verdicts]

    def check_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Raises UserError if rows of a data set, of which there is at least one, lack what the verifier needs, or none
        of them can be judged: then a trainer that would begin with them learns nothing."""
        columns = {name: [row.get(name) for row in rows] for name in rows[0]}
        columns["prompts"] = columns.pop("prompt", [""] * len(rows))
        if self._kind == "function":  # code of the user's, which may not expect an empty response
            self._items([""] * len(rows), columns)
        else:
            refuse_unjudgeable(_with_gold(*self._verdicts([""] * len(rows), columns)))

    def _items(self, completions: Sequence[Any], columns: dict[str, Any]) -> tuple[list[_Item], set[str]]:
        """The problems and texts of a batch, and the names of the columns that have no entry for each completion."""
        if self._answers not in columns:
            raise UserError(
                f"the reward function needs a column {self._answers!r} with the gold answers; the data set has: "
                f"{', '.join(columns)} (answer_column= names another)"
            )
        completions = _listed("completions", completions)
        count = len(completions)
        answers = _listed(self._answers, columns.pop(self._answers), count)
        prompts = columns.pop("prompts", None)
        prompts = [""] * count if prompts is None else _listed("prompts", prompts, count)
        used = {name: list(values) for name, values in columns.items() if _is_list(values) and name not in _NOT_META}
        used = {name: values for name, values in used.items() if len(values) == count}
        asked = {QUESTION} if not any(prompts) and self._kind != "function" else set()
        self._say_what_is_ignored({name: columns[name] for name in columns if name not in asked}, used)
        items = []
        for row, (completion, answer, prompt) in enumerate(zip(completions, answers, prompts, strict=True)):
            try:
                meta = {name: values[row] for name, values in used.items()}
                items.append(_item(self._text(completion), answer, meta, prompt, f"row {row + 1}"))
            except DataError as error:
                raise DataError(f"row {row + 1} of the batch: {error}") from error
        return items, columns.keys() - used.keys()

    def _verdicts(self, completions: Sequence[Any], columns: dict[str, Any]) -> tuple[list[_Item], list[Verdict]]:
        items, left_out = self._items(completions, columns)
        try:
            return items, self._judge(items)
        except UserError as error:
            if left := [name for name in left_out if repr(name) in str(error)]:
                raise DataError(f"{error}; {left[0]!r} is not a list with one entry for each completion") from error
            raise

    def score(self, response: str, answer: Any, prompt: Any = "", **meta: Any) -> float | None:
        """The reward of one response. prompt: text or messages; with it (or with `question`, where there is no prompt),
        an answer copied from the question, or in a unit or a form that the question excludes, is wrong. meta: what else
        a verifier needs, as db="path" for SQL."""
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

    def _say_what_is_ignored(self, columns: Mapping[str, Any], used: Mapping[str, Any]) -> None:
        """Log, once, the columns of a data set that the verifier does not read. A trainer's own are none."""
        reads, known = OF_VERIFIERS.get(self._kind), self._shared().ignored
        unread = [
            name
            for name, values in columns.items()
            if (name not in used or (reads is not None and name not in (*reads, "id")))
            and name not in known
            and not is_named(name, "trainer")
            and not (_is_list(values) and all(map(is_empty, values)))
        ]
        known.update(unread)
        if line := ignored(unread, _WHO % self._kind):
            warn(line)

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
                reason = f"{self._kind}: {verdict.outcome}: {verdict.detail}"
                warn(f"a response was not judged and has no reward ({reason}); not repeated")
        return verdicts


reward_function = RewardFunction


class _Shared:
    """The verifier and threads that reward functions with equal options share in one process."""

    def __init__(self, kind: str, options: Mapping[str, Any]) -> None:
        make = VERIFIERS[kind]
        names = settings_of(make)
        if unknown := sorted(set(options) - set(names)):
            raise UserError(f"the verifier {kind!r} has no option {unknown[0]!r}; it has: {', '.join(names) or 'none'}")
        for name, value in options.items():
            check_option(value, names[name].annotation, f"option {name} of the verifier {kind!r}")
        self.options = options  # kept, because a key may hold the identity of one
        defaults = {"workers": _WORKERS} if "workers" in names else {}
        self.verifier: Verifier = make(**{**defaults, **options})
        workers = options.get("workers", _WORKERS)
        self.threads = ThreadPoolExecutor(workers, thread_name_prefix="dph-reward")
        self.reported: set[Outcome] = set()
        """Kinds of failure whose first one was reported."""
        self.ignored: set[str] = set()
        """Columns that were named as ignored."""


QUESTION = "question"
"""What else may hold the question where no prompt is given: the name that most data sets of mathematics use."""


def _item(response: str, answer: Any, meta: Mapping[str, Any], prompt: Any = "", place: str = "") -> _Item:
    if not isinstance(prompt, str):
        turns = [] if prompt is None else _messages(prompt)
        prompt = tuple({**turn, "content": text} for turn, text in zip(turns, map(_content, turns), strict=True))
    meta = {name: plain(value) for name, value in meta.items()}
    if not prompt and isinstance(question := meta.get(QUESTION), str):
        prompt = question
    return Problem(str(meta.get("id", place)), prompt, plain(answer), "", meta), response


def _is_list(values: Any) -> bool:
    """Whether values are one after the other: no text, no table, no array of no dimension."""
    several = hasattr(values, "__len__") and hasattr(values, "__iter__") and getattr(values, "shape", None) != ()
    return several and not isinstance(values, str | bytes | Mapping) and not hasattr(values, "columns")


def _listed(name: str, values: Any, count: int | None = None) -> list[Any]:
    """The values of a column, of which there must be `count`."""
    if not _is_list(values):
        raise DataError(f"{name!r} must be a list with one entry for each completion, not {values!r:.60}")
    values = list(values)
    if count is not None and len(values) != count:
        raise DataError(f"the column {name!r} has {len(values)} entries, but there are {count} completions")
    return values


def text_of(completion: Any) -> str:
    """The text of a completion as trainers give it: a text, a message, or a conversation, in which the response is the
    model's last message. It is empty if that message only calls tools. Raises UserError for what is none of these.

    >>> text_of([{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}])
    '2'
    """
    if isinstance(completion, str):
        return completion
    messages = _messages(completion)
    own = (one for one in reversed(messages) if not isinstance(one, Mapping) or one.get("role") in _RESPONDING)
    return _content(next(own, {}))


def with_calls(completion: Any) -> str:
    """The text of a completion after its tool calls, for the scheme `paper`, which pays for a call of a SQL tool."""
    called = [_messages(one.get("tool_calls")) for one in _messages(completion) if isinstance(one, Mapping)]
    calls = [call.get("function", call) for some in called for call in some if isinstance(call, Mapping)]
    said = "".join(f"<tool_call>{json.dumps(_with_arguments(call), default=str)}</tool_call>\n" for call in calls)
    return said + text_of(completion)


def _with_arguments(call: Any) -> Any:
    """A call whose arguments are an object, also if they come as its JSON text, as OpenAI's do."""
    arguments = call.get("arguments") if isinstance(call, Mapping) else None
    try:
        return {**call, "arguments": json.loads(arguments)} if isinstance(arguments, str) else call
    except (ValueError, RecursionError):
        return call


def _messages(value: Any) -> list[Any]:
    """The messages of a conversation, also of an array, as Parquet files give them; one that is not a list alone."""
    return [*value] if isinstance(value, list | tuple) or getattr(value, "shape", ()) else [value]


def _content(message: Any) -> str:
    """The text of a message, its text parts joined."""
    content = message.get("content") or "" if isinstance(message, Mapping) else None
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        raise DataError(f"a text or a list of messages with 'role' and 'content' is needed, not {message!r:.60}")
    parts = [part if isinstance(part, Mapping) else {"text": part} for part in content]
    return "".join(str(part.get("text") or "") for part in parts if part.get("type", "text") in _TEXTS)


def _with_gold(items: Sequence[_Item], verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts of rows with a gold answer: in a data set of several tasks, the others are another function's."""
    return [verdict for (problem, _), verdict in zip(items, verdicts, strict=True) if problem.answer is not None]


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
