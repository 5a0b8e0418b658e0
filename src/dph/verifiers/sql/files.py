"""The database files of SQL problems, identified by a hash of their content."""

import hashlib
import stat
import threading
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from dph.errors import UserError
from dph.types import Problem

Databases = tuple[tuple[str, str], ...]
"""(URI, hash of the content) of every database on which a prediction must match the gold, the problem's own first."""


class MissingDatabase(Exception):
    """A database file is missing, unreadable or truncated."""


class DatabaseFiles:
    """Finds and hashes files; a file is read again only if its size or modification time has changed."""

    def __init__(self) -> None:
        self._hashes: dict[str, tuple[tuple[int, int], str]] = {}
        self._lock = threading.Lock()

    def batch(self) -> Callable[[Problem], Databases]:
        """A function that returns a problem's databases, those with equal content once; for one batch, because it looks
        at each file once.

        It raises UserError if the problem names none, MissingDatabase if a file is missing.
        """
        locate = cache(self._locate)

        def databases(problem: Problem) -> Databases:
            distinct: dict[str, tuple[str, str]] = {}
            for path in paths(problem.id, problem.meta):
                uri, digest = locate(path)
                if not digest:
                    raise MissingDatabase(f"no database file at {path}")
                distinct.setdefault(digest, (uri, digest))
            return tuple(distinct.values())

        return databases

    def _locate(self, path: str) -> tuple[str, str]:
        """(URI, hash) of a file; the hash is empty if the file is missing. Raises MissingDatabase for a truncated
        file."""
        file = Path(path).absolute()
        try:
            status = file.stat()
            if not stat.S_ISREG(status.st_mode):  # reading a pipe or a device might never end
                return file.as_uri(), ""
            stamp = (status.st_size, status.st_mtime_ns)
            with self._lock:
                known = self._hashes.get(path)
                if known is None or known[0] != stamp:
                    with file.open("rb") as stream:
                        whole = _size_by_header(stream.read(100))
                        if status.st_size < whole:
                            raise MissingDatabase(
                                f"the database file {path} is cut short: it has {status.st_size} of {whole} bytes"
                            )
                        stream.seek(0)
                        known = (stamp, hashlib.file_digest(stream, "blake2b").hexdigest()[:32])
                    self._hashes[path] = known
            digest = known[1]
        except OSError:
            digest = ""
        return f"{file.as_uri()}?mode=ro&immutable=1", digest


def _size_by_header(header: bytes) -> int:
    """Size in bytes that the first 100 bytes of a SQLite file declare; 0 if they declare none. SQLite would read the
    missing end of a file as empty pages."""
    said = header[:16] == b"SQLite format 3\0" and header[24:28] == header[92:96]
    page = int.from_bytes(header[16:18], "big")
    return int.from_bytes(header[28:32], "big") * (65536 if page == 1 else page) if said else 0


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
