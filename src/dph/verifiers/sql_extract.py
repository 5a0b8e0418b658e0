"""Finds the SQL in a response."""

import re

_OPENING = re.compile(r"```[ \t]*sql\b", re.IGNORECASE)


def extract_sql(response: str, *, unterminated: bool = False) -> str | None:
    """The content of the last ```sql fence, stripped; None where there is none or it is empty.

    The language tag may be in any case and the block may stand on one line. The last opening fence decides: a response
    that was cut off inside its last block has no answer, unless `unterminated` accepts the open block.
    """
    start = None
    for match in _OPENING.finditer(response):
        start = match.end()
    if start is None:
        return None
    end = response.find("```", start)
    if end < 0 and not unterminated:
        return None
    sql = response[start : end if end >= 0 else None].strip()
    return sql or None
