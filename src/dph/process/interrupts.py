"""Orderly stopping: the first SIGINT, SIGTERM or SIGHUP (the terminal is gone) asks a process to stop, and one that
comes over a second later ends it. A process that nohup has started ignores SIGHUP, as it should. A process ends when
its parent ends, even if the parent is killed, and knows how many a launcher (torchrun) started for one command.

A command installs its handler before it loads anything else, and workers import this module, so it loads little itself.
"""

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from dph.errors import Interrupted, SharedUserError, interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SAME_SECONDS = 1.0
"""Signals within this time count as one: a key pressed twice, or a Ctrl-C that terminal and launcher both send."""


class Interrupts:
    """Within its `with` block, the first signal is held until `allowed` code runs or `check` is called. Interrupted is
    then raised. A signal over a second later has its default effect.

    finishing: what goes on after a signal that is held, which is said at once; "" says nothing.
    """

    def __init__(self, finishing: str = "") -> None:
        self._finishing = finishing
        self.signal = 0
        """Number of the received signal, or 0."""
        self._since = 0.0
        self._allowed = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            taken = [number for number in SIGNALS if not (nohup and number == signal.SIGHUP)]
            self._before = {number: signal.signal(number, self._note) for number in taken}
            for earlier in self._before.values():
                owner = getattr(earlier, "__self__", None)
                if isinstance(owner, CommandInterrupts) and owner.signal:  # a library swallowed its exception
                    self.signal, self._since = owner.signal, owner._since
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if not self.signal:
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if not self.signal:
            self.signal, self._since = number, time.monotonic()
            self._act(number, frame)
        elif time.monotonic() - self._since > _SAME_SECONDS:
            _end_by_default(number)

    def _act(self, number: int, frame: FrameType | None) -> None:
        if self._allowed and not _is_importing(frame):
            raise Interrupted(number)
        if self._finishing and is_first_process():
            _write(f"{self._finishing}; a second signal ends the process at once")

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


class CommandInterrupts(Interrupts):
    """The same around a whole command, which the first signal interrupts anywhere; while it imports a module, and when
    it is over, a signal ends the process at once.

    command: its name, as `dph` takes it; it decides whether the message names --resume.
    """

    def __init__(self, command: str = "") -> None:
        super().__init__()
        self._over = False
        self._message = interrupted(command)

    def __enter__(self) -> "CommandInterrupts":
        super().__enter__()
        atexit.register(self._keep_status)  # the first to be registered is the last to be called
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._over = True
        if self.signal and isinstance(error, Exception | KeyboardInterrupt):  # or a library's error in its place
            sys.exit(self._tell(self.signal))

    def _keep_status(self) -> None:
        """Python takes its handlers away after this; the second of two signals must not end the process then."""
        for number in SIGNALS:
            owner = getattr(signal.getsignal(number), "__self__", None)
            if isinstance(owner, Interrupts) and owner.signal:
                signal.signal(number, signal.SIG_IGN)

    def _act(self, number: int, frame: FrameType | None) -> None:
        if self._over:
            _end_by_default(number)
        if _is_importing(frame):
            os._exit(self._tell(number))  # cleans up nothing, as a kill, which every run survives
        raise Interrupted(number)

    def _tell(self, number: int) -> int:
        """Say on standard error that the command was interrupted; returns its exit status."""
        _write(self._message)
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # closed, or in the middle of a write
            sys.stdout.flush()
        return 128 + number


def _write(message: str) -> None:
    """Write a message of a signal's handler on standard error, below the bar if there is one."""
    with contextlib.suppress(OSError):
        os.write(2, f"{chr(10) * os.isatty(2)}dph: {message}\n".encode())


def _is_importing(frame: FrameType | None) -> bool:
    """Whether this code runs because a module is imported: C code may swallow an exception there, or raise another."""
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


def _end_by_default(number: int) -> None:
    for handled in SIGNALS:
        signal.signal(handled, signal.SIG_DFL)
    signal.raise_signal(number)


PARENT = "DPH_PARENT"
"""Environment variable with the id of the parent process; the command ends when that process ends."""
LAUNCHED = "TORCHELASTIC_RUN_ID"
"""Environment variable of the processes that torchrun starts; they end when torchrun ends."""


def when_parent_ends(action: Callable[[], object], parent: int = 0) -> None:
    """Call `action` from a thread soon after the parent process, `parent` or the current one, has ended."""
    expected = parent or os.getppid()

    def watch() -> None:
        while os.getppid() == expected:
            time.sleep(0.5)
        action()

    threading.Thread(target=watch, daemon=True, name="dph-parent-watch").start()


def launched_processes() -> int:
    """Number of processes started by torchrun; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first_process() -> bool:
    """Whether this process, of those that torchrun starts, is the one that speaks."""
    return os.environ.get("RANK", "0") == "0"


DIVIDED = ("sft", "presample", "train", "eval")
"""Commands whose work several processes divide."""


def check_processes(command: str) -> None:
    """Raises UserError in each of several processes if all would do the same work and write the same directory."""
    if (count := launched_processes()) > 1 and command not in DIVIDED:
        raise SharedUserError(
            f"dph {command} runs in one process, but {count} were started; start it without torchrun (only "
            f"{', '.join(DIVIDED)} use several)"
        )
