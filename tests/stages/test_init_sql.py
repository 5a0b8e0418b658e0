"""`dph init sql`: columns that name databases, queries with something around them, searches in full text."""

import csv
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from complaints import complaint
from dph.cli.main import main
from dph.types import Problem
from dph.verifiers import Verifiers

COUNT = "SELECT count(*) FROM item"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the database c.sqlite, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect("c.sqlite")) as connection:
        connection.executescript(
            "CREATE TABLE item (name TEXT); INSERT INTO item VALUES ('pen'); CREATE VIRTUAL TABLE ft USING fts5(body);"
            "INSERT INTO ft VALUES ('hello world');"
        )
    return tmp_path


def made(capsys, rows: list[dict[str, str]]) -> tuple[list[dict], str]:
    """The problems that `dph init` makes of rows, and what it says."""
    with Path("q.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    main(["init", "sql", "c.sqlite", "q.csv", "--out", "made", "--test-share", "0"])
    said = "".join(capsys.readouterr())
    lines = Path("made/problems/train.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines], said


@pytest.mark.parametrize(("column", "name"), [("db_id", "c"), ("db_id", "c.sqlite"), ("DB_ID", "c"), ("database", "c")])
def test_a_column_that_names_the_database_is_used(folder: Path, capsys, column: str, name: str):
    [row], said = made(capsys, [{"question": "How many?", "query": COUNT, column: name}])
    assert row["db"] == "c.sqlite" and "1 of 1 gold answer can be judged against" in said
    assert "all rows are taken" not in said


def test_another_name_is_said_and_several_are_refused(folder: Path, capsys):
    rows = [{"question": f"How many {n}?", "query": COUNT, "db_id": "shop"} for n in range(2)]
    _, said = made(capsys, rows)
    assert "the column 'db_id' names 'shop'; all rows are taken for c.sqlite\n" in said
    Path("q.csv").write_text(f"question,query,db_id\na?,{COUNT},c\nb?,{COUNT},d\n", encoding="utf-8")
    told = complaint(capsys, "init", "sql", "c.sqlite", "q.csv", "--out", "again")
    assert "the column 'db_id' names 2 databases (c, d), and dph init takes one; run it once for each" in told
    Path("q.csv").write_text(f"question,query,db_name\na?,{COUNT},c\nb?,{COUNT},d\n", encoding="utf-8")
    assert "names 2 databases (c, d)" in complaint(capsys, "init", "sql", "c.sqlite", "q.csv", "--out", "again")
    assert not Path("again").exists()


WRAPPED = [
    f"```sql\n{COUNT}\n```",
    f"```\n{COUNT}\n```",
    f"SQL: {COUNT}",
    f"Gold query: {COUNT}",
    f"<sql>{COUNT}</sql>",
    f"The query is\n```sqlite\n{COUNT}\n```\nIt counts.",
]


def test_a_query_in_a_fence_or_after_a_label_is_read_and_counted(folder: Path, capsys):
    rows = [{"id": str(n), "question": f"How many {n}?", "query": query} for n, query in enumerate([*WRAPPED, COUNT])]
    problems, said = made(capsys, rows)
    assert {row["answer"] for row in problems} == {COUNT}
    assert "queries read out of a fence, out of tags or after a label: 6: 0, 1, 2, 3, 4, 5\n" in said


@pytest.mark.parametrize("gold", WRAPPED)
def test_such_a_query_in_a_file_of_problems_fails_with_what_to_do(folder: Path, gold: str):
    with Verifiers() as verifiers:
        [reason] = verifiers.check([Problem("a", "How many?", gold, "sql", {"db": "c.sqlite"})]).values()
    assert reason.endswith("; write the query alone, without a fence, tags or a label around it")


def test_a_search_in_full_text_uses_nothing_that_its_prompt_lacks(folder: Path, capsys):
    """Full-text search reads tables of its own, which no prompt names."""
    search = "SELECT body FROM ft WHERE ft MATCH 'hello' ORDER BY rank"
    _, said = made(capsys, [{"question": "Where?", "query": search}])
    assert "1 of 1 gold answer can be judged against\n" in said and "does not name" not in said
