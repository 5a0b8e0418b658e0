"""Normalizes queries that are the same to SQLite: a model writes the same query in many ways."""

import re

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
