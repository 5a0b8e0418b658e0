"""What counts as one way of solving a problem: the keys of the bank (`dph.rehearsal.bank`).

    style    the task's canonical form (`Task.style`); of a query, `dph.verifiers.sql.forms.query_form`
    answer   the response's answer without differences of writing: its query, its final answer or its last line
    text     the text, white space collapsed
    tokens   the token ids
    once     one mode for everything: the first correct response of a problem stays its only one
    every    a mode for each response: the bank then holds responses as often as they are drawn

A plug-in adds a key, a function of a `Solution` and the task's `Forms` that returns the name of the mode, or None for a
response that has none:

    @register_bank_key("operators")
    def operators(solution, forms):
        return "".join(sorted(c for c in solution.text if c in "+-*/"))
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from dph.errors import SettingsError
from dph.process.user_code import ask
from dph.registry import Registry
from dph.types import Problem
from dph.verifiers.thoughts import without_thoughts

EACH = "\0each"
"""What a key returns for a response that is a mode of its own, even if an equal one is there."""
_LONGEST = 120
"""Characters of a mode that is kept as it is; of longer ones a hash is."""
_PROBE = "```sql\nSELECT 1\n```\n\\boxed{1}"
"""A response with an answer for every verifier of this package that reads answers."""


@dataclass(frozen=True, slots=True)
class Solution:
    """A judged response, as plain values of any trainer."""

    problem_id: str
    prompt_ids: Sequence[int]
    response_ids: Sequence[int]
    logprobs: Sequence[float]
    """log π of each token under the policy that drew it, untruncated, at the sampling temperature, in nats."""
    text: str
    correct: bool
    """Judged, and right. A response that could not be judged is not correct."""
    finished: bool
    """It ended by itself, and was not cut off."""


class Mode(NamedTuple):
    """The mode of a response."""

    name: str
    read: bool = True
    """False if the response could not be read as the key wants it, and its plain text stands for its form."""


@dataclass(frozen=True, slots=True)
class Forms:
    """What a task says of the responses to its problems."""

    problems: Mapping[str, Problem]
    """By id: those that responses may solve."""
    style: Callable[[Problem, str], str | None]
    """As `Task.style`."""
    answer: Callable[[Problem, str], str | None]
    """As `dph.measure.metrics.answer_of`."""


Key = Callable[[Solution, Forms], str | Mode | None]
BANK_KEYS: Registry[Key] = Registry("bank key")
register_bank_key = BANK_KEYS.register
"""Decorator: make a key available under a name, for `bank.key`."""


@register_bank_key("style")
def _style(solution: Solution, forms: Forms) -> Mode | None:
    problem = forms.problems[solution.problem_id]
    style = forms.style(problem, solution.text)
    if style is None and problem.verifier == "sql":
        return _query(solution.text, problem)
    return None if style is None else Mode(style)


def _query(text: str, problem: Problem) -> Mode:
    from dph.verifiers.sql.forms import query_form  # sqlglot is slow to load
    from dph.verifiers.sql.text import extract_sql

    sql = extract_sql(without_thoughts(text, problem.prompt))
    form = None if sql is None else query_form(sql)
    return Mode(_collapsed(sql or text), read=False) if form is None else Mode(form)


@register_bank_key("answer")
def _answer(solution: Solution, forms: Forms) -> str | None:
    return forms.answer(forms.problems[solution.problem_id], solution.text)


@register_bank_key("text")
def _text(solution: Solution, forms: Forms) -> str:
    return _collapsed(solution.text)


@register_bank_key("tokens")
def _tokens(solution: Solution, forms: Forms) -> str:
    return " ".join(map(str, solution.response_ids))


@register_bank_key("once")
def _once(solution: Solution, forms: Forms) -> str:
    return ""


@register_bank_key("every")
def _every(solution: Solution, forms: Forms) -> str:
    return EACH


def _collapsed(text: str) -> str:
    return " ".join(text.split())


@dataclass(frozen=True, slots=True)
class BankKey:
    """A key with what a task says of responses."""

    name: str
    forms: Forms

    def __post_init__(self) -> None:
        """Raises SettingsError for a key that nobody registered, and for one that a problem of the task lacks."""
        BANK_KEYS[self.name]
        has = {"style": self._has_style, "answer": self._has_answer}.get(self.name)
        if has is None:
            return
        for problem in {one.verifier: one for one in reversed([*self.forms.problems.values()])}.values():
            if not has(problem):
                lacks = "canonical form of solutions" if self.name == "style" else "answers that are read"
                raise SettingsError(
                    f"bank.key is {self.name!r}, but the task has no {lacks} for problems that the verifier "
                    f"{problem.verifier!r} judges (such as {problem.id!r}); choose text, tokens or a key of a plug-in"
                )

    def _has_style(self, problem: Problem) -> bool:
        return problem.verifier == "sql" or self.forms.style(problem, _PROBE) is not None

    def _has_answer(self, problem: Problem) -> bool:
        return self.forms.answer(problem, _PROBE) is not None

    def mode(self, solution: Solution) -> Mode | None:
        """The mode of a response; long names are replaced by their hash. Raises SettingsError for a plug-in that
        raises, or returns something else."""
        key, what = BANK_KEYS[self.name], f"bank key {self.name!r}"
        found = ask(what, key, partial(key, solution, self.forms), _is_mode, "text or None")
        if found is None:
            return None
        mode = found if isinstance(found, Mode) else Mode(found)
        return mode if len(mode.name) <= _LONGEST else mode._replace(name=_hash(mode.name))


def _is_mode(value: object) -> bool:
    return value is None or isinstance(value, str | Mode)


def _hash(text: str) -> str:
    return "#" + hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()
