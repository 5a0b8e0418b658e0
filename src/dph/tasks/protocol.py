"""What a task is, and the table of tasks by name."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from dph.errors import UserError
from dph.types import Problem


class Task(Protocol):
    """A source of problems: a data set with its prompts. The verifier is named by each problem's `task` field."""

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
    try:
        return _FACTORIES[name](**options)
    except TypeError as error:
        if "argument" in str(error):
            raise UserError(f"task {name!r} does not take these options: {error}") from error
        raise


def known_tasks() -> list[str]:
    return sorted(_FACTORIES)
