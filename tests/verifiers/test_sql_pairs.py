"""Our pairs of SQL queries: what is called equal agrees on every database, and what is not differs on one."""

from dph.types import Problem
from dph.verifiers import Verifiers
from dph.verifiers.sql.pairs import ROWS, make_database, other_rows, sql_pairs


def test_the_truth_of_the_pairs(tmp_path):
    pairs = sql_pairs()
    databases = [make_database(tmp_path / f"{place}.sqlite", rows) for place, rows in enumerate([ROWS, *other_rows()])]
    assert len(databases) >= 4 and len(pairs) == len(set(pairs)) > 80
    with Verifiers({"sql": {"timeout": 1.0}}) as verifiers:
        agree = []
        for database in databases:
            problems = [Problem("p", pair.question, pair.gold, "sql", {"db": str(database)}) for pair in pairs]
            asked = [(problem, f"```sql\n{pair.text}\n```") for problem, pair in zip(problems, pairs, strict=True)]
            agree.append([verdict.correct for verdict in verifiers.verify(asked)])
    for pair, *each in zip(pairs, *agree, strict=True):
        assert all(each) is pair.right, pair
        assert each[0] is (pair.right or pair.kind == "right by accident"), pair
