"""What a task is, and the table of tasks by name."""

import inspect
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from dph.errors import UserError
from dph.types import Problem


class Task(Protocol):
    """A source of problems: a data set with its prompts. The verifier is named by each problem's `verifier` field."""

    def problems(self, split: str) -> list[Problem]:
        """The problems of a split, in a fixed order, with unique ids. Raises UserError for an unknown split."""
        ...

    def style(self, problem: Problem, response: str) -> str | None:
        """Name of the solution style of a response, "other" for none of the known ones; None where the task has no
        notion of style."""
        ...


@runtime_checkable
class Demonstrates(Protocol):
    """A task that can make supervised rows of its own, for `dph sft`."""

    def demonstrations(self, count: int, seed: int) -> list[dict[str, str]]:
        """`count` rows with `prompt` and `response`, the same for the same seed."""
        ...


_FACTORIES: dict[str, Callable[..., Task]] = {}


def register_task(name: str) -> Callable[[Callable[..., Task]], Callable[..., Task]]:
    """Decorator: make a task class (or factory) available under a name."""

    def add(factory: Callable[..., Task]) -> Callable[..., Task]:
        _FACTORIES[name] = factory
        return factory

    return add


def load_task(name: str, **options: Any) -> Task:
    """Make the task `name`; options go to its factory. Raises UserError for an unknown name or option."""
    if name not in _FACTORIES:
        raise UserError(f"no task is named {name!r}; known are: {', '.join(sorted(_FACTORIES))}")
    parameters = inspect.signature(_FACTORIES[name]).parameters.values()
    takes = {item.name: item for item in parameters if item.kind in _BY_NAME}
    unknown = [key for key in options if key not in takes]
    if unknown and not any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters):
        known, wrong = ", ".join(takes) or "none", ", ".join(map(repr, unknown))
        raise UserError(f"task {name!r} does not take these options: {wrong}; it takes: {known}")
    missing = [key for key, item in takes.items() if item.default is item.empty and key not in options]
    if missing:
        raise UserError(f"task {name!r} needs the option {missing[0]!r}; add --task.options {missing[0]} VALUE")
    return _FACTORIES[name](**options)


_BY_NAME = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def option_types(name: str) -> dict[str, Any]:
    """The declared type of each option of a task; none of a task that is not known."""
    parameters = inspect.signature(_FACTORIES[name]).parameters if name in _FACTORIES else {}
    return {key: item.annotation for key, item in parameters.items() if item.annotation is not item.empty}


def known_tasks() -> list[str]:
    return sorted(_FACTORIES)
