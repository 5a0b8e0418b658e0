"""The user's code that a run depends on: hashes recorded at the start and compared on resume; never run because a run's
files name it."""

import hashlib
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dph.config import absolute, flatten, to_dict
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


_FLAGS = {
    "plugins": "--plugin",
    "reward.function": "--reward",
    "model.trust_remote_code": "--model.trust-remote-code",
    "model.attention": "--model.attention",
}
"""Settings that make code run, with the flags that name it: attention may be a kernel of a hub."""


def without_code(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a run recorded, as far as they name no code."""
    kept = {key: dict(value) if isinstance(value, Mapping) else value for key, value in settings.items()}
    for setting, _ in _code_of(settings):
        table, _, name = setting.rpartition(".")
        del (kept[table] if table else kept)[name]
    return kept


def check_named(run: Path, settings: Mapping[str, Any], config: Any) -> None:
    """Raises UserError if a run's settings name code of a kind that a command, with the settings `config`, does not."""
    given = dict(_code_of(to_dict(config)))
    for setting, values in _code_of(settings):
        if setting not in given:
            flags = " ".join(f"{_FLAGS[setting]} {shlex.quote(str(value))}".removesuffix(" True") for value in values)
            raise UserError(
                f"the settings of {run} name code to run ({setting}), which only a flag can allow; if you trust it, "
                f"add {flags}"
            )


def _code_of(settings: Mapping[str, Any]) -> list[tuple[str, list[Any]]]:
    """The settings that make code run, and what they name."""
    found = flatten({key: value for key, value in settings.items() if key in ("plugins", "reward", "model")})
    if "/" not in str(found.get("model.attention", "")):
        found.pop("model.attention", None)
    named = {key: found[key] for key in _FLAGS if found.get(key)}
    return [(key, list(value) if isinstance(value, list | tuple) else [value]) for key, value in named.items()]


def _hash(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
