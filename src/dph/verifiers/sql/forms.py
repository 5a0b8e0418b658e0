"""The canonical form of a query: equal for queries that differ only in how the same plan is written down.

Two queries have one form if they differ in layout, comments, letter case and quoting of names, in the names of aliases
and of common table expressions, in redundant parentheses and qualifiers, or in the order of parts that commute: the
operands of AND, OR, +, *, =, UNION and INTERSECT, the values of IN, the columns of GROUP BY, the tables of inner joins
(whose conditions are conditions of WHERE), and a > b against b < a. Literals are kept: another constant is another
form; a column in quotes keeps its letter case, because SQLite reads it as a literal if there is no such column. Tables
that a query has twice are told apart by their order. The form is a text of its own, not SQL, because dropped
parentheses would change the meaning of SQL.

Nothing is executed and no schema is read, so that a form is a function of the text alone. It is bounded: see
`MOST_CHARACTERS`.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError

MOST_CHARACTERS = 4_000
"""Longer queries have no form. The parser takes at most some hundredths of a second for any text of this length."""


Node = Any
"""A node of the parsed tree; the name of sqlglot's base class differs between its versions."""


@lru_cache(4096)  # equal queries are common
def query_form(sql: str) -> str | None:
    """The canonical form of one SQLite query; None for a text that is too long, cannot be parsed, is nested too deeply,
    or is not one statement."""
    found: list[str | None] = [None]
    if len(sql) <= MOST_CHARACTERS:
        # In a thread of its own the depth at which Python ends a recursion does not depend on who asks.
        thread = threading.Thread(target=lambda: found.__setitem__(0, _form(sql)))
        thread.start()
        thread.join()
    return found[0]


def _form(sql: str) -> str | None:
    try:
        statements = [tree for tree in sqlglot.parse(sql, read="sqlite", error_level=ErrorLevel.RAISE) if tree]
        if len(statements) != 1 or not isinstance(statements[0], exp.Query):
            return None
        return _Scope().text(statements[0])
    except (SqlglotError, RecursionError):
        return None


_SORTED_PAIR = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ)
_CHAINS = (exp.And, exp.Or, exp.Add, exp.Mul)
_JOIN_WORDS = ("side", "method", "using", "global", "pivots", "match_condition")


@dataclass
class _Scope:
    """The names that a query's columns may refer to."""

    tables: Mapping[str, str] = field(default_factory=dict)
    """Canonical name by alias, of this query and of those around it."""
    queries: Mapping[str, str] = field(default_factory=dict)
    """Canonical name by the name of a common table expression."""
    own: str = ""
    """The only table of this query, whose name need not be written before its columns; "" if there are several."""
    outputs: Mapping[str, Node] = field(default_factory=dict)
    """What an alias of an output column stands for, in ORDER BY, GROUP BY and HAVING."""
    depth: int = 0

    def text(self, node: Any) -> str:
        """The form of a part of a query."""
        if isinstance(node, list):
            return "[" + " ".join(map(self.text, node)) + "]"
        if not hasattr(node, "args"):
            return str(node).lower() if isinstance(node, str) else repr(node)
        if isinstance(node, exp.Paren):
            return self.text(node.this)
        if isinstance(node, exp.Subquery) and not _has(node, "alias", "with_", "with"):
            return self.text(node.this) if not _beyond(node) else self._plain(node)
        if isinstance(node, exp.Query) and not isinstance(node, exp.Subquery):
            return self._query(node)
        if isinstance(node, _CHAINS):
            parts = sorted(self.text(part) for part in _flat(node, type(node)))
            return _call(node.key, dict.fromkeys(parts) if isinstance(node, exp.And | exp.Or) else parts)
        if isinstance(node, _SORTED_PAIR):
            return _call(node.key, sorted((self.text(node.this), self.text(node.expression))))
        if isinstance(node, exp.LT | exp.LTE):
            return _call(node.key, (self.text(node.this), self.text(node.expression)))
        if isinstance(node, exp.GT | exp.GTE):
            return _call(
                "lt" if isinstance(node, exp.GT) else "lte", (self.text(node.expression), self.text(node.this))
            )
        if isinstance(node, exp.In) and node.expressions:
            return _call("in", (self.text(node.this), *sorted({self.text(one) for one in node.expressions})))
        if isinstance(node, exp.Group):
            return _call("group", sorted(self.text(one) for one in node.expressions))
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, exp.Literal):
            return f"'{node.this}'" if node.is_string else node.this.lower()
        return self._plain(node)

    def _plain(self, node: Node) -> str:
        parts = (f"{name}={self.text(value)}" for name, value in sorted(node.args.items()) if not _absent(value))
        return _call(node.key, parts)

    def _column(self, node: exp.Column) -> str:
        name, table = node.name.lower(), node.table.lower()
        if not table:
            if name in self.outputs:
                return self.text(self.outputs[name])
            return f'"{node.name}"' if getattr(node.this, "quoted", False) and node.name != name else f"`{name}`"
        there = self.tables.get(table, table)
        return f"`{name}`" if there == self.own else f"`{there}.{name}`"

    def _query(self, node: exp.Query) -> str:
        """A SELECT, or queries that UNION and the like join, with their common table expressions."""
        scope, ahead = self._with_expressions(node)
        if isinstance(node, exp.SetOperation):
            kept = {name: value for name, value in node.args.items() if name not in ("this", "expression", *_WITH)}
            sides = [scope.text(part) for part in _flat(node, type(node), alike=True)]
            ordered = sides if isinstance(node, exp.Except) else sorted(sides)
            rest = [f"{name}={scope.text(value)}" for name, value in sorted(kept.items()) if not _absent(value)]
            return _call(node.key, (*ahead, *ordered, *rest))
        if isinstance(node, exp.Select):
            return scope._select(node, ahead)
        return scope._plain(node)

    def _with_expressions(self, node: exp.Query) -> tuple["_Scope", list[str]]:
        """The scope within a query that has common table expressions, and the forms of these."""
        scope, ahead = self, list[str]()
        clause = node.args.get("with_") or node.args.get("with")
        for one in clause.expressions if clause else ():
            name = f"w{len(scope.queries) + 1}"
            inner = scope._changed(queries={**scope.queries, one.alias.lower(): name})  # it may name itself
            columns = [column.name.lower() for column in (one.args.get("alias") or exp.TableAlias()).columns]
            ahead.append(_call(name, (*columns, inner.text(one.this))))
            scope = inner
        return scope, ahead

    def _changed(self, **changes: Any) -> "_Scope":
        return _Scope(**{name: changes.get(name, getattr(self, name)) for name in self.__dataclass_fields__})

    def _select(self, node: exp.Select, ahead: list[str]) -> str:
        source = node.args.get("from_") or node.args.get("from")
        joins: list[exp.Join] = node.args.get("joins") or []
        sources = [*([source.this] if source else ()), *(join.this for join in joins)]
        names = self._names(sources)
        own = next(iter(names.values())) if len(sources) == 1 and names else ""
        scope = self._changed(tables={**self.tables, **names}, own=own, outputs={}, depth=self.depth + 1)
        columns, outputs = list(node.expressions), dict[str, Node]()
        if not _is_named_outside(node):
            outputs = {one.alias.lower(): one.this for one in columns if isinstance(one, exp.Alias)}
            columns = [one.this if isinstance(one, exp.Alias) else one for one in columns]
        where = node.args.get("where")
        conditions = list(_flat(where.this, exp.And)) if where else []
        parts, conditions = scope._sources(sources, joins, names, conditions)
        named = scope._changed(outputs=outputs)
        texts = [*ahead, "columns=" + scope.text(columns), *parts]
        if conditions:
            texts.append(_call("where", sorted({scope.text(one) for one in conditions})))
        for name, value in sorted(node.args.items()):
            if name not in ("expressions", "from", "from_", "joins", "where", *_WITH) and not _absent(value):
                texts.append(f"{name}={(named if name in ('group', 'having', 'order') else scope).text(value)}")
        return _call("select", texts)

    def _sources(
        self,
        sources: list[Node],
        joins: list[exp.Join],
        names: Mapping[str, str],
        conditions: list[Node],
    ) -> tuple[list[str], list[Node]]:
        """The forms of the tables of a query, and its conditions, to which those of inner joins are added."""
        tables = [self._source(one, names) for one in sources]
        if any(_is_outer(join) for join in joins):
            written = [join.copy() for join in joins]
            for join in written:
                join.set("this", None)
            return ["from=" + " ".join([*tables[:1], *_woven(map(self.text, written), tables[1:])])], conditions
        further = [part for join in joins if join.args.get("on") for part in _flat(join.args["on"], exp.And)]
        return (["from=" + " ".join(sorted(tables))] if tables else []), [*conditions, *further]

    def _source(self, node: Node, names: Mapping[str, str]) -> str:
        named = names.get(node.alias_or_name.lower(), "")
        if isinstance(node, exp.Table) and not _beyond(node, "this", "alias"):
            name = node.name.lower()
            there = self.queries.get(name, name)
            return named if named == there else f"{named}:{there}"
        if isinstance(node, exp.Subquery) and not _beyond(node, "this", "alias"):
            outside = self._changed(tables={key: value for key, value in self.tables.items() if key not in names})
            return f"{named}:{outside.text(node.this)}"
        return f"{named}:{self._plain(node)}"

    def _names(self, sources: list[Node]) -> dict[str, str]:
        """A canonical name for each table of a query: its own, with a number if the query has the table several times,
        and with the depth if a query around it has it too; subqueries are numbered."""
        bases = [
            self.queries.get(one.name.lower(), one.name.lower()) if isinstance(one, exp.Table) else "q"
            for one in sources
        ]
        counts, seen, taken = Counter(bases), Counter[str](), {*self.tables.values()}
        names = dict[str, str]()
        for one, base in zip(sources, bases, strict=True):
            seen[base] += 1
            several = counts[base] > 1 or base == "q"
            name = f"{base}#{seen[base]}" if several else base
            names[one.alias_or_name.lower()] = f"{name}@{self.depth}" if name in taken else name
        return names


_WITH = ("with", "with_")


def _call(name: str, parts: Any) -> str:
    return f"{name}({', '.join(parts)})"


def _absent(value: Any) -> bool:
    return value is None or value is False or value == [] or value == ""


def _has(node: Node, *names: str) -> bool:
    return any(not _absent(node.args.get(name)) for name in names)


def _beyond(node: Node, *names: str) -> bool:
    """Whether a node says more than these arguments."""
    return any(not _absent(value) for name, value in node.args.items() if name not in (names or ("this",)))


def _flat(node: Node, kind: type[Any], *, alike: bool = False) -> Iterator[Node]:
    """The operands of a chain of one operator, from left to right. alike: only of queries that are joined in the same
    way, with nothing of their own."""
    stack = [node]
    while stack:
        one = stack.pop()
        inner = one
        while isinstance(inner, exp.Paren):
            inner = inner.this
        same = type(inner) is kind and (not alike or inner is node or _joined_alike(inner, node))
        if same:
            stack += [inner.expression, inner.this]
        else:
            yield one


def _joined_alike(one: Node, other: Node) -> bool:
    plain = ("this", "expression", "distinct")
    return (
        not isinstance(one, exp.Except)
        and not _beyond(one, *plain)
        and (one.args.get("distinct") == other.args.get("distinct"))
    )


def _is_outer(join: exp.Join) -> bool:
    """Whether a join is not an inner one, or says which columns it joins by name."""
    return _has(join, *_JOIN_WORDS) or str(join.args.get("kind") or "").upper() not in ("", "INNER", "CROSS")


def _woven(joins: Iterator[str], tables: list[str]) -> Iterator[str]:
    for join, table in zip(joins, tables, strict=True):
        yield f"{join} {table}"


def _is_named_outside(node: Node) -> bool:
    """Whether other parts of the statement may refer to the names of a query's output columns."""
    parent = node.parent
    while isinstance(parent, exp.SetOperation | exp.Paren):
        parent = parent.parent
    if isinstance(node.parent, exp.SetOperation) and parent is None:
        return True  # ORDER BY after a UNION refers to them
    return isinstance(parent, exp.CTE) or (
        isinstance(parent, exp.Subquery) and isinstance(parent.parent, exp.From | exp.Join)
    )
