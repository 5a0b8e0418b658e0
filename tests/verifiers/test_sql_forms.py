"""The canonical form of a query: equal for the same plan written otherwise, different for another plan, bounded."""

import json
import random
import sqlite3
import time
from collections import defaultdict
from contextlib import closing
from pathlib import Path

import pytest

from dph.verifiers.sql.forms import MOST_CHARACTERS, query_form

SAME = [
    ("SELECT T1.name FROM singer AS T1 WHERE T1.age > 3", "select Name from singer -- all\n where 3 < age;"),
    (
        "SELECT a.x, b.y FROM a JOIN b ON a.id = b.id WHERE a.z = 'Q' AND b.w = 2",
        "SELECT s.x, t.y FROM b AS t, a AS s WHERE t.w = 2 AND (t.id = s.id) AND s.z = 'Q'",
    ),
    ("SELECT count(*) AS n FROM t GROUP BY a, b ORDER BY n", "SELECT COUNT(*) FROM t GROUP BY b, a ORDER BY COUNT(*)"),
    ("SELECT x FROM t UNION SELECT y FROM u", "SELECT y FROM u UNION SELECT x FROM t"),
    ("SELECT x FROM t WHERE y IN (1, 2, 3)", "SELECT x FROM t WHERE y IN (3, 1, 2)"),
    ("WITH q AS (SELECT id FROM t) SELECT * FROM q", "WITH zz AS (SELECT id FROM t) SELECT * FROM zz"),
    ("SELECT (a + b) * c FROM t", "SELECT c * (b + a) FROM t"),
    ("SELECT x FROM (SELECT y AS x FROM t) AS s", "SELECT x FROM (SELECT y AS x FROM t)"),
    (
        "SELECT name FROM s WHERE id IN (SELECT c.id FROM c AS c WHERE c.y = 2)",
        "SELECT name FROM s WHERE id IN (SELECT id AS i FROM c WHERE y = 2)",
    ),
    ("SELECT a FROM t WHERE x >= 1 OR y = 2 OR x >= 1", "SELECT a FROM t WHERE 2 = y OR 1 <= x"),
    ('SELECT "name" FROM [singer]', "SELECT name FROM singer"),
]
OTHERS = [
    ("SELECT (a + b) * c FROM t", "SELECT a + b * c FROM t"),
    ("SELECT a FROM t WHERE x = 1", "SELECT a FROM t WHERE x = 2"),
    ("SELECT a FROM t WHERE x = 'A'", "SELECT a FROM t WHERE x = 'a'"),
    ('SELECT a FROM t WHERE x = "A"', 'SELECT a FROM t WHERE x = "a"'),  # literals, if no column has the name
    ("SELECT a, b FROM t", "SELECT b, a FROM t"),
    ("SELECT a FROM t EXCEPT SELECT b FROM u", "SELECT b FROM u EXCEPT SELECT a FROM t"),
    ("SELECT a FROM t LEFT JOIN u ON t.i = u.i", "SELECT a FROM u LEFT JOIN t ON t.i = u.i"),
    ("SELECT a FROM t LEFT JOIN u ON t.i = u.i", "SELECT a FROM t JOIN u ON t.i = u.i"),
    ("SELECT a FROM t LEFT JOIN u ON t.i = u.i AND u.k = 1", "SELECT a FROM t LEFT JOIN u ON t.i = u.i WHERE u.k = 1"),
    ("SELECT a FROM t WHERE a < b", "SELECT a FROM t WHERE a > b"),
    ("SELECT a FROM t WHERE a <= b", "SELECT a FROM t WHERE a < b"),
    ("SELECT DISTINCT a FROM t", "SELECT a FROM t"),
    ("SELECT a FROM t ORDER BY a", "SELECT a FROM t ORDER BY a DESC"),
    ("SELECT a FROM t ORDER BY a, b", "SELECT a FROM t ORDER BY b, a"),
    ("SELECT a FROM t LIMIT 1", "SELECT a FROM t LIMIT 2"),
    ("SELECT a FROM t UNION SELECT a FROM u", "SELECT a FROM t UNION ALL SELECT a FROM u"),
    ("SELECT x.a FROM t x JOIN t y ON x.i = y.j", "SELECT y.a FROM t x JOIN t y ON x.i = y.j"),
    (
        "SELECT a FROM t WHERE i IN (SELECT i FROM t AS u WHERE u.k = t.k)",
        "SELECT a FROM t WHERE i IN (SELECT i FROM t AS u WHERE u.k = u.k)",
    ),
    ("SELECT a - b FROM t", "SELECT b - a FROM t"),
    ("SELECT a FROM t WHERE NOT (x = 1 AND y = 2)", "SELECT a FROM t WHERE NOT x = 1 AND y = 2"),
    ("SELECT name FROM s WHERE id IN (SELECT id FROM c)", "SELECT name FROM s JOIN c ON s.id = c.id"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_plan_written_otherwise_has_one_form(one, other):
    assert query_form(one) is not None and query_form(one) == query_form(other)


@pytest.mark.parametrize(("one", "other"), OTHERS)
def test_another_plan_has_another_form(one, other):
    assert None not in (query_form(one), query_form(other)) and query_form(one) != query_form(other)


def test_the_order_of_conditions_never_matters():
    """Random permutations of seven conditions, with random brackets and sides."""
    draw, forms = random.Random(0), set()
    for _ in range(40):
        parts = [f"c{i} = {i}" if draw.random() < 0.5 else f"({i} = c{i})" for i in range(7)]
        draw.shuffle(parts)
        cut = draw.randrange(1, 7)
        forms.add(query_form(f"SELECT a FROM t WHERE ({' AND '.join(parts[:cut])}) AND {' AND '.join(parts[cut:])}"))
    assert len(forms) == 1 and None not in forms


@pytest.mark.parametrize(
    "sql",
    ["no query", "SELECT (", "SELECT 1; SELECT 2", "DELETE FROM t", "", "SELECT " + "NOT " * 900 + "1",
     "SELECT " + "(" * 1900 + "1" + ")" * 1900, "SELECT * FROM " + "(SELECT * FROM " * 250 + "t" + ")" * 250,
     "SELECT 1 WHERE " + "CASE " * 700, "SELECT a FROM t WHERE b = '" + "x" * MOST_CHARACTERS + "'"],
)  # fmt: skip
def test_what_has_no_form_says_so_soon(sql):
    begun = time.process_time()
    assert query_form(sql) is None
    assert time.process_time() - begun < 2


def test_a_form_does_not_depend_on_the_depth_of_the_caller():
    sql = "SELECT " + "NOT " * 30 + "(" * 30 + "a" + ")" * 30 + " FROM t"

    def below(depth):
        return below(depth - 1) if depth else query_form.__wrapped__(sql)

    assert query_form(sql) is not None and below(700) == query_form(sql)


def test_published_queries_of_one_form_return_the_same_rows(shared_data: Path):
    """Spider's gold queries and three systems' predictions, by database; each form's queries are executed."""
    folder, queries = shared_data / "spider", defaultdict(set)
    for line in (folder / "dev_gold.sql").read_text().splitlines():
        sql, db = line.split("\t")
        queries[db].add(sql)
    for name in ("c3_chatgpt", "codes_1b_sft", "codes_15b_sft"):
        for line in (folder / "predictions" / f"{name}.jsonl").read_text().splitlines():
            row = json.loads(line)
            queries[row["db_id"]].add(row["pred"])
    compared, unlike, without = 0, [], 0
    for db, every in queries.items():
        file = folder / "database" / db / f"{db}.sqlite"
        if not file.is_file():
            continue
        by_form = defaultdict(list)
        for sql in sorted(every):
            form = query_form(sql)
            without += form is None
            by_form[form].append(sql)
        with closing(sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)) as connection:
            connection.text_factory = bytes
            for form, some in by_form.items():
                if form is not None and len(some) > 1:
                    results = {repr(rows_of(connection, sql)) for sql in some} - {"None"}  # one of them may not run
                    compared += 1
                    unlike += [some] if len(results) > 1 else []
    assert compared > 500 and not unlike and without <= 5


def rows_of(connection, sql):
    try:
        return sorted(map(repr, connection.execute(sql).fetchmany(5000)))
    except sqlite3.Error:
        return None
