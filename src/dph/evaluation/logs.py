"""Files of judged samples as columns: JSONL, JSON, CSV, Parquet, zip archives of JSON; text also with gzip or zstd.

Nothing in a file is executed and no path in it is opened. A text that unpacks to far more than it was, a row without an
end and JSON that nests without end are errors.
"""

import csv
import io
import json
import lzma
import struct
import zipfile
import zlib
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dph.config.files import MOST_COLUMNS, SWELLS, most_unpacked, opened
from dph.config.text import is_json, parse_json
from dph.errors import DataError, reason_of, refused
from dph.evaluation.fields import SAMPLE_LISTS, UNSURE_LISTS, role_of, verdict_number, verdict_rank
from dph.runs.parquet import RefusedTable, iterate_rows, plain_value

_LONGEST_ROW = 1 << 26
_LARGEST_DOCUMENT = 1 << 29
_MOST_FILES = 100_000
_DEEPEST = 6
_ENDINGS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".eval", ".zip")
_NOT_SEARCHED = {
    *("config", "configs", "stats", "plan", "summary", "reductions", "aggregate", "metrics", "model_usage", "messages"),
    *("higher_is_better", "versions"),
}
"""Keys of a document below which no samples are."""
_VALUES, _RESPONSE, _NOTHING = 1, 2, 3
"""A column is kept with its values, or only whether each response is empty, or not at all."""
_MOST_COLUMNS = 1000
"""Names of columns that are remembered; every row may have further keys."""
_NESTED = frozenset({list, dict})
_PLAIN = frozenset({str, bool, int, float})
_DAMAGE = (
    *(OSError, EOFError, ValueError, ArithmeticError, RuntimeError),
    *(csv.Error, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
)
"""What libraries raise for a damaged file. RuntimeError is an archive with a password or of an unknown method, and what
is nested too deeply."""
_NAMING = ("id", "prompt", "response")
"""Roles of which a row of samples has one, and a header has none."""


class Source(NamedTuple):
    """A file, and the number of its rows."""

    name: str
    rows: int


@dataclass(slots=True)
class Table:
    """Rows of samples, as far as their columns have a role."""

    rows: int = 0
    columns: dict[str, NDArray[np.object_]] = field(default_factory=dict)
    """By the path of its keys, the value of each row; None without one."""
    sources: list[Source] = field(default_factory=list)
    headers: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    """Documents and rows that hold no sample, with the name of their file."""
    others: set[str] = field(default_factory=set)
    """Columns that were not read, because nothing is known about their names."""


def read_table(path: Path, *, named: Iterable[str] = (), records: str = "") -> Table:
    """The rows of a file or folder. named: columns to keep whatever their names are; records: the key with the samples,
    if a document has several. Raises DataError for what is missing, damaged, too large, or holds no samples."""
    reader = _Reader(frozenset(named), records)
    try:
        reader.read(path)
    except RecursionError as error:
        raise DataError(f"{reader.place or path} cannot be read: it is nested too deeply") from error
    except _DAMAGE as error:
        advice = "" if isinstance(error, RefusedTable) else "it may be cut off"
        raise DataError(refused(f"{reader.place or path} cannot be read", error, advice)) from error
    return reader.finished()


class _Reader:
    """Collects the rows of files into one `Table`."""

    def __init__(self, named: frozenset[str], records: str) -> None:
        self.table, self.named, self.records = Table(), named, records
        self.place = ""
        self._columns: dict[str, list[Any]] = {}
        self._texts: dict[str, str] = {}
        """Every distinct text, once."""
        self._kept: dict[str, int] = {}
        """By the path of a column, how it is kept."""

    def read(self, path: Path) -> None:
        if not path.exists():
            raise DataError(f"there is no file or folder {path}; correct the path")
        files = [path]
        if path.is_dir():
            # Of a run of `dph eval`, whose completions repeat what its problems count.
            counted = path / "problems.parquet"
            every = [counted] if counted.is_file() else path.rglob("*")
            every = (file for file in every if _is_data(file.name) and not file.is_symlink())
            # Rows first: a document next to them is a summary.
            files = sorted(filter(Path.is_file, every), key=lambda file: (_plain(file.name).endswith(".json"), file))
        elif (metadata := path.parent / "metadata.json").is_file() and path != metadata:
            files.append(metadata)
        if not 0 < len(files) <= _MOST_FILES:
            raise DataError(f"{path} has {len(files)} files with {', '.join(_ENDINGS)}; name one with samples")
        for file in files:
            self.place, first, size = _printable(str(file)), self.table.rows, file.stat().st_size
            with opened(file) as stream:
                start = stream.read(4)
                stream.seek(0)
                if start == b"PAR1":
                    self._read_parquet(stream)
                elif start == b"PK\3\4":
                    self._read_zip(stream, size)
                else:
                    self._read_text(file.name, _unpacked(stream, start), size)
            if self.table.rows > first:
                self.table.sources.append(Source(self.place, self.table.rows - first))

    def _read_zip(self, stream: BinaryIO, size: int) -> None:
        with zipfile.ZipFile(stream) as archive:
            members = [item for item in archive.infolist() if _is_data(item.filename)]
            inside = [item for item in members if item.filename.startswith("samples/")]
            header = [item for item in members if item.filename == "header.json"]
            if inside and not header:
                raise DataError(f"{self.place} has samples but no header.json: the run did not finish")
            chosen = inside or members
            unpacked = sum(item.file_size for item in chosen)
            if len(chosen) > _MOST_FILES or unpacked > most_unpacked(size):
                raise DataError(f"{self.place} unpacks to {unpacked} bytes in {len(chosen)} files: too much to read")
            if inside:
                document = parse_json(_member(archive, stream, header[0]).decode())
                if not isinstance(document, dict):
                    raise DataError(f"{self.place} has a header.json that is no object: it is damaged")
                self.table.headers.append((self.place, document))
            for item in chosen:
                content = _member(archive, stream, item)
                self._read_text(item.filename, io.BytesIO(content), len(content))

    def _read_text(self, name: str, stream: BinaryIO, size: int) -> None:
        lines = _lines(stream, most_unpacked(size), self.place)
        if _plain(name).endswith((".csv", ".tsv")):
            return self._read_csv(lines, "\t" if _plain(name).endswith(".tsv") else ",")
        lines = (line for line in lines if line.strip())
        first = next(lines, b"").removeprefix(BOM_UTF8)
        start = first.lstrip()[:1]
        if start not in (b"{", b"["):
            raise DataError(f"{self.place} {'is none of JSON, CSV, Parquet and zip' if start else 'is empty'}")
        second = list(islice(lines, 1)) if start == b"{" and is_json(first) else []
        if not second:
            return self._read_document(name, _whole(first, lines, self.place))
        self._read_rows(chain([first], second, lines))

    def _read_rows(self, lines: Iterable[bytes]) -> None:
        """JSON, one object a line. A first object that names no sample, before one that does, is a header."""
        held: list[dict[str, Any]] = []
        usual: set[str] = set()
        for number, line in enumerate(lines, 1):
            try:
                if len(line) >= _LONGEST_ROW:
                    raise ValueError("it has no end")
                row = parse_json(line.decode(), deep=True)  # a walk through it ends in `read_table`
            except ValueError as error:
                raise DataError(f"{self.place}, row {number} is cut off or damaged: {reason_of(error)}") from error
            if not isinstance(row, dict):
                raise DataError(f"{self.place}, row {number} is not a JSON object")
            if number == 1 or (held and not _names_sample(row)):
                held.append(row)
                continue
            if held and _names_sample(row) and not any(map(_names_sample, held)):
                self.table.headers += [(self.place, header) for header in held]
                held = []
            usual = usual or {*row}
            if not usual & row.keys():  # nothing in common with a sample
                self.table.headers.append((self.place, row))
                continue
            for record in [*held, row]:
                self._add_record(record)
            held = []
        for record in held:
            self._add_record(record)

    def _read_csv(self, lines: Iterable[bytes], delimiter: str) -> None:
        csv.field_size_limit(_LONGEST_ROW)
        every = iter(lines)
        first = next(every, b"").removeprefix(BOM_UTF8)
        rows = csv.reader(map(bytes.decode, chain([first], every)), delimiter=delimiter, strict=True)
        names = next(rows, [])
        if len(names) > MOST_COLUMNS:
            raise RefusedTable(f"it has {len(names)} columns; at most {MOST_COLUMNS} are read")
        if twice := [name for name, times in Counter(names).items() if times > 1]:
            raise RefusedTable(f"it names the column {twice[0]!r:.100} twice; rename one")
        for row in filter(None, rows):
            if len(row) != len(names):
                raise ValueError(f"line {rows.line_num} ends a row of {len(row)} values, not {len(names)}")
            self._add_record({name: value or None for name, value in zip(names, row, strict=True)})

    def _read_parquet(self, stream: BinaryIO) -> None:
        for row in iterate_rows(stream, lambda name: self._kept_of(name) != _NOTHING):
            self._add_record(row)

    def _read_document(self, name: str, text: str) -> None:
        """A JSON document: a list of samples, or samples under one of its keys, or one record, or a header."""
        try:
            document = parse_json(text, deep=True)
        except ValueError as error:
            raise DataError(f"{self.place} ({name}) is cut off or damaged: {reason_of(error)}") from error
        rows_of = {"": document} if isinstance(document, list) else dict(_samples_in(document))
        if self.records and isinstance(document, dict):
            if self.records not in rows_of:
                raise DataError(f"{self.place} has no samples under {self.records!r}, but under {_listed(rows_of)}")
            rows_of = {self.records: rows_of[self.records]}
        elif self.table.sources and "" not in rows_of and name == Path(self.place).name:
            rows_of = {}  # a summary next to rows
        if len(rows_of) > 1:
            rows_of = {path: rows for path, rows in rows_of.items() if any(map(_names_sample, rows))} or rows_of
        if len(rows_of) > 1:
            raise DataError(f"{self.place} holds samples under {_listed(rows_of)}; name one with --records KEY")
        if isinstance(document, dict) and "" not in rows_of:
            taken = {path.partition(".")[0] for path in rows_of}
            self.table.headers.append((self.place, {k: v for k, v in document.items() if k not in taken}))
        for rows in rows_of.values():
            for row in rows:
                self._add_record(row)

    def _add_record(self, record: Any) -> None:
        if not isinstance(record, dict):
            raise DataError(f"{self.place} holds a list of {type(record).__name__} instead of objects with verdicts")
        plain = _NESTED.isdisjoint(map(type, record.values()))
        for row in [record] if plain else _spread(record, self.place, self.named):
            for path, value in row.items():
                kept = self._kept.get(path) or self._kept_of(path)
                if kept == _NOTHING or (value is None and kept == _VALUES):
                    continue
                if kept == _RESPONSE:  # null counts as empty: a run whose responses are all empty has failed
                    value = "" if _is_empty(value) else "…"
                elif type(value) not in _PLAIN and (value := self._plain(path, value)) is None:
                    continue
                if type(value) is str:
                    known = self._texts.get(value)
                    value = self._text(value) if known is None else known
                column = self._columns.setdefault(path, [])
                if len(column) < self.table.rows:
                    column += [None] * (self.table.rows - len(column))
                column.append(value)
            self.table.rows += 1

    def _plain(self, path: str, value: Any) -> Any:
        """A value that is neither text, number nor truth, as one of these; None for one that does not count."""
        if not isinstance(value, list | dict):
            return plain_value(value)
        if isinstance(value, list) and role_of(path) == "id" and path not in self.named:
            return None  # columns of a table, perhaps of different lengths, are not one problem
        return json.dumps(value, ensure_ascii=False, sort_keys=True, default=plain_value)

    def _text(self, text: str) -> str:
        """A text that was not met before, as it can be written: one object for all that are equal."""
        return self._texts.setdefault(text, _printable(text))

    def _kept_of(self, path: str) -> int:
        """How a column is kept."""
        kept = _VALUES if path in self.named or role_of(path) or verdict_rank(path) else _NOTHING
        if role_of(path) == "response" and path not in self.named:
            kept = _RESPONSE
        if len(self._kept) < _MOST_COLUMNS:
            self._kept[path] = kept
            if kept == _NOTHING:
                self.table.others.add(path)
        return kept

    def finished(self) -> Table:
        rows = self.table.rows
        for path, column in self._columns.items():
            self.table.columns[path] = np.fromiter(column + [None] * (rows - len(column)), np.object_, rows)
        return self.table


def _unpacked(stream: BinaryIO, start: bytes) -> BinaryIO:
    """The text of a file that begins with these bytes."""
    packing = {b"\x1f\x8b\x08": "gzip", b"\x28\xb5\x2f": "zstd", b"BZh": "bz2"}.get(start[:3])
    if packing is None:
        return stream
    import pyarrow as pa

    return io.BufferedReader(pa.CompressedInputStream(stream, packing), 1 << 16)


def _lines(stream: BinaryIO, most: int, place: str) -> Iterator[bytes]:
    """The lines of a text of at most `most` bytes, in pieces of _LONGEST_ROW."""
    for line in iter(lambda: stream.readline(_LONGEST_ROW), b""):
        most -= len(line)
        if most < 0:
            raise DataError(f"{place} unpacks to more than {SWELLS} times its size: too much to read")
        yield line


def _member(archive: zipfile.ZipFile, stream: BinaryIO, item: zipfile.ZipInfo) -> bytes:
    """A file of an archive, never longer than the archive says; also of zstd, unknown to zipfile before Python 3.14."""
    if item.compress_type != 93:
        with archive.open(item) as member:
            return member.read(item.file_size)
    import pyarrow as pa

    stream.seek(item.header_offset + 26)
    lengths = stream.read(4)
    stream.seek(int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little"), io.SEEK_CUR)
    packed = pa.CompressedInputStream(pa.BufferReader(stream.read(item.compress_size)), "zstd")
    return packed.read(item.file_size)


def _printable(text: str) -> str:
    """A text with halves of surrogate pairs, which UTF-8 does not have, as their escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _plain(name: str) -> str:
    return name.lower().removesuffix(".gz").removesuffix(".zst").removesuffix(".bz2")


def _is_data(name: str) -> bool:
    return _plain(name).endswith(_ENDINGS) and not name.rpartition("/")[2].startswith(".")


def _is_empty(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_empty, value))
    return not value.strip() if isinstance(value, str) else value in (None, {})


def _listed(names: Iterable[str]) -> str:
    names = sorted(map(repr, names))
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "") or "no key"


def _whole(first: bytes, lines: Iterable[bytes], place: str) -> str:
    text = bytearray(first)
    for line in lines:
        text += line
        if len(text) > _LARGEST_DOCUMENT:
            raise DataError(f"{place} is a JSON document of more than {_LARGEST_DOCUMENT >> 20} MB; write it as JSONL")
    return text.decode().strip()


def _names_sample(record: Mapping[str, Any]) -> bool:
    return any(role_of(path) in _NAMING and path != "name" for path in _flat(record))


def _has_verdict(record: Any) -> bool:
    return isinstance(record, dict) and any(
        verdict_rank(path) for row in islice(_spread(record, "", frozenset()), 1) for path in row
    )


def _samples_in(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Iterable[dict[str, Any]]]]:
    """Where in a document samples are: the path of keys, and the records."""
    if isinstance(value, list) and value and any(map(_has_verdict, value[:20])):
        yield path, value
    if not isinstance(value, dict) or not value or depth > 3:
        return
    if (rows := _by_key(value, path)) is not None:
        yield path, rows
        return
    inside = [
        samples
        for key, below in value.items()
        if key not in _NOT_SEARCHED
        for samples in _samples_in(below, f"{path}.{key}".lstrip("."), depth + 1)
    ]
    names = not path and any(role_of(key) in ("id", "prompt") for key in value) and _has_verdict(value)
    if names and (not inside or len(list(_spread(value, "", frozenset()))) > 1):
        yield path, [value]
    else:
        yield from inside


def _by_key(value: Mapping[str, Any], path: str) -> list[dict[str, Any]] | None:
    """The records of an object that has them by id, or their columns by name; None if it is neither."""
    items, leaf = list(value.values()), path.rpartition(".")[2]
    lists = [item for item in items if isinstance(item, list) and item]
    is_table = len(lists) == len(items) and len({*map(len, lists)}) == 1
    if is_table and any(map(verdict_rank, value)) and any(role_of(key) in ("id", "prompt") for key in value):
        return [dict(zip(value, row, strict=True)) for row in zip(*items, strict=True)]
    if any(map(verdict_rank, value)) or any(map(role_of, value)):
        return None
    if all(isinstance(item, dict) for item in items):
        rows = [{"id": key, **item} for key, item in value.items()]
    elif len(lists) == len(items) and all(isinstance(item[0], dict) for item in lists):
        rows = [{"id": key, **row} for key, item in value.items() for row in item if isinstance(row, dict)]
        ids = {
            (key, str(row[n]))
            for key, item in value.items()
            for row in item
            if isinstance(row, dict)
            for n in row
            if role_of(n) == "id"
        }
        if len(ids) > len(value):
            return None  # sets of problems
    elif verdict_rank(leaf) and (all(isinstance(i, bool) for i in items) or len(lists) == len(items)):
        rows = [{"id": key, leaf: item} for key, item in value.items()]
    else:
        return None
    numbers = [
        v for row in rows[:50] for key, v in _flat(row).items() if verdict_rank(key) and isinstance(v, float | int)
    ]
    is_summary = any(abs(number) > 1 for number in numbers)  # percent, or counts
    return rows if any(map(_has_verdict, rows[:20])) and not is_summary else None


def _flat(record: Mapping[str, Any], prefix: str = "", depth: int = 0) -> dict[str, Any]:
    """A record's values by the path of their keys; lists stay whole."""
    flat: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, dict) and depth < _DEEPEST:
            flat |= _flat(value, f"{prefix}{key}.", depth + 1)
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _spread(record: Mapping[str, Any], place: str, named: frozenset[str]) -> Iterator[dict[str, Any]]:
    """The samples of a record: one, or one for each element of its lists of verdicts."""
    flat = _flat(record)
    lists = {path: value for path, value in flat.items() if isinstance(value, list)}
    verdicts = {path: value for path, value in lists.items() if value and _are_verdicts(path, value, named)}
    if not verdicts:
        for path, value in lists.items():
            if role_of(path) == "answer" and len(value) == 1:
                flat[path] = value[0]
        yield {path: value for path, value in flat.items() if path not in lists or role_of(path) or path in named}
        return
    lengths = {path: len(value) for path, value in verdicts.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{place}: a row has lists of different lengths: {lengths}")
    length = next(iter(lengths.values()))
    # A row's own score next to the scores of its samples is their mean or their best.
    shared = {path: value for path, value in flat.items() if path not in lists and not verdict_rank(path)}
    shared |= {path: value for path, value in lists.items() if role_of(path) in ("prompt", "id")}
    roles = ("answer", "response", "error")
    joint = [path for path in lists if role_of(path) in roles and len(lists[path]) == length]
    joint += [path for path in lists if role_of(path) == "prompt" and [*map(type, lists[path])] == [str] * length]
    for place_in_list in range(length):
        row = dict(shared)
        for path in dict.fromkeys([*verdicts, *joint]):
            item = lists[path][place_in_list]
            if isinstance(item, dict):
                inside = _flat(item, f"{path}.").items()
                row |= {name: value for name, value in inside if role_of(name) not in ("id", "prompt", "task")}
            else:
                row[path] = item
        yield row


def _are_verdicts(path: str, values: list[Any], named: frozenset[str]) -> bool:
    """Whether a list holds one verdict for each sample."""
    leaf = path.lower().rpartition(".")[2]
    if all(isinstance(value, dict) for value in values):
        inside = _flat(cast(dict[str, Any], values[0]))
        judged = any(map(verdict_rank, inside)) or any(name.startswith(f"{path}.") for name in named)
        sure = leaf in SAMPLE_LISTS or (
            leaf in UNSURE_LISTS and any(role_of(name) in ("response", "answer") for name in inside)
        )
        return judged and sure
    plain = not any(
        isinstance(value, list | dict) or verdict_number(value) is None for value in values if value is not None
    )
    return plain and (path in named or verdict_rank(path) in (1, 2)) and role_of(path) != "response"
