"""Spider's four hardness levels of a gold query, counted as in its evaluator (oddities included)."""

from functools import lru_cache
from typing import Any, Literal

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

Hardness = Literal["easy", "medium", "hard", "extra"]


@lru_cache(maxsize=16384)
def hardness(sql: str) -> Hardness | None:
    """The level of a query; None for a text that is not a valid query.

    Three counts decide: components (WHERE, GROUP BY, ORDER BY, LIMIT, each JOIN, OR and LIKE); nested queries (in
    conditions, and the second half of a set operation); and how many of these occur more than once: aggregates,
    selected columns, conditions in WHERE, columns in GROUP BY. In a set operation, only the first SELECT is counted.
    """
    try:
        root: Any = sqlglot.parse_one(sql, read="sqlite")
    except (SqlglotError, RecursionError):
        return None
    nested = 0
    while isinstance(root, exp.SetOperation | exp.Subquery):
        nested |= isinstance(root, exp.SetOperation)
        root = root.this
    if not isinstance(root, exp.Select) or not root.expressions:
        return None
    clauses = root.args
    joins = clauses.get("joins") or []
    where, having = (_sequence(clauses[name].this) if clauses.get(name) else [] for name in ("where", "having"))
    on = [_sequence(join.args["on"]) for join in joins if join.args.get("on")]
    group, order = (clauses[name].expressions if clauses.get(name) else [] for name in ("group", "order"))
    conditions = [_positive(item) for sequence in (*on, where, having) for item in sequence[::2]]
    nested += sum(map(_operand_queries, conditions))

    components = sum(map(bool, (where, group, order, clauses.get("limit")))) + len(joins)
    components += sum(sequence[1::2].count("or") for sequence in (*on, where, having))
    components += sum(isinstance(condition, exp.Like) for condition in conditions)
    aggregates = sum(_aggregates(item) > 0 for item in root.expressions) + sum(_aggregates(item.this) for item in order)
    # The evaluator mistakes these for aggregates: negated conditions, and the words AND and OR in HAVING.
    aggregates += sum(isinstance(item, exp.Not) for item in (*where[::2], *having[::2])) + len(having[1::2])
    others = (aggregates > 1) + (len(root.expressions) > 1) + (len(where[::2]) > 1) + (len(group) > 1)
    return _level(components, nested, others)


def _level(components: int, nested: int, others: int) -> Hardness:
    if nested == 0:
        if components <= 1 and others == 0:
            return "easy"
        if (others <= 2 and components <= 1) or (components <= 2 and others < 2):
            return "medium"
        if (others > 2 and components <= 2) or (2 < components <= 3 and others <= 2):
            return "hard"
    return "hard" if components <= 1 and others == 0 and nested <= 1 else "extra"


def _sequence(tree: Any) -> list[Any]:
    """The conditions in textual order with "and" or "or" between them.

    After a comparison with a column, Spider's parser overlooks everything that OR adds, up to the next AND.
    """
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


def _compares_with_column(condition: Any) -> bool:
    value = condition.args.get("expression")
    return isinstance(value, exp.Column) and not value.this.quoted  # Spider puts text values in double quotes


def _positive(condition: Any) -> Any:
    """The condition without its NOT."""
    return condition.this.unnest() if isinstance(condition, exp.Not) else condition


def _operand_queries(condition: Any) -> int:
    """How many subqueries a condition compares with."""
    operands = (condition.args.get(name) for name in ("expression", "query", "low", "high"))
    return sum(isinstance(operand, exp.Query) for operand in operands)


def _aggregates(item: Any) -> int:
    """How many aggregates occur, also within subqueries."""
    return sum(1 for _ in item.find_all(exp.AggFunc))
