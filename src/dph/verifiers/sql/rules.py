"""The comparison rules by name: how each reads a response, prepares the two queries, decodes text and compares rows.

Standard library only: worker processes load this too. Each rule has a version, which run manifests record; every change
that could change a verdict increments it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dph.errors import UserError, unknown
from dph.verifiers.sql.compare import RELATIVE_TOLERANCE, Rows, permuted_equal, set_equal, strict_equal
from dph.verifiers.sql.text import (
    extract_sql,
    extract_sql_paper,
    first_statement_without_distinct,
    orders_its_rows,
    without_empty_statements,
)

_CURRENT_YEAR = re.compile(r"year\s*\(\s*curdate\s*\(\s*\)\s*\)\s*", re.IGNORECASE)

Columns = Literal["fixed", "free"]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the rules."""

    keep_distinct: bool = False
    """spider: leave DISTINCT in both queries (the evaluator's --keep_distinct)."""
    columns: Columns = "fixed"
    """strict: columns in the gold's order ("fixed"), or in any order that is the same for all rows ("free")."""
    tolerance: float = RELATIVE_TOLERANCE
    """strict: relative difference up to which numbers are equal that are not both whole; 0 for no tolerance."""


Step = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Rule:
    """One comparator."""

    name: str
    version: int
    extract: Callable[..., str | None]
    """(response, keyword `unterminated`) → its SQL, or None if there is none."""
    compare: Literal["strict", "sets", "permuted"]
    """How rows are compared (see `dph.verifiers.sql.compare`); with "sets", duplicates need not be kept."""
    order: Literal["outermost", "mentioned", "never"]
    """When the order of rows counts: if the outermost gold query has ORDER BY, its text mentions one, or never."""
    text: Literal["surrogateescape", "ignore", "strict"]
    """Bytes that are not UTF-8 are kept, dropped, or make the query fail."""
    nothing_is_empty: bool
    """Whether a text without a statement counts as a query without rows, as in Python's sqlite3."""
    gold_steps: tuple[Step, ...] = ()
    """How the text of a gold query is changed before it runs."""
    prediction_steps: tuple[Step, ...] = ()
    options: frozenset[str] = frozenset()
    """The options that this rule has."""

    def prepare_gold(self, sql: str, options: Options) -> str:
        """A gold query as it is executed."""
        return _prepared(sql, self.gold_steps, options)

    def prepare_prediction(self, sql: str, options: Options) -> str:
        """A predicted query as it is executed."""
        return _prepared(sql, self.prediction_steps, options)

    def equal(self, gold: Rows, predicted: Rows, widths: tuple[int, int], ordered: bool, options: Options) -> bool:
        """Whether two results are equal. widths: their numbers of columns; ordered: whether the order counts."""
        if self.compare == "sets":
            return set_equal(gold, predicted)
        if self.compare == "permuted":
            return permuted_equal(gold, predicted, ordered)
        free = options.columns == "free"
        return widths[0] == widths[1] and strict_equal(
            gold, predicted, ordered, tolerance=options.tolerance, free_columns=free
        )

    def orders(self, gold: str, options: Options) -> bool:
        """Whether the order of rows counts for this gold query."""
        if self.order == "outermost":
            return orders_its_rows(gold)
        return self.order == "mentioned" and "order by" in self.prepare_gold(gold, options).lower()

    def check(self, options: Options) -> None:
        """Raises UserError if an option is set that this rule does not have, or is set to a value out of range."""
        if options.columns not in ("fixed", "free"):
            raise UserError(f"the SQL verifier's option columns must be fixed or free, not {options.columns!r}")
        if not 0 <= options.tolerance < 1:
            raise UserError(f"the SQL verifier's option tolerance must be in [0, 1), not {options.tolerance}")
        for name in Options.__slots__:
            if name not in self.options and getattr(options, name) != getattr(Options(), name):
                having = " and ".join(rule.name for rule in RULES.values() if name in rule.options)
                raise UserError(f"the SQL comparator {self.name} has no option {name}; it belongs to {having}")


def get_rule(name: str) -> Rule:
    """The rule of that name. Raises UserError for an unknown one."""
    if name not in RULES:
        raise UserError(unknown("SQL comparator", name, RULES))
    return RULES[name]


def rule_versions() -> str:
    """Every rule with its version, as run manifests record them."""
    return " ".join(f"{rule.name}@{rule.version}" for rule in RULES.values())


def _prepared(sql: str, steps: tuple[Step, ...], options: Options) -> str:
    for step in steps:
        if not (options.keep_distinct and step is first_statement_without_distinct):
            sql = step(sql)
    return sql


def _join_operators(sql: str) -> str:
    """Repair "> =" and similar operators, which word-by-word generators write."""
    return sql.replace("> =", ">=").replace("< =", "<=").replace("! =", "!=")


def _fix_year(sql: str) -> str:
    """Some of Spider's gold queries come from MySQL: the current year is fixed as 2020."""
    return _CURRENT_YEAR.sub("2020", sql)


def _fix_literals(sql: str) -> str:
    return sql.replace("value", "1")  # sic: also within names


_SPIDER = (_join_operators, first_statement_without_distinct, _fix_year)
_PAPER = ((_fix_year,), (_join_operators, _fix_year))

RULES = {
    rule.name: rule
    for rule in (
        Rule("strict", 4, extract_sql, "strict", "outermost", "surrogateescape", False, (without_empty_statements,),
             (without_empty_statements,), frozenset({"columns", "tolerance"})),
        Rule("bird", 2, extract_sql, "sets", "never", "strict", True),
        Rule("spider", 2, extract_sql, "permuted", "mentioned", "ignore", True, _SPIDER, (_fix_literals, *_SPIDER),
             frozenset({"keep_distinct"})),
        Rule("paper", 2, extract_sql_paper, "permuted", "never", "ignore", True, *_PAPER),
        Rule("paper_bird", 2, extract_sql_paper, "sets", "never", "ignore", True, *_PAPER),
    )
}  # fmt: skip
