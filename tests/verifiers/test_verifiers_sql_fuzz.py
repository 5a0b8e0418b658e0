"""Fuzzing of extraction, tokens and comparison, and what changes of a result each rule must not see, or must."""

import random
import sqlite3
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dph.verifiers.sql.compare import Row, permuted_equal, set_equal, strict_equal
from dph.verifiers.sql.rewards import calls_with_sql, partial_credit, soft_f1
from dph.verifiers.sql.rules import RULES, Options
from dph.verifiers.sql.text import extract_sql, extract_sql_paper, orders_its_rows, plain_text, tie_probes, tokens

PIECES = [
    "```", "```sql", "```SQL\n", "``` sql ", "\n```", "\n", "\r", " ", "'", '"', "`", "--", "/*", "*/", ";", "(", ")",
    "distinct", "end", "value", "ORDER BY", "LIMIT 1", "\x00", "\ud800", "é", "<tool_call>", "{", "[",
    "SELECT 1", "\\", "#", "# ", "0x1", "1e", ".", "-- Your SQL query",
]  # fmt: skip
texts = st.one_of(st.lists(st.sampled_from(PIECES), max_size=40).map("".join), st.text(max_size=60))
# Statements in which no fence stands at the start of a line, and every quote is closed.
statements = st.lists(
    st.sampled_from(["SELECT", "a", "'x'", "'```'", "'it''s'", '"n"', "`c`", "/* ``` */", "\n", ",", "1.5"]), min_size=1
).map(" ".join)


@given(texts, st.booleans())
def test_extraction_takes_any_text(text: str, unterminated: bool):
    sql = extract_sql(text, unterminated=unterminated)
    assert sql is None or (sql and sql == sql.strip() and sql in text and "```" in text)
    assert extract_sql(text) in (None, sql) or unterminated
    found = extract_sql_paper(text)
    assert found is None or "```" in text
    assert calls_with_sql(text) in (True, False)


@given(texts, statements)
def test_the_last_whole_block_is_found_whatever_stands_before_it(before: str, sql: str):
    """A fence in a line of its own ends whatever was open."""
    if not sql.strip():
        return
    response = f"{before}\n```\n```sql\n{sql}\n```\nThat is it."
    assert extract_sql(response) == sql.strip()
    assert extract_sql(f"{before}\n```\n```sql\n{sql}") is None
    assert extract_sql(f"{before}\n```\n```sql\n{sql}", unterminated=True) == sql.strip()


@given(texts)
def test_preparation_takes_any_text(sql: str):
    assert "".join(tokens(sql)) == sql
    for rule in RULES.values():
        for options in (Options(), Options(keep_distinct=True)):
            assert isinstance(rule.prepare_gold(sql, options), str)
            assert isinstance(rule.prepare_prediction(sql, options), str)
            assert rule.orders(sql, options) in (True, False)
    assert orders_its_rows(sql) in (True, False)
    assert tie_probes(sql, 2) is None or len(tie_probes(sql, 2) or ()) == 2


@pytest.mark.parametrize("piece", [*PIECES, "```sql\n", "```sql '", "'`", "((", "/*'", "\n ```", "```sql /*", "1'"])
def test_long_texts_take_no_more_than_their_length(piece: str):
    """Quadratic time would take half a minute and more, linear time takes a tenth of a second."""
    text = "```sql\n" + piece * (200_000 // len(piece))
    for read in (extract_sql, extract_sql_paper, calls_with_sql, lambda sql: sum(1 for _ in tokens(sql))):
        started = time.process_time()
        read(text)
        assert time.process_time() - started < 3


# Results ------------------------------------------------------------------------------------------------------------

cells = st.sampled_from([None, 0, 1, 2, 1.0, 2.5, -1, "a", "b", "1", "", b"a", b"", "é", "\udcff"])


@st.composite
def results(draw: st.DrawFn, least: int = 1) -> list[Row]:
    width = draw(st.integers(1, 4))
    return draw(st.lists(st.tuples(*[cells] * width), min_size=least, max_size=6))


def shuffled(rows: list[Row], rng: random.Random) -> list[Row]:
    return rng.sample(rows, len(rows))


def with_columns(rows: list[Row], order: list[int]) -> list[Row]:
    return [tuple(row[i] for i in order) for row in rows]


def text_types(rows: list[Row]) -> set[str]:
    return {type(cell).__name__ for row in rows for cell in row}


@given(results(0))
def test_every_result_equals_itself(rows: list[Row]):
    assert set_equal(rows, rows)
    for ordered in (True, False):
        assert permuted_equal(rows, rows, ordered)
        assert strict_equal(rows, rows, ordered) and strict_equal(rows, rows, ordered, free_columns=True, tolerance=0)
    assert soft_f1(rows, rows, True) == 1.0


@given(results(), results(), st.booleans())
def test_equality_is_symmetric(left: list[Row], right: list[Row], ordered: bool):
    assert permuted_equal(left, right, ordered) == permuted_equal(right, left, ordered)
    assert strict_equal(left, right, ordered) == strict_equal(right, left, ordered)
    assert set_equal(left, right) == set_equal(right, left)
    for credit in (partial_credit, soft_f1):
        assert 0 <= credit(left, right, False) <= 1


@given(results(), st.randoms(use_true_random=False))
def test_the_order_of_rows(rows: list[Row], rng: random.Random):
    """Seen where it counts, unless the shuffle gave the same list."""
    other = shuffled(rows, rng)
    assert set_equal(rows, other) and permuted_equal(rows, other, False) and strict_equal(rows, other, False)
    assert strict_equal(rows, other, True, tolerance=0) is (rows == other)
    assert partial_credit(rows, other, False) == pytest.approx(partial_credit(rows, rows, False))


@given(results(), st.randoms(use_true_random=False))
def test_the_order_of_columns(rows: list[Row], rng: random.Random):
    """Spider's rule and free columns do not see it, the others do."""
    order = rng.sample(range(len(rows[0])), len(rows[0]))
    other = with_columns(rows, order)
    assert permuted_equal(rows, other, True) and permuted_equal(rows, other, False)
    assert strict_equal(rows, other, True, free_columns=True)
    assert strict_equal(shuffled(rows, rng), other, False, free_columns=True)
    assert strict_equal(rows, other, True, tolerance=0) is (rows == other)
    assert set_equal(rows, other) is (set(rows) == set(other))


@given(results(), st.integers(0, 5))
def test_duplicates(rows: list[Row], which: int):
    """Only sets do not see them."""
    other = [*rows, rows[which % len(rows)]]
    assert set_equal(rows, other)
    assert not permuted_equal(rows, other, False) and not strict_equal(rows, other, False)


@given(results(), st.randoms(use_true_random=False))
def test_a_number_keeps_its_value_in_another_type(rows: list[Row], rng: random.Random):
    """1 equals 1.0 by every rule, where the quick rejection of Spider's rule has one column only and sorts nothing."""
    column = [(row[0],) for row in rows]
    other = [tuple(float(c) if isinstance(c, int) and rng.random() < 0.5 else c for c in row) for row in column]
    assert set_equal(column, other) and strict_equal(column, other, True) and permuted_equal(column, other, True)
    assert strict_equal(rows, [tuple(float(c) if isinstance(c, int) else c for c in row) for row in rows], True)


@given(results(), st.integers(0, 5), st.integers(0, 3), cells)
def test_a_changed_cell_is_seen(rows: list[Row], at: int, column: int, cell: object):
    """Text, bytes, numbers and NULL are different values even where they look alike. Oracle: equality of bags."""
    index, place = at % len(rows), column % len(rows[0])
    changed = list(rows)
    changed[index] = (*rows[index][:place], cell, *rows[index][place + 1 :])
    assert strict_equal(rows, changed, False) is (Counter(rows) == Counter(changed))
    assert strict_equal(rows, changed, True) is (rows == changed)
    if permuted_equal(rows, changed, False):  # perhaps by exchanging columns, but never by exchanging values
        assert Counter(c for row in rows for c in row) == Counter(c for row in changed for c in row)


FRACTIONAL = st.floats(-1e3, 1e3).filter(lambda x: not x.is_integer())


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(-5, 5), FRACTIONAL), min_size=1, max_size=6), st.floats(0, 0.5))
def test_the_tolerance_is_relative(rows: list[Row], tolerance: float):
    inside = [(n, x * (1 + 0.4 * tolerance)) for n, x in rows]
    outside = [(n, x + 2 * (abs(x) + 1) * (tolerance + 1e-6)) for n, x in rows]
    assert strict_equal(rows, inside, True, tolerance=tolerance) and strict_equal(rows, rows, True, tolerance=0)
    assert not strict_equal(rows, outside, True, tolerance=min(tolerance, 0.4))


WORDS = [
    "SELECT", "select", "a", "A", "b", "FROM", "from", "t", "T", "*", ",", "AS", "'x'", "'X'", "'a  b'", "'it''s'",
    '"a"', '"A"', '"b c"', "`a`", "[a]", "[B]", "[b  c]", "x'4a'", "X'4A'", "x", "1E2", "1e2", "0XaF", "WHERE", "=",
    "LIKE", "like", "''", "é", "É", ";", "'", '"', "[", "--", "/*", "*/", ":p", ":P", "ORDER BY", "order by", "MAX",
    "max", "where", "(", ")", "-", "K",
]  # fmt: skip
BLANKS = [" ", "  ", "\n", "\t ", "\r\n", "\f", "", "\x0b", "\xa0"]


@st.composite
def written_twice(draw: st.DrawFn) -> tuple[str, str]:
    """A query as two people might write it, or nearly."""
    words = draw(st.lists(st.sampled_from(WORDS), max_size=12))
    head = draw(st.sampled_from([["SELECT", "a", "FROM", "t"], ["SELECT"], []]))
    one, other = "", ""
    for word in [*head, *words]:
        blank = draw(st.sampled_from(BLANKS))
        one += word + blank
        other += draw(st.sampled_from([word, word.lower(), word.upper()])) + draw(st.sampled_from([blank, *BLANKS]))
    return one, other


def answer(connection: sqlite3.Connection, sql: str) -> list[tuple[object, ...]] | None:
    try:
        return connection.execute(sql).fetchall()
    except (sqlite3.Error, sqlite3.Warning, ValueError):
        return None


@given(written_twice())
@settings(max_examples=500)
def test_queries_with_one_plain_text_are_one_query(pair: tuple[str, str]):
    connection = sqlite3.connect(":memory:")
    connection.executescript(
        "CREATE TABLE t(a, b, [b c], [b  c]);"
        "INSERT INTO t VALUES (1, 'x', 2, 3), ('X', 'a  b', 4, 5), ('a b', NULL, 6, 7)"
    )
    one, other = pair
    if plain_text(one) == plain_text(other):
        assert answer(connection, one) == answer(connection, other)
    assert answer(connection, plain_text(one)) == answer(connection, one)
    assert plain_text(plain_text(one)) == plain_text(one) or ";;" in one.replace(" ", "")
    connection.close()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("SELECT  Name\nFROM t ;", "select name from T", True),
        ("SELECT 'A'", "SELECT 'a'", False),
        ('SELECT "A  b"', 'SELECT "A b"', False),
        ("SELECT [A]", "SELECT [a]", False),
        ("SELECT x '41'", "SELECT x'41'", False),  # a column with a name, and a blob
        ("SELECT 1;", "SELECT 1;;", False),  # the second is refused as two statements
        ("SELECT 'it''s', A", "SELECT 'it''s', a", True),
        ("SELECT 1 -- it's\n, A", "SELECT 1 -- it's , A", False),
        ("SELECT a\u00a0FROM t", "SELECT a FROM t", False),  # part of a name to SQLite
        ("SELECT É", "SELECT é", False),
    ],
)
def test_plain_text(one: str, other: str, same: bool):
    assert (plain_text(one) == plain_text(other)) is same
