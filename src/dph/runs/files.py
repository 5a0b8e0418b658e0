"""Files and directories that a reader never finds half written."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old content or the new, never a part."""
    temporary = _temporary(path)
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync(path.parent)


@contextmanager
def directory_written_atomically(path: Path) -> Iterator[Path]:
    """A temporary directory that takes the name `path` when the block ends without an error, and vanishes otherwise.

    Files, directories and the new name are on the disk when this returns; a directory that had the name makes way.
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
    """Remove a directory, if it is there, so that nobody ever finds a part of it under its name."""
    if path.exists():
        temporary = _temporary(path, "old")
        os.replace(path, temporary)
        shutil.rmtree(temporary)


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed process was writing in a directory. Only its one user may call this."""
    for entry in folder.glob(".*.tmp"):
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def sync(path: Path) -> None:
    """Have the content of a file, or the names in a directory, written to the disk."""
    if os.name == "nt" and path.is_dir():  # Windows keeps directories itself and opens none
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _temporary(path: Path, what: str = "new") -> Path:
    return path.with_name(f".{path.name}.{what}.{os.getpid()}.tmp")
