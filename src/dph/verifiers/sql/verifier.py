"""The SQL verifier: a response is correct iff its query has the gold query's result on the problem's database."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal

from dph.errors import UserError, counted, unknown
from dph.types import Outcome, Problem, Verdict
from dph.verifiers.lru import LRU
from dph.verifiers.protocol import judge_once, register_verifier, require_positive, short_key
from dph.verifiers.sandbox.pool import UsesWorkers, WorkerPool, read_reply
from dph.verifiers.sandbox.worker import GRACE, Reply, Request
from dph.verifiers.sql.files import Databases, MissingDatabase, database_finder
from dph.verifiers.sql.rewards import REWARDS, RewardName, calls_with_sql
from dph.verifiers.sql.rules import Columns, Options, Rule, get_rule
from dph.verifiers.sql.text import GoldFlag, changes_by_itself, extract_sql, plain_text, query_in, tie_probes
from dph.verifiers.thoughts import without_thoughts

Answer = Literal["block", "whole"]

_CHAIN = 8  # predictions for one gold query that one worker judges in sequence
_GOLD_ATTEMPTS = 2  # time-outs of a gold query, in different batches, after which it does not run again
_PROGRAM = 10_000  # instructions of a gold query that are searched for what changes
_BROKEN = ("file is not a database", "database disk image is malformed", "unable to open database file")


@dataclass(frozen=True, slots=True)
class _Query:
    """One comparison to run; also its key in the cache of verdicts."""

    databases: Databases
    gold: str
    predicted: str


@dataclass(frozen=True, slots=True)
class _Gold:
    """A gold query as executed, its plain text (`dph.verifiers.sql.text`), and whether its order of rows counts."""

    sql: str
    plain: str
    ordered: bool


_WRAPPED = "; write the query alone, without a fence, tags or a label around it"


class SqlVerifier(UsesWorkers):
    """Judges SQL by execution, in killable worker processes.

    `Problem.answer` is the gold SQL and `Problem.meta["db"]` the path of the SQLite file, which is never written. If
    `Problem.meta["suite"]` lists further databases, the results must be equal on all of them. Gold results and verdicts
    are cached by the content of the databases. A gold query that has used all of its processor time twice does not run
    again.
    """

    def __init__(
        self,
        *,
        comparator: str = "strict",
        keep_distinct: bool = False,
        columns: Columns = "fixed",
        tolerance: float = Options().tolerance,
        workers: int = 1,
        timeout: float = 5.0,
        gold_timeout: float = 30.0,
        max_rows: int = 1_000_000,
        max_bytes: int = 64 << 20,
        memory_mb: int = 1024,
        reward: RewardName = "binary",
        answer: Answer = "block",
        unterminated: bool = False,
        cache_size: int = 65_536,
        answers: bool = False,
    ) -> None:
        """Args:
            comparator: strict, bird, spider, paper or paper_bird (see `dph.verifiers.sql.rules`).
            keep_distinct, columns, tolerance: options of the comparator (see `dph.verifiers.sql.rules.Options`).
            workers: number of processes.
            timeout, gold_timeout: seconds for a predicted and for a gold query on one database.
            max_rows, max_bytes: largest result; memory_mb: of each worker.
            reward: binary, arctic, paper or soft_f1 (see `dph.verifiers.sql.rewards`).
            answer: "block": the SQL is the response's last ```sql block; "whole": the SQL is the whole response.
            unterminated: accept a last block that was never closed.
            cache_size: number of cached verdicts.
            answers: keep what judged queries return for the method `answers`, which then need not run them again.
        Raises:
            UserError: for a value out of range.
        """
        if reward not in REWARDS:
            raise UserError(unknown("SQL reward", reward, REWARDS))
        if answer not in ("block", "whole"):
            raise UserError(f"the SQL verifier's option answer must be block or whole, not {answer!r}")
        limits = {"max_rows": max_rows, "max_bytes": max_bytes, "memory_mb": memory_mb}
        require_positive("SQL verifier", workers=workers, timeout=timeout, gold_timeout=gold_timeout, **limits)
        self._rule = get_rule(comparator)
        self._options = Options(keep_distinct, columns, tolerance)
        self._rule.check(self._options)
        self._prepared = lru_cache(8192)(partial(_prepared, self._rule, self._options))
        self._reward = REWARDS[reward]
        self.pays_for_calls = bool(self._reward.tool_bonus)
        self._timeout = timeout
        self._gold_timeout = gold_timeout
        self._whole = answer == "whole"
        self._unterminated = unterminated
        self._verdicts = LRU(cache_size)
        self._golds = LRU(cache_size)
        self._attempts = LRU(cache_size)
        """The final reply of a gold query that ran, or timed out too often; and how often each has timed out."""
        self._returned = LRU(cache_size if answers else 1)
        credit = self._reward.credit
        settings = {"rule": comparator, "options": asdict(self._options), "credit": credit, "digests": answers}
        self._pool = WorkerPool(f"{__package__}.worker", settings | limits, workers)

    def verify(self, items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        """Judge (problem, response) pairs; queries of a problem that differ only in blanks and case run once.

        Outcomes besides correct and wrong: no_answer without a SQL block; error for SQL that fails, does anything but
        read, or returns too much; timeout; gold_error if the gold query itself fails; infra_error if something outside
        ended every worker that had it.
        """
        databases = database_finder()
        judged = judge_once([self._asked(*item, databases) for item in items], self._verdicts, self._judge)
        if not (bonus := self._reward.tool_bonus):
            return judged
        return [
            replace(verdict, reward=verdict.reward + bonus) if verdict.scored and calls_with_sql(text) else verdict
            for verdict, (_, text) in zip(judged, items, strict=True)
        ]

    def check(self, problems: Sequence[Problem]) -> dict[str, str]:
        """Run every gold query once; returns the problems whose gold query fails: id → reason.

        Raises UserError if a problem names no database, or one that is missing or not a SQLite database, and
        WorkersFailed, a UserError, if something outside ended every worker that had a query.
        """
        failures = {}
        for problem, reply in self._run_golds(problems):
            outcome, detail = _read(reply)
            if any(sign in detail for sign in _BROKEN):
                raise UserError(f"problem {problem.id!r}: cannot read the database {problem.meta['db']}: {detail}")
            if outcome is not Outcome.CORRECT:
                if detail.endswith("not authorized"):
                    detail = f"a gold query must be a SELECT, which only reads ({detail})"
                wrapped = query_in(gold := str(problem.answer)) != gold
                failures[problem.id] = f"{detail}{_WRAPPED * wrapped}"
        return failures

    def flags(self, problems: Sequence[Problem]) -> dict[str, list[GoldFlag]]:
        """Why gold results on the problems' own databases may judge wrongly: id → flags, for problems that have any.

        The other databases of a test suite are not checked: they are random, and many results on them are empty.

        In a subquery with a LIMIT, ties are found in its first column. Gold queries that fail have no flags. Raises
        UserError as `check` does.
        """
        flags: dict[str, list[GoldFlag]] = {}
        doubtful: list[tuple[Problem, tuple[str, str]]] = []
        databases = database_finder()
        usable = [
            (problem, reply, self._prepared(str(problem.answer)).sql)
            for problem, reply in self._run_golds(problems, suite=False)
            if reply.value.get("outcome") == Outcome.CORRECT
        ]
        programs = self._pool.run_all(
            [
                [self._run(databases(p)[0], f"EXPLAIN {gold}", self._gold_timeout, rows=_PROGRAM)]
                for p, _, gold in usable
            ]
        )
        for (problem, reply, gold), [program] in zip(usable, programs, strict=True):
            if changes_by_itself(gold, program.value.get("cells", ())):
                flags[problem.id] = [GoldFlag.CHANGES]
            elif not reply.value["rows"]:
                flags[problem.id] = [GoldFlag.EMPTY]
            elif (probes := tie_probes(gold, reply.value["columns"])) is not None:
                doubtful.append((problem, probes))
        chains = [
            [self._run(databases(p)[0], sql, self._gold_timeout, "sequence") for sql in probes]
            for p, probes in doubtful
        ]
        for (problem, _), replies in zip(doubtful, self._pool.run_all(chains), strict=True):
            first, second = (reply.value for reply in replies)
            if not (first.get("digest") and second.get("digest")):
                continue
            if first["digest"] != second["digest"]:
                flags[problem.id] = [GoldFlag.LIMIT_TIES]
            elif first["sequence"] != second["sequence"] and self._prepared(str(problem.answer)).ordered:
                flags[problem.id] = [GoldFlag.ORDER_TIES]
        return flags

    def readings(self, problems: Sequence[Problem]) -> list[str]:
        """The size and the first row of each gold result on the problem's own database, or why there is none."""
        databases = database_finder()
        asked = [(databases(problem)[0], self._prepared(str(problem.answer)).sql) for problem in problems]
        chains = [[self._run(where, sql, self._gold_timeout, rows=1)] for where, sql in asked]
        return [_reading(reply) for [reply] in self._pool.run_all(chains)]

    def answers(self, items: Sequence[tuple[Problem, str]]) -> list[str | None]:
        """The result of each response's query on its problem's own database, as a digest that equal bags of rows share;
        None without a query and for one that fails. The query runs within the limits of judging, unless the verifier
        was made to keep `answers` and has judged it on the same database.

        Raises WorkersFailed, a UserError, if something outside ended every worker that had a query.
        """
        databases = database_finder()
        asked: list[tuple[Databases, str] | None] = []
        for problem, response in items:
            query = self._asked(problem, response, databases)
            asked.append(None if isinstance(query, Verdict) else (query.databases[:1], self._executed(query)))
        digests = {query: self._returned.get(short_key(query)) for query in asked if query is not None}
        distinct = [query for query, digest in digests.items() if digest is None]
        chains = [[self._run(where, sql, self._timeout)] for [where], sql in distinct]
        replies = zip(distinct, self._pool.run_all(chains), strict=True)
        digests |= {query: str(reply.value.get("digest", "")) for query, [reply] in replies}
        return [None if query is None else digests[query] or None for query in asked]

    def _executed(self, query: _Query) -> str:
        """A prediction as the rule executes it."""
        return self._rule.prepare_prediction(query.predicted, self._options)

    def _asked(self, problem: Problem, response: str, databases: Callable[[Problem], Databases]) -> Verdict | _Query:
        """The comparison that decides a response, or the verdict on one that needs none."""
        try:
            files = databases(problem)
        except MissingDatabase as error:
            return self._verdict(Outcome.GOLD_ERROR, str(error))
        if not str(problem.answer).strip():
            return self._verdict(Outcome.GOLD_ERROR, "the gold query is empty")
        if self._whole:
            sql = response if response.strip() else None
        else:
            if self._rule.extract is extract_sql:  # the authors' code reads thoughts too
                response = without_thoughts(response, problem.prompt)
            sql = self._rule.extract(response, unterminated=self._unterminated)
        if sql is None:
            return self._verdict(Outcome.NO_ANSWER, "no SQL")
        return _Query(files, str(problem.answer), sql)

    def _run_golds(self, problems: Sequence[Problem], *, suite: bool = True) -> list[tuple[Problem, Reply]]:
        """Replies to gold queries alone, equal ones run once; of several databases, the last one or first failure."""
        databases = database_finder()
        asked: list[tuple[Databases, str]] = []
        for problem in problems:
            try:
                asked.append((databases(problem)[: None if suite else 1], str(problem.answer)))
            except MissingDatabase as error:
                raise UserError(f"problem {problem.id!r}: {error}") from error
        replies = {query: self._golds.get(query) for query in asked}
        requests = {query: self._request(*query) for query, reply in replies.items() if reply is None}
        ran = self._pool.run_all([[request] for request in requests.values()])
        for (query, request), [reply] in zip(requests.items(), ran, strict=True):
            replies[query] = reply
            if reply.value.get("outcome") == Outcome.CORRECT:
                self._golds.put(query, reply)
            self._count_timeout(query, request, reply)
        return [(problem, replies[query]) for problem, query in zip(problems, asked, strict=True)]

    def _judge(self, queries: Sequence[_Query]) -> list[tuple[_Query, Verdict]]:
        alike: dict[tuple[Databases, str, str], tuple[str, list[_Query]]] = {}
        texts = {query: self._executed(query) for query in queries}
        judged: list[tuple[_Query, Verdict]] = []
        for query, text in texts.items():
            gold = self._golds.get((query.databases, query.gold))
            if gold and (failure := _read(gold))[0] is Outcome.GOLD_ERROR:
                judged.append((query, self._verdict(*failure)))
                continue
            alike.setdefault((query.databases, query.gold, plain_text(text)), (text, []))[1].append(query)
        chains: list[list[tuple[Request, list[_Query]]]] = []
        open_chain: dict[tuple[Databases, str], list[tuple[Request, list[_Query]]]] = {}
        for (databases, gold, plain), (text, same) in alike.items():
            chain = open_chain.get((databases, gold))
            if chain is None or len(chain) == _CHAIN:
                chain = open_chain[databases, gold] = []
                chains.append(chain)
            prepared = self._prepared(gold)
            chain.append((self._request(databases, gold, prepared.sql if plain == prepared.plain else text), same))
        replies = self._pool.run([[request for request, _ in chain] for chain in chains])
        for chain, answers in zip(chains, replies, strict=True):
            for (request, same), reply in zip(chain, answers, strict=True):
                verdict = self._verdict(*_read(reply), reply.value.get("credit"))
                judged += [(query, verdict) for query in same]
                self._count_timeout((same[0].databases, same[0].gold), request, reply)
                if (returned := reply.value.get("digest")) is not None:
                    for query in same:
                        self._returned.put(short_key((query.databases[:1], texts[query])), returned)
        return judged

    def _run(self, database: tuple[str, str], sql: str, timeout: float, *more: str, rows: int = 0) -> Request:
        """A request for the digest, `more` digests and the first `rows` of what a query returns."""
        payload = {"database": database, "run": sql, "rows": rows, "timeout": timeout, "digests": ["digest", *more]}
        return Request(payload, timeout + GRACE)

    def _request(self, databases: Databases, gold: str, predicted: str | None = None) -> Request:
        """predicted: the query as executed; the gold query's own text if it is the same query."""
        prepared = self._prepared(gold)
        limits = {"gold_timeout": self._gold_timeout, "timeout": self._timeout, "grace": GRACE}
        attempt = self._attempts.get((databases, gold)) or 0
        payload: dict[str, Any] = {"databases": databases, "gold": prepared.sql, "attempt": attempt} | limits
        if predicted is not None:
            payload |= {"predicted": predicted, "ordered": prepared.ordered}
        return Request(payload, self._timeout + GRACE)

    def _count_timeout(self, gold: tuple[Databases, str], request: Request, reply: Reply) -> None:
        """Count a time-out of a gold query once for each attempt, and keep the last one. The limit is processor time; a
        busy machine needs somewhat more of it, so that one time-out decides nothing."""
        if reply.value.get("gold_timeout") or (reply.status == "timeout" and reply.phase == "gold"):
            attempts = request.payload["attempt"] + 1
            self._attempts.put(gold, attempts)
            if attempts >= _GOLD_ATTEMPTS:
                self._golds.put(gold, reply)

    def _verdict(self, outcome: Outcome, detail: str, credit: float | None = None) -> Verdict:
        return Verdict(outcome, self._reward.fixed.get(outcome, 0.0) if credit is None else credit, detail)


def _read(reply: Reply) -> tuple[Outcome, str]:
    """As `read_reply`; a time-out or a crash of the worker in the gold query says nothing about the response."""
    outcome, detail = read_reply(reply)
    own = reply.phase != "gold" or reply.status not in ("timeout", "crash")
    return (outcome, detail) if own else (Outcome.GOLD_ERROR, f"the gold query: {detail}")


def _reading(reply: Reply) -> str:
    outcome, detail = read_reply(reply)
    if outcome is not Outcome.CORRECT:
        return detail
    first = "".join(f", the first: {' | '.join(row)}" for row in reply.value["cells"])
    return f"{counted(reply.value['count'], 'row')} of {counted(len(reply.value['names']), 'column')}{first}"


def _prepared(rule: Rule, options: Options, gold: str) -> _Gold:
    sql = rule.prepare_gold(gold, options)
    return _Gold(sql, plain_text(sql), rule.orders(gold, options))


register_verifier("sql")(SqlVerifier)
