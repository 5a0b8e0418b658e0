"""What the text of a gold query shows: whether its rows have an order, and whether ties make its result ambiguous.

Only the parent process loads this: it needs sqlglot.
"""

import re
from enum import StrEnum
from functools import lru_cache

_WORD = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\w+|\S""")


class GoldFlag(StrEnum):
    """Why a gold result may judge wrongly although its query runs."""

    EMPTY = "empty"
    """It has no rows: every query with an empty result equals it."""
    LIMIT_TIES = "limit_ties"
    """It is undetermined which rows its LIMIT keeps: rows tie at the cut, or there is no ORDER BY at all."""
    ORDER_TIES = "order_ties"
    """Its ORDER BY leaves different rows tied: another order of them would be equally correct."""


@lru_cache(maxsize=65536)
def orders_its_rows(sql: str) -> bool:
    """True iff the outermost query has an ORDER BY; one inside a subquery, a window or a CTE does not count."""
    import sqlglot  # importing it takes longer than everything else here
    from sqlglot import errors, exp

    try:
        query = sqlglot.parse_one(sql, read="sqlite", error_level=errors.ErrorLevel.RAISE)
    except (errors.SqlglotError, RecursionError):
        return _top_level_order_by(sql)
    while isinstance(query, exp.Subquery) and query.args.get("order") is None:
        query = query.this
    return query.args.get("order") is not None


def _top_level_order_by(sql: str) -> bool:
    """The same from the tokens alone, for SQL that the parser rejects."""
    depth, previous = 0, ""
    for token in _WORD.findall(sql):
        word = token.lower()
        depth += (word == "(") - (word == ")")
        if depth == 0 and previous == "order" and word == "by":
            return True
        previous = word
    return False


def tie_probes(sql: str, columns: int) -> tuple[str, str] | None:
    """Two queries that return the same rows iff ties leave nothing open; None for a query with neither ORDER BY nor
    LIMIT.

    Both are the query with its output columns as further sort keys, once all ascending and once all descending: tied
    rows come in opposite orders, and if tied rows differ at a LIMIT, the two queries keep different rows. sql: one
    statement that runs; columns: the width of its result.
    """
    from sqlglot import errors, tokenize

    try:
        words = tokenize(sql, read="sqlite")
    except (errors.SqlglotError, RecursionError):
        return None
    depth, order, limit, place = 0, False, False, 0
    for word in words:
        kind = word.token_type.name
        depth += (kind == "L_PAREN") - (kind == "R_PAREN")
        if depth == 0 and kind in ("LIMIT", "SEMICOLON"):
            limit = kind == "LIMIT"
            break
        order = order or (depth == 0 and kind == "ORDER_BY")
        place = word.end + 1  # before any comment, which would swallow text added on its line
    if not order and not limit:
        return None
    lead = ", " if order else " ORDER BY "
    ascending, descending = (
        sql[:place] + lead + ", ".join(f"{number}{way}" for number in range(1, columns + 1)) + " " + sql[place:]
        for way in ("", " DESC")
    )
    return ascending, descending
