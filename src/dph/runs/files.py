"""Atomic writing and removal of files and directories: a reader never sees a partial result."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8; a reader sees either the old content or the new content."""
    with written_atomically(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def written_atomically(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file, which replaces `path` if the block succeeds and is deleted if it fails.

    The block writes the file. It and its new name are on the disk when this returns.
    """
    temporary = _temporary(path)
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def directory_written_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary directory, which is renamed to `path` if the block succeeds and deleted if it fails.

    Files, directories and the new name are on the disk when this returns. An existing directory `path` is replaced.
    """
    temporary = _temporary(path)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for entry in [*temporary.rglob("*"), temporary]:
            sync(entry)
        remove_atomically(path)
        os.replace(temporary, path)
        sync(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_atomically(path: Path) -> None:
    """Remove a directory if it exists; a reader finds it either complete or not at all."""
    if path.exists():
        temporary = _temporary(path, "old")
        os.replace(path, temporary)
        shutil.rmtree(temporary)


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files left in a directory by a killed process. The caller must be its only user."""
    for entry in folder.glob(".*.tmp"):
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def sync(path: Path) -> None:
    """Flush the content of a file, or the entries of a directory, to the disk."""
    if os.name == "nt" and path.is_dir():  # Windows cannot open directories and needs no flush of them
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _temporary(path: Path, what: str = "new") -> Path:
    return path.with_name(f".{path.name}.{what}.{os.getpid()}.tmp")
