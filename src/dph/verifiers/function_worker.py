"""The worker process of a reward function; and loading and calling it, also without one (standard library only)."""

import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dph.errors import UserError, unknown
from dph.process.streams import SafeText
from dph.process.user_code import describe, import_file
from dph.verifiers.sandbox.loop import Forked, Message, limit_cpu, one_process, serve

RewardFunction = Callable[..., "float | None"]
"""(prompt, completion, **columns) → reward, or None if the response cannot be judged."""

_LONGEST = 300  # characters of a failure's description


def split_reference(reference: str, flag: str = "--reward") -> tuple[Path, str]:
    """Split FILE.py:NAME into file and function name. flag: what names it, for the message. Raises UserError for
    another form or a missing file."""
    file, colon, name = reference.rpartition(":") if isinstance(reference, str) else ("", "", "")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise UserError(f"a reward function is given by {flag} FILE.py:NAME, not {reference!r}")
    path = Path(file).absolute()
    if not path.is_file():
        raise UserError(f"the reward function's file {file} does not exist; correct {flag}")
    return path, name


def load_function(path: Path, name: str) -> RewardFunction:
    """Load the function `name` from a Python file. Raises UserError if the import fails or the function is missing."""
    try:
        with one_process():
            module = import_file(path)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # user code may raise anything
        raise UserError(f"cannot import the reward function's file {path}: {describe(error, path)}") from error
    function: RewardFunction | None = getattr(module, name, None)
    if not callable(function):
        raise UserError(unknown(f"function of {path}", name, [n for n, f in vars(module).items() if callable(f)]))
    return function


def call(function: RewardFunction, path: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Call a reward function with a request's "prompt", "completion" and "columns".

    Returns {"reward": a finite number} or {"failure": the reason why there is none}. Raises only KeyboardInterrupt,
    whatever the function does. If it forks, the fork ends with it.
    """
    try:
        with one_process():
            reward: Any = function(request["prompt"], request["completion"], **request["columns"])
        if reward is None:
            return {"failure": "the reward function returned None"}
        return _number(reward)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # user code may raise anything
        return {"failure": describe(error, path)[:_LONGEST]}


def _number(reward: Any) -> dict[str, Any]:
    try:
        if isinstance(reward, str | bytes):
            raise TypeError
        number = float(reward)
    except (TypeError, ValueError):
        return {"failure": f"not a number: the reward function returned {reward!r:.100}"}
    if not math.isfinite(number):
        return {"failure": f"not finite: the reward function returned {number}"}
    return {"reward": number}


def main(memory_mb: int, path: str, name: str) -> None:
    """Entry point of the process."""
    forget_empty_packages()
    sys.stdout = sys.stderr = SafeText.over(sys.stderr, sys.stderr.buffer)  # a function may print what a model wrote
    function: RewardFunction | None = None
    problem = ""
    try:
        function = load_function(Path(path), name)
    except UserError as error:
        problem = str(error)

    def handle(request: Message) -> Message:
        if "completion" not in request:
            return {"problem": problem}
        if function is None:
            return {"failure": problem}
        limit_cpu(request["timeout"] * (os.cpu_count() or 1))  # the function may use several threads
        return call(function, path, request)

    serve(Forked(handle), memory_mb, may_write=True)  # it may run model-written code from a temporary file


def forget_empty_packages() -> None:
    """Remove the empty packages that the sandbox registers for a fast start, so that the user's file can import dph."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "dph" and module.__spec__ is None:
            del sys.modules[name]
