"""Files of judged samples as columns: JSONL, JSON, CSV, Parquet, zip archives of JSON; text also with gzip or zstd.

Nothing in a file is executed and no path in it is opened. A text that unpacks to far more than it was, a row without an
end and JSON that nests without end are errors.
"""

import csv
import io
import json
import lzma
import re
import struct
import zipfile
import zlib
from codecs import BOM_UTF8
from collections import Counter, deque
from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path, PurePath
from typing import Any, BinaryIO

from dph.config.files import MOST_COLUMNS, most_unpacked, opened
from dph.config.text import delimiter_of, is_json, parse_json
from dph.errors import DataError, counted, reason_of, refused
from dph.measure.documents import by_its_only_key, is_settings, names_sample, samples_in, with_statistics
from dph.measure.fields import is_maximum, verdict_rank
from dph.measure.kinds import sample_of
from dph.measure.lists import flat_of, spread
from dph.measure.summaries import ids_of, is_summary, is_unnamed_sample, told
from dph.measure.table import RESPONSE, VALUES, LogTable, Source, TableBuilder, printable
from dph.measure.unpacking import LONGEST_ROW, PACKED, lines_of, member, of_text, unpacked, whole
from dph.process.places import check_links
from dph.runs.parquet import RefusedTable, iterate_rows, read_parquet, rows_of
from dph.types import UNSCORED, Outcome

PROBLEMS = "problems.parquet"
"""The problems of a run of `dph eval`, with their numbers of correct and of all samples."""
COMPLETIONS = "completions.parquet"
"""The samples of a run of `dph eval`."""
_MOST_FILES = 100_000
_ENDINGS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".eval", ".zip")
_MOST_SUMMARIES = 4
"""Rows at the end of a file that may sum the others up; also rows without a sample that are named."""
_ALL_READ = "of the folder {} every file is read; name the one with the samples"
_NESTED = frozenset({list, dict})
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d+,\d+\s*%?\s*")
_DAMAGE = (
    *(OSError, EOFError, ValueError, ArithmeticError, RuntimeError),
    *(csv.Error, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
)
"""What libraries raise for a damaged file. RuntimeError is an archive with a password or of an unknown method, and what
is nested too deeply."""


def read_table(path: Path, *, named: Iterable[str] = (), records: str = "", each: bool = False) -> LogTable:
    """The rows of a file or folder. named: columns to keep whatever their names are; records: the key with the samples,
    if a document has several; each: of a run of `dph eval`, its completions instead of the counts of its problems.
    Raises DataError for what is missing, damaged, too large, or holds no samples."""
    reader = _Reader(frozenset(named), records)
    try:
        if each and (path / COMPLETIONS).is_file():
            reader.read_completions(path)
        else:
            reader.read(path)
    except RecursionError as error:
        raise DataError(f"{reader.place or path} cannot be read: it is nested too deeply") from error
    except UnicodeDecodeError as error:
        what = f"it is not UTF-8 text (byte {error.object[error.start]:#04x}); save it as UTF-8"
        raise DataError(f"{reader.place or path} cannot be read: {what}") from error
    except _DAMAGE as error:
        # A text that is cut off has a sentence about its last row, and errors of ours about rows are ValueErrors.
        cut = reader.packed and type(error) not in (RefusedTable, ValueError, csv.Error)
        advice = "it may be cut off" if cut else _ALL_READ.format(path) if path.is_dir() else ""
        place = reader.place or (isinstance(error, OSError) and error.filename) or path
        raise DataError(refused(f"{place} cannot be read", error, advice)) from error
    return reader.builder.finished()


class _Reader:
    """Reads files into one table."""

    def __init__(self, named: frozenset[str], records: str) -> None:
        self.builder, self.named, self.records = TableBuilder(named), named, records
        self.table = self.builder.table
        self.place, self.packed = "", False
        """The file that is read, and whether it is compressed, an archive or Parquet."""
        self._noted = 0
        """Rows whose file is among the sources."""
        self._left_out = 0
        """Rows that are no samples."""
        self._pending: deque[Any] = deque()
        self._usual: set[str] = set()
        """The last records of the file so far, which may be summaries, and the keys of the first one."""
        self._has_rows = False
        """Whether a file with rows was read, beside which a document is a summary."""

    def read(self, path: Path) -> None:
        if not path.exists():
            raise DataError(f"there is no file or folder {path}; correct the path")
        files = [path]
        if path.is_dir():
            # Of a run of `dph eval`, whose completions repeat what its problems count.
            counts = path / PROBLEMS
            inside = [counts] if counts.is_file() else path.rglob("*")
            inside = (file for file in inside if _is_data(file.name) and not file.is_symlink())
            # Rows first: a document next to them is a summary.
            files = sorted(filter(Path.is_file, inside), key=lambda file: _rows_first(str(file)))
        elif (metadata := path.parent / "metadata.json").is_file() and path != metadata:
            files.append(metadata)
        if not 0 < len(files) <= _MOST_FILES:
            raise DataError(
                f"{path} has {counted(len(files), 'file')} with {', '.join(_ENDINGS)}; name one with samples"
            )
        self.table.counts = [file.name for file in files] == [PROBLEMS]
        self.table.files += files
        for file in files:
            self.place, first, size = printable(str(file)), self.table.rows, file.stat().st_size
            with opened(file) as stream:
                start = stream.read(4)
                stream.seek(0)
                self.packed = start in (b"PAR1", b"PK\3\4") or start[:3] in PACKED
                if start == b"PAR1":
                    self._read_parquet(stream)
                elif start == b"PK\3\4":
                    self._read_zip(stream, size)
                else:
                    self._read_text(file.name, unpacked(stream, start), size)
            self._end_source(first)

    def _end_source(self, first: int) -> None:
        """Note a file whose rows begin with the number `first`, unless it has none or its parts are noted."""
        if self.table.rows > max(first, self._noted):
            self.table.sources.append(Source(self.place, self.table.rows - first))
            self._noted = self.table.rows

    def read_completions(self, run: Path) -> None:
        """The samples of a run of `dph eval`, each with its number and verdict, and what its problem has."""
        self.place = printable(str(run / COMPLETIONS))
        check_links(run)
        self.table.files += [run / PROBLEMS, run / COMPLETIONS]
        of_problem = rows_of(read_parquet(run / PROBLEMS, ["split", "id"], ["kind", "prompt"]))
        facts = {(row["split"], row["id"]): row for row in of_problem}
        reward = ["reward"] if "reward" in self.named else []  # it need not agree with the verdict
        for row in rows_of(read_parquet(run / COMPLETIONS, ["split", "id", "sample", "outcome"], reward)):
            outcome = Outcome(row["outcome"])
            verdict = None if outcome in UNSCORED else outcome == Outcome.CORRECT
            self.builder.add({**facts.get((row["split"], row["id"]), {}), **row, "correct": verdict})
        self.table.sources.append(Source(self.place, self.table.rows))

    def _read_zip(self, stream: BinaryIO, size: int) -> None:
        with zipfile.ZipFile(stream) as archive:
            members = [item for item in archive.infolist() if _is_data(item.filename)]
            inside = [item for item in members if item.filename.startswith("samples/")]
            header = [item for item in members if item.filename == "header.json"]
            if inside and not header:
                raise DataError(f"{self.place} has samples but no header.json: the run did not finish")
            chosen = inside or members
            total = sum(item.file_size for item in chosen)
            if len(chosen) > _MOST_FILES or total > most_unpacked(size):
                raise DataError(
                    f"{self.place} unpacks to {total} bytes in {counted(len(chosen), 'file')}: too much to read"
                )
            if inside:
                document = parse_json(member(archive, stream, header[0]).decode())
                if not isinstance(document, dict):
                    raise DataError(f"{self.place} has a header.json that is no object: it is damaged")
                self.table.headers.append((self.place, document))
            if inside:
                for item in inside:
                    content = member(archive, stream, item)
                    self._read_text(item.filename, io.BytesIO(content), len(content))
                return
            place = self.place
            for item in sorted(members, key=lambda item: _rows_first(item.filename)):
                first, self.place = self.table.rows, f"{place}/{printable(item.filename)}"
                content = member(archive, stream, item)
                self._read_text(PurePath(item.filename).name, io.BytesIO(content), len(content))
                self._end_source(first)
            self.place = place

    def _read_text(self, name: str, stream: BinaryIO, size: int) -> None:
        lines = lines_of(stream, most_unpacked(size), self.place)
        lines = chain(of_text(next(lines, b""), self.place), lines)
        if _plain(name).endswith((".csv", ".tsv")):
            return self._read_csv(lines)
        lines = (line for line in lines if line.strip())
        first = next(lines, b"").removeprefix(BOM_UTF8)
        start = first.lstrip()[:1]
        if start not in (b"{", b"["):
            raise DataError(f"{self.place} {'is none of JSON, CSV, Parquet and zip' if start else 'is empty'}")
        second = list(islice(lines, 1)) if is_json(first) else []
        if not second:
            self._read_document(name, whole(first, lines, self.place))
        elif start == b"[":  # a list on every line
            rows = b",".join(line.strip() for line in chain([first], second, lines))
            self._read_document(name, f"[{rows.decode()}]")
        else:
            self._read_rows(chain([first], second, lines))

    def _read_rows(self, lines: Iterable[bytes]) -> None:
        """JSON, one object a line. A first object that names no sample, before one that does, is a header."""
        held: list[dict[str, Any]] = []
        usual: set[str] = set()
        for number, line in enumerate(lines, 1):
            try:
                if len(line) >= LONGEST_ROW:
                    raise ValueError("it has no end")
                row = parse_json(line.decode(), deep=True)  # a walk through it ends in `read_table`
            except ValueError as error:
                raise DataError(f"{self.place}, row {number} is cut off or damaged: {reason_of(error)}") from error
            if not isinstance(row, dict):
                raise DataError(f"{self.place}, row {number} is not a JSON object")
            if number == 1 or (held and not names_sample(row)):
                held.append(row)
                continue
            if (
                held
                and names_sample(row)
                and not any(map(names_sample, held))
                and row.keys() not in map(dict.keys, held)
            ):
                headers = [header for header in held if not is_unnamed_sample(header, flat_of(row).keys())]
                self._leave_out(headers)
                held = [record for record in held if record not in headers]
            usual = usual or {*row}
            if not usual & row.keys() and not is_unnamed_sample(row, usual):  # nothing in common with a sample
                self._leave_out([row])
                continue
            for record in [*held, row]:
                self._add(record)
            held = []
        for record in held:
            self._add(record)
        self._has_rows = True
        self._end_file()

    def _read_csv(self, lines: Iterable[bytes]) -> None:
        """Cells separated by commas, semicolons, tabs or bars, whichever the first line has most of, also with blanks.
        Where commas separate none, a number such as 0,5 in a column of verdicts has a decimal comma."""
        csv.field_size_limit(LONGEST_ROW)
        texts = (line.removeprefix(BOM_UTF8).decode() for line in lines)
        first = next((text for text in texts if text.strip()), "")
        delimiter = delimiter_of(first)
        if first.strip().lower().startswith("sep=") and len(first.strip()) == 5:  # which tells Excel the delimiter
            delimiter, first = first.strip()[4], next((text for text in texts if text.strip()), "")
        options = {"delimiter": delimiter, "skipinitialspace": True, "strict": True}
        rows = csv.reader(chain([first], texts), **options)
        names = [name.strip() for name in next(rows, [])]
        if len(names) > MOST_COLUMNS:
            raise RefusedTable(f"it has {len(names)} columns; at most {MOST_COLUMNS} are read")
        if twice := next((name for name, times in Counter(names).items() if name and times > 1), ""):
            raise DataError(f"{self.place} names the column {twice!r:.100} twice; rename one")
        scores = [place for place, name in enumerate(names) if verdict_rank(name) or is_maximum(name)]
        scores += [place for place, name in enumerate(names) if sample_of(name) or name in self.named]
        scores = [] if delimiter == "," else scores
        for row in rows:
            if any(map(str.strip, row)):
                cells = [cell.strip() for cell in row]
                if cells == names:
                    self._note("its header is there again: several tables were joined, and their rows are read as one")
                    continue
                if len(names) > 1 and {*cells} == {*names}:
                    raise ValueError(f"line {rows.line_num} is another header, with its columns in another order")
                if len(row) != len(names):
                    raise ValueError(
                        f"line {rows.line_num} ends a row of {counted(len(row), 'value')}, not {len(names)}"
                    )
                for place in scores:
                    if _DECIMAL_COMMA.fullmatch(row[place]):
                        row[place] = row[place].replace(",", ".")
                self._add({name: value.strip() or None for name, value in zip(names, row, strict=True) if name})
        self._has_rows = True
        self._end_file()

    def _read_parquet(self, stream: BinaryIO) -> None:
        for row in iterate_rows(stream, lambda name: self.builder.kept_of(name) in (VALUES, RESPONSE)):
            self._add(row)
        self._has_rows = True
        self._end_file()

    def _read_document(self, name: str, text: str) -> None:
        """A JSON document: a list of samples, or samples under one of its keys, or one record, or a header."""
        try:
            document = parse_json(text, deep=True)
        except ValueError as error:
            raise DataError(f"{self.place} ({name}) is cut off or damaged: {reason_of(error)}") from error
        try:
            found = dict(samples_in(document))
        except DataError as error:
            raise DataError(f"{self.place}: {error}") from error
        rows_of = found or ({"": document} if isinstance(document, list) else {})
        if self.records and isinstance(document, dict):
            if self.records not in rows_of:
                raise DataError(f"{self.place} has no samples under {self.records!r}, but under {_listed(rows_of)}")
            rows_of = {self.records: rows_of[self.records]}
            self.table.used.add("records")
        elif self._has_rows and name == Path(self.place).name and ("" not in rows_of or is_settings(document)):
            if rows_of:
                self.table.notes.append(f"{self.place} lies beside rows and is taken for a summary of them")
            rows_of = {}
        if len(rows_of) > 1:
            rows_of = {path: rows for path, rows in rows_of.items() if any(map(names_sample, rows))} or rows_of
        if len(rows_of) > 1:
            raise DataError(f"{self.place} holds samples under {_listed(rows_of)}; name one with --records KEY")
        if isinstance(document, dict) and "" not in rows_of:
            taken = {path.partition(".")[0] for path in rows_of}
            self.table.headers.append((self.place, {k: v for k, v in document.items() if k not in taken}))
        for rows in rows_of.values():
            for row in rows:
                self._add(row)
        self._end_file()

    def _add(self, record: Any) -> None:
        """Add a record, the last ones of its file when this ends."""
        pending = self._pending
        pending.append(record)
        if len(pending) > _MOST_SUMMARIES:
            self._add_record(pending.popleft())
        elif not self._usual and isinstance(record, dict):
            self._usual = {*record}

    def _end_file(self) -> None:
        """Add the last records of a file, without those at its end that sum the others up."""
        records, usual = [*self._pending], self._usual
        self._pending, self._usual = deque(), set()
        summaries: list[Any] = []
        while records and isinstance(records[-1], dict) and is_summary(records[-1], usual):
            summaries.insert(0, records.pop())
        for record in records:
            self._add_record(record)
        ids = [repr(ids_of(record)) for record in summaries]
        for id, record in zip(ids, summaries, strict=True):
            if ids.count(id) > 1 and id != "{}":  # samples of one problem
                self._add_record(record)
            else:
                self._add_summary(record)

    def _leave_out(self, rows: list[dict[str, Any]]) -> None:
        """Leave out rows that are no samples, and note it."""
        self.table.headers += [(self.place, row) for row in rows]
        for row in rows:
            self._left_out += 1
            which = printable(json.dumps(row, ensure_ascii=False))[:80]
            few = self._left_out <= _MOST_SUMMARIES
            self._note(f"the row {which} is no sample and is left out" if few else "so are further rows")

    def _add_summary(self, record: dict[str, Any]) -> None:
        """Leave out a record that has the form of a summary, unless it is a sample whose problem has such a name.
        Raises DataError if it may be either."""
        kind = told(record, self.builder.columns)
        named = ", ".join(f"{path} {str(value)!r:.40}" for path, value in ids_of(record).items()) or "without an id"
        if kind == "either":
            text = f"{self.place}: its last row ({named}) may be a problem, or sum the others up"
            raise DataError(f"{text}; remove it, or give the problem another name")
        if kind == "sample":
            return self._add_record(record)
        self.table.headers.append((self.place, record))
        self.table.notes.append(f"its last row ({named}) sums the others up and is left out")

    def _note(self, text: str) -> None:
        if text not in self.table.notes:
            self.table.notes.append(text)

    def _add_record(self, record: Any) -> None:
        if not isinstance(record, dict):
            raise DataError(f"{self.place} holds {_kind(record)} in place of an object with a verdict")
        if len(record) == 1:
            record = by_its_only_key(record)
        if "stats" in record:
            record = with_statistics(record)
        plain = _NESTED.isdisjoint(map(type, record.values()))
        for place, row in enumerate([record] if plain else spread(record, self.place, self.named, self._note)):
            self.builder.add(row, of_last=place > 0)


def _plain(name: str) -> str:
    return name.lower().removesuffix(".gz").removesuffix(".zst").removesuffix(".bz2")


def _rows_first(name: str) -> tuple[bool, PurePath]:
    """Sorts files with rows before documents, which are then summaries of them."""
    return _plain(name).endswith(".json"), PurePath(name)


def _is_data(name: str) -> bool:
    return _plain(name).endswith(_ENDINGS) and not name.rpartition("/")[2].startswith(".")


def _kind(value: Any) -> str:
    """What a JSON value is, in words."""
    kinds = {list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return kinds.get(type(value), "a number")


def _listed(names: Iterable[str]) -> str:
    names = sorted(map(repr, names))
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "") or "no key"
