"""The worker process in which `dph judge` calls a reward function of somebody else (standard library only)."""

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dph.errors import UserError, one_line
from dph.process.streams import SafeText
from dph.process.user_code import describe
from dph.verifiers.conventions import Convention, as_messages, call_by, convention_of
from dph.verifiers.function_worker import forget_empty_packages, load_function
from dph.verifiers.sandbox.loop import Forked, Message, limit_cpu, one_process, serve

_LONGEST = 200  # characters of a failure's description


def main(memory_mb: int, path: str, name: str, database: str, columns: Mapping[str, Any]) -> None:
    """Entry point of the process. What the function prints is not shown.

    database: a file of SQLite that the function is given, or ""; columns: further arguments, by name."""
    forget_empty_packages()
    sys.stdout = sys.stderr = SafeText.over(sys.stderr, sys.stderr.buffer)
    function: Callable[..., Any] | None = None
    convention: Convention | None = None
    problem = ""
    try:
        function = load_function(Path(path), name)
        convention = convention_of(function, list(columns))
    except UserError as error:
        problem = str(error)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)

    def handle(request: Message) -> Message:
        if function is None or convention is None or "response" not in request:
            return {"problem": problem, "call": str(convention or "")}
        limit_cpu(request["timeout"] * (os.cpu_count() or 1))
        response = as_messages(request["response"]) if request["messages"] else request["response"]
        started = time.perf_counter()
        try:
            with one_process():
                asked = (response, request["gold"], request["prompt"], database)
                reward = call_by(function, convention, *asked, columns)
            answer: Message = {"reward": reward}
        except BaseException as error:  # user code may raise anything
            answer = {"failure": one_line(describe(error, path))[:_LONGEST]}
        return answer | {"seconds": time.perf_counter() - started}

    serve(Forked(handle), memory_mb, may_write=True)
