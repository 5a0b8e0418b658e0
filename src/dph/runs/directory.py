"""Run directories. Each stage has one, with the resolved settings, a manifest, metrics, and the outputs of the stage.

config.toml     resolved settings; `--config` reads this file
manifest.json   stage, status, versions, and facts that later stages check
metrics.jsonl   one line per step; depends only on the settings and the seed
timings.jsonl   times in seconds and facts about the machine, kept apart so that metrics can be compared byte by byte
chunks.tsv      finished work of a stage that writes its outputs at its end; removed when the run is complete
.lock           present while a process uses the directory; names that process
"""

import contextlib
import json
import math
import os
import shlex
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from dph.config import comparable, differences, from_dict, read_settings, to_dict, to_toml
from dph.config.checks import check_out, is_model_folder, unfinished
from dph.config.files import expanded, read_bytes
from dph.config.text import own_json, read_json
from dph.errors import RunError, refused
from dph.process.interrupts import check_processes
from dph.process.places import check_links, own
from dph.process.progress import say
from dph.runs.files import LOCK, appended, lock, remove_leftovers, say_other_files, sync, unlock, write_atomically
from dph.runs.pinned import ANEW, check_code, code_hashes

T = TypeVar("T")

CHUNKS = "chunks.tsv"
"""The file with the work that a stage has finished, until its run is complete (`dph.runs.chunks`)."""

_OF_RUNS = (
    *("config.toml", "inputs.json", CHUNKS, "metrics.jsonl", "timings.jsonl", "coverage.jsonl", "monitor.jsonl"),
    *("certificate.jsonl", "scores.json", "problems.parquet", "completions.parquet", "verdicts.jsonl"),
    *("partition.parquet", "rehearsal.parquet", "model", "checkpoints", "certified", "samples", "bank"),
)
"""The files and folders that stages write into a run, and would replace there."""
_AT_START = ("config.toml", "inputs.json", "manifest.json")
"""The files that are written when a run starts."""
_new: list[Path] = []
"""The run directories that this process has begun."""

FORMAT = 2
"""The version of the layout of run directories."""


def package_versions() -> dict[str, str]:
    """The versions of Python, SQLite and the packages that a result may depend on."""
    import platform
    from importlib.metadata import PackageNotFoundError, version  # slow to load

    versions = {"python": platform.python_version()}
    for name in ("dph-rl", "torch", "transformers", "tokenizers", "numpy", "sqlglot", "mpmath", "math-verify"):
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions | {"sqlite": sqlite3.sqlite_version}


class RunDir:
    """An open run directory."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path, self.manifest = path, manifest

    @classmethod
    def start(
        cls,
        out: str,
        stage: str,
        config: Any,
        *,
        resume: bool = False,
        versions: Mapping[str, str] | None = None,
        extend: Callable[["RunDir", Any], None] | None = None,
    ) -> "RunDir":
        """Create a run directory, or reopen it if `resume` is set. It is locked until the run is finished or the
        process ends. A run that failed before it produced anything, for example because of a mistyped path, counts as
        new.

        Args:
            out: the path of the run directory.
            stage: the name of the stage.
            config: the settings of the stage.
            resume: whether to continue a run that is already there.
            versions: of other things that the stage depends on, such as the rules of its verifiers.
            extend: takes the run and its old settings, and raises UserError if the run cannot continue for more steps.
                Without this function no run can be extended.
        Raises:
            UserError: no directory is named, it cannot be written, another process uses it, or it holds a run and
                `resume` is not set; or the settings, or a Python file that they name, have changed since the start.
        """
        check_processes(stage)
        check_out(out)
        own(out)
        path, versions, code = Path(out), package_versions() | dict(versions or {}), code_hashes(config)
        if cls.begun(path):
            run = cls.open(path, stage)
            if not resume:
                raise RunError(f"{path} already holds a run; add --resume to continue it, or use a different --out")
            before = from_dict(type(config), run.settings(), f"the settings of {path}")
            changed = differences(_compared(before), _compared(config))
            if changed:
                longer = getattr(config, "steps", 0) > getattr(before, "steps", 0)
                if extend is None or len(changed) > 1 or not longer:
                    reason = f"{path} was started with other settings ({'; '.join(changed)}){unfinished(path)}"
                    raise RunError(f"{reason}; use a different --out for a new run")
                extend(run, before)
            if changed or not run.complete:
                check_code(path, run.manifest.get("code"), code)
                run._take_over(versions)
            if changed:
                run.update(status="running")  # written first: with the old settings, such a run can still be resumed
                write_atomically(path / "config.toml", to_toml(config))
            if run.complete:
                say(f"{path} is complete already")
                (path / CHUNKS).unlink(missing_ok=True)  # a killed run may not have removed them
            return run
        if resume:
            say(f"nothing to resume in {path}: starting a new run")
        try:
            path.mkdir(parents=True, exist_ok=True)
            if not (path / "manifest.json").exists():
                _check_free(path)
            lock(path)
            remove_leftovers(path)
            run = cls(path, {"format": FORMAT, "stage": stage, "status": "running", "versions": versions})
            run.update(code=code, command=_command())  # written first: it marks the other files as those of a run
            _new.append(path)
            write_atomically(path / "config.toml", to_toml(config))
        except OSError as error:
            raise RunError(refused(f"cannot write to the run directory {path}", error)) from error
        return run

    def _take_over(self, now: Mapping[str, str]) -> None:
        """Lock and clean the directory of an interrupted run, and report versions that have changed."""
        try:
            lock(self.path)
            for folder in (self.path, self.path / "checkpoints"):
                remove_leftovers(folder)
        except OSError as error:
            raise RunError(refused(f"cannot write to the run directory {self.path}", error)) from error
        before = self.manifest.get("versions")
        changed = differences(before, now) if isinstance(before, dict) else []
        if changed:
            versions = f"versions have changed since the start ({'; '.join(changed)})"
            say(f"{versions}: the run continues, but its results may not be bit-identical")

    @classmethod
    def open(cls, path: Path, stage: str = "") -> "RunDir":
        """Open an existing run of a stage, or of any stage if `stage` is "". Raises UserError if there is no such run,
        or if a link in its directory leads out of it."""
        wanted = f"`dph {stage}`" if stage else "its stage"
        if not os.path.exists(path / "manifest.json"):  # False also for a path that no file can have
            raise RunError(f"{path} is not a run directory of {wanted}: it has no manifest.json; correct the path")
        manifest = read_json(path / "manifest.json", f"run {wanted} again in another directory")
        made_by = manifest.get("stage") if isinstance(manifest, dict) else None
        if made_by is None:
            raise RunError(f"{path / 'manifest.json'} names no stage; run {wanted} again in another directory")
        if stage and made_by != stage:
            reason = f"{path} holds a run of `dph {made_by}`, not of {wanted}"
            raise RunError(f"{reason}{unfinished(path)}; name another directory")
        check_links(path)
        run = cls(path, manifest)
        if (layout := manifest.get("format", FORMAT)) != FORMAT:
            wrong = f"{path} has run format {layout!r}, but this version of DPH-RL reads format {FORMAT}"
            raise RunError(f"{wrong}; use the version that wrote it, or update dph-rl")
        return run

    @staticmethod
    def begun(path: Path) -> bool:
        """Whether a directory holds a run that has produced anything."""
        return (path / "manifest.json").exists() and not _got_nowhere(path)

    def settings(self) -> dict[str, Any]:
        """The resolved settings in config.toml. Raises UserError if they cannot be read."""
        file = self.path / "config.toml"
        if not file.is_file():
            raise RunError(f"{file} is missing; restore it, or {ANEW}")
        return read_settings(file)

    @property
    def complete(self) -> bool:
        return self.manifest.get("status") == "complete"

    def update(self, **facts: Any) -> None:
        """Add facts to the manifest and write it to the disk."""
        self.manifest.update(facts)
        write_atomically(self.path / "manifest.json", json.dumps(self.manifest, indent=2, ensure_ascii=False) + "\n")

    def kept(self, name: str, choose: Callable[[], T]) -> T:
        """A fact of the manifest that is chosen and written only once, so that a resumed run keeps it on any machine.
        choose: returns the fact if the manifest has none."""
        if name not in self.manifest:
            self.update(**{name: choose()})
        return self.manifest[name]

    def finish(self, **facts: Any) -> None:
        """Mark the run as complete, remove its chunks and unlock its directory."""
        self.update(status="complete", **facts)
        (self.path / CHUNKS).unlink(missing_ok=True)
        unlock(self.path)

    def log(self, step: int, metrics: Mapping[str, float], timings: Mapping[str, float] | None = None) -> None:
        """Append a line to metrics.jsonl and, with `timings`, a line to timings.jsonl. Raises OSError if that fails,
        and also if the run was removed and a checkpoint has created its directory again."""
        (self.path / "manifest.json").stat()
        _append(self.path / "metrics.jsonl", {"step": step, **metrics})
        if timings:
            _append(self.path / "timings.jsonl", {"step": step, **timings})

    def sync(self) -> None:
        """Flush the logged lines to the disk. This must be called before a checkpoint is written."""
        for path in self.path.glob("*.jsonl"):
            sync(path)

    def rewind(self, step: int) -> None:
        """Drop the lines logged after `step`, which were written between the last checkpoint and an interruption."""
        for name in ("metrics.jsonl", "timings.jsonl"):
            drop_lines(self.path / name, step, _has_numbers)


def _command() -> str:
    """The command line of this process; "" if it was not started as `dph`."""
    program = Path(sys.argv[0])
    started = program.name == "dph" or program.parts[-2:] == ("dph", "__main__.py")
    return shlex.join(["dph", *sys.argv[1:]]) if started else ""


def _check_free(path: Path) -> None:
    """Say which files a folder without a run holds. Raises RunError if a stage would replace some of them."""
    if taken := [name for name in _OF_RUNS if os.path.lexists(path / name)]:
        reason = f"{path / taken[0]} is there already and would be replaced, but {path} holds no run"
        raise RunError(f"{reason}; name another --out")
    say_other_files(path, "the run is")


def remove_new() -> None:
    """Remove the runs that this process has begun and that hold only the files of a start, so that a command that is
    refused leaves nothing behind."""
    for path in _new:
        with contextlib.suppress(OSError, RunError):
            if not any((path / name).exists() for name in {*_OF_RUNS} - {*_AT_START}):
                for name in _AT_START:
                    (path / name).unlink(missing_ok=True)
                unlock(path)
                path.rmdir()  # fails if something else is there
    _new.clear()


def _got_nowhere(path: Path) -> bool:
    """Whether a run directory holds only the files that are written when a run starts."""
    names = {entry.name for entry in path.iterdir() if not entry.name.endswith(".tmp")}
    if names - {*_AT_START, "tensorboard", LOCK}:
        return False
    return b'"status": "running"' in read_bytes(path / "manifest.json")


def read_metrics(path: Path, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    """The logged lines of a run, oldest first; an empty list if there are none. Values that were not finite are NaN."""
    rows = takewhile(_has_numbers, (row for _, row in step_lines(path / name)))
    return [{key: math.nan if value is None else value for key, value in row.items()} for row in rows]


def _has_numbers(row: Mapping[str, Any]) -> bool:
    return all(value is None or isinstance(value, int | float) for value in row.values())


def step_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The lines of a log before the first invalid line, each with its content. A missing log has no lines. The last
    line of a log may be cut off."""
    if not path.is_file():
        return
    for line in read_bytes(path).decode(errors="replace").splitlines():
        try:
            row = own_json(line)
        except ValueError:
            return
        if not isinstance(row, dict) or type(row.get("step")) is not int or row["step"] < 0:
            return
        yield line, row


def drop_lines(path: Path, after: int, valid: Callable[[Mapping[str, Any]], bool] = lambda row: True) -> None:
    """Remove the lines of steps after `after` from a log, and all lines from the first line on that is not `valid`. The
    log need not exist."""
    if path.is_file():
        rows = takewhile(lambda pair: valid(pair[1]), step_lines(path))
        kept = [line for line, row in rows if row["step"] <= after]
        write_atomically(path, "".join(line + "\n" for line in kept))


def _append(path: Path, row: Mapping[str, Any]) -> None:
    finite = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()
    }
    with appended(path) as file:
        file.write(f"{json.dumps(finite, ensure_ascii=False, allow_nan=False)}\n".encode())


def _compared(config: Any) -> dict[str, Any]:
    """The settings that are compared on resume: all but the path of the run directory, the settings of the output, and
    the number of workers, which changes no verdict."""
    settings = to_dict(config)
    for name in ("out", "show_samples", "tracker"):
        settings.pop(name, None)
    settings.get("verifier", {}).pop("workers", None)
    return comparable(settings)


# The models of runs --------------------------------------------------------------------------------------------------


class FoundModel(NamedTuple):
    model: str
    """The folder, file or name, as `model.path` takes it."""
    run: Path | None = None
    """The run directory that made the model, or that used it; None if there is none."""


def find_model(path: str) -> FoundModel:
    """The model at a path, which may be a run directory, a checkpoint, or the folder of a model. Any other text is
    taken for the name of a model.

    The model of a run is the final model or, without one, that of the newest checkpoint or, without any, the model that
    the run sampled from. Raises UserError for a run that has no model.
    """
    folder = expanded(path)
    if not folder.is_dir():
        return FoundModel(path)
    if is_run(folder):
        return FoundModel(_model_of(folder), folder)
    if is_model_folder(folder / "model"):
        folder = folder / "model"
    if not is_model_folder(folder):
        return FoundModel(path)
    inside = Path(os.path.realpath(folder))
    above = [inside.parent, *inside.parents[2:3]]  # RUN/model, RUN/certified or RUN/checkpoints/step-…/model
    run = next((place for place in above if inside.name in ("model", "certified") and is_run(place)), None)
    return FoundModel(str(folder), run)


def _model_of(run: Path) -> str:
    for folder in (run / "model", *sorted(run.glob("checkpoints/step-*/model"), reverse=True)):
        if is_model_folder(folder):
            return str(folder)
    opened = RunDir.open(run)
    stage, settings = opened.manifest.get("stage"), opened.settings().get("model")
    path = opened.manifest.get("model") or (settings.get("path") if isinstance(settings, dict) else None)
    if stage in ("presample", "eval") and path and opened.complete:  # the manifest has the absolute path
        return str(path)
    lacking = f"the run {run} of `dph {stage}` has no model{unfinished(run)}"
    raise RunError(f"{lacking}; name a finished run of sft or train, or a model's folder")


def is_run(folder: Path) -> bool:
    return (folder / "manifest.json").is_file() and (folder / "config.toml").is_file()
