"""Which code of others may run: what the call itself names, and nothing that a file names.

Settings that name code carry the mark `Code`. Presets, settings files and run directories may hold such settings, as a
statement of what a run needs, but only a flag of the same call lets the code run; in a program, what the program itself
passes. `Permitted` decides. The command line asks it about the settings of each command, and keeps it for the whole
call: whatever loads code calls `require` first, so that no way to the code leads around the flags.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from dph.config.settings import Code
from dph.config.trees import comparable, every_setting, flatten, nested
from dph.errors import SettingsError


class Named(NamedTuple):
    """Code of others that settings name.

    >>> code = Named("reward.function", "reward.py:score", "--reward")
    >>> code.words
    ['--reward', 'reward.py:score']
    """

    setting: str
    """The setting's name with dots, such as reward.function."""
    value: Any
    flag: str

    @property
    def words(self) -> list[str]:
        """The words of a command line that let it run."""
        return [self.flag] if self.value is True else [self.flag, str(self.value)]

    def same(self, setting: str, value: Any) -> bool:
        """Whether a setting with this value names the same code, however its path is written."""
        short = self.setting.rpartition(".")[2]  # `trust_remote_code` of dph interpolate is the models' too
        return short == setting.rpartition(".")[2] and comparable(self.value) == comparable(value)


def words_of(config: Any) -> list[str]:
    """The words of a command line that let all code run that settings name.

    >>> from dph.config import TrainConfig
    >>> words_of(TrainConfig(plugins=("mine.py",)))
    ['--plugin', 'mine.py']
    """
    return [word for code in code_of(config) for word in code.words]


def code_of(config: Any) -> list[Named]:
    """All code of others that the settings of a stage name.

    >>> from dph.config import TrainConfig
    >>> [code.value for code in code_of(TrainConfig(plugins=("mine.py",)))]
    ['mine.py']
    """
    found = []
    for setting in every_setting(config):
        for mark in setting.bounds:
            if isinstance(mark, Code):
                values = setting.value if isinstance(setting.value, tuple) else [setting.value]
                found += [Named(setting.name, value, mark.flag) for value in values if mark.runs(value)]
    return found


class Permitted:
    """The code of others that a call may run.

    >>> permitted = Permitted({"plugins": ["mine.py"]})
    >>> permitted.allows(Named("plugins", "mine.py", "--plugin"))
    True
    >>> permitted.allows(Named("plugins", "theirs.py", "--plugin"))
    False
    """

    def __init__(
        self, named: Mapping[str, Any], command: Sequence[str] = (), flags: Sequence[str] | None = None
    ) -> None:
        """
        Args:
            named: the settings that the call itself gives, nested as in a file.
            command: the words of the command, for the message that says what to type; none if a program calls.
            flags: the flags that the command has; None for all.
        """
        self._named, self._command, self._flags = flatten(named), list(command), flags

    def allows(self, code: Named) -> bool:
        """Whether the call itself names this code."""
        values = [(name, value) for name, given in self._named.items() for value in _values(given)]
        return any(code.same(name, value) for name, value in values)

    def check(self, codes: Sequence[Named], where: str) -> None:
        """Raises SettingsError, with the words to type, if the call does not itself name some of this code.

        where: what names the code, for the message."""
        refused = [code for code in codes if not self.allows(code)]
        if not refused:
            return
        listed = ", ".join(dict.fromkeys(f"{code.setting} = {code.value}" for code in refused))
        fault = f"{where} names code to run ({listed}), which only a flag can allow"
        words = list(dict.fromkeys(tuple(code.words) for code in refused))
        if not self._command:
            raise SettingsError(f"{fault}; if you trust it, pass the same settings yourself")
        if lacking := [code.flag for code in refused if self._flags is not None and code.flag not in self._flags]:
            raise SettingsError(f"{fault}, and this command has no {lacking[0]}; leave it out")
        line = shlex.join([*self._command, *(word for flag in words for word in flag)])
        raise SettingsError(f"{fault}; if you trust {'it' if len(words) == 1 else 'them'}, type: {line}")


def _values(given: Any) -> Sequence[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]


_of_call: list[Permitted] = []
"""What the present command may run, innermost last; empty in a program, which names the code that it passes."""


@contextmanager
def only(permitted: Permitted) -> Iterator[None]:
    """Context in which `require` lets only this code run, in every thread of the process.

    >>> with only(Permitted({})):
    ...     require(Named("plugins", "mine.py", "--plugin"), "the file")
    Traceback (most recent call last):
    dph.errors.SettingsError: the file names code to run (plugins = mine.py), which only a flag can allow; ...
    """
    _of_call.append(permitted)
    try:
        yield
    finally:
        _of_call.remove(permitted)


def named_by(config: Any) -> Permitted:
    """The code that the present call names: by the flags of its command or, in a program, by the settings that the
    program passes."""
    if _of_call:
        return _of_call[-1]
    named: dict[str, list[Any]] = {}
    for code in code_of(config):
        named.setdefault(code.setting, []).append(code.value)
    return Permitted(nested(named))


def require(code: Named, where: str = "a file") -> None:
    """Raises SettingsError unless this code may run. Everything that loads code of others calls this first."""
    if _of_call:
        _of_call[-1].check([code], where)
