"""A time limit for Python code that comes from elsewhere and runs in this process (standard library only)."""

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class TimeLimitReached(BaseException):
    """The code of a `time_limit` block took too long. Not an Exception, so that this code cannot swallow it easily."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeLimitReached in the block after so many seconds, in any thread.

    It is raised between two instructions of Python, as KeyboardInterrupt is: a single call of a function in C is not
    broken off.
    """
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
