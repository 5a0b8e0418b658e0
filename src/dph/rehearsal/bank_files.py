"""The bank in a run directory: what training admitted, and which of it a checkpoint holds.

bank/step-00000120.parquet            the entries that were admitted up to step 120 and are in no file before it, in
                                      order; step 0: those with which the bank began
checkpoints/step-…/bank_new.parquet   the entries that were admitted later than those of the last file
checkpoints/step-…/bank.parquet       the entries of the bank after that step, by step and place, with their counters
checkpoints/step-…/bank_files.json    SHA-256 of every file of the folder bank up to that step

A file is written when the new entries have `TOKENS_OF_A_FILE` tokens, and is never changed. So a long run has few
files, and a checkpoint holds few entries. A file is written whole, before the update of its step. A resumed run drops
the files that its checkpoint does not name, so that the folder is a function of the settings and the seed. When
training ends, the remaining entries become a file too. Nothing is pickled.
"""

import json
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dph.config.text import read_json
from dph.errors import RunError
from dph.process.places import check_place
from dph.rehearsal.bank import Bank, Entry
from dph.rehearsal.store import SCHEMA, Rehearsal, is_whole
from dph.runs.files import remove_leftovers, sha256, written_atomically
from dph.runs.parquet import read_parquet, rows_of

FOLDER = "bank"
"""Within the run directory."""
TOKENS_OF_A_FILE = 1 << 18
"""Tokens of prompts and responses after which new entries become a file, of about 2 MiB."""
_ENTRIES = SCHEMA.append(pa.field("mode", pa.string())).append(pa.field("found", pa.int64()))
_COUNTERS = pa.schema(
    [
        ("found", pa.int64()),
        ("number", pa.int64()),
        ("drawn", pa.int64()),
        ("last", pa.int64()),
        ("lately", pa.float64()),
        ("visited", pa.int64()),
    ]
)
_TABLE, _NEW, _HASHES = "bank.parquet", "bank_new.parquet", "bank_files.json"
_RESTORE = "restore it, or start a new run in another directory"


@dataclass(frozen=True, slots=True)
class _Written:
    """What was admitted up to a step."""

    hashes: Mapping[int, str] = field(default_factory=dict)
    """SHA-256 of each file by its step."""
    new: Sequence[Entry] = ()
    """The entries after the last file, in order."""


@dataclass
class BankFiles:
    """The files of a bank."""

    run: Path
    _written: _Written = field(default_factory=_Written)
    _next: _Written | None = None
    """After the step that is being taken."""

    def write(self, step: int, entries: Sequence[Entry]) -> None:
        """Take what a step admitted, and write a file if enough is new. It counts from `commit` on."""
        hashes, new = self._written.hashes, [*self._written.new, *entries]
        if new and (step == 0 or sum(entry.row.length for entry in new) >= TOKENS_OF_A_FILE):
            hashes, new = {**hashes, step: self._write_file(step, new)}, []
        self._next = _Written(hashes, new)

    def commit(self) -> None:
        """The step that admitted what was written last has been taken."""
        self._written, self._next = self._next or self._written, None

    def finish(self, step: int) -> None:
        """Write a file of the entries that are in none, after the last step."""
        if self._written.new:
            self._write_file(step, self._written.new)

    def save(self, bank: Bank, checkpoint: Path) -> None:
        """Write which entries the bank holds, their counters, and the new entries into the folder of a checkpoint."""
        entries = sorted(bank.entries, key=lambda entry: entry.age)
        columns = {name: [getattr(entry, name) for entry in entries] for name in _COUNTERS.names}
        pq.write_table(pa.table(columns, schema=_COUNTERS), checkpoint / _TABLE)
        pq.write_table(_table(self._written.new), checkpoint / _NEW)
        hashes = json.dumps(sorted(self._written.hashes.items()))
        (checkpoint / _HASHES).write_text(hashes + "\n", encoding="utf-8")

    def restore(self, bank: Bank, checkpoint: Path) -> None:
        """Fill an empty bank with the entries that a checkpoint holds. Raises RunError, naming the file, if one is
        missing, is not as the run wrote it, or cannot be read."""
        hashes = _read_hashes(checkpoint / _HASHES)
        counters: dict[int, dict[int, dict[str, Any]]] = {}
        for row in _read(checkpoint / _TABLE, _COUNTERS):
            counters.setdefault(row["found"], {})[row["number"]] = row
        entries, new = list[Entry](), list[Entry]()
        for step, written in hashes.items():
            file = self._file(step)
            _check(file, written)
            if any(found <= step for found in counters):
                entries += [entry for entry, held in _entries(file, counters) if held]
        for entry, held in _entries(checkpoint / _NEW, counters):
            new.append(entry)
            entries += [entry] if held else []
        if left := [(step, number) for step, numbers in counters.items() for number in numbers]:
            raise RunError(
                f"{checkpoint / _TABLE} names entry {left[0][1]} of step {left[0][0]}, which no file of the bank has; "
                f"{_RESTORE}"
            )
        self._written = _Written(hashes, new)
        bank.restore(entries)

    def drop(self, checkpoint: Path | None) -> None:
        """Remove the files that a checkpoint does not name, all without one, and what a killed process left behind."""
        kept = {self._file(step) for step in (_read_hashes(checkpoint / _HASHES) if checkpoint else ())}
        for file in (self.run / FOLDER).glob("step-*.parquet"):
            if file.stem.removeprefix("step-").isdecimal() and file not in kept:
                file.unlink()
        remove_leftovers(self.run / FOLDER)

    def _write_file(self, step: int, entries: Sequence[Entry]) -> str:
        """Write a file; returns its SHA-256."""
        file = self._file(step)
        check_place(file)
        file.parent.mkdir(exist_ok=True)
        with written_atomically(file) as temporary:
            pq.write_table(_table(entries), temporary)
        return sha256(file)

    def _file(self, step: int) -> Path:
        return self.run / FOLDER / f"step-{step:08d}.parquet"


def _table(entries: Sequence[Entry]) -> pa.Table:
    columns = {name: [getattr(entry.row, name) for entry in entries] for name in SCHEMA.names}
    own = {name: [getattr(entry, name) for entry in entries] for name in ("mode", "found")}
    return pa.table(columns | own, schema=_ENTRIES)


def _check(file: Path, written: str) -> None:
    try:
        there = sha256(file)
    except OSError as error:
        raise RunError(f"{file}, a file of the bank, cannot be read ({error.strerror}); {_RESTORE}") from error
    if there != written:
        raise RunError(f"{file} is not the file that the run wrote (it was changed, damaged or replaced); {_RESTORE}")


def _read_hashes(file: Path) -> dict[int, str]:
    pairs = read_json(file, _RESTORE)
    try:
        found = {step: text for step, text in pairs}
        if not all(type(step) is int and step >= 0 and isinstance(text, str) for step, text in found.items()):
            raise ValueError("a step or a hash is missing")
    except (TypeError, ValueError) as error:
        raise RunError(f"{file} is damaged ({error}); {_RESTORE}") from error
    return found


def _read(file: Path, schema: pa.Schema) -> list[dict[str, Any]]:
    try:
        table = read_parquet(file, schema.names).cast(schema)
        if any(column.null_count for column in table.columns):
            raise ValueError("a value is missing")
        return rows_of(table)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise RunError(f"{file}, a file of the bank, is damaged ({error}); {_RESTORE}") from error


def _entries(file: Path, counters: dict[int, dict[int, dict[str, Any]]]) -> Iterator[tuple[Entry, bool]]:
    """The entries of a file with their counters, which are taken out of `counters`, and whether they had any: the bank
    holds those that had."""
    seen = Counter[int]()  # entries of each step so far
    for place, stored in enumerate(_read(file, _ENTRIES), 1):
        found, mode = stored.pop("found"), stored.pop("mode")
        row, number = Rehearsal(**stored), seen[found]
        if not is_whole(row):
            raise RunError(f"{file} is damaged in row {place}; {_RESTORE}")
        seen[found] += 1
        compact = {"prompt_ids": array("i", row.prompt_ids), "response_ids": array("i", row.response_ids)}
        row = Rehearsal(**{**stored, **compact, "ref_logprobs": array("f", row.ref_logprobs)})
        own = counters.get(found, {}).pop(number, None)
        if not counters.get(found, True):
            del counters[found]
        yield Entry(row, mode, **(own or {"found": found, "number": number})), own is not None
