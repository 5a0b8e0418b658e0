"""The texts in a file: as it is, packed by gzip, bzip2 or zstd, or a member of a zip archive.

A text that unpacks to far more than it was, and a line without an end, are errors.
"""

import bz2
import gzip
import io
import zipfile
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import BinaryIO

from dph.config.files import SWELLS, most_unpacked
from dph.config.text import refuse_other_kinds
from dph.errors import DataError
from dph.extras import require_installed
from dph.runs.parquet import RefusedTable

LONGEST_ROW = 1 << 26
"""Bytes of a line."""
LARGEST_DOCUMENT = 1 << 29
"""Bytes of a JSON document, which is read as a whole."""
PACKED = {b"\x1f\x8b\x08": "gzip", b"\x28\xb5\x2f": "zstd", b"BZh": "bz2"}
"""By the first bytes of a file, how its text is compressed."""


def unpacked(stream: BinaryIO, start: bytes) -> BinaryIO:
    """The text of a file that begins with these bytes."""
    packing = PACKED.get(start[:3])
    if packing is None:
        return stream
    if packing != "zstd":
        unpacked = gzip.GzipFile(fileobj=stream) if packing == "gzip" else bz2.BZ2File(stream)
        return io.BufferedReader(unpacked, 1 << 16)
    require_installed(f"unpacking {packing}", "pyarrow")
    import pyarrow as pa

    return io.BufferedReader(pa.CompressedInputStream(stream, packing), 1 << 16)


def lines_of(stream: BinaryIO, most: int, place: str) -> Iterator[bytes]:
    """The lines of a text of at most `most` bytes, in pieces of LONGEST_ROW. Raises DataError for more bytes, and for
    more lines than such a file may hold (`most_lines`)."""
    lines = most // SWELLS
    for number, line in enumerate(chain.from_iterable(map(_ended, iter(lambda: stream.readline(LONGEST_ROW), b"")))):
        most -= len(line)
        if most < 0 or number > lines:
            more = f"{SWELLS} times its size" if most < 0 else f"{lines} lines, one for each of its bytes"
            raise DataError(f"{place} unpacks to more than {more}: too much to read")
        yield line


def _ended(line: bytes) -> list[bytes]:
    """A line, or the lines of a text in which a carriage return alone ends each, as old spreadsheets write."""
    if b"\r" not in line or line.endswith(b"\n"):
        return [line]
    return [part + b"\n" for part in line.split(b"\r")]


def of_text(first: bytes, place: str) -> list[bytes]:
    """The first line of a text. Raises DataError if it begins a file of another kind, or one in UTF-16."""
    try:
        refuse_other_kinds(first)
    except ValueError as error:
        raise DataError(f"{place} is none of JSON, CSV, Parquet and zip: {error}") from error
    return [first]


def member(archive: zipfile.ZipFile, stream: BinaryIO, item: zipfile.ZipInfo) -> bytes:
    """A file of an archive. Raises RefusedTable for far more lines than it has bytes in the archive."""
    content = _unzipped(archive, stream, item)
    if (lines := content.count(b"\n")) > most_unpacked(item.compress_size) // SWELLS:
        raise RefusedTable(f"{item.filename} in it unpacks to {lines} lines: too much to read")
    return content


def _unzipped(archive: zipfile.ZipFile, stream: BinaryIO, item: zipfile.ZipInfo) -> bytes:
    """A file of an archive, never longer than the archive says; also of zstd, unknown to zipfile before Python 3.14."""
    if item.compress_type != 93:
        with archive.open(item) as inside:
            return inside.read(item.file_size)
    require_installed("unpacking zstd", "pyarrow")
    import pyarrow as pa

    stream.seek(item.header_offset + 26)
    lengths = stream.read(4)
    stream.seek(int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little"), io.SEEK_CUR)
    packed = pa.CompressedInputStream(pa.BufferReader(stream.read(item.compress_size)), "zstd")
    return packed.read(item.file_size)


def whole(first: bytes, lines: Iterable[bytes], place: str) -> str:
    """The text of a JSON document. Raises DataError for one that is too long to hold."""
    text = bytearray(first)
    for line in lines:
        text += line
        if len(text) > LARGEST_DOCUMENT:
            raise DataError(f"{place} is a JSON document of more than {LARGEST_DOCUMENT >> 20} MB; write it as JSONL")
    return text.decode().strip()
