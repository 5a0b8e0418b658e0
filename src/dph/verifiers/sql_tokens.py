"""Splits SQL text into tokens as Spider's official evaluator sees it. Standard library only: workers load this.

The evaluator tokenises with sqlparse and joins what it keeps, so the places where one token ends and the next begins
decide what is kept. This is that tokenizer as far as it can matter for a query that SQLite accepts afterwards: strings
(a backslash keeps a quote from closing one), quoted and bracketed names, comments (MySQL's "# " is one), numbers and
words.
"""

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"""
      /\*.*?\*/                               # a block comment that is closed
    | (?:--|\#\ )[^\n]*\n?                    # a line comment
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
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)


def tokens(sql: str) -> Iterator[str]:
    """The tokens in order; joined they are the text again."""
    return (match.group() for match in _TOKEN.finditer(sql))


def first_statement_without_distinct(sql: str) -> str:
    """What is left of a query after the evaluator took out every DISTINCT: its first statement.

    A semicolon in parentheses ends no statement; an END closes what it takes for a block, as a parenthesis would.
    Blanks and line comments behind the semicolon still belong to the statement.
    """
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
