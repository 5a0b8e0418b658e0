"""Virtual tables: json_each, json_tree, full-text search and rtree are read as by the official evaluators' plain
connection, and never written."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from dph.types import Outcome, Problem
from dph.verifiers.sql.rules import RULES
from dph.verifiers.sql.verifier import SqlVerifier

SCHEMA = """
CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT, tags TEXT);
INSERT INTO note VALUES (1, 'red apple', '["a","b"]'), (2, 'green pear', '["b"]'), (3, 'red pear', '[]');
CREATE VIRTUAL TABLE three USING fts3(text);
CREATE VIRTUAL TABLE four USING fts4(text, tags);
CREATE VIRTUAL TABLE five USING fts5(text, tags);
CREATE VIRTUAL TABLE "odd "" name" USING fts5(text, content='note', content_rowid='id');
CREATE VIRTUAL TABLE words4 USING fts4aux(four);
CREATE VIRTUAL TABLE words5 USING fts5vocab(five, 'row');
CREATE VIRTUAL TABLE place USING rtree(id, left, right);
INSERT INTO three SELECT text FROM note;
INSERT INTO four SELECT text, tags FROM note;
INSERT INTO five SELECT text, tags FROM note;
INSERT INTO "odd "" name" ("odd "" name") VALUES ('rebuild');
INSERT INTO place VALUES (1, 0.0, 1.0), (2, 5.0, 6.0);
"""
READING = [
    "SELECT atom FROM json_each('[1, 2, 3]')",  # not "value", which Spider's evaluator replaces by 1
    "SELECT note.id, atom FROM note, json_each(note.tags)",
    "SELECT id FROM note WHERE EXISTS (SELECT 1 FROM json_each(tags) WHERE atom = 'b')",
    """SELECT fullkey, atom FROM json_tree('{"a": [1, {"b": null}]}') WHERE type <> 'object'""",
    "SELECT text FROM three WHERE three MATCH 'red'",
    "SELECT docid, text FROM four WHERE four MATCH 'text:pear NOT red'",
    "SELECT snippet(four), offsets(four), hex(matchinfo(four)) FROM four WHERE text MATCH 'ap*'",
    "SELECT * FROM five",
    "SELECT text, bm25(five), rank FROM five WHERE five MATCH 'red OR pear' ORDER BY rank, text",
    "SELECT highlight(five, 0, '[', ']') FROM five('pear')",
    """SELECT rowid, text FROM "odd "" name" WHERE text MATCH 'apple'""",
    "SELECT term, documents FROM words4 WHERE col = '*'",
    "SELECT term, doc, cnt FROM words5",
    "SELECT id FROM place WHERE left >= 2.0",
    "SELECT note.text FROM place JOIN note ON note.id = place.id WHERE place.right < 2",
    "SELECT count(*) FROM five_content UNION ALL SELECT count(*) FROM place_node",
]
WRITING = [
    *("INSERT INTO five (text) VALUES ('x')", "UPDATE five SET text = 'x'", "DELETE FROM five", "DROP TABLE five"),
    *(f"INSERT INTO five (five) VALUES ('{command}')" for command in ("optimize", "rebuild", "delete-all")),
    "INSERT INTO five (five, rank) VALUES ('automerge', 8)",
    "INSERT INTO four (four) VALUES ('optimize')",
    "SELECT optimize(four) FROM four WHERE four MATCH 'red'",
    *("DELETE FROM five_data", "UPDATE five_config SET v = 0", "INSERT INTO four_content VALUES (9, 'x', 'y')"),
    *("DELETE FROM place", "INSERT INTO place VALUES (3, 0, 1)", "DELETE FROM place_node WHERE 0"),
    "INSERT OR REPLACE INTO place_node VALUES (1, zeroblob(9)) RETURNING nodeno",
    "UPDATE json_each SET value = 1",
    "CREATE VIRTUAL TABLE temp.t USING fts5(a)",
    "CREATE VIRTUAL TABLE temp.t USING rtree(id, a, b)",
    "CREATE VIRTUAL TABLE temp.t USING fts4aux(main, four)",
    "ALTER TABLE five RENAME TO six",
    "WITH x AS (SELECT rowid FROM five) DELETE FROM five WHERE rowid IN x",
    "SELECT fts3_tokenizer('simple') FROM four",
    "SELECT fts3_tokenizer('simple', X'4141414141414141')",
    "SELECT load_extension(value) FROM json_each('[\"evil.so\"]')",
    "SELECT writefile('stolen', value) FROM json_each('[1]')",
    "ATTACH 'other.sqlite' AS other",
    "PRAGMA data_version = 3",
    "PRAGMA main.page_size = 512",
    *("PRAGMA writable_schema = 1", "PRAGMA query_only = 0", "PRAGMA trusted_schema = 1"),
    "UPDATE sqlite_master SET sql = '' WHERE name = 'five'",
]
ENDLESS = [
    "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT count(*) FROM x, json_each('[1, 2]')",
    "SELECT count(*) FROM " + ", ".join(f"json_each('[{','.join('0' * 200)}]') AS j{n}" for n in range(5)),
    "SELECT count(*) FROM " + ", ".join(f"five AS f{n}" for n in range(30)),
    "SELECT value FROM json_each('[' || replace(hex(zeroblob(30000000)), '0', '0,') || '0]')",
    "SELECT count(*) FROM json_tree(replace(hex(zeroblob(2000000)), '0', '['))",
]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("virtual") / "notes.sqlite"
    connection = sqlite3.connect(path)
    try:
        connection.executescript(SCHEMA)
    except sqlite3.OperationalError as error:
        pytest.skip(f"this SQLite lacks a kind of virtual table: {error}")
    finally:
        connection.close()
    return path


@pytest.fixture(scope="module", params=RULES)
def verifier(request: pytest.FixtureRequest) -> Iterator[SqlVerifier]:
    with SqlVerifier(comparator=request.param, answer="whole", timeout=20, cache_size=0) as made:
        yield made


def problem(db: Path, gold: str) -> Problem:
    return Problem("p", "?", gold, "sql", {"db": str(db)})


def literal(value: object) -> str:
    if value is None:
        return "NULL"
    return repr(value) if isinstance(value, int | float) else "'" + str(value).replace("'", "''") + "'"


@pytest.mark.parametrize("sql", READING)
def test_virtual_tables_are_read_as_on_a_plain_connection(verifier: SqlVerifier, db: Path, sql: str):
    connection = sqlite3.connect(db)
    rows = connection.execute(sql).fetchall()
    connection.close()
    assert rows
    values = "VALUES " + ", ".join(f"({', '.join(map(literal, row))})" for row in rows)
    assert verifier.check([problem(db, sql)]) == {}
    items = [(problem(db, sql), values), (problem(db, values), sql), (problem(db, sql), f"{sql}\n LIMIT 0")]
    assert [verdict.outcome for verdict in verifier.verify(items)] == [Outcome.CORRECT, Outcome.CORRECT, Outcome.WRONG]


@pytest.mark.parametrize("sql", WRITING)
def test_virtual_tables_cannot_be_written(verifier: SqlVerifier, db: Path, sql: str):
    before = db.read_bytes()
    gold = problem(db, "SELECT 1 WHERE 0")
    refused, after = verifier.verify([(gold, sql), (problem(db, READING[8]), f"{READING[8]} ")])
    assert (refused.outcome, after.outcome) == (Outcome.ERROR, Outcome.CORRECT)
    assert db.read_bytes() == before and [path.name for path in db.parent.iterdir()] == [db.name]


@pytest.mark.parametrize("sql", ENDLESS)
def test_virtual_tables_keep_the_limits(db: Path, sql: str):
    with SqlVerifier(answer="whole", timeout=0.5, memory_mb=512, max_bytes=1 << 20) as verifier:
        stopped, after = verifier.verify([(problem(db, "SELECT 1"), sql), (problem(db, READING[8]), f"{READING[8]} ")])
    assert stopped.outcome in {Outcome.ERROR, Outcome.TIMEOUT}
    assert after.outcome is Outcome.CORRECT
