"""A query in parts, and the three forms in which the five styles write it."""

from dataclasses import dataclass, replace

from dph.tasks.styles import Form


@dataclass(frozen=True, slots=True)
class Query:
    """SELECT [DISTINCT] outputs FROM source [WHERE conditions] [tail]."""

    outputs: tuple[str, ...]
    source: str
    where: tuple[str, ...] = ()
    tail: str = ""
    """GROUP BY, ORDER BY and LIMIT."""
    distinct: bool = False
    opaque: bool = False
    """The outer part needs the source's own names, so other forms wrap the whole query instead of its filter."""

    @property
    def ordered(self) -> bool:
        """The order of the result rows counts."""
        return self.tail.startswith("order by")

    def without(self, condition: int) -> "Query":
        """The query with one condition dropped."""
        return replace(self, where=self.where[:condition] + self.where[condition + 1 :])

    def sql(self, form: Form = "plain") -> str:
        """The query's text. Tokens are separated by spaces, so that each is one token of a word-level tokenizer."""
        head = f"select {'distinct ' if self.distinct else ''}{' , '.join(self.outputs)} from"
        where = f" where {' and '.join(self.where)}" if self.where else ""
        tail = f" {self.tail}" if self.tail else ""
        plain = f"{head} {self.source}{where}{tail}"
        if form == "plain":
            return plain
        inner = plain if self.opaque else f"select * from {self.source}{where}"
        if form == "with":
            outer = "select * from x" if self.opaque else f"{head} x{tail}"
            return f"with x as ( {inner} ) {outer}"
        return f"select * from ( {inner} )" if self.opaque else f"{head} ( {inner} ){tail}"
