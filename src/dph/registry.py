"""One pattern for everything that a plug-in can add: a registry maps names to implementations of one kind. The
module of each protocol has one, with a decorator that plug-ins use, such as `register_verifier`."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from numbers import Integral, Real
from typing import Any, Generic, TypeVar

from dph.errors import SettingsError, near, unknown

T = TypeVar("T")
Added = TypeVar("Added", bound=Callable[..., Any])


class Registry(Generic[T]):
    """Implementations of one kind by name.

    >>> colours = Registry("colour")
    >>> @colours.register("red")
    ... def red(*, shade: float = 0.5) -> float:
    ...     return shade
    >>> "red" in colours, [*colours]
    (True, ['red'])
    >>> colours.bind("red", {"shade": "0.25"})()
    0.25
    """

    def __init__(self, kind: str, traits: Callable[..., Any] = dict) -> None:
        """kind: what is registered here, for messages: "verifier", "task", … traits: makes `traits` from the keyword
        arguments of `register`."""
        self._kind, self._make_traits = kind, traits
        self._known: dict[str, T] = {}
        self._traits: dict[str, Any] = {}
        self._homes: dict[str, str] = {}

    def declare(self, module: str, *names: str) -> None:
        """Announce names that importing `module` registers; it is imported when one of them is first used."""
        self._homes.update(dict.fromkeys(names, module))

    def register(self, name: str, **traits: Any) -> Callable[[Added], Added]:
        """Decorator: make an implementation available under a name, with what its users have to know of it.

        Raises SettingsError when another implementation has the name already. The same one may be registered again, as
        happens when a plug-in's file is loaded twice.
        """

        made = self._make_traits(**traits)

        def add(implementation: Added) -> Added:
            self._import(name)
            before = self._known.get(name)
            if before is not None and identity(before) != identity(implementation):
                raise SettingsError(f"there is already a {self._kind} named {name!r}; choose another name")
            self._known[name], self._traits[name] = implementation, made  # type: ignore[assignment]
            return implementation

        return add

    def __getitem__(self, name: str) -> T:
        """The implementation of that name. Raises SettingsError, naming those that exist, for an unknown one."""
        self._import(name)
        if name not in self._known:
            raise SettingsError(self.unknown(name))
        return self._known[name]

    def unknown(self, name: str) -> str:
        """That nothing has a name, in words, with the names that exist."""
        text = unknown(self._kind, name, self)
        return f"{text}; if a plug-in registers it, name the plug-in's file or module in the setting plugins"

    def traits(self, name: str) -> Any:
        """What the implementation of that name was registered with. Raises SettingsError for an unknown name."""
        self[name]
        return self._traits[name]

    def bind(
        self, name: str, options: Mapping[str, str], function: Callable[..., Any] | None = None, /, **values: Any
    ) -> Callable[..., Any]:
        """The implementation of that name with its settings, its keyword-only parameters, filled in.

        Args:
            options: settings as text, read as the types of the parameters.
            function: what is bound in place of the implementation: a function that was registered together with it.
            values: values of further parameters; those that the implementation does not have are left out.
        Raises:
            SettingsError: nothing has that name; an option is unknown, cannot be read, or is needed and missing.
        """
        implementation: Any = self[name] if function is None else function
        what = f"{self._kind} {name!r}"
        settings = settings_of(implementation)
        free = sorted(settings.keys() - values.keys())
        for key in options:
            if key not in free:
                takes = ", ".join(free) or "none"
                raise SettingsError(f"{what} does not take the option {key!r}{near(key, free)}; it takes: {takes}")
        for key in free:
            if key not in options and settings[key].default is inspect.Parameter.empty:
                raise SettingsError(f"{what} needs the option {key!r}")
        read = {key: read_option(text, settings[key].annotation, f"{key} of {what}") for key, text in options.items()}
        return partial(implementation, **{key: values[key] for key in values if key in settings}, **read)

    def __contains__(self, name: str) -> bool:
        return name in self._known or name in self._homes

    def __iter__(self) -> Iterator[str]:
        """All names, sorted."""
        return iter(sorted({*self._known, *self._homes}))

    def _import(self, name: str) -> None:
        """Import the module that registers a name, if that was announced and has not happened."""
        if name not in self._known and name in self._homes:
            import_module(self._homes[name])


def settings_of(implementation: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The settings of an implementation: its keyword-only parameters.

    >>> [*settings_of(lambda ratio, *, clip=0.2: ratio)]
    ['clip']
    """
    every = inspect.signature(implementation, eval_str=True).parameters.values()
    return {item.name: item for item in every if item.kind is inspect.Parameter.KEYWORD_ONLY}


_READERS: dict[Any, tuple[Callable[[str], Any], str]] = {
    bool: (lambda text: {"true": True, "false": False}[text.lower()], "true or false"),
    int: (int, "a whole number"),
    float: (float, "a number"),
}


def read_option(text: str, annotation: object, what: str) -> Any:
    """An option's value, read as a parameter's type. Raises SettingsError, naming `what`, for text of another type.

    >>> read_option("true", bool, "the option fast"), read_option("3", int, "the option count")
    (True, 3)
    """
    if annotation not in _READERS:
        return text
    read, words = _READERS[annotation]
    try:
        return read(text)
    except (KeyError, ValueError) as error:
        raise SettingsError(f"{what} must be {words}, not {text!r}") from error


def check_option(value: Any, annotation: object, what: str) -> None:
    """Raises SettingsError, naming `what`, for a value that is none of a parameter's type: bool, int, float or str."""
    kind = {bool: bool, int: Integral, float: Real, str: str}.get(annotation)  # type: ignore[call-overload]
    if kind and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
        raise SettingsError(f"{what} must be {_READERS.get(annotation, (str, 'text'))[1]}, not {value!r:.60}")


def identity(implementation: object) -> tuple[str, str]:
    """Module and name of a function, a class or an object's class; equal for one file loaded twice.

    >>> identity(settings_of)
    ('dph.registry', 'settings_of')
    """
    named = implementation if hasattr(implementation, "__qualname__") else type(implementation)
    return getattr(named, "__module__", ""), getattr(named, "__qualname__", "")
