"""Messages, results and progress: all that reaches a terminal. A library logs, a command prints: `show_messages` makes
this process a command.

Messages go to the logger "dph" at level INFO. A command shows them on standard error, and the progress of long work
with time left: a live bar on a terminal, a line from time to time in a log. Of several processes the leading one does.

What a command prints may quote files, and a file may hold anything. `show` and `put` print to standard error and output
without the characters that a terminal would obey, and so does every print of other code: `keep_streams` gives a command
streams that replace them. Only the colours and bars of rich pass, which get their texts without such characters.
"""

import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from dph.errors import one_line, visible
from dph.process.interrupts import is_first_process
from dph.process.streams import LINES, Drawn, keep_streams

if TYPE_CHECKING:  # loaded only for a terminal
    from rich.console import Console
    from rich.progress import Progress

_LOG = logging.getLogger("dph")

_SECONDS_BETWEEN_LINES = 15.0


class Tracker:
    """Counts finished units of a piece of work and shows them, if they are to be shown."""

    def __init__(self, label: str, total: int, done: int, bar: "Progress | None", shown: bool) -> None:
        self._label, self._total, self._first, self._done, self._shown = label, total, done, done, shown
        self._bar = bar
        self._task = bar.add_task(label, total=total, completed=done) if bar else None
        self._start = self._last_line = time.monotonic()

    def advance(self, count: int = 1, note: str = "") -> None:
        """Count units as done; `note` is a short text next to the bar. A count of 0 shows the note at once."""
        self._done += count
        finished, left = self._done - self._first, self._total - self._done
        seconds = (time.monotonic() - self._start) / max(1, finished) * left
        line = f" {note} ({seconds:.0f} s left)" if finished else f" {note}"
        self._show(note, line, at_once=count == 0 or left <= 0)

    def within(self, note: str) -> None:
        """Show the present work on the next unit: next to the bar, or in a log after a while without a line."""
        self._show(note, f", next: {note}")

    def _show(self, note: str, line: str, *, at_once: bool = False) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done, description=one_line(f"{self._label} {note}"))
        elif self._shown and (at_once or time.monotonic() - self._last_line >= _SECONDS_BETWEEN_LINES):
            self._last_line = time.monotonic()
            show(f"{self._label} {self._done}/{self._total}{line}")


_SHOWN: list[Tracker] = []
"""Pieces of work whose progress is shown, the innermost last."""


def doing(note: str) -> None:
    """Say what is being done within a unit of the work whose progress is shown, if any is."""
    if _SHOWN:
        _SHOWN[-1].within(note)


@contextmanager
def progress(label: str, total: int, done: int = 0, *, quiet: bool = False) -> Iterator[Tracker]:
    """Show the progress of a piece of work of `total` units, of which `done` are done already. A library shows none."""
    shown = not quiet and any(isinstance(handler, _Printer) for handler in _LOG.handlers)
    with (_bar() if shown else None) or contextlib.nullcontext() as bar:
        tracker = Tracker(label, total, done, bar, shown)
        if shown:
            _SHOWN.append(tracker)
        try:
            yield tracker
        finally:
            if shown:
                _SHOWN.remove(tracker)


def _bar() -> "Progress | None":
    """A live bar, if standard error is a terminal."""
    if (console := _terminal()) is None:
        return None
    from rich import progress as rich

    columns = (rich.TextColumn("{task.description}", markup=False), rich.BarColumn(), rich.MofNCompleteColumn())
    return rich.Progress(*columns, rich.TimeElapsedColumn(), rich.TimeRemainingColumn(), console=console)


@cache
def _terminal() -> "Console | None":
    """The console of standard error if that is a terminal, which is found out once."""
    if not sys.stderr.isatty() and not {"FORCE_COLOR", "TTY_COMPATIBLE"} & os.environ.keys():
        return None
    from rich.console import Console

    console = Console(file=Drawn("stderr"))  # type: ignore[arg-type]
    return console if console.is_terminal else None


def show(text: str) -> None:
    """Print a text on standard error, above the bar if there is one."""
    text, console = visible(text, LINES), _terminal()
    if console is not None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)
        return
    print(text, file=sys.stderr, flush=True)


def put(text: str = "", end: str = "\n") -> None:
    """Print a result, a text of one or several lines, on standard output."""
    print(visible(text, LINES), end=end, flush=True)


def say(text: str) -> None:
    """Log one line for the user."""
    _LOG.info(one_line(text))


def warn(text: str) -> None:
    """Log one line that the user of a library sees too."""
    _LOG.warning(one_line(text))


class _Printer(logging.Handler):
    """Prints messages on standard error, as they are."""

    def emit(self, record: logging.LogRecord) -> None:
        show(record.getMessage())


def show_messages() -> None:
    """Print messages and progress from now on, if this is the leading process, as a command does at its start. A
    reader of them that leaves does not end the process."""
    keep_streams()
    if not is_first_process():
        return
    if not any(isinstance(handler, _Printer) for handler in _LOG.handlers):
        _LOG.addHandler(_Printer())
    _LOG.setLevel(logging.INFO)
    _LOG.disabled = False  # libraries that configure logging disable the loggers that exist
