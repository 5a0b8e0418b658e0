"""The database files of SQL problems: as their last commit left them, and identified by a hash of their content."""

import atexit
import hashlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from dph.errors import DataError, UserError
from dph.runs.files import Stamp, file_stamp
from dph.types import Problem

Databases = tuple[tuple[str, str], ...]
"""(URI, hash of the content) of every database on which a prediction must match the gold, the problem's own first."""

_MOST_HASHED = 256 << 20  # bytes; the content of larger files is not read
_MOST_COPIED = 1 << 30  # bytes


class MissingDatabase(DataError):
    """A database file is missing, unreadable, truncated, or not a file."""


def database_finder() -> Callable[[Problem], Databases]:
    """A function that returns a problem's databases, those with equal content once; for one batch, because it looks at
    each file once, and reads a file again only if its size or modification time has changed.

    It raises UserError if the problem names none, MissingDatabase for a file that cannot be used.
    """
    located = cache(database)

    def databases(problem: Problem) -> Databases:
        distinct: dict[str, tuple[str, str]] = {}
        for found in map(located, paths(problem.id, problem.meta)):
            distinct.setdefault(found[1], found)
        return tuple(distinct.values())

    return databases


def database(path: str) -> tuple[str, str]:
    """The URI under which SQLite reads a database file and writes nothing, and a hash of its content.

    A database with a log (a write-ahead log, or the journal of a transaction that was cut off) is read from a copy in a
    temporary folder, to which SQLite has applied the log. Raises MissingDatabase for a file that cannot be used.
    """
    try:
        stamp = file_stamp(path)
        return _identified(path, stamp, os.getpid() if len(stamp) > 1 else 0)
    except FileNotFoundError as error:
        raise MissingDatabase(f"no database file at {path}") from error
    except (OSError, sqlite3.Error) as error:
        raise MissingDatabase(f"the database file {path} cannot be read: {error}") from error


@lru_cache(65536)
def _identified(path: str, stamp: Stamp, process: int) -> tuple[str, str]:
    file = stamp[0][0] if len(stamp) == 1 else _with_log_applied(path, stamp, process)
    with open(file, "rb") as stream:
        size, whole = os.path.getsize(file), _size_by_header(stream.read(100))
        if size < whole:
            raise MissingDatabase(f"the database file {path} is cut short: it has {size} of {whole} bytes")
        stream.seek(0)
        large = size > _MOST_HASHED
        digest = hashlib.blake2b(repr(stamp).encode()) if large else hashlib.file_digest(stream, "blake2b")
    return f"{Path(file).as_uri()}?mode=ro&immutable=1", digest.hexdigest()[:32]


def _size_by_header(header: bytes) -> int:
    """The bytes that a SQLite file's first 100 declare, or 0; SQLite would read a missing end as empty pages."""
    said = header[:16] == b"SQLite format 3\0" and header[24:28] == header[92:96]
    page = int.from_bytes(header[16:18], "big")
    return int.from_bytes(header[28:32], "big") * (65536 if page == 1 else page) if said else 0


def _with_log_applied(path: str, stamp: Stamp, process: int) -> str:
    """A copy of a database to which SQLite has applied the log; it lasts as long as this process."""
    if sum(size for *_, size, _ in stamp) > _MOST_COPIED:
        raise MissingDatabase(
            f"the database {path} has a log next to it and is too large for a copy; apply the log: "
            f"sqlite3 {path} 'PRAGMA wal_checkpoint(TRUNCATE)'"
        )
    copy = os.path.join(tempfile.mkdtemp(dir=_copies(process)), "copy.sqlite")
    for file, *_ in stamp:
        shutil.copyfile(file, copy + file.removeprefix(stamp[0][0]))
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        [mode] = connection.execute("PRAGMA journal_mode = DELETE").fetchone()
    if mode != "delete" or file_stamp(path) != stamp:
        raise MissingDatabase(f"the database {path} is being written; try again when that has ended")
    return copy


@cache
def _copies(process: int) -> str:
    folder = tempfile.mkdtemp(prefix="dph-databases-")
    atexit.register(lambda: process == os.getpid() and shutil.rmtree(folder, ignore_errors=True))
    return folder


def paths(problem_id: str, meta: Mapping[str, Any]) -> list[str]:
    """Paths of a problem's databases: meta["db"] and then the list meta["suite"], if it has one.

    Raises UserError if they are missing or of another type.
    """
    path, suite = meta.get("db"), meta.get("suite", ())
    if not isinstance(path, str | os.PathLike):
        fault = "no database path" if path is None else f"{path!r:.60}, not a database path,"
        raise UserError(f"problem {problem_id!r} is judged as SQL but its meta has {fault} under 'db'")
    suite = suite.tolist() if hasattr(suite, "tolist") else suite
    if not isinstance(suite, list | tuple) or not all(isinstance(file, str | os.PathLike) for file in suite):
        raise UserError(f"problem {problem_id!r}: 'suite' in its meta must be a list of database paths")
    return [os.fsdecode(file) for file in (path, *suite)]
