"""Messages, results and progress: everything that reaches a terminal. A library logs, and a command prints.
`show_messages` makes this process a command.

Messages go to the logger "dph" at level INFO. A command shows them on standard error. It also shows the progress of
long work with the time left: as a live bar on a terminal, and as a line from time to time in a log. Of several
processes only the leading one does so.

A command may print texts from files, and a file may hold any characters. `show` and `put` print to standard error and
standard output without the characters that a terminal would obey. Every print of other code is treated alike, because
`keep_streams` gives a command streams that replace such characters. Only the colours and bars of rich pass, and rich is
given texts without such characters.
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
    """Counts the finished units of a piece of work, and shows the count if progress is shown."""

    def __init__(self, label: str, total: int, done: int, bar: "Progress | None", shown: bool) -> None:
        self._label, self._total, self._first, self._done, self._shown = label, total, done, done, shown
        self._bar = bar
        self._task = bar.add_task(label, total=total, completed=done) if bar else None
        self._start = self._last_line = time.monotonic()

    def advance(self, count: int = 1, note: str = "") -> None:
        """Count units as done. note: a short text next to the bar. A count of 0 shows the note at once."""
        self._done += count
        finished, left = self._done - self._first, self._total - self._done
        seconds = (time.monotonic() - self._start) / max(1, finished) * left
        line = f" {note} ({seconds:.0f} s left)" if finished else f" {note}"
        self._show(note, line, at_once=count == 0 or left <= 0)

    def within(self, note: str) -> None:
        """Show the present work on the next unit, next to the bar or, in a log, as a line if none was written for a
        while."""
        self._show(note, f", next: {note}")

    def _show(self, note: str, line: str, *, at_once: bool = False) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done, description=one_line(f"{self._label} {note}"))
        elif self._shown and (at_once or time.monotonic() - self._last_line >= _SECONDS_BETWEEN_LINES):
            self._last_line = time.monotonic()
            show(f"{self._label} {self._done}/{self._total}{line}")


_SHOWN: list[Tracker] = []
"""The pieces of work whose progress is shown. The innermost is the last."""


def doing(note: str) -> None:
    """Show the present work within a unit of the work whose progress is shown, if any is shown."""
    if _SHOWN:
        _SHOWN[-1].within(note)


@contextmanager
def progress(label: str, total: int, done: int = 0, *, quiet: bool = False) -> Iterator[Tracker]:
    """Context that shows the progress of a piece of work. Progress is shown only in a command, and not if `quiet` is
    set.

    label: the name of the work. total: the number of its units. done: the number of units that are done already.
    """
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
    """The console of standard error if that is a terminal, else None. This is found out once."""
    if not sys.stderr.isatty() and not {"FORCE_COLOR", "TTY_COMPATIBLE"} & os.environ.keys():
        return None
    from rich.console import Console

    console = Console(file=Drawn("stderr"))  # type: ignore[arg-type]
    return console if console.is_terminal else None


def show(text: str) -> None:
    """Print a text on standard error, above the progress bar if there is one."""
    text, console = visible(text, LINES), _terminal()
    if console is not None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)
        return
    print(text, file=sys.stderr, flush=True)


def put(text: str = "", end: str = "\n") -> None:
    """Print a result, a text of one or several lines, on standard output."""
    print(visible(text, LINES), end=end, flush=True)


def say(text: str) -> None:
    """Log one line for the user of a command."""
    _LOG.info(one_line(text))


def warn(text: str) -> None:
    """Log one line that also the user of a library sees."""
    _LOG.warning(one_line(text))


class _Printer(logging.Handler):
    """Prints messages on standard error, as they are."""

    def emit(self, record: logging.LogRecord) -> None:
        show(record.getMessage())


def show_messages() -> None:
    """Print messages and progress from now on, if this is the leading process. A command calls this at its start. The
    process does not end when a reader of its messages leaves."""
    keep_streams()
    if not is_first_process():
        return
    if not any(isinstance(handler, _Printer) for handler in _LOG.handlers):
        _LOG.addHandler(_Printer())
    _LOG.setLevel(logging.INFO)
    _LOG.disabled = False  # libraries that configure logging disable existing loggers
