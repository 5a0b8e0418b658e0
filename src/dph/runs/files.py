"""Files and directories of runs: atomic writing and removal, so that a reader never sees a partial result, locks on
directories, which the operating system releases when the owning process ends, and the cache.

A temporary file or directory is named `.NAME.new.PID.N.tmp` (`.old.` while it is removed) and is locked by the process
that uses it. The system releases the lock when the process ends, even if it is killed. So a temporary file without a
lock is abandoned, and the next process that writes into the same directory removes it.
"""

import atexit
import contextlib
import fcntl
import hashlib
import itertools
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from dph.config.files import is_regular, opened, read_bytes
from dph.errors import RunError
from dph.process.places import check_place
from dph.process.progress import say

TEMPORARY = re.compile(r"\.([^/]+)\.(?:new|old)\.(\d+)(?:\.\d+)?\.tmp", re.DOTALL)
"""The names of temporary files and directories. The groups are the name of the final file and the id of the process."""
_numbers = itertools.count()


Stamp = tuple[tuple[str, int, int, int], ...]
"""The path, the inode, the size and the modification time (ns) of a file and of the files that belong to it. If the
content changes, the stamp changes."""


def file_stamp(path: str) -> Stamp:
    """The stamp of a file. The stamp of a SQLite database includes the logs next to it that are not empty: they hold
    committed rows, or a transaction that was cut off.

    Raises OSError for a missing file, and for a file that is not regular, because reading it might never end.
    """
    try:
        file = os.path.realpath(path)  # SQLite looks for logs next to the file behind a link
        stats = [(name, os.stat(name)) for name in (file, f"{file}-wal", f"{file}-journal") if os.path.lexists(name)]
    except ValueError as error:  # a path with NUL
        raise OSError(str(error)) from error
    if not stats or stats[0][0] != file:
        raise FileNotFoundError(f"there is no file {path}")
    for name, status in stats:
        if not is_regular(status):
            raise OSError(f"{name} is not a regular file")
    return tuple((n, s.st_ino, s.st_size, s.st_mtime_ns) for n, s in stats if n == file or s.st_size)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file. A text is written as UTF-8. A reader sees either the old content or the new content."""
    with written_atomically(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def say_other_files(folder: Path, what: str) -> None:
    """Say which files a folder already holds before something is written into it. what: the thing that is written, with
    its verb."""
    if names := sorted(entry.name for entry in folder.iterdir()):
        say(f"{folder} holds other files ({', '.join(names[:3])}); {what} written into the same folder")


def check_replaced(files: Iterable[Path], mark: str, by: str, flag: str = "--out") -> None:
    """Raise RunError if one of the files exists without the mark that `by` puts into the files that it writes. The file
    then belongs to somebody else, and would be replaced. flag: the option that names another place."""
    for file in files:
        if os.path.lexists(file) and not _has(file, mark):
            reason = f"{file} is there already and would be replaced, but it was not written by {by}"
            raise RunError(f"{reason}; name another place with {flag}")


def check_unchanged(texts: Mapping[Path, str]) -> None:
    """Raise RunError if one of the files exists with another text than the given one, because somebody may have changed
    it by hand."""
    for file, text in texts.items():
        if os.path.lexists(file) and not _is(file, text):
            reason = f"{file} is there already and would be replaced by another text"
            raise RunError(f"{reason}; move it away, or name another directory with --out")


def _has(file: Path, mark: str) -> bool:
    try:
        return mark.encode() in read_bytes(file)
    except OSError:
        return False


def _is(file: Path, text: str) -> bool:
    try:
        return read_bytes(file) == text.encode()
    except OSError:
        return False


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Context in which errors of the system name a file. Some name none, such as the error of writing to an open file
    on a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno and error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def written_atomically(path: Path) -> Iterator[Path]:
    """Context that yields the path of a temporary file, which the block writes. The file replaces `path` if the block
    succeeds, and is deleted if it fails.

    When the context ends, the content and the new name are on the disk. Raises RunError if `path` lies behind a link
    within a folder that this process was given.
    """
    check_place(path)
    remove_leftovers(path.parent)
    temporary = _temporary(path)
    with naming(path), _held(temporary, temporary.touch):
        try:
            yield temporary
            sync(temporary)
            os.replace(temporary, path)
            sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def directory_written_atomically(path: Path) -> Iterator[Path]:
    """Context that yields a temporary directory. It replaces `path` if the block succeeds, and is deleted if it fails.

    When the context ends, the files, the directories and the new name are on the disk.
    """
    with drafted_directory(path) as temporary:
        yield temporary
        for entry in [*temporary.rglob("*"), temporary]:
            sync(entry)
        remove_atomically(path)
        os.replace(temporary, path)
        sync(path.parent)


@contextmanager
def drafted_directory(path: Path) -> Iterator[Path]:
    """Context that yields a new directory next to `path`. It is deleted after the block, unless the block renames it.

    Raises RunError if `path` lies behind a link within a folder that this process was given.
    """
    check_place(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path.parent)
    temporary = _temporary(path)
    with _held(temporary, temporary.mkdir):
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def remove_atomically(path: Path) -> None:
    """Remove a directory if it exists. A reader finds the directory either complete or not at all."""
    if path.is_symlink():  # the target belongs to whoever made the link
        path.unlink()
    elif path.exists():
        temporary = _temporary(path, "old")
        with _locked(path, fcntl.LOCK_NB):
            os.replace(path, temporary)
            shutil.rmtree(temporary)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files and directories in a folder whose processes have ended. The files of living processes
    stay. The folder need not exist."""
    for entry in folder.glob(".*.tmp"):
        if (match := TEMPORARY.fullmatch(entry.name)) is None:
            continue
        with _locked(entry, fcntl.LOCK_NB) as locked:  # until it is gone: a living process may have just created it
            if locked or (locked is None and _has_ended(int(match[2]))):
                shutil.rmtree(entry, ignore_errors=True)
                with contextlib.suppress(OSError):  # it was a directory, or belongs to somebody else
                    entry.unlink()


@contextmanager
def appended(path: Path) -> Iterator[BinaryIO]:
    """Context that yields a file to append to, which is named in errors. Raises OSError for a link, because the link
    could lead out of the run directory."""
    check_place(path)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    with naming(path), os.fdopen(os.open(path, flags, 0o666), "ab") as file:
        yield file


def sha256(path: Path) -> str:
    """The SHA-256 of a file, as hexadecimal digits."""
    with naming(path), opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Flush the content of a file, or the entries of a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _temporary(path: Path, what: str = "new") -> Path:
    return path.with_name(f".{path.name}.{what}.{os.getpid()}.{next(_numbers)}.tmp")


@contextmanager
def _held(temporary: Path, create: Callable[[], None]) -> Iterator[None]:
    """Context in which a temporary file or directory exists and is locked, so that no other process removes it."""
    shutil.rmtree(temporary, ignore_errors=True)  # an earlier process with this id may have left it
    while True:
        create()
        with _locked(temporary) as locked:
            if locked is not False:  # otherwise another process found and removed it first
                yield
                return


@contextmanager
def _locked(path: Path, flags: int = 0) -> Iterator[bool | None]:
    """Context in which a path is locked. Yields whether this process has the lock and the path still is the file that
    was locked, or None if nothing can be locked there.

    flags: with LOCK_NB, the lock is not waited for. A forked process keeps the locks of its parent, perhaps for long.
    """
    descriptor, locked = -1, None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        fcntl.flock(descriptor, fcntl.LOCK_EX | flags)
        locked = os.path.samestat(os.fstat(descriptor), path.stat())
    except (BlockingIOError, FileNotFoundError):
        locked = False
    except OSError:
        pass
    try:
        yield locked
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _has_ended(process: int) -> bool:
    """Whether no process of this machine has this id. This decides where nothing can be locked."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:  # the process of another user
        pass
    return False


def cache_folder() -> Path:
    """The folder that keeps generated worlds and models between runs: $DPH_CACHE if it is set, and otherwise `dph` in
    the cache folder of the user ($XDG_CACHE_HOME or ~/.cache)."""
    named = os.environ.get("DPH_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dph"


LOCK = ".lock"
"""The name of the file by which a directory is locked."""
_locks_held: dict[tuple[int, Path], int] = {}
"""The file descriptors of held locks, by the id of the process and the path of the lock file. A forked child holds
none."""


def lock(folder: Path) -> None:
    """Lock a directory until `unlock` is called or this process ends. Nothing happens if this process has locked it
    already.

    Raises UserError, with the name of the owner, if another process holds the lock, and OSError if the lock file cannot
    be created.
    """
    check_place(folder / LOCK)
    if owner := _take(folder):
        raise RunError(f"{folder} is in use by {owner}; wait until it ends, or use a different --out")


def unlock(folder: Path) -> None:
    file = Path(os.path.realpath(folder)) / LOCK
    descriptor = _locks_held.pop((os.getpid(), file), None)
    if descriptor is not None:
        with contextlib.suppress(OSError):  # the directory may be gone
            file.unlink()
        os.close(descriptor)


def _take(folder: Path) -> str:
    """Try to take the lock of a directory. Returns the owner of the lock, or "" if this process now holds it or the
    file system has no locks."""
    file = Path(os.path.realpath(folder)) / LOCK
    if (os.getpid(), file) in _locks_held:
        return ""
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)  # the target of a link stays
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
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), file.stat()):
                break
        os.close(descriptor)  # the owner before removed the file after it was opened here and before it was locked
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    _locks_held[os.getpid(), file] = descriptor
    return ""


@atexit.register
def _unlock_all() -> None:
    for _, file in list(_locks_held):
        unlock(file.parent)
