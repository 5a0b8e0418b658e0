"""Hostile queries: none changes a byte, makes a file, raises, overruns its limit, or keeps the next from its answer.

Every case is judged in a folder that holds nothing but its database. The classes of cases are tables of SQL; what
concerns processes and descriptors has tests of its own at the end.
"""

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from dph.types import Outcome, Problem
from dph.verifiers.sql.verifier import SqlVerifier
from kills import judging_seconds

LIMIT = 0.4  # seconds for a query
OVERRUN = 1.2  # seconds: the kernel counts whole ones, and a busy parent looks later
REFUSED = {Outcome.ERROR}
STOPPED = {Outcome.ERROR, Outcome.TIMEOUT}
HARMLESS = {Outcome.ERROR, Outcome.WRONG}

GOLD = "SELECT name FROM person WHERE age = 30"
FOREVER = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x)"
MANY = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x WHERE n < 100000)"

WRITING = {
    "delete": "DELETE FROM person",
    "update": "UPDATE person SET age = 30",
    "insert returning": "INSERT INTO person (name) VALUES ('eve') RETURNING name",
    "replace": "REPLACE INTO person VALUES (1, 'eve', 30)",
    "delete after a cte": "WITH x AS (SELECT 1) DELETE FROM person WHERE id IN x",
    "update from": "UPDATE person SET age = 1 FROM person AS p WHERE p.id = person.id RETURNING *",
    "create table": "CREATE TABLE t (a)",
    "create as": "CREATE TABLE t AS SELECT * FROM person",
    "temp table": "CREATE TEMP TABLE t AS SELECT * FROM person",
    "view": "CREATE VIEW v AS SELECT 1",
    "trigger": "CREATE TEMP TRIGGER t AFTER DELETE ON person BEGIN SELECT 1; END",
    "index": "CREATE INDEX i ON person (age)",
    "virtual table": "CREATE VIRTUAL TABLE temp.t USING fts5(a)",
    "drop": "DROP TABLE person",
    "alter": "ALTER TABLE person RENAME TO people",
    "reindex": "REINDEX",
    "analyze": "ANALYZE",
    "vacuum": "VACUUM",
    "vacuum into": "VACUUM INTO 'copy.sqlite'",
    "attach": "ATTACH DATABASE 'other.sqlite' AS other",
    "attach a uri": "ATTACH DATABASE 'file:other.sqlite?mode=rwc' AS other",
    "attach memory": "ATTACH DATABASE ':memory:' AS other",
    "detach": "DETACH DATABASE main",
    "writable schema": "PRAGMA writable_schema = 1",
    "write schema": "UPDATE sqlite_master SET sql = 'CREATE TABLE person (a)'",
    "query only": "PRAGMA query_only = 0",
    "journal": "PRAGMA journal_mode = WAL",
    "user version": "PRAGMA user_version = 7",
    "temp folder": "PRAGMA temp_store_directory = '.'",
    "pragma as a table": "SELECT * FROM pragma_journal_mode('wal')",
    "pragma function": "SELECT name FROM pragma_database_list",
    "checkpoint": "PRAGMA wal_checkpoint(TRUNCATE)",
    "transaction": "BEGIN EXCLUSIVE",
    "savepoint": "SAVEPOINT s",
    "rollback": "ROLLBACK",
    "load extension": "SELECT load_extension('evil.so', 'init')",
    "write a file": "SELECT writefile('stolen.txt', name) FROM person",
    "read a file": "SELECT readfile('/etc/passwd')",
    "edit": "SELECT edit('text', 'touch stolen')",
    "tokenizer pointer": "SELECT fts3_tokenizer('simple', X'4141414141414141')",
    "page": "UPDATE sqlite_dbpage SET data = zeroblob(4096) WHERE pgno = 1",
    "function that writes": "SELECT sqlar_compress(writefile('x', 'y'))",
}
MEMORY = {
    "zeroblob": "SELECT zeroblob(1 << 30)",
    "largest blob": "SELECT zeroblob(2147483647)",
    "hex": "SELECT hex(zeroblob(60000000))",
    "random blob": "SELECT randomblob(2000000000)",
    "printf": "SELECT printf('%s%s', hex(zeroblob(400000)), hex(zeroblob(400000)))",
    "printf character": "SELECT printf('%.*c', 1500000000, 'x')",
    "quote": "SELECT quote(zeroblob(60000000))",
    "replace": "SELECT replace(hex(zeroblob(20000)), '0', hex(zeroblob(20000)))",
    "nested replace": "SELECT replace(replace(replace(hex(zeroblob(99)), '0', hex(zeroblob(9999))), '0', 12), 1, 5)",
    "doubling": "WITH RECURSIVE x(n, s) AS (SELECT 1, 'ab' UNION ALL SELECT n + 1, s || s FROM x) SELECT max(s) FROM x",
    "group_concat": f"{FOREVER} SELECT group_concat(hex(zeroblob(100000))) FROM x",
    "json array": f"{FOREVER} SELECT json_group_array(hex(zeroblob(100000))) FROM x",
    "sorter": f"{FOREVER}, y AS (SELECT randomblob(100000) AS b FROM x) SELECT b FROM y ORDER BY b",
    "distinct": f"{FOREVER}, y AS (SELECT randomblob(100000) AS b FROM x) SELECT count(DISTINCT b) FROM y",
    "group by": f"{FOREVER}, y AS (SELECT randomblob(100000) AS b FROM x) SELECT count(*) FROM y GROUP BY b",
    "queue": "WITH RECURSIVE x(b) AS (SELECT 1 UNION ALL SELECT randomblob(99999) FROM x, person) SELECT sum(b) FROM x",
    "union": "WITH RECURSIVE x(b) AS (SELECT 1 UNION SELECT randomblob(99999) FROM x, person) SELECT count(*) FROM x",
    "window": f"{FOREVER} SELECT sum(length(s)) OVER (ORDER BY n) FROM (SELECT n, hex(zeroblob(50000)) AS s FROM x)",
    "materialized": f"{FOREVER}, y AS MATERIALIZED (SELECT randomblob(100000) FROM x) SELECT count(*) FROM y, y",
    "giant rows": f"{MANY} SELECT " + ", ".join(["zeroblob(900000)"] * 40) + " FROM x",
    "many rows": "SELECT a.id FROM person a, person b, person c, person d, person e, person f, person g, person h",
    "many wide rows": f"{MANY} SELECT " + ", ".join(["n"] * 1900) + " FROM x",
}  # fmt: skip
TIME = {
    "endless recursion": f"{FOREVER} SELECT count(*) FROM x",
    "endless without rows": f"{FOREVER} SELECT n FROM x WHERE n < 0",
    "endless limit": f"{FOREVER} SELECT n FROM x LIMIT 1 OFFSET 1000000000000",
    "endless union": "WITH RECURSIVE x(n) AS (SELECT 1 UNION SELECT (n * 7 + 3) % 1000007 FROM x) SELECT * FROM x, x",
    "two recursions": f"{FOREVER}, y(m) AS (SELECT n FROM x) SELECT count(*) FROM x, y",
    "cross join": f"{MANY} SELECT count(*) FROM x a, x b, x c",
    "sorted cross join": f"{MANY} SELECT count(*) FROM (SELECT 1 FROM x a, x b ORDER BY random())",
    "correlated": f"{MANY} SELECT (SELECT count(*) FROM x b WHERE b.n <> a.n AND b.n % 7 = a.n % 11) FROM x a",
    "exists": f"{MANY} SELECT count(*) FROM x a WHERE NOT EXISTS (SELECT 1 FROM x b WHERE b.n + a.n < 0)",
    "like": f"{MANY} SELECT count(*) FROM x WHERE hex(zeroblob(200000)) || n LIKE '%" + "0%" * 40 + "a'",
    "glob": f"{MANY} SELECT count(*) FROM x WHERE hex(zeroblob(200000)) || n GLOB '*" + "0*" * 40 + "a'",
    "like over a join": f"{MANY} SELECT count(*) FROM x a, x b WHERE hex(a.n) LIKE '%' || b.n || '%9%'",
    "instr": "SELECT instr(zeroblob(40000000), zeroblob(20000000) || X'01')",
    "trim": "SELECT trim(hex(zeroblob(20000000)), hex(randomblob(10000)))",
    "replace in a loop": f"{MANY} SELECT sum(length(replace(hex(zeroblob(100000)), '00', n))) FROM x",
    "window frame": f"{MANY} SELECT max(m) FROM (SELECT min(hex(a.n)) OVER (ROWS 9 PRECEDING) AS m FROM x a, x b)",
    "median of medians": f"{MANY} SELECT a.n FROM x a JOIN x b ON abs(a.n - b.n) >= 0 GROUP BY a.n",
    "json": f"{MANY} SELECT sum(json_valid('[' || substr(hex(zeroblob(200000)), 1, n * 4) || ']')) FROM x",
    "values": "SELECT count(*) FROM " + ", ".join(f"(VALUES {', '.join(['(1)'] * 50)}) v{i}" for i in range(9)),
    "random": f"{FOREVER} SELECT n FROM x WHERE abs(random()) < 2",
}  # fmt: skip
PARSING = {
    "two statements": f"{GOLD}; DELETE FROM person",
    "two queries": f"{GOLD}; {GOLD}",
    "empty first": "; ; DELETE FROM person",
    "comment first": f"-- {GOLD}\nDELETE FROM person",
    "block comment": "/* SELECT 1 */ DELETE /* */ FROM person",
    "nested comment": "/* /* */ DROP TABLE person -- */",
    "statement after a comment": f"{GOLD} -- ;\n; DROP TABLE person",
    "semicolon in a literal": "SELECT ';' ; VACUUM INTO 'x;y'",
    "open comment": "SELECT 1 /* DELETE FROM person",
    "open literal": "SELECT 'DELETE FROM person",
    "open name": 'SELECT "DELETE FROM person',
    "explain": "EXPLAIN DELETE FROM person",
    "explain the plan": "EXPLAIN QUERY PLAN UPDATE person SET age = 1",
    "case": "dElEtE fRoM person",
    "brackets": "DELETE FROM [person]",
    "quoted names": 'DELETE FROM "person"',
    "hidden schema": "SELECT * FROM main.sqlite_master WHERE load_extension('x')",
    "deep parentheses": "SELECT " + "(" * 100_000 + "1" + ")" * 100_000,
    "deep not": "SELECT " + "NOT " * 100_000 + "1",
    "deep minus": "SELECT " + "- " * 100_000 + "1",
    "deep subqueries": "SELECT " + "(SELECT " * 2000 + "1" + ")" * 2000,
    "deep from": "SELECT * FROM " + "(SELECT * FROM " * 1000 + "person" + ")" * 1000,
    "deep case": "SELECT " + "CASE WHEN 1 THEN " * 5000 + "1" + " END" * 5000,
    "long sum": "SELECT " + "1 + " * 100_000 + "1",
    "long list": "SELECT 1 WHERE 1 IN (" + "1, " * 300_000 + "1)",
    "many columns": "SELECT " + "1, " * 50_000 + "1",
    "many selects": " UNION ALL ".join(["SELECT 1"] * 20_000),
    "many joins": "SELECT 1 FROM person" + ", person" * 5000,
    "many ctes": "WITH " + ", ".join(f"c{i} AS (SELECT 1)" for i in range(20_000)) + " SELECT 1",
    "exploding ctes": "WITH c0 AS (SELECT 1 AS a), " + ", ".join(
        f"c{i} AS (SELECT x.a FROM c{i - 1} x, c{i - 1} y)" for i in range(1, 40)) + " SELECT a FROM c39",
    "long name": "SELECT 1 AS " + "a" * 3_000_000,
    "long blank": " " * 3_000_000 + "DELETE FROM person",
    "many statements": "SELECT 1;" * 100_000,
    "parameters": "SELECT ?1, :a, @b, $c",
    "huge parameter": "SELECT ?999999999",
    "huge number": "SELECT " + "9" * 1_000_000,
    "mutual recursion": "WITH a AS (SELECT * FROM b), b AS (SELECT * FROM a) SELECT * FROM a",
    "nothing": ";",
    "only a comment": "-- nothing",
}  # fmt: skip
BYTES = {
    "nul": "SELECT 1\x00; DELETE FROM person",
    "nul first": "\x00DELETE FROM person",
    "nul in a literal": "SELECT 'a\x00b'",
    "nul in a name": 'SELECT "na\x00me" FROM person',
    "high surrogate": "SELECT '\ud800'",
    "low surrogate": "SELECT '\udcff'",
    "surrogate outside": "\udc80DELETE FROM person",
    "surrogate pair": "SELECT '\ud83d\ude00'",
    "byte order mark": "\ufeffDELETE FROM person",
    "right to left": "SELECT '\u202e' ; --\u202e\nDELETE FROM person",
    "wide semicolon": "SELECT 1\uff1b DELETE FROM person",
    "wide quote": "SELECT \u2018a\u2019",
    "no-break space": "DELETE\u00a0FROM\u00a0person",
    "zero width": "DEL\u200bETE FROM person",
    "control characters": "SELECT '" + "".join(map(chr, range(1, 32))).replace("'", "") + "'",
    "end of file": "SELECT 1\x1a DELETE FROM person",
    "escape sequences": "SELECT '\x1b]0;evil\x07\x1b[2J'",
    "line ends": "SELECT 1\r--\rDELETE\u2028FROM\u2029person",
    "not utf-8": "SELECT CAST(X'FFFEC0AF80' AS TEXT)",
    "not utf-8 name": "SELECT CAST(X'C3' AS TEXT) AS a, CAST(X'EDA080' AS TEXT)",
    "impossible characters": "SELECT char(55296, 1114112, -1, 0)",
    "half a character": "SELECT substr(CAST(X'F09F98' AS TEXT), 1, 1) || X'80'",
    "joined halves": "SELECT CAST(X'F09F' AS TEXT) || CAST(X'9880' AS TEXT)",
    "unistr": "SELECT unistr('\\D83D\\0000')",
    "text of a blob": "SELECT CAST(randomblob(100000) AS TEXT) FROM person",
    "utf-16": "SELECT CAST(X'FFFE410042' AS TEXT), hex('\U0010ffff')",
    "last character": "SELECT '\U0010ffff' || char(1114111)",
    "combining": "SELECT '" + "a\u0301" * 200_000 + "'",
}

CASES = [
    pytest.param(sql, allowed, id=f"{kind}: {name}")
    for kind, cases, allowed in (
        ("writing", WRITING, REFUSED),
        ("memory", MEMORY, {*STOPPED, Outcome.WRONG}),  # printf gives NULL for what is too long
        ("time", TIME, STOPPED),
        ("parsing", PARSING, {*HARMLESS, Outcome.TIMEOUT}),
        ("bytes", BYTES, HARMLESS),
    )
    for name, sql in cases.items()
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("attacked")
    connection = sqlite3.connect(path / "people.sqlite")
    connection.execute("CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT, age INTEGER)")
    connection.executemany("INSERT INTO person (name, age) VALUES (?, ?)", [(f"p{i}", 20 + i) for i in range(12)])
    connection.commit()
    connection.close()
    return path


@pytest.fixture(scope="module")
def verifier(folder: Path) -> Iterator[SqlVerifier]:
    """Its workers start in the attacked folder, take it for temporary files too, and remember no verdict."""
    before = os.getcwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("TMPDIR", str(folder))
        patch.setenv("SQLITE_TMPDIR", str(folder))
        made = SqlVerifier(timeout=LIMIT, memory_mb=512, max_rows=100_000, max_bytes=1 << 20, cache_size=0)
        with made:
            yield made
    assert os.getcwd() == before


def problem(folder: Path, gold: str = GOLD) -> Problem:
    return Problem("p", "?", gold, "sql", {"db": str(folder / "people.sqlite")})


def judge(verifier: SqlVerifier, problem: Problem, sql: str) -> tuple[Outcome, float]:
    """Outcome, and the processor seconds that it took."""
    started = judging_seconds()
    [verdict] = verifier.verify([(problem, f"```sql\n{sql}\n```")])
    return verdict.outcome, judging_seconds() - started


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(("sql", "allowed"), CASES)
def test_attack(verifier: SqlVerifier, folder: Path, sql: str, allowed: set[Outcome]):
    before = contents(folder)
    outcome, seconds = judge(verifier, problem(folder), sql)
    assert outcome in allowed
    assert seconds <= LIMIT + OVERRUN
    after, _ = judge(verifier, problem(folder), GOLD)
    assert after is Outcome.CORRECT
    assert contents(folder) == before


def test_there_are_enough_cases():
    """The classes are what they are said to be: at least ten cases each, sixty in all."""
    assert min(map(len, (WRITING, MEMORY, TIME, PARSING, BYTES))) >= 10 and len(CASES) >= 60


@pytest.mark.parametrize("comparator", ["bird", "spider", "paper"])
@pytest.mark.parametrize("name", ["delete", "vacuum into", "attach"])
def test_no_rule_lets_a_write_through(folder: Path, comparator: str, name: str):
    """A rule that takes a text without a query for an empty result must not take a write for one."""
    before = contents(folder)
    with SqlVerifier(comparator=comparator, timeout=5.0) as verifier:
        outcome, _ = judge(verifier, problem(folder, f"{GOLD} AND 0"), WRITING[name])
    assert outcome is Outcome.ERROR and contents(folder) == before
