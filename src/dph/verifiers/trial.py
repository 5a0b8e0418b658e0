"""A reward function of somebody else on trial: how it wants to be asked, and what it says to answers of known truth.

Its file runs in killable worker processes, as the one of `--reward` does, and only if the call itself names it.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, Self

from dph.config import Named, require
from dph.errors import SettingsError, UserError
from dph.verifiers.function_worker import split_reference
from dph.verifiers.sandbox.pool import WorkerPool
from dph.verifiers.sandbox.worker import GRACE, Reply, Request


class Asked(NamedTuple):
    """One response that is judged."""

    gold: str
    response: str
    prompt: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """What the function said to one response."""

    reward: float | None
    failure: str = ""
    """Why there is no reward: what was raised, or "no answer within 5 s"; "" if the function returned None."""
    seconds: float = 0.0
    """From the call to its return, by the wall clock."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a judge is tried on: how answers are stated, and the easiest ones."""

    answers: Sequence[str]
    """Ways in which a response states an answer, the usual ones first."""
    golds: Sequence[str]
    """Ways in which a data set states the right answer."""
    easy: Sequence[tuple[str, str]]
    """Right answers, which every judge can read that is meant for them, each with a wrong one."""


_THOUGHT = "<think>\nI work it out.\n</think>\n<answer>{}</answer>"
MATHS = Subject(
    answers=(
        "The answer is $\\boxed{{{}}}$.",
        _THOUGHT.replace("{}", "$\\boxed{{{}}}$"),
        _THOUGHT,
        "I work it out.\n\nAnswer: {}",
        "I work it out.\n#### {}",
        "The final answer is ${}$. I hope it is correct.",
        "{}",
    ),
    golds=("{}", "${}$", "\\boxed{{{}}}", "#### {}"),
    easy=(("4", "5"), (r"\frac{1}{2}", r"\frac{1}{3}"), ("x+1", "x-1")),
)
SQL = Subject(
    answers=("```sql\n{}\n```", _THOUGHT.replace("{}", "\n```sql\n{}\n```\n"), _THOUGHT, "<sql>{}</sql>", "{}"),
    golds=("{}", "```sql\n{}\n```"),
    easy=(
        ("SELECT count(*) FROM person", "SELECT count(*) FROM book"),
        ("SELECT title FROM book WHERE pages > 200", "SELECT title FROM book WHERE pages < 200"),
        ("SELECT name FROM person WHERE town = 'Oslo'", "SELECT name FROM person WHERE town = 'Rome'"),
    ),
)


@dataclass(frozen=True, slots=True)
class Form:
    """How a function is asked: the form in which it tells the most of the easiest right answers from wrong ones."""

    answer: str
    gold: str
    messages: bool = False
    """Whether it takes a response as a list of messages, and not as text."""
    paid_from: float = 0.5
    """Smallest reward of a paid answer: midway between what the easiest right and wrong ones get."""
    told_apart: int = 0
    """How many of the easiest right answers got more than a wrong one."""

    @property
    def boxed(self) -> bool:
        """Whether responses state their answer in a box, so that whole responses with boxes can be judged too."""
        return "\\boxed{" in self.answer

    def of_answer(self, gold: str, answer: str, prompt: str = "") -> Asked:
        return self.of_response(gold, self.answer.format(answer), prompt)

    def of_response(self, gold: str, response: str, prompt: str = "") -> Asked:
        return Asked(self.gold.format(gold), response, prompt)


class Trial:
    """The processes in which a reward function is called. Use it in a `with` block."""

    def __init__(
        self,
        function: str,
        columns: Mapping[str, Any],
        database: str = "",
        timeout: float = 5.0,
        workers: int = 1,
        memory_mb: int = 8192,
    ) -> None:
        """
        Args:
            function: FILE.py:NAME; columns: further arguments that it is given by name; database: a file of SQLite
                that it is given under the usual names of one.
            timeout: seconds for one response; workers: processes; memory_mb: address space of each.
        Raises:
            UserError: the file is missing, no flag of the present command names it, it cannot be loaded, or nobody can
                tell how the function is called.
        """
        path, name = split_reference(function, "--function")
        require(Named("function", function, "--function"))
        self.name, self._timeout = function, timeout
        options = {
            "memory_mb": memory_mb,
            "path": str(path),
            "name": name,
            "columns": dict(columns),
            "database": database,
        }
        imports = [*sys.path, str(Path(__file__).parents[2])]
        self._pool = WorkerPool(f"{__package__}.trial_worker", options, workers, imports)
        [[reply]] = self._pool.run_all([[Request({"timeout": timeout}, timeout + GRACE)]])
        if problem := reply.value.get("problem"):
            self.close()
            raise UserError(f"{function}: {problem}")
        self.call = str(reply.value.get("call", ""))
        """How the function is called, in words."""

    def ask(
        self, asked: Sequence[Asked], *, messages: bool = False, done: Callable[[], None] = lambda: None
    ) -> list[Said]:
        """What the function says to each response. done: called after each."""
        return [said for said in self._said(asked, messages, done, self._timeout)]

    def form(self, subject: Subject, answer: str = "") -> Form:
        """How the function wants to be asked. answer: how a response states its answer, with {answer} for it; empty:
        the first way that serves best.

        Raises UserError if it tells right answers from wrong ones in no form."""
        answers = (_template(answer),) if answer else subject.answers
        best = Form(answers[0], subject.golds[0])
        failure, late = "", 0
        self._begin(best.of_answer(subject.easy[0][0], subject.easy[0][0], "What is it?"))
        for gold, messages, way in product(subject.golds, (False, True), answers):
            form, why = self._tried(Form(way, gold, messages), subject)
            failure = failure or why
            late += why.startswith(_LATE)
            if form.told_apart > best.told_apart:
                best = form
            if best.told_apart == len(subject.easy) or late == _MOST_LATE:
                break
        if not best.told_apart:
            right, wrong = subject.easy[0]
            pays = f"it pays {right} no more than {wrong} where {right} is right, however it is asked"
            rest = f"; its first failure: {failure}" if failure else ""
            remedy = "say with --template how a response states its answer, as '<solution>{answer}</solution>'"
            raise UserError(f"{self.name}: {pays}; {remedy}{rest}")
        return best

    def _begin(self, asked: Asked) -> None:
        """Ask once, and look at no answer: many functions load their library when they are first called, which is not
        time that an answer takes."""
        for _ in self._said([asked], False, lambda: None, _LONGER * self._timeout):
            pass

    def _tried(self, form: Form, subject: Subject) -> tuple[Form, str]:
        """The form with what its answers got, and the first failure."""
        right, wrong = [], []
        for gold, other in subject.easy:
            both = [form.of_answer(gold, gold, "What is it?"), form.of_answer(gold, other, "What is it?")]
            said = self.ask(both, messages=form.messages)
            if failures := [one.failure for one in said if one.failure]:
                return form, failures[0]
            if said[0].reward is not None and said[0].reward > (said[1].reward or 0.0):
                right.append(said[0].reward)
                wrong.append(said[1].reward or 0.0)
        middle = (min(right) + max(wrong)) / 2 if right else 0.0
        return Form(form.answer, form.gold, form.messages, middle, len(right)), ""

    def _said(self, asked: Sequence[Asked], messages: bool, done: Callable[[], None], timeout: float) -> Iterator[Said]:
        limit = timeout + GRACE
        each = {"messages": messages, "timeout": timeout}
        for place in range(0, len(asked), _TOGETHER):
            part = asked[place : place + _TOGETHER]
            chains = [[Request(each | one._asdict(), limit)] for one in part]
            for [reply] in self._pool.run(chains):
                done()
                yield self._of(reply)

    def _of(self, reply: Reply) -> Said:
        value = reply.value
        if "seconds" in value:
            return Said(value.get("reward"), value.get("failure", ""), value["seconds"])
        if reply.status == "timeout" or value.get("outcome") == "timeout":
            return Said(None, f"{_LATE} {self._timeout:g} s", self._timeout)
        return Said(None, value.get("detail") or "its process ended")

    def close(self) -> None:
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_LATE = "no answer within"
_MOST_LATE = 4  # forms of asking without an answer in time, after which no further one is tried
_LONGER = 10  # times the limit of an answer, for the first one
_TOGETHER = 256  # responses that are sent to the pool at once


def _template(text: str) -> str:
    """A way to state an answer, as `str.format` takes it. Raises SettingsError without a place for the answer."""
    if text.count("{answer}") != 1:
        raise SettingsError(f"--template {text!r} needs {{answer}} once, where the answer stands")
    before, _, after = (part.replace("{", "{{").replace("}", "}}") for part in text.partition("{answer}"))
    return f"{before}{{}}{after}"
