"""The database files of SQL problems: as their last commit left them, and identified by a hash of their content."""

import atexit
import hashlib
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

from dph.errors import DataError, UserError
from dph.types import Problem

Databases = tuple[tuple[str, str], ...]
"""(URI, hash of the content) of every database on which a prediction must match the gold, the problem's own first."""

_MOST_HASHED = 256 << 20  # bytes; the content of larger files is not read
_MOST_COPIED = 1 << 30  # bytes
_LOGS = ("-wal", "-journal")
_Stamp = tuple[tuple[str, int, int, int], ...]
"""Path, inode, size and modification time (ns) of a database file, and of its logs that are not empty."""


class MissingDatabase(DataError):
    """A database file is missing, unreadable, truncated, or not a file."""


class DatabaseFiles:
    """Finds and hashes files; a file is read again only if its size or modification time has changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[_Stamp, tuple[str, str]]] = {}

    def batch(self) -> Callable[[Problem], Databases]:
        """A function that returns a problem's databases, those with equal content once; for one batch, because it looks
        at each file once.

        It raises UserError if the problem names none, MissingDatabase for a file that cannot be used.
        """
        locate = cache(self._locate)

        def databases(problem: Problem) -> Databases:
            distinct: dict[str, tuple[str, str]] = {}
            for uri, digest in map(locate, paths(problem.id, problem.meta)):
                distinct.setdefault(digest, (uri, digest))
            return tuple(distinct.values())

        return databases

    def _locate(self, path: str) -> tuple[str, str]:
        """URI and hash of a database."""
        stamp = _stamp(path)
        known = self._known.get(path)
        if known is None or known[0] != stamp:
            known = self._known[path] = stamp, _identified(path, stamp)
        return known[1]


def database_uri(path: str | Path) -> str:
    """The URI under which SQLite reads a database file and writes nothing.

    A database with a log (a write-ahead log, or the journal of a transaction that was cut off) is read from a copy in a
    temporary folder, to which SQLite has applied the log. Raises MissingDatabase for a file that cannot be used.
    """
    return _identified(str(path), _stamp(str(path)))[0]


def _stamp(path: str) -> _Stamp:
    stamps, real = [], path
    for suffix in ("", *_LOGS):
        try:
            real = real if suffix else os.path.realpath(path)  # SQLite looks for logs beside the file behind a link
            status = os.stat(real + suffix)
        except (OSError, ValueError) as error:
            if not suffix:
                raise MissingDatabase(f"no database file at {path}") from error
            continue
        # Reading a pipe, a device or a file of the kernel might never end.
        if not stat.S_ISREG(status.st_mode) or status.st_dev in _kernel_devices():
            raise MissingDatabase(f"the database {path} cannot be used: {real + suffix} is not a regular file")
        if not suffix or status.st_size:
            stamps.append((real + suffix, status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(stamps)


@cache
def _kernel_devices() -> set[int]:
    devices = set()
    for folder in ("/proc", "/sys"):
        with suppress(OSError):
            devices.add(os.stat(folder).st_dev)
    return devices - {os.stat("/").st_dev}


def _identified(path: str, stamp: _Stamp) -> tuple[str, str]:
    """URI and hash of the database whose files have this stamp; of a large one, of the stamp instead of its content."""
    file = stamp[0][0] if len(stamp) == 1 else _with_log_applied(path, stamp)
    try:
        size = os.path.getsize(file)
        with open(file, "rb") as stream:
            whole = _size_by_header(stream.read(100))
            if size < whole:
                raise MissingDatabase(f"the database file {path} is cut short: it has {size} of {whole} bytes")
            stream.seek(0)
            if size > _MOST_HASHED:
                digest = hashlib.blake2b(repr(stamp).encode())
            else:
                digest = hashlib.file_digest(stream, "blake2b")
    except OSError as error:
        raise MissingDatabase(f"no database file at {path} that can be read ({error.strerror})") from error
    return f"{Path(file).as_uri()}?mode=ro&immutable=1", digest.hexdigest()[:32]


def _size_by_header(header: bytes) -> int:
    """Size in bytes that the first 100 bytes of a SQLite file declare; 0 if they declare none. SQLite would read the
    missing end of a file as empty pages."""
    said = header[:16] == b"SQLite format 3\0" and header[24:28] == header[92:96]
    page = int.from_bytes(header[16:18], "big")
    return int.from_bytes(header[28:32], "big") * (65536 if page == 1 else page) if said else 0


_copies: dict[tuple[int, str], tuple[_Stamp, str]] = {}
"""The newest copy of each database with a log, by process."""


def _with_log_applied(path: str, stamp: _Stamp) -> str:
    """A copy of a database, which this process keeps until it ends, to which SQLite has applied the log."""
    known, old = _copies.get((os.getpid(), path), (None, ""))
    if known == stamp:
        return old
    size = sum(bytes_ for _, _, bytes_, _ in stamp)
    if size > _MOST_COPIED:
        raise MissingDatabase(
            f"the database {path} has a log beside it and is too large for a copy ({size >> 20} MB); apply the log: "
            f"sqlite3 {path} 'PRAGMA wal_checkpoint(TRUNCATE)'"
        )
    copy = os.path.join(tempfile.mkdtemp(dir=_folder(os.getpid())), "copy.sqlite")
    try:
        for file, *_ in stamp:
            shutil.copyfile(file, copy + file.removeprefix(stamp[0][0]))
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
            [mode] = connection.execute("PRAGMA journal_mode = DELETE").fetchone()
    except (OSError, sqlite3.Error) as error:
        raise MissingDatabase(f"the log of the database {path} cannot be applied: {error}") from error
    if mode != "delete" or _stamp(path) != stamp:
        raise MissingDatabase(f"the database {path} is being written; try again when that has ended")
    _copies[os.getpid(), path] = stamp, copy
    if old:
        shutil.rmtree(os.path.dirname(old), ignore_errors=True)
    return copy


@cache
def _folder(process: int) -> str:
    """The folder of a process's copies."""
    folder = tempfile.mkdtemp(prefix="dph-databases-")
    atexit.register(lambda: process == os.getpid() and shutil.rmtree(folder, ignore_errors=True))
    return folder


def paths(problem_id: str, meta: Mapping[str, object]) -> list[str]:
    """Paths of a problem's databases: meta["db"] and then the list meta["suite"], if it has one.

    Raises UserError if they are missing or of another type.
    """
    path, suite = meta.get("db"), meta.get("suite", ())
    if not isinstance(path, str):
        raise UserError(f"problem {problem_id!r} is judged as SQL but its meta has no database path under 'db'")
    if not isinstance(suite, list | tuple) or not all(isinstance(file, str) for file in suite):
        raise UserError(f"problem {problem_id!r}: 'suite' in its meta must be a list of database paths")
    return [path, *suite]
