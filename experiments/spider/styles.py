"""Writes a real query in the five solution styles of `experiments.styles`, by rewriting its syntax tree.

A rewritten query is only a candidate: the caller executes it and keeps it only if it has the gold query's result.
"""

import re
from functools import lru_cache
from typing import Any, cast

import sqlglot
from sqlglot import errors, exp

from dph.tasks.sql.schema import Schema
from experiments.styles import Style, required_form, respond, style_of

_PIECE = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|[^'"]+""")
_NAME = "x"  # name of the common table expression


class StyledQuery:
    """A gold query in plain form, ready to be written in a style."""

    def __init__(self, sql: str, schema: Schema) -> None:
        """Raises ValueError if the parser rejects the SQL or it is not a query."""
        names = frozenset(column.name.lower() for table in schema.tables for column in table.columns)
        self._tree = _plain_tree(sql, names)
        selects = self._tree.selects
        self._outputs = [_write(expression) for expression in selects]
        ctes = {cte.alias.lower() for cte in self._tree.find_all(exp.CTE)}
        tables = [table.name.lower() for table in self._tree.find_all(exp.Table)]
        self._tables = [name for name in dict.fromkeys(tables) if name not in ctes]

    @property
    def plain(self) -> str:
        """The query itself: lower case outside quotes, with single spaces."""
        return _write(self._tree)

    def respond(self, style: Style) -> str | None:
        """A response in the style; None if the query cannot be written in it (a gold query that reads a subquery has no
        plain form)."""
        form = required_form(style)
        sql = self.plain if form == "plain" else self._wrapped(with_clause=form == "with")
        response = respond(style, sql, self._tables, self._outputs)
        return response if style_of(response) == style else None

    def _wrapped(self, *, with_clause: bool) -> str:
        """The query over an inner query. With one table, the inner query filters it and the outer query does the rest;
        otherwise the inner query is the whole query."""
        inner, outer = self._split() or (self.plain, "select * from {}")
        if with_clause:
            return f"with {_NAME} as ({inner}) {outer.format(_NAME)}"
        return outer.format(f"({inner})")

    def _split(self) -> tuple[str, str] | None:
        """(inner query, outer query with {} for its source) of a query that reads one table in its FROM."""
        tree = self._tree
        source = _part(tree, "from")
        if not isinstance(tree, exp.Select) or tree.args.get("joins") or _part(tree, "with") or source is None:
            return None
        table = source.this
        if not isinstance(table, exp.Table):
            return None
        inner = exp.select("*").from_(table.copy())
        if tree.args.get("where"):
            inner.set("where", tree.args["where"].copy())
        outer = tree.copy()
        outer.set("where", None)
        for column in outer.find_all(exp.Column):
            if column.table.lower() in (table.alias_or_name.lower(), table.name.lower()):
                column.set("table", None)
        _part(outer, "from").set("this", exp.to_table("source_of_rows"))
        text = _write(outer).replace("{", "{{").replace("}", "}}")
        return _write(inner), text.replace("source_of_rows", "{}", 1)


def _part(tree: Any, name: str) -> Any:
    """A clause of a query; newer versions of the parser append an underscore to names that are Python keywords."""
    return tree.args.get(f"{name}_") or tree.args.get(name)


@lru_cache(maxsize=4096)
def _plain_tree(sql: str, columns: frozenset[str]) -> exp.Query:
    try:
        tree = sqlglot.parse_one(sql, read="sqlite")
    except errors.SqlglotError as error:
        raise ValueError(f"not SQL: {error}") from error
    if not isinstance(tree, exp.Query):
        raise ValueError("not a query")

    def literal(node: Any) -> Any:
        """SQLite reads a double-quoted name that is not a column as a string; write it as a string literal."""
        if isinstance(node, exp.Column) and not node.table and isinstance(node.this, exp.Identifier):
            identifier = node.this
            if identifier.quoted and identifier.name.lower() not in columns:
                return exp.Literal.string(identifier.name)
        return node

    return cast(exp.Query, tree.transform(literal))


def _write(tree: Any) -> str:
    """SQL text in lower case, except inside quotes."""
    text = tree.sql(dialect="sqlite", comments=False)
    return "".join(piece if piece[0] in "'\"" else piece.lower() for piece in _PIECE.findall(text))
