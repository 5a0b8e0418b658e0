"""Execution plans: equal for queries that do the same, different for those that do not, and nothing is ever run."""

import os
import sqlite3
import time
from pathlib import Path

import pytest

from dph.verifiers.sql.plan import PlanReader, canonical_plan


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "the clubs.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(
        "CREATE TABLE Club (id INTEGER PRIMARY KEY, town TEXT);"
        "CREATE TABLE member (id INT, club INT); CREATE INDEX by_club ON member (club);"
    )
    connection.close()
    return path


@pytest.fixture(scope="module")
def reader():
    with PlanReader() as found:
        yield found


def plan(reader: PlanReader, database: Path, sql: str) -> str | None:
    return reader.plans(database, [sql])[0]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT town FROM Club",
        'select T1."TOWN" from CLUB as T1',
        "SELECT id FROM Club -- other columns of the same rows",
        "WITH q AS (SELECT town FROM Club) SELECT * FROM q",
        "SELECT town FROM (SELECT town, id FROM Club) AS inner_one",
        "SELECT town FROM Club;",
    ],
)
def test_the_same_scan_however_it_is_written(reader: PlanReader, database: Path, sql: str):
    assert plan(reader, database, sql) == "scan club"


def test_steps_nest_and_subqueries_have_no_names(reader: PlanReader, database: Path):
    expected = "materialize subquery\n  scan club\nscan subquery\nsearch member using covering index by_club (club=?)"
    nested = "SELECT town FROM (SELECT town, id FROM Club LIMIT 3) AS zz JOIN member m ON m.club = zz.id"
    named = "WITH w AS (SELECT town, id FROM Club LIMIT 3) SELECT w.town FROM w JOIN member ON member.club = w.id"
    renamed = (
        "WITH w AS (SELECT town, id FROM Club LIMIT 3) SELECT x.town FROM w AS x JOIN member ON member.club = x.id"
    )
    assert reader.plans(database, [nested, named, renamed, nested]) == [expected] * 4
    inside = plan(reader, database, "SELECT town FROM Club WHERE id IN (SELECT club FROM member)")
    assert (
        inside
        == "search club using integer primary key (rowid=?)\nlist subquery\n  scan member using covering index by_club"
    )


def test_other_work_is_another_plan(reader: PlanReader, database: Path):
    queries = [
        "SELECT town FROM Club",
        "SELECT town FROM Club ORDER BY town",
        "SELECT town FROM Club WHERE id = 1",
        "SELECT town FROM Club WHERE id IN (SELECT club FROM member)",
        "SELECT town FROM Club JOIN member ON Club.id = member.club",
    ]
    assert len(set(reader.plans(database, queries))) == len(queries)


def test_an_alias_that_is_the_name_of_another_table():
    # The scan of "member" here is one of the table club.
    assert canonical_plan("SELECT 1 FROM club AS member", [[2, 0, "SCAN member"]]) == "scan club"


@pytest.mark.parametrize(
    "sql",
    [
        *("", ";", "nonsense", "SELECT nothing FROM Club", "SELECT 1; SELECT 2", "EXPLAIN SELECT 1"),
        *("DELETE FROM Club", "CREATE TABLE x (y)", "ATTACH 'x.db' AS x", "PRAGMA table_info(Club)", "VACUUM INTO 'x'"),
        "SELECT " + "(" * 5000 + "1" + ")" * 5000,
    ],
)
def test_what_is_no_query_has_no_plan_and_changes_nothing(reader: PlanReader, database: Path, sql: str):
    before = database.read_bytes()
    assert plan(reader, database, sql) is None
    assert database.read_bytes() == before and os.listdir(database.parent) == [database.name]


def test_a_query_without_end_is_not_run(reader: PlanReader, database: Path):
    start = time.monotonic()
    endless = "WITH RECURSIVE r (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT count(*) FROM r"
    assert "recursive step" in (plan(reader, database, endless) or "")
    assert time.monotonic() - start < 5.0  # it would never end; the limit is 5 s


def test_a_database_that_is_not_there(reader: PlanReader, tmp_path: Path):
    assert plan(reader, tmp_path / "none.sqlite", "SELECT 1") is None
    assert not list(tmp_path.iterdir())
