"""Twelve kinds of question, each with a convention that its wording leaves open.

Every kind has two readings, like the conventions of different annotators in BIRD; the functions below say which. The
wording never reveals which reading is meant. The rows decide whether the two give different results.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from experiments.minisql.databases import BOUNDS, TEXT_VALUES, Needs, Query, Schema, Table


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its two readings."""

    words: dict[str, str]
    """The values of the phrasing's slots."""
    tables: tuple[str, ...]
    first: Query
    second: Query
    needs: Needs = field(default_factory=Needs)
    """What the rows must satisfy so that the readings can differ, and only by the kind's convention."""


Draw = Callable[[random.Random, Schema, Table], Question]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of question: its convention, its phrasings, and the function that draws one question."""

    name: str
    convention: str
    phrasings: tuple[str, ...]
    """Phrasings in demonstrations and in every split except "cross"."""
    held_out: str
    """The phrasing in "cross", composed of words and expressions from the others."""
    draw: Draw = field(repr=False)
    of_child: bool = False
    """The question needs a join, so it can only be asked about the child table."""


KINDS: list[Kind] = []
"""All kinds, in a fixed order."""


def _kind(convention: str, *phrasings: str, held_out: str, of_child: bool = False) -> Callable[[Draw], Draw]:
    """Decorator: the function draws a question of a kind, which has its name after "draw_"."""

    def add(draw: Draw) -> Draw:
        KINDS.append(Kind(draw.__name__.removeprefix("draw_"), convention, phrasings, held_out, draw, of_child))
        return draw

    return add


def _comparison(rng: random.Random, table: Table) -> tuple[str, str, str, str]:
    """A number column, compared strictly: (column, operator in words, value, condition)."""
    column, value = rng.choice(table.numbers), rng.choice(BOUNDS)
    word, operator = rng.choice((("above", ">"), ("below", "<")))
    return column, word, str(value), f"{column} {operator} {value}"


def _equality(rng: random.Random, column: str) -> tuple[str, str]:
    """A value of a text column and the condition that the column equals it."""
    value = rng.choice(TEXT_VALUES)
    return value, f"{column} = '{value}'"


def _filter(rng: random.Random, table: Table, output: str) -> tuple[dict[str, str], str, Needs]:
    """A comparison or an equality on a column other than the output column: (words, condition, needs)."""
    if rng.random() < 0.5:
        column, word, number, condition = _comparison(rng, table)
        return {"with": f"{column} {word} {number}", "is": f"{column} is {word} {number}"}, condition, Needs()
    column = rng.choice([column for column in table.text if column != output])
    value, condition = _equality(rng, column)
    return (
        {"with": f"{column} '{value}'", "is": f"{column} is '{value}'"},
        condition,
        Needs(frequent=((column, value),)),
    )


@_kind(
    "duplicates",
    "list the {c} of {t} with {with}",
    "{c} of {t} where {is}",
    "show the {c} of all {t} whose {is}",
    held_out="show the {c} of all {t} with {with}",
)
def draw_list(rng: random.Random, _: Schema, table: Table) -> Question:
    """A column of the rows that pass a filter; duplicates kept, or DISTINCT."""
    column = rng.choice(table.text)
    words, condition, needs = _filter(rng, table, column)
    first = Query((column,), table.name, (condition,))
    return Question({"c": column, **words}, (table.name,), first, replace(first, distinct=True), needs)


@_kind(
    "duplicates",
    "list the {c} of {t} with {d} '{w}' and {m} {above} {v}",
    "{c} of {t} where {d} is '{w}' and {m} is {above} {v}",
    "show the {c} of all {t} whose {d} is '{w}' and {m} is {above} {v}",
    held_out="show the {c} of all {t} with {d} '{w}' and {m} {above} {v}",
)
def draw_both(rng: random.Random, _: Schema, table: Table) -> Question:
    """The same with two conditions."""
    column, other = rng.sample(table.text, 2)
    value, equal = _equality(rng, other)
    number, word, bound, compared = _comparison(rng, table)
    first = Query((column,), table.name, (equal, compared))
    words = {"c": column, "d": other, "w": value, "m": number, "above": word, "v": bound}
    return Question(words, (table.name,), first, replace(first, distinct=True), Needs(frequent=((other, value),)))


@_kind(
    "duplicates",
    "list the {c} of {t} in {b} with {with}",
    "{c} of {t} whose {b} have {with}",
    "show the {c} of all {t} in {b} where {is}",
    held_out="list the {c} of {t} whose {b} have {with}",
    of_child=True,
)
def draw_join(rng: random.Random, schema: Schema, table: Table) -> Question:
    """A column of the children whose parents pass a filter; duplicates kept, or DISTINCT."""
    column, parent = rng.choice(table.text), schema.parent
    words, condition, needs = _filter(rng, parent, column)
    first = Query((column,), schema.joined, (condition,))
    words = {"c": column, "b": parent.name, **words}
    return Question(words, (table.name, parent.name), first, replace(first, distinct=True), needs)


@_kind(
    "duplicates",
    "how many values of {c} do {t} with {with} have",
    "number of {c} values of {t} whose {is}",
    "count the {c} values of {t} where {is}",
    held_out="number of {c} values of {t} with {with}",
)
def draw_values(rng: random.Random, _: Schema, table: Table) -> Question:
    """The number of values in a column; all values, or DISTINCT ones."""
    column = rng.choice(table.text)
    words, condition, needs = _filter(rng, table, column)
    first = Query((f"count( {column} )",), table.name, (condition,))
    second = replace(first, outputs=(f"count( distinct {column} )",))
    return Question({"c": column, **words}, (table.name,), first, second, needs)


@_kind(
    "ties",
    "list the {c} of {t} with the {highest} {m}",
    "{c} of {t} where {m} is the {highest}",
    "show the {c} of all {t} whose {m} is the {highest}",
    held_out="show the {c} of all {t} with the {highest} {m}",
)
def draw_superlative(rng: random.Random, _: Schema, table: Table) -> Question:
    """A column of the row with the extreme number; one row, or all tied rows."""
    column, number = rng.choice(table.text), rng.choice(table.numbers)
    word, direction, function = rng.choice((("highest", " desc", "max"), ("lowest", "", "min")))
    first = Query((column,), table.name, tail=f"order by {number}{direction} limit 1")
    extreme = f"{number} = ( select {function}( {number} ) from {table.name} )"
    second = Query((column,), table.name, (extreme,), opaque=True)
    return Question({"c": column, "m": number, "highest": word}, (table.name,), first, second)


@_kind(
    "bounds",
    "how many {t} have {m} {range}",
    "number of {t} whose {m} is {range}",
    "count the {t} with {m} {range}",
    held_out="number of {t} with {m} {range}",
)
def draw_count(rng: random.Random, _: Schema, table: Table) -> Question:
    """The number of rows on one side of a bound; the bound is included, or excluded."""
    number, value = rng.choice(table.numbers), rng.choice(BOUNDS)
    words, closed, opened = rng.choice(((f"from {value} up", ">=", ">"), (f"up to {value}", "<=", "<")))
    first = Query(("count(*)",), table.name, (f"{number} {closed} {value}",))
    second = replace(first, where=(f"{number} {opened} {value}",))
    return Question({"m": number, "range": words}, (table.name,), first, second)


@_kind(
    "bounds",
    "total {m} of {t} from {v} to {u}",
    "what is the total of all {m} from {v} to {u} of {t}",
    "add the {m} of {t} from {v} to {u}",
    held_out="what is the total {m} of {t} from {v} to {u}",
)
def draw_total(rng: random.Random, _: Schema, table: Table) -> Question:
    """The sum of a column's numbers between two bounds; the bounds are included, or excluded."""
    number = rng.choice(table.numbers)
    low, high = sorted(rng.sample(BOUNDS, 2))
    first = Query((f"sum( {number} )",), table.name, (f"{number} between {low} and {high}",))
    second = replace(first, where=(f"{number} > {low} and {number} < {high}",))
    return Question({"m": number, "v": str(low), "u": str(high)}, (table.name,), first, second)


@_kind(
    "nulls",
    "how many {t} have {d} not '{w}'",
    "number of {t} whose {d} is not '{w}'",
    "count the {t} with {d} not '{w}'",
    held_out="number of {t} with {d} not '{w}'",
)
def draw_unlike(rng: random.Random, _: Schema, table: Table) -> Question:
    """The number of rows that do not have a value; NULL is not counted (`<>`), or is counted (IS NOT)."""
    column = rng.choice(table.text)
    value = rng.choice(TEXT_VALUES)
    first = Query(("count(*)",), table.name, (f"{column} <> '{value}'",))
    second = replace(first, where=(f"{column} is not '{value}'",))
    needs = Needs(nullable=(column,), frequent=((column, value),))
    return Question({"d": column, "w": value}, (table.name,), first, second, needs)


@_kind(
    "nulls",
    "average {m} of {t} with {d} '{w}'",
    "what is the average {m} of {t} whose {d} is '{w}'",
    "mean {m} of {t} where {d} is '{w}'",
    held_out="what is the average {m} of {t} with {d} '{w}'",
)
def draw_average(rng: random.Random, _: Schema, table: Table) -> Question:
    """The mean of a number over the rows with a value; NULL is left out, or counts as zero."""
    number = rng.choice(table.numbers)
    column = rng.choice(table.text)
    value, equal = _equality(rng, column)
    first = Query((f"avg( {number} )",), table.name, (equal,))
    second = replace(first, outputs=(f"avg( ifnull( {number} , 0 ) )",))
    needs = Needs(nullable=(number,), frequent=((column, value),))
    return Question({"m": number, "d": column, "w": value}, (table.name,), first, second, needs)


@_kind(
    "nulls",
    "for each {c} how many {t}",
    "number of {t} per {c}",
    "count the {t} by {c}",
    held_out="for each {c} count the {t}",
)
def draw_group(rng: random.Random, _: Schema, table: Table) -> Question:
    """The number of rows per value; NULL is one of the values, or is left out."""
    column = rng.choice(table.text)
    first = Query((column, "count(*)"), table.name, tail=f"group by {column}")
    second = replace(first, where=(f"{column} is not null",))
    return Question({"c": column}, (table.name,), first, second, Needs(nullable=(column,)))


@_kind(
    "nulls",
    "list the {c} of {t} by {m} from the {highest}",
    "{c} of {t} in order of {m} from the {highest}",
    "show the {c} of all {t} from the {highest} {m}",
    held_out="show the {c} of all {t} by {m} from the {highest}",
)
def draw_sort(rng: random.Random, _: Schema, table: Table) -> Question:
    """A column in the order of a number; rows where the number is NULL are included, or left out."""
    column, number = rng.choice(table.text), rng.choice(table.numbers)
    word, direction = rng.choice((("highest", " desc"), ("lowest", "")))
    first = Query((column,), table.name, tail=f"order by {number}{direction}")
    second = replace(first, where=(f"{number} is not null",))
    words = {"c": column, "m": number, "highest": word}
    return Question(words, (table.name,), first, second, Needs(nullable=(number,), unique=(number,)))


@_kind(
    "childless",
    "list the {c} of {b} and how many {t} they have",
    "{c} of {b} with their number of {t}",
    "show the {c} of all {b} and count their {t}",
    held_out="show the {c} of all {b} with their number of {t}",
    of_child=True,
)
def draw_per(rng: random.Random, schema: Schema, table: Table) -> Question:
    """The number of children per parent; parents without children are left out, or get zero."""
    parent = schema.parent
    column = rng.choice(parent.text)
    join = f"join {table.name} on {schema.key} = {parent.name}.id"
    outputs, tail = (column, f"count( {schema.key} )"), f"group by {parent.name}.id"
    first = Query(outputs, f"{parent.name} {join}", tail=tail, opaque=True)
    second = replace(first, source=f"{parent.name} left {join}")
    return Question({"c": column, "b": parent.name}, (parent.name, table.name), first, second)
