"""The comparison rules by name: how each prepares the two queries, and when the order of rows counts."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from dph.errors import UserError

_TOKEN = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\w+|\s+|.""", re.DOTALL)
_CURRENT_YEAR = re.compile(r"YEAR\s*\(\s*CURDATE\s*\(\s*\)\s*\)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Rule:
    """One comparator: functions of the SQL text; the comparison of rows is in sql_compare, under the same name."""

    name: str
    prepare_gold: Callable[[str], str]
    prepare_prediction: Callable[[str], str]
    ordered: Callable[[str], bool]
    """Whether the gold query makes the order of rows count."""


def get_rule(name: str) -> Rule:
    """The rule of that name. Raises UserError for an unknown one."""
    if name not in _RULES:
        raise UserError(f"no SQL comparator is named {name!r}; known are: {', '.join(_RULES)}")
    return _RULES[name]


@lru_cache(maxsize=65536)
def orders_its_rows(sql: str) -> bool:
    """True iff the outermost query has an ORDER BY; one inside a subquery, a window or a CTE does not count."""
    import sqlglot  # loading it takes longer than all else here
    from sqlglot import errors, exp

    try:
        query = sqlglot.parse_one(sql, read="sqlite", error_level=errors.ErrorLevel.RAISE)
    except errors.SqlglotError:
        return _top_level_order_by(sql)
    while isinstance(query, exp.Subquery) and query.args.get("order") is None:
        query = query.this
    return query.args.get("order") is not None


def _top_level_order_by(sql: str) -> bool:
    """The same, from the tokens alone, for SQL that the parser does not know."""
    depth, previous = 0, ""
    for token in _TOKEN.findall(sql):
        word = token.lower()
        depth += (word == "(") - (word == ")")
        if depth == 0 and previous == "order" and word == "by":
            return True
        if not word.isspace():
            previous = word
    return False


def _join_operators(sql: str) -> str:
    """Repair "> =" and its kind, which word-by-word generators write."""
    return sql.replace("> =", ">=").replace("< =", "<=").replace("! =", "!=")


def _fix_year(sql: str) -> str:
    """Spider's gold comes from MySQL in places: the current year is fixed as 2020."""
    return _CURRENT_YEAR.sub("2020", sql)


def _drop_distinct(sql: str) -> str:
    """Spider's evaluator drops every DISTINCT and everything after the first statement."""
    kept = []
    for token in _TOKEN.findall(sql):
        if token == ";":
            break
        if token.lower() != "distinct":
            kept.append(token)
    return "".join(kept)


def _spider_gold(sql: str) -> str:
    return _fix_year(_drop_distinct(_join_operators(sql)))


def _spider_prediction(sql: str) -> str:
    return _spider_gold(sql.replace("value", "1"))  # sic: the evaluator's mark for a literal left open


def _same(sql: str) -> str:
    return sql


_RULES = {
    rule.name: rule
    for rule in (
        Rule("strict", _same, _same, orders_its_rows),
        Rule("bird", _same, _same, lambda gold: False),
        Rule("spider", _spider_gold, _spider_prediction, lambda gold: "order by" in gold.lower()),
        Rule("paper", _fix_year, lambda sql: _fix_year(_join_operators(sql)), lambda gold: False),
    )
}
