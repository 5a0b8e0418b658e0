"""The verifier protocol and the registry of verifiers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from dph.errors import UserError
from dph.registry import Registry
from dph.types import Problem, Verdict


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
    """Sends each problem to the verifier that its field `verifier` names; verifiers are created on first use."""

    def __init__(self, options: Mapping[str, Mapping[str, Any]] | None = None, *, only: str = "") -> None:
        """options: keyword arguments of each verifier's factory, by verifier name; only: one verifier that judges every
        problem, whatever the problem names."""
        self._options = dict(options or {})
        self.only = only
        self._made: dict[str, Verifier] = {}

    def _get(self, name: str) -> Verifier:
        if name not in self._made:
            self._made[name] = VERIFIERS[name](**self._options.get(name, {}))
        return self._made[name]

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
            "option verifier with --task.options, or reward responses by --reward FILE.py:NAME"
        )

    def verify(self, items: Sequence[tuple[Problem, str]]) -> list[Verdict]:
        """Judge (problem, response) pairs; returns the verdicts in the same order."""
        verdicts: dict[int, Verdict] = {}
        for name, places in self._places(problem for problem, _ in items).items():
            judged = self._get(name).verify([items[i] for i in places])
            verdicts.update(zip(places, judged, strict=True))
        return [verdicts[i] for i in range(len(items))]

    def check(self, problems: Sequence[Problem]) -> dict[str, str]:
        """Problems whose gold answer is unusable: id → reason. See `Verifier.check`."""
        broken: dict[str, str] = {}
        for name, members in self._by_name(problems).items():
            broken.update(self._get(name).check(members))
        return broken

    def flags(self, problems: Sequence[Problem]) -> dict[str, list[str]]:
        """Why usable gold answers may still judge wrongly: id → flags, for problems that have any.

        Only verifiers with a method of this name return flags (SQL: see `dph.verifiers.sql.text.GoldFlag`).
        """
        flags: dict[str, list[str]] = {}
        for name, members in self._by_name(problems).items():
            find = getattr(self._get(name), "flags", None)
            if find is not None:
                flags.update(find(members))
        return flags

    def tells_answers(self, problem: Problem) -> bool:
        """Whether the problem's verifier has a method `answers`."""
        return hasattr(self._get(self._name(problem)), "answers")

    def answers(self, items: Sequence[tuple[Problem, str]]) -> list[str | None]:
        """What each response answers, as a text that equal answers share; None for a response without an answer.

        Only verifiers with a method of this name know (SQL: what the query returns); with others, None for all.
        """
        found: list[str | None] = [None] * len(items)
        for name, places in self._places(problem for problem, _ in items).items():
            read = getattr(self._get(name), "answers", None)
            if read is not None:
                for index, answer in zip(places, read([items[i] for i in places]), strict=True):
                    found[index] = answer
        return found

    def _places(self, problems: Iterable[Problem]) -> dict[str, list[int]]:
        """The places of each verifier's problems."""
        found: dict[str, list[int]] = {}
        for place, problem in enumerate(problems):
            found.setdefault(self._name(problem), []).append(place)
        return found

    def _by_name(self, problems: Sequence[Problem]) -> dict[str, list[Problem]]:
        return {name: [problems[i] for i in places] for name, places in self._places(problems).items()}

    def close(self) -> None:
        for verifier in self._made.values():
            verifier.close()
        self._made.clear()

    def __enter__(self) -> "Verifiers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
