"""The SQL verifier: a response is correct iff its query gives the gold query's result on the problem's database."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dph.errors import UserError
from dph.types import Outcome, Problem, Verdict
from dph.verifiers.lru import LRU
from dph.verifiers.protocol import register_verifier
from dph.verifiers.sandbox import Request, WorkerPool, read_reply
from dph.verifiers.sql_extract import extract_sql
from dph.verifiers.sql_rules import get_rule

Reward = Literal["binary", "arctic"]

_GRACE = 1.0  # seconds that a worker may take beyond its own limit before it is killed
_CHAIN = 8  # predictions for one gold that one worker takes in a row
_REWARDS: dict[str, dict[Outcome, float]] = {
    "binary": {Outcome.CORRECT: 1.0},
    "arctic": {Outcome.CORRECT: 1.0, Outcome.WRONG: 0.1},
}
_BROKEN = ("file is not a database", "database disk image is malformed", "unable to open database file")


@dataclass(frozen=True, slots=True)
class _Query:
    """One judgement to make; also the key under which it is remembered."""

    uri: str
    stamp: str
    gold: str
    predicted: str


class SqlVerifier:
    """Judges SQL by execution, in killable worker processes.

    `Problem.answer` is the gold SQL and `Problem.meta["db"]` the path of the SQLite file, which is never written.
    Results of gold queries and verdicts are remembered, under the file's size and time of change.
    """

    def __init__(
        self,
        *,
        comparator: str = "strict",
        workers: int = 1,
        timeout: float = 5.0,
        gold_timeout: float = 30.0,
        max_rows: int = 100_000,
        max_bytes: int = 64 << 20,
        memory_mb: int = 1024,
        reward: Reward = "binary",
        unterminated: bool = False,
        cache_size: int = 65_536,
    ) -> None:
        """comparator: strict, bird, spider or paper (see sql_compare); workers: processes; timeout, gold_timeout:
        seconds for a predicted and a gold query; max_rows, max_bytes: largest result; memory_mb: of a worker;
        reward: "binary" 1 or 0, "arctic" 1, 0.1 for a wrong result, 0 for none; unterminated: accept a last code block
        that was never closed; cache_size: verdicts remembered. Raises UserError for an impossible value.
        """
        if reward not in _REWARDS:
            raise UserError(f"no SQL reward is named {reward!r}; known are: {', '.join(_REWARDS)}")
        numbers = dict(workers=workers, timeout=timeout, gold_timeout=gold_timeout, max_rows=max_rows,
                       max_bytes=max_bytes, memory_mb=memory_mb)  # fmt: skip
        for name, value in numbers.items():
            if value <= 0:
                raise UserError(f"the SQL verifier's option {name} must be positive, not {value}")
        self._rule = get_rule(comparator)
        self._rewards = _REWARDS[reward]
        self._timeout = timeout
        self._gold_timeout = gold_timeout
        self._unterminated = unterminated
        self._verdicts = LRU(cache_size)
        limits = {"max_rows": max_rows, "max_bytes": max_bytes, "memory_mb": memory_mb}
        self._pool = WorkerPool("dph.verifiers.sql_worker", limits, workers)

    def verify(self, items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        """Judge (problem, response) pairs; equal queries of one problem run once.

        Outcomes: no_answer without an SQL block; error for SQL that fails, does anything but read, or gives too much;
        timeout; gold_error where the gold itself fails; infra_error where two workers were lost.
        """
        files = _Files()
        verdicts: list[Verdict | None] = []
        waiting: dict[_Query, list[int]] = {}
        for index, (problem, response) in enumerate(items):
            sql = extract_sql(response, unterminated=self._unterminated)
            uri, stamp = files.locate(problem)
            if not stamp:
                verdicts.append(self._verdict(Outcome.GOLD_ERROR, f"no database file at {problem.meta['db']}"))
            elif sql is None:
                verdicts.append(self._verdict(Outcome.NO_ANSWER, "no SQL block"))
            else:
                query = _Query(uri, stamp, str(problem.answer), sql)
                verdicts.append(self._verdicts.get(query))
                if verdicts[-1] is None:
                    waiting.setdefault(query, []).append(index)
        for query, verdict in self._judge(list(waiting)):
            if verdict.outcome is not Outcome.INFRA_ERROR:
                self._verdicts.put(query, verdict)
            for index in waiting[query]:
                verdicts[index] = verdict
        return [verdict for verdict in verdicts if verdict is not None]

    def check(self, problems: Sequence[Problem]) -> dict[str, str]:
        """Run every gold query once; the ids of problems whose gold fails, with the reason.

        Raises UserError where a problem names no database, or one that is missing or no SQLite database.
        """
        files = _Files()
        requests = []
        for problem in problems:
            uri, stamp = files.locate(problem)
            if not stamp:
                raise UserError(f"problem {problem.id!r}: no database file at {problem.meta['db']}")
            requests.append([self._request(uri, stamp, str(problem.answer))])
        failures = {}
        for problem, [reply] in zip(problems, self._pool.run(requests), strict=True):
            outcome, detail = read_reply(reply)
            if any(sign in detail for sign in _BROKEN):
                raise UserError(f"problem {problem.id!r}: cannot read the database {problem.meta['db']}: {detail}")
            if outcome is not Outcome.CORRECT:
                failures[problem.id] = detail
        return failures

    def close(self) -> None:
        self._pool.close()

    def __enter__(self) -> "SqlVerifier":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _judge(self, queries: Sequence[_Query]) -> list[tuple[_Query, Verdict]]:
        chains: list[list[_Query]] = []
        open_chain: dict[tuple[str, str], list[_Query]] = {}
        for query in queries:
            key = (query.uri, query.gold)
            if key not in open_chain or len(open_chain[key]) == _CHAIN:
                open_chain[key] = []
                chains.append(open_chain[key])
            open_chain[key].append(query)
        replies = self._pool.run([[self._request(q.uri, q.stamp, q.gold, q.predicted) for q in c] for c in chains])
        return [
            (query, self._verdict(*read_reply(reply)))
            for chain, answers in zip(chains, replies, strict=True)
            for query, reply in zip(chain, answers, strict=True)
        ]

    def _request(self, uri: str, stamp: str, gold: str, predicted: str | None = None) -> Request:
        payload: dict[str, Any] = {
            "uri": uri,
            "stamp": stamp,
            "gold": self._rule.prepare_gold(gold),
            "gold_timeout": self._gold_timeout,
            "timeout": self._timeout,
            "grace": _GRACE,
        }
        if predicted is not None:
            payload |= {
                "predicted": self._rule.prepare_prediction(predicted),
                "comparator": self._rule.name,
                "ordered": self._rule.ordered(gold),
            }
        return Request(payload, self._timeout + _GRACE)

    def _verdict(self, outcome: Outcome, detail: str) -> Verdict:
        return Verdict(outcome, self._rewards.get(outcome, 0.0), detail)


class _Files:
    """Database files of one batch: each is looked at once."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, str]] = {}

    def locate(self, problem: Problem) -> tuple[str, str]:
        """(URI, stamp of size and time of change) of the problem's database; the stamp is empty without a file."""
        path = problem.meta.get("db")
        if not isinstance(path, str):
            raise UserError(f"problem {problem.id!r} is judged as SQL but its meta has no database path under 'db'")
        if path not in self._seen:
            file = Path(path).absolute()
            try:
                status = file.stat()
                stamp = f"{status.st_size}-{status.st_mtime_ns}" if file.is_file() else ""
            except OSError:
                stamp = ""
            self._seen[path] = (f"{file.as_uri()}?mode=ro&immutable=1", stamp)
        return self._seen[path]


register_verifier("sql")(SqlVerifier)
