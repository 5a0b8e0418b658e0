"""Python code of the user: import a file, report the line at which an error occurred, keep a time limit, and name the
plug-ins that fail (no library is loaded)."""

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
    """Import a Python file as a module named by its stem. Raises whatever its code raises."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def describe(error: BaseException, path: str | Path) -> str:
    """Describe an error as "ValueError in line 7: …", with the last line of `path` in its traceback, if it is in it; a
    syntax error's message includes the line."""
    named = type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == Path(path).absolute()]
    if lines and not isinstance(error, SyntaxError):
        named += f" in line {lines[-1]}"
    return f"{named}: {error}"


def is_ours(implementation: Any) -> bool:
    """Whether a function, class or object comes with this package, and not from a plug-in."""
    return identity(implementation)[0].partition(".")[0] == "dph"


def ask(
    what: str, plug_in: Any, call: Callable[[], Any], fits: Callable[[Any], bool] = lambda _: True, wanted: str = ""
) -> Any:
    """The result of a call of a plug-in's code. Raises SettingsError, in one sentence, if it raises anything, or
    returns something that does not fit. An error in this package's own code is a bug and stays as it is.

    what: such as "advantage 'mine'". plug_in: its function, class or object. wanted: what fits, in words.
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
    """The code of a `time_limit` block took too long. Not an Exception, so that this code cannot swallow it easily."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeLimitReached in the block after this number of seconds, in any thread: between two instructions of
    Python, as KeyboardInterrupt is, so a single call of a function in C is not broken off."""
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
            if reached:  # in case it was not raised yet
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, None)
        timer.cancel()
