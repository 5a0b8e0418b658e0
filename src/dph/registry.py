"""One pattern for everything that a plug-in can add: a registry maps names to implementations of one kind.

Each kind has its registry beside its protocol, and a decorator that plug-ins use:

    kind            registry                            decorator
    divergence      dph.objective.divergences           @register_divergence
    verifier        dph.verifiers.protocol              @register_verifier
    task            dph.tasks.protocol                  @register_task
    sampler         dph.sampling.protocol               @register_sampler
"""

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from dph.errors import UserError

T = TypeVar("T")
Added = TypeVar("Added", bound=Callable[..., Any])


class Registry(Generic[T]):
    """Implementations of one kind by name."""

    def __init__(self, kind: str) -> None:
        """kind: what is registered here, for messages: "verifier", "task", …"""
        self._kind = kind
        self._known: dict[str, T] = {}

    def register(self, name: str) -> Callable[[Added], Added]:
        """Decorator: make an implementation available under a name.

        Raises UserError when another implementation has the name already. The same one may be registered again, as
        happens when a plug-in's file is loaded twice.
        """

        def add(implementation: Added) -> Added:
            before = self._known.get(name)
            if before is not None and _identity(before) != _identity(implementation):
                raise UserError(f"there is already a {self._kind} named {name!r}; choose another name")
            self._known[name] = implementation  # type: ignore[assignment]
            return implementation

        return add

    def __getitem__(self, name: str) -> T:
        """The implementation of that name. Raises UserError, naming those that exist, for an unknown one."""
        if name not in self._known:
            raise UserError(f"no {self._kind} is named {name!r}; known are: {', '.join(self.names())}")
        return self._known[name]

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._known)


def _identity(implementation: object) -> tuple[str, str]:
    """What tells two implementations apart, equal for one file loaded twice."""
    kind = implementation if hasattr(implementation, "__qualname__") else type(implementation)
    return getattr(kind, "__module__", ""), getattr(kind, "__qualname__", "")
