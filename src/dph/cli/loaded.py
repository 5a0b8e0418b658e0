"""`python -m dph.cli.loaded`: loads what stages need, then forks a process for each `dph` command that it is sent.

Loading torch and transformers takes seconds, which is longer than some stages compute; `dph.process.jobs` starts many.
Nothing is computed here, so no GPU is in use when it forks. It ends when its input ends.

    standard input    requests, one a line, in JSON: arguments, environment, log (the file for a command's output)
    standard output   "ID started" for each request, in order; "ID STATUS" when that process has ended
"""

import contextlib
import json
import os
import select
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from dph import __main__ as command
from dph.process.interrupts import PARENT

_STAGES = ("sft", "presample", "train", "evaluate")
MODULES = (*(f"dph.stages.{name}" for name in _STAGES), "transformers.models.llama.modeling_llama", "pandas")
"""pyarrow imports pandas for its first table."""
_LOOK_SECONDS = 0.1


def serve(modules: Sequence[str] = MODULES) -> list[str] | None:
    """Load modules and fork for each request. Returns None at the end of the input and, in a forked process, the
    arguments of its command."""
    answers, rest = os.dup(1), b""
    os.dup2(2, 1)  # for what a module prints
    for name in modules:
        with contextlib.suppress(ImportError, OSError):  # a command that needs it says what is wrong
            import_module(name)
    while True:
        with contextlib.suppress(ChildProcessError):  # there is none
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                os.write(answers, b"%d %d\n" % (ended[0], os.waitstatus_to_exitcode(ended[1])))
        if not select.select([0], [], [], _LOOK_SECONDS)[0]:
            continue
        if not (read := os.read(0, 1 << 16)):
            return None
        *requests, rest = (rest + read).split(b"\n")
        for request in map(json.loads, requests):
            if (child := os.fork()) == 0:
                os.close(answers)
                _settle(request)
                return request["arguments"]
            os.write(answers, b"%d started\n" % child)


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
    sys.argv = [str(command.__file__), *arguments]
    command.main()
