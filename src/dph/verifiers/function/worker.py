"""The worker process that runs a reward function; the parent may kill it."""

import contextlib
import os
import sys
from pathlib import Path

from dph.errors import UserError
from dph.verifiers.function.call import RewardFunction, call, load_function
from dph.verifiers.sandbox.fork import Forked
from dph.verifiers.sandbox.loop import Message, limit_cpu, serve


def main(memory_mb: int, path: str, name: str) -> None:
    """Entry point of the process."""
    _forget_empty_packages()
    function: RewardFunction | None = None
    problem = ""
    try:
        with contextlib.redirect_stdout(sys.stderr):  # standard output is the pipe to the parent
            function = load_function(Path(path), name)
    except UserError as error:
        problem = str(error)

    def handle(request: Message) -> Message:
        if "completion" not in request:
            return {"problem": problem}
        if function is None:
            return {"failure": problem}
        limit_cpu(request["timeout"] * (os.cpu_count() or 1))  # the function may use several threads
        with contextlib.redirect_stdout(sys.stderr):
            return call(function, path, request)

    serve(Forked(handle), memory_mb, may_write=True)  # it may run model-written code from a temporary file


def _forget_empty_packages() -> None:
    """Remove the empty packages that the sandbox registers for a fast start, so that the user's file can import dph."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "dph" and module.__spec__ is None:
            del sys.modules[name]
