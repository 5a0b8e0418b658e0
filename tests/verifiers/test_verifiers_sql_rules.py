"""Extraction and comparison rules."""

import itertools
import json
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dph.verifiers.sql.compare import permuted_equal, set_equal, strict_equal
from dph.verifiers.sql.rules import Options, get_rule
from dph.verifiers.sql.text import extract_sql, orders_its_rows, tie_probes

PLAIN = Options()


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("```sql\nSELECT 1\n```", "SELECT 1"),
        ("query: ```sql select 1 ```", "select 1"),
        ("```SQL\nSELECT 1\n```\nor better\n``` Sql\nSELECT 2;\n``` done", "SELECT 2;"),
        ("```sql\n```", None),
        ("```python\nSELECT 1\n```", None),
        ("```sqlite\nSELECT 1\n```", "SELECT 1"),
        ("SELECT 1", None),
        ("```sql\nSELECT 1\n```\n```sql\nSELECT 2", None),
    ],
)
def test_the_last_sql_block_is_the_answer(response: str, expected: str | None):
    assert extract_sql(response) == expected


def test_an_open_block_counts_only_when_asked_for():
    assert extract_sql("```sql\nSELECT 1", unterminated=True) == "SELECT 1"
    assert extract_sql("```sql\nSELECT 1\n``` bye", unterminated=True) == "SELECT 1"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT a FROM t ORDER BY a LIMIT 1", True),
        ("WITH x AS (SELECT 1) SELECT * FROM x ORDER  BY 1", True),
        ("SELECT a FROM t UNION SELECT b FROM t ORDER BY 1", True),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a)", False),
        ("SELECT a, row_number() OVER (ORDER BY a) FROM t", False),
        ("WITH x AS (SELECT a FROM t ORDER BY a LIMIT 3) SELECT * FROM x", False),
        ("SELECT 'order by' FROM t", False),
        ("SELECT a FROM t WHERE a IN (SELECT a FROM t ORDER BY a LIMIT 2) -- order by", False),
        ("SELECT a !!! FROM (SELECT a ORDER BY a) ORDER\nBY a", True),  # not SQL to the parser
        ("SELECT a !!! FROM (SELECT a ORDER BY a)", False),
        ("SELECT a FROM t -- it's\nORDER /* the */ BY a", True),
        ("SELECT a FROM t /* ' ORDER BY a */", False),
        ("SELECT a FROM t /* ORDER BY a", False),
        ('SELECT [order by], `order` by, "order" FROM t', False),
        ("SELECT 'it''s' FROM t ORDER BY 'a'", True),
        ("SELECT a FROM t LIMIT (SELECT 1 ORDER BY 1);", False),
        ("SELECT CASE WHEN a THEN 1 END FROM t ORDER BY a", True),
        ("SELECT group_concat(a ORDER BY a) FROM t", False),
    ],
)
def test_only_the_outermost_order_by_orders(sql: str, expected: bool):
    assert orders_its_rows(sql) is expected


def test_the_order_of_published_queries_as_a_parser_finds_it(shared_data: Path):
    import sqlglot
    from sqlglot import exp

    golds = [json.loads(line)["query"] for line in (shared_data / "spider/train_8659.jsonl").read_text().splitlines()]
    golds += [row["SQL"] for row in json.loads((shared_data / "bird/train_filtered_6601.json").read_text())]
    some = sorted(set(golds))[::8]
    trees = [sqlglot.parse_one(sql, read="sqlite") for sql in some]
    assert sum(tree.args.get("order") is not None for tree in trees) > 100
    for sql, tree in zip(some, trees, strict=True):
        assert orders_its_rows(sql) is (tree.args.get("order") is not None)
        cut = tree.args.get("order") is not None or tree.args.get("limit") is not None
        assert (tie_probes(sql, 2) is not None) is (cut or tree.find(exp.Limit) is not None)
        for probe in (tie_probes(sql, 2) or ()) if cut else ():
            order = sqlglot.parse_one(probe, read="sqlite").args["order"].expressions
            assert [item.this.this for item in order[-2:] if isinstance(item.this, exp.Literal)] == ["1", "2"]


def test_spiders_rule_searches_the_whole_text_for_order_by():
    spider = get_rule("spider")
    assert spider.orders("SELECT a FROM (SELECT a FROM t ORDER BY a)", PLAIN)
    assert not spider.orders("SELECT a FROM t ORDER  BY a", PLAIN)
    assert not get_rule("paper").orders("SELECT a FROM t ORDER BY a", PLAIN)


def test_preparation_of_queries():
    spider = get_rule("spider")
    written = "SELECT DISTINCT count(distinct a) FROM t WHERE b > = 'distinct' AND c = value ; DROP TABLE t"
    prepared = " ".join(spider.prepare_prediction(written, PLAIN).split())
    assert prepared == "SELECT count( a) FROM t WHERE b >= 'distinct' AND c = 1 ;"
    assert "value" in spider.prepare_gold(written, PLAIN)
    assert "DROP" in spider.prepare_prediction(written, Options(keep_distinct=True))
    assert get_rule("paper").prepare_gold("SELECT YEAR(CURDATE())", PLAIN) == "SELECT 2020"
    assert get_rule("paper").prepare_prediction("a > = 1 AND distinct", PLAIN) == "a >= 1 AND distinct"
    assert get_rule("strict").prepare_prediction(written, PLAIN) == written


@pytest.mark.parametrize(
    ("gold", "predicted", "strict", "bird", "spider"),
    [
        ([(1, "a"), (2, "b")], [(2, "b"), (1, "a")], True, True, True),
        ([(1, "a"), (2, "b")], [("a", 1), ("b", 2)], False, False, True),
        ([("a",), ("a",)], [("a",)], False, True, False),
        ([("a",), ("a",), ("b",)], [("a",), ("b",), ("b",)], False, True, False),
        ([(1,)], [(1.0,)], True, True, True),
        ([(0.3,)], [(0.1 + 0.2,)], True, False, False),
        ([(12345678.0,)], [(12345679.0,)], False, False, False),
        ([("1",)], [(1,)], False, False, False),
        ([(None,)], [(0,)], False, False, False),
        ([(b"a",)], [("a",)], False, False, False),
        ([("A",)], [("a",)], False, False, False),
        # sums in another order, two rows that cross when sorted as text
        ([(0.3, "x"), (0.1, "y")], [(0.1, "y"), (0.1 + 0.2, "x")], True, False, False),
        ([(1, 2), (2, 1)], [(1, 1), (2, 2)], False, False, False),
    ],
)
def test_rules_on_small_results(gold, predicted, strict: bool, bird: bool, spider: bool):
    assert strict_equal(gold, predicted, False) is strict
    assert set_equal(gold, predicted) is bird
    assert permuted_equal(gold, predicted, False) is spider


def test_the_official_quick_rejection_is_reproduced():
    """In a row of two numbers the text order of 2 and 2.5 differs from that of 2.0 and 2.5."""
    assert not permuted_equal([(2, 2.5)], [(2.0, 2.5)], False)
    assert permuted_equal([(2, 3.5)], [(2.0, 3.5)], False)


def test_empty_results():
    assert get_rule("strict").equal([], [], (1, 1), False, PLAIN)
    assert not get_rule("strict").equal([], [], (1, 2), False, PLAIN)
    assert get_rule("bird").equal([], [], (1, 2), False, PLAIN)
    assert get_rule("spider").equal([], [], (1, 2), True, PLAIN)
    assert not get_rule("spider").equal([], [("a",)], (1, 1), False, PLAIN)


cells = st.sampled_from([None, 0, 1, 2, "a", "b", "1"])
tables = st.integers(1, 4).flatmap(lambda width: st.lists(st.tuples(*[cells] * width), min_size=1, max_size=5))


@given(tables, st.randoms(use_true_random=False))
def test_permuted_equality_is_what_trying_every_permutation_finds(gold, rng: random.Random):
    """Oracle: all column permutations by enumeration, on results that are shuffled or slightly changed."""
    predicted = list(gold)
    rng.shuffle(predicted)
    columns = list(range(len(gold[0])))
    rng.shuffle(columns)
    predicted = [tuple(row[i] for i in columns) for row in predicted]
    if rng.random() < 0.5:
        row = list(predicted[0])
        row[0] = rng.choice([None, 0, 1, 2, "a", "b", "1"])
        predicted[0] = tuple(row)
    for ordered, view in ((False, Counter), (True, list)):
        expected = any(
            view(tuple(row[i] for i in order) for row in predicted) == view(gold)
            for order in itertools.permutations(range(len(gold[0])))
        )
        assert permuted_equal(gold, predicted, ordered) is expected


@pytest.mark.parametrize(
    ("gold", "predicted", "equal"),
    [
        (1.67e-27, 9.1e-31, False),
        (1.67e-27, -1.67e-27, False),
        (1.67e-27, 0.0, False),
        (0, 1e-300, False),
        (1.6e-19, 6.63e-34, False),
        (1.6e-19, 1.6e-19 * (1 + 1e-14), True),
        (0.0, -0.0, True),
        (13105551234.0, 13105551235.0, False),
        (1700000000.0, 1700000001.0, False),
        (2460310.9173611109, 2460310.9166666665, False),  # julianday of 10:01 and of 10:00
        (1e15, 1e15 + 1, False),
        (1234567890123, 1234567890124.0, False),
        (1234567890123.0, 1234567890123, True),
        (10000000000.01, 10000000000.02, False),
        (99999999999, 99999999999.5, False),
        (2.0**60, 2.0**60 + 2.0**9, True),  # sums of numbers that no REAL holds
        (3, 0.1 * 3 * 10, True),
        (0.3, 0.1 + 0.2, True),
    ],
)
def test_strict_numbers_are_equal_up_to_rounding_and_to_nothing_else(gold: float, predicted: float, equal: bool):
    for ordered in (False, True):
        assert strict_equal([(gold,)], [(predicted,)], ordered) is equal
        assert (
            strict_equal([(gold, "a"), (7, "b")], [(7, "b"), (predicted, "a")][:: -1 if ordered else 1], ordered)
            is equal
        )


def test_strict_bags_of_noisy_rows_take_bounded_time():
    """A column that differs by noise alone does not say which rows belong together."""
    gold = [(1.0 + n % 7 * 1e-14, n * 1.1, "a") for n in range(20_000)]
    noisy = [(1.0 + (n + 3) % 7 * 1e-14, n * 1.1 * (1 + 1e-15), "a") for n in range(20_000)]
    ladder = [(1.0 + n * 7e-13, n * 1.1) for n in range(5_000)]  # each step within the tolerance, two steps beyond it
    start = time.process_time()
    assert strict_equal(gold, noisy, False)
    assert not strict_equal(gold, [*noisy[1:], (1.0, -1.1, "a")], False)
    assert strict_equal(ladder, [(a * (1 + 1e-14), b * (1 + 1e-14)) for a, b in reversed(ladder)], False)
    assert not strict_equal(ladder, [(a, b) for (a, _), (_, b) in zip(ladder, reversed(ladder), strict=True)], False)
    steps = [1.5 + n * 7e-13 for n in range(5_000)]
    assert not strict_equal([*zip(steps, steps, strict=True)], [*zip(steps, reversed(steps), strict=True)], False)
    assert not strict_equal([(1.5, n / 7) for n in range(20_000)], [(1.5, -n / 7 - 1) for n in range(20_000)], False)
    assert time.process_time() - start < 5.0


def test_many_equal_columns_do_not_explode():
    """Twelve columns have 479 million permutations; equal columns are tried once."""
    gold = [tuple([0] * 11 + [i]) for i in range(50)]
    predicted = [tuple([i] + [0] * 11) for i in range(50)]
    assert permuted_equal(gold, predicted, False)
    assert not permuted_equal(gold, [tuple([i + 1] + [0] * 11) for i in range(50)], False)


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), cells), max_size=6), st.randoms(use_true_random=False))
def test_strict_bags_survive_rounding_noise_and_shuffling(gold, rng: random.Random):
    noisy = [(value * (1 + rng.uniform(-1, 1) * 1e-13), cell) for value, cell in gold]
    rng.shuffle(noisy)
    assert strict_equal(gold, noisy, False)
    if noisy:
        noisy[0] = (noisy[0][0] + 1.0, noisy[0][1])  # far beyond 1e-12 of 1e6
        changed = Counter((round(v, 3), repr(c)) for v, c in noisy) != Counter((round(v, 3), repr(c)) for v, c in gold)
        assert strict_equal(gold, noisy, False) is not changed
