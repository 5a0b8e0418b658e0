"""Messages and progress. A library logs, a command prints: `show_messages` makes this process a command.

Messages go to the logger "dph" at level INFO. A command shows them on standard error, and the progress of long work
with time left: a live bar on a terminal, a line from time to time in a log. Of several processes the leading one does.
"""

import contextlib
import errno
import io
import logging
import os
import select
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from dph.errors import one_line
from dph.process.interrupts import is_first_process

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def keep_streams() -> None:
    """Replace the standard streams of this process by streams that last; does nothing the second time, nor to streams
    that the program has replaced itself, as notebooks and test runners do.

    * A stream that was closed before the process began is the null device, so that no other file gets its number.
    * Once the reader of standard output or standard error has left, or its terminal is gone, all that this process and
      its children write to it is dropped.
    * Other errors, as of a full disk, are raised for standard output, which has results, as OSError with the file name
      "standard output". Standard error has messages and progress, which are dropped then too.
    """
    for number, (name, mode) in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            _to_nowhere(number)
        before: Any = getattr(sys, name)
        if before is not getattr(sys, f"__{name}__"):
            continue
        if before is None:
            before = open(number, mode, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
            setattr(sys, name, before)
        if mode == "w" and isinstance(getattr(before.buffer, "raw", before.buffer), io.FileIO):
            setattr(sys, name, _lasting(number, before))


class _LastingFile(io.FileIO):
    """A standard stream's file for writing."""

    def write(self, data: Any, /) -> int:
        size = memoryview(data).nbytes
        try:
            while (written := super().write(data)) is None:  # another process made a shared terminal non-blocking
                select.select([], [self], [])
            return written
        except OSError as error:
            gone = error.errno in (errno.EPIPE, errno.EBADF) or (error.errno == errno.EIO and not self._is_regular())
            _to_nowhere(self.fileno())  # also because Python tries again as it ends
            if self.fileno() == 1 and not gone:
                raise OSError(error.errno, error.strerror, "standard output") from error
            return size

    def _is_regular(self) -> bool:
        return stat.S_ISREG(os.fstat(self.fileno()).st_mode)


def _lasting(number: int, before: Any) -> io.TextIOWrapper:
    with contextlib.suppress(OSError):
        before.flush()
    file = _LastingFile(number, "w", closefd=False)
    unbuffered = isinstance(before.buffer, io.FileIO)  # python -u
    return io.TextIOWrapper(
        file if unbuffered else io.BufferedWriter(file),  # type: ignore[arg-type]
        encoding=before.encoding,
        errors=before.errors,
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )


def _to_nowhere(number: int) -> None:
    """Let a descriptor, open or not, mean the null device, for this process and its children."""
    null = os.open(os.devnull, os.O_RDWR)
    if null == number:
        os.set_inheritable(null, True)
    else:
        os.dup2(null, number)
        os.close(null)


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
            self._bar.update(self._task, completed=self._done, description=f"{self._label} {note}".strip())
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

    console = Console(stderr=True)
    return console if console.is_terminal else None


def show(text: str) -> None:
    """Print a text on standard error as it is, above the bar if there is one."""
    console = _terminal()
    if console is not None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)
        return
    print(text, file=sys.stderr, flush=True)


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
