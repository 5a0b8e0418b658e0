"""Five solution styles for SQL answers, distinguished by prefix and form (paper, Appendix B).

A response is `PREFIX ```sql QUERY ``` `. A response that mixes prefixes, or whose SQL has another style's form, is
"other", which the paper counts as one more style. The paper classifies by the prefix alone: `style_of_prefix`.
"""

import re
from collections.abc import Sequence
from typing import Literal, get_args

Style = Literal["direct", "plan", "cte", "nested", "stepwise"]
Form = Literal["plain", "with", "from_subquery"]

STYLES: tuple[Style, ...] = get_args(Style)
OTHER = "other"

_FORMATS: dict[Style, tuple[str, Form, str]] = {
    "direct": ("query", "plain", ""),
    "plan": ("plan", "plain", "tables {} , output {}"),
    "cte": ("define", "with", ""),
    "nested": ("nest", "from_subquery", ""),
    "stepwise": ("steps", "plain", "read {} , then select {}"),
}
"""The word of a style's prefix, the form of its SQL, and the notes after the word: the tables that are read and the
expressions returned."""
_STYLE_OF_WORD: dict[str, Style] = {word: style for style, (word, _, _) in _FORMATS.items()}
_UNTIL_FENCE = r"(?:(?!```).)*?"
_RESPONSE = re.compile(
    rf"\s*(?P<word>[a-z]+):(?P<notes>{_UNTIL_FENCE})```[sS][qQ][lL]\s+(?P<sql>{_UNTIL_FENCE})\s*```\s*", re.DOTALL
)
_ANY_PREFIX = re.compile(rf"\b(?:{'|'.join(_STYLE_OF_WORD)})\s*:")
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`")
_OPENS_WITH = re.compile(r"\s*with\b", re.IGNORECASE)
_FROM_SUBQUERY = re.compile(r"\b(?:from|join)\s*\(\s*(?:select|with|values)\b", re.IGNORECASE)


def form_of(sql: str) -> Form:
    """The form of a query: "with" if it opens with WITH, else "from_subquery" if a FROM or JOIN anywhere in it reads
    a subquery, else "plain". Text inside quotes does not count."""
    bare = _QUOTED.sub("''", sql)
    if _OPENS_WITH.match(bare):
        return "with"
    return "from_subquery" if _FROM_SUBQUERY.search(bare) else "plain"


def required_form(style: Style) -> Form:
    """The form that the SQL of a style must have."""
    return _FORMATS[style][1]


def prefix(style: Style, tables: Sequence[str], outputs: Sequence[str]) -> str:
    """The text before the fence: `plan` and `stepwise` name the tables that are read and the expressions returned."""
    word, _, notes = _FORMATS[style]
    return f"{word}: {notes.format(' and '.join(tables), ' and '.join(outputs))}".rstrip()


def respond(style: Style, sql: str, tables: Sequence[str], outputs: Sequence[str]) -> str:
    """A full response in a style: its prefix, then the query in a fenced block. The caller must supply a query in the
    style's form (`required_form`), checked by execution."""
    return f"{prefix(style, tables, outputs)} ```sql {sql} ```"


def style_of(response: str) -> str:
    """The style of a response, one of STYLES, or "other".

    A response has a style if it begins with exactly one prefix, followed by that style's notes and one fenced query in
    that style's form, and nothing else.
    """
    match = _RESPONSE.fullmatch(response)
    if match is None or match["word"] not in _STYLE_OF_WORD:
        return OTHER
    style = _STYLE_OF_WORD[match["word"]]
    _, form, template = _FORMATS[style]
    notes = match["notes"].strip()
    if _ANY_PREFIX.search(notes) or not re.fullmatch(template.replace("{}", ".+"), notes):
        return OTHER
    return style if form_of(match["sql"]) == form else OTHER


def style_of_prefix(response: str) -> str:
    """The style of a response by its prefix alone, as the paper says: one of STYLES if the text before the first fence
    begins with exactly one prefix, whatever follows it, else "other"."""
    before = response.partition("```")[0].lstrip()
    words = [match[0].rstrip(" :") for match in _ANY_PREFIX.finditer(before)]
    return _STYLE_OF_WORD[words[0]] if len(words) == 1 and before.startswith(words[0]) else OTHER
