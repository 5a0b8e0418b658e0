"""Options of the SQL verifier: rules and what can be chosen in them, rewards, suites of databases, doubtful golds."""

import sqlite3
import time
from pathlib import Path

import pytest

from dph.errors import UserError
from dph.types import Outcome, Problem
from dph.verifiers import Verifiers
from dph.verifiers.sql.rewards import calls_with_sql, partial_credit, soft_f1
from dph.verifiers.sql.rules import RULES, rule_versions
from dph.verifiers.sql.text import tie_probes
from dph.verifiers.sql.verifier import SqlVerifier

C, W, E = Outcome.CORRECT, Outcome.WRONG, Outcome.ERROR


def database(path: Path, *rows: tuple) -> Path:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (a, b, c)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    connection.commit()
    connection.close()
    return path


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return database(tmp_path / "data.sqlite", (1, "x", 0.1), (2, "y", 0.2), (2, "y", 0.2), (3, "z", None))


def problem(db: Path, gold: str, id: str = "p", **meta) -> Problem:
    return Problem(id, "?", gold, "sql", {"db": str(db), **meta})


def judge(db: Path, gold: str, *queries: str, **options) -> list[Outcome]:
    with SqlVerifier(timeout=30, answer="whole", **options) as verifier:
        return [v.outcome for v in verifier.verify([(problem(db, gold), sql) for sql in queries])]


@pytest.mark.parametrize(
    ("options", "gold", "cases"),
    [
        # strict: the columns' order counts unless it is free, their number and duplicates always do
        ({}, "SELECT a, b FROM t", {"SELECT b, a FROM t": W, "SELECT a, b FROM t ORDER BY a DESC": C}),
        ({"columns": "free"}, "SELECT a, b FROM t",
         {"SELECT b, a FROM t": C, "SELECT b, a, b FROM t": W, "SELECT DISTINCT b, a FROM t": W}),
        ({"columns": "free"}, "SELECT c, a FROM t", {"SELECT a, c * 3 / 3 FROM t": C, "SELECT a, c + 1 FROM t": W}),
        ({"columns": "free"}, "SELECT a, b FROM t ORDER BY a",
         {"SELECT b, a FROM t ORDER BY a": C, "SELECT b, a FROM t ORDER BY a DESC": W}),
        # 0.1 + 0.2 differs from 0.3 by 5.6e-17, and 0.3 from 0.30003 by 1e-4
        ({}, "SELECT 0.3", {"SELECT 0.1 + 0.2": C, "SELECT 0.30003": W}),
        ({"tolerance": 0.0}, "SELECT 0.3", {"SELECT 0.1 + 0.2": W, "SELECT 0.3": C}),
        ({"tolerance": 1e-3}, "SELECT 0.3", {"SELECT 0.30003": C, "SELECT 0.31": W}),
        # bird: sets; a text without a statement gives no rows; two empty results are equal
        ({"comparator": "bird"}, "SELECT a FROM t",
         {"SELECT DISTINCT a FROM t ORDER BY 1 DESC": C, "SELECT a, b FROM t": W}),
        ({"comparator": "bird"}, "SELECT a FROM t WHERE 0", {"-- nothing": C, "SELECT b, a FROM t WHERE 0": C}),
        ({"comparator": "bird"}, "SELECT CAST(X'FF' AS TEXT)", {"SELECT 1": Outcome.GOLD_ERROR}),
        # spider: DISTINCT goes from both sides unless it is kept; "value" becomes 1; MySQL's year is 2020
        ({"comparator": "spider"}, "SELECT DISTINCT b FROM t", {"SELECT b FROM t": C, "SELECT b FROM t GROUP BY b": W}),
        ({"comparator": "spider", "keep_distinct": True}, "SELECT DISTINCT b FROM t",
         {"SELECT b FROM t": W, "SELECT b FROM t GROUP BY b": C}),
        ({"comparator": "spider"}, "SELECT a FROM t WHERE a = 1", {"SELECT a FROM t WHERE a = value": C}),
        ({"comparator": "spider"}, "SELECT YEAR(CURDATE())", {"SELECT 2020": C, "SELECT year ( curdate ( ) )": C}),
        ({"comparator": "spider"}, "SELECT a FROM t", {"SELECT a FROM t; DROP TABLE t": C}),
        ({"comparator": "spider", "keep_distinct": True}, "SELECT a FROM t", {"SELECT a FROM t; DROP TABLE t": E}),
        ({"comparator": "spider"}, "SELECT a FROM t WHERE a IN (SELECT a FROM t order by a)",
         {"SELECT a FROM t": C, "SELECT a FROM t ORDER BY -a": W}),
        ({"comparator": "spider"}, "SELECT 'a'", {"SELECT CAST(X'61FF' AS TEXT)": C}),
        # paper: order never counts, DISTINCT always does
        ({"comparator": "paper"}, "SELECT a FROM t ORDER BY a",
         {"SELECT a FROM t ORDER BY -a": C, "SELECT DISTINCT a FROM t": W}),
        ({"comparator": "paper_bird"}, "SELECT a FROM t ORDER BY a", {"SELECT DISTINCT a FROM t": C}),
    ],
)  # fmt: skip
def test_what_the_rules_accept(db: Path, options: dict, gold: str, cases: dict[str, Outcome]):
    assert judge(db, gold, *cases, **options) == list(cases.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep_distinct": True}, "strict has no option keep_distinct; it belongs to spider"),
        ({"comparator": "bird", "columns": "free"}, "bird has no option columns; it belongs to strict"),
        ({"columns": "some"}, "columns must be fixed or free, not 'some'"),
        ({"tolerance": 1.0}, r"tolerance must be in \[0, 1\), not 1.0"),
        ({"answer": "last"}, "answer must be block or whole, not 'last'"),
    ],
)
def test_options_that_a_rule_does_not_have(options: dict, message: str):
    with pytest.raises(UserError, match=message):
        SqlVerifier(**options)


def test_every_rule_has_a_version():
    assert rule_versions().split() == [f"{rule.name}@{rule.version}" for rule in RULES.values()]
    assert len(RULES) == 5 and all(rule.version >= 1 for rule in RULES.values())


def test_a_result_must_be_equal_on_every_database_of_the_suite(tmp_path: Path):
    first = database(tmp_path / "1.sqlite", (1, "x", 2), (2, "y", 1))
    same = database(tmp_path / "2.sqlite", (1, "x", 2), (2, "y", 1))
    other = database(tmp_path / "3.sqlite", (1, "x", 2), (2, "y", 3))
    empty = database(tmp_path / "4.sqlite")
    gold, luck = "SELECT max(a) FROM t", "SELECT max(c) FROM t"
    suites = [[], [str(same)], [str(same), str(other)], [str(empty), str(other)]]
    with SqlVerifier(timeout=30, answer="whole") as verifier:
        verdicts = verifier.verify(
            [(problem(first, gold, suite=suite), sql) for suite in suites for sql in (gold, luck)]
        )
        assert [v.outcome for v in verdicts] == [C, C, C, C, C, W, C, W]
        bad = problem(first, "SELECT a / b FROM u", suite=[str(other)])
        assert verifier.verify([(bad, gold)])[0].outcome is Outcome.GOLD_ERROR
        gone = problem(first, gold, suite=[str(tmp_path / "gone.sqlite")])
        assert "gone.sqlite" in verifier.verify([(gone, gold)])[0].detail
        with pytest.raises(UserError, match=r"'p': no database file at .*gone\.sqlite"):
            verifier.check([gone])
        with pytest.raises(UserError, match="'suite' in its meta must be a list"):
            verifier.verify([(problem(first, gold, suite="x"), gold)])


def test_results_are_remembered_by_content_and_not_by_name(tmp_path: Path):
    first = database(tmp_path / "1.sqlite", (1, 2, 3))
    copy = tmp_path / "copy.sqlite"
    copy.write_bytes(first.read_bytes())
    slow = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x WHERE n < 3000000) SELECT max(n) FROM x"
    with SqlVerifier(timeout=60, gold_timeout=60, answer="whole", cache_size=0) as verifier:
        started = time.perf_counter()
        assert verifier.verify([(problem(first, slow), "SELECT 1")])[0].outcome is W
        once = time.perf_counter() - started
        started = time.perf_counter()
        assert verifier.verify([(problem(copy, slow), "SELECT 2")])[0].outcome is W
        assert time.perf_counter() - started < once / 3  # the gold, which takes nearly all the time, did not run again


# Rewards ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gold", "predicted", "expected"),
    [
        ([(1, "a")], [("b",)], 0.0),
        ([(1, "a")], [(1,)], 0.8 * 1 / 2),  # 1 of 2 gold columns, 1 predicted
        ([(1, "a")], [(1, "a", 5)], 0.8 * 4 / 6),
        ([(1,), (1,)], [(1,)], 0.8),  # only a duplicate is missing
        ([(1, 1)], [(1,)], 0.8),  # both gold columns agree with the one: 4/2, which is more than 1
        ([], [(1,)], 0.0),
        ([(1,)], [], 0.0),
    ],
)
def test_partial_credit(gold, predicted, expected: float):
    assert partial_credit(gold, predicted, False) == pytest.approx(expected, abs=1e-12)
    assert partial_credit(gold, predicted, True) == 1.0


@pytest.mark.parametrize(
    ("gold", "predicted", "expected"),
    [
        ([], [], 0.0),  # of another number of columns
        ([(1,)], [], 0.0),
        ([(1, "a"), (2, "b")], [(1, "a"), (2, "b")], 1.0),
        ([(1, "a"), (2, "b")], [("a", 1), ("b", 2)], 1.0),  # the order of columns does not count
        # row 1: 1 of 2 matched, 1 spurious, 1 missing, each over 2; row 2 has no partner: 2·0.5/(2·0.5 + 0.5 + 1.5)
        ([(1, "a"), (2, "b")], [(1, "c")], 1 / 3),
        ([(1,)], [(1,), (1,), (2,)], 2 / 3),  # the duplicate goes; one row too many: 2/(2 + 1)
    ],
)
def test_soft_f1(gold, predicted, expected: float):
    assert soft_f1(gold, predicted, False) == pytest.approx(expected, abs=1e-12)


CALL = '<tool_call>{"name": "run", "arguments": {"sql": "SELECT 1"}}</tool_call>'


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (CALL, True),
        (f"{CALL} and then <tool_call>nothing</tool_call>", False),  # the last one decides
        ('<tool_call>{"arguments": {"query": "SELECT 1"}}</tool_call>', False),
        ("<tool_call>[1]</tool_call>", False),
        ("<tool_call>" + "[" * 100_000, False),
        ("", False),
    ],
)
def test_tool_calls(response: str, expected: bool):
    assert calls_with_sql(response) is expected


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        ("binary", [1.0, 0.0, 0.0, 0.0, 0.0]),
        ("arctic", [1.0, 0.1, 0.1, 0.0, 0.0]),
        ("paper", [1.0, 0.4, 0.6, 0.0, 0.0]),  # 0.8·1/2, and 0.2 more for the tool call
        ("soft_f1", [1.0, 2 / 3, 2 / 3, 0.0, 0.0]),  # half the cells of both rows: 2·0.5/(2·0.5 + 0.5)
    ],
)
def test_rewards(db: Path, reward, expected: list[float]):
    half = "```sql\nSELECT a FROM t\n```"
    responses = ["```sql\nSELECT a, b FROM t\n```", half, CALL + half, "```sql\nSELECT\n```", "none"]
    with Verifiers({"sql": {"reward": reward, "timeout": 30}}) as verifiers:
        verdicts = verifiers.verify([(problem(db, "SELECT a, b FROM t"), response) for response in responses])
    assert [v.reward for v in verdicts] == pytest.approx(expected)


# Doubtful golds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gold", "flags"),
    [
        ("SELECT a FROM t", []),
        ("SELECT a FROM t WHERE a > 9", ["empty"]),
        ("SELECT count(*) FROM t WHERE a > 9", []),
        ("SELECT b FROM t ORDER BY a DESC LIMIT 1", []),
        ("SELECT b FROM t ORDER BY a LIMIT 2", []),  # the tied rows are equal
        ("SELECT c, b FROM t ORDER BY length(b) LIMIT 1", ["limit_ties"]),
        ("SELECT b FROM t LIMIT 1 -- any", ["limit_ties"]),
        ("SELECT b FROM t LIMIT 99;", []),
        ("SELECT a, b FROM t ORDER BY length(b) -- all are tied", ["order_ties"]),
        ("SELECT a FROM t UNION SELECT 7 ORDER BY 1 LIMIT 2", []),
        ("SELECT a FROM t UNION SELECT 7 LIMIT 2", ["limit_ties"]),
        ("SELECT a FROM (SELECT a FROM t LIMIT 99)", []),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a LIMIT 1)", []),
        ("SELECT c FROM t WHERE a = (SELECT a FROM t ORDER BY length(b) LIMIT 1)", ["limit_ties"]),
        ("SELECT c FROM t WHERE a IN (SELECT a FROM t ORDER BY length(b) LIMIT 1) ORDER BY a", ["limit_ties"]),
        ("SELECT missing FROM t", []),
    ],
)
def test_flags(db: Path, gold: str, flags: list[str]):
    with Verifiers({"sql": {"timeout": 30}}) as verifiers:
        assert verifiers.flags([problem(db, gold)]) == ({"p": flags} if flags else {})


def test_flags_are_of_the_problems_own_database(db: Path, tmp_path: Path):
    empty = database(tmp_path / "empty.sqlite")
    suites = [
        problem(db, "SELECT a FROM t", "p", suite=[str(empty)]),
        problem(empty, "SELECT a FROM t", "q", suite=[str(db)]),
    ]
    with SqlVerifier() as verifier:
        assert verifier.flags(suites) == {"q": ["empty"]}


def test_doubtful_golds_are_reported_once_and_kept(db: Path, capsys: pytest.CaptureFixture[str]):
    from dph.sampling.rollouts import usable_problems

    golds = [
        "SELECT a FROM t",
        "SELECT a FROM t WHERE 0",
        "SELECT b FROM t WHERE 0",
        "SELECT b FROM t LIMIT 1",
        "SELECT u",
    ]
    problems = [problem(db, gold, f"p{number}") for number, gold in enumerate(golds)]
    with Verifiers({"sql": {"timeout": 30}}) as verifiers:
        assert usable_problems(verifiers, problems) == problems[:4]
    said = capsys.readouterr().err
    assert (
        said.count("left out: p4: ") == 1 and "weak, empty (no rows, which every query without rows equals): " in said
    )


def test_ties_in_the_order_are_no_matter_where_order_does_not_count(db: Path):
    with SqlVerifier(comparator="bird") as verifier:
        assert verifier.flags([problem(db, "SELECT a, b FROM t ORDER BY length(b)")]) == {}


def test_probes_go_before_the_limit_and_before_comments():
    assert tie_probes("SELECT a, b FROM t ORDER BY a LIMIT 3", 2) == (
        "SELECT a, b FROM t ORDER BY a, 1, 2  LIMIT 3",
        "SELECT a, b FROM t ORDER BY a, 1 DESC, 2 DESC  LIMIT 3",
    )
    assert tie_probes("SELECT a FROM (SELECT a FROM t ORDER BY a LIMIT 1) -- x", 1) == (
        "SELECT a FROM (SELECT a FROM t ORDER BY a, 1  LIMIT 1) -- x",
        "SELECT a FROM (SELECT a FROM t ORDER BY a, 1 DESC  LIMIT 1) -- x",
    )
    assert tie_probes("SELECT a FROM (SELECT a FROM t ORDER BY a) -- x", 1) is None
    assert tie_probes("SELECT 'open", 1) is None
