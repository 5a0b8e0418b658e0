"""Processes that take one step at each request, so that two engines can be timed in turns."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The repository."""
MARK = "@@"
"""Begins the line that answers a request; other lines are messages of the libraries."""


class Worker:
    """Processes that run a module and take one step for each line on their standard input; the first one answers.

    It answers by `answer`. Most workers are a single process.
    """

    def __init__(
        self,
        module: str,
        words: Sequence[object],
        ranks: Sequence[Mapping[str, str]] = ({},),
        *,
        python: str = sys.executable,
    ) -> None:
        """ranks: for each process, variables of its environment."""
        command = [python, "-m", module, *map(str, words)]
        environment = os.environ | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        self._processes = [
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL if rank else subprocess.PIPE,
                text=True,
                env=environment | dict(own),
            )
            for rank, own in enumerate(ranks)
        ]

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def step(self) -> dict[str, float]:
        """What the process measured of a step: seconds by phase, bytes of memory."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("step\n")
            process.stdin.flush()
        stdout = self._processes[0].stdout
        assert stdout is not None
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
