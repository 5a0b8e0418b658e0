"""Problem sets on disk: a folder of SQLite files and an index, built once and reused while intact."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dph.config.text import read_json
from dph.errors import DataError, UserError
from dph.runs.files import drafted_directory
from dph.tasks.minisql.databases import write_database
from dph.tasks.minisql.world import Sample
from dph.types import Problem

_INDEX = "problems.json"


def stored(folder: Path, split: str, build: Callable[[], Iterable[Sample]]) -> list[Problem]:
    """The problem set in `folder`; it is built first if it is missing or damaged.

    A set is written under a temporary name and then renamed, so that no process ever sees an incomplete set. Raises
    UserError if the folder cannot be written.
    """
    folder = folder.absolute()
    problems = _load(folder)
    if problems is not None:
        return problems
    try:
        with drafted_directory(folder) as draft:
            _write(draft, split, build())
            if _load(folder) is None:  # no other process has built it in the meantime
                shutil.rmtree(folder, ignore_errors=True)
                try:
                    os.rename(draft, folder)
                except OSError:
                    if _load(folder) is None:
                        raise
    except OSError as error:
        raise DataError(
            f"cannot write the databases of minisql under {folder.parent} ({error.strerror or error}); "
            "set the option cache_dir or the variable DPH_CACHE to a writable folder"
        ) from error
    problems = _load(folder)
    assert problems is not None, f"{folder} changed while it was read"
    return problems


def _write(folder: Path, split: str, samples: Iterable[Sample]) -> None:
    entries: list[dict[str, Any]] = []
    for number, sample in enumerate(samples):
        database = folder / f"{number:04d}.sqlite"
        write_database(database, sample.asked.schema, sample.rows)
        meta = {
            "db": database.name,
            "kind": sample.asked.kind.name,
            "convention": sample.asked.kind.convention,
            "ambiguous": sample.ambiguous,
            "reading": "second" if sample.second else "first",
            "phrasing": sample.asked.phrasing,
        }
        entries.append(
            {
                "id": f"minisql/{split}/{number:04d}",
                "prompt": sample.asked.prompt,
                "answer": sample.gold.sql(),
                "meta": meta,
                "sha256": _digest(database),
            }
        )
    (folder / _INDEX).write_text(json.dumps(entries, indent=1), encoding="utf-8")


def _load(folder: Path) -> list[Problem] | None:
    """The problems of a folder; None unless every file is present and unchanged."""
    try:
        entries = read_json(folder / _INDEX)
        if any(_digest(folder / entry["meta"]["db"]) != entry["sha256"] for entry in entries):
            return None
    except (OSError, UserError, KeyError, TypeError):
        return None
    return [
        Problem(e["id"], e["prompt"], e["answer"], "sql", e["meta"] | {"db": str(folder / e["meta"]["db"])})
        for e in entries
    ]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
