"""Who is using a directory: a lock that the operating system takes back when its process ends, however it ends."""

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
"""Descriptors of the locks that a process holds, by its id (a fork holds none) and the lock file's path."""


def lock(folder: Path) -> None:
    """Take a directory for this process until `unlock` or its end; nothing happens where it holds the lock already.

    Raises UserError naming the process that has it, and OSError where no file can be made in it.
    """
    if owner := _take(folder):
        raise UserError(f"{folder} is in use by {owner}; wait until that ends, or name another --out")


def unlock(folder: Path) -> None:
    """Give a directory free."""
    file = folder.resolve() / NAME
    descriptor = _held.pop((os.getpid(), file), None)
    if descriptor is not None:
        with contextlib.suppress(OSError):  # the directory may be gone
            file.unlink()
        os.close(descriptor)


@contextmanager
def waiting_for(folder: Path) -> Iterator[None]:
    """Hold a directory's lock, after waiting for the process that has it. Raises OSError as `lock` does."""
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
    """Try to take the lock; returns who has it, or nothing when it is this process now."""
    file = folder.resolve() / NAME
    if fcntl is None or (os.getpid(), file) in _held:
        return ""
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
            os.close(descriptor)
            return owner or "another process"
        except OSError:
            os.close(descriptor)
            say(f"{folder} lies on a file system without locks: see to it that no second run writes there")
            return ""
        if _is_still(descriptor, file):
            break
        os.close(descriptor)  # its last owner removed the file between our opening and locking it
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
