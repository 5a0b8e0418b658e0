"""The bank in a run directory: what each step admitted, and which of it a checkpoint holds.

bank/step-00000012.parquet     the entries that step 12 admitted (step 0: those with which the bank began), in order
checkpoints/step-…/bank.parquet    the entries of the bank after that step, by step and place, with their counters
checkpoints/step-…/bank_files.json SHA-256 of every file of the folder bank up to that step

A file is written whole, before the update of its step. A resumed run drops those after its checkpoint, so that they are
a function of the settings and the seed. Nothing is pickled.
"""

import json
from array import array
from collections.abc import Mapping, Sequence
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
_ENTRIES = SCHEMA.append(pa.field("mode", pa.string()))
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
_TABLE, _HASHES = "bank.parquet", "bank_files.json"
_RESTORE = "restore it, or start a new run in another directory"


@dataclass
class BankFiles:
    """The files of a bank."""

    run: Path
    _hashes: dict[int, str] = field(default_factory=dict)
    """SHA-256 of the file of each step that has one."""

    def write(self, step: int, entries: Sequence[Entry]) -> None:
        """Write what a step admitted, if it did."""
        if not entries:
            return
        file = self._file(step)
        check_place(file)
        file.parent.mkdir(exist_ok=True)
        columns = {name: [getattr(entry.row, name) for entry in entries] for name in SCHEMA.names}
        columns["mode"] = [entry.mode for entry in entries]
        with written_atomically(file) as temporary:
            pq.write_table(pa.table(columns, schema=_ENTRIES), temporary)
        self._hashes[step] = sha256(file)

    def save(self, bank: Bank, checkpoint: Path) -> None:
        """Write which entries the bank holds, and their counters, into the folder of a checkpoint."""
        entries = sorted(bank.entries, key=lambda entry: entry.age)
        columns = {name: [getattr(entry, name) for entry in entries] for name in _COUNTERS.names}
        pq.write_table(pa.table(columns, schema=_COUNTERS), checkpoint / _TABLE)
        (checkpoint / _HASHES).write_text(json.dumps(sorted(self._hashes.items())) + "\n", encoding="utf-8")

    def restore(self, bank: Bank, checkpoint: Path) -> None:
        """Fill an empty bank with the entries that a checkpoint holds. Raises RunError, naming the file, if one is
        missing, is not as the run wrote it, or cannot be read."""
        self._hashes = _read_hashes(checkpoint / _HASHES)
        rows = _read(checkpoint / _TABLE, _COUNTERS)
        by_step: dict[int, list[dict[str, Any]]] = {}
        for row in rows:
            by_step.setdefault(row["found"], []).append(row)
        entries = list[Entry]()
        for step, written in self._hashes.items():
            file = self._file(step)
            _check(file, written)
            if step in by_step:
                stored = _read(file, _ENTRIES)
                entries += [_entry(file, stored, counters) for counters in by_step.pop(step)]
        if by_step:
            raise RunError(f"{checkpoint / _TABLE} names entries of steps that {_HASHES} does not; {_RESTORE}")
        bank.restore(entries)

    def drop(self, after: int) -> None:
        """Remove the files of steps after `after`, and what a killed process left behind."""
        for file in (self.run / FOLDER).glob("step-*.parquet"):
            if (digits := file.stem.removeprefix("step-")).isdecimal() and int(digits) > after:
                file.unlink()
        remove_leftovers(self.run / FOLDER)

    def _file(self, step: int) -> Path:
        return self.run / FOLDER / f"step-{step:08d}.parquet"


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


def _entry(file: Path, stored: Sequence[Mapping[str, Any]], counters: Mapping[str, Any]) -> Entry:
    """An entry from its row and its counters."""
    if not 0 <= counters["number"] < len(stored):
        raise RunError(
            f"{file} has {len(stored)} entries, and a checkpoint names number {counters['number']}; {_RESTORE}"
        )
    columns = dict(stored[counters["number"]])
    mode = columns.pop("mode")
    row = Rehearsal(**columns)
    if not is_whole(row):
        raise RunError(f"{file} is damaged in row {counters['number'] + 1}; {_RESTORE}")
    compact = {"prompt_ids": array("i", row.prompt_ids), "response_ids": array("i", row.response_ids)}
    return Entry(Rehearsal(**{**columns, **compact, "ref_logprobs": array("f", row.ref_logprobs)}), mode, **counters)
