"""Orderly stopping of a process.

The first SIGINT, SIGTERM or SIGHUP (the terminal is gone) asks a process to stop. A signal that comes over a second
later ends the process. A process that nohup has started ignores SIGHUP, as it should. A process ends when its parent
ends, even if the parent is killed, and it knows how many processes a launcher (torchrun) started for one command.

A command installs its handler before it loads anything else, and workers import this module. So the module itself loads
little.
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
"""Signals within this time count as one signal, such as a key pressed twice, or a Ctrl-C that both terminal and
launcher send."""


class Interrupts:
    """Within its `with` block, the first signal is held until `allowed` code runs or `check` is called. Interrupted is
    then raised. A signal over a second later has its default effect.

    finishing: the work that goes on after a signal is held, in words, which are printed at once; "" prints nothing.
    """

    def __init__(self, finishing: str = "") -> None:
        self._finishing = finishing
        self.signal = 0
        """The number of the received signal; 0 before a signal."""
        self._since = 0.0
        self._allowed = False
        self._before: dict[int, Any] = {}
        self._report: Callable[[Any], object] = sys.unraisablehook

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            taken = [number for number in SIGNALS if not (nohup and number == signal.SIGHUP)]
            self._before = {number: signal.signal(number, self._note) for number in taken}
            self._report, sys.unraisablehook = sys.unraisablehook, self._report_others
            for earlier in self._before.values():
                owner = getattr(earlier, "__self__", None)
                if isinstance(owner, CommandInterrupts) and owner.signal:  # a library swallowed the exception
                    self.signal, self._since = owner.signal, owner._since
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if not self.signal:
            for number, handler in self._before.items():
                signal.signal(number, handler)
        self._restore_report()

    def _restore_report(self) -> None:
        if sys.unraisablehook == self._report_others:
            sys.unraisablehook = self._report

    def _report_others(self, unraisable: Any) -> None:
        """Report an exception that Python cannot pass on, unless it is Interrupted.

        A signal may come while a `__del__` method runs. Python then drops the exception and prints a traceback. The
        signal is not lost: its number was noted before the exception was raised, and `check` raises it again.
        """
        if not isinstance(unraisable.exc_value, Interrupted):
            self._report(unraisable)

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
        """Raise Interrupted if a signal has been received."""
        if self.signal:
            raise Interrupted(self.signal)

    @contextmanager
    def allowed(self, yes: bool = True) -> Iterator[None]:
        """Context in which a signal interrupts the code at any point. With `yes` False, a signal stays held."""
        self._allowed = yes
        try:
            if yes:
                self.check()
            yield
        finally:
            self._allowed = False


class CommandInterrupts(Interrupts):
    """Handles the signals of a whole command, which the first signal interrupts anywhere. While the command imports a
    module, and when it is over, a signal ends the process at once.

    command: the name of the command, as `dph` takes it. The name decides whether the message mentions --resume.
    """

    def __init__(self, command: str = "") -> None:
        super().__init__()
        self._over = False
        self._message = interrupted(command)

    def __enter__(self) -> "CommandInterrupts":
        super().__enter__()
        atexit.register(self._keep_status)  # the function registered first is called last
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._over = True
        self._restore_report()
        if self.signal and isinstance(error, Exception | KeyboardInterrupt):  # a library may replace it
            sys.exit(self._tell(self.signal))

    def _keep_status(self) -> None:
        """Ignore the signals of an interrupted command from now on. Python takes its own handlers away after this
        function, and then the second of two signals must not end the process."""
        for number in SIGNALS:
            owner = getattr(signal.getsignal(number), "__self__", None)
            if isinstance(owner, Interrupts) and owner.signal:
                signal.signal(number, signal.SIG_IGN)

    def _act(self, number: int, frame: FrameType | None) -> None:
        if self._over:
            _end_by_default(number)
        if _is_importing(frame):
            os._exit(self._tell(number))  # cleans up nothing, like a kill, which every run survives
        raise Interrupted(number)

    def _tell(self, number: int) -> int:
        """Say on standard error that the command was interrupted. Returns the exit status of the command."""
        _write(self._message)
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # it is closed, or in the middle of a write
            sys.stdout.flush()
        return 128 + number


def _write(message: str) -> None:
    """Write a message of a signal handler on standard error, below the progress bar if there is one."""
    with contextlib.suppress(OSError):
        os.write(2, f"{chr(10) * os.isatty(2)}dph: {message}\n".encode())


def _is_importing(frame: FrameType | None) -> bool:
    """Whether this code runs because a module is imported. C code may then swallow an exception, or raise another
    one."""
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


def _end_by_default(number: int) -> None:
    for handled in SIGNALS:
        signal.signal(handled, signal.SIG_DFL)
    signal.raise_signal(number)


PARENT = "DPH_PARENT"
"""The environment variable with the id of the parent process. The command ends when that process ends."""
LAUNCHED = "TORCHELASTIC_RUN_ID"
"""An environment variable of the processes that torchrun starts. They end when torchrun ends."""


def when_parent_ends(action: Callable[[], object], parent: int = 0) -> None:
    """Call `action` in a thread soon after a parent process has ended. parent: the id of the process; 0 stands for the
    parent that this process has now."""
    expected = parent or os.getppid()

    def watch() -> None:
        while os.getppid() == expected:
            time.sleep(0.5)
        action()

    threading.Thread(target=watch, daemon=True, name="dph-parent-watch").start()


def launched_processes() -> int:
    """The number of processes that torchrun started; 1 without torchrun."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first_process() -> bool:
    """Whether this process prints messages. Of the processes that torchrun starts, only the first does."""
    return os.environ.get("RANK", "0") == "0"


DIVIDED = ("sft", "presample", "train", "eval")
"""The commands whose work can be divided among several processes."""


def check_processes(command: str) -> None:
    """Raise UserError, in each of several processes, if all would do the same work and write the same folder. command:
    the name of the command."""
    if (count := launched_processes()) > 1 and command not in DIVIDED:
        raise SharedUserError(
            f"dph {command} runs in one process, but {count} were started; start it without torchrun (only "
            f"{', '.join(DIVIDED)} use several)"
        )
