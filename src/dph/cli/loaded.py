"""`python -m dph.cli.loaded`: loads what stages need, then forks a process for each `dph` command that it is sent.

Loading torch and transformers takes seconds, which is longer than some stages compute; `dph.process.jobs` starts many.
Nothing is computed here, so no GPU is in use when it forks. It ends when its input ends.

Requests are lines on standard input, [number, request] in JSON, answers lines on standard output, [number, answer]. A
request to start a command has its arguments, changes of its environment and the file for its output; the answer is the
id of its process. This id is the request for its exit status, which is null while it runs.
"""

import contextlib
import json
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from dph.process.interrupts import PARENT

_STAGES = ("sft", "presample", "train", "evaluate")
MODULES = (*(f"dph.stages.{name}" for name in _STAGES), "transformers.models.llama.modeling_llama", "pandas")
"""pyarrow imports pandas for its first table."""


def serve(modules: Sequence[str] = MODULES) -> list[str] | None:
    """Load modules and fork for each request. Returns None at the input's end and, forked, the command's arguments."""
    answers = os.dup(1)
    os.dup2(2, 1)  # for what a module prints
    for name in modules:
        with contextlib.suppress(ImportError, OSError):  # a command that needs it says what is wrong
            import_module(name)
    requests = os.fdopen(0, "rb", buffering=0, closefd=False)
    for line in requests:
        number, request = json.loads(line)
        if isinstance(request, int):
            ended, status = os.waitpid(request, os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if ended else None
        elif not (answer := os.fork()):
            os.close(answers)
            _settle(request)
            return request["arguments"]
        os.write(answers, json.dumps([number, answer]).encode() + b"\n")
    return None


def _settle(request: Mapping[str, Any]) -> None:
    """Give a forked process a session, streams, an environment and a number of threads of its own."""
    os.setsid()
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND)
    for stream, file in enumerate((os.open(os.devnull, os.O_RDONLY), log, log)):
        os.dup2(file, stream)
    os.environ.update(request["environment"] | {PARENT: str(os.getppid())})
    if torch := sys.modules.get("torch"):  # which has read its variable already
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


if __name__ == "__main__" and (arguments := serve()) is not None:
    sys.argv[1:] = arguments
    runpy.run_module("dph", run_name="__main__", alter_sys=True)
