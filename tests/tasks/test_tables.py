"""Reading users' tables: every kind gives the same rows, and whatever is wrong is said in one sentence."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dph.errors import DataError
from dph.tasks.tables import placed_rows, read_rows

ROWS = [{"prompt": "über\u2028all", "answer": "1"}, {"prompt": "b\n", "answer": "2"}]


def write(path, rows):
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if path.name.endswith(".jsonl"):
        path.write_text(lines, encoding="utf-8")
    elif path.name.endswith(".gz"):
        path.write_bytes(gzip.compress(lines.encode()))
    elif path.name.endswith(".json"):
        path.write_text(json.dumps(rows), encoding="utf-8")
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.json", "a.parquet"])
def test_every_kind_of_file_gives_the_rows(tmp_path, name):
    assert read_rows(write(tmp_path / name, ROWS), required=("prompt", "answer")) == ROWS


text = st.text(st.characters(codec="utf-8"), max_size=8)


@settings(max_examples=30)
@given(rows=st.lists(st.dictionaries(text, text, min_size=1, max_size=3), min_size=1, max_size=4))
def test_jsonl_round_trip(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("rows") / "a.jsonl"
    assert read_rows(write(path, rows)) == rows


CSV = {
    "commas": ('prompt,answer\n"a, b",1\n', ("a, b", "1")),
    "bars": ("prompt|answer\na, b|1\n", ("a, b", "1")),
    "semicolons, a byte order mark, other ends of lines": ("\ufeffprompt;answer\r\na, b;1\r\n", ("a, b", "1")),
    "tabs": ("prompt\tanswer\na, b\t1\n", ("a, b", "1")),
    "quotes and a line break in a cell": ('prompt,answer\n"a ""b""\nc",1\n', ('a "b"\nc', "1")),
    "the line by which Excel is told the separator": ("sep=;\nprompt;answer\na, b;1\n", ("a, b", "1")),
    "an index without a name, blank lines and empty rows": (",prompt,answer\n\n,,\n0,a,\n", ("a", None)),
}


@pytest.mark.parametrize("name", CSV)
def test_csv_has_texts_and_none_for_empty_cells(tmp_path, name):
    content, (prompt, answer) = CSV[name]
    (tmp_path / "a.csv").write_text(content, encoding="utf-8", newline="")
    assert read_rows(tmp_path / "a.csv") == [{"prompt": prompt, "answer": answer}]


def test_rows_have_their_lines_as_places(tmp_path):
    (tmp_path / "a.csv").write_text('a\n"1\n2"\n3\n', encoding="utf-8")
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n\n{"a": 2}\n', encoding="utf-8")
    places = [[place.partition(", ")[2] for place, _ in placed_rows(tmp_path / name)] for name in ("a.csv", "a.jsonl")]
    assert places == [["row 1 (line 2)", "row 2 (line 4)"], ["row 1", "row 2 (line 3)"]]


def test_blank_lines_and_a_missing_last_newline_do_not_count(tmp_path):
    (tmp_path / "a.jsonl").write_text('\n{"a": 1}\r\n   \n{"a": 2}', encoding="utf-8")
    assert read_rows(tmp_path / "a.jsonl") == [{"a": 1}, {"a": 2}]


def test_a_cell_of_csv_may_be_long(tmp_path):
    (tmp_path / "a.csv").write_text(f"prompt,answer\n{'x' * 200_000},1\n")
    assert read_rows(tmp_path / "a.csv") == [{"prompt": "x" * 200_000, "answer": "1"}]


WRONG = {
    "absent.jsonl": (None, "there is no file"),
    "a.txt": (b"a,b\n", "unknown kind; use .jsonl"),
    "empty.jsonl": (b"\n\n", "holds no rows"),
    "list.json": (b'{"a": 1}', "holds no list of rows"),
    "table.json": (b'{"a": [{"a": 1}], "b": [{"a": 1}]}', "write the rows of each of a, b to a file of its own"),
    "broken.json": (b'[{"a": 1}', "is not valid JSON"),
    "broken.jsonl": (b'{"a": 1}\n{"a": \n', "line 2 is not valid JSON"),
    "advice.jsonl": (b'{"a": 1}\n{"a": "b\n', "line 2 .* starting at column 7; correct the line, or leave it out"),
    "utf32.csv": ("a,b\n".encode("utf-32"), "is UTF-32 text; save it as UTF-8"),
    "utf32be.csv": ("a,b\n".encode("utf-32-be"), "is UTF-32 text; save it as UTF-8"),
    "utf32le.csv": ("a,b\n".encode("utf-32-le"), "is UTF-32 text; save it as UTF-8"),
    "comment.csv": (b"# by x\na,b\n1,2\n", "line 2 has 2 cells for 1 column; the first line must name the columns"),
    "few.csv": (b"a,b\n1\n", "line 2 has 1 cell for 2 columns; give it a cell"),
    "deep.jsonl": (b"[" * 100_000, "line 1 is not valid JSON"),
    "latin.jsonl": ('{"a": "ü"}'.encode("latin-1"), "cannot be read"),
    "text.jsonl": (b'{"a": 1}\n"text"\n', "row 2: expected an object with named fields, found str"),
    "cut.jsonl.gz": (gzip.compress(b'{"a": 1}\n' * 99)[:-12], "cannot be read"),
    "sep.csv": (b"sep=;\na;b\n1;2;3\n", "line 3 has 3 cells for 2 columns"),
    "none.jsonl.gz": (b"plain", "cannot be read"),
    "noise.jsonl.gz": (gzip.compress(b'{"a": 1}\n' * 99)[:10] + b"\xff" * 40, "cannot be read"),
    "noise.parquet": (b"PAR1 but no table", "cannot be read"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_file_is_said_in_one_sentence(tmp_path, name):
    content, message = WRONG[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_rows(tmp_path / name)
    assert name in str(caught.value) and "\n" not in str(caught.value).strip()


@pytest.mark.parametrize("row", [{"prompt": "x"}, {"prompt": "x", "answer": None}])
def test_a_missing_column_is_named_with_those_there_are(tmp_path, row):
    path = write(tmp_path / "a.jsonl", [ROWS[0], row])
    with pytest.raises(DataError, match=r"row 2: (no 'answer'; it has: prompt|answer is null)"):
        read_rows(path, required=("prompt", "answer"))


def test_numbers_of_16_and_32_bits_are_the_decimals_that_were_written(tmp_path):
    values = {
        pa.float16(): [0.5, 0.1, 1e-4, None],
        pa.float32(): [0.1, 16777216.0, 1.1e-30, float("inf")],
        pa.float64(): [0.1, 1 / 3, 1e300, None],
        pa.list_(pa.float32()): [[0.1, None], [], None, [3.3]],
        pa.struct({"a": pa.list_(pa.float32()), "b": pa.float64()}): [{"a": [0.7], "b": 1 / 3}, None, None, None],
        pa.string(): ["a", "b", None, "d"],
        pa.map_(pa.string(), pa.float32()): [{"a": 0.1}, {}, None, {"a": 0.3, "b": None}],
        pa.dictionary(pa.int8(), pa.float32()): [0.1, None, 0.1, 0.3],
    }
    columns = {}
    for number, (kind, column) in enumerate(values.items()):
        column = [None if value is None else np.float16(value) for value in column] if number == 0 else column
        maps = [value and list(value.items()) if isinstance(value, dict) else value for value in column]
        columns[f"c{number}"] = pa.array(maps if pa.types.is_map(kind) else column, kind)
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    rows = read_rows(tmp_path / "x.parquet")
    for number, column in enumerate(values.values()):
        assert [row[f"c{number}"] for row in rows] == column
