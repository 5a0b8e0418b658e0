"""Finds the SQL in a response. Every function takes time proportional to the response, whatever it holds."""

import re
from bisect import bisect_left

_OPENING = re.compile(r"```[ \t]*sql\b", re.IGNORECASE)
_LINE_FENCE = re.compile(r"^[ \t]*(?=```)", re.MULTILINE)
_MARK = re.compile(r"""```|['"`]|--|/\*""")
_END_OF_COMMENT = re.compile(r"```|\n")
# What the authors' client takes out before anything else, and what their server takes for a block.
_PAPER_TEMPLATE = "```sql\n-- Your SQL query\n```\n"
_PAPER_OPENING = re.compile(r"```sql[ \t]*[\r\n]", re.IGNORECASE)
_PAPER_CLOSING = re.compile(r"[\r\n][ \t]*```")
_NO_BREAK = re.compile(r"[^\r\n]")


def extract_sql(response: str, *, unterminated: bool = False) -> str | None:
    """The content of the last ```sql fence, stripped; None where there is none or it is empty.

    The language tag may be in any case and the block may stand on one line. A fence at the start of a line always ends
    a block; one in the middle of a line does unless it stands in a literal, a quoted name or a block comment, so that
    SELECT '```' is read as it is meant. The last block decides: a response that was cut off inside it has no answer,
    unless `unterminated` accepts the open block.
    """
    fences = _Fences(response)
    start, end = None, None
    opening = _OPENING.search(response)
    while opening:
        start = opening.end()
        end = fences.closing(start)
        if end is None:
            break
        # A fence that opens another block closes this one, which was left open.
        opening = _OPENING.match(response, end) or _OPENING.search(response, end + 3)
    if start is None or (end is None and not unterminated):
        return None
    return response[start:end].strip() or None


class _Fences:
    """Finds where blocks end. What was found ahead is kept, so that many blocks do not each search the whole text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = [(match.start(), match.end()) for match in _LINE_FENCE.finditer(text)]
        self._next: dict[str, int] = {}

    def closing(self, start: int) -> int | None:
        """Where the fence stands that closes a block whose content begins at `start`; None without one."""
        line = bisect_left(self._lines, (start, 0))
        own_line = self._lines[line][1] if line < len(self._lines) else None
        limit = len(self._text) if own_line is None else own_line
        position = start
        while mark := _MARK.search(self._text, position, limit):
            opened = mark.group()
            if opened == "```":
                return mark.start()
            position = mark.end()
            if opened == "--":  # the apostrophes of a comment open nothing, but a fence may end it
                end = _END_OF_COMMENT.search(self._text, position, limit)
                position = end.start() if end else limit
            else:
                closer = "*/" if opened == "/*" else opened
                end_of_piece = self._find(closer, position) + len(closer)
                if end_of_piece <= limit:
                    position = end_of_piece
        return own_line

    def _find(self, closer: str, position: int) -> int:
        """Where the next closer stands, beyond the text if there is none. Positions must not fall."""
        if self._next.get(closer, -1) < position:
            found = self._text.find(closer, position)
            self._next[closer] = found if found >= 0 else len(self._text) + 1
        return self._next[closer]


def extract_sql_paper(response: str, *, unterminated: bool = False) -> str | None:
    """The block as the authors' code finds it, which may be empty; None without one.

    A line break must follow the opening and precede the closing fence, the first such closing ends a block even inside
    a literal, and the template of their prompt is taken out beforehand. `unterminated` makes no difference.
    """
    text = response.replace(_PAPER_TEMPLATE, "")
    found = None
    opening = _PAPER_OPENING.search(text)
    while opening:
        start = opening.end()
        content = _NO_BREAK.search(text, start)
        after_breaks = content.start() if content else len(text)
        # Empty lines belong to the opening, unless a closing fence directly after them is the only one there is.
        closing = _PAPER_CLOSING.search(text, after_breaks) or _PAPER_CLOSING.search(text, start)
        if closing is None:
            break
        found = text[start : max(start, closing.start())].strip()
        opening = _PAPER_OPENING.search(text, closing.end())
    return found
