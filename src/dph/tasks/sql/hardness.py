"""Spider's four hardness levels of a gold query, counted as in its evaluator (oddities included)."""

from functools import lru_cache
from typing import Any, Literal

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError

Hardness = Literal["easy", "medium", "hard", "extra"]

_LONGEST = 20_000  # characters


@lru_cache(maxsize=16384)
def hardness(sql: str) -> Hardness | None:
    """The level of a query; None for a text that is not a query, or is longer than 20,000 characters.

    Three counts decide: components (WHERE, GROUP BY, ORDER BY, LIMIT, each JOIN, OR and LIKE); nested queries (in
    conditions, and the second half of a set operation); and how many of these occur more than once: aggregates,
    selected columns, conditions in WHERE, columns in GROUP BY. In a set operation, only the first SELECT is counted.

    >>> hardness("SELECT count(*) FROM item")
    'easy'
    """
    if len(sql) > _LONGEST:
        return None
    try:
        return _level_of(sqlglot.parse_one(sql, read="sqlite", error_level=ErrorLevel.RAISE))
    except (SqlglotError, RecursionError):
        return None


def _level_of(root: Any) -> Hardness | None:
    nested = 0
    while isinstance(root, exp.SetOperation | exp.Subquery):
        nested |= isinstance(root, exp.SetOperation)
        root = root.this
    if not isinstance(root, exp.Select):
        return None

    joins = root.args.get("joins") or []
    where, having = (_sequence(clause and clause.this) for clause in map(root.args.get, ("where", "having")))
    on = [_sequence(join.args.get("on")) for join in joins]
    group, order = (clause.expressions if clause else [] for clause in map(root.args.get, ("group", "order")))
    conditions = [_positive(item) for sequence in (*on, where, having) for item in sequence[::2]]
    nested += sum(map(_operand_queries, conditions))

    parts = sum(map(bool, (where, group, order, root.args.get("limit")))) + len(joins)
    parts += sum(sequence[1::2].count("or") for sequence in (*on, where, having))
    parts += sum(isinstance(condition, exp.Like) for condition in conditions)

    aggregates = sum(_aggregates(item) > 0 for item in root.expressions) + sum(map(_aggregates, order))
    # The evaluator mistakes these for aggregates: negated conditions, and the words AND and OR in HAVING.
    aggregates += sum(isinstance(item, exp.Not) for item in (*where[::2], *having[::2])) + len(having[1::2])
    others = (aggregates > 1) + (len(root.expressions) > 1) + (len(where[::2]) > 1) + (len(group) > 1)
    return _level(parts, nested, others)


def _level(parts: int, nested: int, others: int) -> Hardness:
    if nested == 0:
        if parts <= 1 and others == 0:
            return "easy"
        if (others <= 2 and parts <= 1) or (parts <= 2 and others < 2):
            return "medium"
        if (others > 2 and parts <= 2) or (2 < parts <= 3 and others <= 2):
            return "hard"
    return "hard" if parts <= 1 and others == 0 and nested <= 1 else "extra"


def _sequence(tree: Any) -> list[Any]:
    """The conditions in textual order with "and" or "or" between them; [] if there is no clause. After a comparison
    with a column, Spider's parser overlooks everything that OR adds, up to the next AND."""
    if tree is None:
        return []
    flat, kept = _flat(tree), []
    overlooking = False
    for place, item in enumerate(flat):
        if place % 2:
            overlooking = item == "or" and (overlooking or _compares_with_column(flat[place - 1]))
        if not overlooking:
            kept.append(item)
    return kept


def _flat(tree: Any) -> list[Any]:
    tree = tree.unnest()
    if not isinstance(tree, exp.Connector):
        return [tree]
    return [*_flat(tree.this), "or" if isinstance(tree, exp.Or) else "and", *_flat(tree.expression)]


def _compares_with_column(leaf: Any) -> bool:
    value = leaf.args.get("expression")
    return isinstance(value, exp.Column) and not value.this.quoted  # Spider puts text values in double quotes


def _positive(leaf: Any) -> Any:
    """The condition without its NOT."""
    return leaf.this.unnest() if isinstance(leaf, exp.Not) else leaf


def _operand_queries(leaf: Any) -> int:
    """How many subqueries a condition compares with."""
    operands = [leaf.args.get(name) for name in ("expression", "query", "low", "high")]
    return sum(isinstance(operand, exp.Subquery | exp.Query) for operand in operands)


def _aggregates(item: Any) -> int:
    return len(list(item.find_all(exp.AggFunc)))
