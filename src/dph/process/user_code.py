"""Python code of the user: import a file, report the line at which an error occurred, keep a time limit, and name the
plug-ins that fail. This module loads no library."""

import ctypes
import importlib.util
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from dph.errors import SettingsError, UserError
from dph.registry import identity


def import_file(path: str | Path) -> ModuleType:
    """Import a Python file as a module with the name of the file without its ending. Raises every error that the code
    raises."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def describe(error: BaseException, path: str | Path) -> str:
    """An error in words, as "ValueError in line 7: …". The line is the last line of the file `path` in the traceback,
    and is left out if the traceback has none. The message of a syntax error already has the line."""
    named = type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == Path(path).absolute()]
    if lines and not isinstance(error, SyntaxError):
        named += f" in line {lines[-1]}"
    return f"{named}: {error}"


def is_ours(implementation: Any) -> bool:
    """Whether a function, class or object belongs to this package, and not to a plug-in."""
    return identity(implementation)[0].partition(".")[0] == "dph"


def ask(
    what: str, plug_in: Any, call: Callable[[], Any], fits: Callable[[Any], bool] = lambda _: True, wanted: str = ""
) -> Any:
    """The result of a call of the code of a plug-in.

    Args:
        what: the name of the plug-in for messages, such as "advantage 'mine'".
        plug_in: its function, class or object.
        call: calls the code.
        fits: whether a result can be used.
        wanted: a description, in words, of the results that fit.
    Raises:
        SettingsError: the code raised an error, or returned a result that does not fit. An error in the code of this
            package is a bug, and is raised unchanged.
    """
    try:
        value = call()
        right = fits(value)
    except UserError:
        raise
    except Exception as error:  # user code may raise anything
        if is_ours(plug_in):
            raise
        file = getattr(sys.modules.get(identity(plug_in)[0]), "__file__", None) or ""
        raise SettingsError(f"{what} raised {describe(error, file)}") from error
    if not right:
        form = f"the shape {list(value.shape)}" if hasattr(value, "shape") else type(value).__name__
        size = f" of {len(value)}" if isinstance(value, list | tuple) else ""
        raise SettingsError(f"{what} returned {form}{size}, not {wanted}")
    return value


class TimeLimitReached(BaseException):
    """The code of a `time_limit` block took too long. This is not an Exception, so that the code cannot swallow it
    easily."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Context that raises TimeLimitReached in its block after a number of seconds, in any thread. As with
    KeyboardInterrupt, the error is raised between two instructions of Python, so that a single call of a function in C
    is not broken off."""
    thread, lock = ctypes.c_ulong(threading.get_ident()), threading.Lock()
    done = reached = False

    def reach() -> None:
        nonlocal reached
        with lock:
            if not done:
                reached = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(TimeLimitReached))

    timer = threading.Timer(seconds, reach)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            done = True
            if reached:  # the error may not have been raised yet
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, None)
        timer.cancel()
