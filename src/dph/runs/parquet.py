"""Tables in Parquet files. A table is read whole or row by row, and a file that must not be read gives one sentence."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from dph.config.files import MOST_COLUMNS, opened
from dph.errors import counted, reason_of
from dph.extras import require_installed

if TYPE_CHECKING:  # it is slow to load
    import pyarrow as pa
    import pyarrow.parquet as pq

_ROWS_AT_ONCE = 1 << 10
_CELLS = {"table": 8, "rows": 32}
_FEW_CELLS = 1 << 22
"""These numbers limit the values in a file, because a column whose values are all equal takes nearly no byte. `_CELLS`
has the values that are allowed for each byte of the file, for a table that is read whole and for rows that are read one
after the other. Any file may have `_FEW_CELLS` values."""


def read_parquet(
    path: Path,
    columns: Sequence[str] | None = None,
    optional: Sequence[str] = (),
    only: tuple[str, Sequence[str]] | None = None,
) -> "pa.Table":
    """The columns of a table.

    Args:
        path: of the file.
        columns: the names of columns that must be there; None reads all columns.
        optional: the names of further columns, which may be absent.
        only: a column, and the values that it must have in the rows that are read.
    Raises:
        OSError: the file is not a regular file.
        ValueError: the file is damaged, lacks a column, has a column twice, or would unpack to far more values than its
            size allows. The message is the reason.
    """
    require_installed(f"reading {path}", "pyarrow")
    import pyarrow.compute as pc

    with opened(path) as stream, _sentences(), _opened_table(stream, "table") as file:
        names = file.schema_arrow.names
        if columns is not None:
            if missing := [name for name in columns if name not in names]:
                raise ValueError(f"it lacks the column {missing[0]!r}")
            columns = [*columns, *(name for name in optional if name in names and name not in columns)]
        table = file.read(columns)
        return table if only is None else table.filter(pc.field(only[0]).isin(only[1]))


def rows_of(table: "pa.Table", spare: Collection[str] = ()) -> list[dict[str, Any]]:
    """The rows of a table as dictionaries.

    spare: the names of columns whose values become None if they cannot be read. Raises ValueError, with the name of the
    column, for values that Python lacks, such as dates after the year 9999 and texts that are not UTF-8.
    """
    columns: dict[str, list[Any]] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            columns[name] = _values(name, column)
        except RefusedTable:
            if name not in spare:
                raise
            columns[name] = [None] * len(column)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def iterate_rows(stream: BinaryIO, wanted: Any) -> Iterator[dict[str, Any]]:
    """The rows of a file one after the other.

    wanted: whether a column of plain values is needed, by its name. The values of a column that is not needed become
    None if they cannot be read. Raises ValueError as `read_parquet` and `rows_of` do.
    """
    require_installed("reading a log in Parquet", "pyarrow")
    import pyarrow as pa

    with _sentences(), _opened_table(stream, "rows") as file:
        schema = file.schema_arrow
        spare = {field.name for field in schema if not (pa.types.is_nested(field.type) or wanted(field.name))}
        for batch in file.iter_batches(_ROWS_AT_ONCE):
            yield from rows_of(pa.Table.from_batches([batch]), spare)


def plain_value(value: Any) -> Any:
    """A value of a table as JSON has it: decimal numbers become numbers, and bytes, dates and times become texts.
    Raises ValueError for bytes that are not UTF-8."""
    if isinstance(value, Decimal):
        return int(value) if value.is_finite() and value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return value.decode()
    return value.isoformat() if isinstance(value, date | time) else str(value)


class RefusedTable(ValueError):
    """A table that is whole but must not be read. The message is the reason."""


@contextmanager
def _opened_table(stream: BinaryIO, read_as: str) -> "Iterator[pq.ParquetFile]":
    """Context that yields the table in a file. Raises ValueError for a table that must not be read."""
    import pyarrow.parquet as pq

    size = stream.seek(0, 2)
    stream.seek(0)
    texts = [field.name for field in pq.read_schema(stream) if _is_text(field.type)]
    stream.seek(0)
    # read_dictionary keeps a text that many rows have in memory only once.
    with pq.ParquetFile(stream, read_dictionary=texts) as file:
        names = file.schema_arrow.names
        if len(names) > MOST_COLUMNS:
            raise RefusedTable(f"it has {len(names)} columns; at most {MOST_COLUMNS} are read")
        if len({*names}) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise RefusedTable(f"it has the column {twice!r} twice; rename one")
        meta = file.metadata
        if meta.num_rows * max(1, meta.num_columns) > max(_FEW_CELLS, _CELLS[read_as] * size):
            rows = f"{counted(meta.num_rows, 'row')} of {counted(meta.num_columns, 'column')}"
            raise RefusedTable(f"its {size} bytes unpack to {rows}: too much to read")
        yield file


def _values(name: str, column: Any) -> list[Any]:
    try:
        if hasattr(column.type, "index_type"):
            return [value for chunk in column.chunks for value in _shared(chunk)]
        return column.to_pylist()
    except (ValueError, TypeError, OverflowError, ArithmeticError, LookupError, RecursionError) as error:
        if any(word in str(column.type) for word in ("date", "timestamp", "time", "duration")):
            raise RefusedTable(
                f"the column {name!r} ({column.type}) holds a date or time that Python lacks, such as one outside of "
                "the years 1 to 9999; write the column as text, or leave it out"
            ) from error
        raise RefusedTable(f"the column {name!r} ({column.type}) cannot be read: {reason_of(error)}") from error


def _shared(chunk: Any) -> list[Any]:
    """The values of a column that stores each distinct value once, under a number. Equal values are one object."""
    values = [*chunk.dictionary.to_pylist(), None]
    return [values[-1 if place is None else place] for place in chunk.indices.to_pylist()]


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


@contextmanager
def _sentences() -> Iterator[None]:
    """Context in which every error of Arrow is raised as ValueError. OSErrors stay as they are, because they are errors
    of the system."""
    import pyarrow as pa

    try:
        yield
    except ValueError:
        raise
    except (pa.ArrowException, OverflowError, NotImplementedError, LookupError, TypeError) as error:
        raise ValueError(reason_of(error)) from error
