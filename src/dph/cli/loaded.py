"""`python -m dph.cli.loaded`: loads the libraries that stages need, and then forks a process for each `dph` command
that it is sent.

Loading torch and transformers takes seconds, which is longer than some stages compute, and `dph.process.jobs` starts
many commands. Nothing is computed in this process, so that no GPU is in use when it forks. It ends when its input ends.

A request is a line on standard input, [number, request] in JSON. An answer is a line on standard output, [number,
answer]. A request to start a command has the arguments of the command, changes of its environment, and the file for its
output. The answer is the id of the process of the command. This id is also the request for the exit status of the
process. The answer is then the status, or null while the process runs.
"""

import contextlib
import gc
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
"""The modules that are loaded. pandas is among them because pyarrow imports it for its first table."""


def serve(modules: Sequence[str] = MODULES) -> list[str] | None:
    """Load modules, and fork for each request. Returns None at the end of the input. In a forked process, returns the
    arguments of the command."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what a module prints goes to standard error
    for name in modules:
        with contextlib.suppress(ImportError, OSError):  # a command that needs the module says what is wrong
            import_module(name)
    # A command that ends looks for garbage in all that it has. It need not look at what is loaded here, which takes
    # longer than some stages compute, and copies the memory that the processes share.
    gc.collect()
    gc.freeze()
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
    if torch := sys.modules.get("torch"):  # torch has read the variable already
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


if __name__ == "__main__" and (arguments := serve()) is not None:
    sys.argv[1:] = arguments
    runpy.run_module("dph", run_name="__main__", alter_sys=True)
