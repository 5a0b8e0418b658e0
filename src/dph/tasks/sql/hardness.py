"""Spider's four hardness levels of a gold query, counted as in its evaluator (oddities included)."""

import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Literal

Hardness = Literal["easy", "medium", "hard", "extra"]
LEVELS: tuple[Hardness, ...] = ("easy", "medium", "hard", "extra")

Part = str | list["Part"]
"""A token in lower case, or the parts between two parentheses or between CASE and END."""

_TOKEN = re.compile(
    r"""--[^\n]*|/\*.*?(?:\*/|\Z)|'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|<>|[<>=!]=|\d*\.\d+|[\w$]+|\S""",
    re.DOTALL,
)
_DEEPEST = 200
_SET_OPERATIONS = {"union", "intersect", "except"}
_CLAUSES = {"from", "where", "group", "having", "window", "order", "limit"}
_JOINING = {",", "join", "natural", "left", "right", "full", "inner", "outer", "cross"}
_COMPARING = {"=", "==", "<>", "!=", "<", ">", "<=", ">=", "like", "glob", "is"}
_NO_COLUMNS = {"null", "true", "false", "current_date", "current_time", "current_timestamp"}
_AGGREGATES = {
    *("avg", "count", "cume_dist", "dense_rank", "first_value", "group_concat", "json_group_array", "lag"),
    *("json_group_object", "last_value", "lead", "max", "min", "nth_value", "ntile", "percent_rank", "rank"),
    *("string_agg", "sum"),
}


@lru_cache(maxsize=16384)
def hardness(sql: str) -> Hardness | None:
    """The level of a query; None for a text that is no query.

    Three counts decide: components (WHERE, GROUP BY, ORDER BY, LIMIT, each JOIN, OR and LIKE); nested queries (in
    conditions, and the second half of a set operation); and how many of these occur more than once: aggregates,
    selected columns, conditions in WHERE, columns in GROUP BY. In a set operation, only the first SELECT is counted.
    """
    parts = _parts(sql)
    if not parts or parts[0] not in ("select", "with") or "select" not in parts:
        return None
    query = parts[parts.index("select") + 1 :]  # after the definitions of WITH
    [first, *further] = _split(query, _SET_OPERATIONS)
    clauses = _clauses_of(first)
    if not clauses["select"]:
        return None
    selected = _split(clauses["select"], {","})
    source = clauses.get("from", [])
    joined = _split(source, _JOINING)
    on = [_conditions(table[table.index("on") + 1 :]) for table in joined if "on" in table]
    where, having = _conditions(clauses.get("where", [])), _conditions(clauses.get("having", []))
    group, order = (_split(clauses[name][1:], {","}) if name in clauses else [] for name in ("group", "order"))

    conditions = [condition for sequence in (*on, where, having) for condition in sequence[::2]]
    nested = bool(further) + sum(map(_operand_queries, conditions))
    components = (
        sum(map(bool, (where, group, order, "limit" in clauses))) + len([table for table in joined if table]) - 1
    )
    components += sum(sequence[1::2].count(["or"]) for sequence in (*on, where, having))
    components += sum(map(_is_like, conditions))
    aggregates = sum(map(bool, map(_aggregates, selected))) + sum(map(_aggregates, order))
    # The evaluator mistakes these for aggregates: negated conditions, and the words AND and OR in HAVING.
    aggregates += sum("not" in condition for condition in (*where[::2], *having[::2])) + len(having[1::2])
    others = (aggregates > 1) + (len(selected) > 1) + (len(where[::2]) > 1) + (len(group) > 1)
    return _level(components, nested, others)


def _level(parts: int, nested: int, others: int) -> Hardness:
    if nested == 0:
        if parts <= 1 and others == 0:
            return "easy"
        if (others <= 2 and parts <= 1) or (parts <= 2 and others < 2):
            return "medium"
        if (others > 2 and parts <= 2) or (2 < parts <= 3 and others <= 2):
            return "hard"
    return "hard" if parts <= 1 and others == 0 and nested <= 1 else "extra"


def _parts(sql: str) -> list[Part]:
    """The query as nested parts, without comments; [] where parentheses, or CASE and END, do not match or are nested
    deeper than any gold query."""
    stack: list[list[Part]] = [[]]
    open_by: list[str] = []
    previous = ""
    for token in _TOKEN.findall(sql):
        word = token.lower()
        if word in ("(", "case"):
            inner: list[Part] = []
            stack[-1].append(inner)
            stack.append(inner)
            open_by.append(word)
            if len(stack) > _DEEPEST:
                return []
        elif word == ")" or (word == "end" and open_by[-1:] == ["case"] and previous != "."):  # END may be a name
            if not open_by or (open_by.pop() == "case") != (word == "end"):
                return []
            stack.pop()
        elif not word.startswith(("--", "/*")):
            stack[-1].append(word)
        previous = word
    return [] if open_by else stack[0]


def _split(parts: list[Part], words: Collection[str]) -> list[list[Part]]:
    """The parts between words."""
    pieces: list[list[Part]] = [[]]
    for part in parts:
        if isinstance(part, str) and part in words:
            pieces.append([])
        else:
            pieces[-1].append(part)
    return pieces


def _clauses_of(query: list[Part]) -> dict[str, list[Part]]:
    """The parts of each clause after its first word, from those after the word SELECT."""
    clauses: dict[str, list[Part]] = {"select": []}
    parts = clauses["select"]
    for part in query:
        if isinstance(part, str) and part in _CLAUSES:
            parts = clauses.setdefault(part, [])
        elif part != ";":
            parts.append(part)
    return clauses


def _conditions(parts: list[Part]) -> list[list[Part]]:
    """The conditions in textual order with ["and"] or ["or"] between them; [] if there is none.

    After a comparison with a column, Spider's parser overlooks everything that OR adds, up to the next AND.
    """
    flat, kept = list(_flat(parts)) if parts else [], []
    overlooking = False
    for place, item in enumerate(flat):
        if place % 2:
            overlooking = item == ["or"] and (overlooking or _compares_with_column(flat[place - 1]))
        if not overlooking:
            kept.append(item)
    return kept


def _flat(parts: list[Part]) -> Iterator[list[Part]]:
    """Conditions and the words between them; parentheses around conditions are opened."""
    condition: list[Part] = []
    between = False
    for part in [*parts, ""]:
        if part == "" or (part in ("and", "or") and not (between and part == "and")):
            inner = _only_group(condition)
            yield from _flat(inner) if inner else [condition]
            if part:
                yield [part]
            condition = []
        else:
            condition.append(part)
        between = part == "between" or (between and part != "and")


def _only_group(parts: list[Part]) -> list[Part] | None:
    """The contents if the parts are one pair of parentheses around something that is no query."""
    if len(parts) == 1 and isinstance(parts[0], list) and not _is_query(parts[0]):
        return parts[0]
    return None


def _is_query(part: Part) -> bool:
    while isinstance(part, list) and len(part) == 1 and isinstance(part[0], list):
        part = part[0]
    return isinstance(part, list) and bool(part) and part[0] in ("select", "with")


def _compared_with(condition: list[Part]) -> list[Part]:
    """What stands after the comparison; [] in a condition without one."""
    for place, part in enumerate(condition):
        if isinstance(part, str) and part in _COMPARING:
            return condition[place + 1 :]
    return []


def _compares_with_column(condition: list[Part]) -> bool:
    value = _compared_with(condition)
    if "not" in condition or not value or len(value) % 2 == 0 or any(part != "." for part in value[1::2]):
        return False
    name = value[-1]  # Spider puts text values in double quotes
    return isinstance(name, str) and re.fullmatch(r"[^\W\d][\w$]*", name) is not None and name not in _NO_COLUMNS


def _positive(condition: list[Part]) -> list[Part]:
    """The condition without its NOT."""
    bare = [part for part in condition if part != "not"]
    return (_only_group(bare) or bare) if len(bare) < len(condition) else condition


def _is_like(condition: list[Part]) -> bool:
    bare = _positive(condition)
    return "like" in bare and not {"and", "or", "escape"} & {part for part in bare if isinstance(part, str)}


def _operand_queries(condition: list[Part]) -> int:
    """How many subqueries a condition compares with."""
    bare = _positive(condition)
    if "between" in bare:
        operands = _split(bare[bare.index("between") + 1 :], {"and"})
    elif "in" in bare:
        operands = [bare[bare.index("in") + 1 :]]
    else:
        operands = [_compared_with(bare)]
    return sum(len(operand) == 1 and _is_query(operand[0]) for operand in operands)


def _aggregates(parts: list[Part]) -> int:
    """How many aggregates occur, also within parentheses."""
    count = 0
    for place, part in enumerate(parts):
        if isinstance(part, list):
            count += _aggregates(part) + (place > 0 and parts[place - 1] in _AGGREGATES)
    return count
