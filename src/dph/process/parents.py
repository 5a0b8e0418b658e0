"""Who started this process: it ends when its parent ends, even if the parent is killed, and knows how many processes a
launcher (torchrun) started for one command. Loads little, as workers and the command line import it."""

import os
import threading
import time
from collections.abc import Callable

from dph.errors import SharedUserError

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


def launched_processes() -> int:
    """Number of processes started by torchrun; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def require_one_process(command: str) -> None:
    """Raises UserError in each of several processes: all would do the same work and write the same directory."""
    if (count := launched_processes()) > 1:
        raise SharedUserError(
            f"dph {command} runs in one process, but {count} were started; start it without torchrun (only sft and "
            "train use several)"
        )
