"""Processes that take one step at each request, so that two engines can be timed in turns."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MARK = "@@"
"""Begins the line that answers a request; other lines are messages of the libraries."""


class Worker:
    """A process that runs a script, takes one step for each line on its standard input, and answers it by `answer`."""

    def __init__(self, script: str | Path, words: Sequence[object]) -> None:
        command = [sys.executable, str(script), *map(str, words)]
        environment = os.environ | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def step(self) -> dict[str, float]:
        """What the process measured of a step: seconds by phase, bytes of memory."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write("step\n")
        stdin.flush()
        for line in stdout:
            if line.startswith(MARK):
                return json.loads(line.removeprefix(MARK))
        raise SystemExit("a worker has ended; see its message above")


def wait() -> None:
    """In a worker: wait for the next request; ends the process when no more will come."""
    if not sys.stdin.readline():
        sys.exit(0)


def answer(found: dict[str, float]) -> None:
    """In a worker: answer a request."""
    print(MARK + json.dumps(found), flush=True)
