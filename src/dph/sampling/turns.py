"""Responses of several turns, in which a model queries the database of a problem before it answers.

A turn is drawn like a response. If it ends with a call of the tool, the result is appended and the next turn begins:

    policy │ I look it up: <tool_call>SELECT price FROM item</tool_call>
    tool   │ \n<tool_response>\nprice\n7\n(1 rows)\n</tool_response>\n
    policy │ The price is 7. <EOS>

Between the marks of a call stands a query, or JSON with the query as `arguments.sql`. The policy reads the tokens of a
result and did not write them: `Completion.written` tells them apart. In the last turn nothing is called. What is judged
is the text of the last turn that was drawn.

The random numbers of a turn depend on those of its response and on the number of the turn, and never on other
responses. While the queries of some responses run, the turns of others are drawn.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from dph.config.sampling import SamplingParams
from dph.errors import SettingsError, counted
from dph.models.policy import Policy
from dph.sampling.protocol import Sampler
from dph.sampling.seeding import derive_key
from dph.types import Completion, FinishReason, Problem
from dph.verifiers.sql.rewards import calls_with_sql
from dph.verifiers.sql.text import extract_sql
from dph.verifiers.sql.tool import SqlTool

OPENING, CLOSING = "<tool_call>", "</tool_call>"
_BEFORE, _AFTER, _CUT = "\n<tool_response>\n", "\n</tool_response>\n", " …"
_FAILED = "Error: "
_PAID = '<tool_call>{"arguments": {"sql": ""}}</tool_call>\n'
"""Stands before the text of the last turn, for a verifier that pays for a well-formed call: the call itself might hold
a query in a fence, and would then be judged."""


@dataclass(frozen=True, slots=True)
class Response:
    """A drawn response with its texts."""

    completion: Completion
    text: str
    """Of the last turn."""
    transcript: str = ""
    """Of all turns and results; "" for a single turn."""
    paid_call: bool = False
    """Whether the last call was JSON with a query."""

    def judged(self, *, pays_for_calls: bool) -> str:
        """The text that a verifier judges."""
        return _PAID + self.text if pays_for_calls and self.paid_call else self.text


@dataclass(slots=True)
class _Row:
    """A response while it is drawn."""

    index: int
    """The place of its prompt."""
    number: int
    """Its place among the responses to the prompt."""
    prompt: Sequence[int]
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    written: list[bool] = field(default_factory=list)
    own: int = 0
    """The number of tokens that the policy wrote."""
    failed: int = 0
    text: str = ""
    paid: bool = False
    reason: FinishReason = "stop"

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.tokens)

    def add(self, ids: Sequence[int], logprobs: Sequence[float], *, own: bool) -> None:
        self.tokens += ids
        self.logprobs += logprobs
        self.written += [own] * len(ids)
        self.own += len(ids) if own else 0


def query_of(turn: str) -> str | None:
    """The query in the call with which a turn ends; None if it holds none.

    >>> query_of("So: <tool_call>SELECT 1</tool_call>")
    'SELECT 1'
    >>> query_of('<tool_call>{"name": "query", "arguments": {"sql": "SELECT 2"}}</tool_call>')
    'SELECT 2'
    """
    before, closed, _ = turn.partition(CLOSING)
    _, opened, content = before.rpartition(OPENING)
    if not (closed and opened):
        return None
    content = content.strip()
    if not content.startswith("{"):
        return extract_sql(content) or content or None
    try:
        call = json.loads(content)
    except (ValueError, RecursionError):
        return None
    arguments = call.get("arguments")
    query = arguments.get("sql") if isinstance(arguments, dict) else None
    return query if isinstance(query, str) and query.strip() else None


def check_tool(policy: Policy, problems: Sequence[Problem], params: SamplingParams) -> None:
    """Raises SettingsError if several turns are asked for, and no problem has a database or a result has no room."""
    if params.turns == 1:
        return
    if not any(problem.meta.get("db") for problem in problems):
        raise SettingsError(
            f"rollout.turns is {params.turns}, but none of {counted(len(problems), 'problem')} has a database that a "
            "model could query; set rollout.turns to 1"
        )
    marks = _Results(policy, params.tool_tokens).marks
    if marks >= params.tool_tokens:
        raise SettingsError(
            f"rollout.tool_tokens is {params.tool_tokens}, but the marks around a result take {marks} tokens; raise it"
        )


class _Results:
    """Results of queries as tokens, each at most `most`."""

    def __init__(self, policy: Policy, most: int) -> None:
        self._policy = policy
        self._before, self._after, self._cut = (self._encoded(text) for text in (_BEFORE, _AFTER, _CUT + _AFTER))
        self.marks = len(self._before) + len(self._cut)
        """The number of tokens around a result that was cut."""
        self._most = most

    def ids(self, result: str) -> list[int]:
        """The tokens of a result with its marks. A long result is cut."""
        body = self._encoded(result)
        if len(self._before) + len(body) + len(self._after) > self._most:
            return [*self._before, *body[: self._most - self.marks], *self._cut]
        return [*self._before, *body, *self._after]

    def _encoded(self, text: str) -> list[int]:
        return self._policy.encode_foreign(text.encode(errors="replace").decode())


class Conversations:
    """Draws responses of one or several turns to prompts."""

    def __init__(self, policy: Policy, sampler: Sampler, tool: SqlTool | None, params: SamplingParams) -> None:
        """tool: runs the queries; needed for several turns."""
        self._policy, self._sampler, self._tool, self._params = policy, sampler, tool, params
        self._drawn = replace(params, turns=1)  # as samplers know it

    def stream(
        self, problems: Sequence[Problem], prompts: Sequence[Sequence[int]], keys: Sequence[int]
    ) -> Iterator[tuple[int, list[Response]]]:
        """Yield (index of the prompt, its responses) as soon as they are complete (see `Sampler.stream`)."""
        if self._tool is None or self._params.turns == 1:
            for index, completions in self._sampler.stream(prompts, self._drawn, keys):
                yield index, [Response(one, self._policy.decode(one.token_ids)) for one in completions]
            return
        numbers = range(self._params.n)
        rows = {index: [_Row(index, i, prompt) for i in numbers] for index, prompt in enumerate(prompts)}
        left = dict.fromkeys(rows, self._params.n)
        results = _Results(self._policy, self._params.tool_tokens)
        with ThreadPoolExecutor(4, "dph-tool") as thread:
            asked: dict[tuple[str, str], Future[str]] = {}
            waiting: list[tuple[_Row, Future[str] | None]] = []
            try:
                for turn in range(1, self._params.turns + 1):
                    called, waiting = [row for row, _ in waiting], []
                    for row, completion in self._turn(turn, rows, called, keys):
                        if self._takes(row, completion, turn):
                            waiting.append((row, self._asked(row, problems[row.index], asked, thread)))
                            continue
                        left[row.index] -= 1
                        if not left[row.index]:
                            yield row.index, [self._finished(row) for row in rows[row.index]]
                    for row, future in waiting:
                        self._read(row, _NO_QUERY if future is None else future.result(), results)
            finally:
                thread.shutdown(wait=False, cancel_futures=True)

    def _turn(
        self, turn: int, rows: Mapping[int, list[_Row]], called: Sequence[_Row], keys: Sequence[int]
    ) -> Iterator[tuple[_Row, Completion]]:
        """Draw a turn of the responses that are not complete: of all in the first, later of those that called."""
        stop = self._drawn.stop if turn == self._params.turns else (*self._drawn.stop, CLOSING)
        if turn == 1:
            prompts = [of_prompt[0].prompt for of_prompt in rows.values()]
            for index, completions in self._sampler.stream(prompts, replace(self._drawn, stop=stop), keys):
                yield from zip(rows[index], completions, strict=True)
            return
        for part in self._parts(called):
            params = replace(self._drawn, n=1, max_tokens=max(map(self._room, part)), stop=stop)
            own_keys = [derive_key(keys[row.index], row.number, "turn", turn) for row in part]
            prompts = [[*row.prompt, *row.tokens] for row in part]
            for place, [completion] in self._sampler.stream(prompts, params, own_keys):
                yield part[place], completion

    def _room(self, row: _Row) -> int:
        """The number of tokens that the policy may still write."""
        return self._params.max_tokens - row.own

    def _parts(self, rows: Sequence[_Row]) -> list[list[_Row]]:
        """Rows that are drawn in one call of the sampler, which has one limit for all of them: the context must hold
        the longest row with the largest limit."""
        parts: list[list[_Row]] = []
        limit = 0
        for row in sorted(rows, key=lambda row: (row.length, row.index, row.number)):
            limit = max(limit, self._room(row))
            if parts and row.length + limit <= self._policy.context_length:
                parts[-1].append(row)
            else:
                parts.append([row])
                limit = self._room(row)
        return parts

    def _takes(self, row: _Row, completion: Completion, turn: int) -> bool:
        """Append a turn to its response. Returns whether it ends with a call, after which the response goes on."""
        room = self._room(row)
        ids, logprobs = list(completion.token_ids[:room]), list(completion.logprobs[:room])
        row.reason = "length" if len(completion.token_ids) > room else completion.finish_reason
        row.add(ids, logprobs, own=True)
        row.text = self._policy.decode(ids)
        if turn == self._params.turns or row.reason != "stop" or CLOSING not in row.text:
            return False
        if len(ids) == room:
            row.reason = "length"
        return len(ids) < room

    def _asked(
        self, row: _Row, problem: Problem, asked: dict[tuple[str, str], Future[str]], thread: ThreadPoolExecutor
    ) -> Future[str] | None:
        """The result of the query with which a response ends its turn; None without one. Equal queries run once."""
        row.paid = calls_with_sql(row.text)
        query, database = query_of(row.text), str(problem.meta.get("db") or "")
        if query is None:
            return None
        if (database, query) not in asked:
            asked[database, query] = thread.submit(self._answer, database, query)
        return asked[database, query]

    def _answer(self, database: str, query: str) -> str:
        assert self._tool is not None
        return self._tool.query(database, query) if database else f"{_FAILED}this problem has no database"

    @staticmethod
    def _read(row: _Row, result: str, results: _Results) -> None:
        ids = results.ids(result)
        row.failed += result.startswith(_FAILED)
        row.add(ids, [0.0] * len(ids), own=False)

    def _finished(self, row: _Row) -> Response:
        called = not all(row.written)
        completion = Completion(row.tokens, row.logprobs, row.reason, row.written if called else None, row.failed)
        return Response(completion, row.text, self._policy.decode(row.tokens) if called else "", row.paid and called)


_NO_QUERY = f"{_FAILED}a call is <tool_call>, a query or JSON with arguments.sql, and </tool_call>"
