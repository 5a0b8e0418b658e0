"""The standard streams of a command. Writing to them never fails because a reader has left, and a terminal is sent no
control characters from the texts that are written."""

import contextlib
import errno
import io
import os
import re
import select
import stat
import sys
from typing import Any

from dph.errors import visible

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def keep_streams() -> None:
    """Replace the standard streams of this process by streams that last.

    A second call changes nothing. A stream that the program has replaced itself stays, as in notebooks and test
    runners.

    * A stream that was closed before the process began becomes the null device, so that no other file gets its number.
    * Once the reader of standard output or standard error has left, or its terminal is gone, everything that this
      process and its children write to it is dropped.
    * Characters that a terminal would obey are replaced in the texts that are written (see `SafeText`).
    * Other errors, such as a full disk, are raised for standard output, which carries results. They are OSErrors with
      the file name "standard output". Standard error carries messages and progress, which are then dropped.
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
    """The file of a standard stream, for writing. Errors are handled as `keep_streams` describes."""

    def write(self, data: Any, /) -> int:
        size = memoryview(data).nbytes
        try:
            while (written := super().write(data)) is None:  # another process made a shared terminal non-blocking
                select.select([], [self], [])
            return written
        except OSError as error:
            gone = error.errno in (errno.EPIPE, errno.EBADF) or (error.errno == errno.EIO and not self._is_regular())
            _to_nowhere(self.fileno())  # Python would also try to write again as it ends
            if self.fileno() == 1 and not gone:
                raise OSError(error.errno, error.strerror, "standard output") from error
            return size

    def _is_regular(self) -> bool:
        return stat.S_ISREG(os.fstat(self.fileno()).st_mode)


LINES = "\n\t"
"""The control characters that a text of several lines may contain."""
_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""A colour or a movement of the cursor, as the progress bars of libraries print it."""


class SafeText(io.TextIOWrapper):
    """A standard stream that writes no characters that a terminal would obey."""

    @classmethod
    def over(cls, before: Any, file: Any) -> "SafeText":
        """A `SafeText` that writes to a file, with the settings of an existing stream."""
        named = {name: getattr(before, name) for name in ("encoding", "errors", "line_buffering", "write_through")}
        return cls(file, **named)

    def write(self, text: str, /) -> int:
        """Write a text. The progress bar of another library stays readable: it begins with a carriage return, which is
        kept, and its movements of the cursor are left out."""
        bar = "\r" if text[:1] == "\r" else ""
        plain = _SEQUENCE.sub("", text[len(bar) :]).replace("\r\n", "\n")
        super().write(bar + visible(plain, LINES))
        return len(text)

    def write_drawn(self, text: str, /) -> int:
        """Write a text that rich has drawn. Its colours and movements of the cursor are kept. Other control characters
        are replaced."""
        passed, plain = [*_SEQUENCE.findall(text), ""], _SEQUENCE.split(text)
        pairs = zip((visible(part, LINES + "\r") for part in plain), passed, strict=True)
        super().write("".join(part for pair in pairs for part in pair))
        return len(text)


class Drawn:
    """A standard stream for a console of rich. The stream is looked up by its name at each write, so that it is always
    the present one."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _stream(self) -> Any:
        stream = getattr(sys, self._name)
        return getattr(stream, "rich_proxied_file", stream)  # while a bar is shown, rich stands in front of it

    def write(self, text: str) -> int:
        stream = self._stream()
        return stream.write_drawn(text) if isinstance(stream, SafeText) else stream.write(text)

    def flush(self) -> None:
        self._stream().flush()

    def isatty(self) -> bool:
        return self._stream().isatty()

    def fileno(self) -> int:
        return self._stream().fileno()

    @property
    def encoding(self) -> str:
        return self._stream().encoding


def _lasting(number: int, before: Any) -> io.TextIOWrapper:
    with contextlib.suppress(OSError):
        before.flush()
    file = _LastingFile(number, "w", closefd=False)
    unbuffered = isinstance(before.buffer, io.FileIO)  # python -u
    return SafeText.over(before, file if unbuffered else io.BufferedWriter(file))


def _to_nowhere(number: int) -> None:
    """Let a file descriptor, open or not, refer to the null device, for this process and its children."""
    null = os.open(os.devnull, os.O_RDWR)
    if null == number:
        os.set_inheritable(null, True)
    else:
        os.dup2(null, number)
        os.close(null)
