"""Orderly stopping: the first SIGINT or SIGTERM asks a stage to stop, the second ends the process."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from dph.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Within its `with` block, the first signal is held until `allowed` code runs or `check` is called. Interrupted is
    then raised. All later signals have their default effect."""

    def __init__(self) -> None:
        self.signal = 0
        """Number of the received signal, or 0."""
        self._allowed = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        if not self.signal:
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.signal = number
        default_signals()
        if self._allowed:
            raise Interrupted(number)

    def check(self) -> None:
        """Raises Interrupted if a signal has been received."""
        if self.signal:
            raise Interrupted(self.signal)

    @contextmanager
    def allowed(self, yes: bool = True) -> Iterator[None]:
        """Let a signal interrupt the code of this block at any point."""
        self._allowed = yes
        try:
            if yes:
                self.check()
            yield
        finally:
            self._allowed = False


def default_signals() -> None:
    """Restore the default effect of signals: they end the process at once."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def raise_on_termination() -> None:
    """Make SIGTERM raise Interrupted, as SIGINT raises KeyboardInterrupt, so that files and workers are cleaned up.
    A second SIGTERM ends the process."""

    def handle(number: int, _: FrameType | None) -> None:
        default_signals()
        raise Interrupted(number)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handle)
