"""No process outlives the one that started it, even when that one is killed (standard library only)."""

import os
import threading
import time
from collections.abc import Callable

PARENT = "DPH_PARENT"
"""Environment variable with the id of the process that a command is to end with."""


def when_parent_ends(action: Callable[[], object], parent: int = 0, every: float = 0.5) -> None:
    """Call `action` from a thread soon after the parent process has ended.

    parent: the process id that the parent had; 0 takes the present one. every: seconds between two looks.
    """
    expected = parent or os.getppid()

    def watch() -> None:
        while os.getppid() == expected:
            time.sleep(every)
        action()

    threading.Thread(target=watch, daemon=True, name="dph-parent-watch").start()
