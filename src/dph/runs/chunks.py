"""The finished work of a stage that writes its outputs at its end. It is saved as it is done, so that a resumed run
repeats none of it.

Until the run is complete, chunks.tsv has a line for each chunk of work, in the order of the work. The first line is for
the inputs of the run:

    CRC-32 of what follows, continued from the line before ⇥ what ⇥ things in this chunk ⇥ things in all ⇥ JSON

A line counts only if it is whole, and only if all lines before it are whole and in their places. Chunks are the batches
of the stage. A resumed run therefore computes the remaining values in the same batches, with the same rounding. Values
reach the stage through JSON, whether they were computed or read, so that both are the same.
"""

import contextlib
import hashlib
import json
import signal
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from dph.errors import Interrupted, RunError
from dph.process.progress import progress, say
from dph.runs.directory import CHUNKS
from dph.runs.files import appended, sync
from dph.runs.pinned import ANEW, compare_problems

T = TypeVar("T")

_APART, _AT_MOST = 100.0, 60.0
"""The first number: finished chunks are written when 100 times the seconds of the last write have passed since that
write, so that waiting for the disk costs 1 %. The second number: they are written at least once in 60 s. A kill loses
the chunks that were finished since the last write."""


class _Line(NamedTuple):
    what: str
    done: int
    total: int
    text: bytes
    """The value as JSON."""
    end: int
    """The place in the file of the byte after the line."""
    checksum: int


class Chunks:
    """The finished work of a run, in order. As a context, it says after an interruption or an error how much is
    saved."""

    def __init__(
        self, run: Path | None, inputs: Mapping[str, str], problems: Mapping[str, str], world: Any = None
    ) -> None:
        """Open the work that a run has saved. Raises UserError if it was done with other inputs or problems.

        Args:
            run: the run directory, which the leading process has locked. With None nothing is saved.
            inputs: hashes of the inputs of the work besides the settings, by name ("the model's weights").
            problems: hashes of the problems by id, in their order.
            world: the `World` whose processes compute chunks in turn; the class is not imported here, because it loads
                torch. All processes get all values. The leading process reads and writes them.
        """
        self._world = world
        self._path = run / CHUNKS if run is not None and (world is None or world.leads) else None
        self._stored = deque(_lines(self._path))
        self._end = 0
        """The place in the file where the lines end that have been read or written."""
        self._checksum = 0
        """The checksum of the last line that has been read or made."""
        self._waiting: list[bytes] = []
        self._due = False
        """Whether a chunk is among the waiting lines. Without a chunk there is nothing to continue, and no file is
        written."""
        self._next_write = 0.0
        if run is not None and (settings := run / "config.toml").is_file():
            inputs = {"the settings in config.toml": hashlib.sha256(settings.read_bytes()).hexdigest(), **inputs}
        self._decided(lambda: self._compare(run, inputs, problems))

    def once(self, what: str, make: Callable[[], Any]) -> Any:
        """The value of `make`, which must be JSON-able. A resumed run reads the value and does not compute it again,
        because it could be another value. what: the name of the value, without a tab."""
        return self._decided(lambda: self._once(what, make))

    def map(
        self, what: str, things: Sequence[T], at_once: int, make: Callable[[Sequence[T]], list[Any]], label: str
    ) -> list[Any]:
        """One JSON-able value for each thing, in order. Saved values are not computed again.

        Args:
            what: the name of the things, in the plural, without a tab.
            things: the things, such as problems.
            at_once: the number of things in a chunk, whatever the number of processes.
            make: computes the values of a chunk, which are saved soon after (`_APART`).
            label: the name of the work, shown next to its progress.
        """
        values = self._decided(lambda: [value for stored in iter(lambda: self._read(what), None) for value in stored])
        size = 1 if self._world is None else self._world.size
        with progress(label, len(things), len(values)) as shown:
            for start in range(len(values), len(things), size * at_once):
                chunks = [things[first : first + at_once] for first in range(start, len(things), at_once)][:size]
                for chunk_values in self._shared(chunks, make):
                    values += self._made(what, len(chunk_values), len(things), chunk_values)
                    shown.advance(len(chunk_values))
                if self._path is not None:
                    self._due = True
                    if time.monotonic() >= self._next_write or len(values) >= len(things):
                        self._write(self._path)
        return values

    def _compare(self, run: Path | None, inputs: Mapping[str, str], problems: Mapping[str, str]) -> None:
        before = self._once("inputs", lambda: {"inputs": dict(inputs), "problems": dict(problems)})
        for name, digest in inputs.items():
            if before["inputs"].get(name) != digest:
                raise RunError(f"{name} are not those that {run} was started with; restore them, or {ANEW}")
        if run is not None:
            compare_problems(run, before["problems"], problems, ANEW)

    def _once(self, what: str, make: Callable[[], Any]) -> Any:
        stored = self._read(what)
        return self._made(what, 0, 0, make()) if stored is None else stored

    def _decided(self, action: Callable[[], T]) -> T:
        """The value of an action in the leading process, in all processes."""
        return action() if self._world is None else self._world.decided(action)

    def _shared(self, chunks: Sequence[Sequence[T]], make: Callable[[Sequence[T]], list[Any]]) -> list[list[Any]]:
        """The values of up to as many chunks as there are processes. Each process computes the values of one chunk."""
        world = self._world
        if world is None:
            return list(map(make, chunks))
        mine = world.together(lambda: make(chunks[world.rank]) if world.rank < len(chunks) else [])
        return world.gather(mine)[: len(chunks)]

    def saved(self) -> str:
        """A sentence on how much is on the disk."""
        if self._path is None:
            return "nothing is saved without --out"
        counts: dict[str, tuple[int, int]] = {}
        for line in _lines(self._path):
            if line.total:
                counts[line.what] = counts.get(line.what, (0, 0))[0] + line.done, line.total
        listed = ", ".join(f"{done} of {total} {what}" for what, (done, total) in counts.items())
        return f"{listed} are saved; continue with --resume" if listed else "nothing is saved yet; run it again"

    def _read(self, what: str) -> Any:
        """The value of the next saved line, if the line has the name `what`; otherwise None."""
        if not self._stored or self._stored[0].what != what:
            return None
        line = self._stored.popleft()
        self._end, self._checksum = line.end, line.checksum
        return json.loads(line.text)

    def _made(self, what: str, count: int, total: int, value: Any) -> Any:
        """A value as it will be read from its line. If there is a file, the line waits to be written."""
        text = json.dumps(value)
        content = f"{what}\t{count}\t{total}\t{text}\n".encode()
        if self._path is not None:
            self._checksum = zlib.crc32(content, self._checksum)
            self._waiting.append(b"%08x\t%b" % (self._checksum, content))
        return json.loads(text)

    def _write(self, path: Path) -> None:
        begun, new = time.monotonic(), not path.exists()
        with appended(path) as file:
            file.truncate(self._end)  # half a line of a killed process, or lines that this version does not read
            file.writelines(self._waiting)
        sync(path)
        if new:
            sync(path.parent)
        self._end += sum(map(len, self._waiting))
        self._waiting, self._due = [], False
        self._stored.clear()
        now = time.monotonic()
        self._next_write = now + min(_AT_MOST, _APART * (now - begun))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._due and error is not None and self._path is not None:
            with contextlib.suppress(OSError):  # the disk may be full, which may be the error itself
                self._write(self._path)
        if isinstance(error, KeyboardInterrupt) and (self._world is None or self._world.leads):
            number = error.number if isinstance(error, Interrupted) else signal.SIGINT
            raise Interrupted(number, f"interrupted; {self.saved()}") from error
        if isinstance(error, Exception) and self._end:
            say(self.saved())


def _lines(path: Path | None) -> Iterator[_Line]:
    """The whole lines of the file, one after the other, up to the first damaged line. A missing file has no lines."""
    if path is None or not path.is_file():
        return
    end = before = 0
    with path.open("rb") as file:
        for line in file:
            checksum, _, content = line.partition(b"\t")
            before = zlib.crc32(content, before)
            if checksum != b"%08x" % before:
                return
            what, done, total, text = content.split(b"\t", 3)
            end += len(line)
            yield _Line(what.decode(), int(done), int(total), text, end, before)
