"""Facts from the text of a response or a query: the SQL in a response, queries that are the same, tokens as Spider's
evaluator sees them, the order of a gold query's rows and ties in it. Standard library only: workers load this.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

_QUOTED = re.compile(r"""('(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\])""")
_BLANKS = re.compile(r"[ \t\n\f\r]+")  # SQLite's own; any other is part of a name, or an error
_LONGEST = 20_000  # characters


def plain_text(sql: str) -> str:
    """The query with single blanks, words in lower case and no final semicolon; quoted text stays unchanged.

    Two queries with the same plain text are the same query to SQLite. A query with comments, with an unterminated quote
    or with more than 20,000 characters is returned unchanged.
    """
    if len(sql) > _LONGEST or "--" in sql or "/*" in sql or "\0" in sql:
        return sql
    parts = _QUOTED.split(sql)
    for index in range(0, len(parts), 2):
        part = parts[index]
        if any(quote in part for quote in "'\"`["):
            return sql
        part = _BLANKS.sub(" ", part)
        parts[index] = part.lower() if part.isascii() else part
    return "".join(parts).strip(" ").removesuffix(";").rstrip(" ")


_OPENING = re.compile(
    r"""```[ \t]*(?:\{[ \t]*\.?(?:[a-z]*sql|sqlite3?)\b[^}`\n]*+\}(?=[ \t]*\n)|(?:[a-z]*sql|sqlite3?)\b
    (?:(?:[ \t]++(?:[\w.-]++=(?:"[^"`\n]*+"|'[^'`\n]*+'|[^\s"'`]++)|[\w/-]++\.sql
                  |(?:show)?line(?:nos|numbers)|copy|numberlines)
     |[ \t]*+\{[^}`\n]*+\}|[:,][\w./=-]++)++(?=[ \t]*\r?\n))?)""",
    re.IGNORECASE | re.VERBOSE,
)
"""A fence with the language sql, or that of a database such as SQLite and MySQL, and the attributes that some renderers
read after it: title="q.sql", {1,3}, :q.sql."""
_TILDES = re.compile(r"^([ \t]*)~~~+([ \t]*\{?[ \t]*\.?\w*sql.*?^[ \t]*)~~~+[ \t]*$", re.I | re.S | re.M)
_QUOTED_FENCE = re.compile(r"^[ \t]*((?:>[ \t]?)+)[ \t]*```", re.MULTILINE)
_QUOTED_LINE = re.compile(r"[ \t]*>")
_LINE_FENCE = re.compile(r"^[ \t]*(?=```)", re.MULTILINE)
_MARK = re.compile(r"""```|['"`]|--|/\*""")
_END_OF_COMMENT = re.compile(r"```|\n")
# The text that the authors' client removes first, and the pattern by which their server finds a block.
_PAPER_TEMPLATE = "```sql\n-- Your SQL query\n```\n"
_PAPER_OPENING = re.compile(r"```sql[ \t]*[\r\n]", re.IGNORECASE)
_PAPER_CLOSING = re.compile(r"[\r\n][ \t]*```")
_NO_BREAK = re.compile(r"[^\r\n]")


def extract_sql(response: str, *, unterminated: bool = False) -> str | None:
    """The content of the last ```sql fence, stripped; None if there is none or it is empty.

    The language tag may be in any case and name a database (sqlite, mysql), the fence may be of tildes, attributes may
    follow it, the block may be on one line, and all of its lines may be quoted with `>`. A fence at the start of a line
    always ends a block. A fence in the middle of a line ends one unless it is in a literal, a quoted name or a block
    comment, so that SELECT '```' is read as intended. The last block decides: a response that was truncated inside it
    has no answer, unless `unterminated` accepts the open block.

    >>> extract_sql("So:\\n```sql\\nSELECT 1\\n```")
    'SELECT 1'
    """
    if ">" in response and _QUOTED_FENCE.search(response):
        response = _without_quotes(response)
    if "~~~" in response:
        response = _TILDES.sub(r"\1```\2```", response)
    fences = _Fences(response)
    start, end = None, None
    opening = _OPENING.search(response)
    while opening:
        start = opening.end()
        end = fences.closing(start)
        if end is None:
            break
        # A fence that opens another block closes this unclosed one.
        opening = _OPENING.match(response, end) or _OPENING.search(response, end + 3)
    if start is None or (end is None and not unterminated):
        return None
    return response[start:end].strip() or None


def query_in(gold: str) -> str:
    """The query of a gold answer that holds it in a fence or tags, or after a label; another gold as it is.

    >>> query_in("SQL: SELECT 1"), query_in("```sql\\nSELECT 1\\n```")
    ('SELECT 1', 'SELECT 1')
    """
    if fenced := extract_sql(gold):
        return fenced
    for pattern in (_ANY_FENCE, _TAGS):
        if len(found := pattern.findall(gold)) == 1 and (query := found[0][1].strip()):
            return query
    labelled = _AFTER_LABEL.fullmatch(gold)
    return labelled[1].strip() if labelled else gold


_ANY_FENCE = re.compile(r"(```+|~~~+)[ \t]*\w*[ \t]*\n(.*?)\1", re.S)
_TAGS = re.compile(r"<(sql|query|answer)>(.*?)</\1>", re.S | re.I)
_AFTER_LABEL = re.compile(r"\s*[A-Za-z][\w ]{0,30}:\s*((?:SELECT|WITH|VALUES)\b.*)", re.S | re.I)


def _without_quotes(text: str) -> str:
    """A text in which quoted lines, > SELECT 1, are plain where a fence among them is quoted too."""
    lines, start = text.split("\n"), 0
    while start < len(lines):
        end = start
        while end < len(lines) and _QUOTED_LINE.match(lines[end]):
            end += 1
        fences = [fence for line in lines[start:end] if (fence := _QUOTED_FENCE.match(line))]
        if fences:
            marks = re.compile(rf"[ \t]*(?:>[ \t]?){{1,{fences[0][1].count('>')}}}")
            lines[start:end] = [marks.sub("", line, count=1) for line in lines[start:end]]
        start = max(end, start + 1)
    return "\n".join(lines)


class _Fences:
    """Finds the ends of blocks. Results are kept: a text with many blocks is not searched once per block."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = [(match.start(), match.end()) for match in _LINE_FENCE.finditer(text)]
        self._next: dict[str, int] = {}

    def closing(self, start: int) -> int | None:
        """Position of the fence that closes the block whose content begins at `start`; None if there is none."""
        line = bisect_left(self._lines, (start, 0))
        own_line = self._lines[line][1] if line < len(self._lines) else None
        limit = len(self._text) if own_line is None else own_line
        position = start
        while mark := _MARK.search(self._text, position, limit):
            opened = mark.group()
            if opened == "```":
                return mark.start()
            position = mark.end()
            if opened == "--":  # apostrophes in a comment open no literal, but a fence may end the comment
                end = _END_OF_COMMENT.search(self._text, position, limit)
                position = end.start() if end else limit
            else:
                closer = "*/" if opened == "/*" else opened
                end_of_piece = self._find(closer, position) + len(closer)
                if end_of_piece <= limit:
                    position = end_of_piece
        return own_line

    def _find(self, closer: str, position: int) -> int:
        """Position of the next closer, past the text's end if none. Positions must not decrease between calls."""
        if self._next.get(closer, -1) < position:
            found = self._text.find(closer, position)
            self._next[closer] = found if found >= 0 else len(self._text) + 1
        return self._next[closer]


def extract_sql_paper(response: str, *, unterminated: bool = False) -> str | None:
    """The block as the authors' code finds it, possibly empty; None if there is none.

    A line break must follow the opening fence and precede the closing one. The first such closing fence ends a block
    even inside a literal. The template of their prompt is removed first. `unterminated` is ignored.
    """
    text = response.replace(_PAPER_TEMPLATE, "")
    found = None
    opening = _PAPER_OPENING.search(text)
    while opening:
        start = opening.end()
        content = _NO_BREAK.search(text, start)
        after_breaks = content.start() if content else len(text)
        # Empty lines belong to the opening, unless the only closing fence comes directly after them.
        closing = _PAPER_CLOSING.search(text, after_breaks) or _PAPER_CLOSING.search(text, start)
        if closing is None:
            break
        found = text[start : max(start, closing.start())].strip()
        opening = _PAPER_OPENING.search(text, closing.end())
    return found


_TOKEN = r"""
    (?:--|\#\ )[^\n]*\n?                    # a line comment
  | \s
  | ` (?: `` | [^`] )* `
  | ' (?: '' | \\' | [^'] )* '
  | " (?: "" | \\" | [^"] )* "
  | (?<![\w\])]) \[ [^\]\[]+ \]             # a name in brackets, not an index
  | -? 0x [\da-f]+
  | -? \d+ (?: \.\d+ )? e -? \d+            # an exponent ends a number even before a letter
  | -? (?: \d+ \.\d* | \.\d+ ) (?! [_a-zÀ-Ü] )
  | -? \d+ (?! [_a-zÀ-Ü] )
  | \w [$\#\w]*
  | .
  """
_FLAGS = re.VERBOSE | re.DOTALL | re.IGNORECASE
_PLAIN = re.compile(_TOKEN, _FLAGS)
_WITH_COMMENTS = re.compile(r"/\*.*?\*/ |" + _TOKEN, _FLAGS)  # block comments that are closed


def tokens(sql: str) -> Iterator[str]:
    """The tokens in order; joined, they give the text again.

    >>> [*tokens("SELECT name FROM item WHERE price>1")]
    ['SELECT', ' ', 'name', ' ', 'FROM', ' ', 'item', ' ', 'WHERE', ' ', 'price', '>', '1']
    """
    last_end, position = sql.rfind("*/"), 0
    while position < len(sql):
        # Searching for the end of an unterminated comment would scan the whole rest of the text each time.
        pattern = _WITH_COMMENTS if position + 2 <= last_end else _PLAIN
        match = pattern.match(sql, position)
        assert match is not None  # the last alternative is any character
        yield match.group()
        position = match.end()


def first_statement_without_distinct(sql: str) -> str:
    """A query after the evaluator has removed every DISTINCT: only its first statement is left.

    A semicolon in parentheses ends no statement; an END closes what the evaluator takes for a block, as a parenthesis
    would. Blanks and line comments after the semicolon still belong to the statement.
    """
    if "distinct" not in sql.lower() and ";" not in sql.rstrip()[:-1]:
        return sql  # nothing to remove; most queries skip the tokenizer
    kept: list[str] = []
    depth, ended = 0, False
    for token in tokens(sql):
        word = token.lower()
        if ended and not (word in " \t\f\v" or word.startswith(("--", "# "))):
            break
        ended = ended or (word == ";" and depth <= 0)
        depth += (word == "(") - (word in (")", "end"))
        if word != "distinct":
            kept.append(token)
    return "".join(kept)


_WORD = re.compile(
    r"""--[^\n]* | /\*.*?(?:\*/|\Z) | '(?:[^']|'')*(?:'|\Z) | "(?:[^"]|"")*(?:"|\Z) | `(?:[^`]|``)*(?:`|\Z)
    | \[[^\]]*(?:\]|\Z) | [\w$]+ | \S""",
    re.VERBOSE | re.DOTALL,
)


def without_empty_statements(sql: str) -> str:
    """The text without further semicolons before its first and after its last word, and the comments among them.

    >>> without_empty_statements("SELECT 1;;")
    'SELECT 1'
    """
    if ";" not in sql.rstrip()[:-1]:
        return sql
    words = [found for found in _WORD.finditer(sql) if not found.group().startswith((";", "--", "/*"))]
    return sql[words[0].start() : words[-1].end()] if words else sql


_CHANGING = ("random(", "randomblob(", "current_")
_TIMES = {name: (0,) for name in ("date", "time", "datetime", "julianday", "unixepoch")}
_TIMES |= {"strftime": (1,), "timediff": (0, 1)}
"""The functions of time, and which of their arguments are times."""
_NOW = ("now", "subsec", "subsecond")


def changes_by_itself(sql: str, program: Sequence[Sequence[str]]) -> bool:
    """Whether a query asks for the current time or for random numbers, so that its result is another one each time.

    program: the rows of EXPLAIN, in which SQLite has resolved views, brackets and subqueries.
    """
    now: set[int] = set()
    """The registers that hold the word for the current time."""
    for _, operation, first, second, _, last, *_ in [*program, *program]:  # constants are loaded by its last lines
        if (operation == "String8" and last.lower() in _NOW) or (operation.endswith("Copy") and int(first) in now):
            now.add(int(second))
        if operation in ("Function", "PureFunc"):
            times = {int(second) + place for place in _TIMES.get(last.partition("(")[0], ())}
            if last.startswith(_CHANGING) or times & now or (times and second == "0"):
                return True
    words = (found.group().lower() for found in _WORD.finditer(sql))
    code = (word for word in words if not word.startswith(("--", "/*")))
    return " strftime ( '' )" in " ".join("''" if word[0] in "'\"" else word for word in code)  # without a time


class GoldFlag(StrEnum):
    """Why a gold result may judge wrongly although its query runs; `dph.verifiers.golds.WEAK` says what each means."""

    CHANGES = "changes"
    EMPTY = "empty"
    LIMIT_TIES = "limit_ties"
    ORDER_TIES = "order_ties"


def orders_its_rows(sql: str) -> bool:
    """True iff the outermost query has an ORDER BY; one inside a subquery, a window or a CTE does not count.

    >>> orders_its_rows("SELECT a FROM t ORDER BY a"), orders_its_rows("SELECT a FROM t")
    (True, False)
    """
    return _levels(sql)[0].ordered


def tie_probes(sql: str, columns: int) -> tuple[str, str] | None:
    """Two queries that return the same rows iff ties leave nothing open; None for a query with neither ORDER BY nor
    LIMIT, also in its subqueries.

    Both are the query with its output columns as further sort keys, once all ascending and once all descending: tied
    rows come in opposite orders, and if tied rows differ at a LIMIT, the two queries keep different rows. A subquery
    with a LIMIT is sorted by its first column, the only one in most of them. sql: one statement that runs; columns: the
    width of its result.
    """
    outermost, *inner = _levels(sql)
    keys = [(level, 1) for level in inner if level.limited]
    if outermost.ordered or outermost.limited:
        keys.append((outermost, columns))
    return (_sorted_further(sql, keys, ""), _sorted_further(sql, keys, " DESC")) if keys else None


def _sorted_further(sql: str, keys: Iterable[tuple["_Level", int]], way: str) -> str:
    """A query with the first columns of some of its levels as further sort keys; keys: levels and their columns."""
    for level, columns in sorted(keys, key=lambda key: key[0].place, reverse=True):
        lead = ", " if level.ordered else " ORDER BY "
        further = ", ".join(f"{number}{way}" for number in range(1, columns + 1))
        sql = sql[: level.place] + lead + further + " " + sql[level.place :]
    return sql


@dataclass(slots=True)
class _Level:
    """A query or one of its parentheses."""

    ordered: bool = False
    """It has an ORDER BY."""
    limited: bool = False
    place: int = 0
    """Position for further sort keys: before the LIMIT, or at the end, before any comment."""


@lru_cache(maxsize=65536)
def _levels(sql: str) -> tuple[_Level, ...]:
    """The outermost query, then everything in parentheses, in the order of their beginnings."""
    levels = [_Level()]
    opened, previous = [levels[0]], ""
    for found in _WORD.finditer(sql):
        word = found.group().lower()
        if word.startswith(("--", "/*")):
            continue
        if word == ")" and len(opened) > 1:
            opened.pop()
        level = opened[-1]
        if word == ";" and level is levels[0]:
            break
        level.limited = level.limited or word == "limit"
        level.ordered = level.ordered or (not level.limited and (previous, word) == ("order", "by"))
        if not level.limited:
            level.place = found.end()
        if word == "(":
            levels.append(_Level(place=found.end()))
            opened.append(levels[-1])
        previous = word
    return tuple(levels)
