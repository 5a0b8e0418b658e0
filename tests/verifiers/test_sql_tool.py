"""The tool that queries a problem's database: what a model sees, its limits, and that it only reads."""

import sqlite3

import pytest

from dph.errors import UserError
from dph.verifiers.sql.tool import SqlTool


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "shop.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE item (name TEXT, price REAL)")
        connection.executemany(
            "INSERT INTO item VALUES (?, ?)", [(f"n{i}", i / 2) for i in range(5)] + [("none", None)]
        )
    connection.close()
    return path


@pytest.fixture
def tool():
    with SqlTool(workers=1, timeout=1.0, rows=3, characters=200) as made:
        yield made


def test_it_shows_names_rows_and_their_number(tool, database):
    shown = tool.query(str(database), "SELECT name, price AS p FROM item WHERE price < 1 OR price IS NULL")
    assert shown == "name | p\nn0 | 0.0\nn1 | 0.5\nnone | NULL\n(3 rows)"
    assert tool.query(str(database), "SELECT name FROM item").endswith("n2\n(the first 3 of 6 rows)")
    long = tool.query(str(database), "SELECT hex(zeroblob(500))")
    assert len(long) < 230 and long.endswith(" …\n(1 rows)")


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT missing FROM item", "no such column"),
        ("DELETE FROM item", "not authorized"),
        ("ATTACH 'other.sqlite' AS other", "not authorized"),
        ("", "no statement"),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n", "no result after 1 s"),
        ("SELECT 1 FROM item a, item b, item c, item d, item e, item f", "more than 10000 rows"),
        (None, "must be a text"),
    ],
)
def test_what_fails_is_said_and_nothing_is_written(tool, database, sql, reason):
    before = database.read_bytes()
    assert tool.query(str(database), sql).startswith("Error: ")
    assert reason in tool.query(str(database), sql)
    assert database.read_bytes() == before
    assert tool.query(str(database), "SELECT 1") == "1\n1\n(1 rows)"


def test_a_changed_file_is_read_anew_and_a_missing_one_is_refused(tool, database, tmp_path):
    assert tool.query(str(database), "SELECT count(*) FROM item").split("\n")[1] == "6"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE other (x)")
        connection.execute("DELETE FROM item")
    connection.close()
    assert tool.query(str(database), "SELECT count(*) FROM item").split("\n")[1] == "0"
    with pytest.raises(UserError, match="no database file at"):
        tool.query(str(tmp_path / "missing"), "SELECT 1")
