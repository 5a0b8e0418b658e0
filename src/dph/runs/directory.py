"""Run directories: one per stage, holding the resolved settings, a manifest, metrics, and whatever the stage writes.

config.toml     resolved settings; `--config` reads it back
manifest.json   stage, status, versions, and facts that later stages check
metrics.jsonl   one line per step; depends only on settings and seed
timings.jsonl   seconds and machine facts, kept apart so that metrics can be compared byte by byte
.lock           while a process works there: its id
"""

import dataclasses
import json
import math
import platform
import sqlite3
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dph.config import differences, from_dict, read_toml, to_dict, to_toml
from dph.config.renamed import migrated
from dph.errors import UserError
from dph.process.progress import say
from dph.runs.code import check_code, code_hashes
from dph.runs.files import remove_leftovers, sync, write_atomically
from dph.runs.locks import NAME as LOCK
from dph.runs.locks import lock, unlock

FORMAT = 2
"""Version of the layout of run directories. 2: settings of each stage hold what the stage reads; `prompt_set`."""


def package_versions() -> dict[str, str]:
    """Versions of what a result may depend on: Python, SQLite and packages."""
    found = {"python": platform.python_version()}
    for name in ("dph-rl", "torch", "transformers", "tokenizers", "numpy", "sqlglot", "math-verify"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found | {"sqlite": sqlite3.sqlite_version}


class RunDir:
    """An open run directory."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path, self.manifest = path, manifest

    @classmethod
    def start(
        cls, out: str, stage: str, config: Any, *, resume: bool = False, versions: Mapping[str, str] | None = None
    ) -> "RunDir":
        """Create the directory, or open it again with `resume`, and lock it until the run is finished or the process
        ends.

        versions: of what the stage depends on besides Python and packages, such as its verifiers' rules.

        A directory whose run failed before it got anywhere, such as for a mistyped path, counts as new. What a killed
        process left half written is removed.

        Raises UserError when no directory is named, when it cannot be written, when another process works there, when
        it already holds a run and `resume` is not set, or when the settings, or a Python file that they name, differ
        from those it was started with.
        """
        if not out:
            raise UserError("no run directory was named; add --out DIRECTORY")
        path, versions = Path(out), package_versions() | dict(versions or {})
        if (path / "manifest.json").exists() and not _got_nowhere(path):
            if not resume:
                raise UserError(f"{path} already holds a run; add --resume to go on with it, or name another --out")
            run = cls.open(path, stage)
            before = from_dict(type(config), run.settings(), f"the settings of {path}")
            if run.format == 1 and hasattr(config, "plugins"):  # it did not record them
                before = dataclasses.replace(before, plugins=config.plugins)
            changed = differences(_comparable(before), _comparable(config))
            if changed:
                raise UserError(f"{path} was started with other settings ({'; '.join(changed)}); name another --out")
            if not run.complete:
                check_code(path, run.manifest.get("code"), config)
                run._take_over(versions)
            return run
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock(path)
            remove_leftovers(path)
            write_atomically(path / "config.toml", to_toml(config))
            run = cls(path, {"format": FORMAT, "stage": stage, "status": "running", "versions": versions})
            run.update(code=code_hashes(config))
        except OSError as error:
            raise UserError(f"cannot write to the run directory {path}: {error.strerror or error}") from error
        return run

    def _take_over(self, now: Mapping[str, str]) -> None:
        """Lock and tidy the directory of an interrupted run, and say what is no longer as it was."""
        try:
            lock(self.path)
            for folder in (self.path, self.path / "checkpoints"):
                remove_leftovers(folder)
        except OSError as error:
            raise UserError(f"cannot write to the run directory {self.path}: {error.strerror or error}") from error
        before = self.manifest.get("versions")
        changed = differences(before, now) if isinstance(before, dict) else []
        if changed:
            say(
                f"other versions than at the start ({'; '.join(changed)}): the run goes on, but not bit by bit the same"
            )

    @classmethod
    def open(cls, path: Path, stage: str) -> "RunDir":
        """Open an existing run of a stage. Raises UserError when there is none."""
        try:
            manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        except OSError as error:
            raise UserError(f"{path} is not a run directory of `dph {stage}`: it has no manifest.json") from error
        except ValueError as error:
            raise UserError(f"{path / 'manifest.json'} is damaged ({error}); run `dph {stage}` again") from error
        if not isinstance(manifest, dict) or manifest.get("stage") != stage:
            found = manifest.get("stage") if isinstance(manifest, dict) else manifest
            raise UserError(f"{path} holds a run of `dph {found}`, not of `dph {stage}`")
        run = cls(path, manifest)
        if not isinstance(run.format, int) or not 1 <= run.format <= FORMAT:
            raise UserError(
                f"{path} has run format {run.format!r}, but this version of DPH-RL reads formats 1 to {FORMAT}; use "
                "the version that wrote it, or update dph-rl"
            )
        return run

    @property
    def format(self) -> Any:
        """Version of the directory's layout; those written before formats were numbered have 1."""
        return self.manifest.get("format", 1)

    def settings(self) -> dict[str, Any]:
        """The resolved settings in config.toml, in today's names. Raises UserError when they cannot be read."""
        found = read_toml(self.path / "config.toml")
        return migrated(str(self.manifest.get("stage")), found) if self.format == 1 else found

    @property
    def complete(self) -> bool:
        return self.manifest.get("status") == "complete"

    def update(self, **facts: Any) -> None:
        """Add facts to the manifest and write it."""
        self.manifest.update(facts)
        write_atomically(self.path / "manifest.json", json.dumps(self.manifest, indent=2, ensure_ascii=False) + "\n")

    def finish(self, **facts: Any) -> None:
        """Mark the run complete and give its directory free."""
        self.update(status="complete", **facts)
        unlock(self.path)

    def log(self, step: int, metrics: Mapping[str, float], timings: Mapping[str, float] | None = None) -> None:
        """Append one line to metrics.jsonl, and one to timings.jsonl."""
        _append(self.path / "metrics.jsonl", {"step": step, **metrics})
        if timings:
            _append(self.path / "timings.jsonl", {"step": step, **timings})

    def sync(self) -> None:
        """Have the logged lines on the disk, before a checkpoint that lies after them is."""
        for name in ("metrics.jsonl", "timings.jsonl"):
            if (self.path / name).exists():
                sync(self.path / name)

    def rewind(self, step: int) -> None:
        """Drop logged lines after a step: what was logged between the last checkpoint and an interruption."""
        for name in ("metrics.jsonl", "timings.jsonl"):
            path = self.path / name
            if path.is_file():
                kept = [line for line in _valid_lines(path) if json.loads(line)["step"] <= step]
                write_atomically(path, "".join(line + "\n" for line in kept))


def _got_nowhere(path: Path) -> bool:
    """Whether a run directory holds nothing but what starting a run writes."""
    names = {entry.name for entry in path.iterdir() if not entry.name.endswith(".tmp")}
    if names - {"config.toml", "manifest.json", "inputs.json", "tensorboard", LOCK}:
        return False
    return '"status": "running"' in (path / "manifest.json").read_text(encoding="utf-8", errors="replace")


def read_metrics(path: Path, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    """The logged lines of a run, oldest first; empty when there are none. What was not finite is NaN."""
    file = path / name
    rows = [json.loads(line) for line in _valid_lines(file)] if file.is_file() else []
    return [{key: math.nan if value is None else value for key, value in row.items()} for row in rows]


def _valid_lines(path: Path) -> list[str]:
    """Lines up to the first that is not one of a run: an interruption may have cut the last one short."""
    lines = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(row, dict) or not isinstance(row.get("step"), int) or not all(map(_is_number, row.values())):
            break
        lines.append(line)
    return lines


def _is_number(value: object) -> bool:
    return value is None or isinstance(value, int | float)


def _append(path: Path, row: Mapping[str, Any]) -> None:
    finite = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()
    }
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(finite, ensure_ascii=False, allow_nan=False) + "\n")


def _comparable(config: Any) -> dict[str, Any]:
    """Settings as they compare on resume: where the directory lies is no setting."""
    settings = to_dict(config)
    settings.pop("out", None)
    return settings
