"""Ends a process when its parent ends, even if the parent is killed (standard library only)."""

import os
import threading
import time
from collections.abc import Callable

PARENT = "DPH_PARENT"
"""Environment variable with the id of the parent process; the command ends when that process ends."""
LAUNCHED = "TORCHELASTIC_RUN_ID"
"""Environment variable of the processes that torchrun starts; they end when torchrun ends."""


def when_parent_ends(action: Callable[[], object], parent: int = 0, every: float = 0.5) -> None:
    """Call `action` from a thread soon after the parent process has ended.

    parent: process id of the parent; 0 means the current parent. every: seconds between two checks.
    """
    expected = parent or os.getppid()

    def watch() -> None:
        while os.getppid() == expected:
            time.sleep(every)
        action()

    threading.Thread(target=watch, daemon=True, name="dph-parent-watch").start()
