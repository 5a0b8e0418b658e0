"""Tasks: sources of problems, by name. The module of a task is imported when the task is first used."""

import inspect
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from dph.errors import SettingsError, near
from dph.process.user_code import ask
from dph.registry import Registry
from dph.types import TEMPLATE_COLUMN, Problem

__all__ = ["TASKS", "Demonstrates", "Task", "load_task", "problems_of", "register_task", "style_of"]


class Task(Protocol):
    """A source of problems: a data set with its prompts. Each problem names its verifier."""

    def problems(self, split: str) -> list[Problem]:
        """The problems of a split, in a fixed order, with unique ids. Raises UserError for an unknown split."""
        ...

    def style(self, problem: Problem, response: str) -> str | None:
        """Name of the solution style of a response, "other" if it has none of the known styles; None, as here, if the
        task has no styles."""
        return None


@runtime_checkable
class Demonstrates(Protocol):
    """A task that has supervised rows for `dph sft`."""

    def demonstrations(self, count: int, seed: int) -> list[dict[str, Any]]:
        """At most `count` rows with `prompt` and `response` (a text), determined by the seed."""
        ...


TASKS: Registry[Callable[..., Task]] = Registry("task")
register_task = TASKS.register
"""Decorator: register a task class (or factory) under a name. Its keyword arguments are the task's options."""


def load_task(name: str, /, **options: Any) -> Task:
    """Create the task `name`, passing the options to its factory. Raises UserError for an unknown name or option.

    >>> load_task("countdown").problems("train")[0].verifier
    'countdown'
    """
    factory = TASKS[name]
    parameters = inspect.signature(factory).parameters.values()
    takes = {item.name: item for item in parameters if item.kind in _BY_NAME}
    unknown = [key for key in options if key not in takes]
    if unknown and not any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters):
        needed_first = sorted(takes, key=lambda name: takes[name].default is not inspect.Parameter.empty)
        names, wrong = ", ".join(needed_first) or "none", ", ".join(map(repr, unknown))
        meant = near(unknown[0], takes)
        if TEMPLATE_COLUMN in unknown:
            meant = "; variables of the chat template are the setting --model.chat-template-kwargs NAME VALUE"
        raise SettingsError(f"task {name!r} does not take these options: {wrong}{meant}; it takes: {names}")
    missing = [key for key, item in takes.items() if item.default is item.empty and key not in options]
    if missing:
        short = "--data PATH, or " if missing[0] in ("root", "path", "name") else ""
        raise SettingsError(
            f"task {name!r} needs the option {missing[0]!r}; add {short}--task.options {missing[0]} VALUE"
        )
    return ask(f"task {name!r}", factory, lambda: factory(**options))


def problems_of(task: Task, split: str) -> list[Problem]:
    """The problems of a split. Raises SettingsError for a plug-in that raises, or returns something else."""
    what = f"problems of task {type(task).__name__}"

    def fits(problems: Any) -> bool:
        return isinstance(problems, list | tuple) and all(isinstance(problem, Problem) for problem in problems)

    problems = ask(what, task, lambda: task.problems(split), fits, "a list of Problem")
    for number, problem in enumerate(problems, 1):
        if not all(isinstance(text, str) for text in (problem.id, problem.verifier)):
            raise SettingsError(f"{what}: id and verifier of problem {number} must be text: {problem!r:.200}")
    return list(problems)


def style_of(task: Task, problem: Problem, response: str) -> str | None:
    """The solution style of a response. Raises SettingsError for a plug-in that raises, or returns something else."""
    call, fits = lambda: task.style(problem, response), lambda style: isinstance(style, str | None)
    return ask(f"style of task {type(task).__name__}", task, call, fits, "text or None")


_BY_NAME = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def option_types(name: str) -> dict[str, Any]:
    """The annotated type of each option of a task; {} for an unknown task.

    >>> option_types("records")["path"]
    <class 'str'>
    """
    parameters = inspect.signature(TASKS[name], eval_str=True).parameters if name in TASKS else {}
    return {key: item.annotation for key, item in parameters.items() if item.annotation is not item.empty}


TASKS.declare("dph.tasks.countdown", "countdown")
TASKS.declare("dph.tasks.sql.data", "gold")
TASKS.declare("dph.tasks.hub", "hub")
TASKS.declare("dph.tasks.records", "records", "verl_rows")
TASKS.declare("dph.tasks.sql.published", "bird", "spider")
TASKS.declare(
    "dph.tasks.mathsets",
    *("aime24", "aime25", "amc23", "college_math", "dapo_math_17k", "gaokao2023en", "gsm8k", "hmmt_feb_2025", "math"),
    *("math500", "minerva_math", "olymmath_easy", "olymmath_hard", "olympiadbench"),
)
