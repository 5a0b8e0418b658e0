"""Files that somebody else wrote: opened only if they are regular files, and read only up to a size.

A pipe, a device or a file that the kernel makes up may never end, or end never to be read; a small packed file may hold
more than the memory does. Every reader of `dph` opens its files here.
"""

import contextlib
import errno
import os
import stat
from functools import cache
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

LARGEST = 2 << 30
"""Bytes of a file that is read as a whole."""
SWELLS, SMALL = 300, 1 << 26
"""What is packed may unpack to this many times its size, or to this many bytes."""
MOST_COLUMNS = 10_000
"""Columns of a table."""


@cache
def _kernel_devices() -> set[int]:
    """The devices whose files the kernel makes up while they are read."""
    return {os.stat(folder).st_dev for folder in ("/proc", "/sys") if os.path.ismount(folder)}


def is_regular(status: os.stat_result) -> bool:
    """Whether a file has an end: it is neither a folder, a pipe, a socket or a device, nor made up by the kernel."""
    return stat.S_ISREG(status.st_mode) and status.st_dev not in _kernel_devices()


def is_made_up(path: Path) -> bool:
    """Whether a file or folder is one that the kernel makes up, as those in /proc and /sys are."""
    try:
        return os.stat(path).st_dev in _kernel_devices()
    except (OSError, ValueError):  # nothing is there
        return False


def opened(path: Path) -> BufferedReader:
    """A file, open to be read. Raises OSError for what is missing, and for what is not a regular file."""
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if is_regular(status):
            # It may have been exchanged since: an open for a pipe must not wait.
            file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
            if is_regular(os.fstat(file.fileno())):
                return file
            file.close()
    except ValueError as error:  # a path with NUL
        raise OSError(str(error)) from error
    raise OSError("it is not a regular file")


def read_bytes(path: Path, most: int = LARGEST) -> bytes:
    """The content of a file. Raises OSError as `opened`, and for a file of more than `most` bytes."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(most + 1) if size <= most else b""
    if size > most or len(content) > most:
        raise OSError(f"it has {max(size, len(content)) >> 20} MB, and at most {most >> 20} MB are read")
    return content


def irregular(folder: Path) -> str:
    """The name of something in a folder, or in the folders below, that is not a regular file: a library that reads the
    folder by itself could wait for a pipe without end. "" without any; a link to nothing is none."""
    for above, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                if not is_regular(os.stat(os.path.join(above, name))):
                    return os.path.relpath(os.path.join(above, name), folder)
    return ""


def most_unpacked(size: int) -> int:
    """The bytes to which a packed file of a size may unpack."""
    return max(SMALL, SWELLS * size)


def most_lines(size: int) -> int:
    """The lines that a packed file of a size may hold: one for each byte, unless it is small. A bomb of line breaks
    takes little memory, but a step of work for each."""
    return most_unpacked(size) // SWELLS


def read_unpacked(stream: BinaryIO, size: int) -> bytes:
    """What a stream of unpacked bytes holds. size: bytes of the packed file. Raises ValueError for far more than it."""
    content = stream.read(min(LARGEST, most_unpacked(size)) + 1)
    if len(content) > min(LARGEST, most_unpacked(size)):
        raise ValueError(f"it unpacks to more than {SWELLS} times its size: too much to read")
    if (lines := content.count(b"\n")) > most_lines(size):
        raise ValueError(f"its {size} bytes unpack to {lines} lines: too much to read")
    return content


def expanded(path: str) -> Path:
    """A path without "~" at its beginning, which stays if no such user has a home."""
    return Path(os.path.expanduser(path))


def text_fault(text: str) -> str:
    """Why a text can be neither a path nor written as UTF-8; "" if it can."""
    if "\0" in text:
        return "holds a NUL character, which no path or setting has"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "is not UTF-8 text"
    return ""
