"""Hashes of the user's Python files that a run depends on: recorded at the start, compared on resume."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dph.config import absolute
from dph.errors import UserError


def code_hashes(config: Any) -> dict[str, str]:
    """SHA-256 of each Python file named in the settings of a stage; empty if the file cannot be read."""
    reward = getattr(config, "reward", None)
    files = [reward.function.rpartition(":")[0]] if reward is not None and reward.function else []
    files += [name for name in getattr(config, "plugins", ()) if name.endswith(".py")]
    return {file: _hash(Path(file)) for file in files}


def check_code(run: Path, before: object, config: Any) -> None:
    """Compare the files with the hashes recorded at the start of the run, `before`.

    Raises UserError if a file has changed or is missing.
    """
    recorded = {absolute(file): digest for file, digest in before.items()} if isinstance(before, Mapping) else {}
    for file, now in code_hashes(config).items():
        if recorded.get(absolute(file)) != now:
            what = "has changed" if now else "is missing"
            raise UserError(
                f"{file} {what} since {run} was started; restore the old file, then continue with --resume, or "
                "start a new run with a different --out"
            )


def _hash(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
