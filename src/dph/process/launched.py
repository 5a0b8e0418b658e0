"""How many processes a launcher (torchrun) started for one command; known before torch is loaded."""

import os

from dph.errors import SharedUserError


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
