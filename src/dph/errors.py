"""Exceptions that the command line prints as one sentence, without a traceback.

    UserError             what a user can fix; exit status 2
    ├── SettingsError     settings that do not exist, are out of bounds, or contradict each other; unknown names
    ├── DataError         problems, rows, predictions and other files of data
    │   └── RowsError     rows of a file, each with its sentence
    ├── ModelError        models and tokenizers that cannot be loaded or used
    ├── JudgeError        verifiers, gold answers and reward functions that cannot judge
    ├── RunError          run directories and checkpoints: taken, damaged, incomplete, not to be resumed
    └── SharedUserError   any of these, raised by every process of a group; the leading one prints it
    Interrupted           a signal, which is not an error: a KeyboardInterrupt; exit status 128 + its number

Anything else that is raised is a bug and keeps its traceback.
"""

import errno
import json
import os
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

_LONGEST_REASON = 200  # characters of a library's message that are quoted


class UserError(Exception):
    """Something a user can fix; the message says what is wrong, where, and what to do."""


class SettingsError(UserError):
    """Settings that do not exist, are out of bounds, or contradict each other, and names that nothing has."""


class DataError(UserError):
    """Problems, rows, predictions or another file of data that cannot be read or used."""


class RowsError(DataError):
    """Rows of a file that cannot be used. The message is about the first; `faults` has a sentence for each."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__(faults)
        self.faults = list(faults)

    def __str__(self) -> str:
        first, *others = self.faults
        more = counted(len(others), "more fault")
        return f"{first} (and {more}; `dph check` lists all)" if others else first


class ModelError(UserError):
    """A model or tokenizer that cannot be loaded or used."""


class JudgeError(UserError):
    """A verifier, a gold answer or a reward function that cannot judge."""


class RunError(UserError):
    """A run directory or checkpoint that is taken, damaged, incomplete, or cannot be resumed."""


class SharedUserError(UserError):
    """A UserError that every process of a group raises; the leading one prints it."""


RESUMED = ("sft", "presample", "train", "eval", "verify", "certify", "audit")
"""The commands that --resume continues."""


class Interrupted(KeyboardInterrupt):
    """A signal asked the process to stop. The exit status is 128 + number: 129 SIGHUP, 130 SIGINT, 143 SIGTERM.

    message: if empty, the command line says `interrupted(command)`.
    """

    def __init__(self, number: int, message: str = "") -> None:
        super().__init__(message)
        self.number = number


def interrupted(command: str) -> str:
    """The message for a command of `dph` that was interrupted, if nothing more is known."""
    again = "the same command with --resume continues" if command in RESUMED else "run the same command again"
    return f"interrupted; {again}"


def one_line(text: str, longest: int = 4000) -> str:
    """Text for a terminal: on one line, cut if it is very long, and without characters that a terminal would obey
    (a message may quote a file, and a file may hold anything)."""
    text = " ".join(line.strip() for line in text.splitlines() if line.strip())
    return visible(text if len(text) <= longest else f"{text[:longest]} …")


def reason_of(error: BaseException) -> str:
    """A library's error in one short line; its type if it says nothing."""
    return one_line(str(error) or type(error).__name__, _LONGEST_REASON)


REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "free disk space, or use another disk"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "change its permissions, or use another place"),
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST), "a file is in the place of a folder: use another path"),
    **dict.fromkeys((errno.EIO, errno.ESTALE), "check the disk, or use another"),
    **dict.fromkeys((errno.ENOENT, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP), "correct the path"),
}
"""What to do about errors of a path that a user named, or of a full or failing disk; others are bugs."""


def refused(what: str, error: Exception, otherwise: str = "") -> str:
    """The message for what cannot be read or written, with the reason and the remedy: `otherwise` if it is missing."""
    number = error.errno if isinstance(error, OSError) else None
    reason = os.strerror(number) if number else reason_of(error)
    remedy = otherwise if otherwise and number in (None, errno.ENOENT) else REMEDIES.get(number or 0, "")
    return f"{what}: {reason}{remedy and '; '}{remedy}"


_JOINERS = "\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"
"""Characters without a form that words of some scripts and many emoji need, and no terminal obeys."""


def obeyed(character: str) -> bool:
    """Whether a terminal may obey a character instead of showing it, or reorder or hide text for it: control characters
    (C0, DEL and C1), marks of direction and other invisible ones, separators of lines, halves of surrogate pairs."""
    if character.isprintable() or character in _JOINERS:
        return False
    return unicodedata.category(character) != "Zs"  # spaces of other widths


def visible(text: str, keep: str = "") -> str:
    """Text without the characters that a terminal would obey, but those in `keep`."""
    return text if text.isprintable() else text.translate(_table(keep))


class _Table(dict[int, int]):
    """For `str.translate`: what stands for each character."""

    def __init__(self, keep: str) -> None:
        super().__init__()
        self._keep = keep

    def __missing__(self, code: int) -> int:
        character = chr(code)
        self[code] = ord("\N{REPLACEMENT CHARACTER}") if obeyed(character) and character not in self._keep else code
        return self[code]


_table = cache(_Table)


def json_for_terminal(value: Any) -> str:
    """A value as indented JSON, in which characters that a terminal would obey are escaped as JSON escapes them."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(json.dumps(c)[1:-1] if c != "\n" and obeyed(c) else c for c in text)


def unknown(what: str, name: object, names: Iterable[str]) -> str:
    """The message for a name that nothing has: the one that was probably meant, then all that there are."""
    names = list(names)
    return f"no {what} is named {name!r}{near(name, names)}; known are: {', '.join(names) or 'none'}"


def counted(number: int, noun: str) -> str:
    """A number with its noun: "1 row", "2 rows", "3 batches", "4 queries"."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith("y") and noun[-2] not in "aeou":
        return f"{number} {noun[:-1]}ies"
    return f"{number} {noun}{'es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's'}"


def how_to_install(extra: str) -> str:
    """How to install what an optional part needs: from the sources, because DPH-RL is in no package index yet."""
    return f"pip install '.[{extra}]' in the folder of DPH-RL's sources"


def near(name: object, names: Iterable[str]) -> str:
    """ "; perhaps you meant …" with the name that is most like an unknown one; "" if none is like it."""
    import difflib  # rarely needed

    lower = {each.lower(): each for each in names}
    meant = difflib.get_close_matches(str(name).lower(), lower, 1)
    return f"; perhaps you meant {lower[meant[0]]}" if meant else ""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on the machine, on the GPU, or below a limit of the system's for a process."""
    said = f"{type(error).__name__} {error}".lower()  # torch.OutOfMemoryError may come without a message
    signs = ("outofmemory", "out of memory", "can't allocate memory", "cannot allocate memory", "failed to map segment")
    return isinstance(error, MemoryError) or any(sign in said for sign in signs)
