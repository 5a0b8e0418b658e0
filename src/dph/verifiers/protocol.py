"""The verifier protocol and the registry of verifiers."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from dph.errors import DataError, UserError, counted
from dph.process.user_code import ask
from dph.registry import Registry
from dph.types import Problem, Verdict
from dph.verifiers.lru import LRU

if TYPE_CHECKING:
    from dph.verifiers.sql.tool import SqlTool


class Verifier(Protocol):
    """Judges responses. Implementations never raise because of model output: they return a typed verdict."""

    def verify(self, items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        """Judge (problem, response text) pairs; returns the verdicts in the same order."""
        ...

    def check(self, problems: Sequence[Problem]) -> dict[str, str]:
        """Problems whose gold answer is unusable (it fails to execute, cannot be parsed …): id → reason.

        Called once, when problems are loaded. Raises UserError if nothing can be judged at all, for example because a
        database is missing.
        """
        ...

    def close(self) -> None:
        """Stop worker processes and free files; further calls to verify may start them again."""
        ...


VERIFIERS: Registry[Callable[..., Verifier]] = Registry("verifier")
register_verifier = VERIFIERS.register
"""Decorator: register a verifier class (or factory) for problems whose field `verifier` has this name."""


class Verifiers:
    """Sends each problem to the verifier that its field `verifier` names; verifiers are created on first use.

    >>> with Verifiers() as verifiers:
    ...     [verdict] = verifiers.verify([(Problem("a", "1 + 1?", "2", "exact"), "It is\\n2")])
    >>> verdict.correct, verdict.reward
    (True, 1.0)
    """

    def __init__(
        self, options: Mapping[str, Mapping[str, Any]] | None = None, *, only: str = "", skip_weak: bool = False
    ) -> None:
        """options: arguments of each verifier's factory, by name; only: one verifier that judges every problem;
        skip_weak: problems whose gold has a flag are not used."""
        self._options = dict(options or {})
        self.only, self.skip_weak = only, skip_weak
        self._made: dict[str, Verifier] = {}
        self._tool: SqlTool | None = None

    def _get(self, name: str) -> Verifier:
        if name not in self._made:
            factory, options = VERIFIERS[name], self._options.get(name, {})
            self._made[name] = ask(f"verifier {name!r}", factory, lambda: factory(**options))
        return self._made[name]

    def _ask(self, name: str, what: str, items: Sequence[Any], kind: type = object) -> Sequence[Any]:
        """What a verifier's method returns for items: one value of this type for each."""

        def fits(values: Any) -> bool:
            each = isinstance(values, list | tuple) and len(values) == len(items)
            return each and all(isinstance(value, kind) for value in values)

        verifier, wanted = self._get(name), f"a list of {len(items)}, each a {kind.__name__}"
        return ask(f"{what} of verifier {name!r}", verifier, lambda: getattr(verifier, what)(items), fits, wanted)

    def _name(self, problem: Problem) -> str:
        name = self.only or problem.verifier
        if name:
            return name
        if "task" in problem.meta:
            raise UserError(
                f"problem {problem.id!r}: the verifier's name belongs in a column 'verifier', not 'task'; rename it"
            )
        raise UserError(
            f"problem {problem.id!r} names no verifier; add a column 'verifier' ({', '.join(VERIFIERS)}), set the "
            "option verifier with --task.options, or (not in dph verify) reward responses by --reward FILE.py:NAME"
        )

    def verify(self, items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        """Judge (problem, response) pairs; returns the verdicts in the same order."""
        verdicts = self._of_each("verify", [problem for problem, _ in items], items, Verdict)
        return [verdicts[i] for i in range(len(items))]

    def check(self, problems: Sequence[Problem]) -> dict[str, str]:
        """Problems whose gold answer is unusable: id → reason. See `Verifier.check`."""
        broken: dict[str, str] = {}
        for name, places in self._places(problems).items():
            verifier, some = self._get(name), [problems[i] for i in places]
            call, wanted = partial(verifier.check, some), "a dict of reasons by id"
            broken |= ask(f"check of verifier {name!r}", verifier, call, lambda it: isinstance(it, dict), wanted)
        return broken

    def flags(self, problems: Sequence[Problem]) -> dict[str, list[str]]:
        """Why usable gold answers may still judge wrongly: id → flags, for problems that have any.

        Only verifiers with a method of this name return flags (SQL: see `dph.verifiers.sql.text.GoldFlag`).
        """
        flags: dict[str, list[str]] = {}
        for name, places in self._places(problems).items():
            if find := getattr(self._get(name), "flags", None):
                flags |= find([problems[i] for i in places])
        return flags

    def readings(self, problems: Sequence[Problem]) -> list[str]:
        """What each gold answer is to its verifier: a query's result, a mathematical type; else the answer itself."""
        texts = self._of_each("readings", problems, problems)
        return [texts.get(i, str(problem.answer)) for i, problem in enumerate(problems)]

    def tell(
        self, what: Literal["answers", "judged", "solutions", "explained"], items: Sequence[tuple[Problem, str]]
    ) -> list[str | None]:
        """The answer of each response, or its way to solve the problem: a text that equal answers (solutions) share,
        and None for a response without one.

        Only verifiers with a method of this name know (answers: SQL, what the query returns; judged: mathematics, the
        answer that was compared; solutions: countdown, the expression up to order and brackets; explained: mathematics,
        how the verdict came about); with others None, and an empty list if no verifier of these problems does.
        Evaluations count distinct answers and solutions.
        """
        texts = self._of_each(what, [problem for problem, _ in items], items)
        return [texts.get(i) for i in range(len(items))] if texts else []

    @property
    def tool(self) -> "SqlTool":
        """The tool that queries the databases of problems while a model answers, with the time limit and the number of
        processes of the SQL verifier."""
        if self._tool is None:
            from dph.verifiers.sql.tool import SqlTool

            own = self._options.get("sql", {})
            self._tool = SqlTool(**{name: own[name] for name in ("workers", "timeout") if name in own})
        return self._tool

    def pays_for_calls(self, problem: Problem) -> bool:
        """Whether a well-formed call of a tool earns a reward of its own (`verifier.reward = "paper"`)."""
        return bool(getattr(self._get(self._name(problem)), "pays_for_calls", False))

    def _of_each(
        self, what: str, problems: Sequence[Problem], items: Sequence[Any], kind: type = object
    ) -> dict[int, Any]:
        """What each problem's verifier says to its item, by place; nothing for a verifier without such a method."""
        found: dict[int, Any] = {}
        for name, places in self._places(problems).items():
            if what == "verify" or hasattr(self._get(name), what):
                found |= zip(places, self._ask(name, what, [items[i] for i in places], kind), strict=True)
        return found

    def _places(self, problems: Iterable[Problem]) -> dict[str, list[int]]:
        """The places of each verifier's problems. Raises UserError for a problem with an unknown verifier or none."""
        places: dict[str, list[int]] = {}
        strangers: dict[str, list[str]] = {}
        for place, problem in enumerate(problems):
            name = self._name(problem)
            places.setdefault(name, []).append(place)
            if not self.only and name not in self._made and name not in VERIFIERS:
                strangers.setdefault(name, []).append(problem.id)
        for name, ids in strangers.items():
            more = f" and {counted(len(ids) - 1, 'more problem')}" if ids[1:] else ""
            raise DataError(f"problem {ids[0]!r}{more}: {VERIFIERS.unknown(name)}")
        return places

    def refuse_unknown(self, problems: Iterable[Problem]) -> None:
        """Raises UserError for a problem with an unknown verifier or none, before any is judged."""
        self._places(problems)

    def close(self) -> None:
        for verifier in self._made.values():
            verifier.close()
        self._made.clear()
        if self._tool is not None:
            self._tool.close()
            self._tool = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def require_positive(verifier: str, **options: float) -> None:
    """Raises UserError for an option that is not positive. verifier: as messages name it."""
    for name, value in options.items():
        if not isinstance(value, Real) or not value > 0:
            raise UserError(f"the {verifier}'s option {name} must be positive, not {value!r}")


def short_key(question: Any) -> bytes:
    """A hash of what a verdict depends on, by its `repr`."""
    return hashlib.blake2b(repr(question).encode(errors="surrogatepass"), digest_size=16).digest()


@lru_cache(1024)
def _shared(verdict: Verdict) -> Verdict:
    """One object for equal verdicts: a cache holds tens of thousands, and nearly all of them are right or wrong."""
    return verdict


def judge_once(
    asked: Sequence[Any], cache: LRU, judge: Callable[[list[Any]], Iterable[tuple[Any, Verdict]]]
) -> list[Verdict]:
    """The verdicts on what is asked: a verdict already, or a hashable question that `judge` decides unless the cache
    has its verdict, under a hash, because answers may be long. Equal questions are judged once; a failure of the
    judging or of the gold answer is not cached."""
    keys = {question: short_key(question) for question in asked if not isinstance(question, Verdict)}
    verdicts = {question: cache.get(key) for question, key in keys.items()}
    for question, verdict in judge([question for question, verdict in verdicts.items() if verdict is None]):
        verdicts[question] = verdict
        if verdict.scored:
            cache.put(keys[question], _shared(verdict))
    return [question if isinstance(question, Verdict) else verdicts[question] for question in asked]
