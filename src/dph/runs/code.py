"""The user's Python files that a run depends on: their hashes are recorded at the start and compared on resume."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dph.errors import UserError


def code_hashes(config: Any) -> dict[str, str]:
    """SHA-256 of each Python file that the settings of a stage name; empty for one that cannot be read."""
    reward = getattr(config, "reward", None)
    files = [reward.function.rpartition(":")[0]] if reward is not None and reward.function else []
    files += [name for name in getattr(config, "plugins", ()) if name.endswith(".py")]
    return {file: _hash(Path(file)) for file in files}


def check_code(run: Path, before: object, config: Any) -> None:
    """Raises UserError where a file has changed since the run was started; `before`: the hashes recorded then."""
    noted = before if isinstance(before, Mapping) else {}
    for file, now in code_hashes(config).items():
        if noted.get(file) != now:
            what = "has changed" if now else "is gone"
            raise UserError(
                f"{file} {what} since {run} was started; restore the old file, then continue with --resume, or "
                "start over with another --out"
            )


def _hash(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
