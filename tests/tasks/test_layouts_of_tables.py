"""Layouts of JSON and CSV: each is read as rows, or refused with what to do; nothing is dropped in silence."""

import json
from pathlib import Path

import pytest

from complaints import complaint
from dph.cli.main import main
from dph.errors import DataError
from dph.tasks.tables import read_rows

ROWS = [{"question": "1 + 1?", "answer": "2"}, {"question": "1 + 2?", "answer": "3"}]
COLUMNS = {"question": ["1 + 1?", "1 + 2?"], "answer": ["2", "3"]}
LAYOUTS = {
    "list": ROWS,
    "columns": COLUMNS,
    "columns of pandas": {name: dict(enumerate(cells)) for name, cells in COLUMNS.items()},
    "split": {"columns": ["question", "answer"], "index": [0, 1], "data": [[*row.values()] for row in ROWS]},
    "wrapped": {"data": ROWS},
    "viewed": {"rows": [{"row_idx": n, "row": row, "truncated_cells": []} for n, row in enumerate(ROWS)]},
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_rows_are_read_from_every_layout(tmp_path: Path, name: str):
    (tmp_path / "a.json").write_text(json.dumps(LAYOUTS[name]), encoding="utf-8")
    assert read_rows(tmp_path / "a.json") == ROWS


def test_rows_by_name_have_the_name_as_their_id(tmp_path: Path):
    named = {"p1": ROWS[0], "p2": ROWS[1] | {"id": "own"}}
    (tmp_path / "a.json").write_text(json.dumps(named), encoding="utf-8")
    assert [row["id"] for row in read_rows(tmp_path / "a.json")] == ["p1", "own"]


def test_a_wrapped_list_in_a_file_of_lines_is_read_and_what_is_beside_it_is_named(tmp_path: Path, capsys):
    (tmp_path / "a.jsonl").write_text(json.dumps({"version": 2, "data": ROWS}) + "\n", encoding="utf-8")
    assert read_rows(tmp_path / "a.jsonl") == ROWS
    assert "ignored: version (the rows are those of 'data')" in capsys.readouterr().err
    one = {"question": "1 + 1?", "answer": "2", "steps": [{"text": "add"}]}
    (tmp_path / "one.jsonl").write_text(json.dumps(one), encoding="utf-8")
    assert read_rows(tmp_path / "one.jsonl") == [one]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"train": ROWS, "test": ROWS}, "write the rows of each of train, test to a file of its own"),
        ({"question": ["a", "b"], "answer": ["1"]}, "but an object with: question, answer"),
        ({"messages": [{"role": "user", "content": "a"}]}, "but an object with: messages"),
        ({}, "but an object with: nothing"),
        ("text", "holds no list of rows"),
    ],
)
def test_other_layouts_are_refused(tmp_path: Path, value: object, said: str):
    (tmp_path / "a.json").write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(DataError, match=said):
        read_rows(tmp_path / "a.json")


def test_rows_of_separators_are_counted(tmp_path: Path, capsys):
    (tmp_path / "a.csv").write_text("question,answer\n1 + 1?,2\n,\n,\n1 + 2?,3\n\n\n", encoding="utf-8")
    assert read_rows(tmp_path / "a.csv") == ROWS
    assert "a.csv: left out, because all their cells are empty: 2 rows (first: line 3)\n" in capsys.readouterr().err


def test_init_says_each_thing_once(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("question,answer,topic\n1 + 1?,2,x\n,,\n1 + 2?,3,y\n", encoding="utf-8")
    main(["init", "maths", "a.csv", "--out", "made"])
    said = "".join(capsys.readouterr())
    assert said.count("left out, because all their cells are empty: 1 row") == 1
    assert said.count("ignored: topic") == 1
    Path("a.json").write_text(json.dumps({"train": ROWS, "test": ROWS}), encoding="utf-8")
    assert "write the rows of each of train, test" in complaint(capsys, "init", "maths", "a.json", "--out", "b")
