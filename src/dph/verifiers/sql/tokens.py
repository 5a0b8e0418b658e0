"""Splits SQL text into tokens as Spider's official evaluator does. Standard library only: workers load this.

The evaluator tokenises with sqlparse and joins the tokens that it keeps, so the token boundaries decide what is kept.
This tokenizer reproduces sqlparse's for everything that can matter in a query that SQLite accepts afterwards: strings
(a backslash prevents a quote from closing one), quoted and bracketed names, comments (including MySQL's "# "), numbers
and words.
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
    """The tokens in order; joined, they give the text again."""
    if "/*" not in sql:
        return (match.group() for match in _PLAIN.finditer(sql))
    return _tokens_with_comments(sql)


def _tokens_with_comments(sql: str) -> Iterator[str]:
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
