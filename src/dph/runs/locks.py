"""Locks on directories, which the operating system releases when the owning process ends, even if it is killed."""

import atexit
import contextlib
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dph.errors import UserError
from dph.process.progress import say

try:
    import fcntl
except ImportError:  # Windows: directories are not locked
    fcntl = None

NAME = ".lock"
_POLL_SECONDS = 0.5
_held: dict[tuple[int, Path], int] = {}
"""File descriptors of held locks, by process id and path of the lock file; a forked child holds none."""


def lock(folder: Path) -> None:
    """Lock a directory until `unlock` or the end of this process; does nothing if this process already holds the lock.

    Raises UserError naming the owner if another process holds the lock, and OSError if the lock file cannot be created.
    """
    if owner := _take(folder):
        raise UserError(f"{folder} is in use by {owner}; wait until it ends, or use a different --out")


def unlock(folder: Path) -> None:
    """Release the lock on a directory."""
    file = folder.resolve() / NAME
    descriptor = _held.pop((os.getpid(), file), None)
    if descriptor is not None:
        with contextlib.suppress(OSError):  # the directory may be gone
            file.unlink()
        os.close(descriptor)


@contextmanager
def waiting_for(folder: Path) -> Iterator[None]:
    """Hold the lock on a directory, waiting for its current owner first. Raises OSError as `lock` does."""
    told = False
    while owner := _take(folder):
        if not told:
            say(f"waiting for {owner}, which is using {folder}")
        told = True
        time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        unlock(folder)


def _take(folder: Path) -> str:
    """Try to take the lock; returns its owner, or an empty string if this process now holds it."""
    file = folder.resolve() / NAME
    if fcntl is None or (os.getpid(), file) in _held:
        return ""
    while True:
        descriptor = os.open(
            file, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644
        )  # a link's target stays as it is
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
            os.close(descriptor)
            return owner or "another process"
        except OSError:
            os.close(descriptor)
            say(f"{folder} is on a file system without locks; make sure that no other run writes to it")
            return ""
        if _is_still(descriptor, file):
            break
        os.close(descriptor)  # its previous owner removed the file after we opened it and before we locked it
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    _held[os.getpid(), file] = descriptor
    return ""


def _is_still(descriptor: int, file: Path) -> bool:
    try:
        return os.fstat(descriptor).st_ino == file.stat().st_ino
    except OSError:
        return False


@atexit.register
def _unlock_all() -> None:
    for _, file in list(_held):
        unlock(file.parent)
