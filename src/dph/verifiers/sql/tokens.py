"""Splits SQL text into tokens as Spider's official evaluator sees it. Standard library only: workers load this.

The evaluator tokenises with sqlparse and joins what it keeps, so the places where one token ends and the next begins
decide what is kept. This is that tokenizer as far as it can matter for a query that SQLite accepts afterwards: strings
(a backslash keeps a quote from closing one), quoted and bracketed names, comments (MySQL's "# " is one), numbers and
words.
"""

import re
from collections.abc import Iterator

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
    """The tokens in order; joined they are the text again."""
    if "/*" not in sql:
        return (match.group() for match in _PLAIN.finditer(sql))
    return _tokens_with_comments(sql)


def _tokens_with_comments(sql: str) -> Iterator[str]:
    last_end, position = sql.rfind("*/"), 0
    while position < len(sql):
        # Looking for the end of a comment that has none would take the length of the text each time.
        pattern = _WITH_COMMENTS if position + 2 <= last_end else _PLAIN
        match = pattern.match(sql, position)
        assert match is not None  # the last alternative is any character
        yield match.group()
        position = match.end()


def first_statement_without_distinct(sql: str) -> str:
    """What is left of a query after the evaluator took out every DISTINCT: its first statement.

    A semicolon in parentheses ends no statement; an END closes what it takes for a block, as a parenthesis would.
    Blanks and line comments behind the semicolon still belong to the statement.
    """
    if "distinct" not in sql.lower() and ";" not in sql.rstrip()[:-1]:
        return sql  # nothing to take out; this spares most queries the tokenizer
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
