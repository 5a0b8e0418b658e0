"""Finds the SQL in a response. Every function runs in time linear in the length of the response."""

import re
from bisect import bisect_left

_OPENING = re.compile(r"```[ \t]*sql\b", re.IGNORECASE)
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

    The language tag may be in any case, and the block may be on one line. A fence at the start of a line always ends a
    block. A fence in the middle of a line ends one unless it is inside a literal, a quoted name or a block comment, so
    that SELECT '```' is read as intended. The last block decides: a response that was truncated inside it has no
    answer, unless `unterminated` accepts the open block.
    """
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


class _Fences:
    """Finds the ends of blocks. Search results are kept, so that a text with many blocks is not searched once per
    block."""

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
        """Position of the next closer, past the end of the text if there is none. Positions must not decrease between
        calls."""
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
