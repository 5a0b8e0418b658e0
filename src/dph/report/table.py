"""A titled table of texts: how metrics are written, and the table as Markdown and on a terminal."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table as TerminalTable
from rich.text import Text

from dph.errors import visible
from dph.report.data import Value


@dataclass(frozen=True, slots=True)
class Cell:
    """A table's entry: text, with its interval and the number of problems behind it, as far as there is anything to
    say."""

    text: str
    interval: str = ""
    over: str = ""
    """See `dph.report.data.Value.over`."""


@dataclass(frozen=True, slots=True)
class Table:
    """A titled table; the first entry of a row is its label."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""

    @property
    def caption(self) -> str:
        """The note, and what "35 of 40" in an entry means."""
        over = (
            ""
            if not any(entry.over for row in self.rows for entry in row)
            else ("An entry with “35 of 40” is over 35 of the 40 problems: the others lack the metric.")
        )
        return " ".join(filter(None, (self.note, over)))


def cell(name: str, value: Value | None) -> Cell:
    """A metric as text: counts of styles and the like as they are, entropies in nats, everything else in percent."""
    if value is None or math.isnan(value.mean):
        return Cell("–")
    counts = name.startswith(("styles", "distinct"))
    scale, digits = (1, 2) if counts else (1, 3) if name == "token_entropy" else (100, 1)
    interval = "" if math.isnan(value.low) else f"{scale * value.low:.{digits}f}–{scale * value.high:.{digits}f}"
    return Cell(f"{scale * value.mean:.{digits}f}", interval, value.over)


def signed_cell(value: Value, scale: float = 100, digits: int = 1) -> Cell:
    """A difference as text with its sign; in percentage points unless another scale is given."""
    if math.isnan(value.mean):
        return Cell("–")
    interval = "" if math.isnan(value.low) else f"{scale * value.low:+.{digits}f} to {scale * value.high:+.{digits}f}"
    return Cell(f"{scale * value.mean:+.{digits}f}", interval, value.over)


def _transposed(table: Table) -> Table:
    """The table with rows and columns exchanged."""
    heads = [row[0].text for row in table.rows]
    rows = [[Cell(name), *(row[index] for row in table.rows)] for index, name in enumerate(table.columns) if index > 0]
    return Table(table.title, ["", *heads], rows, table.note)


_MARKUP = re.compile(
    r"""[\\`*\[\]<|~$]               # code, emphasis, links, HTML, cells, mathematics
    |(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])  # emphasis, which does not begin or end within a word
    |&(?=\#?\w+;)                  # entities
    |:(?=//)|(?<=www)\.            # addresses""",
    re.VERBOSE,
)
"""What GitHub would read as markup within a line; the rest stays readable in the file, as 1e-6 and pass@8 do."""


def as_markdown(text: str) -> str:
    """A text on one line of GitHub's Markdown that shows it as it is: nothing in it is markup."""
    return _MARKUP.sub(r"\\\g<0>", visible(" ".join(text.splitlines())))


def to_markdown(table: Table) -> str:
    """The table in GitHub's Markdown, intervals in parentheses."""

    def line(entries: Sequence[str]) -> str:
        return "| " + " | ".join(entries) + " |"

    body = [
        line([as_markdown(entry.text + _bracketed(entry.interval, entry.over)) for entry in row]) for row in table.rows
    ]
    rule = line(["---", *("---:" for _ in table.columns[1:])])
    head = line([*map(as_markdown, table.columns)])
    parts = [f"**{as_markdown(table.title)}**", "\n".join([head, rule, *body]), as_markdown(table.caption)]
    return "\n\n".join(part for part in parts if part) + "\n"


def print_table(table: Table) -> None:
    """Print the table to the terminal, with a column for each row where there are fewer rows than columns: a few labels
    fit where many metrics do not."""
    if len(table.rows) < len(table.columns):
        table = _transposed(table)
    console = Console()
    # A column with an interval takes about 20 characters; where they do not fit, report.md has them.
    intervals = console.width >= 20 * len(table.columns)
    title, caption = Text(visible(table.title)), Text(visible(table.caption))  # rich reads [tags] in a str
    shown = TerminalTable(title=title, title_justify="left", caption=caption, caption_justify="left")
    for index, name in enumerate(table.columns):
        shown.add_column(Text(visible(name)), justify="left" if index == 0 else "right")
    for row in table.rows:
        details = (_bracketed(entry.interval if intervals else "", entry.over) for entry in row)
        shown.add_row(
            *(Text.assemble(visible(entry.text), (more, "dim")) for entry, more in zip(row, details, strict=True))
        )
    console.print(shown)


def _bracketed(*details: str) -> str:
    found = "; ".join(filter(None, details))
    return f" ({found})" if found else ""
