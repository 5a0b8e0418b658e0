"""Loading and calling a reward function, in a worker or in this process (standard library only)."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dph.errors import UserError
from dph.process.user_code import describe, import_file

RewardFunction = Callable[..., "float | None"]
"""(prompt, completion, **columns) → reward, or None where the response cannot be judged."""

_LONGEST = 300  # characters of a failure's description


def split_reference(reference: str) -> tuple[Path, str]:
    """Split FILE.py:NAME into file and function name. Raises UserError for another form or a missing file."""
    file, colon, name = reference.rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise UserError(f"a reward function is given by --reward FILE.py:NAME, not {reference!r}")
    path = Path(file).absolute()
    if not path.is_file():
        raise UserError(f"the reward function's file {file} does not exist")
    return path, name


def load_function(path: Path, name: str) -> RewardFunction:
    """Load the function `name` from a Python file. Raises UserError if the import fails or the function is missing."""
    try:
        module = import_file(path)
    except (Exception, SystemExit) as error:  # user code may raise anything
        raise UserError(f"cannot import the reward function's file {path}: {describe(error, path)}") from error
    function: RewardFunction | None = getattr(module, name, None)
    if not callable(function):
        raise UserError(f"{path} has no function {name!r}")
    return function


def call(function: RewardFunction, path: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Call a reward function with a request's "prompt", "completion" and "columns".

    Returns {"reward": a finite number} or {"failure": the reason why there is none}. Never raises, whatever the
    function does.
    """
    try:
        reward: Any = function(request["prompt"], request["completion"], **request["columns"])
        if reward is None:
            return {"failure": "the reward function returned None"}
        return _number(reward)
    except (Exception, SystemExit) as error:  # user code may raise anything
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
