"""What the text of a gold query shows: whether its rows have an order, and whether ties make its result ambiguous.

It is read by SQLite's rules for tokens; ORDER, BY and LIMIT cannot be names there unless they are quoted.
"""

import re
from enum import StrEnum
from functools import lru_cache

_WORD = re.compile(
    r"""--[^\n]* | /\*.*?(?:\*/|\Z) | '(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*` | \[[^\]]*\] | [\w$]+ | \S""",
    re.VERBOSE | re.DOTALL,
)


class GoldFlag(StrEnum):
    """Why a gold result may judge wrongly although its query runs."""

    EMPTY = "empty"
    """It has no rows: every query with an empty result equals it."""
    LIMIT_TIES = "limit_ties"
    """It is undetermined which rows its LIMIT keeps: rows tie at the cut, or there is no ORDER BY at all."""
    ORDER_TIES = "order_ties"
    """Its ORDER BY leaves different rows tied: another order of them would be equally correct."""


def orders_its_rows(sql: str) -> bool:
    """True iff the outermost query has an ORDER BY; one inside a subquery, a window or a CTE does not count."""
    return _outermost(sql)[0]


def tie_probes(sql: str, columns: int) -> tuple[str, str] | None:
    """Two queries that return the same rows iff ties leave nothing open; None for a query with neither ORDER BY nor
    LIMIT.

    Both are the query with its output columns as further sort keys, once all ascending and once all descending: tied
    rows come in opposite orders, and if tied rows differ at a LIMIT, the two queries keep different rows. sql: one
    statement that runs; columns: the width of its result.
    """
    order, limit, place = _outermost(sql)
    if not order and not limit:
        return None
    lead = ", " if order else " ORDER BY "
    ascending, descending = (
        sql[:place] + lead + ", ".join(f"{number}{way}" for number in range(1, columns + 1)) + " " + sql[place:]
        for way in ("", " DESC")
    )
    return ascending, descending


@lru_cache(maxsize=65536)
def _outermost(sql: str) -> tuple[bool, bool, int]:
    """Whether the outermost query has an ORDER BY, whether it has a LIMIT, and the position for further sort keys:
    before the LIMIT, or at the end of the query, before any comment."""
    depth, order, previous, place = 0, False, "", 0
    for found in _WORD.finditer(sql):
        word = found.group().lower()
        if word.startswith(("--", "/*")):
            continue
        depth += (word == "(") - (word == ")")
        if depth == 0:
            if word in ("limit", ";"):
                return order, word == "limit", place
            order = order or (previous, word) == ("order", "by")
        previous, place = word, found.end()
    return order, False, place
