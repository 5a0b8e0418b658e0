"""Standard streams that outlast their reader (standard library only): a process whose output nobody takes any more does
its work all the same."""

import contextlib
import errno
import io
import os
import select
import stat
import sys
from typing import Any

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def keep_streams() -> None:
    """Replace the standard streams of this process by streams that last; does nothing the second time.

    * A stream that was closed before the process began is the null device, so that no other file gets its number.
    * Once standard output or standard error cannot be written, because its reader has left or its terminal is gone,
      all that this process and its children write to it is dropped.
    * Other errors, as of a full disk, are raised for standard output, which has results, as OSError with the file name
      "standard output". Standard error has messages and progress, which are dropped then too.

    Streams that the program has replaced itself, as notebooks and test runners do, stay as they are.
    """
    for number, (name, mode) in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            _to_nowhere(number)
        before: Any = getattr(sys, name)
        if before is not getattr(sys, f"__{name}__"):
            continue
        if before is None:
            before = open(number, mode, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
            setattr(sys, name, before)
        if mode == "w" and isinstance(getattr(before.buffer, "raw", before.buffer), io.FileIO):
            setattr(sys, name, _lasting(number, before))


class _LastingFile(io.FileIO):
    """A standard stream's file for writing."""

    def write(self, data: Any, /) -> int:
        size = memoryview(data).nbytes
        try:
            while (written := super().write(data)) is None:  # another process made a shared terminal non-blocking
                select.select([], [self], [])
            return written
        except OSError as error:
            gone = error.errno in (errno.EPIPE, errno.EBADF) or (error.errno == errno.EIO and not self._is_regular())
            _to_nowhere(self.fileno())  # also because Python tries again as it ends
            if self.fileno() == 1 and not gone:
                raise OSError(error.errno, error.strerror, "standard output") from error
            return size

    def _is_regular(self) -> bool:
        return stat.S_ISREG(os.fstat(self.fileno()).st_mode)


def _lasting(number: int, before: Any) -> io.TextIOWrapper:
    with contextlib.suppress(OSError):
        before.flush()
    file = _LastingFile(number, "w", closefd=False)
    unbuffered = isinstance(before.buffer, io.FileIO)  # python -u
    return io.TextIOWrapper(
        file if unbuffered else io.BufferedWriter(file),  # type: ignore[arg-type]
        encoding=before.encoding,
        errors=before.errors,
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )


def _to_nowhere(number: int) -> None:
    """Let a descriptor, open or not, mean the null device, for this process and its children."""
    null = os.open(os.devnull, os.O_RDWR)
    if null == number:
        os.set_inheritable(null, True)
    else:
        os.dup2(null, number)
        os.close(null)
